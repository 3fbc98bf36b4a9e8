//! Tests of the safe layer over a loopback provider with settings for faults and limits.

#![expect(clippy::unwrap_used, reason = "a test may fail anywhere")]

mod atomics;
mod awaited;
mod backlog;
mod executors;
mod interleavings;
mod lending;
mod loopback;
mod polled;
mod pools;
mod shared_regions;
mod waits;
mod watchdog;

use watchdog::under_watchdog;
