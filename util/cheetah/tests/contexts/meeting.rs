//! Matching handlers.

use crate::troupe::{play, play_well};

#[test]
fn each_request_gets_one_message_of_its_sender_and_tag_in_order() {
    for contexts in [1, 2, 4, 8] {
        play("matching", contexts, &["200"]).assert_well(contexts);
    }
}

#[test]
fn handlers_do_not_see_each_others_messages() {
    for contexts in [1, 4] {
        play_well("handlers", contexts);
    }
}

#[test]
fn messages_for_a_handler_that_is_not_built_yet_are_kept() {
    for contexts in [2, 4] {
        play_well("early", contexts);
    }
}

#[test]
fn actions_and_messages_that_wait_are_counted() {
    for contexts in [1, 4] {
        play_well("counts", contexts);
    }
}

#[test]
fn messages_have_none_to_four_arguments() {
    for contexts in [1, 2, 4] {
        play_well("arguments", contexts);
    }
}
