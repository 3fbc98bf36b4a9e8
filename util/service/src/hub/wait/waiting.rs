//! `Waiting`: the threads that wait for a hub.
//!
//! One of the waiting threads is the leader: it polls, and blocks on the descriptor. The others
//! follow: they wait for the leader. Two that poll in turns would keep waking each other.
//!
//! A follower registers before it checks for a result under the hub's lock, and a result appears
//! under the same lock. Code that has changed something therefore sees every follower that has not
//! found the result, and a hub without followers needs no notification.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a follower waits before it polls once itself: its leader may be a task of an executor
/// that does not run.
const FOLLOW_MAX: Duration = Duration::from_millis(10);

/// The waiting threads of a hub.
#[derive(Debug, Default)]
pub(in crate::hub) struct Waiting {
    has_leader: AtomicBool,
    /// The number of notifications.
    version: Mutex<u64>,
    led: Condvar,
    /// The number of threads that follow, or are about to.
    followers: AtomicUsize,
    /// The number of drivers: tasks or threads that drive the hub when the descriptor is
    /// readable.
    drivers: AtomicUsize,
}

impl Waiting {
    fn version(&self) -> MutexGuard<'_, u64> {
        self.version.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the followers, and those that are about to follow.
    pub(in crate::hub) fn notify(&self) {
        if self.followers.load(Ordering::SeqCst) > 0 {
            *self.version() += 1;
            self.led.notify_all();
        }
    }

    /// Makes this thread the leader, unless there is one, or a driver.
    pub(in crate::hub) fn lead(&self) -> Option<Leader<'_>> {
        let (success, failure) = (Ordering::SeqCst, Ordering::Relaxed);
        let is_leader = !self.is_driven()
            && self
                .has_leader
                .compare_exchange(false, true, success, failure)
                .is_ok();
        is_leader.then(|| Leader(self))
    }

    /// Registers a follower, which then checks for a result before it waits.
    pub(in crate::hub) fn follow(&self) -> Follower<'_> {
        self.followers.fetch_add(1, Ordering::SeqCst);
        let version = *self.version();
        Follower {
            waiting: self,
            version,
        }
    }

    /// Whether a task or thread drives the hub's futures.
    pub(in crate::hub) fn is_driven(&self) -> bool {
        self.drivers.load(Ordering::SeqCst) > 0
    }

    pub(in crate::hub) fn add_driver(&self) {
        self.drivers.fetch_add(1, Ordering::SeqCst);
    }

    pub(in crate::hub) fn remove_driver(&self) {
        self.drivers.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A leader. The leadership ends when this is dropped, also when the code that it calls panics.
#[derive(Debug)]
pub(in crate::hub) struct Leader<'a>(&'a Waiting);

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        // Both are `SeqCst`, and so are the registration of a follower and its load of
        // `has_leader`: either this thread sees the follower and notifies it, or the follower sees
        // that there is no leader.
        self.0.has_leader.store(false, Ordering::SeqCst);
        self.0.notify();
    }
}

/// A registered follower.
#[derive(Debug)]
pub(in crate::hub) struct Follower<'a> {
    waiting: &'a Waiting,
    version: u64,
}

impl Follower<'_> {
    /// Waits until the next notification after the registration, or for a short time.
    pub(in crate::hub) fn wait(&self, left: Option<Duration>) {
        let version = self.waiting.version();
        let has_leader = self.waiting.has_leader.load(Ordering::SeqCst);
        // The end of a leader that this thread has not seen is a notification, too.
        if *version == self.version && (has_leader || self.waiting.is_driven()) {
            let left = left.unwrap_or(FOLLOW_MAX).min(FOLLOW_MAX);
            let waited = self.waiting.led.wait_timeout(version, left);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        }
    }
}

impl Drop for Follower<'_> {
    fn drop(&mut self) {
        self.waiting.followers.fetch_sub(1, Ordering::SeqCst);
    }
}
