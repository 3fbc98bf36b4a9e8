//! Contexts as processes: each test runs a scenario of `tests/scenarios` with several contexts.

#![expect(clippy::unwrap_used, reason = "a test that cannot run fails")]

mod calls;
mod hosts;
mod meeting;
mod remote;
mod starting;
mod stencil;
mod trouble;
mod troupe;
