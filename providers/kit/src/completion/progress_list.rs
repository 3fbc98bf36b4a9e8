//! The endpoints that a queue or counter drives when it is read.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::idle_polls::IdlePolls;
use crate::completion::progress::{ArmOutcome, Progress};
use crate::cq::Sink;
use crate::lock::{Lock, Mode};
use crate::wait::PollPolicy;

/// A list of the endpoints that a queue or counter drives. Its lock lets only one thread at a time
/// make progress.
pub(crate) struct ProgressList {
    /// Held while progress runs.
    list: Lock<Vec<Attached>>,
    idle: IdlePolls,
}

struct Attached {
    ep: Arc<dyn Progress>,
    /// The value that [`Progress::arm`] keeps for the threads that park at this queue or counter.
    epoch: u64,
}

impl ProgressList {
    /// Makes an empty list, which programs poll with `policy`.
    ///
    /// # Safety
    /// Under [`Mode::Asserted`], no two threads use the list, or its endpoints, at the same time,
    /// and [`Progress::progress`] does not use the list.
    #[expect(unsafe_code, reason = "passes the promise about threads to the lock")]
    pub(crate) unsafe fn new(mode: Mode, policy: PollPolicy) -> Self {
        // SAFETY: passed on from the caller.
        let list = unsafe { Lock::with_mode(mode, Vec::new()) };
        Self {
            list,
            idle: IdlePolls::new(policy.yields),
        }
    }

    /// Makes an empty list that any thread may use at any time. No thread yields at it.
    pub(crate) fn shared() -> Self {
        Self {
            list: Lock::new(Vec::new()),
            idle: IdlePolls::new(false),
        }
    }

    /// Makes threads take the lock from now on ([`Lock::share`]).
    pub(crate) fn share(&self) {
        self.list.share();
    }

    /// Adds an endpoint, unless it is in the list.
    pub(crate) fn attach(&self, ep: Arc<dyn Progress>) {
        let mut list = self.list.lock();
        if !list.iter().any(|other| is_same(&other.ep, &ep)) {
            list.push(Attached { ep, epoch: 0 });
        }
    }

    /// Removes an endpoint. After the return, this list neither runs nor starts a call of the
    /// endpoint's progress.
    pub(crate) fn detach(&self, ep: &Arc<dyn Progress>) {
        let mut list = self.list.lock();
        let index = list.iter().position(|other| is_same(&other.ep, ep));
        // The other endpoints keep their order: a layer comes after the endpoint that it wraps.
        let detached = index.map(|index| list.remove(index));
        drop(list);
        drop(detached);
    }

    /// Makes progress on every endpoint. Returns the sum of what [`Progress::progress`] returned.
    ///
    /// Does nothing while another thread makes progress on the list: the caller also sees the
    /// messages of that pass. Does nothing while a thread waits to attach, detach or park.
    #[inline(always)]
    pub(crate) fn drive(&self, budget: usize, sink: &mut Sink<'_>) -> usize {
        let mut done = 0;
        if let Some(list) = self.list.try_lock_for_pass() {
            for attached in list.iter() {
                done += attached.ep.progress(budget, sink);
            }
        }
        done
    }

    /// Drives the endpoints for a program that polls. If the program's polls find nothing for long,
    /// yields the processor, or calls `park` ([`IdlePolls`]).
    #[inline(always)]
    pub(crate) fn poll(&self, budget: usize, sink: &mut Sink<'_>, park: impl FnOnce()) {
        if self.drive(budget, sink) > 0 {
            self.idle.record_found();
        } else if self.idle.record_empty() {
            park();
        }
    }

    /// Calls `visit` for every endpoint.
    pub(crate) fn for_each(&self, visit: impl FnMut(&dyn Progress)) {
        let list = self.list.lock();
        list.iter().map(|attached| &*attached.ep).for_each(visit);
    }

    /// [`IdlePolls::in_vain`].
    #[cfg(test)]
    pub(crate) fn polls_in_vain(&self) -> Option<u32> {
        self.idle.in_vain()
    }

    /// [`IdlePolls::park_from_now_on`].
    #[cfg(test)]
    pub(crate) fn park_from_now_on(&self) {
        self.idle.park_from_now_on();
    }

    /// Arms every endpoint. Returns whether, and for how long, a thread may park. `is_first` is set
    /// in the first call of a wait.
    pub(crate) fn arm(&self, is_first: bool) -> ArmOutcome {
        let mut bound: Option<Duration> = None;
        for attached in self.list.lock().iter_mut() {
            if is_first {
                attached.epoch = 0;
            }
            match attached.ep.arm(&mut attached.epoch) {
                ArmOutcome::Progressed => return ArmOutcome::Progressed,
                ArmOutcome::UntilWoken => {}
                ArmOutcome::AtMost(limit) => {
                    bound = Some(bound.map_or(limit, |bound| bound.min(limit)))
                }
            }
        }
        bound.map_or(ArmOutcome::UntilWoken, ArmOutcome::AtMost)
    }

    /// Wakes the other parked threads, which arm again.
    ///
    /// A thread calls this before it returns from a wait in which it was woken or could not park.
    /// The wake-up may have been meant for the others, too, and the thread may have consumed the
    /// event that would have woken them.
    pub(crate) fn wake_others(&self) {
        for attached in self.list.lock().iter() {
            if let Some(waiters) = attached.ep.waiters() {
                waiters.wake();
            }
        }
    }

    /// Makes progress on every endpoint after a wake-up ([`Progress::woken`]).
    pub(crate) fn woken(&self) {
        for attached in self.list.lock().iter() {
            attached.ep.woken();
        }
    }
}

impl fmt::Debug for ProgressList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProgressList").finish_non_exhaustive()
    }
}

/// Compares addresses alone: one type may have several vtables.
fn is_same(a: &Arc<dyn Progress>, b: &Arc<dyn Progress>) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(a), Arc::as_ptr(b))
}
