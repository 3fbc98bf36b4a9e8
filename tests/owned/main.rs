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

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Runs a test with a time limit, so that a hang fails. The limit is far above the expected
/// duration.
fn under_watchdog<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, wait) = mpsc::channel();
    let runner = thread::spawn(move || {
        let result = test();
        let _ = done.send(());
        result
    });
    if wait.recv_timeout(Duration::from_secs(120)) == Err(mpsc::RecvTimeoutError::Timeout) {
        panic!("the test has not ended after two minutes");
    }
    match runner.join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}
