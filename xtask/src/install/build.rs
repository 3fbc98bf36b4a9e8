//! Builds the packages that an installation needs.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, ensure};

use crate::environment::workspace;

/// Builds the packages. Returns the directory of the results.
pub(crate) fn build(packages: &[&str]) -> anyhow::Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--release"])
        .args(packages.iter().flat_map(|package| ["--package", package]))
        .current_dir(workspace())
        .status()
        .context("cannot run cargo")?;
    ensure!(status.success(), "the build failed");
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.unwrap_or_else(|| workspace().join("target"));
    Ok(workspace().join(target).join("release"))
}
