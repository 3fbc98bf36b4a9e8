//! `Route`: the variables and options that lead a job to Selvedge, and the line to type.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::launcher::{Kind, Launcher};
use super::selection::Family;

/// Additions to the user's line. The user's own line has none.
#[derive(Debug, Default)]
pub(super) struct Route {
    /// The name of the route, as in the report.
    pub(super) name: &'static str,
    /// Variables of the launcher.
    pub(super) environment: Vec<(&'static str, OsString)>,
    /// Options of the launcher.
    pub(super) options: Vec<String>,
    /// The provider that the ranks should select.
    pub(super) provider: &'static str,
    /// The file that the ranks should have mapped.
    pub(super) file: PathBuf,
}

/// The installed files of Selvedge.
#[derive(Debug, Default)]
pub(super) struct Installed {
    /// The folder with the providers for another libfabric.
    pub(super) plugins: Option<PathBuf>,
    /// The folder with `libfabric.so.1`.
    pub(super) library: Option<PathBuf>,
    /// The shared heap.
    pub(super) heap: Option<PathBuf>,
}

const PLUGIN: &str = "libselvedge_shm-fi.so";
const LIBRARY: &str = "libfabric.so.1";
const HEAP: &str = "libselvedge_heap.so";

impl Installed {
    /// Finds the files below `folder`, or else beside this program: in the folders of
    /// `cargo xtask install` and of the Debian packages.
    pub(super) fn find(folder: Option<&Path>) -> Self {
        let folders = match folder {
            Some(folder) => vec![folder.to_owned()],
            None => Self::folders_beside_this_program(),
        };
        let with = |name: &str| folders.iter().find(|it| it.join(name).exists());
        let library = folders
            .iter()
            .find(|it| it.join(LIBRARY).exists() && it.join(HEAP).exists());
        let below = folders.iter().map(|it| it.join("libfabric"));
        let plugins = folders.iter().cloned().chain(below);
        Self {
            plugins: plugins.into_iter().find(|it| it.join(PLUGIN).exists()),
            library: library.cloned(),
            heap: with(HEAP).map(|folder| folder.join(HEAP)),
        }
    }

    fn folders_beside_this_program() -> Vec<PathBuf> {
        let triple = format!("{}-linux-gnu", std::env::consts::ARCH);
        let below = ["lib", "lib64", &format!("lib/{triple}")].map(str::to_owned);
        let program = std::env::current_exe().unwrap_or_default();
        let prefix = program.parent().and_then(Path::parent);
        let prefix = prefix.unwrap_or_else(|| Path::new("/usr"));
        let folders = below.into_iter().map(|name| prefix.join(name));
        folders.flat_map(|it| [it.join("selvedge"), it]).collect()
    }
}

impl Route {
    /// The routes that the installed files permit.
    pub(super) fn all(launcher: &Launcher, family: Family, installed: &Installed) -> Vec<Self> {
        let mut routes = Vec::new();
        if let Some(folder) = &installed.plugins {
            let mut route = Self::new("plugin", "selvedge_shm", folder.join(PLUGIN));
            // Providers that the variable already names stay.
            let value = in_front(folder, "FI_PROVIDER_PATH");
            route.set(launcher, "FI_PROVIDER_PATH", value);
            route.select(launcher, family);
            routes.push(route);
        }
        let Some(folder) = &installed.library else {
            return routes;
        };
        let library = || {
            let mut route = Self::new("library", "shm", folder.join(LIBRARY));
            let value = in_front(folder, "LD_LIBRARY_PATH");
            route.set(launcher, "LD_LIBRARY_PATH", value);
            route.select(launcher, family);
            route
        };
        routes.push(library());
        if let Some(heap) = &installed.heap {
            let mut route = library();
            (route.name, route.file) = ("library and heap", heap.clone());
            route.set(launcher, "LD_PRELOAD", heap.clone().into_os_string());
            routes.push(route);
        }
        routes
    }

    fn new(name: &'static str, provider: &'static str, file: PathBuf) -> Self {
        Self {
            name,
            provider,
            file,
            ..Self::default()
        }
    }

    /// Sets a variable of the ranks. Launchers other than Hydra and Open MPI pass theirs on.
    fn set(&mut self, launcher: &Launcher, name: &'static str, value: OsString) {
        let text = value.to_string_lossy().into_owned();
        match launcher.kind {
            Kind::OpenMpi => self
                .options
                .extend(["-x".to_owned(), format!("{name}={text}")]),
            Kind::Hydra | Kind::IntelMpi => {
                self.options
                    .extend(["-genv".to_owned(), name.to_owned(), text]);
            }
            _ => self.environment.push((name, value)),
        }
    }

    /// Makes the MPI library use libfabric, and this provider of it.
    fn select(&mut self, launcher: &Launcher, family: Family) {
        if family == Family::OpenMpi {
            let settings = [
                ("pml", "cm"),
                ("mtl", "ofi"),
                ("mtl_ofi_provider_include", self.provider),
            ];
            for (name, value) in settings {
                self.options
                    .extend(["--mca", name, value].map(str::to_owned));
            }
            return;
        }
        let settings: &[_] = if family == Family::IntelMpi {
            &[
                ("I_MPI_FABRICS", "ofi"),
                ("I_MPI_OFI_PROVIDER", self.provider),
            ]
        } else {
            &[
                ("MPIR_CVAR_CH4_NETMOD", "ofi"),
                ("MPIR_CVAR_NOLOCAL", "1"),
                ("FI_PROVIDER", self.provider),
            ]
        };
        for (name, value) in settings {
            self.set(launcher, name, (*value).into());
        }
    }

