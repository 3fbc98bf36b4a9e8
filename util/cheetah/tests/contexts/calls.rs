//! Invocations.

use std::process::Command;

use crate::processes::{SCENARIOS, run, run_command, run_expecting_success};

#[test]
fn payloads_of_every_size_arrive_aligned_and_are_reusable_at_return() {
    for contexts in [1, 2, 4] {
        run_expecting_success("payloads", contexts);
    }
}

#[test]
fn invocations_between_two_contexts_run_in_order() {
    for contexts in [1, 2, 4, 8] {
        run("fifo", contexts, &["3000"]).assert_success(contexts);
    }
}

#[test]
fn handlers_may_communicate_and_must_not_wait() {
    for contexts in [1, 2, 4] {
        run_expecting_success("nested", contexts);
    }
}

#[test]
fn handlers_that_invoke_each_other_do_not_recurse() {
    for contexts in [1, 2, 3] {
        run("chain", contexts, &["5000"]).assert_success(contexts);
    }
}

#[test]
fn a_flood_without_polls_ends() {
    for contexts in [2, 4, 8] {
        run("flood", contexts, &["5000"]).assert_success(contexts);
    }
}

#[test]
fn calls_other_than_polls_move_messages_too() {
    for contexts in [2, 4] {
        run_expecting_success("no-polls", contexts);
    }
}

#[test]
fn typed_functions_get_values_in_place() {
    for contexts in [1, 4] {
        run_expecting_success("typed", contexts);
    }
}

#[test]
fn a_parcel_in_special_memory_saves_a_copy() {
    for contexts in [2, 4] {
        run_expecting_success("parcels", contexts);
    }
}

#[test]
fn a_function_that_is_not_registered_is_an_error_of_caller_and_target() {
    for contexts in [2, 4] {
        run_expecting_success("unknown", contexts);
    }
}

#[test]
fn functions_are_numbered_in_the_order_of_their_registration() {
    for contexts in [1, 4] {
        run_expecting_success("ordinals", contexts);
    }
}

#[test]
fn functions_run_and_bells_ring_within_calls_only() {
    for contexts in [2, 4] {
        run_expecting_success("handlers-within-calls", contexts);
    }
}

#[test]
fn the_library_creates_no_threads() {
    run_expecting_success("threads", 4);
}

#[test]
fn with_a_thread_bells_ring_without_any_call() {
    let mut command = Command::new(SCENARIOS);
    command.args(["thread-mode", "-shmem", "-np", "2"]);
    command.env("CHEETAH_THREAD", "1");
    run_command(command).assert_success(2);
}
