//! The endpoints that a queue or counter drives when it is read.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::cq::{Progress, Sink};
use crate::lock::{Lock, Mode};
use crate::wait::Rest;

/// A list of endpoints' inner parts, and the lock that keeps progress to one thread at a time.
pub(crate) struct Driven {
    /// Held while progress runs.
    list: Lock<Vec<Attached>>,
}

struct Attached {
    ep: Arc<dyn Progress>,
    /// What [`Progress::rest`] remembers for those who sleep here.
    seen: u64,
}

impl Driven {
    /// An empty list.
    ///
    /// # Safety
    /// Under [`Mode::Asserted`], no two threads use it, or what it drives, at once; and progress
    /// does not come back to it.
    #[expect(unsafe_code, reason = "passes the promise about threads to the lock")]
    pub(crate) unsafe fn new(mode: Mode) -> Self {
        // SAFETY: passed on from the caller.
        let list = unsafe { Lock::with_mode(mode, Vec::new()) };
        Self { list }
    }

    /// An empty list that any thread may use at any time.
    pub(crate) fn shared() -> Self {
        Self {
            list: Lock::new(Vec::new()),
        }
    }

    /// Has threads keep apart by a lock from here on ([`Lock::share`]).
    pub(crate) fn share(&self) {
        self.list.share();
    }

    /// Adds one. Attaching twice is attaching once.
    pub(crate) fn attach(&self, ep: Arc<dyn Progress>) {
        let mut list = self.list.lock();
        if !list.iter().any(|other| is_same(&other.ep, &ep)) {
            list.push(Attached { ep, seen: 0 });
        }
    }

    /// Takes one out. When it returns, no call of its progress from here is running, nor will one
    /// start.
    pub(crate) fn detach(&self, ep: &Arc<dyn Progress>) {
        let mut list = self.list.lock();
        let place = list.iter().position(|other| is_same(&other.ep, ep));
        // The others stay in their order: a layer comes behind the endpoint that it is put around.
        let gone = place.map(|place| list.remove(place));
        drop(list);
        drop(gone);
    }

    /// Drives them all, unless another thread is at it, whose messages show up all the same, or waits
    /// to attach, detach or sleep. Says how much there was.
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

    /// Whether a thread may sleep; `anew` when it has not asked before for this wait.
    pub(crate) fn rest(&self, anew: bool) -> Rest {
        let mut bound: Option<Duration> = None;
        for attached in self.list.lock().iter_mut() {
            if anew {
                attached.seen = 0;
            }
            match attached.ep.rest(&mut attached.seen) {
                Rest::Moved => return Rest::Moved,
                Rest::UntilWoken => {}
                Rest::AtMost(most) => bound = Some(bound.map_or(most, |bound| bound.min(most))),
            }
        }
        bound.map_or(Rest::UntilWoken, Rest::AtMost)
    }

    /// A thread that was woken, or was refused to park, goes without parking again. What woke it may
    /// have been meant for others, too, and it may have consumed what would have woken them: they are
    /// woken, and ask anew.
    pub(crate) fn leave(&self) {
        for attached in self.list.lock().iter() {
            if let Some(waiters) = attached.ep.waiters() {
                waiters.wake();
            }
        }
    }

    /// A thread that has slept was woken.
    pub(crate) fn woken(&self) {
        for attached in self.list.lock().iter() {
            attached.ep.woken();
        }
    }
}

impl fmt::Debug for Driven {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driven").finish_non_exhaustive()
    }
}

/// Compares addresses alone: one type may have several tables of functions.
fn is_same(a: &Arc<dyn Progress>, b: &Arc<dyn Progress>) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(a), Arc::as_ptr(b))
}
