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
/// gives each offer away for milliseconds, but runs a sleeping thread soon after it is woken. They are
/// twice as many after each offer that costs as long.
#[derive(Debug)]
pub struct Spin {
    most: u64,
    /// In nanoseconds.
    now: AtomicU64,
    /// Waits that are still to come without an offer of the processor.
    reserved: AtomicU32,
    /// How many of them follow the next offer that costs long.
    to_reserve: AtomicU32,
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
    /// Whether it was, since the last look.
    has_offered: bool,
}

impl Spin {
    /// Threads look for `most` at most, and at first.
    pub fn new(most: Duration) -> Self {
        let most = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
        Self {
            most,
            now: AtomicU64::new(most),
            reserved: AtomicU32::new(0),
            to_reserve: AtomicU32::new(RESERVED),
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
            has_offered: false,
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
            self.reserve();
        }
        let is_alone = spinning.spent < ALONE;
        let may_go_on = is_alone || spinning.offers;
        if spinning.spent >= spinning.budget || passed >= HELD_UP || !may_go_on {
            self.halve();
            return false;
        }
        spinning.has_offered = !is_alone;
        if !is_alone {
            thread::yield_now();
        }
        true
    }

    /// Looking has found something. It has not paid where the processor was away for long meanwhile.
    pub fn paid(&self, spinning: &Spinning) {
        if !spinning.has_offered {
            return self.double();
        }
        if spinning.last.elapsed() >= HELD_UP {
            self.reserve();
            self.halve();
        } else {
            self.relax();
            self.double();
        }
    }

    /// An offer of the processor has cost long.
    #[cold]
    fn reserve(&self) {
        let waits = self.to_reserve.load(Ordering::Relaxed);
        self.reserved.store(waits, Ordering::Relaxed);
        let more = waits.saturating_mul(2).min(MOST_RESERVED);
        self.to_reserve.store(more, Ordering::Relaxed);
    }

    /// An offer has cost little.
    fn relax(&self) {
        let waits = self.to_reserve.load(Ordering::Relaxed);
        if waits > RESERVED {
            self.to_reserve.store(waits / 2, Ordering::Relaxed);
        }
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
/// Waits without an offer after the first one that cost long. The next offer may cost some milliseconds
/// again, which are microseconds for each of so many; and where the neighbour has gone, so many sleeps
/// are over soon.
const RESERVED: u32 = 256;
/// The same after many such offers: some tenths of a second.
const MOST_RESERVED: u32 = 64 * RESERVED;
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
        let spinning = spin.begin(Instant::now());
        spin.paid(&spinning);
        spin.paid(&spinning);
        assert_eq!(spin.budget(), Duration::from_micros(8));
    }

    /// The waits that follow without an offer.
    fn reserved(spin: &Spin) -> usize {
        let offers = || spin.begin(Instant::now()).offers;
        (0..).take_while(|_| !offers()).count()
    }

    /// A wait that was kept away for long when it offered the processor.
    fn held_up(spin: &Spin) -> Spinning {
        let mut spinning = spin.begin(Instant::now());
        assert!(spinning.offers);
        spinning.last = Instant::now().checked_sub(HELD_UP).unwrap();
        spinning.has_offered = true;
        spinning
    }

    #[test]
    fn a_thread_that_was_kept_away_offers_the_processor_no_more_for_many_waits() {
        let spin = Spin::new(Duration::from_millis(1));
        assert!(!spin.goes_on(&mut held_up(&spin)));
        assert_eq!(reserved(&spin), RESERVED as usize);
        spin.reserved.store(1, Ordering::Relaxed);
        let mut spinning = spin.begin(Instant::now());
        spinning.spent = ALONE;
        assert!(!spin.goes_on(&mut spinning));
    }

    #[test]
    fn so_does_one_that_finds_something_when_it_comes_back() {
        let spin = Spin::new(Duration::from_millis(1));
        spin.paid(&held_up(&spin));
        assert_eq!(spin.budget(), Duration::from_micros(500));
        assert_eq!(reserved(&spin), RESERVED as usize);
    }

    #[test]
    fn offers_get_rarer_where_each_costs_long_and_more_frequent_where_they_do_not() {
        let spin = Spin::new(Duration::from_millis(1));
        for doubled in [1, 2, 4, 8, 16, 32, 64, 64] {
            spin.paid(&held_up(&spin));
            assert_eq!(reserved(&spin), doubled * RESERVED as usize);
        }
        let mut spinning = spin.begin(Instant::now());
        spinning.has_offered = true;
        spin.paid(&spinning);
        spin.paid(&held_up(&spin));
        assert_eq!(reserved(&spin), 32 * RESERVED as usize);
    }

    #[test]
    fn no_time_at_all_stays_none() {
        let spin = Spin::new(Duration::ZERO);
        assert!(!spin.goes_on(&mut spin.begin(Instant::now())));
        spin.paid(&spin.begin(Instant::now()));
        assert_eq!(spin.budget(), Duration::ZERO);
    }
}
