//! Semantics of messages and tagged messages, between endpoints of one process.
//!
//! [`common`] is independent of the provider. [`provider`] selects the provider under test and sets
//! its parameters.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

mod common;
mod completions;
mod contexts;
mod counters;
mod counts;
mod fences;
mod flow;
mod huge;
mod large;
mod lending;
mod many_senders;
mod matching;
mod model;
mod multi;
mod names;
mod peek;
mod provider;
mod sets;
mod shapes;
mod shared;
mod sources;
mod truncation;
mod verbs;
mod waits;
