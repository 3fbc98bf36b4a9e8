//! Start and end of contexts.

use selvedge_testkit::skip::{Need, skip};
use std::process::Command;

use crate::processes::{LAUNCHER, SCENARIOS, run, run_command, run_expecting_success};

#[test]
fn one_process_forks_into_the_configured_number_of_contexts() {
    for contexts in [1, 2, 3, 4, 8, 16, 64] {
        run_expecting_success("basic-put", contexts);
    }
}

#[test]
fn the_same_program_is_forked_or_launched() {
    for options in [&[][..], &["-shmem", "-np", "4"], &["-mpi"]] {
        let mut command = Command::new(LAUNCHER);
        command
            .args(["-n", "4", SCENARIOS, "basic-put"])
            .args(options);
        let output = run_command(command);
        output.assert_success(4);
        for rank in 0..4 {
            let line = format!("[{rank}] context succeeded\n");
            assert!(output.out.contains(&line), "{output:#?}");
        }
    }
}

#[test]
fn mpiexec_of_hydra_starts_contexts() {
    let has_hydra = Command::new("mpiexec.hydra")
        .arg("--version")
        .output()
        .is_ok();
    if !has_hydra {
        return skip(Need::OtherMpi, "there is no mpiexec.hydra");
    }
    let mut command = Command::new("mpiexec.hydra");
    command.args(["-n", "4", SCENARIOS, "basic-put"]);
    run_command(command).assert_success(4);
}

#[test]
fn a_child_that_fails_makes_the_parent_fail_and_is_named() {
    let output = run("exits", 4, &["2", "3"]);
    output.assert_failed("context 2 has ended with exit code 3");
    let output = run("aborts", 4, &["1"]);
    output.assert_failed("context 1 was killed by signal 6");
}

#[test]
fn text_printed_before_the_fork_appears_once() {
    let output = run("basic-put", 4, &["--chatty"]);
    assert_eq!(
        output.out.matches("before the fork").count(),
        1,
        "{output:#?}"
    );
}

#[test]
fn an_invalid_start_is_refused_with_a_reason() {
    let table = [
        (&["-np", "0"][..], "-np 0"),
        (&["-np", "1000000"], "-np 1000000"),
        (&["-fabric", "carrier-pigeon", "-np", "2"], "carrier-pigeon"),
        (&["-shmem", "-fabric", "tcp"], "two fabrics"),
        (
            &["-mpi", "-np", "2"],
            "no launcher has started this process",
        ),
    ];
    for (args, expected) in table {
        let mut command = Command::new(SCENARIOS);
        command.arg("basic-put").args(args);
        run_command(command).assert_failed(expected);
    }
}
