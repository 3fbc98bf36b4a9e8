//! Contexts as processes: each test runs a scenario of `tests/scenarios` with several contexts.

#![expect(clippy::unwrap_used, reason = "a test that cannot run fails")]

mod calls;
mod hosts;
mod matching;
mod remote;
mod startup;
mod stencil;
mod errors;
mod processes;
