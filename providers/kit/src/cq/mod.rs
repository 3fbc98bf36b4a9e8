//! The ready-made completion queue, and what it drives.

mod ring;
mod sink;
mod slot;
mod store;

use std::fmt;
use std::os::fd::BorrowedFd;
use std::time::Duration;

pub use ring::CqRing;
pub use sink::Sink;

use crate::wait::{Rest, Waiters};

/// What a completion queue drives: an endpoint's inner part.
pub trait Progress: fmt::Debug + Send + Sync {
    /// Moves what can move without waiting: takes up to about `budget` messages and finishes
    /// operations. Says how many it handled.
    ///
    /// It may push completions, those of the queue that drives it through `sink`, but must neither
    /// read that queue nor detach from it.
    fn progress(&self, budget: usize, sink: &mut Sink<'_>) -> usize;

    /// Whether a thread may sleep that waits for what progress brings.
    ///
    /// It may when nothing can move and everything that moves from now on makes [`Self::wait_fd`]
    /// ready, or wakes the queues and counters of the endpoint ([`crate::Ep::wake`]). A provider
    /// may keep in `seen` what it knew at the last call for those who sleep at one queue; 0 says
    /// that the thread has just looked itself.
    ///
    /// Without an implementation, threads look and yield instead of sleeping.
    fn rest(&self, seen: &mut u64) -> Rest {
        let _ = seen;
        Rest::AtMost(Duration::ZERO)
    }

    /// A thread that slept with the leave of [`Self::rest`] was woken, and goes on waiting: moves
    /// what there is. Progress by somebody who does not sleep is not meant.
    fn woken(&self) {}

    /// Where threads that are parked for this object are registered, if anything but
    /// [`Self::wait_fd`] may have to wake them.
    fn waiters(&self) -> Option<&Waiters> {
        None
    }

    /// What becomes ready with news while somebody sleeps.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Messages that a read without an array lets each endpoint take.
pub(crate) const BUDGET: usize = 64;
