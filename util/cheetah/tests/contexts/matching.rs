//! Matching handlers.

use crate::processes::{run, run_expecting_success};

#[test]
fn each_request_gets_one_message_of_its_sender_and_tag_in_order() {
    for contexts in [1, 2, 4, 8] {
        run("matching", contexts, &["200"]).assert_success(contexts);
    }
}

#[test]
fn handlers_do_not_see_each_others_messages() {
    for contexts in [1, 4] {
        run_expecting_success("handlers", contexts);
    }
}

#[test]
fn messages_are_queued_until_their_handler_is_constructed() {
    for contexts in [2, 4] {
        run_expecting_success("early", contexts);
    }
}

#[test]
fn unmatched_requests_and_messages_are_counted() {
    for contexts in [1, 4] {
        run_expecting_success("counts", contexts);
    }
}

#[test]
fn messages_have_none_to_four_arguments() {
    for contexts in [1, 2, 4] {
        run_expecting_success("arguments", contexts);
    }
}
