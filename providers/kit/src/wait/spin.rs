//! For how long a thread looks before it sleeps, learnt from how that went.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Looking pays when what is waited for comes within the time that falling asleep and waking take;
/// it does harm when the processor is needed by whoever is waited for. So the time is doubled when
/// looking has paid or would have, and halved when it was in vain. Where others want the processor
/// they get it between two looks: as long as they give it back soon, as threads do that wait or
/// talk like this one, that costs less than to sleep and to be woken. What others take does not
/// count, but for the change; and a thread that was kept away for long goes to sleep. The waits after
/// that do not offer the processor at all: where a thread computes beside the waiting one, the kernel
/// gives each offer away for milliseconds, but runs a sleeping thread soon after it is woken.
#[derive(Debug)]
pub struct Spin {
    most: u64,
    /// In nanoseconds.
    now: AtomicU64,
    /// Waits that are still to come without an offer of the processor.
    reserved: AtomicU32,
}

/// One thread's looking.
#[derive(Debug)]
pub struct Spinning {
    last: Instant,
    /// Processor time that this thread has taken.
    spent: Duration,
    budget: Duration,
    /// Whether the processor is offered to others between two looks.
    offers: bool,
}

impl Spin {
    /// Threads look for `most` at most, and at first.
    pub fn new(most: Duration) -> Self {
        let most = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
        Self {
            most,
            now: AtomicU64::new(most),
            reserved: AtomicU32::new(0),
        }
    }

    /// How long the next thread looks.
    pub(crate) fn budget(&self) -> Duration {
        Duration::from_nanos(self.now.load(Ordering::Relaxed))
    }

    /// A thread begins to look.
    pub fn begin(&self, start: Instant) -> Spinning {
        Spinning {
            last: start,
            spent: Duration::ZERO,
            budget: self.budget(),
            offers: !self.take_reserved(),
        }
    }

    /// Whether this wait is one of those without an offer.
    fn take_reserved(&self) -> bool {
        let left = self.reserved.load(Ordering::Relaxed);
        if left > 0 {
            // Threads that wait at once may count one wait for two.
            self.reserved.store(left - 1, Ordering::Relaxed);
        }
        left > 0
    }

    /// Whether to look once more. Lets others run after the first moments.
    pub fn goes_on(&self, spinning: &mut Spinning) -> bool {
        let now = Instant::now();
        let passed = now - spinning.last;
        spinning.last = now;
        spinning.spent += match passed >= CROWDED {
            true => CHANGE,
            false => passed,
        };
        if passed >= HELD_UP {
            self.reserved.store(RESERVED, Ordering::Relaxed);
        }
        let is_alone = spinning.spent < ALONE;
        let may_go_on = is_alone || spinning.offers;
        if spinning.spent >= spinning.budget || passed >= HELD_UP || !may_go_on {
            self.halve();
            return false;
        }
        if !is_alone {
            thread::yield_now();
        }
        true
    }

    /// Looking has found something.
    pub fn paid(&self) {
        self.double();
    }

    /// A sleep took this long.
    pub fn slept(&self, time: Duration) {
        if time.as_nanos() < u128::from(self.most) {
            self.double();
        }
    }

    fn double(&self) {
        let now = self.now.load(Ordering::Relaxed);
        if now < self.most {
            let more = now.saturating_mul(2).min(self.most);
            self.now.store(more, Ordering::Relaxed);
        }
    }

    fn halve(&self) {
        let now = self.now.load(Ordering::Relaxed);
        let less = (now / 2).max(LEAST.min(self.most));
        self.now.store(less, Ordering::Relaxed);
    }
}

/// Looks that lie further apart than this had another thread between them.
const CROWDED: Duration = Duration::from_micros(5);
/// What it costs to let another thread run and to come back.
const CHANGE: Duration = Duration::from_micros(1);
/// Whoever keeps the processor for so long between two looks is no thread that waits.
const HELD_UP: Duration = Duration::from_micros(500);
/// Waits without an offer after one that cost long. The next offer may cost some milliseconds again,
/// which are microseconds for each of so many; and where the neighbour has gone, so many sleeps are over
/// soon.
const RESERVED: u32 = 256;
/// How long a thread looks without offering its processor to others: about a round trip between
/// processors.
const ALONE: Duration = Duration::from_micros(1);
/// The shortest time that a thread looks, in nanoseconds: enough to let others run once, which costs
/// little beside a sleep and is all it takes where many threads of a few processors talk.
const LEAST: u64 = 2000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_gets_shorter_when_it_is_in_vain_and_longer_when_it_pays() {
        let spin = Spin::new(Duration::from_micros(8));
        for expected in [4000, 2000, 2000] {
            let mut spinning = spin.begin(Instant::now());
            while spin.goes_on(&mut spinning) {}
            assert_eq!(spin.budget(), Duration::from_nanos(expected));
        }
        spin.slept(Duration::from_micros(7));
        assert_eq!(spin.budget(), Duration::from_micros(4));
        spin.slept(Duration::from_micros(9));
        assert_eq!(spin.budget(), Duration::from_micros(4));
        spin.paid();
        spin.paid();
        assert_eq!(spin.budget(), Duration::from_micros(8));
    }

    #[test]
    fn a_thread_that_was_kept_away_offers_the_processor_no_more_for_many_waits() {
        let spin = Spin::new(Duration::from_millis(1));
        for _ in 0..2 {
            let mut spinning = spin.begin(Instant::now());
            assert!(spinning.offers);
            spinning.last = Instant::now().checked_sub(HELD_UP).unwrap();
            assert!(!spin.goes_on(&mut spinning));
            for _ in 0..RESERVED {
                assert!(!spin.begin(Instant::now()).offers);
            }
        }
        spin.reserved.store(1, Ordering::Relaxed);
        let mut spinning = spin.begin(Instant::now());
        spinning.spent = ALONE;
        assert!(!spin.goes_on(&mut spinning));
    }

    #[test]
    fn no_time_at_all_stays_none() {
        let spin = Spin::new(Duration::ZERO);
        assert!(!spin.goes_on(&mut spin.begin(Instant::now())));
        spin.paid();
        assert_eq!(spin.budget(), Duration::ZERO);
    }
}
