//! Errors and their texts.

use std::process::Command;
use std::time::Duration;

use crate::processes::{Output, SCENARIOS, finish, run, run_command, run_expecting_success, spawn};

#[test]
fn an_unmapped_pointer_is_an_error_of_the_initiator_and_the_target_continues() {
    for contexts in [1, 2, 4] {
        run_expecting_success("bad-pointers", contexts);
    }
}

#[test]
fn barrier_and_finalize_report_failures_that_no_wait_has_reported() {
    for call in ["barrier", "halves", "finalize", "wait"] {
        for contexts in [2, 3] {
            run("failed-put", contexts, &[call]).assert_success(contexts);
        }
    }
}

#[test]
fn the_drop_of_the_last_handle_logs_failures() {
    let output = run("failed-put", 2, &["drop", "--drop"]);
    output.assert_success(2);
    for (rank, next) in [(0, 1), (1, 0)] {
        let line = format!(
            "logged: context {rank} of 2: put of 100 bytes at 0x30 of context {next}: no such memory"
        );
        assert_eq!(output.err.matches(&line).count(), 1, "{output:#?}");
    }
}

#[test]
fn an_invalid_bell_is_an_error_of_the_initiator() {
    for contexts in [1, 2, 4] {
        run_expecting_success("bad-bells", contexts);
    }
}

#[test]
fn different_registrations_fail_the_first_barrier_in_all_contexts() {
    let table = [
        ("name", "context 1 has \"function odd\""),
        ("type", "context 1 has \"function second of u32\""),
        ("handler", "context 1 has \"handler matching\""),
    ];
    for (difference, text) in table {
        let output = run("mismatch", 3, &[difference]);
        assert_eq!(
            output.out.matches("reported: as number 1").count(),
            3,
            "{output:#?}"
        );
        assert!(output.out.contains(text), "{output:#?}");
    }
}

/// Returns the number of contexts that reported the failure of `target`. Each must have reported
/// it within two seconds.
fn reporting_contexts(output: &Output, target: usize, size: usize) -> usize {
    let lines = output
        .out
        .lines()
        .filter_map(|line| line.strip_prefix("reported after "));
    let mut count = 0;
    for line in lines {
        let (millis, error) = line.split_once(" ms: ").unwrap();
        assert!(millis.parse::<u64>().unwrap() < 2000, "{output:#?}");
        assert!(
            error.starts_with(&format!("context {target} of {size} has failed")),
            "{output:#?}"
        );
        count += 1;
    }
    count
}

#[test]
fn the_failure_of_a_context_ends_the_waits_of_all_others_with_its_name() {
    for call in ["wait", "barrier", "poll", "ainvoke", "put"] {
        for target in [0, 2] {
            let output = run("killed", 4, &[&target.to_string(), call]);
            assert_eq!(
                reporting_contexts(&output, target, 4),
                3,
                "{call}: {output:#?}"
            );
        }
    }
    let output = run("killed", 8, &["5", "barrier"]);
    assert_eq!(reporting_contexts(&output, 5, 8), 7, "{output:#?}");
    output.assert_failed("context 5 was killed by signal 9");
}

#[test]
fn a_stopped_context_blocks_no_other_and_loses_no_message() {
    run("stopped", 3, &[]).assert_success(3);
}

#[test]
fn a_barrier_timeout_names_the_missing_contexts() {
    run_expecting_success("late-for-barrier", 4);
}

#[test]
fn a_wait_ends_at_its_value_beyond_it_or_with_its_time_limit() {
    for contexts in [1, 4] {
        run_expecting_success("wait-limits", contexts);
    }
}

#[test]
fn calls_after_finalize_are_errors() {
    for contexts in [1, 4] {
        run_expecting_success("after-finalize", contexts);
    }
}

#[test]
fn messages_sent_last_arrive_before_finalize_returns() {
    for contexts in [1, 2, 4, 8] {
        run_expecting_success("flushes", contexts);
    }
}

#[test]
fn two_controllers_are_independent() {
    for contexts in [1, 2, 4] {
        run_expecting_success("two", contexts);
        // The first controller uses shm.
        run("two", contexts, &["tcp"]).assert_success(contexts);
    }
}

#[test]
fn a_context_that_left_a_barrier_does_not_block_the_others() {
    for contexts in [3, 4] {
        // The contexts are still connecting when the first barrier begins.
        run("abandoned", contexts, &["tcp"]).assert_success(contexts);
    }
}

