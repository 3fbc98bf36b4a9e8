//! The runner of the suite, tested with the selftests: tests whose processes misbehave in the ways
//! that the runner must detect.

#![expect(clippy::unwrap_used, reason = "a run without a report fails the test")]

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use selvedge_testkit::skip::{Need, skip};
use serde_json::Value;

fn fabtests(args: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_fabtests");
    let mut command = Command::new(program);
    command.args(args);
    let output = command.output().unwrap();
    // The selftest `leave-file` leaves a file behind, whose name is in the report.
    let shown = text(&output.stdout);
    if let Some((_, rest)) = shown.split_once("the test has left /dev/shm/litter-") {
        let number: String = rest.chars().take_while(char::is_ascii_digit).collect();
        fs::remove_file(format!("/dev/shm/litter-{number}")).unwrap();
    }
    output
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs the selftests. Returns the output, and the outcome of each selftest with its reason.
fn selftests(extra_args: &[&str]) -> (Output, BTreeMap<String, (String, String)>) {
    let args = [&["run", "--selftest", "--json"], extra_args].concat();
    let output = fabtests(&args);
    let tests = outcomes(&output);
    (output, tests)
}

/// The outcome of each test with its reason, from a report in JSON.
fn outcomes(output: &Output) -> BTreeMap<String, (String, String)> {
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let tests = report["tests"].as_array().unwrap().iter().map(|test| {
        let field = |name: &str| test[name].as_str().unwrap_or_default().to_owned();
        (field("name"), (field("verdict"), field("why")))
    });
    tests.collect()
}

#[test]
fn every_behaviour_has_its_outcome_and_its_reason() {
    let (output, tests) = selftests(&["--jobs", "1"]);
    assert!(!output.status.success());
    let expected = [
        ("exchange", "pass", ""),
        ("connect", "pass", ""),
        ("fail", "fail", "as it should"),
        ("exit", "fail", "exited with 1 instead of 0"),
        ("skip", "skip", "as expected"),
        ("unexpected-skip", "fail", "does not list: a surprise"),
        ("no-data", "fail", "No data available"),
        ("crash", "crash", "SIGABRT"),
        (
            "hang",
            "timeout",
            "did not end within 1 s: the process while sleeping",
        ),
        ("idle", "fail", "nothing was checked"),
        ("leave-process", "leak", "(sleep)"),
        ("leave-file", "leak", "/dev/shm/litter-"),
        ("wait", "fail", "process 1 waits for process 0"),
    ];
    for (name, outcome, why) in expected {
        let found = &tests[name];
        assert_eq!(found.0, outcome, "{name}: {found:?}");
        assert!(found.1.contains(why), "{name}: {found:?}");
    }
    assert_eq!(tests.len(), expected.len());
}

/// The runner kills the process that the selftest `leave-process` leaves behind.
#[test]
fn no_process_outlives_a_run() {
    let (_, tests) = selftests(&["--jobs", "4"]);
    let (_, why) = &tests["leave-process"];
    let pid = why.rsplit(": ").next().unwrap().split(' ').next().unwrap();
    assert!(pid.parse::<u32>().is_ok(), "{why}");
    // A killed process ends a moment later, and may remain as a zombie until its parent reaps it.
    let is_running = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.contains("(sleep)") && !stat.contains("(sleep) Z")
    };
    let start = Instant::now();
    while is_running() {
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "process {pid} is still running"
        );
        std::thread::yield_now();
    }
}

#[test]
fn a_run_ends_with_its_counts_and_the_command_that_repeats_each_failure() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (junit, page) = (folder.join("junit.xml"), folder.join("page.md"));
    let paths = [junit.to_str().unwrap(), page.to_str().unwrap()];
    let output = fabtests(&[
        "run",
        "--selftest",
        "--seed",
        "7",
        "--junit",
        paths[0],
        "--markdown",
        paths[1],
    ]);
    let shown = text(&output.stdout);
    let summary = shown.lines().last().unwrap();
    assert!(
        summary.starts_with("2 passed, 10 failed, 1 skipped"),
        "{summary}"
    );
    let repeat_command =
        "run again: fabtests run quick --seed 7 --selftest --filter \"selftest/crash\"";
    assert!(shown.contains(repeat_command), "{shown}");
    let skip = shown.lines().find(|line| line.starts_with("skip"));
    assert!(
        skip.is_some_and(|line| line.ends_with("  as expected")),
        "{shown}"
    );
    assert!(
        shown.contains("fabtests: this goes to the standard error"),
        "{shown}"
    );

    let junit = fs::read_to_string(junit).unwrap();
    let counts = "tests=\"13\" failures=\"8\" errors=\"2\" skipped=\"1\"";
    assert!(junit.contains(counts), "{junit}");
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("## TIMEOUT: selftest/hang"), "{page}");
    assert!(page.contains(repeat_command), "{page}");
    assert!(page.contains("## Skipped: selftest: as expected"), "{page}");
}

/// The listening address exists only on the host of the first process, so that the second process
/// reaches it over the cable only.
#[test]
fn processes_on_two_hosts_reach_each_other_over_the_virtual_cable() {
    let output = fabtests(&["run", "--selftest", "--json", "--two-hosts"]);
    let error_text = text(&output.stderr);
    if output.stdout.is_empty() {
        assert!(
            error_text.contains("cannot") || error_text.contains("failed"),
            "{error_text}"
        );
        return skip(Need::Rights, error_text);
    }
    assert_eq!(outcomes(&output)["connect"].0, "pass");
    let path = "tcp/rdm/raw/tagged.";
    let output = fabtests(&["run", "-p", "tcp", "--two-hosts", "-f", path, "--json"]);
    let tests = outcomes(&output);
    assert!(tests.len() > 3, "{tests:?}");
    assert!(output.status.success(), "{tests:?}");
}

#[test]
fn unknown_providers_and_filters_without_a_match_are_errors() {
    let output = fabtests(&["run", "-p", "nonsense"]);
    assert!(text(&output.stderr).contains("no provider \"nonsense\""));
    let output = fabtests(&["run", "--filter", "nonsense"]);
    assert!(text(&output.stderr).contains("no test matches the options"));
}
