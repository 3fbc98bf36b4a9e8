//! The messages of one class between pauses.

use std::time::{Duration, Instant};

/// Says which messages follow a pause so closely that the caches have not settled.
///
/// The first messages after a pause find other bytes in the caches and take several times as long.
/// A program that sends many messages between two pauses sends most of them afterwards, and these
/// decide which protocol is faster for it. A program that sends one message at a time has no others.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Runs {
    /// The time at which the last message completed.
    last_done: Option<Instant>,
    /// The number of messages since the last pause.
    len: u32,
    /// The number of messages after the last pause that are not settled.
    unsettled: u32,
}

/// The shortest pause.
const PAUSE: Duration = Duration::from_millis(2);
/// The part of a run that is not settled, as its reciprocal.
const UNSETTLED_PART: u32 = 4;
/// The maximum number of messages that are not settled.
const UNSETTLED_MAX: u32 = 8;

impl Runs {
    /// Records a message that started at `since` and completed at `now`. Returns whether it is
    /// settled.
    pub(super) fn record(&mut self, since: Instant, now: Instant) -> bool {
        let pause = self
            .last_done
            .map(|done| since.saturating_duration_since(done));
        if pause.is_some_and(|pause| pause >= PAUSE) {
            self.unsettled = (self.len / UNSETTLED_PART).min(UNSETTLED_MAX);
            self.len = 0;
        }
        self.last_done = Some(now);
        self.len = self.len.saturating_add(1);
        self.len > self.unsettled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_micros(50);

    /// Records messages one after the other. Returns how many of them are not settled.
    fn run(runs: &mut Runs, begin: &mut Instant, count: u32) -> u32 {
        *begin += PAUSE;
        let mut unsettled = 0;
        for _ in 0..count {
            let now = *begin + TIME;
            unsettled += u32::from(!runs.record(*begin, now));
            *begin = now;
        }
        unsettled
    }

    #[test]
    fn a_quarter_of_a_run_is_not_settled_and_eight_messages_at_most() {
        let (mut runs, mut now) = (Runs::default(), Instant::now());
        assert_eq!(run(&mut runs, &mut now, 20), 0);
        assert_eq!(run(&mut runs, &mut now, 100), 5);
        assert_eq!(run(&mut runs, &mut now, 100), 8);
    }

    #[test]
    fn messages_that_are_sent_one_at_a_time_are_settled() {
        let (mut runs, mut now) = (Runs::default(), Instant::now());
        for _ in 0..20 {
            assert_eq!(run(&mut runs, &mut now, 3), 0);
        }
    }
}
