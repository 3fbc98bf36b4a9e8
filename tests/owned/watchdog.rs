//! A time limit for tests that could hang.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Runs a test with a time limit, so that a hang fails. The limit is far above the expected
/// duration.
pub(crate) fn under_watchdog<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> T {
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
