//! Lent messages: which messages travel by reference, when they return to their senders, and what
//! a view shows after its sender or receiver has ended.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

mod awaited;
mod common;
mod ends;
mod matching;
mod protocols;
mod sharing;
