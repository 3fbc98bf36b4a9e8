//! Installs libraries and programs: stripped, with their debug information in separate files.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use anyhow::{Context, bail, ensure};

use super::destination::replace;

/// The place of the debug information of installed files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Symbols {
    /// In `.debug/NAME.debug` beside each file, where gdb, perf and valgrind find it.
    Separate,
    /// In the files.
    Kept,
}

impl Symbols {
    /// Installs the library or program `from` as `to`. Running programs keep the old file.
    pub(crate) fn install(self, from: &Path, to: &Path) -> anyhow::Result<()> {
        let debug = debug_file(to)?;
        if self == Self::Kept {
            // An older file describes another library.
            remove(&debug)?;
            return replace(from, to);
        }
        ensure!(from.exists(), "{} does not exist: build it", from.display());
        let dir = debug.parent().context("the path has no parent directory")?;
        fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        // The link to the debug file has its name and checksum, so that file is complete first.
        let new = debug.with_extension("new");
        let options = ["--only-keep-debug", "--compress-debug-sections"].map(OsString::from);
        objcopy(&options, from, &new)?;
        fs::rename(&new, &debug).with_context(|| format!("cannot create {}", debug.display()))?;
        let mut link = OsString::from("--add-gnu-debuglink=");
        link.push(&debug);
        let new = to.with_extension("new");
        objcopy(&["--strip-unneeded".into(), link], from, &new)?;
        fs::rename(&new, to).with_context(|| format!("cannot create {}", to.display()))
    }
}

/// The file of the debug information of an installed file.
fn debug_file(file: &Path) -> anyhow::Result<PathBuf> {
    let mut name = file
        .file_name()
        .context("the path has no file name")?
        .to_owned();
    name.push(".debug");
    Ok(file.with_file_name(".debug").join(name))
}

fn remove(file: &Path) -> anyhow::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", file.display()))
        }
        _ => Ok(()),
    }
}

/// Runs objcopy, or the program that the variable `OBJCOPY` names.
fn objcopy(options: &[OsString], from: &Path, to: &Path) -> anyhow::Result<()> {
    let program = std::env::var_os("OBJCOPY").unwrap_or_else(|| "objcopy".into());
    let output = Command::new(&program)
        .args(options)
        .arg(from)
        .arg(to)
        .output();
    let output = match output {
        Err(error) => bail!(
            "cannot run {}, which separates debug information: {error}; install binutils, set \
             OBJCOPY, or pass --unstripped",
            program.display()
        ),
        Ok(output) => output,
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{} fails on {}: {}; pass --unstripped to install the file as it is",
        program.display(),
        from.display(),
        errors.trim()
    );
    Ok(())
}
