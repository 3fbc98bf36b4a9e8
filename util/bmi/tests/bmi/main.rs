//! Integration tests of BMI over Selvedge.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

mod common;
mod mailbox;
mod many_clients;
mod matching;
mod methods;
mod operations;
mod parked;
mod peer_failure;
mod post_fairness;
mod process;
mod request_pattern;
mod two_methods;
mod unexpected;
mod waiting;
