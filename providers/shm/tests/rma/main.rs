//! Remote memory access over the shm provider, in one process and between two.

#![expect(unsafe_code, reason = "tests of the raw API")]
#![expect(clippy::unwrap_used, reason = "tests may panic")]

mod common;
mod counted;
mod events;
mod process;
mod random;
mod refusals;
mod short;
mod siblings;
mod verbs;
mod whole;
