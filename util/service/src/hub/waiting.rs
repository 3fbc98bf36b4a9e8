//! `Waiting`: the threads that wait for a hub.
//!
//! One of the waiting threads is the leader: it polls, and blocks on the descriptor. The others
//! follow: they wait for the leader. Two that poll in turns would keep waking each other.
//!
//! A follower registers before it checks for a result under the hub's lock, and a result appears
//! under the same lock. Code that has changed something therefore sees every follower that has not
//! found the result, and a hub without followers needs no notification.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a follower waits before it polls once itself: its leader may be a task of an executor
/// that does not run.
const FOLLOW_MAX: Duration = Duration::from_millis(10);

/// The waiting threads of a hub.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    threads: Mutex<Threads>,
    led: Condvar,
    /// The number of threads that follow, or are about to.
    followers: AtomicUsize,
    /// The number of drivers: tasks or threads that drive the hub when the descriptor is
    /// readable.
    drivers: AtomicUsize,
}

#[derive(Debug, Default)]
struct Threads {
    has_leader: bool,
    /// The number of notifications.
    version: u64,
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, Threads> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the followers, and those that are about to follow.
    pub(super) fn notify(&self) {
        if self.followers.load(Ordering::SeqCst) > 0 {
            self.lock().version += 1;
            self.led.notify_all();
        }
    }

    /// Makes this thread the leader, unless there is one, or a driver.
    pub(super) fn lead(&self) -> Option<Leader<'_>> {
        let mut threads = self.lock();
        if threads.has_leader || self.is_driven() {
            return None;
        }
        threads.has_leader = true;
        Some(Leader(self))
    }

    /// Registers a follower, which then checks for a result before it waits.
    pub(super) fn follow(&self) -> Follower<'_> {
        self.followers.fetch_add(1, Ordering::SeqCst);
        let version = self.lock().version;
        Follower {
            waiting: self,
            version,
        }
    }

    /// Whether a task or thread drives the hub's futures.
    pub(super) fn is_driven(&self) -> bool {
        self.drivers.load(Ordering::SeqCst) > 0
    }

    pub(super) fn add_driver(&self) {
        self.drivers.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn remove_driver(&self) {
        self.drivers.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A leader. The leadership ends when this is dropped, also when the code that it calls panics.
#[derive(Debug)]
pub(super) struct Leader<'a>(&'a Waiting);

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        self.0.lock().has_leader = false;
        self.0.notify();
    }
}

/// A registered follower.
#[derive(Debug)]
pub(super) struct Follower<'a> {
    waiting: &'a Waiting,
    version: u64,
}

impl Follower<'_> {
    /// Waits until the next notification after the registration, or for a short time.
    pub(super) fn wait(&self, left: Option<Duration>) {
        let threads = self.waiting.lock();
        // The end of a leader that this thread has not seen is a notification, too.
        if threads.version == self.version && (threads.has_leader || self.waiting.is_driven()) {
            let left = left.unwrap_or(FOLLOW_MAX).min(FOLLOW_MAX);
            let waited = self.waiting.led.wait_timeout(threads, left);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        }
    }
}

impl Drop for Follower<'_> {
    fn drop(&mut self) {
        self.waiting.followers.fetch_sub(1, Ordering::SeqCst);
    }
}
