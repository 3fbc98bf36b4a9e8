//! A skip is printed and recorded. It fails if the environment declares the missing requirement.
//! Each test runs this program again, with the environment that the test is about.

use std::process::{Command, Output};

use selvedge_testkit::skip::{Need, RECORD, REQUIRED, skip};

/// Runs the test that skips, with these variables.
fn run_skipping_test(env: &[(&str, &str)]) -> Output {
    let mut command = Command::new(std::env::current_exe().expect("the test program has a path"));
    command.args(["a_test_that_skips", "--exact", "--ignored"]);
    command.env_remove(RECORD).env_remove(REQUIRED);
    let output = command.envs(env.iter().copied()).output();
    output.expect("the test program starts again")
}

/// Returns both streams as text.
fn output_text(output: &Output) -> String {
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
    for runs in 1..=2 {
        let output = run_skipping_test(&[(RECORD, &record), (REQUIRED, "cc mpi")]);
        assert!(output.status.success(), "{}", output_text(&output));
        assert!(
            String::from_utf8_lossy(&output.stderr).contains(line),
            "{}",
            output_text(&output)
        );
        assert_eq!(std::fs::read_to_string(&record).unwrap(), line.repeat(runs));
    }
    std::fs::remove_file(&record).unwrap();
}

#[test]
fn a_skip_with_a_declared_requirement_fails() {
    let output = run_skipping_test(&[(REQUIRED, "cc libfabric")]);
    assert!(!output.status.success());
    assert!(
        output_text(&output)
            .contains("needs libfabric, which SELVEDGE_TEST_REQUIRES says is there")
    );
}

#[test]
fn a_skip_with_an_unknown_requirement_fails() {
    let output = run_skipping_test(&[(REQUIRED, "libfabrik")]);
    assert!(!output.status.success());
    assert!(output_text(&output).contains("\"libfabrik\" is not one of: cc c++ libfabric"));
}
