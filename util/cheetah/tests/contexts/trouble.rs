//! Errors and their texts.

use std::process::Command;
use std::time::Duration;

use crate::troupe::{Played, SCENES, finish, play, play_well, spawn, watch};

#[test]
fn a_pointer_that_is_no_memory_is_the_initiators_error_and_the_target_lives() {
    for contexts in [1, 2, 4] {
        play_well("bad-pointers", contexts);
    }
}

#[test]
fn barrier_and_finalize_report_what_failed_unless_a_wait_has() {
    for how in ["barrier", "halves", "finalize", "told"] {
        for contexts in [2, 3] {
            play("failed-put", contexts, &[how]).assert_well(contexts);
        }
    }
}

#[test]
fn the_drop_of_the_last_handle_logs_what_failed() {
    let played = play("failed-put", 2, &["drop", "--drop"]);
    played.assert_well(2);
    for (me, next) in [(0, 1), (1, 0)] {
        let line = format!(
            "logged: context {me} of 2: put of 100 bytes at 0x30 of context {next}: no such memory"
        );
        assert_eq!(played.err.matches(&line).count(), 1, "{played:#?}");
    }
}

#[test]
fn a_bell_that_is_no_integer_is_the_initiators_error() {
    for contexts in [1, 2, 4] {
        play_well("bad-bells", contexts);
    }
}

#[test]
fn contexts_that_register_different_things_are_told_at_the_first_barrier() {
    let table = [
        ("name", "context 1 has \"function odd\""),
        ("type", "context 1 has \"function second of u32\""),
        ("handler", "context 1 has \"handler matching\""),
    ];
    for (how, text) in table {
        let played = play("mismatch", 3, &[how]);
        assert_eq!(
            played.out.matches("told: as number 1").count(),
            3,
            "{played:#?}"
        );
        assert!(played.out.contains(text), "{played:#?}");
    }
}

/// Number of contexts that reported the failure of `failed`, each within two seconds.
fn told(played: &Played, victim: usize, of: usize) -> usize {
    let lines = played
        .out
        .lines()
        .filter_map(|line| line.strip_prefix("told after "));
    let mut count = 0;
    for line in lines {
        let (millis, why) = line.split_once(" ms: ").unwrap();
        assert!(millis.parse::<u64>().unwrap() < 2000, "{played:#?}");
        assert!(
            why.starts_with(&format!("context {victim} of {of} is gone")),
            "{played:#?}"
        );
        count += 1;
    }
    count
}

#[test]
fn the_death_of_a_context_ends_the_waits_of_all_others_with_its_name() {
    for how in ["wait", "barrier", "poll", "ainvoke", "put"] {
        for victim in [0, 2] {
            let played = play("killed", 4, &[&victim.to_string(), how]);
            assert_eq!(told(&played, victim, 4), 3, "{how}: {played:#?}");
        }
    }
    let played = play("killed", 8, &["5", "barrier"]);
    assert_eq!(told(&played, 5, 8), 7, "{played:#?}");
    played.assert_failed("context 5 was killed by signal 9");
}

#[test]
fn a_context_that_is_stopped_holds_nobody_up_and_loses_nothing() {
    play("stopped", 3, &[]).assert_well(3);
}

#[test]
fn a_barrier_that_lasts_too_long_names_who_is_missing() {
    play_well("absent", 4);
}

#[test]
fn a_wait_ends_at_the_value_beyond_it_or_with_its_time() {
    for contexts in [1, 4] {
        play_well("wait-limits", contexts);
    }
}

#[test]
fn calls_after_finalize_are_errors() {
    for contexts in [1, 4] {
        play_well("after-finalize", contexts);
    }
}

#[test]
fn what_was_sent_last_arrives_before_the_end() {
    for contexts in [1, 2, 4, 8] {
        play_well("flushes", contexts);
    }
}

#[test]
fn two_controllers_have_nothing_to_do_with_each_other() {
    for contexts in [1, 2, 4] {
        play_well("two", contexts);
        // The first controller uses shm.
        play("two", contexts, &["tcp"]).assert_well(contexts);
    }
}

