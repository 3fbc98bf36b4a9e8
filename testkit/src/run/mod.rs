//! How a test runs: its processes, what they hold, how long they wait, and what the machine lacks.

pub mod failure;
pub mod long;
pub mod process;
pub mod skip;
pub mod timeout;
pub mod usage;
