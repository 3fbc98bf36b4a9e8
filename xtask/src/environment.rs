//! The checkout that tasks work on, and the machine that they build for.

use std::path::Path;
use std::process::Command;

use anyhow::Context;

/// The checkout.
pub(crate) fn workspace() -> &'static Path {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own)
}

/// The machine that programs are built for, as rustc names it.
pub(crate) fn host() -> anyhow::Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("rustc")?;
    let answer = String::from_utf8(output.stdout)?;
    let host = answer.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc -vV names no host")?.to_owned())
}
