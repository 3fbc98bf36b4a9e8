//! The polls of a queue or counter that find nothing: a thread that polls in vain yields the
//! processor to threads that want it, or parks briefly.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::wait::{LONG_GAP, SHARED_GAP};

/// Counts consecutive polls that found nothing, yields, and says when to park briefly.
///
/// A thread yields when its polls have found nothing for [`YIELD_AFTER_NS`]. If another thread used
/// the processor meanwhile, the processor is shared. Then the thread yields after every
/// [`SHARED_CHECK`] polls in vain, until a yield returns at once. Threads that exchange messages on
/// too few processors thus run in turns, and do not poll until the end of their time slices.
///
/// Beside threads that compute without end, each yield costs their whole time slices: milliseconds.
/// After two such yields in a row, the thread parks briefly instead: the next event wakes it. The
/// kernel runs a thread soon after it is woken. When this has lasted [`PARKING_PER_YIELD`] times as
/// long as the yield, the thread yields again, to find out whether the other threads still compute.
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
    /// Whether the last yield cost the time slices of other threads.
    was_long: AtomicBool,
    /// The time until which threads park instead of yielding, in nanoseconds.
    parks_until: AtomicU64,
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
/// The time of polls in vain before a thread parks, in nanoseconds: longer than a round trip
/// between processors, so that a thread whose peer answers at once does not park.
const PARK_AFTER_NS: u64 = 5_000;
/// The longest brief park. A program that polls other objects, too, sees their events later by this
/// time at most; a yield would cost more.
pub(crate) const BRIEF_PARK: Duration = Duration::from_micros(250);
/// How many times as long as the yield before them threads park until the next yield. Yields thus
/// take a thirtieth of the time.
const PARKING_PER_YIELD: u64 = 32;
/// The limits of that time, in nanoseconds.
const PARKING_NS: RangeInclusive<u64> = 16_000_000..=500_000_000;

impl IdlePolls {
    /// Makes the record of a new queue or counter. Without `yields`, threads never yield.
    pub(crate) fn new(yields: bool) -> Self {
        Self {
            yields,
            epoch: Instant::now(),
            polls: AtomicU32::new(0),
            idle_since: AtomicU64::new(0),
            is_shared: AtomicBool::new(false),
            was_long: AtomicBool::new(false),
            parks_until: AtomicU64::new(0),
        }
    }

    /// The number of consecutive polls in vain; `None` if threads do not yield.
    #[cfg(test)]
    pub(crate) fn in_vain(&self) -> Option<u32> {
        self.yields.then(|| self.polls.load(Ordering::Relaxed))
    }

    /// Makes threads park from now on, as they do beside threads that compute.
    #[cfg(test)]
    pub(crate) fn park_from_now_on(&self) {
        self.parks_until.store(u64::MAX, Ordering::Relaxed);
    }

    /// Records a poll that found something.
    #[inline(always)]
    pub(crate) fn record_found(&self) {
        if self.polls.load(Ordering::Relaxed) != 0 {
            self.polls.store(0, Ordering::Relaxed);
        }
    }

    /// Records a poll that found nothing, and yields the processor if it is time. Returns whether
    /// the thread has to park briefly.
    #[inline(always)]
    pub(crate) fn record_empty(&self) -> bool {
        let polls = self.polls.load(Ordering::Relaxed).wrapping_add(1);
        self.polls.store(polls, Ordering::Relaxed);
        polls.is_multiple_of(self.interval()) && self.check(polls)
    }

    /// The number of polls in vain between two checks.
    #[inline(always)]
    fn interval(&self) -> u32 {
        if self.is_shared.load(Ordering::Relaxed) {
            SHARED_CHECK
        } else {
            CHECK
        }
    }

    #[cold]
    #[inline(never)]
    fn check(&self, polls: u32) -> bool {
        let remedy = self.remedy(polls, || self.now());
        if remedy == Remedy::Yield {
            let began = self.now();
            thread::yield_now();
            self.record_yield(began, self.now());
        }
        remedy == Remedy::Park
    }

    /// The action of a thread after this many polls in vain.
    fn remedy(&self, polls: u32, now: impl FnOnce() -> u64) -> Remedy {
        if !self.yields {
            return Remedy::Poll;
        }
        let now = now();
        if polls == self.interval() {
            self.idle_since.store(now, Ordering::Relaxed);
        }
        let idle = now.saturating_sub(self.idle_since.load(Ordering::Relaxed));
        if now < self.parks_until.load(Ordering::Relaxed) {
            return if idle >= PARK_AFTER_NS {
                Remedy::Park
            } else {
                Remedy::Poll
            };
        }
        if self.is_shared.load(Ordering::Relaxed) || idle >= YIELD_AFTER_NS {
            Remedy::Yield
        } else {
            Remedy::Poll
        }
    }

