//! `ReadPolicy`: how a read of a completion queue into a long array proceeds.
//!
//! A program may ask for a hundred entries where one comes. Memory is initialised before safe code
//! borrows it, so the first step of a read asks for few entries. If the step is not filled, there
//! are two cases. In a window, more entries arrive soon: a second poll collects them, and spares the
//! program a call for each. In round trips, nothing arrives until the program replies: a second poll
//! delays the reply by its pauses. The policy learns the case from the last second polls.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// The policy of one queue. Threads that read the queue at once may lose updates, which changes
/// only the speed.
#[derive(Debug)]
pub(super) struct ReadPolicy {
    first_step: AtomicUsize,
    /// Grows with second polls that find entries, and shrinks with those that find none.
    credit: AtomicU32,
    /// The number of reads without a second poll since the last one, modulo [`PROBE_INTERVAL`].
    skipped: AtomicU32,
}

/// The first step of a queue that had no entry yet: no memory behind the first entry is written,
/// whatever count a program passes.
const FIRST_STEP: usize = 1;
/// The first step afterwards. A single entry does not fill it.
const NEXT_FIRST_STEP: usize = 2;
const MAX_CREDIT: u32 = 8;
/// The credit that a second poll costs if it finds nothing: a window has one such poll, at its end.
const FAILURE: u32 = 2;
/// Without credit, one of so many reads polls a second time. In round trips the others gain the time
/// of a poll that finds nothing, some 250 ns.
const PROBE_INTERVAL: u32 = 64;

impl ReadPolicy {
    pub(super) const fn new() -> Self {
        Self {
            first_step: AtomicUsize::new(FIRST_STEP),
            credit: AtomicU32::new(0),
            skipped: AtomicU32::new(0),
        }
    }

    /// The number of entries that the first step asks for.
    #[inline]
    pub(super) fn first_step(&self) -> usize {
        self.first_step.load(Ordering::Relaxed)
    }

    /// Whether to poll a second time after a first step that found an entry and was not filled.
    #[inline]
    pub(super) fn polls_again(&self) -> bool {
        if self.credit.load(Ordering::Relaxed) > 0 {
            return true;
        }
        let skipped = (self.skipped.load(Ordering::Relaxed) + 1) % PROBE_INTERVAL;
        self.skipped.store(skipped, Ordering::Relaxed);
        skipped == 0
    }

    /// Records whether a second poll has found entries.
    #[inline]
    pub(super) fn record_second_poll(&self, has_found: bool) {
        let credit = self.credit.load(Ordering::Relaxed);
        let next = if has_found {
            (credit + 1).min(MAX_CREDIT)
        } else {
            credit.saturating_sub(FAILURE)
        };
        self.credit.store(next, Ordering::Relaxed);
    }

    /// Lengthens the first step after the queue's first entry.
    #[cold]
    pub(super) fn record_first_entry(&self) {
        self.first_step.store(NEXT_FIRST_STEP, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of reads that poll a second time, of `reads` whose second polls have this result.
    fn second_polls(policy: &ReadPolicy, reads: u32, has_found: bool) -> u32 {
        let polls = (0..reads).filter(|_| {
            let polls_again = policy.polls_again();
            if polls_again {
                policy.record_second_poll(has_found);
            }
            polls_again
        });
        u32::try_from(polls.count()).unwrap()
    }

    #[test]
    fn reads_of_round_trips_poll_once_and_those_of_windows_twice() {
        let policy = ReadPolicy::new();
        assert_eq!(second_polls(&policy, 64 * 10, false), 10);
        // A window is noticed by the next probe.
        assert_eq!(second_polls(&policy, 64, true), 1);
        for _ in 0..10 {
            assert_eq!(second_polls(&policy, 20, true), 20);
            assert_eq!(second_polls(&policy, 1, false), 1);
        }
        // Afterwards the credit is used up soon.
        assert!(second_polls(&policy, 64, false) <= 5);
    }
}
