//! The data that programs send and check, and the tables that they print.

mod atomics;
mod payload;
mod perf;

