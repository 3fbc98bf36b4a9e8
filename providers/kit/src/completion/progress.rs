//! The part of an endpoint that completion queues, counters and event queues drive.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::cq::Sink;
use crate::wait::Waiters;

/// The part of an endpoint that completion queues, counters and event queues drive.
pub trait Progress: fmt::Debug + Send + Sync {
    /// Makes progress without waiting: takes up to about `budget` messages and finishes operations.
    /// Returns how many it handled.
    ///
    /// The call may push completions; those of the queue that drives the endpoint go through
    /// `sink`. The call must neither read that queue nor detach from it.
    fn progress(&self, budget: usize, sink: &mut Sink<'_>) -> usize;

    /// Arms the endpoint for a thread that is about to park. Returns whether, and for how long, the
    /// thread may park.
    ///
    /// The thread may park if the endpoint can make no progress now and every later event makes
    /// [`Self::wait_fd`] ready, or wakes the queues and counters of the endpoint
    /// ([`crate::Ep::wake`]). In `epoch`, a provider may keep its state as of the last call, for
    /// the threads that park at one queue; 0 means that the thread has just polled.
    ///
    /// Without an implementation, threads poll and yield instead of parking.
    fn arm(&self, epoch: &mut u64) -> ArmOutcome {
        let _ = epoch;
        ArmOutcome::AtMost(Duration::ZERO)
    }

    /// Makes progress after a wake-up, before a thread that [`Self::arm`] allowed to park parks
    /// again. Threads that do not park do not call this method.
    fn woken(&self) {}

    /// The wait objects at which threads are parked for this object, if anything but
    /// [`Self::wait_fd`] may have to wake them.
    fn waiters(&self) -> Option<&Waiters> {
        None
    }

    /// The descriptor that becomes ready with events while a thread is parked.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// The number of messages that each endpoint may take in a read without an array.
pub(crate) const BUDGET: usize = 64;

/// Whether one endpoint lets a thread park.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArmOutcome {
    /// No: the endpoint has just made progress.
    Progressed,
    /// Yes, until the endpoint's descriptor becomes ready or the endpoint wakes the thread.
    UntilWoken,
    /// Yes, for this time at most, because the endpoint has to be polled by then. No, if the time
    /// is zero.
    AtMost(Duration),
}
