//! The completions of the layer's own operations, which the endpoint below reports to the layer.

use std::sync::Weak;
use std::sync::atomic::{AtomicUsize, Ordering};

use selvedge::{Context, Errno};

use super::tag::Purpose;
use crate::eq::Queue;
use crate::lock::{Lock, Mode};

/// The completion of one operation with [`selvedge::OpFlags::PEER_TRANSFER`].
#[derive(Debug)]
pub(crate) struct LayerCompletion {
    pub(crate) context: Context,
    /// Bytes of the message, or the error.
    pub(crate) outcome: Result<usize, (Errno, String)>,
}

/// The queue of those completions. Its lock is the innermost: the endpoint takes it under its own
/// lock.
#[derive(Debug)]
pub struct LayerCompletions {
    completions: Lock<Vec<LayerCompletion>>,
    count: AtomicUsize,
    /// The event queue that reports joins. A thread that is parked there must handle the completion
    /// of a join's message.
    eq: Weak<Queue>,
}

impl LayerCompletions {
    #[expect(unsafe_code, reason = "passes the promise about threads to the lock")]
    pub(crate) fn new(mode: Mode, eq: Weak<Queue>) -> Self {
        // SAFETY: the domain derives `mode` from the application's promise about threads, which
        // covers the endpoint; the lock is held for a push or a take, in which nothing is called.
        let completions = unsafe { Lock::with_mode(mode, Vec::new()) };
        Self {
            completions,
            count: AtomicUsize::new(0),
            eq,
        }
    }

    pub(crate) fn put(&self, context: Context, outcome: Result<usize, (Errno, String)>) {
        let mut completions = self.completions.lock();
        completions.push(LayerCompletion { context, outcome });
        self.count.store(completions.len(), Ordering::Release);
        drop(completions);
        if Purpose::of(context).0.is_join()
            && let Some(eq) = self.eq.upgrade()
        {
            eq.wake();
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Swaps the stored completions with `empty`, so that its allocation is reused.
    pub(crate) fn take(&self, empty: &mut Vec<LayerCompletion>) {
        std::mem::swap(&mut *self.completions.lock(), empty);
        self.count.store(0, Ordering::Release);
    }
}
