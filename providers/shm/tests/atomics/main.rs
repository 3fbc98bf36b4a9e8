//! What atomics mean, between endpoints of one process: the same for all kinds of memory.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

mod flow;
mod meaning;
mod pair;
mod refusals;
mod short;
