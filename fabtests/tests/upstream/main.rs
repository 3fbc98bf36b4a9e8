//! The programs under upstream's names, as scripts call them: real processes, exit codes and tables.

#![expect(clippy::unwrap_used, reason = "what fails, fails the test")]

mod benchmarks;
mod exits;
mod functional;
mod log;
mod pair;
mod pingpong;
mod uber;
mod units;
