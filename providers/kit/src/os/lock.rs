//! `Lock`: a lock that costs only a test if the application promised single-threaded use, and that
//! a thread which takes it again and again cannot monopolize ([`Lock::lock_for_pass`]).
//!
//! [`Mode`] is chosen once, when an object is opened. The code that uses the lock is the same in
//! both modes. [`raw`] contains the waiting of threads. The model checker runs the same code.

#![expect(
    unsafe_code,
    reason = "a lock hands out access that the compiler cannot check"
)]

mod futex;
pub mod raw;

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

use futex::Futex;
use raw::{FREE, RawLock, TAKEN, Word, Words};

/// The means by which all threads but one are excluded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The lock excludes them.
    #[default]
    Safe,
    /// The application excludes them, by its promise about threads ([`selvedge::info::Threading`]).
    /// Taking the lock costs a test; debug builds also check the promise.
    Asserted,
}

/// A value that one thread at a time can access.
///
/// The lock is not recursive and has no poisoning: a panic of the holder leaves the value as it was
/// at the panic.
///
/// If the lock is dropped while it is taken, the value is leaked: in a forked child, another thread
/// of the parent may have been changing it.
///
/// This type is used instead of `std::sync::Mutex` or `parking_lot`'s because taking and freeing it
/// costs one atomic read-modify-write, not two: 2.5 ns against 5.0 on one EPYC core in one run, 0.6
/// asserted.
pub struct Lock<T> {
    /// Whether the mode is [`Mode::Safe`]. The flag is read relaxed: [`Self::share`] changes it
    /// while no other thread uses the lock, and threads that use it afterwards synchronize with
    /// that thread when they receive the lock.
    is_safe: AtomicBool,
    raw: RawLock<Futex>,
    value: UnsafeCell<ManuallyDrop<T>>,
}

/// Access to the value of a [`Lock`]; dropping it frees the lock.
#[must_use = "the lock is free again as soon as the guard is dropped"]
pub struct Guard<'a, T> {
    lock: &'a Lock<T>,
    /// The guard stays on its thread: it must not outlive a promise about threads elsewhere.
    not_send: PhantomData<*const ()>,
}

impl<T> Lock<T> {
    /// Makes a thread-safe lock.
    pub fn new(value: T) -> Self {
        Self::build(Mode::Safe, value)
    }

    /// Makes a lock that relies on its users.
    ///
    /// # Safety
    /// - No two threads hold a guard at once, and every hand-over from one thread to another
    ///   happens-before the next use.
    /// - No thread takes the lock while it holds a guard.
    /// - Both conditions hold until the call of [`Self::share`], which counts as taking the lock.
    pub unsafe fn asserted(value: T) -> Self {
        Self::build(Mode::Asserted, value)
    }

    /// Makes a lock of the given mode.
    ///
    /// # Safety
    /// Under [`Mode::Asserted`], as [`Self::asserted`].
    pub unsafe fn with_mode(mode: Mode, value: T) -> Self {
        Self::build(mode, value)
    }

    fn build(mode: Mode, value: T) -> Self {
        Self {
            is_safe: AtomicBool::new(matches!(mode, Mode::Safe)),
            raw: RawLock::new(Futex::new()),
            value: UnsafeCell::new(ManuallyDrop::new(value)),
        }
    }

    /// The mode of the lock.
    pub fn mode(&self) -> Mode {
        if self.is_safe.load(Ordering::Relaxed) {
            Mode::Safe
        } else {
            Mode::Asserted
        }
    }

    /// Changes the mode to [`Mode::Safe`], before threads use the lock that the application's
    /// promise does not cover.
    ///
    /// # Panics
    /// As [`Self::lock`].
    pub fn share(&self) {
        drop(self.lock());
        self.is_safe.store(true, Ordering::Relaxed);
    }

