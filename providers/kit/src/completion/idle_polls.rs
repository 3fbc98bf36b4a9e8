//! The polls of a queue or counter that find nothing: a thread that polls in vain yields the
//! processor to threads that want it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use crate::wait::SHARED_GAP;

/// Counts consecutive polls that found nothing, and yields.
///
/// A thread yields when its polls have found nothing for [`YIELD_AFTER_NS`]. If another thread used
/// the processor meanwhile, the processor is shared. Then the thread yields after every
/// [`SHARED_CHECK`] polls in vain, until a yield returns at once. Threads that exchange messages on too few
/// processors thus run in turns, and do not poll until the end of their time slices.
///
/// Where several threads poll at the same time, their counts are inexact. That only changes when
/// they yield.
#[derive(Debug)]
pub(crate) struct IdlePolls {
    /// Whether threads yield.
    yields: bool,
    /// The origin of times.
    epoch: Instant,
    /// The number of consecutive polls in vain.
    polls: AtomicU32,
    /// The time of the last yield, or of the first check since a poll found something, in
    /// nanoseconds.
    idle_since: AtomicU64,
    /// Whether another thread used the processor during the last yield.
    is_shared: AtomicBool,
}

/// The number of polls in vain between two checks.
const CHECK: u32 = 16;
/// The number of polls in vain between two yields of a shared processor. Four ranks of Open MPI
/// that exchange 8 B in a ring on two processors: with 16, an exchange over tcp takes 27 us on
/// average and 90 us in the 90th percentile, over shm 22 and 52; with 6, 25 and 50, and 8 and 31.
/// With 4 and fewer, threads yield to each other without a message: tcp takes 35 us on average.
const SHARED_CHECK: u32 = 6;
/// The time of polls in vain before a thread yields, in nanoseconds: several round trips between
/// processors. A yield that returns at once takes about 1 % of it.
const YIELD_AFTER_NS: u64 = 20_000;

impl IdlePolls {
    /// Makes the record of a new queue or counter. Without `yields`, threads never yield.
    pub(crate) fn new(yields: bool) -> Self {
        Self {
            yields,
            epoch: Instant::now(),
            polls: AtomicU32::new(0),
            idle_since: AtomicU64::new(0),
            is_shared: AtomicBool::new(false),
        }
    }

    /// The number of consecutive polls in vain; `None` if threads do not yield.
    #[cfg(test)]
    pub(crate) fn in_vain(&self) -> Option<u32> {
        self.yields.then(|| self.polls.load(Ordering::Relaxed))
    }

    /// Records a poll that found something.
    #[inline(always)]
    pub(crate) fn record_found(&self) {
        if self.polls.load(Ordering::Relaxed) != 0 {
            self.polls.store(0, Ordering::Relaxed);
        }
    }

    /// Records a poll that found nothing, and yields the processor if it is time.
    #[inline(always)]
    pub(crate) fn record_empty(&self) {
        let polls = self.polls.load(Ordering::Relaxed).wrapping_add(1);
        self.polls.store(polls, Ordering::Relaxed);
        let is_shared = self.is_shared.load(Ordering::Relaxed);
        let check = if is_shared { SHARED_CHECK } else { CHECK };
        if polls.is_multiple_of(check) {
            self.check(polls);
        }
    }

    #[cold]
    #[inline(never)]
    fn check(&self, polls: u32) {
        if self.should_yield(polls, || self.now()) {
            let began = self.now();
            thread::yield_now();
            self.record_yield(began, self.now());
        }
    }

    /// Whether the thread yields after this many polls in vain.
    fn should_yield(&self, polls: u32, now: impl FnOnce() -> u64) -> bool {
        if !self.yields || self.is_shared.load(Ordering::Relaxed) {
            return self.yields;
        }
        let now = now();
        if polls == CHECK {
            self.idle_since.store(now, Ordering::Relaxed);
        }
        now.saturating_sub(self.idle_since.load(Ordering::Relaxed)) >= YIELD_AFTER_NS
    }

    fn record_yield(&self, began: u64, end: u64) {
        let is_shared = u128::from(end.saturating_sub(began)) >= SHARED_GAP.as_nanos();
        self.is_shared.store(is_shared, Ordering::Relaxed);
        self.idle_since.store(end, Ordering::Relaxed);
    }

    /// Nanoseconds since `epoch`.
    fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a thread yields at the check behind this many polls in vain, at this time.
    fn yields(idle: &IdlePolls, polls: u32, now: u64) -> bool {
        idle.should_yield(polls, || now)
    }

    #[test]
    fn a_thread_yields_when_it_has_polled_in_vain_for_long() {
        let idle = IdlePolls::new(true);
        assert!(!yields(&idle, CHECK, 1_000_000));
        assert!(!yields(&idle, 2 * CHECK, 999_999 + YIELD_AFTER_NS));
        assert!(yields(&idle, 3 * CHECK, 1_000_000 + YIELD_AFTER_NS));
        idle.record_yield(2_000_000, 2_000_300);
        assert!(!yields(&idle, 4 * CHECK, 2_000_299 + YIELD_AFTER_NS));
        assert!(yields(&idle, 5 * CHECK, 2_000_300 + YIELD_AFTER_NS));
        // A new series of polls in vain.
        assert!(!yields(&idle, CHECK, 9_000_000));
    }

    #[test]
    fn a_thread_that_shares_its_processor_yields_at_every_check_until_a_yield_returns_at_once() {
        let idle = IdlePolls::new(true);
        let shared = u64::try_from(SHARED_GAP.as_nanos()).unwrap();
        idle.record_yield(0, shared);
        assert!(yields(&idle, SHARED_CHECK, shared) && yields(&idle, 2 * SHARED_CHECK, shared));
        idle.record_yield(shared, 2 * shared - 1);
        assert!(!yields(&idle, CHECK, 2 * shared));
    }

    #[test]
    fn a_thread_never_yields_if_yields_are_forbidden() {
        let idle = IdlePolls::new(false);
        idle.record_yield(0, u64::MAX);
        assert!(!yields(&idle, CHECK, 0) && !yields(&idle, 2 * CHECK, u64::MAX));
    }

    #[test]
    fn a_shared_processor_is_yielded_after_fewer_polls_in_vain() {
        let idle = IdlePolls::new(true);
        idle.record_yield(0, 1_000_000);
        for _ in 0..SHARED_CHECK {
            idle.record_empty();
        }
        let since = idle.idle_since.load(Ordering::Relaxed);
        assert_ne!(since, 1_000_000, "a yield records its end");
    }

    #[test]
    fn polls_in_vain_are_counted_until_one_finds_something() {
        let idle = IdlePolls::new(true);
        for _ in 0..CHECK - 1 {
            idle.record_empty();
        }
        assert_eq!(idle.in_vain(), Some(CHECK - 1));
        idle.record_found();
        assert_eq!(idle.in_vain(), Some(0));
    }
}
