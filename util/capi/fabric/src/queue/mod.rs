//! Queues, counters, wait sets and poll sets.

pub(crate) mod cntr;
pub(crate) mod cq;
pub(crate) mod eq;
mod last_error;
pub(crate) mod poll;
mod read_policy;
pub(crate) mod wait;
