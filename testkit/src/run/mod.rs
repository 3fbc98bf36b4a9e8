//! Utilities to run tests: errors, the form of the tests, processes, skips, timeouts, and the use
//! of resources.

pub mod failure;
pub mod long;
pub mod process;
pub mod schedstat;
pub mod skip;
pub mod timeout;
pub mod usage;
