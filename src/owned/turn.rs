//! A value that threads use one after the other, for a short time each.

#![expect(
    unsafe_code,
    reason = "a thread whose turn it is has the only reference"
)]

use std::sync::PoisonError;

use super::sync::{AtomicBool, Backoff, Cell, Mutex, Ordering};

/// A lock for short critical sections: taking it costs one atomic read-modify-write, freeing it a
/// store. Of the threads that find it taken, the first spins and yields, and has it next; the others
/// sleep. Under a promise about threads taking it is a load and a store.
#[derive(Debug)]
pub(super) struct Turn<T> {
    /// Whether its users promise that no two threads take it at once.
    is_promised: bool,
    is_taken: AtomicBool,
    /// Whether a thread spins: threads that come later go behind it.
    is_wanted: AtomicBool,
    /// Held by the thread that spins.
    next: Mutex<()>,
    value: Cell<T>,
}

// SAFETY: the value goes from one thread to the next, which `T: Send` allows; no two have it at once.
unsafe impl<T: Send> Sync for Turn<T> {}

impl<T> Turn<T> {
    /// A value that no thread uses.
    pub(super) fn new(value: T) -> Self {
        Self::build(value, false)
    }

    /// The same for threads that keep each other apart.
    ///
    /// # Safety
    /// No two threads call [`Self::take`] at once, and each call happens before the next one.
    pub(super) unsafe fn promised(value: T) -> Self {
        Self::build(value, true)
    }

    fn build(value: T, is_promised: bool) -> Self {
        Self {
            is_promised,
            is_taken: AtomicBool::new(false),
            is_wanted: AtomicBool::new(false),
            next: Mutex::new(()),
            value: Cell::new(value),
        }
    }

    /// Calls `access` when no other thread uses the value. It must not come back here.
    ///
    /// # Panics
    /// Under a promise about threads, when it comes back here, or the promise is seen to be broken.
    #[inline]
    pub(super) fn take<R>(&self, access: impl FnOnce(&mut T) -> R) -> R {
        if self.is_promised {
            self.take_promised();
        } else if self.is_wanted.load(Ordering::Relaxed) || !self.try_take() {
            self.wait();
        }
        let _end = End(self);
        self.value.with_mut(|value| {
            // SAFETY: this thread changed `is_taken` from false to true: alone, or under the promise of
            // `promised`. It stays so until `_end` is dropped, after the call, so that nobody else has
            // a reference meanwhile.
            access(unsafe { &mut *value })
        })
    }

    #[inline]
    fn take_promised(&self) {
        let is_taken = self.is_taken.load(Ordering::Relaxed);
        assert!(!is_taken, "taken twice under a promise about threads");
        self.is_taken.store(true, Ordering::Relaxed);
    }

    #[inline]
    fn try_take(&self) -> bool {
        // The acquire pairs with the release of `End`.
        let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
        self.is_taken
            .compare_exchange(false, true, success, failure)
            .is_ok()
    }

    #[cold]
    fn wait(&self) {
        let _next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_wanted.store(true, Ordering::Relaxed);
        let backoff = Backoff::new();
        while !self.try_take() {
            backoff.snooze();
        }
        self.is_wanted.store(false, Ordering::Relaxed);
    }
}

/// Ends a turn, after a panic too.
struct End<'a, T>(&'a Turn<T>);

impl<T> Drop for End<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // Pairs with the acquire of `try_take`.
        self.0.is_taken.store(false, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::thread;

    use super::*;

    #[test]
    fn threads_have_the_value_one_after_the_other() {
        const THREADS: usize = 4;
        const TURNS: usize = 100;
        let turn = Turn::new((0, 0));
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..TURNS {
                        turn.take(|(first, second)| {
                            assert_eq!(first, second);
                            *first += 1;
                            *second += 1;
                        });
                    }
                });
            }
        });
        assert_eq!(
            turn.take(|value| *value),
            (THREADS * TURNS, THREADS * TURNS)
        );
    }

    #[test]
    fn a_promise_is_checked() {
        // SAFETY: one thread.
        let turn = unsafe { Turn::promised(1) };
        let twice = || turn.take(|_| turn.take(|value| *value));
        assert!(catch_unwind(AssertUnwindSafe(twice)).is_err());
        assert_eq!(turn.take(|value| *value), 1);
    }

    #[test]
    fn a_panic_ends_the_turn() {
        let turn = Turn::new(1);
        let panic = catch_unwind(AssertUnwindSafe(|| turn.take(|_| panic!("planted"))));
        assert!(panic.is_err());
        assert_eq!(turn.take(|value| *value), 1);
    }
}
