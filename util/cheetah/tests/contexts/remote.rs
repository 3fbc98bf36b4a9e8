//! Puts and gets, with bells.

use crate::troupe::{play, play_well};

/// Numbers of contexts for every scenario.
const COUNTS: [usize; 4] = [1, 2, 4, 8];

#[test]
fn puts_and_gets_of_every_size_arrive_whole_and_touch_nothing_else() {
    for contexts in [1, 2, 4] {
        play_well("sizes", contexts);
    }
}

#[test]
fn a_large_put_is_copied_once() {
    for contexts in [2, 4] {
        play_well("one-copy", contexts);
    }
}

#[test]
fn heap_stack_data_zeros_and_mapped_memory_are_put_to() {
    for contexts in COUNTS {
        play_well("places", contexts);
    }
}

#[test]
fn the_source_of_a_put_is_free_at_its_local_bell_and_the_bytes_are_there_at_the_remote_one() {
    for contexts in COUNTS {
        play("put-bells", contexts, &["500"]).assert_well(contexts);
    }
}

#[test]
fn the_bytes_of_a_get_are_here_at_its_local_bell_and_out_of_there_at_the_remote_one() {
    for contexts in COUNTS {
        play("get-bells", contexts, &["300"]).assert_well(contexts);
    }
}

#[test]
fn one_bell_counts_everything_that_rings_it() {
    for contexts in COUNTS {
        play("many-on-one-bell", contexts, &["10000"]).assert_well(contexts);
    }
}

#[test]
fn operations_without_bells_are_done_by_finalize() {
    for contexts in COUNTS {
        play_well("null-bells", contexts);
    }
}

#[test]
fn a_target_that_only_polls_gets_everything() {
    for contexts in [2, 4, 8] {
        play_well("patient-target", contexts);
    }
}

#[test]
fn special_memory_is_put_to_and_got_from_directly() {
    for contexts in [1, 2, 4] {
        play_well("special", contexts);
    }
}

#[test]
fn special_memory_that_is_freed_is_not_taken_for_what_is_there_next() {
    for contexts in [2, 4] {
        play_well("withdrawn", contexts);
    }
}

#[test]
fn any_integer_is_a_bell_and_wraps() {
    for contexts in COUNTS {
        play_well("any-int", contexts);
    }
}
