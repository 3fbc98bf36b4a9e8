//! The suite over each provider: the quick set, and the defects that its tests detect.

use std::path::Path;
use std::process::Command;

use selvedge_testkit::long::part;
use selvedge_testkit::skip::{Need, skip};

fn fabtests(args: &[&str]) {
    let program = env!("CARGO_BIN_EXE_fabtests");
    check(Command::new(program).args(args));
}

fn check(command: &mut Command) {
    let output = command.output();
    let output = output.expect("the suite can be started");
    let shown = String::from_utf8_lossy(&output.stdout);
    let is_success = |line: &str| ["pass", "skip"].iter().any(|word| line.starts_with(word));
    let bad: Vec<_> = shown.lines().filter(|line| !is_success(line)).collect();
    assert!(output.status.success(), "{}", bad.join("\n"));
    assert!(shown.contains(" passed, 0 failed, "), "{shown}");
}

/// The conformance tests alone: the programs with upstream's names have tests of their own.
#[test]
fn shm_passes_the_quick_set_over_every_api() {
    let (owned, awaited) = part(
        ("/owned/messages", "/async/messages"),
        ("/owned/", "/async/"),
    );
    fabtests(&[
        "run", "quick", "-p", "shm", "-f", "/raw/", "-f", owned, "-f", awaited,
    ]);
}

/// Over the traits alone: the safe layer is the same for every provider, except that it opens the
/// provider's objects.
#[test]
fn tcp_passes_the_quick_set() {
    let tests = part(
        &["rdm/raw/", "msg/raw/connections.", "msg/raw/messages."][..],
        &["/raw/", "/owned/messages"],
    );
    let mut args = vec!["run", "quick", "-p", "tcp"];
    args.extend(tests.iter().flat_map(|test| ["-f", test]));
    fabtests(&args);
}

/// The ofi provider over this project's libfabric.so.1: from Rust through C and back. A part of the
/// set, with every interface; the whole set is a command of docs/CFACE.md.
#[test]
fn shm_passes_through_the_c_library() {
    let program = std::env::current_exe().expect("this runs");
    let mut folders = program.ancestors().skip(1).take(2);
    let library = folders.find_map(|folder| {
        let file = folder.join("libfabric.so");
        file.exists().then_some(file)
    });
    let library = library.expect("libfabric.so is built with these tests");
    let tests = [
        "raw/messages.every_",
        "owned/messages.every_size",
        "async/messages.every_size",
        "raw/tagged.",
        "raw/receives.",
        "raw/rma.",
        "raw/atomics.queries",
        "raw/atomics.sums_of_many",
        "raw/counters.",
        "raw/queues.selective",
        "raw/sets.",
        "raw/vectors.",
    ];
    let mut args = vec!["run", "quick", "-p", "shm;ofi"];
    // The sample has messages, tags, receives and remote memory.
    let tests = part(&tests[..6], &tests);
    args.extend(tests.iter().flat_map(|test| ["-f", test]));
    let program = env!("CARGO_BIN_EXE_fabtests");
    check(
        Command::new(program)
            .env("FI_OFI_LIBRARY", library)
            .args(args),
    );
}

/// The providers of the system's libfabric behave as the manifest expects. A part of the set; the
/// whole set is a command of docs/FABTESTS-REFERENCE.md.
#[test]
fn providers_of_libfabric_1_17_are_as_expected() {
    let folders = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib",
    ];
    let is_there = |folder: &&str| Path::new(folder).join("libfabric.so.1.20.0").exists();
    if !folders.iter().any(is_there) {
        return skip(Need::Libfabric, "the system has no libfabric 1.17");
    }
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/libfabric-1.17.toml");
    let mut args = vec!["run", "quick", "--manifest", manifest];
    for provider in part(&["net;ofi"][..], &["net;ofi", "tcp;ofi_rxm;ofi", "tcp;ofi"]) {
        args.extend(["-p", provider]);
    }
    let tests = [
        "raw/messages.every_",
        "raw/connections.",
        "raw/tagged.every_size",
        "fi_msg_epoll",
        "fi_poll",
    ];
    args.extend(tests.iter().flat_map(|test| ["-f", test]));
    let program = env!("CARGO_BIN_EXE_fabtests");
    check(
        Command::new(program)
            .env("FI_OFI_LIBRARY", "system")
            .args(args),
    );
}

/// A test that passes over a provider with a defect that it names is useless.
#[test]
fn every_test_notices_the_defects_that_it_names() {
    // Most of them wait for a message that does not arrive. The programs with upstream's names take
    // longer and are left to `fabtests run --mutants`.
    let mut args = vec!["run", "--mutants", "-p", "shm", "-j", "6", "-x", "/fi_"];
    args.extend(part(&["-f", "/raw/messages."][..], &[]));
    fabtests(&args);
}

/// One test of each kind; `fabtests run --hook-faults=N` runs all of them.
#[test]
fn nothing_hangs_when_a_call_fails() {
    let mut args = vec!["run", "quick", "-p", "shm", "--hook-faults=3"];
    for test in part(
        &["messages.every_call"][..],
        &["messages.every_call", "counters.waits"],
    ) {
        args.extend(["-f", test]);
    }
    fabtests(&args);
}