#[test]
fn the_last_handle_that_is_dropped_finalizes() {
    for contexts in [1, 4] {
        run_expecting_success("dropped", contexts);
    }
}

#[test]
fn a_barrier_has_two_halves_and_one_at_a_time() {
    for contexts in [2, 4] {
        run_expecting_success("split", contexts);
    }
}

#[test]
fn no_context_leaves_a_barrier_before_all_have_entered() {
    for contexts in [1, 2, 4, 8] {
        run("staggered", contexts, &["300"]).assert_success(contexts);
    }
}

#[test]
fn waiting_contexts_park() {
    run_expecting_success("idle", 4);
}

#[test]
fn contexts_started_by_hand_connect_at_a_rendezvous_and_those_of_other_jobs_are_rejected() {
    let folder = std::env::temp_dir().join(format!("cheetah-rendezvous-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("rendezvous").display().to_string();
    let port = free_port();
    for rendezvous in [format!("127.0.0.1:{port}"), file] {
        let context = |rank: usize, job: &str| {
            let mut command = Command::new(SCENARIOS);
            command.arg("basic-put");
            command
                .env("CHEETAH_RANK", rank.to_string())
                .env("CHEETAH_SIZE", "3");
            command
                .env("CHEETAH_JOB", job)
                .env("CHEETAH_RENDEZVOUS", &rendezvous);
            command.env("CHEETAH_START_TIMEOUT", "5s");
            spawn(command)
        };
        let other_job = context(1, "another");
        let contexts = [2, 0].map(|rank| context(rank, "run"));
        std::thread::sleep(Duration::from_millis(200));
        let last_context = context(1, "run");
        for child in contexts.into_iter().chain([last_context]) {
            finish(child).assert_success(1);
        }
        finish(other_job).assert_failed("job");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn launched_contexts_on_one_host_use_shm_only() {
    let rendezvous = format!("127.0.0.1:{}", free_port());
    let context = |rank: usize| {
        let mut command = Command::new(SCENARIOS);
        command.args(["fabrics", "shm"]);
        command
            .env("CHEETAH_RANK", rank.to_string())
            .env("CHEETAH_SIZE", "3")
            .env("CHEETAH_RENDEZVOUS", &rendezvous);
        spawn(command)
    };
    for child in [0, 1, 2].map(context) {
        finish(child).assert_success(1);
    }
}

#[test]
fn a_context_that_does_not_connect_is_named() {
    let port = free_port();
    let mut command = Command::new(SCENARIOS);
    command
        .arg("basic-put")
        .env("CHEETAH_RANK", "0")
        .env("CHEETAH_SIZE", "3");
    command.env("CHEETAH_RENDEZVOUS", format!("127.0.0.1:{port}"));
    command.env("CHEETAH_START_TIMEOUT", "300ms");
    finish(spawn(command)).assert_failed("contexts that have not connected: 1, 2");
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

#[test]
fn scenarios_of_every_kind_succeed_over_tcp() {
    let scenarios = [
        ("targets", ""),
        ("put-bells", "50"),
        ("get-bells", "50"),
        ("many-on-one-bell", "500"),
        ("withdrawn", ""),
        ("any-int", ""),
        ("fifo", "300"),
        ("nested", ""),
        ("typed", ""),
        ("unknown", ""),
        ("matching", "50"),
        ("arguments", ""),
        ("bad-pointers", ""),
        ("late-for-barrier", ""),
        ("flushes", ""),
        ("two", ""),
    ];
    for (scenario, argument) in scenarios {
        let mut command = Command::new(SCENARIOS);
        command.args([scenario, "-tcp", "-np", "3", argument]);
        run_command(command).assert_success(3);
    }
    let mut command = Command::new(SCENARIOS);
    command.args(["killed", "2", "barrier", "-tcp", "-np", "4"]);
    let output = run_command(command);
    assert_eq!(reporting_contexts(&output, 2, 4), 3, "{output:#?}");
}

#[test]
fn one_controller_uses_two_fabrics_for_local_and_remote_contexts() {
    for (scenario, argument) in [("basic-put", ""), ("fifo", "300"), ("arguments", "")] {
        let mut command = Command::new(SCENARIOS);
        command.args([scenario, "-tcp", "-np", "3", argument]);
        command.env("CHEETAH_NEAR", "shm");
        run_command(command).assert_success(3);
    }
}
