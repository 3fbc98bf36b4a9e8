//! Contexts as processes: each test runs a scene of `tests/scenes` with several contexts.

#![expect(clippy::unwrap_used, reason = "a test that cannot run fails")]

mod calls;
mod hosts;
mod meeting;
mod remote;
mod starting;
mod stencil;
mod trouble;
mod troupe;
