//! `Launcher`: the program that starts MPI processes, and the MPI library beside it.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};

use super::command::{Output, run};

/// A program that starts MPI processes, with the options that its user gave.
#[derive(Debug)]
pub(super) struct Launcher {
    /// Its path, as it was found.
    pub(super) path: PathBuf,
    /// Its options.
    pub(super) options: Vec<String>,
    /// The kind that its version text names.
    pub(super) kind: Kind,
    /// The line of its version text that names the kind; the first line of an unknown launcher.
    pub(super) version: String,
}

/// The kind of a launcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `mpirun`, `oshrun` of Open MPI, or `prterun`.
    OpenMpi,
    /// Hydra as Intel MPI has it.
    IntelMpi,
    /// Hydra as MPICH and MVAPICH have it.
    Hydra,
    /// A launcher of MVAPICH's own, `mpirun_rsh`.
    MvapichRsh,
    /// `srun`.
    Slurm,
    /// Any other program.
    Unknown,
}

/// The time limit of a command that prints a version or settings.
pub(super) const SHORT: Duration = Duration::from_secs(20);

impl Launcher {
    /// Finds a launcher, and asks for its version. `line` has its name and its options.
    ///
    /// # Errors
    /// When there is no such program, or it cannot be started.
    pub(super) fn find(line: &[String]) -> anyhow::Result<Self> {
        let default = "mpirun".to_owned();
        let (name, options) = line.split_first().unwrap_or((&default, &[]));
        let path = find_program(name)?;
        let mut command = Command::new(&path);
        command.arg("--version").envs(ROOT_ENVIRONMENT);
        let output = run(command, SHORT);
        let output = output.with_context(|| format!("cannot start {}", path.display()))?;
        let (kind, version) = identify(&output);
        Ok(Self {
            path,
            options: options.to_vec(),
            kind,
            version,
        })
    }

    /// Returns whether the program is named after those of OpenSHMEM.
    pub(super) fn is_openshmem(&self) -> bool {
        let name = self.path.file_name().unwrap_or_default();
        ["oshrun", "shmemrun"].iter().any(|shmem| name == *shmem)
    }

    /// Returns whether the user's options have a number of ranks.
    pub(super) fn has_rank_count(&self) -> bool {
        let options = ["-n", "-np", "--np", "-c", "--n", "--ntasks"];
        self.options.iter().any(|it| options.contains(&&**it))
    }

    /// The path, and the file at the end of its links if that is another one.
    pub(super) fn describe(&self) -> String {
        match self.path.canonicalize() {
            Ok(file) if file != self.path => {
                format!("{} (the file {})", self.path.display(), file.display())
            }
            _ => self.path.display().to_string(),
        }
    }

    /// A program beside the launcher.
    pub(super) fn sibling(&self, name: &str) -> Option<PathBuf> {
        let beside = |path: &Path| Some(path.parent()?.join(name));
        let real = self.path.canonicalize().ok();
        let candidates = [beside(&self.path), real.as_deref().and_then(beside)];
        candidates.into_iter().flatten().find(|path| path.exists())
    }

    /// Finds the MPI library of the launcher's installation.
    ///
    /// # Errors
    /// When there is none. The error names the searched folders.
    pub(super) fn library(&self) -> anyhow::Result<PathBuf> {
        let folders = self.library_folders();
        let names: &[&str] = match self.kind {
            Kind::OpenMpi => &OPEN_MPI_LIBRARIES,
            Kind::Hydra | Kind::IntelMpi | Kind::MvapichRsh => &MPICH_LIBRARIES,
            Kind::Slurm | Kind::Unknown => &["libmpi.so.12", "libmpi.so.40", "libmpi.so"],
        };
        let candidates = names
            .iter()
            .flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
        let found = candidates.into_iter().find(|path| is_elf(path));
        found.with_context(|| {
            let folders: Vec<_> = folders.iter().map(|it| it.display().to_string()).collect();
            format!(
                "no MPI library ({}) lies in {}",
                names.join(", "),
                folders.join(", ")
            )
        })
    }

    fn library_folders(&self) -> Vec<PathBuf> {
        let mut folders = Vec::new();
        if self.kind == Kind::OpenMpi {
            folders.extend(self.query_ompi_info());
        }
        let real = self.path.canonicalize().ok();
        let triple = format!("lib/{}-linux-gnu", env::consts::ARCH);
        for path in [Some(&self.path), real.as_ref()].into_iter().flatten() {
            let prefix = path.parent().and_then(Path::parent);
            let below = ["lib", "lib64", &triple].map(|name| prefix.map(|it| it.join(name)));
            for folder in below.into_iter().flatten() {
                if !folders.contains(&folder) {
                    folders.push(folder);
                }
            }
        }
        folders
    }

