//! The measuring commands as their users see them: as processes.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod command;
mod documented;
mod object;
mod processes;
mod reports;
mod turns;
