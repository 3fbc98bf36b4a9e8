//! What messages and tags mean, between endpoints of one process.
//!
//! [`common`] knows no provider; [`provider`] names the one that is tested and sets its parameters.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

mod common;
mod completions;
mod contexts;
mod counters;
mod crowd;
mod fences;
mod flow;
mod huge;
mod large;
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