    /// Waits until the lock is free, and takes it.
    ///
    /// # Panics
    /// In debug builds, if a broken promise of [`Mode::Asserted`] is detected.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        match self.mode() {
            Mode::Asserted => self.assert_free(),
            Mode::Safe => self.raw.lock(),
        }
        self.guard()
    }

    /// Takes the lock for a progress pass, after the threads that wait for it now: for threads that
    /// poll continuously.
    ///
    /// # Panics
    /// As [`Self::lock`].
    #[inline]
    pub fn lock_for_pass(&self) -> Guard<'_, T> {
        match self.mode() {
            Mode::Asserted => self.assert_free(),
            Mode::Safe => self.raw.lock_for_pass(),
        }
        self.guard()
    }

    /// Takes the lock if it is free.
    ///
    /// # Panics
    /// As [`Self::lock`].
    #[inline]
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        match self.mode() {
            Mode::Asserted => self.assert_free(),
            Mode::Safe if self.raw.try_lock() => {}
            Mode::Safe => return None,
        }
        Some(self.guard())
    }

    /// Takes the lock for a progress pass if it is free and no thread waits for it.
    ///
    /// # Panics
    /// As [`Self::lock`].
    #[inline]
    pub fn try_lock_for_pass(&self) -> Option<Guard<'_, T>> {
        match self.mode() {
            Mode::Asserted => self.assert_free(),
            Mode::Safe if !self.raw.has_waiters() && self.raw.try_lock() => {}
            Mode::Safe => return None,
        }
        Some(self.guard())
    }

    /// The value, through the only reference to the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Takes the value out.
    pub fn into_inner(self) -> T {
        let mut lock = ManuallyDrop::new(self);
        // SAFETY: the lock is never dropped or used again, so the value is taken once.
        unsafe { ManuallyDrop::take(lock.value.get_mut()) }
    }

    const fn guard(&self) -> Guard<'_, T> {
        Guard {
            lock: self,
            not_send: PhantomData,
        }
    }

    /// Takes the lock under a promise. In debug builds, a plain load and a plain store detect most
    /// broken promises.
    #[inline]
    fn assert_free(&self) {
        if cfg!(debug_assertions) {
            let words = self.raw.words();
            assert_eq!(
                words.load(Word::State, Ordering::Relaxed),
                FREE,
                "the promise of single-threaded use is broken: two threads are inside at once"
            );
            words.store(Word::State, TAKEN, Ordering::Relaxed);
        }
    }

    #[inline(always)]
    fn release(&self) {
        match self.mode() {
            Mode::Safe => self.raw.unlock(),
            Mode::Asserted if cfg!(debug_assertions) => {
                let words = self.raw.words();
                words.store(Word::State, FREE, Ordering::Relaxed);
            }
            Mode::Asserted => {}
        }
    }
}

impl<T> Drop for Lock<T> {
    fn drop(&mut self) {
        if self.raw.words().load(Word::State, Ordering::Relaxed) == FREE {
            // SAFETY: dropped here and nowhere else: `into_inner` forgets the lock.
            unsafe { ManuallyDrop::drop(self.value.get_mut()) };
        }
    }
}

// SAFETY: a guard gives `&mut T` to one thread at a time: in safe mode by the compare-exchange in
// `Words::take`, in asserted mode by the promise of `asserted`. The value may change threads this
// way, which `T: Send` allows.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T: Default> Default for Lock<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: fmt::Debug> fmt::Debug for Lock<T> {
    /// Leaves the value out, so that formatting neither waits nor breaks a promise.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock")
            .field("mode", &self.mode())
            .finish_non_exhaustive()
    }
}

impl<T> Guard<'_, T> {
    /// Frees the lock as a drop does, and is inlined where the compiler would call the drop.
    #[inline(always)]
    pub fn unlock(self) {
        ManuallyDrop::new(self).lock.release();
    }
}

// SAFETY: a shared guard only gives `&T`.
unsafe impl<T: Sync> Sync for Guard<'_, T> {}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard exists, so the lock is taken by it alone (see `Sync for Lock`).
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and `&mut self` makes this the only reference through the guard.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.release();
    }
}

