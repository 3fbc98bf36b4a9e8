//! `SpinLock`: a lock for short critical sections.

#![expect(
    unsafe_code,
    reason = "the thread that holds the lock has the only reference"
)]

use std::sync::PoisonError;

use super::sync::{AtomicBool, Backoff, Cell, Mutex, Ordering};

/// A lock for short critical sections. Locking costs one atomic read-modify-write, unlocking a
/// store. Of the threads that find it locked, the first spins and yields, and locks it next; the
/// others park on a mutex. With serialized callers, locking is a load and a store.
#[derive(Debug)]
pub(super) struct SpinLock<T> {
    /// Whether the callers promise that no two threads lock it at the same time.
    is_serialized: bool,
    is_locked: AtomicBool,
    /// Whether a thread spins. Later threads queue behind it.
    has_waiter: AtomicBool,
    /// Locked by the thread that spins; the other waiting threads park on it.
    waiters: Mutex<()>,
    value: Cell<T>,
}

// SAFETY: the value is accessed by one thread after the other, which `T: Send` allows, and never by
// two at the same time.
unsafe impl<T: Send> Sync for SpinLock<T> {}

impl<T> SpinLock<T> {
    /// An unlocked value.
    pub(super) fn new(value: T) -> Self {
        Self::build(value, false)
    }

    /// As [`Self::new`], for callers that serialize their calls.
    ///
    /// # Safety
    /// No two threads call [`Self::with`] at the same time, and each call happens before the next
    /// one.
    pub(super) unsafe fn serialized(value: T) -> Self {
        Self::build(value, true)
    }

    fn build(value: T, is_serialized: bool) -> Self {
        Self {
            is_serialized,
            is_locked: AtomicBool::new(false),
            has_waiter: AtomicBool::new(false),
            waiters: Mutex::new(()),
            value: Cell::new(value),
        }
    }

    /// Calls `access` with the value under the lock. `access` must not lock it again.
    ///
    /// # Panics
    /// With serialized callers: when `access` locks it again, or a violation of the promise is
    /// detected.
    #[inline]
    pub(super) fn with<R>(&self, access: impl FnOnce(&mut T) -> R) -> R {
        if self.is_serialized {
            self.lock_serialized();
        } else if self.has_waiter.load(Ordering::Relaxed) || !self.try_lock() {
            self.lock_slow();
        }
        let _unlock = Unlock(self);
        self.value.with_mut(|value| {
            // SAFETY: this thread changed `is_locked` from false to true, atomically or under the
            // promise of `serialized`. It stays true until `_unlock` is dropped, after the call, so
            // no other thread has a reference meanwhile.
            access(unsafe { &mut *value })
        })
    }

    #[inline]
    fn lock_serialized(&self) {
        let is_locked = self.is_locked.load(Ordering::Relaxed);
        assert!(!is_locked, "locked twice under a promise about threads");
        self.is_locked.store(true, Ordering::Relaxed);
    }

    #[inline]
    fn try_lock(&self) -> bool {
        // The acquire pairs with the release of `Unlock`.
        let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
        self.is_locked
            .compare_exchange(false, true, success, failure)
            .is_ok()
    }

    #[cold]
    fn lock_slow(&self) {
        let _waiters = self.waiters.lock().unwrap_or_else(PoisonError::into_inner);
        self.has_waiter.store(true, Ordering::Relaxed);
        let backoff = Backoff::new();
        while !self.try_lock() {
            backoff.snooze();
        }
        self.has_waiter.store(false, Ordering::Relaxed);
    }
}

/// Unlocks when dropped, after a panic too.
struct Unlock<'a, T>(&'a SpinLock<T>);

impl<T> Drop for Unlock<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // Pairs with the acquire of `try_lock`.
        self.0.is_locked.store(false, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::thread;

    use super::*;

    #[test]
    fn threads_access_the_value_one_after_the_other() {
        const THREADS: usize = 4;
        const ROUNDS: usize = 100;
        let lock = SpinLock::new((0, 0));
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        lock.with(|(first, second)| {
                            assert_eq!(first, second);
                            *first += 1;
                            *second += 1;
                        });
                    }
                });
            }
        });
        assert_eq!(
            lock.with(|value| *value),
            (THREADS * ROUNDS, THREADS * ROUNDS)
        );
    }

    #[test]
    fn a_broken_promise_panics() {
        // SAFETY: one thread.
        let lock = unsafe { SpinLock::serialized(1) };
        let twice = || lock.with(|_| lock.with(|value| *value));
        assert!(catch_unwind(AssertUnwindSafe(twice)).is_err());
        assert_eq!(lock.with(|value| *value), 1);
    }

    #[test]
    fn a_panic_unlocks() {
        let lock = SpinLock::new(1);
        let panic = catch_unwind(AssertUnwindSafe(|| lock.with(|_| panic!("planted"))));
        assert!(panic.is_err());
        assert_eq!(lock.with(|value| *value), 1);
    }
}
