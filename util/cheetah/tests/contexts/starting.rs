//! Start and end of contexts.

use selvedge_testkit::skip::{Need, skip};
use std::process::Command;

use crate::troupe::{LAUNCHER, SCENES, play, play_well, watch};

#[test]
fn one_process_forks_into_as_many_contexts_as_it_was_told() {
    for contexts in [1, 2, 3, 4, 8, 16, 64] {
        play_well("thin", contexts);
    }
}

#[test]
fn the_same_program_is_forked_or_launched() {
    for more in [&[][..], &["-shmem", "-np", "4"], &["-mpi"]] {
        let mut command = Command::new(LAUNCHER);
        command.args(["-n", "4", SCENES, "thin"]).args(more);
        let played = watch(command);
        played.assert_well(4);
        for rank in 0..4 {
            let line = format!("[{rank}] context ends well\n");
            assert!(played.out.contains(&line), "{played:#?}");
        }
    }
}

#[test]
fn a_plain_mpiexec_starts_contexts() {
    let has_hydra = Command::new("mpiexec.hydra")
        .arg("--version")
        .output()
        .is_ok();
    if !has_hydra {
        return skip(Need::OtherMpi, "there is no mpiexec.hydra");
    }
    let mut command = Command::new("mpiexec.hydra");
    command.args(["-n", "4", SCENES, "thin"]);
    watch(command).assert_well(4);
}

#[test]
fn a_child_that_fails_makes_the_parent_fail_and_is_named() {
    let played = play("exits", 4, &["2", "3"]);
    played.assert_failed("context 2 has ended with exit code 3");
    let played = play("dies", 4, &["1"]);
    played.assert_failed("context 1 was killed by signal 6");
}

#[test]
fn what_was_printed_before_the_fork_is_printed_once() {
    let played = play("thin", 4, &["--chatty"]);
    assert_eq!(
        played.out.matches("before the fork").count(),
        1,
        "{played:#?}"
    );
}

#[test]
fn a_start_that_makes_no_sense_is_refused_with_a_reason() {
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
    for (args, part) in table {
        let mut command = Command::new(SCENES);
        command.arg("thin").args(args);
        watch(command).assert_failed(part);
    }
}
