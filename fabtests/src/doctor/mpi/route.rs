//! `Route`: the variables and options that lead a job to Selvedge, and the line to type.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::bail;

use super::launcher::{Kind, Launcher};
use super::selection::Family;

/// The file of Selvedge that a job loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteKind {
    /// Selvedge's providers, as plugins of the libfabric that the MPI library loads.
    Plugin,
    /// Selvedge's `libfabric.so.1` instead of that libfabric.
    Library,
    /// The library, and the shared heap.
    Heap,
}

impl RouteKind {
    /// All kinds.
    pub(super) const ALL: [Self; 3] = [Self::Plugin, Self::Library, Self::Heap];

    /// The name on a command line.
    fn word(self) -> &'static str {
        match self {
            Self::Plugin => "plugin",
            Self::Library => "library",
            Self::Heap => "heap",
        }
    }

    /// The name in a report.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Heap => "library and heap",
            kind => kind.word(),
        }
    }
}

impl FromStr for RouteKind {
    type Err = anyhow::Error;

    fn from_str(word: &str) -> anyhow::Result<Self> {
        let mut kinds = Self::ALL.into_iter();
        match kinds.find(|kind| kind.word() == word) {
            Some(kind) => Ok(kind),
            None => bail!("{word:?} is no route: plugin, library and heap are the routes"),
        }
    }
}

/// The provider of Selvedge that carries the messages of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MpiProvider {
    /// Between processes of one host.
    #[default]
    Shm,
    /// Between hosts, too.
    Tcp,
}

impl MpiProvider {
    /// The name of the provider in Selvedge's own library.
    fn name(self) -> &'static str {
        match self {
            Self::Shm => "shm",
            Self::Tcp => "tcp",
        }
    }

    /// The name of the provider as a plugin.
    fn plugin(self) -> &'static str {
        match self {
            Self::Shm => "selvedge_shm",
            Self::Tcp => "selvedge_tcp",
        }
    }
}

impl FromStr for MpiProvider {
    type Err = anyhow::Error;

    fn from_str(word: &str) -> anyhow::Result<Self> {
        match word {
            "shm" => Ok(Self::Shm),
            "tcp" => Ok(Self::Tcp),
            _ => bail!("{word:?} is no provider for MPI jobs: shm and tcp are the providers"),
        }
    }
}

/// Additions to the user's line. The user's own line has none.
#[derive(Debug, Default)]
pub(super) struct Route {
    /// The name of the route, as in the report.
    pub(super) name: &'static str,
    /// Variables of the launcher.
    pub(super) environment: Vec<(String, OsString)>,
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
            plugins: plugins
                .into_iter()
                .find(|it| it.join(plugin_file(MpiProvider::Shm)).exists()),
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

/// The file of a provider for another libfabric.
fn plugin_file(provider: MpiProvider) -> String {
    format!("lib{}-fi.so", provider.plugin())
}

impl Route {
    /// The routes over shm that the installed files permit.
    pub(super) fn all(launcher: Kind, family: Family, installed: &Installed) -> Vec<Self> {
        let kinds = RouteKind::ALL.into_iter();
        let route = |kind| Self::new(kind, MpiProvider::Shm, installed, launcher, &[family]);
        kinds.filter_map(route).collect()
    }

    /// The route of a kind, for a launcher of this kind and ranks of these families; `None` if its
    /// files are not installed.
    pub(super) fn new(
        kind: RouteKind,
        provider: MpiProvider,
        installed: &Installed,
        launcher: Kind,
        families: &[Family],
    ) -> Option<Self> {
        let (variable, folder, file, name) = if kind == RouteKind::Plugin {
            let folder = installed.plugins.as_ref()?;
            let file = folder.join(plugin_file(provider));
            ("FI_PROVIDER_PATH", folder, file, provider.plugin())
        } else {
            let folder = installed.library.as_ref()?;
            (
                "LD_LIBRARY_PATH",
                folder,
                folder.join(LIBRARY),
                provider.name(),
            )
        };
        let mut route = Self {
            name: kind.name(),
            provider: name,
            file,
            ..Self::default()
        };
        route.set(launcher, variable, in_front(folder, variable));
        if kind == RouteKind::Heap {
            route.file.clone_from(installed.heap.as_ref()?);
            let files = in_front(&route.file, "LD_PRELOAD");
            route.set(launcher, "LD_PRELOAD", files);
        }
        for family in families {
            route.select(launcher, *family);
        }
        Some(route)
    }

    /// Sets a variable of the ranks. Launchers other than Hydra and Open MPI pass theirs on.
    fn set(&mut self, launcher: Kind, name: &str, value: OsString) {
        let text = value.to_string_lossy().into_owned();
        match launcher {
            Kind::OpenMpi => self
                .options
                .extend(["-x".to_owned(), format!("{name}={text}")]),
            Kind::Hydra | Kind::IntelMpi => {
                self.options
                    .extend(["-genv".to_owned(), name.to_owned(), text]);
            }
            _ => self.environment.push((name.to_owned(), value)),
        }
    }

    /// Makes the MPI library use libfabric, and this provider of it.
    fn select(&mut self, launcher: Kind, family: Family) {
        let provider = self.provider;
        let settings: &[_] = match family {
            Family::OpenMpi => &[
                ("pml", "cm"),
                ("mtl", "ofi"),
                ("mtl_ofi_provider_include", provider),
            ],
            Family::IntelMpi => &[("I_MPI_FABRICS", "ofi"), ("I_MPI_OFI_PROVIDER", provider)],
            Family::Mpich | Family::Other => &[
                ("MPIR_CVAR_CH4_NETMOD", "ofi"),
                ("MPIR_CVAR_NOLOCAL", "1"),
                ("FI_PROVIDER", provider),
            ],
        };
        for &(name, value) in settings {
            match (family, launcher) {
                (Family::OpenMpi, Kind::OpenMpi) => self
                    .options
                    .extend(["--mca", name, value].map(str::to_owned)),
                (Family::OpenMpi, _) => {
                    self.set(launcher, &format!("OMPI_MCA_{name}"), value.into());
                }
                _ => self.set(launcher, name, value.into()),
            }
        }
    }

