//! Utilities to run tests: errors, the form of the tests, processes, skips, timeouts and resource
//! usage.

pub mod failure;
pub mod long;
pub mod process;
pub mod skip;
pub mod timeout;
pub mod usage;
