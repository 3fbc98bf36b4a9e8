//! Tests of the program `selvedge-bench`. The tests of `fabtests` cover the common commands; these
//! tests cover the differences.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::{Command, Output};

use serde_json::Value;

fn bench(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_selvedge-bench"));
    command.args(args).args(["--timeout", "120"]);
    command.output().unwrap()
}

#[test]
fn a_first_table_is_measured_without_the_rest_of_the_suite() {
    let args = "pingpong -S 8,4k -I 20 --reps 1 -c --json";
    let output = bench(&args.split(' ').collect::<Vec<_>>());
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["rows"].as_array().unwrap().len(), 2);
}

#[test]
fn an_error_names_the_program_that_has_bmi() {
    let output = bench(&["bench", "--against", "bmi", "-S", "8"]);
    assert!(!output.status.success(), "{output:?}");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.starts_with("selvedge-bench: "), "{message}");
    assert!(message.contains("`fabtests bench"), "{message}");
}
