//! Contexts as processes: each test runs a scenario of `tests/scenarios` with several contexts.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

mod calls;
mod errors;
mod hosts;
mod matching;
mod processes;
mod remote;
mod startup;
mod stencil;