    /// All options: those of the route, and the user's that set nothing that the route sets.
    pub(super) fn all_options(&self, user: &[String]) -> Vec<String> {
        let set = names(&self.options);
        let mut options = self.options.clone();
        let mut rest = user;
        while !rest.is_empty() {
            let (name, length) = setting(rest);
            let (setting, others) = rest.split_at(length.min(rest.len()));
            if name.is_none_or(|name| !set.contains(&name)) {
                options.extend_from_slice(setting);
            }
            rest = others;
        }
        options
    }

    /// The line to type.
    pub(super) fn line(&self, launcher: &Launcher) -> String {
        let variables = self.environment.iter();
        let variables =
            variables.map(|(name, value)| format!("{name}={}", quoted(&value.to_string_lossy())));
        let mut words: Vec<_> = variables.collect();
        words.push(quoted(&launcher.path.to_string_lossy()));
        let options = self.all_options(&launcher.options);
        words.extend(options.iter().map(|option| quoted(option)));
        if !launcher.has_rank_count() {
            words.extend(["-n", "RANKS"].map(str::to_owned));
        }
        words.push("PROGRAM".to_owned());
        words.join(" ")
    }
}

/// The name that the first option sets, and the number of its words.
fn setting(options: &[String]) -> (Option<&str>, usize) {
    let argument = options.get(1).map(String::as_str);
    match options.first().map(String::as_str) {
        Some("--mca" | "-mca" | "--gmca" | "-gmca" | "-genv" | "--genv") => (argument, 3),
        Some("-x") => (argument.and_then(|it| it.split('=').next()), 2),
        _ => (None, 1),
    }
}

/// The names that options set.
fn names(mut options: &[String]) -> Vec<&str> {
    let mut names = Vec::new();
    while !options.is_empty() {
        let (name, length) = setting(options);
        names.extend(name);
        options = &options[length.min(options.len())..];
    }
    names
}

/// The folders of a variable, with `folder` in front of them.
fn in_front(folder: &Path, variable: &str) -> OsString {
    let old = std::env::var_os(variable).unwrap_or_default();
    let others = std::env::split_paths(&old).filter(|it| it != folder && *it != Path::new(""));
    let folders = std::iter::once(folder.to_owned()).chain(others);
    // A folder with a colon in its name cannot be one of several.
    std::env::join_paths(folders).unwrap_or_else(|_| folder.into())
}

/// A word as the shell reads it.
fn quoted(word: &str) -> String {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || "-_./:=,+@%^".contains(it);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_the_shell() {
        assert_eq!(quoted("--mca"), "--mca");
        assert_eq!(quoted("tcp;ofi_rxm"), "'tcp;ofi_rxm'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }

    #[test]
    fn lines_have_the_user_s_options_and_those_of_the_route() {
        let launcher = |kind| Launcher {
            path: "/opt/bin/mpirun".into(),
            options: vec!["-host".to_owned(), "a,b".to_owned()],
            kind,
            version: String::new(),
        };
        let installed = Installed {
            plugins: Some("/sel/libfabric".into()),
            ..Installed::default()
        };
        let line = |kind, family| {
            let launcher = launcher(kind);
            Route::all(&launcher, family, &installed)[0].line(&launcher)
        };
        assert!(line(Kind::OpenMpi, Family::OpenMpi).ends_with(
            "--mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include selvedge_shm \
                 -host a,b -n RANKS PROGRAM"
        ));
        let hydra = line(Kind::Hydra, Family::Mpich);
        assert!(
            hydra.contains("-genv FI_PROVIDER selvedge_shm -host a,b"),
            "{hydra}"
        );
        let slurm = line(Kind::Slurm, Family::IntelMpi);
        assert!(
            slurm.contains("I_MPI_OFI_PROVIDER=selvedge_shm /opt/bin/mpirun"),
            "{slurm}"
        );
    }

    #[test]
    fn options_of_the_route_replace_those_of_the_user() {
        let words = |text: &str| -> Vec<String> { text.split(' ').map(str::to_owned).collect() };
        let route = Route {
            options: words("-x FI_PROVIDER_PATH=/a --mca pml cm -genv FI_PROVIDER shm"),
            ..Route::default()
        };
        let user =
            words("-x FI_PROVIDER_PATH --mca pml ob1 --mca btl self -genv FI_PROVIDER x -n 2");
        let all = route.all_options(&user).join(" ");
        let expected =
            "-x FI_PROVIDER_PATH=/a --mca pml cm -genv FI_PROVIDER shm --mca btl self -n 2";
        assert_eq!(all, expected);
        assert_eq!(route.all_options(&words("--mca")).last().unwrap(), "--mca");
    }
}
