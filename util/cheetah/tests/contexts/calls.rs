//! Invocations.

use std::process::Command;

use crate::troupe::{SCENES, play, play_well, watch};

#[test]
fn payloads_of_every_size_arrive_aligned_and_are_the_callers_again_at_return() {
    for contexts in [1, 2, 4] {
        play_well("payloads", contexts);
    }
}

#[test]
fn what_one_context_invokes_in_another_runs_in_that_order() {
    for contexts in [1, 2, 4, 8] {
        play("fifo", contexts, &["3000"]).assert_well(contexts);
    }
}

#[test]
fn handlers_may_communicate_and_must_not_wait() {
    for contexts in [1, 2, 4] {
        play_well("nested", contexts);
    }
}

#[test]
fn handlers_that_invoke_each_other_take_no_stack() {
    for contexts in [1, 2, 3] {
        play("chain", contexts, &["5000"]).assert_well(contexts);
    }
}

#[test]
fn a_flood_without_polls_ends() {
    for contexts in [2, 4, 8] {
        play("flood", contexts, &["5000"]).assert_well(contexts);
    }
}

#[test]
fn calls_that_are_no_polls_move_messages_too() {
    for contexts in [2, 4] {
        play_well("no-polls", contexts);
    }
}

#[test]
fn typed_functions_get_values_in_place() {
    for contexts in [1, 4] {
        play_well("typed", contexts);
    }
}

#[test]
fn a_parcel_in_special_memory_is_copied_once_less() {
    for contexts in [2, 4] {
        play_well("parcels", contexts);
    }
}

#[test]
fn a_function_that_is_not_registered_is_an_error_of_caller_and_target() {
    for contexts in [2, 4] {
        play_well("unknown", contexts);
    }
}

#[test]
fn functions_are_numbered_in_the_order_of_their_registration() {
    for contexts in [1, 4] {
        play_well("ordinals", contexts);
    }
}

#[test]
fn functions_run_and_bells_ring_within_calls_only() {
    for contexts in [2, 4] {
        play_well("quiet-handlers", contexts);
    }
}

#[test]
fn the_library_makes_no_threads() {
    play_well("threads", 4);
}

#[test]
fn with_a_thread_bells_ring_without_any_call() {
    let mut command = Command::new(SCENES);
    command.args(["thread-mode", "-shmem", "-np", "2"]);
    command.env("CHEETAH_THREAD", "1");
    watch(command).assert_well(2);
}
