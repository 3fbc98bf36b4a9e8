//! Counters: fi_cntr(3).

use std::any::Any;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::thread;
use std::time::{Duration, Instant};

use crate::{Errno, Result, wait};

/// The unit of a counter (`enum fi_cntr_events`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Events {
    /// Completed operations.
    #[default]
    Comp = 0,
    /// Bytes of completed operations.
    Bytes = 1,
}

/// Attributes of a counter (`struct fi_cntr_attr`).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Attr {
    /// The unit of the counter.
    pub events: Events,
    /// The wait object for threads that wait.
    pub wait_obj: wait::Object,
}

/// Polls `counter` until its successes reach `threshold`, as [`Counter::wait`] does without a wait
/// object. Yields the processor between two reads.
///
/// # Errors
/// As [`Counter::wait`].
pub fn spin(counter: &dyn Counter, threshold: u64, timeout: Option<Duration>) -> Result {
    // A timeout that overflows the clock is no deadline.
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let errors = counter.read_err();
    loop {
        if counter.read() >= threshold {
            return Ok(());
        }
        if counter.read_err() != errors {
            return Err(Errno::Avail);
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(Errno::TimedOut);
        }
        thread::yield_now();
    }
}

/// A pair of 64-bit counters: successes and errors.
pub trait Counter: Any + fmt::Debug + Send + Sync {
    /// Drives progress and returns the number of successes (fi_cntr_read(3)).
    fn read(&self) -> u64;
    /// Drives progress and returns the number of errors (fi_cntr_readerr(3)).
    fn read_err(&self) -> u64;
    /// Adds to the number of successes (fi_cntr_add(3)).
    fn add(&self, value: u64);
    /// Adds to the number of errors (fi_cntr_adderr(3)).
    fn add_err(&self, value: u64);
    /// Sets the number of successes (fi_cntr_set(3)).
    fn set(&self, value: u64);
    /// Sets the number of errors (fi_cntr_seterr(3)).
    fn set_err(&self, value: u64);
    /// Drives progress and returns whether a value has changed since the last read. A provider that
    /// does not track changes returns `true`.
    fn is_ready(&self) -> bool {
        true
    }

    /// Waits until the number of successes reaches `threshold` (fi_cntr_wait(3)). The thread parks
    /// if the counter has a wait object; with [`wait::Object::None`] the thread polls and yields.
    ///
    /// # Errors
    /// [`Errno::TimedOut`] after `timeout`; [`Errno::Avail`] when the number of errors has changed
    /// meanwhile.
    fn wait(&self, threshold: u64, timeout: Option<Duration>) -> Result;

    /// Checks that it is safe to block in `poll(2)` on [`Self::wait_fd`] (fi_trywait(3)).
    ///
    /// # Errors
    /// [`Errno::Again`] when a value may have changed since the last read: the caller must read
    /// again.
    fn try_wait(&self) -> Result {
        Err(Errno::NoSys)
    }

    /// Returns the descriptor to poll, for a counter opened with [`wait::Object::Fd`].
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
