//! The suite over each provider: its quick set passes, and its tests detect planted defects.

use std::path::Path;
use std::process::Command;

use selvedge_testkit::long::part;
use selvedge_testkit::skip::{Need, skip};

fn run_suite(args: &[&str]) {
    let program = env!("CARGO_BIN_EXE_fabtests");
    run_and_check(Command::new(program).args(args));
}

fn run_and_check(command: &mut Command) {
    let output = command.output();
    let output = output.expect("the suite can be started");
    let text = String::from_utf8_lossy(&output.stdout);
    let is_success = |line: &str| ["pass", "skip"].iter().any(|word| line.starts_with(word));
    let failures: Vec<_> = text.lines().filter(|line| !is_success(line)).collect();
    assert!(output.status.success(), "{}", failures.join("\n"));
    assert!(text.contains(" passed, 0 failed, "), "{text}");
}

/// Runs the conformance tests alone: the programs with upstream's names have tests of their own.
#[test]
fn shm_passes_the_quick_set_over_every_api() {
    let (owned, awaited) = part(
        ("/owned/messages", "/async/messages"),
        ("/owned/", "/async/"),
    );
    run_suite(&[
        "run", "quick", "-p", "shm", "-f", "/raw/", "-f", owned, "-f", awaited,
    ]);
}

/// Runs the tests of the object traits, and few of the safe layer: its code is the same for every
/// provider, except that it opens the provider's objects.
#[test]
fn tcp_passes_the_quick_set() {
    let tests = part(
        &["rdm/raw/", "msg/raw/connections.", "msg/raw/messages."][..],
        &["/raw/", "/owned/messages"],
    );
    let mut args = vec!["run", "quick", "-p", "tcp"];
    args.extend(tests.iter().flat_map(|test| ["-f", test]));
    run_suite(&args);
}

/// The ofi provider loads this project's libfabric.so.1, so each call passes from Rust through C to
/// Rust. The tests are a part of the quick set and cover every interface; docs/CFACE.md has the
/// command for the whole set.
#[test]
fn shm_passes_through_the_c_library() {
    let program = std::env::current_exe().expect("the test program has a path");
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
    run_and_check(
        Command::new(program)
            .env("FI_OFI_LIBRARY", library)
            .args(args),
    );
}

/// The providers of the system's libfabric behave as the manifest expects. The tests are a part of
/// the quick set; docs/FABTESTS-REFERENCE.md has the command for the whole set.
#[test]
fn providers_of_libfabric_1_17_are_as_expected() {
    let folders = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib",
    ];
    let is_installed = |folder: &&str| Path::new(folder).join("libfabric.so.1.20.0").exists();
    if !folders.iter().any(is_installed) {
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
    run_and_check(
        Command::new(program)
            .env("FI_OFI_LIBRARY", "system")
            .args(args),
    );
}

/// A test names the defects that it must notice: over a provider with one of them, it must fail.
#[test]
fn every_test_notices_the_defects_that_it_names() {
    // Most of these tests wait for a message that does not arrive. `fabtests run --mutants` also
    // runs the programs with upstream's names, which take longer.
    let mut args = vec!["run", "--mutants", "-p", "shm", "-j", "6", "-x", "/fi_"];
    args.extend(part(&["-f", "/raw/messages."][..], &[]));
    run_suite(&args);
}

/// One test of each kind; `fabtests run --hook-faults=N` runs all of them.
#[test]
fn no_test_hangs_when_a_call_fails() {
    let mut args = vec!["run", "quick", "-p", "shm", "--hook-faults=3"];
    for test in part(
        &["messages.every_call"][..],
        &["messages.every_call", "counters.waits"],
    ) {
        args.extend(["-f", test]);
    }
    run_suite(&args);
}
