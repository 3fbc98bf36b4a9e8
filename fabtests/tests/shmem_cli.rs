//! `fabtests shmem` as a process: the operations of a SHMEM library between processes, over each
//! provider that has them.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::Command;

use serde_json::Value;

/// Runs the command for a second. A wait that does not end is an error after the command's timeout.
fn run_shmem(args: &[&str]) {
    run_shmem_for("1", args);
}

fn run_shmem_for(seconds: &str, args: &[&str]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fabtests"));
    command.args(["shmem", "--json", "--seconds", seconds]);
    let output = command.args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {output:?}");
    let totals: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(totals["operations"].as_u64() > Some(0), "{totals}");
    assert!(totals["epochs"].as_u64() > Some(0), "{totals}");
}

#[test]
fn one_process_reaches_its_own_memory_through_another_endpoint() {
    run_shmem(&["-n", "1"]);
}

#[test]
fn processes_that_park_and_compute_lose_no_wake_up_over_shm() {
    run_shmem(&["-n", "2"]);
    run_shmem(&["-n", "4", "--threads", "2", "--operations", "20"]);
    run_shmem(&["-n", "2", "--threads", "2", "--special"]);
}

#[test]
fn processes_that_park_and_compute_lose_no_wake_up_over_tcp_and_lnx() {
    run_shmem(&["-n", "3", "--provider", "tcp", "--operations", "20"]);
    run_shmem(&["-n", "3", "--provider", "lnx", "--operations", "20"]);
}

/// Puts complete that are outstanding when their target exits after its last barrier.
#[test]
fn puts_to_a_process_that_has_just_ended_complete() {
    for seed in 0..20 {
        let seed = seed.to_string();
        run_shmem_for("0", &["--operations", "2", "--seed", &seed]);
    }
}

#[test]
fn an_unknown_provider_is_an_error() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fabtests"));
    let output = command.args(["shmem", "-p", "pigeon"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("pigeon"), "{errors}");
}
