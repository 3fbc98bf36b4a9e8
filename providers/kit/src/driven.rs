//! The endpoints that a queue or counter drives when it is read.

use std::fmt;
use std::sync::Arc;

use crate::cq::{Progress, Sink};
use crate::lock::{Lock, Mode};

/// A list of endpoints' inner parts, and the lock that keeps progress to one thread at a time.
pub(crate) struct Driven {
    /// Held while progress runs.
    list: Lock<Vec<Arc<dyn Progress>>>,
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

    /// Adds one. Attaching twice is attaching once.
    pub(crate) fn attach(&self, ep: Arc<dyn Progress>) {
        let mut list = self.list.lock();
        if !list.iter().any(|other| is_same(other, &ep)) {
            list.push(ep);
        }
    }

    /// Takes one out. When it returns, no call of its progress from here is running, nor will one
    /// start.
    pub(crate) fn detach(&self, ep: &Arc<dyn Progress>) {
        let mut list = self.list.lock();
        let place = list.iter().position(|other| is_same(other, ep));
        let gone = place.map(|place| list.swap_remove(place));
        drop(list);
        drop(gone);
    }

    /// Drives them all, unless another thread is at it: that one's messages show up all the same.
    #[inline(always)]
    pub(crate) fn drive(&self, budget: usize, sink: &mut Sink<'_>) {
        let Some(list) = self.list.try_lock() else {
            return;
        };
        for ep in list.iter() {
            ep.progress(budget, sink);
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