#[test]
fn nobody_who_has_left_a_barrier_holds_up_those_who_have_not() {
    for contexts in [3, 4] {
        // Connections are still being made when the first barrier begins.
        play("abandoned", contexts, &["tcp"]).assert_well(contexts);
    }
}

#[test]
fn the_last_handle_that_is_dropped_finalizes() {
    for contexts in [1, 4] {
        play_well("dropped", contexts);
    }
}

#[test]
fn a_barrier_has_two_halves_and_one_at_a_time() {
    for contexts in [2, 4] {
        play_well("split", contexts);
    }
}

#[test]
fn nobody_leaves_a_barrier_before_all_have_entered() {
    for contexts in [1, 2, 4, 8] {
        play("staggered", contexts, &["300"]).assert_well(contexts);
    }
}

#[test]
fn contexts_that_wait_sleep() {
    play_well("idle", 4);
}

#[test]
fn contexts_that_are_started_by_hand_meet_at_a_place_and_others_are_turned_away() {
    let folder = std::env::temp_dir().join(format!("cheetah-meet-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("rendezvous").display().to_string();
    let port = free_port();
    for place in [format!("127.0.0.1:{port}"), file] {
        let context = |rank: usize, job: &str| {
            let mut command = Command::new(SCENES);
            command.arg("thin");
            command
                .env("CHEETAH_RANK", rank.to_string())
                .env("CHEETAH_SIZE", "3");
            command
                .env("CHEETAH_JOB", job)
                .env("CHEETAH_RENDEZVOUS", &place);
            command.env("CHEETAH_START_TIMEOUT", "5s");
            spawn(command)
        };
        let stranger = context(1, "another");
        let contexts = [2, 0].map(|rank| context(rank, "ours"));
        std::thread::sleep(Duration::from_millis(200));
        let late = context(1, "ours");
        for child in contexts.into_iter().chain([late]) {
            finish(child).assert_well(1);
        }
        finish(stranger).assert_failed("job");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn contexts_that_somebody_else_starts_on_one_host_talk_over_shm_alone() {
    let place = format!("127.0.0.1:{}", free_port());
    let context = |rank: usize| {
        let mut command = Command::new(SCENES);
        command.args(["fabrics", "shm"]);
        command
            .env("CHEETAH_RANK", rank.to_string())
            .env("CHEETAH_SIZE", "3")
            .env("CHEETAH_RENDEZVOUS", &place);
        spawn(command)
    };
    for child in [0, 1, 2].map(context) {
        finish(child).assert_well(1);
    }
}

#[test]
fn a_context_that_does_not_come_is_named() {
    let port = free_port();
    let mut command = Command::new(SCENES);
    command
        .arg("thin")
        .env("CHEETAH_RANK", "0")
        .env("CHEETAH_SIZE", "3");
    command.env("CHEETAH_RENDEZVOUS", format!("127.0.0.1:{port}"));
    command.env("CHEETAH_START_TIMEOUT", "300ms");
    finish(spawn(command)).assert_failed("contexts that have not come: 1, 2");
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

#[test]
fn everything_works_over_tcp_too() {
    let scenes = [
        ("places", ""),
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
        ("absent", ""),
        ("flushes", ""),
        ("two", ""),
    ];
    for (scene, argument) in scenes {
        let mut command = Command::new(SCENES);
        command.args([scene, "-tcp", "-np", "3", argument]);
        watch(command).assert_well(3);
    }
    let mut command = Command::new(SCENES);
    command.args(["killed", "2", "barrier", "-tcp", "-np", "4"]);
    let played = watch(command);
    assert_eq!(told(&played, 2, 4), 3, "{played:#?}");
}

#[test]
fn one_controller_has_two_fabrics_for_near_and_far() {
    for (scene, argument) in [("thin", ""), ("fifo", "300"), ("arguments", "")] {
        let mut command = Command::new(SCENES);
        command.args([scene, "-tcp", "-np", "3", argument]);
        command.env("CHEETAH_NEAR", "shm");
        watch(command).assert_well(3);
    }
}
