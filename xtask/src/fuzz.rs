//! The parsers of what peers send, fed with inputs for minutes: what the tests of the same names do
//! for a moment.

use std::process::Command;

use anyhow::{Context, ensure};

/// Inputs of each parser (`selvedge_testkit::fuzz::INPUTS`).
const INPUTS: (&str, &str) = ("SELVEDGE_FUZZ_INPUTS", "10000000");

/// Packages with such tests, which have these words in their names.
const PACKAGES: [&str; 4] = [
    "selvedge-shm",
    "selvedge-tcp",
    "selvedge-lnx",
    "selvedge-cheetah",
];
const TESTS: &str = "of_any_bytes_are_read_or_refused";

/// Runs them optimised, with checks for overflow.
///
/// # Errors
/// Which package has a parser that panics: its output has the input.
pub(crate) fn fuzz() -> anyhow::Result<String> {
    let (inputs, default) = INPUTS;
    for package in PACKAGES {
        let status = Command::new(env!("CARGO"))
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
        ensure!(status.success(), "a parser of {package} has panicked");
    }
    Ok("Every input was read or refused.\n".to_owned())
}
