//! `Waiting`: the threads that wait for a hub.
//!
//! One of the waiting threads is the leader: it polls, and blocks on the descriptor. The others
//! follow: they wait for the leader. Two that poll in turns would keep waking each other.

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
    /// The number of drivers: tasks or threads that drive the hub when the descriptor is
    /// readable.
    drivers: AtomicUsize,
}

#[derive(Debug, Default)]
struct Threads {
    has_leader: bool,
    followers: usize,
    /// The number of notifications.
    version: u64,
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, Threads> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the followers, and those that are about to follow.
    pub(super) fn notify(&self) {
        let mut threads = self.lock();
        threads.version += 1;
        if threads.followers > 0 {
            self.led.notify_all();
        }
    }

    /// Becomes the leader, or waits as a follower. Returns whether this thread is the leader.
    pub(super) fn lead_or_follow(&self, version: u64, left: Option<Duration>) -> bool {
        let mut threads = self.lock();
        if !threads.has_leader && self.drivers.load(Ordering::Acquire) == 0 {
            threads.has_leader = true;
            return true;
        }
        if threads.version == version {
            threads.followers += 1;
            let left = left.unwrap_or(FOLLOW_MAX).min(FOLLOW_MAX);
            let waited = self.led.wait_timeout(threads, left);
            let (mut threads, _) = waited.unwrap_or_else(PoisonError::into_inner);
            threads.followers -= 1;
        }
        false
    }

    /// The number of notifications so far.
    pub(super) fn version(&self) -> u64 {
        self.lock().version
    }

    /// Whether a task or thread drives the hub's futures.
    pub(super) fn is_driven(&self) -> bool {
        self.drivers.load(Ordering::Acquire) > 0
    }

    pub(super) fn add_driver(&self) {
        self.drivers.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn remove_driver(&self) {
        self.drivers.fetch_sub(1, Ordering::AcqRel);
    }

    fn stop_leading(&self) {
        self.lock().has_leader = false;
        self.notify();
    }
}

/// Ends the leadership of a thread, also when the code that it calls panics.
pub(super) struct Leader<'a>(pub(super) &'a Waiting);

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        self.0.stop_leading();
    }
}
