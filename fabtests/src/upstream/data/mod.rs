//! The data that programs send and check, and the tables that they print.

pub(super) mod atomics;
pub(super) mod payload;
pub(super) mod perf;
