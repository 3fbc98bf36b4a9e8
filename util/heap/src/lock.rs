//! `Lock`: the heap's lock, a mutex of the C library.
//!
//! A thread that holds the lock and asks for it again gets `None` instead of waiting for itself:
//! another library may have interposed a system call that the heap makes, and may allocate in it.
//! The lock can be held across a fork(2), which std's mutex cannot.

#![expect(
    unsafe_code,
    reason = "a mutex of the C library, and the value behind it"
)]

use std::cell::UnsafeCell;

/// A value that one thread at a time can access.
pub(crate) struct Lock<T> {
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    value: UnsafeCell<T>,
}

// SAFETY: the mutex lets one thread at a time access the value, so sharing the lock between threads
// moves the value between them.
unsafe impl<T: Send> Sync for Lock<T> {}

const UNLOCKED: libc::pthread_mutex_t = libc::PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self {
            mutex: UnsafeCell::new(UNLOCKED),
            value: UnsafeCell::new(value),
        }
    }

    /// Runs `action` with the value. Returns `None` without calling it if this thread has the lock
    /// already. `action` must not panic.
    pub(crate) fn with<R>(&self, action: impl FnOnce(&mut T) -> R) -> Option<R> {
        let result = self.hold(action)?;
        self.release();
        Some(result)
    }

    /// As [`Self::with`], and keeps the lock until [`Self::release`] or [`Self::reset`].
    pub(crate) fn hold<R>(&self, action: impl FnOnce(&mut T) -> R) -> Option<R> {
        // SAFETY: an initialized mutex that is never moved, because the lock is a static.
        if unsafe { libc::pthread_mutex_lock(self.mutex.get()) } != 0 {
            return None;
        }
        // SAFETY: this thread has just taken the mutex, so no other reference to the value exists:
        // `hold` is the only function that makes one, and it ends with the call of `action`.
        Some(action(unsafe { &mut *self.value.get() }))
    }

    /// Frees the lock that this thread has taken by [`Self::hold`].
    pub(crate) fn release(&self) {
        // SAFETY: an initialized mutex. The error of a thread that does not have it is harmless.
        unsafe { libc::pthread_mutex_unlock(self.mutex.get()) };
    }

    /// Frees the lock in a forked child, whoever had it in the parent.
    ///
    /// # Safety
    /// The calling thread is the only thread of the process.
    pub(crate) unsafe fn reset(&self) {
        // SAFETY: no other thread exists that could use the mutex.
        unsafe { self.mutex.get().write(UNLOCKED) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_has_the_lock_is_refused_and_others_wait() {
        static LOCK: Lock<u32> = Lock::new(0);
        LOCK.with(|_| assert!(LOCK.with(|_| ()).is_none())).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        LOCK.with(|value| *value += 1).unwrap();
                    }
                });
            }
        });
        assert_eq!(LOCK.with(|value| *value), Some(4000));
    }
}