    /// The file that the ranks should have mapped, at the end of its links.
    pub(super) fn mapped_file(&self) -> PathBuf {
        self.file
            .canonicalize()
            .unwrap_or_else(|_| self.file.clone())
    }

    /// All options: those of the route, and the user's that set nothing that the route sets.
    pub(super) fn all_options(&self, user: &[String]) -> Vec<String> {
        let set = names(&self.options);
        let others = settings(user)
            .into_iter()
            .filter(|(name, _)| name.is_none_or(|name| !set.contains(&name)));
        let others = others.flat_map(|(_, words)| words);
        self.options.iter().chain(others).cloned().collect()
    }

    /// The options of the route that set nothing that the user's line sets, and the names that both
    /// set.
    pub(super) fn options_beside<'a>(&'a self, user: &[String]) -> (Vec<String>, Vec<&'a str>) {
        let set = names(user);
        let (mut options, mut kept) = (Vec::new(), Vec::new());
        for (name, words) in settings(&self.options) {
            match name {
                Some(name) if set.contains(&name) => kept.push(name),
                _ => options.extend_from_slice(words),
            }
        }
        (options, kept)
    }

    /// The line to type.
    pub(super) fn line(&self, launcher: &Launcher) -> String {
        let mut arguments = self.all_options(&launcher.options);
        if !launcher.has_rank_count() {
            arguments.extend(["-n", "RANKS"].map(str::to_owned));
        }
        arguments.push("PROGRAM".to_owned());
        shell_line(&self.environment, &launcher.path, &arguments)
    }

    /// The variables and options, as `NAME=VALUE`.
    pub(super) fn settings(&self) -> Vec<String> {
        let variables = self.environment.iter();
        let variables = variables.map(|(name, value)| format!("{name}={}", value.display()));
        let options = settings(&self.options).into_iter();
        let options = options.map(|(_, words)| match words {
            [_, name, value] => format!("{name}={value}"),
            words => words.last().cloned().unwrap_or_default(),
        });
        variables.chain(options).collect()
    }
}

/// A command as the shell reads it.
pub(super) fn shell_line(
    environment: &[(String, OsString)],
    program: &Path,
    arguments: &[String],
) -> String {
    let variables = environment.iter();
    let variables =
        variables.map(|(name, value)| format!("{name}={}", quoted(&value.to_string_lossy())));
    let mut words: Vec<_> = variables.collect();
    words.push(quoted(&program.to_string_lossy()));
    words.extend(arguments.iter().map(|argument| quoted(argument)));
    words.join(" ")
}

/// Options, each with its arguments and with the name that it sets.
fn settings(mut options: &[String]) -> Vec<(Option<&str>, &[String])> {
    let mut settings = Vec::new();
    while !options.is_empty() {
        let (name, length) = setting(options);
        let (words, rest) = options.split_at(length.min(options.len()));
        settings.push((name, words));
        options = rest;
    }
    settings
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
fn names(options: &[String]) -> Vec<&str> {
    let settings = settings(options).into_iter();
    settings.filter_map(|(name, _)| name).collect()
}

/// The paths of a variable, with `first` in front of them.
fn in_front(first: &Path, variable: &str) -> OsString {
    let old = std::env::var_os(variable).unwrap_or_default();
    let others = std::env::split_paths(&old).filter(|it| it != first && *it != Path::new(""));
    let paths = std::iter::once(first.to_owned()).chain(others);
    // A path with a colon in its name cannot be one of several.
    std::env::join_paths(paths).unwrap_or_else(|_| first.into())
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
            Route::all(kind, family, &installed)[0].line(&launcher)
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
        let slurm = line(Kind::Slurm, Family::OpenMpi);
        assert!(slurm.contains("OMPI_MCA_mtl=ofi ") && !slurm.contains("--mca"));
    }

    #[test]
    fn the_user_s_line_keeps_its_own_settings() {
        let words = |text: &str| -> Vec<String> { text.split(' ').map(str::to_owned).collect() };
        let route = Route {
            options: words("-x FI_PROVIDER_PATH=/a --mca pml cm --mca mtl ofi"),
            ..Route::default()
        };
        let (options, kept) = route.options_beside(&words("-n 2 --mca pml ob1 ./program -x"));
        assert_eq!(options, words("-x FI_PROVIDER_PATH=/a --mca mtl ofi"));
        assert_eq!(kept, ["pml"]);
        let settings = ["FI_PROVIDER_PATH=/a", "pml=cm", "mtl=ofi"];
        assert_eq!(route.settings(), settings);
    }

    #[test]
    fn an_unknown_route_or_provider_is_refused_with_those_that_exist() {
        let error = "trunk".parse::<RouteKind>().unwrap_err().to_string();
        assert_eq!(
            error,
            "\"trunk\" is no route: plugin, library and heap are the routes"
        );
        let error = "udp".parse::<MpiProvider>().unwrap_err().to_string();
        assert!(error.contains("shm and tcp are the providers"), "{error}");
        assert_eq!("heap".parse::<RouteKind>().unwrap(), RouteKind::Heap);
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
