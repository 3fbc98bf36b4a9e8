//! The suite over each provider: the quick set, and what it is worth.

use std::process::Command;

fn fabtests(args: &[&str]) {
    let program = env!("CARGO_BIN_EXE_fabtests");
    let output = Command::new(program).args(args).output();
    let output = output.expect("the suite can be started");
    let shown = String::from_utf8_lossy(&output.stdout);
    let is_good = |line: &str| ["pass", "skip"].iter().any(|word| line.starts_with(word));
    let bad: Vec<_> = shown.lines().filter(|line| !is_good(line)).collect();
    assert!(output.status.success(), "{}", bad.join("\n"));
    assert!(shown.contains(" passed, 0 failed, "), "{shown}");
}

/// The conformance tests alone: the programs under upstream's names have tests of their own.
#[test]
fn shm_passes_the_quick_set_over_every_face() {
    fabtests(&[
        "run", "quick", "-p", "shm", "-f", "/raw/", "-f", "/owned/", "-f", "/async/",
    ]);
}

/// Over the traits alone: what the safe layer makes of them is the same for every provider, but that
/// it opens what the provider has.
#[test]
fn tcp_passes_the_quick_set() {
    fabtests(&[
        "run",
        "quick",
        "-p",
        "tcp",
        "-f",
        "/raw/",
        "-f",
        "/owned/messages",
    ]);
}

/// A test that passes over a provider with a defect of the kind that it guards against is no test.
#[test]
fn every_test_notices_the_defects_that_it_names() {
    // Most of them wait, asleep, for what does not come. The programs under upstream's names, which
    // take longer, are left to whoever runs all of them by hand.
    fabtests(&["run", "--mutants", "-p", "shm", "-j", "6", "-x", "/fi_"]);
}
