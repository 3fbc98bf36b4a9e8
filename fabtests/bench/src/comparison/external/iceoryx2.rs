//! The contestant over iceoryx2: a Rust program that lends memory between processes, outside of the
//! workspace because its dependencies take minutes to build.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, ensure};

use crate::machine::cpu::Placement;
use crate::pair::Pair;

/// The built program.
#[derive(Debug)]
pub struct Iceoryx2 {
    program: PathBuf,
    version: String,
}

impl Iceoryx2 {
    /// Builds the program with Cargo, in the target directory of this program.
    ///
    /// # Errors
    /// When the sources are not there, or the build fails. The error names the requirements.
    pub fn build() -> anyhow::Result<Self> {
        let folder = Path::new(FOLDER);
        ensure!(
            folder.join("Cargo.toml").exists(),
            "the program for iceoryx2 is built from its sources, which are not in {FOLDER}: run \
             this command in the checkout that it was built from"
        );
        let target = target_directory()?;
        let status = Command::new("cargo")
            .args(["build", "--release", "--manifest-path"])
            .arg(folder.join("Cargo.toml"))
            .arg("--target-dir")
            .arg(&target)
            .status()
            .context("cannot run cargo, which builds the program for iceoryx2")?;
        ensure!(
            status.success(),
            "cannot build the program for iceoryx2: the first build takes some minutes, downloads \
             packages from crates.io and needs a C compiler and libclang (on Debian: apt-get \
             install gcc libclang-dev)"
        );
        Ok(Self {
            program: target.join("release").join(PROGRAM_NAME),
            version: format!("iceoryx2 {}", locked_version(LOCK)?),
        })
    }

    /// Starts the program twice.
    ///
    /// # Errors
    /// As [`Pair::start`].
    pub fn start(&self, placement: Placement, deadline: Instant) -> anyhow::Result<Pair> {
        Pair::start_program(&self.program, placement, deadline)
    }

    /// The library's name and version.
    pub fn version(&self) -> &str {
        &self.version
    }
}

impl Drop for Iceoryx2 {
    fn drop(&mut self) {
        // The processes of a pair are killed. The program removes the memory that they left.
        let _ = Command::new(&self.program).arg("clean").status();
    }
}

/// A folder beside the one that contains this program, such as `target/contestants`.
fn target_directory() -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let folder = program.parent().and_then(Path::parent);
    let folder = folder.context("this program's own file is in no folder")?;
    Ok(folder.join("contestants"))
}

/// The version of iceoryx2 in a lock file.
fn locked_version(lock: &str) -> anyhow::Result<&str> {
    let mut lines = lock
        .lines()
        .skip_while(|line| *line != "name = \"iceoryx2\"");
    let version = lines
        .nth(1)
        .and_then(|line| line.strip_prefix("version = "));
    let version = version.context("the lock file names no version of iceoryx2")?;
    Ok(version.trim_matches('"'))
}

const PROGRAM_NAME: &str = "selvedge-bench-iceoryx2";
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/contestants/iceoryx2");
const LOCK: &str = include_str!("../../../contestants/iceoryx2/Cargo.lock");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_that_of_the_lock_file() {
        let version = locked_version(LOCK).unwrap();
        assert!(version.split('.').count() == 3, "{version}");
        assert!(locked_version("name = \"other\"\nversion = \"1.0.0\"\n").is_err());
    }
}
