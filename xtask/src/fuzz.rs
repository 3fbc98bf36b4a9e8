//! `cargo xtask fuzz`: runs the fuzz tests of the parsers of data from peers with many inputs.

use anyhow::{Context, ensure};

use crate::environment::cargo;

/// The variable of the number of inputs (`selvedge_testkit::fuzz::INPUTS`), and its default.
const INPUTS: (&str, &str) = ("SELVEDGE_FUZZ_INPUTS", "10000000");

/// Packages with fuzz tests.
const PACKAGES: [&str; 4] = [
    "selvedge-shm",
    "selvedge-tcp",
    "selvedge-lnx",
    "selvedge-cheetah",
];
/// A part of the names of the fuzz tests.
const TESTS: &str = "of_any_bytes_are_read_or_refused";

/// Runs the fuzz tests optimised, with overflow checks.
///
/// # Errors
/// Returns an error if a parser panics; the output of the test contains the input.
pub(crate) fn fuzz() -> anyhow::Result<String> {
    let (inputs, default) = INPUTS;
    for package in PACKAGES {
        let status = cargo()
            .args(["test", "--release", "--lib", "--package", package, TESTS])
            .args(["--", "--nocapture"])
            .env("CARGO_TARGET_DIR", "target/fuzz")
            .env("CARGO_PROFILE_RELEASE_LTO", "off")
            .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
            .env("CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS", "true")
            .env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true")
            .env(
                inputs,
                std::env::var(inputs).unwrap_or_else(|_| default.to_owned()),
            )
            .status()
            .context("cannot run cargo")?;
        ensure!(status.success(), "the fuzz tests of {package} failed");
    }
    Ok("Every input was parsed or rejected.\n".to_owned())
}
