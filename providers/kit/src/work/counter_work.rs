//! What waits at one counter, in the order of the numbers that it waits for.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use selvedge::trigger::WorkId;

use super::{ReadyWork, WorkItem};

/// The work at a counter.
#[derive(Debug)]
pub(crate) struct CounterWork {
    /// By their thresholds; those of one threshold in the order in which they came.
    items: Mutex<Vec<WorkItem>>,
    /// The successes from which on [`Self::release`] has something to do. All accesses are `SeqCst`,
    /// as those of the counter's numbers: whoever counts writes a number and then looks here, whoever
    /// releases writes here and then looks at the numbers, and one of the two sees the other.
    due_at: AtomicU64,
    works: OnceLock<Arc<ReadyWork>>,
}

impl CounterWork {
    pub(crate) const fn new() -> Self {
        Self {
            items: Mutex::new(Vec::new()),
            due_at: AtomicU64::new(u64::MAX),
            works: OnceLock::new(),
        }
    }

    /// Whether a counter with so many successes has something to release.
    #[inline]
    pub(crate) fn is_due(&self, good: u64) -> bool {
        good >= self.due_at.load(Ordering::SeqCst)
    }

    /// Adds work. [`Self::release`] has to follow: until then nobody finds out that it is due.
    pub(crate) fn add(&self, item: WorkItem, works: &Arc<ReadyWork>) {
        self.works.get_or_init(|| Arc::clone(works));
        let mut items = self.items();
        let place = items.partition_point(|other| other.threshold <= item.threshold);
        items.insert(place, item);
    }

    /// Hands on what is due at a counter with these numbers. They are read with the list locked, so
    /// that the last one who looks has the last numbers.
    #[cold]
    pub(crate) fn release(&self, numbers: impl Fn() -> [u64; 2]) {
        let Some(works) = self.works.get() else {
            return;
        };
        let mut items = self.items();
        loop {
            let [good, bad] = numbers();
            let total = good.saturating_add(bad);
            let due = items.partition_point(|item| item.threshold <= total);
            if due > 0 {
                works.add(items.drain(..due));
            }
            let next = items.first().map(|item| item.threshold);
            let next = next.map_or(u64::MAX, |next| next.saturating_sub(bad));
            self.due_at.store(next, Ordering::SeqCst);
            // A number that was written before the store was not held against it.
            let [good, now_bad] = numbers();
            if items.is_empty() || good < next && now_bad == bad {
                return;
            }
        }
    }

    /// Takes work back.
    pub(crate) fn remove(&self, ticket: WorkId) -> bool {
        let mut items = self.items();
        let before = items.len();
        items.retain(|item| item.ticket != ticket);
        before != items.len()
    }

    /// Takes everything back.
    pub(crate) fn clear(&self) {
        self.items().clear();
    }

    fn items(&self) -> MutexGuard<'_, Vec<WorkItem>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
