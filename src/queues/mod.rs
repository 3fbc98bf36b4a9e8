//! Queues and counters, which report completions and events, and waits for them.

pub mod cntr;
pub mod cq;
pub mod eq;
pub mod poll;
pub mod wait;

pub use cntr::Counter;
pub use cq::CompletionQueue;
pub use eq::EventQueue;
