//! The time that a waiting thread polls before it parks, learnt from the outcomes of earlier waits.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The default time that threads poll before they park. The default exceeds the time that a parked
/// thread needs to be woken and to respond, so that two threads that exchange messages learn that
/// polling pays.
pub const SPIN: Duration = Duration::from_micros(100);

/// The spin policy of one wait object.
///
/// Polling pays if the awaited event comes within the time that parking and waking take; it does
/// harm if the awaited peer needs the processor. So the budget is doubled when polling has
/// succeeded or would have, and halved when it has failed.
///
/// Where other threads want the processor, the thread yields it between two polls. As long as they
/// give it back soon, as threads do that wait or exchange messages, that costs less than a park and
/// a wake-up. The time that other threads take does not count against the budget, except for the
/// context switch. After a long delay, the thread parks. The waits after that do not yield at all:
/// where a thread computes beside the waiting one, the kernel gives each yield away for
/// milliseconds, but runs a parked thread soon after it is woken. The number of such waits doubles
/// after each yield that costs as long.
#[derive(Debug)]
pub struct Spin {
    max: u64,
    /// The present budget in nanoseconds.
    budget_ns: AtomicU64,
    /// The number of coming waits that do not yield.
    without_yield: AtomicU32,
    /// The number of waits that do not yield after the next delay.
    next_without_yield: AtomicU32,
}

/// The polling of one thread in one wait.
#[derive(Debug)]
pub struct Spinning {
    last_poll: Instant,
    /// The processor time that the thread has used.
    spent: Duration,
    budget: Duration,
    /// Whether the thread yields the processor between two polls.
    yields: bool,
    /// Whether the thread has yielded since the last poll.
    has_yielded: bool,
}

impl Spin {
    /// Makes a policy whose budget starts at `max` and never exceeds it.
    pub fn new(max: Duration) -> Self {
        let max = u64::try_from(max.as_nanos()).unwrap_or(u64::MAX);
        Self {
            max,
            budget_ns: AtomicU64::new(max),
            without_yield: AtomicU32::new(0),
            next_without_yield: AtomicU32::new(MIN_WITHOUT_YIELD),
        }
    }

    /// The budget of the next wait.
    pub(crate) fn budget(&self) -> Duration {
        Duration::from_nanos(self.budget_ns.load(Ordering::Relaxed))
    }

    /// Starts the polling of one wait.
    pub fn begin(&self, start: Instant) -> Spinning {
        Spinning {
            last_poll: start,
            spent: Duration::ZERO,
            budget: self.budget(),
            yields: !self.take_without_yield(),
            has_yielded: false,
        }
    }

    /// Returns whether this wait does not yield, and counts the wait.
    fn take_without_yield(&self) -> bool {
        let left = self.without_yield.load(Ordering::Relaxed);
        if left > 0 {
            // Threads that wait at the same time may count one wait for two.
            self.without_yield.store(left - 1, Ordering::Relaxed);
        }
        left > 0
    }

    /// Returns whether the thread polls once more. After the first moments, yields to other
    /// threads.
    pub fn should_continue(&self, spinning: &mut Spinning) -> bool {
        let now = Instant::now();
        let passed = now - spinning.last_poll;
        spinning.last_poll = now;
        spinning.spent += if passed >= SHARED_GAP {
            SWITCH_COST
        } else {
            passed
        };
        if passed >= LONG_GAP {
            self.suspend_yield();
        }
        let is_early = spinning.spent < NO_YIELD;
        let may_continue = is_early || spinning.yields;
        if spinning.spent >= spinning.budget || passed >= LONG_GAP || !may_continue {
            self.halve();
            return false;
        }
        spinning.has_yielded = !is_early;
        if !is_early {
            thread::yield_now();
        }
        true
    }

    /// Records that polling has found the event. The wait counts as a failure if the thread was
    /// delayed by its yield.
    pub fn succeeded(&self, spinning: &Spinning) {
        if !spinning.has_yielded {
            return self.double();
        }
        if spinning.last_poll.elapsed() >= LONG_GAP {
            self.suspend_yield();
            self.halve();
        } else {
            self.shorten_suspension();
            self.double();
        }
    }

    /// Records that a yield has delayed the thread: the next waits do not yield.
    #[cold]
    fn suspend_yield(&self) {
        let waits = self.next_without_yield.load(Ordering::Relaxed);
        self.without_yield.store(waits, Ordering::Relaxed);
        let more = waits.saturating_mul(2).min(MAX_WITHOUT_YIELD);
        self.next_without_yield.store(more, Ordering::Relaxed);
    }

    /// Records that a yield was short.
    fn shorten_suspension(&self) {
        let waits = self.next_without_yield.load(Ordering::Relaxed);
        if waits > MIN_WITHOUT_YIELD {
            self.next_without_yield.store(waits / 2, Ordering::Relaxed);
        }
    }

    /// Records the duration of a park.
    pub fn parked_for(&self, time: Duration) {
        if time.as_nanos() < u128::from(self.max) {
            self.double();
        }
    }

