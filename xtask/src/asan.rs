//! The C face under the address sanitizer: the library, its tests and their programs in C are built
//! with it, the latter by a C compiler whose runtime has the same interface.
//!
//! Sanitizers are an option of the compiler that is not stable: `RUSTC_BOOTSTRAP` lets a stable
//! compiler have it.

use std::process::Command;

use anyhow::{Context, ensure};

use crate::environment::host;

/// Calls at random of each kind of program.
const CALLS: &str = "400000";

/// Runs the tests of the C face's own programs.
///
/// # Errors
/// What is missing, or which command has failed.
pub(crate) fn asan() -> anyhow::Result<String> {
    let status = Command::new(env!("CARGO"))
        .args(["test", "--package", "selvedge-fabric-c", "--test=programs"])
        .args(["--target", &host()?, "--", "misuse::", "own::"])
        .env("CARGO_TARGET_DIR", "target/asan")
        .env("RUSTC_BOOTSTRAP", "1")
        // The library finds the runtime in the program that loads it.
        .env("RUSTFLAGS", "-Zsanitizer=address -Clink-arg=-rdynamic")
        .env("FABRIC_SANITIZER", "address")
        .env("FABRIC_MISUSE_CALLS", CALLS)
        .status()
        .context("cargo")?;
    ensure!(status.success(), "the tests have failed");
    Ok("No access to memory that is not there, and nothing leaks.\n".to_owned())
}