    fn record_yield(&self, began: u64, end: u64) {
        let taken = end.saturating_sub(began);
        self.is_shared
            .store(taken >= nanos(SHARED_GAP), Ordering::Relaxed);
        let is_long = taken >= nanos(LONG_GAP);
        if self.was_long.swap(is_long, Ordering::Relaxed) && is_long {
            let parking = taken.saturating_mul(PARKING_PER_YIELD);
            let parking = parking.clamp(*PARKING_NS.start(), *PARKING_NS.end());
            self.parks_until
                .store(end.saturating_add(parking), Ordering::Relaxed);
        }
        self.idle_since.store(end, Ordering::Relaxed);
    }

    /// Nanoseconds since `epoch`.
    fn now(&self) -> u64 {
        nanos(self.epoch.elapsed())
    }
}

/// The action of a thread that has polled in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Remedy {
    Poll,
    Yield,
    Park,
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a thread yields at the check behind this many polls in vain, at this time.
    fn yields(idle: &IdlePolls, polls: u32, now: u64) -> bool {
        remedy(idle, polls, now) == Remedy::Yield
    }

    fn remedy(idle: &IdlePolls, polls: u32, now: u64) -> Remedy {
        idle.remedy(polls, || now)
    }

    const LONG: u64 = 3_000_000;

    #[test]
    fn after_two_long_yields_in_a_row_a_thread_parks_for_many_times_as_long() {
        let idle = IdlePolls::new(true);
        let mut now = 0;
        let mut yield_for = |time| {
            idle.record_yield(now, now + time);
            now += time;
            now
        };
        for time in [LONG, 300, LONG] {
            let end = yield_for(time);
            assert_ne!(remedy(&idle, CHECK * 2, end + YIELD_AFTER_NS), Remedy::Park);
        }
        let end = yield_for(LONG);
        assert_eq!(remedy(&idle, SHARED_CHECK, end), Remedy::Poll);
        assert_eq!(
            remedy(&idle, 2 * SHARED_CHECK, end + PARK_AFTER_NS),
            Remedy::Park
        );
        let over = end + PARKING_PER_YIELD * LONG;
        assert_eq!(remedy(&idle, 3 * SHARED_CHECK, over - 1), Remedy::Park);
        assert_eq!(remedy(&idle, 4 * SHARED_CHECK, over), Remedy::Yield);
        // One long yield suffices then; a short one ends that.
        idle.record_yield(over, over + LONG);
        assert_eq!(
            remedy(&idle, 5 * SHARED_CHECK, over + LONG + PARK_AFTER_NS),
            Remedy::Park
        );
    }

    #[test]
    fn a_short_yield_ends_the_brief_parks() {
        let idle = IdlePolls::new(true);
        for began in [0, LONG] {
            idle.record_yield(began, began + LONG);
        }
        let over = 2 * LONG + PARKING_PER_YIELD * LONG;
        idle.record_yield(over, over + 300);
        assert_eq!(
            remedy(&idle, 2 * CHECK, over + 300 + PARK_AFTER_NS),
            Remedy::Poll
        );
        idle.record_yield(over + 600, over + 600 + LONG);
        let end = over + 600 + LONG;
        assert_eq!(remedy(&idle, 2 * CHECK, end + PARK_AFTER_NS), Remedy::Yield);
    }

    #[test]
    fn brief_parks_last_half_a_second_at_most_until_the_next_yield() {
        let idle = IdlePolls::new(true);
        idle.record_yield(0, LONG);
        let end = u64::from(u32::MAX);
        idle.record_yield(LONG, end);
        assert_eq!(
            remedy(&idle, 2 * SHARED_CHECK, end + PARKING_NS.end() - 1),
            Remedy::Park
        );
        assert_eq!(
            remedy(&idle, 3 * SHARED_CHECK, end + PARKING_NS.end()),
            Remedy::Yield
        );
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
        let shared = nanos(SHARED_GAP);
        idle.record_yield(0, shared);
        assert!(yields(&idle, SHARED_CHECK, shared) && yields(&idle, 2 * SHARED_CHECK, shared));
        idle.record_yield(shared, 2 * shared - 1);
        assert!(!yields(&idle, CHECK, 2 * shared));
    }

    #[test]
    fn a_thread_never_yields_if_yields_are_forbidden() {
        let idle = IdlePolls::new(false);
        idle.record_yield(0, u64::MAX);
        idle.record_yield(0, u64::MAX);
        for (polls, now) in [(CHECK, 0), (2 * CHECK, u64::MAX - 1)] {
            assert_eq!(remedy(&idle, polls, now), Remedy::Poll);
        }
    }

    #[test]
    fn a_shared_processor_is_yielded_after_fewer_polls_in_vain() {
        let idle = IdlePolls::new(true);
        idle.record_yield(0, 1_000_000);
        for _ in 0..SHARED_CHECK {
            assert!(!idle.record_empty());
        }
        let since = idle.idle_since.load(Ordering::Relaxed);
        assert_ne!(since, 1_000_000, "a yield records its end");
    }

    #[test]
    fn polls_in_vain_are_counted_until_one_finds_something() {
        let idle = IdlePolls::new(true);
        for _ in 0..CHECK - 1 {
            assert!(!idle.record_empty());
        }
        assert_eq!(idle.in_vain(), Some(CHECK - 1));
        idle.record_found();
        assert_eq!(idle.in_vain(), Some(0));
    }
}
