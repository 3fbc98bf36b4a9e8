//! `RawLock`: the protocol of [`super::Lock`], over words that the system or a model provides.
//!
//! - A thread takes the lock by a compare-exchange of the state, and frees it by a store.
//! - A thread that finds it taken polls for about the time of a short call, adds itself to the
//!   number of parked threads, and parks until the state changes. A thread that frees the lock
//!   wakes one parked thread.
//! - A thread that takes the lock again and again, to make progress, lets waiting threads go first:
//!   [`RawLock::lock_for_pass`].
//!
//! # No wake-up is lost
//!
//! The thread that frees the lock stores the state and then loads the number of parked threads. A
//! thread that is about to park adds itself to that number and then loads the state; the system
//! does the load, and parks the thread only if the lock is still taken. Each thread needs a full
//! fence between its two steps; without the fences, each may miss the step of the other.
//!
//! The fence of the parking thread is heavy: it acts on the processors of all threads. The fence of
//! the freeing thread, which every call would pay for, is therefore light: a compiler fence only
//! ([`crate::barrier`]). Where the system has no heavy fence, the light fence is a full one.
//!
//! # Turns
//!
//! A thread that polls takes the lock some 100 ns after it has freed it, and a parked thread needs
//! 50 us to run, so the polling thread would take the lock hundreds of times before the parked one.
//! Therefore a thread that wants a pass first waits until as many threads are served as have
//! arrived by then. It parks for this wait and does not call `sched_yield`: on a busy machine, the
//! yielded processor would go to an unrelated thread for milliseconds. The lock is not handed over
//! to a parked thread, because until that thread runs, no other thread could use the lock.

use std::sync::atomic::Ordering;

/// The words of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// [`FREE`] or [`TAKEN`].
    State,
    /// The number of threads that are parked until the state changes.
    Parked,
    /// The number of threads that have found the lock taken, modulo 2^32.
    Arrived,
    /// The number of these threads that have taken it since, modulo 2^32.
    Served,
    /// The number of threads that are parked, before a pass, until others are served.
    PassWaiters,
}

/// The words of a lock, and the operations of a system on them.
pub trait Words {
    /// How often a thread polls the state before it parks.
    const POLLS: u32;

    /// Loads a word.
    fn load(&self, word: Word, order: Ordering) -> u32;
    /// Stores a word.
    fn store(&self, word: Word, value: u32, order: Ordering);
    /// Adds to a word, modulo 2^32.
    fn add(&self, word: Word, value: u32);
    /// Makes the state [`TAKEN`] if it is [`FREE`], and acquires the writes of the thread that
    /// freed it.
    fn take(&self) -> bool;
    /// Parks the calling thread while `word` is `value`. It may return early.
    fn park_while(&self, word: Word, value: u32);
    /// Wakes one thread that is parked on this word.
    fn wake_one(&self, word: Word);
    /// Wakes all threads that are parked on this word.
    fn wake_all(&self, word: Word);
    /// A full fence.
    fn fence(&self);
    /// Orders the stores before it and the loads after it, as seen by a thread that calls
    /// [`Self::heavy_fence`].
    fn light_fence(&self);
    /// A full fence here and on the processors of all threads. Returns `false` if the system call
    /// failed.
    fn heavy_fence(&self) -> bool;
    /// Pauses between two polls; for longer where a thread has no other way to wait.
    fn pause(&self, is_long: bool);
}

/// The state of a lock that can be taken.
pub const FREE: u32 = 0;
/// The state of a lock that a thread has taken.
pub const TAKEN: u32 = 1;

/// A lock without a value.
#[derive(Debug, Default)]
pub struct RawLock<W>(W);

impl<W: Words> RawLock<W> {
    /// Makes a lock of these words, which are all zero.
    pub const fn new(words: W) -> Self {
        Self(words)
    }

    /// The words.
    #[inline(always)]
    pub const fn words(&self) -> &W {
        &self.0
    }

    /// Takes the lock if it is free.
    #[inline(always)]
    pub fn try_lock(&self) -> bool {
        self.0.take()
    }

    /// Waits until the lock is free, and takes it.
    #[inline(always)]
    pub fn lock(&self) {
        if !self.0.take() {
            self.wait();
        }
    }

    /// Takes the lock for a progress pass, after the threads that wait for it now.
    #[inline(always)]
    pub fn lock_for_pass(&self) {
        if self.has_waiters() {
            self.yield_to_waiters();
        }
        self.lock();
    }

    /// Frees the lock.
    #[inline(always)]
    pub fn unlock(&self) {
        self.0.store(Word::State, FREE, Ordering::Release);
        self.0.light_fence();
        if self.0.load(Word::Parked, Ordering::Relaxed) != 0 {
            self.0.wake_one(Word::State);
        }
    }

    /// Whether threads wait for the lock.
    #[inline(always)]
    pub fn has_waiters(&self) -> bool {
        let served = self.0.load(Word::Served, Ordering::Relaxed);
        self.0.load(Word::Arrived, Ordering::Relaxed) != served
    }

    #[cold]
    #[inline(never)]
    fn wait(&self) {
        self.0.add(Word::Arrived, 1);
        if !self.poll() {
            self.park();
        }
        self.0.add(Word::Served, 1);
        // PAIRS WITH: the fence of `yield_to_waiters`. Either this load sees the thread that is
        // about to park, or that thread sees this count.
        self.0.fence();
        if self.0.load(Word::PassWaiters, Ordering::Relaxed) != 0 {
            self.0.wake_all(Word::Served);
        }
    }

    /// Polls for about the time of a short call, and takes the lock if it becomes free. Returns
    /// whether it took the lock.
    fn poll(&self) -> bool {
        (0..W::POLLS).any(|_| {
            let is_free = self.0.load(Word::State, Ordering::Relaxed) == FREE;
            let is_taken = is_free && self.0.take();
            if !is_taken {
                self.0.pause(false);
            }
            is_taken
        })
    }

    /// Parks until the lock is free, and takes it.
    fn park(&self) {
        self.0.add(Word::Parked, 1);
        let is_ordered = self.0.heavy_fence();
        while !self.0.take() {
            if is_ordered {
                self.0.park_while(Word::State, TAKEN)
            } else {
                self.0.pause(true)
            }
        }
        self.0.add(Word::Parked, 0_u32.wrapping_sub(1));
    }

    /// Returns when as many threads were served as have arrived until now. Threads that arrive
    /// later do not count, so an endless series of calls cannot keep a thread from its pass.
    #[cold]
    #[inline(never)]
    fn yield_to_waiters(&self) {
        let arrived = self.0.load(Word::Arrived, Ordering::Relaxed);
        let are_served = |served: u32| served.wrapping_sub(arrived) as i32 >= 0;
        for _ in 0..W::POLLS {
            if are_served(self.0.load(Word::Served, Ordering::Relaxed)) {
                return;
            }
            self.0.pause(false);
        }
        self.0.add(Word::PassWaiters, 1);
        self.0.fence();
        loop {
            let served = self.0.load(Word::Served, Ordering::Relaxed);
            if are_served(served) {
                break;
            }
            self.0.park_while(Word::Served, served);
        }
        self.0.add(Word::PassWaiters, 0_u32.wrapping_sub(1));
    }
}