impl<T: fmt::Debug> fmt::Debug for Guard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    const ROUNDS: u64 = if cfg!(miri) { 100 } else { 20_000 };

    fn count_in_threads(lock: &Arc<Lock<u64>>, threads: u64, rounds: u64) {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                let lock = Arc::clone(lock);
                thread::spawn(move || {
                    for _ in 0..rounds {
                        let mut value = lock.lock();
                        let seen = *value;
                        if seen.is_multiple_of(50) {
                            thread::yield_now();
                        }
                        *value = seen + 1;
                    }
                })
            })
            .collect();
        workers.into_iter().for_each(|w| w.join().unwrap());
    }

    #[test]
    fn no_increment_is_lost_between_threads() {
        let lock = Arc::new(Lock::new(0));
        count_in_threads(&lock, 8, ROUNDS);
        assert_eq!(*lock.lock(), 8 * ROUNDS);
    }

    #[test]
    fn a_parked_thread_gets_the_lock_from_an_owner_that_keeps_it_long() {
        let lock = Arc::new(Lock::new(0));
        let held = lock.lock();
        let waiter = {
            let lock = Arc::clone(&lock);
            thread::spawn(move || *lock.lock() = 7)
        };
        while !has_parked_thread(&lock) {
            thread::yield_now();
        }
        drop(held);
        waiter.join().unwrap();
        assert_eq!(*lock.lock(), 7);
        assert!(!has_parked_thread(&lock));
    }

    fn has_parked_thread<T>(lock: &Lock<T>) -> bool {
        lock.raw.words().load(Word::Parked, Ordering::Relaxed) > 0
    }

    /// The thread that frees the lock requests its pass before any parked thread can run.
    #[test]
    fn a_pass_begins_after_the_threads_that_wait() {
        const ROUNDS: usize = 20;
        let lock = Arc::new(Lock::new(Vec::new()));
        for _ in 0..ROUNDS {
            let held = lock.lock();
            let waiters: Vec<_> = (0..2)
                .map(|_| {
                    let lock = Arc::clone(&lock);
                    thread::spawn(move || lock.lock().push("waiter"))
                })
                .collect();
            while lock.raw.words().load(Word::Parked, Ordering::Relaxed) < 2 {
                thread::yield_now();
            }
            assert!(lock.try_lock_for_pass().is_none());
            drop(held);
            lock.lock_for_pass().push("pass");
            waiters
                .into_iter()
                .for_each(|waiter| waiter.join().unwrap());
        }
        let order = lock.lock();
        assert_eq!(order[..], ["waiter", "waiter", "pass"].repeat(ROUNDS));
    }

    #[test]
    fn passing_and_waiting_threads_all_finish() {
        let lock = Arc::new(Lock::new(0_u64));
        let threads: Vec<_> = (0..6)
            .map(|number| {
                let lock = Arc::clone(&lock);
                thread::spawn(move || {
                    for _ in 0..ROUNDS {
                        match number % 2 {
                            0 => *lock.lock_for_pass() += 1,
                            _ => *lock.lock() += 1,
                        }
                    }
                })
            })
            .collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        assert_eq!(*lock.lock(), 6 * ROUNDS);
    }

    #[test]
    fn try_lock_fails_on_a_taken_lock() {
        let lock = Lock::new(());
        let guard = lock.lock();
        assert!(lock.try_lock().is_none());
        drop(guard);
        assert!(lock.try_lock().is_some());
    }

    #[test]
    fn the_value_of_a_taken_lock_is_not_dropped() {
        let value = Arc::new(());
        for is_taken in [false, true] {
            let lock = Lock::new(Arc::clone(&value));
            if is_taken {
                std::mem::forget(lock.lock());
            }
            drop(lock);
            assert_eq!(Arc::strong_count(&value) == 2, is_taken);
        }
        assert_eq!(Arc::strong_count(&Lock::new(value).into_inner()), 2);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "two threads are inside at once")]
    fn a_broken_promise_is_detected() {
        // SAFETY: the promise is broken on purpose, by one thread and without using the value.
        let lock = unsafe { Lock::asserted(()) };
        let _first = lock.lock();
        let _second = lock.lock();
    }

    #[test]
    fn a_shared_lock_is_taken_even_if_single_threaded_use_was_promised() {
        // SAFETY: one thread alone uses the lock before `share`.
        let lock = Arc::new(unsafe { Lock::asserted(0) });
        lock.share();
        assert_eq!(lock.mode(), Mode::Safe);
        count_in_threads(&lock, 8, 2_000);
        assert_eq!(*lock.lock(), 16_000);
    }

    #[test]
    fn an_asserted_lock_is_free_again_after_its_guard() {
        // SAFETY: only this thread uses the lock, one guard at a time.
        let lock = unsafe { Lock::with_mode(Mode::Asserted, 1) };
        *lock.lock() += 1;
        *lock.lock() += 1;
        assert_eq!(lock.into_inner(), 3);
    }
}
