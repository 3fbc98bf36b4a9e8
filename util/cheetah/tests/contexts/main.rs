//! Contexts as processes: each test runs a scenario of `tests/scenarios` with several contexts.

#![expect(clippy::unwrap_used, reason = "a test that cannot run fails")]

mod calls;
mod errors;
mod hosts;
mod matching;
mod processes;
mod remote;
mod startup;
mod stencil;
