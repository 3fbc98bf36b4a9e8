//! Waiters: the places at which threads may be parked for one endpoint.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::Waiting;

/// The queues, counters and threads of automatic progress that drive one endpoint, each of which
/// threads may be parked at. Attaching the endpoint registers them: none can be left out of a
/// wake-up.
#[derive(Debug, Default)]
pub struct Waiters(Mutex<Vec<Weak<Waiting>>>);

impl Waiters {
    /// Adds a place. Adding twice is adding once.
    pub(super) fn add(&self, waiting: &Arc<Waiting>) {
        let mut list = self.lock();
        list.retain(|other| other.strong_count() > 0);
        if !list.iter().any(|other| is_same(other, waiting)) {
            list.push(Arc::downgrade(waiting));
        }
    }

    /// Removes a place.
    pub(super) fn remove(&self, waiting: &Arc<Waiting>) {
        self.lock().retain(|other| !is_same(other, waiting));
    }

    /// Wakes every parked thread, which then asks again whether it may park.
    #[cold]
    pub fn wake(&self) {
        for waiting in self.lock().iter().filter_map(Weak::upgrade) {
            waiting.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Waiting>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_same(weak: &Weak<Waiting>, waiting: &Arc<Waiting>) -> bool {
    weak.as_ptr() == Arc::as_ptr(waiting)
}
