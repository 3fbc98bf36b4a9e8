//! Contestants that are Rust programs outside of the workspace, because their dependencies take
//! minutes to build. Cargo builds them when a command names them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, ensure};

use crate::machine::cpu::Placement;
use crate::pair::Pair;

/// A library that a program uses.
#[derive(Debug)]
struct Library {
    name: &'static str,
    folder: &'static str,
    program: &'static str,
    lock: &'static str,
    /// The requirements of the build.
    needs: &'static str,
    /// Whether killed processes leave memory, which the program's command `clean` removes.
    leaves_memory: bool,
}

/// A built program.
#[derive(Debug)]
pub struct BuiltProgram {
    library: &'static Library,
    program: PathBuf,
    version: String,
}

impl BuiltProgram {
    /// Builds the program over iceoryx2, which lends memory between processes.
    ///
    /// # Errors
    /// When the sources are not there, or the build fails. The error names the requirements.
    pub fn iceoryx2() -> anyhow::Result<Self> {
        Self::build(&ICEORYX2)
    }

    /// Builds the program over tarpc, remote procedure calls over a Unix socket.
    ///
    /// # Errors
    /// As [`Self::iceoryx2`].
    pub fn tarpc() -> anyhow::Result<Self> {
        Self::build(&TARPC)
    }

    /// Builds the program over tonic, remote procedure calls over a Unix socket.
    ///
    /// # Errors
    /// As [`Self::iceoryx2`].
    pub fn tonic() -> anyhow::Result<Self> {
        Self::build(&TONIC)
    }

    /// Builds a program with Cargo, in the target directory of this program.
    fn build(library: &'static Library) -> anyhow::Result<Self> {
        let (name, folder) = (library.name, Path::new(library.folder));
        ensure!(
            folder.join("Cargo.toml").exists(),
            "the program for {name} is built from its sources, which are not in {}: run this \
             command in the checkout that it was built from",
            folder.display()
        );
        let target = target_directory()?;
        let status = Command::new("cargo")
            .args(["build", "--release", "--manifest-path"])
            .arg(folder.join("Cargo.toml"))
            .arg("--target-dir")
            .arg(&target)
            .status()
            .with_context(|| format!("cannot run cargo, which builds the program for {name}"))?;
        ensure!(
            status.success(),
            "cannot build the program for {name}: the first build takes some minutes, downloads \
             packages from crates.io and needs {}",
            library.needs
        );
        Ok(Self {
            library,
            program: target.join("release").join(library.program),
            version: format!("{name} {}", locked_version(name, library.lock)?),
        })
    }

    /// Starts the program twice.
    ///
    /// # Errors
    /// As [`Pair::start`].
    pub fn start(&self, placement: Placement, deadline: Instant) -> anyhow::Result<Pair> {
        Pair::start_program(&self.program, placement, deadline)
    }

    /// The library's name.
    pub fn name(&self) -> &'static str {
        self.library.name
    }

    /// The library's name and version.
    pub fn version(&self) -> &str {
        &self.version
    }
}

impl Drop for BuiltProgram {
    fn drop(&mut self) {
        // Processes that do not exit in time are killed.
        if self.library.leaves_memory {
            let _ = Command::new(&self.program).arg("clean").status();
        }
    }
}

/// A folder beside the one that contains this program, such as `target/contestants`.
fn target_directory() -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let folder = program.parent().and_then(Path::parent);
    let folder = folder.context("this program's own file is in no folder")?;
    Ok(folder.join("contestants"))
}

/// The version of a package in a lock file.
fn locked_version<'a>(name: &str, lock: &'a str) -> anyhow::Result<&'a str> {
    let heading = format!("name = \"{name}\"");
    let mut lines = lock.lines().skip_while(|line| *line != heading);
    let version = lines
        .nth(1)
        .and_then(|line| line.strip_prefix("version = "));
    let version = version.with_context(|| format!("the lock file names no version of {name}"))?;
    Ok(version.trim_matches('"'))
}

static ICEORYX2: Library = Library {
    name: "iceoryx2",
    folder: concat!(env!("CARGO_MANIFEST_DIR"), "/contestants/iceoryx2"),
    program: "selvedge-bench-iceoryx2",
    lock: include_str!("../../../contestants/iceoryx2/Cargo.lock"),
    needs: "a C compiler and libclang (on Debian: apt-get install gcc libclang-dev)",
    leaves_memory: true,
};

static TARPC: Library = rpc("tarpc");
static TONIC: Library = rpc("tonic");

/// One of the libraries of the program for remote procedure calls.
const fn rpc(name: &'static str) -> Library {
    Library {
        name,
        folder: concat!(env!("CARGO_MANIFEST_DIR"), "/contestants/rpc"),
        program: "selvedge-bench-rpc",
        lock: include_str!("../../../contestants/rpc/Cargo.lock"),
        needs: "a C compiler (on Debian: apt-get install gcc)",
        leaves_memory: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_that_of_the_lock_file() {
        for library in [&ICEORYX2, &TARPC, &TONIC] {
            let version = locked_version(library.name, library.lock).unwrap();
            assert!(version.split('.').count() == 3, "{version}");
        }
        let other = "name = \"other\"\nversion = \"1.0.0\"\n";
        assert!(locked_version("iceoryx2", other).is_err());
    }
}
