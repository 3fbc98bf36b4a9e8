//! `FairMutex`: a mutex that a thread which takes it again and again cannot keep to itself.
//!
//! A thread that tests without rest takes the mutex of a method some 100 ns after it has freed it. A
//! parked thread needs 50 us to wake up, so the tester takes the mutex hundreds of times before a
//! posting thread gets it. Here a progress pass does not begin before as many threads have had their
//! turn as wait for one. A tester that has to wait for them parks, because an offer of its processor
//! (`sched_yield`) goes to whatever thread wants one, for milliseconds on a busy machine.
//!
//! No thread is handed the mutex while it is parked: until it runs, nobody else could use it.

use std::hint;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};

/// A mutex for short calls and for progress passes. A call that panicked leaves the value as it was
/// then.
#[derive(Debug)]
pub(super) struct FairMutex<T> {
    mutex: Mutex<T>,
    turns: Turns,
}

/// How long a thread polls before it parks: longer than a short call takes, shorter than two context
/// switches.
const POLLS: u32 = 100;

impl<T> FairMutex<T> {
    pub(super) const fn new(value: T) -> Self {
        Self {
            mutex: Mutex::new(value),
            turns: Turns::new(),
        }
    }

    /// Takes the mutex for a short call.
    #[inline]
    pub(super) fn lock(&self) -> MutexGuard<'_, T> {
        match self.try_lock() {
            Some(guard) => guard,
            None => self.wait(),
        }
    }

    /// Takes the mutex for a progress pass, after the threads that wait for it.
    #[inline]
    pub(super) fn lock_for_pass(&self) -> MutexGuard<'_, T> {
        if self.turns.are_wanted() {
            self.turns.give();
        }
        self.lock()
    }

    #[inline]
    fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.mutex.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    #[cold]
    fn wait(&self) -> MutexGuard<'_, T> {
        self.turns.want();
        let polled = (0..POLLS).find_map(|_| {
            hint::spin_loop();
            self.try_lock()
        });
        let locked = || self.mutex.lock().unwrap_or_else(PoisonError::into_inner);
        let guard = polled.unwrap_or_else(locked);
        self.turns.took();
        guard
    }
}

/// The threads that wait for the mutex, and the testers that let them pass.
#[derive(Debug)]
struct Turns {
    /// Threads that wait for the mutex.
    waiting: AtomicU32,
    /// Threads that have waited and got it, modulo 2^32.
    served: AtomicU32,
    /// Testers that are parked until others were served.
    parked: AtomicU32,
    gate: Mutex<()>,
    news: Condvar,
}

impl Turns {
    const fn new() -> Self {
        Self {
            waiting: AtomicU32::new(0),
            served: AtomicU32::new(0),
            parked: AtomicU32::new(0),
            gate: Mutex::new(()),
            news: Condvar::new(),
        }
    }

    #[inline]
    fn are_wanted(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    fn want(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
    }

    /// A thread that waited has the mutex.
    fn took(&self) {
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        self.served.fetch_add(1, Ordering::SeqCst);
        // Sequentially consistent with `give`: either this sees the tester that is about to park, or
        // the tester sees the turn.
        if self.parked.load(Ordering::SeqCst) > 0 {
            drop(self.gate.lock());
            self.news.notify_all();
        }
    }

    /// Returns when as many threads were served as wait now, or when none waits any more. Threads
    /// that come later do not count, so posts without end cannot keep a tester from its pass.
    #[cold]
    fn give(&self) {
        let served = self.served.load(Ordering::SeqCst);
        let due = self.waiting.load(Ordering::SeqCst);
        let is_over = || {
            self.waiting.load(Ordering::SeqCst) == 0
                || self.served.load(Ordering::SeqCst).wrapping_sub(served) >= due
        };
        for _ in 0..POLLS {
            if is_over() {
                return;
            }
            hint::spin_loop();
        }
        self.parked.fetch_add(1, Ordering::SeqCst);
        let mut gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        while !is_over() {
            let woken = self.news.wait(gate);
            gate = woken.unwrap_or_else(PoisonError::into_inner);
        }
        drop(gate);
        self.parked.fetch_sub(1, Ordering::SeqCst);
    }
}