    fn double(&self) {
        let now = self.budget_ns.load(Ordering::Relaxed);
        if now < self.max {
            let more = now.saturating_mul(2).min(self.max);
            self.budget_ns.store(more, Ordering::Relaxed);
        }
    }

    fn halve(&self) {
        let now = self.budget_ns.load(Ordering::Relaxed);
        let less = (now / 2).max(MIN_BUDGET.min(self.max));
        self.budget_ns.store(less, Ordering::Relaxed);
    }
}

/// Another thread ran between two polls that are further apart than this.
pub(crate) const SHARED_GAP: Duration = Duration::from_micros(5);
/// The cost of a switch to another thread and back.
const SWITCH_COST: Duration = Duration::from_micros(1);
/// Another thread that keeps the processor for this time between two polls computes instead of
/// waiting.
pub(crate) const LONG_GAP: Duration = Duration::from_micros(500);
/// The number of waits that do not yield after the first delay. A further yield may cost some
/// milliseconds, which is microseconds for each of these waits. If the other thread has ended,
/// these waits are soon over.
const MIN_WITHOUT_YIELD: u32 = 256;
/// The largest number of such waits, after many delays: some tenths of a second.
const MAX_WITHOUT_YIELD: u32 = 64 * MIN_WITHOUT_YIELD;
/// The time that a thread polls before it first yields: about a round trip between processors.
const NO_YIELD: Duration = Duration::from_micros(1);
/// The smallest budget in nanoseconds: enough for one yield, which costs little beside a park and
/// is sufficient where many threads on a few processors exchange messages.
const MIN_BUDGET: u64 = 2000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_is_halved_by_failures_and_doubled_by_successes() {
        let spin = Spin::new(Duration::from_micros(8));
        for expected in [4000, 2000, 2000] {
            let mut spinning = spin.begin(Instant::now());
            while spin.should_continue(&mut spinning) {}
            assert_eq!(spin.budget(), Duration::from_nanos(expected));
        }
        spin.parked_for(Duration::from_micros(7));
        assert_eq!(spin.budget(), Duration::from_micros(4));
        spin.parked_for(Duration::from_micros(9));
        assert_eq!(spin.budget(), Duration::from_micros(4));
        let spinning = spin.begin(Instant::now());
        spin.succeeded(&spinning);
        spin.succeeded(&spinning);
        assert_eq!(spin.budget(), Duration::from_micros(8));
    }

    /// The number of the next waits that do not yield.
    fn count_without_yield(spin: &Spin) -> usize {
        let yields = || spin.begin(Instant::now()).yields;
        (0..).take_while(|_| !yields()).count()
    }

    /// A wait that was delayed by its yield.
    fn delayed(spin: &Spin) -> Spinning {
        let mut spinning = spin.begin(Instant::now());
        assert!(spinning.yields);
        spinning.last_poll = Instant::now().checked_sub(LONG_GAP).unwrap();
        spinning.has_yielded = true;
        spinning
    }

    #[test]
    fn a_failed_wait_that_was_delayed_suspends_yields_for_many_waits() {
        let spin = Spin::new(Duration::from_millis(1));
        assert!(!spin.should_continue(&mut delayed(&spin)));
        assert_eq!(count_without_yield(&spin), MIN_WITHOUT_YIELD as usize);
        spin.without_yield.store(1, Ordering::Relaxed);
        let mut spinning = spin.begin(Instant::now());
        spinning.spent = NO_YIELD;
        assert!(!spin.should_continue(&mut spinning));
    }

    #[test]
    fn a_successful_wait_that_was_delayed_suspends_yields_too() {
        let spin = Spin::new(Duration::from_millis(1));
        spin.succeeded(&delayed(&spin));
        assert_eq!(spin.budget(), Duration::from_micros(500));
        assert_eq!(count_without_yield(&spin), MIN_WITHOUT_YIELD as usize);
    }

    #[test]
    fn yields_get_rarer_after_delays_and_more_frequent_after_short_yields() {
        let spin = Spin::new(Duration::from_millis(1));
        for doubled in [1, 2, 4, 8, 16, 32, 64, 64] {
            spin.succeeded(&delayed(&spin));
            assert_eq!(
                count_without_yield(&spin),
                doubled * MIN_WITHOUT_YIELD as usize
            );
        }
        let mut spinning = spin.begin(Instant::now());
        spinning.has_yielded = true;
        spin.succeeded(&spinning);
        spin.succeeded(&delayed(&spin));
        assert_eq!(count_without_yield(&spin), 32 * MIN_WITHOUT_YIELD as usize);
    }

    #[test]
    fn a_budget_of_zero_stays_zero() {
        let spin = Spin::new(Duration::ZERO);
        assert!(!spin.should_continue(&mut spin.begin(Instant::now())));
        spin.succeeded(&spin.begin(Instant::now()));
        assert_eq!(spin.budget(), Duration::ZERO);
    }
}
