//! `RawLock`: the protocol of [`super::Lock`], over words that a machine or a model provides.
//!
//! - A thread takes the lock by a compare-exchange of the state, and frees it by a store.
//! - A thread that finds it taken polls for about the time of a short call, counts itself among the
//!   sleepers and sleeps until the state changes. A thread that frees the lock wakes one sleeper.
//! - A thread that takes the lock again and again, to make progress, lets those pass that wait for
//!   it: [`RawLock::lock_for_pass`].
//!
//! # No wake-up is lost
//!
//! The thread that frees the lock stores the state and then loads the number of sleepers; a thread
//! that is about to sleep adds itself and then loads the state (the system does, and sleeps only if
//! the lock is still taken). Each needs a full fence in between, or both miss the other. The
//! sleeper's is heavy: it runs on the processors of all threads, so that the other's, which every
//! call would pay for, is one for the compiler alone ([`crate::barrier`]). Where the system has no
//! such fence the light one is a full one.
//!
//! # Turns
//!
//! A thread that polls takes the lock some 100 ns after it has freed it, and a sleeper needs 50 us
//! to wake up, so the polling thread would take the lock hundreds of times before the sleeper. Here
//! no pass begins before as many threads were served as had arrived. A thread that waits for them
//! sleeps rather than offers its processor (`sched_yield`), which goes to whatever thread wants one,
//! for milliseconds on a busy machine. No thread is handed the lock while it sleeps: until it runs,
//! no other could use it.

use std::sync::atomic::Ordering;

/// The words of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// [`FREE`] or [`TAKEN`].
    State,
    /// Threads that sleep until the state changes.
    Sleepers,
    /// Threads that have found the lock taken, modulo 2^32.
    Arrived,
    /// Of these, those that have got it.
    Served,
    /// Threads that sleep until others are served.
    Passers,
}

/// Words, and what a system does with them.
pub trait Words {
    /// How often the state is looked at before a thread sleeps.
    const POLLS: u32;

    /// Loads a word.
    fn load(&self, word: Word, order: Ordering) -> u32;
    /// Stores a word.
    fn store(&self, word: Word, value: u32, order: Ordering);
    /// Adds to a word, modulo 2^32.
    fn add(&self, word: Word, value: u32);
    /// Makes the state [`TAKEN`] if it is [`FREE`], and acquires what the thread that freed it wrote.
    fn take(&self) -> bool;
    /// Sleeps while a word has a value. It may return at any time.
    fn sleep_while(&self, word: Word, value: u32);
    /// Wakes one thread that sleeps while this word has some value.
    fn wake_one(&self, word: Word);
    /// Wakes all of them.
    fn wake_all(&self, word: Word);
    /// A full fence.
    fn fence(&self);
    /// Orders stores before it and loads behind it against [`Self::heavy_fence`].
    fn light_fence(&self);
    /// A full fence here and on the processors of all threads; `false` when that did not work.
    fn heavy_fence(&self) -> bool;
    /// Passes the time of a look, or more where a thread has no other way to wait.
    fn pause(&self, is_long: bool);
}

/// The state of a lock that can be taken.
pub const FREE: u32 = 0;
/// The state of a lock that a thread has.
pub const TAKEN: u32 = 1;

/// A lock without a value.
#[derive(Debug, Default)]
pub struct RawLock<W>(W);

impl<W: Words> RawLock<W> {
    /// A lock of these words, which are all zero.
    pub const fn new(words: W) -> Self {
        Self(words)
    }

    /// Its words.
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
        if self.is_wanted() {
            self.give_turns();
        }
        self.lock();
    }

    /// Frees the lock.
    #[inline(always)]
    pub fn unlock(&self) {
        self.0.store(Word::State, FREE, Ordering::Release);
        self.0.light_fence();
        if self.0.load(Word::Sleepers, Ordering::Relaxed) != 0 {
            self.0.wake_one(Word::State);
        }
    }

    /// Whether threads wait for the lock.
    #[inline(always)]
    pub fn is_wanted(&self) -> bool {
        let served = self.0.load(Word::Served, Ordering::Relaxed);
        self.0.load(Word::Arrived, Ordering::Relaxed) != served
    }

    #[cold]
    #[inline(never)]
    fn wait(&self) {
        self.0.add(Word::Arrived, 1);
        if !self.poll() {
            self.sleep();
        }
        self.0.add(Word::Served, 1);
        // PAIRS WITH: the fence of `give_turns`. Either this sees the thread that is about to sleep,
        // or that thread sees the turn.
        self.0.fence();
        if self.0.load(Word::Passers, Ordering::Relaxed) != 0 {
            self.0.wake_all(Word::Served);
        }
    }

    /// Polls for about the time of a short call; whether the lock was taken.
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

    /// Sleeps until the lock is free, and takes it.
    fn sleep(&self) {
        self.0.add(Word::Sleepers, 1);
        let is_ordered = self.0.heavy_fence();
        while !self.0.take() {
            match is_ordered {
                true => self.0.sleep_while(Word::State, TAKEN),
                false => self.0.pause(true),
            }
        }
        self.0.add(Word::Sleepers, 0_u32.wrapping_sub(1));
    }

    /// Returns when as many threads were served as have arrived until now. Threads that come later
    /// do not count, so calls without end cannot keep a thread from its pass.
    #[cold]
    #[inline(never)]
    fn give_turns(&self) {
        let arrived = self.0.load(Word::Arrived, Ordering::Relaxed);
        let is_over = |served: u32| served.wrapping_sub(arrived) as i32 >= 0;
        for _ in 0..W::POLLS {
            if is_over(self.0.load(Word::Served, Ordering::Relaxed)) {
                return;
            }
            self.0.pause(false);
        }
        self.0.add(Word::Passers, 1);
        self.0.fence();
        loop {
            let served = self.0.load(Word::Served, Ordering::Relaxed);
            if is_over(served) {
                break;
            }
            self.0.sleep_while(Word::Served, served);
        }
        self.0.add(Word::Passers, 0_u32.wrapping_sub(1));
    }
}
