//! Files below a staging folder, of which packages are made.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// Removes a folder of an earlier call.
pub(super) fn empty(folder: &Path) -> anyhow::Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    Ok(())
}

/// All files and links in a folder and the folders below it.
pub(super) fn files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let entries = fs::read_dir(folder);
    for entry in entries.with_context(|| format!("cannot read {}", folder.display()))? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.extend(files(&entry.path())?);
        } else {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// Moves a file, and makes the folder that it goes to.
pub(super) fn move_file(from: &Path, to: &Path) -> anyhow::Result<()> {
    let dir = to.parent().context("the path has no parent directory")?;
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    fs::rename(from, to).with_context(|| format!("cannot create {}", to.display()))
}
