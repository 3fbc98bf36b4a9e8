//! The work that waits at one counter, ordered by threshold.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use selvedge::trigger::WorkId;

use super::item::WorkItem;
use super::ready_work::ReadyWork;

/// The work that waits at a counter.
#[derive(Debug)]
pub(crate) struct CounterWork {
    /// The work, ordered by threshold. Work with equal thresholds has the order in which it was
    /// queued.
    items: Mutex<Vec<WorkItem>>,
    /// The number of successes from which on [`Self::release`] has work to release. All accesses
    /// are `SeqCst`, as are those of the counter's numbers. A thread that counts writes a number
    /// and then loads this word; a thread that releases work writes this word and then loads the
    /// numbers. One of the two sees the other's store.
    release_threshold: AtomicU64,
    ready_work: OnceLock<Arc<ReadyWork>>,
}

impl CounterWork {
    pub(crate) const fn new() -> Self {
        Self {
            items: Mutex::new(Vec::new()),
            release_threshold: AtomicU64::new(u64::MAX),
            ready_work: OnceLock::new(),
        }
    }

    /// Whether a counter with this number of successes has work to release.
    #[inline]
    pub(crate) fn is_due(&self, successes: u64) -> bool {
        successes >= self.release_threshold.load(Ordering::SeqCst)
    }

    /// Adds work. The caller has to call [`Self::release`] afterwards, which notices work that is
    /// already due.
    pub(crate) fn add(&self, item: WorkItem, ready_work: &Arc<ReadyWork>) {
        self.ready_work.get_or_init(|| Arc::clone(ready_work));
        let mut items = self.lock_items();
        let index = items.partition_point(|other| other.threshold <= item.threshold);
        items.insert(index, item);
    }

    /// Releases the work that is due at a counter with these numbers. They are read with the list
    /// locked, so that the last of several concurrent calls has the last numbers.
    #[cold]
    pub(crate) fn release(&self, numbers: impl Fn() -> [u64; 2]) {
        let Some(ready_work) = self.ready_work.get() else {
            return;
        };
        let mut items = self.lock_items();
        loop {
            let [successes, errors] = numbers();
            let total = successes.saturating_add(errors);
            let due = items.partition_point(|item| item.threshold <= total);
            if due > 0 {
                ready_work.add(items.drain(..due));
            }
            let next = items.first().map(|item| item.threshold);
            let next = next.map_or(u64::MAX, |next| next.saturating_sub(errors));
            self.release_threshold.store(next, Ordering::SeqCst);
            // A number that was written before the store was not compared with it.
            let [successes, errors_now] = numbers();
            if items.is_empty() || successes < next && errors_now == errors {
                return;
            }
        }
    }

    /// Cancels work. Returns whether the work waited at this counter.
    pub(crate) fn remove(&self, id: WorkId) -> bool {
        let mut items = self.lock_items();
        let previous_len = items.len();
        items.retain(|item| item.id != id);
        previous_len != items.len()
    }

    /// Cancels all work.
    pub(crate) fn clear(&self) {
        self.lock_items().clear();
    }

    fn lock_items(&self) -> MutexGuard<'_, Vec<WorkItem>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
