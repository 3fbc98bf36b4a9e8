//! Shared state of polling, parking and waking.

pub mod doorbell;
pub mod parking;
pub mod poll_state;
