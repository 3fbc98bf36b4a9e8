//! Tests of the measuring commands, which run as processes.

#![expect(clippy::unwrap_used, reason = "an error fails the test")]

mod ab_runs;
mod command;
mod documented;
mod external;
mod object;
mod processes;
mod reports;
