//! A skip is printed, recorded, and fails where the machine was said to have what is missing. Each
//! test runs itself once more, with the environment that it is about.

use std::process::{Command, Output};

use selvedge_testkit::skip::{Need, RECORD, REQUIRED, skip};

/// Runs the skipping test with these variables.
fn skipping(env: &[(&str, &str)]) -> Output {
    let mut command = Command::new(std::env::current_exe().expect("it runs"));
    command.args(["a_test_that_skips", "--exact", "--ignored"]);
    command.env_remove(RECORD).env_remove(REQUIRED);
    let output = command.envs(env.iter().copied()).output();
    output.expect("it can be run again")
}

fn shown(output: &Output) -> String {
    let streams = [&output.stdout, &output.stderr];
    streams
        .map(|stream| String::from_utf8_lossy(stream))
        .concat()
}

#[test]
#[ignore = "the process that the other tests run"]
fn a_test_that_skips() {
    skip(Need::Libfabric, "there is\nnone");
}

#[test]
fn a_skip_is_printed_past_the_harness_and_recorded() {
    let record = format!(
        "{}/skips-{}",
        env!("CARGO_TARGET_TMPDIR"),
        std::process::id()
    );
    let line = "skipped: a_test_that_skips needs libfabric: there is none\n";
    for times in 1..=2 {
        let output = skipping(&[(RECORD, &record), (REQUIRED, "cc mpi")]);
        assert!(output.status.success(), "{}", shown(&output));
        assert!(
            String::from_utf8_lossy(&output.stderr).contains(line),
            "{}",
            shown(&output)
        );
        assert_eq!(
            std::fs::read_to_string(&record).unwrap(),
            line.repeat(times)
        );
    }
    std::fs::remove_file(&record).unwrap();
}

#[test]
fn a_skip_with_a_declared_requirement_fails() {
    let output = skipping(&[(REQUIRED, "cc libfabric")]);
    assert!(!output.status.success());
    assert!(shown(&output).contains("needs libfabric, which SELVEDGE_TEST_REQUIRES says is there"));
}

#[test]
fn a_skip_with_an_unknown_requirement_fails() {
    let output = skipping(&[(REQUIRED, "libfabrik")]);
    assert!(!output.status.success());
    assert!(shown(&output).contains("\"libfabrik\" is not one of: cc c++ libfabric"));
}
