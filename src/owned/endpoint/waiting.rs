//! Waits for completions of an endpoint: its descriptor, the check before a thread blocks on it,
//! and the blocking wait.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use super::endpoint_core::EndpointCore;
use crate::{Errno, Error, Result, wait};

/// The end of a wait at the completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitEnd {
    /// The queue had an entry, which another thread may have read meanwhile.
    Entry,
    /// The timeout has passed, or a thread has called [`EndpointCore::signal`].
    Ended,
}

/// The point in time at which a wait ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline(Option<Instant>);

impl Deadline {
    /// The time `timeout` from now. A time beyond the range of the clock counts as none.
    pub(super) fn after(timeout: Option<Duration>) -> Self {
        Self(timeout.and_then(|timeout| Instant::now().checked_add(timeout)))
    }

    /// The time that is left; `None` for a wait without a time limit.
    pub(super) fn left(self) -> Option<Duration> {
        let left = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
        self.0.map(left)
    }
}

impl<O, W> EndpointCore<O, W> {
    /// The descriptor of the completion queue, which is ready when [`Self::try_wait`] has returned
    /// `Ok` and completions may have arrived since.
    ///
    /// # Errors
    /// [`Errno::NoSys`] for a queue without a descriptor.
    pub(super) fn wait_fd(&self) -> Result<BorrowedFd<'_>, Error> {
        self.cq().wait_fd().ok_or_else(|| {
            let reason = match self.wait_object() {
                wait::Object::Fd => "its provider has none for a wait object Fd".to_owned(),
                object => format!(
                    "it was opened with the wait object {object:?}; open it with `open_waiting` \
                     and `wait::Object::Fd`"
                ),
            };
            let message = format!("{self:?} has no descriptor to wait on: {reason}");
            Error::new(Errno::NoSys, message)
        })
    }

    /// Checks that a thread may block on the descriptor.
    pub(super) fn try_wait(&self) -> Result {
        self.cq().try_wait()
    }

    /// Waits until the queue has an entry, without reading it.
    pub(super) fn wait_for_entry(&self, deadline: Deadline) -> Result<WaitEnd> {
        match self.cq().wait(&mut [], deadline.left()) {
            Ok(_) | Err(Errno::Avail) => Ok(WaitEnd::Entry),
            Err(Errno::Again) => Ok(WaitEnd::Ended),
            Err(errno) => Err(errno),
        }
    }

    /// Ends the wait of one thread.
    pub(super) fn signal(&self) -> Result {
        self.cq().signal()
    }
}
