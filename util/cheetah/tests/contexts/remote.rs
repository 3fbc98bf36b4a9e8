//! Puts and gets, with bells.

use crate::processes::{run, run_expecting_success};

/// Numbers of contexts for every scenario.
const COUNTS: [usize; 4] = [1, 2, 4, 8];

#[test]
fn puts_and_gets_of_every_size_arrive_whole_and_touch_nothing_else() {
    for contexts in [1, 2, 4] {
        run_expecting_success("sizes", contexts);
    }
}

#[test]
fn a_large_put_is_copied_once() {
    for contexts in [2, 4] {
        run_expecting_success("one-copy", contexts);
    }
}

#[test]
fn heap_stack_data_zeros_and_mapped_memory_are_put_to() {
    for contexts in COUNTS {
        run_expecting_success("targets", contexts);
    }
}

#[test]
fn the_source_of_a_put_is_reusable_at_its_local_bell_and_the_bytes_are_received_at_the_remote_one()
{
    for contexts in COUNTS {
        run("put-bells", contexts, &["500"]).assert_success(contexts);
    }
}

#[test]
fn the_bytes_of_a_get_are_received_at_its_local_bell_and_reusable_at_the_remote_one() {
    for contexts in COUNTS {
        run("get-bells", contexts, &["300"]).assert_success(contexts);
    }
}

#[test]
fn one_bell_counts_everything_that_rings_it() {
    for contexts in COUNTS {
        run("many-on-one-bell", contexts, &["10000"]).assert_success(contexts);
    }
}

#[test]
fn operations_without_bells_are_complete_after_finalize() {
    for contexts in COUNTS {
        run_expecting_success("null-bells", contexts);
    }
}

#[test]
fn a_target_that_only_polls_gets_everything() {
    for contexts in [2, 4, 8] {
        run_expecting_success("polling-target", contexts);
    }
}

#[test]
fn special_memory_is_accessed_directly() {
    for contexts in [1, 2, 4] {
        run_expecting_success("special", contexts);
    }
}

#[test]
fn freed_special_memory_is_not_confused_with_a_new_allocation() {
    for contexts in [2, 4] {
        run_expecting_success("withdrawn", contexts);
    }
}

#[test]
fn any_integer_is_a_bell_and_wraps() {
    for contexts in COUNTS {
        run_expecting_success("any-int", contexts);
    }
}