    /// The folder of the libraries, as Open MPI prints it.
    fn query_ompi_info(&self) -> Option<PathBuf> {
        let mut command = Command::new(self.sibling("ompi_info")?);
        command.args(["--parsable", "--path", "libdir"]);
        let output = run(command, SHORT).ok()?;
        let mut lines = output.text.lines();
        lines.find_map(|line| Some(line.strip_prefix("path:libdir:")?.into()))
    }
}

/// Lets root start ranks, as in a container.
pub(super) const ROOT_ENVIRONMENT: [(&str, &str); 2] = [
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
];

const OPEN_MPI_LIBRARIES: [&str; 3] = ["libmpi.so.40", "libmpi.so.20", "libmpi.so"];
const MPICH_LIBRARIES: [&str; 3] = ["libmpi.so.12", "libmpich.so.12", "libmpi.so"];

/// The texts that launchers print about themselves.
const SIGNS: [(&str, Kind); 8] = [
    ("(Open MPI)", Kind::OpenMpi),
    ("(OpenRTE)", Kind::OpenMpi),
    ("(PRRTE)", Kind::OpenMpi),
    ("PMIx Reference RTE", Kind::OpenMpi),
    ("Intel(R) MPI Library", Kind::IntelMpi),
    ("HYDRA build details", Kind::Hydra),
    ("mpirun_rsh", Kind::MvapichRsh),
    ("slurm ", Kind::Slurm),
];

/// The kind of a launcher, and the line that shows it. The version follows Hydra's first line.
fn identify(output: &Output) -> (Kind, String) {
    for (sign, kind) in SIGNS {
        let mut lines = output.text.lines();
        if let Some(line) = lines.find(|line| line.contains(sign)) {
            let version = match kind {
                Kind::Hydra => lines.next().unwrap_or_default(),
                _ => "",
            };
            let words = line.split_whitespace().chain(version.split_whitespace());
            return (kind, words.collect::<Vec<_>>().join(" "));
        }
    }
    let mut lines = output.text.lines().filter(|line| !line.trim().is_empty());
    let first = lines.next().map(|line| line.trim().to_owned());
    (Kind::Unknown, first.unwrap_or_default())
}

/// Finds a program by its path or in `PATH`.
fn find_program(name: &str) -> anyhow::Result<PathBuf> {
    if name.contains('/') {
        let path = std::path::absolute(name)?;
        ensure!(
            is_executable(&path),
            "{name} is no program: name a launcher such as mpirun"
        );
        return Ok(path);
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let mut candidates = env::split_paths(&path).map(|folder| folder.join(name));
    if let Some(found) = candidates.find(|path| is_executable(path)) {
        return Ok(found);
    }
    bail!(
        "no folder of PATH has a program {name}: install an MPI library, load its module, or name \
         the path of its launcher"
    )
}

fn is_executable(path: &Path) -> bool {
    let found = fs::metadata(path);
    found.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Returns whether a file is a library, and not a script of the linker or an empty file.
fn is_elf(path: &Path) -> bool {
    let mut magic = [0; 4];
    let read = fs::File::open(path).and_then(|mut file| {
        use std::io::Read as _;
        file.read_exact(&mut magic)
    });
    read.is_ok() && magic == *b"\x7fELF"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identified(text: &str) -> (Kind, String) {
        identify(&Output {
            status: None,
            text: text.to_owned(),
        })
    }

    #[test]
    fn launchers_are_identified_by_their_version_texts() {
        let texts = [
            ("mpirun (Open MPI) 4.1.4\n\nReport bugs to", Kind::OpenMpi),
            ("oshrun (OpenRTE) 4.1.4\n", Kind::OpenMpi),
            (
                "Intel(R) MPI Library for Linux* OS, Version 2021.18",
                Kind::IntelMpi,
            ),
            ("slurm 22.05.8\n", Kind::Slurm),
            ("this is no launcher", Kind::Unknown),
        ];
        for (text, kind) in texts {
            let (found, version) = identified(text);
            assert_eq!(found, kind, "{text}");
            assert_eq!(Some(&*version), text.lines().next());
        }
        let hydra = identified("HYDRA build details:\n    Version:      5.0.2\n    CC:  cc\n");
        let version = "HYDRA build details: Version: 5.0.2".to_owned();
        assert_eq!(hydra, (Kind::Hydra, version));
        assert_eq!(identified(""), (Kind::Unknown, String::new()));
    }

    #[test]
    fn a_missing_launcher_is_explained() {
        let error = Launcher::find(&["no-such-launcher".to_owned()]).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("no folder of PATH has a program no-such-launcher")
        );
        let error = Launcher::find(&["/no/such/launcher".to_owned()]).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("/no/such/launcher is no program")
        );
    }
}
