//! The programs with upstream's names, as scripts use them: processes, exit codes and tables.

#![expect(clippy::unwrap_used, reason = "an error fails the test")]

mod benchmarks;
mod exits;
mod functional;
mod log;
mod pair;
mod pingpong;
mod uber;
mod units;
