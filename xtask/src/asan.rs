//! `cargo xtask asan`: the C interface under the address sanitizer.
//!
//! The library, its tests and their C programs are built with the sanitizer; the C compiler's
//! runtime has the same interface. Sanitizers are an unstable compiler option, which
//! `RUSTC_BOOTSTRAP` enables in a stable compiler.

use anyhow::{Context, ensure};

use crate::environment::{cargo, host_triple};

/// The number of random calls of each program.
const CALLS: &str = "400000";

/// Runs the tests of the C programs.
///
/// # Errors
/// Returns an error if a command cannot run or the tests fail.
pub(crate) fn asan() -> anyhow::Result<String> {
    let status = cargo()
        .args(["test", "--package", "selvedge-fabric-c", "--test=programs"])
        .args([
            "--target",
            &host_triple()?,
            "--",
            "misuse::",
            "interfaces::",
        ])
        .env("CARGO_TARGET_DIR", "target/asan")
        .env("RUSTC_BOOTSTRAP", "1")
        // The library finds the runtime in the program that loads it.
        .env("RUSTFLAGS", "-Zsanitizer=address -Clink-arg=-rdynamic")
        .env("FABRIC_SANITIZER", "address")
        .env("FABRIC_MISUSE_CALLS", CALLS)
        .status()
        .context("cargo")?;
    ensure!(status.success(), "the tests failed");
    Ok("No invalid memory accesses and no leaks.\n".to_owned())
}
