//! `Futex`: the words of a lock that the threads of one process share. They park with `futex(2)`.

#![expect(unsafe_code, reason = "no wrapper for futex(2)")]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering, compiler_fence, fence};
use std::time::Duration;
use std::{hint, ptr, thread};

use super::raw::{FREE, TAKEN, Word, Words};
use crate::barrier::{self, Scope};

/// Words that the threads of this process share.
#[derive(Debug)]
pub(super) struct Futex {
    state: AtomicU32,
    parked: AtomicU32,
    arrived: AtomicU32,
    served: AtomicU32,
    pass_waiters: AtomicU32,
    /// Whether this process can run a fence on the processors of its threads.
    has_heavy_fence: bool,
}

impl Futex {
    /// Words of a lock that is free.
    pub(super) fn new() -> Self {
        static HAS_HEAVY_FENCE: OnceLock<bool> = OnceLock::new();
        let register = || barrier::register(Scope::Process);
        Self {
            state: AtomicU32::new(FREE),
            parked: AtomicU32::new(0),
            arrived: AtomicU32::new(0),
            served: AtomicU32::new(0),
            pass_waiters: AtomicU32::new(0),
            has_heavy_fence: *HAS_HEAVY_FENCE.get_or_init(register),
        }
    }

    #[inline(always)]
    const fn word(&self, word: Word) -> &AtomicU32 {
        match word {
            Word::State => &self.state,
            Word::Parked => &self.parked,
            Word::Arrived => &self.arrived,
            Word::Served => &self.served,
            Word::PassWaiters => &self.pass_waiters,
        }
    }
}

impl Words for Futex {
    /// About two microseconds of pause instructions: longer than a post or a push, shorter than two
    /// context switches.
    const POLLS: u32 = 100;

    #[inline(always)]
    fn load(&self, word: Word, order: Ordering) -> u32 {
        self.word(word).load(order)
    }

    #[inline(always)]
    fn store(&self, word: Word, value: u32, order: Ordering) {
        self.word(word).store(value, order);
    }

    fn add(&self, word: Word, value: u32) {
        self.word(word).fetch_add(value, Ordering::Relaxed);
    }

    #[inline(always)]
    fn take(&self) -> bool {
        self.state
            .compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    fn park_while(&self, word: Word, value: u32) {
        let wait = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
        let no_timeout = ptr::null::<libc::timespec>();
        // SAFETY: the pointer is to a live, aligned 32-bit word, which the kernel only reads. The
        // result is not needed: after every return, the caller checks the word again.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.word(word).as_ptr(),
                wait,
                value,
                no_timeout,
            )
        };
    }

    #[cold]
    #[inline(never)]
    fn wake_one(&self, word: Word) {
        wake(self.word(word), 1);
    }

    #[cold]
    #[inline(never)]
    fn wake_all(&self, word: Word) {
        wake(self.word(word), i32::MAX);
    }

    fn fence(&self) {
        fence(Ordering::SeqCst);
    }

    #[inline(always)]
    fn light_fence(&self) {
        if self.has_heavy_fence {
            compiler_fence(Ordering::SeqCst)
        } else {
            fence(Ordering::SeqCst)
        }
    }

    fn heavy_fence(&self) -> bool {
        fence(Ordering::SeqCst);
        !self.has_heavy_fence || barrier::fence_all(Scope::Process)
    }

    fn pause(&self, is_long: bool) {
        if is_long {
            thread::sleep(Duration::from_micros(50))
        } else {
            hint::spin_loop()
        }
    }
}

fn wake(word: &AtomicU32, threads: i32) {
    let wake = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the kernel uses the word's address as a key and does not access the word.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), wake, threads) };
}
