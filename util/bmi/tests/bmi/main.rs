//! BMI over the fabric, from outside.

#![expect(clippy::unwrap_used, reason = "a test that goes wrong ends")]

mod both;
mod common;
mod crowd;
mod death;
mod mailbox;
mod matching;
mod methods;
mod operations;
mod parked;
mod process;
mod request;
mod requests;
mod turns;
mod waiting;
