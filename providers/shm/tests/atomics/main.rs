//! Semantics of atomics between endpoints of one process, for all kinds of memory.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

mod order;
mod pair;
mod refusals;
mod semantics;
mod short;
