//! Utilities to run tests: processes, their resource usage, timeouts, and skips.

pub mod failure;
pub mod long;
pub mod process;
pub mod skip;
pub mod timeout;
pub mod usage;
