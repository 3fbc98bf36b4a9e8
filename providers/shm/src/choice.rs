//! Which way a large message takes: learnt per peer and size class from what was fastest.
//!
//! No fixed threshold is right: whether one copy through the kernel or two through shared cache
//! lines is faster depends on the processors, on how far apart they are, and on the size. So the
//! receiver measures both ways and takes the better one, and tries the other now and then in case
//! the world has changed.

use std::time::{Duration, Instant};

/// A way for the bytes of a large message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Way {
    /// The receiver copies from the sender's memory.
    #[default]
    Cma,
    /// Both copy, through bounce segments.
    Bounce,
    /// The receiver copies from special memory, which it has mapped. Nothing is learnt about it: it
    /// is one copy without a system call, and taken wherever there is such memory.
    Special,
}

/// What was learnt about one peer.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    classes: [Class; CLASSES],
    /// When the last large message of the peer was complete.
    last_done: Instant,
}

#[derive(Clone, Copy, Debug, Default)]
struct Class {
    cma: Mean,
    bounce: Mean,
    on_trial: Way,
    /// Messages seen.
    seen: u32,
}

/// Nanoseconds per message, the younger ones weighing more.
///
/// A mean of sums and not of single times: of messages that are under way together, the last ones
/// seem to take no time at all.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    nanos: f32,
    messages: f32,
}

/// Powers of two from 4 KiB up; the last class takes everything beyond.
const CLASSES: usize = 16;
/// Messages of a run over one way. The first of a run is not measured: the sender prepares for the
/// way that the message before took.
const RUN: u32 = 8;
/// Runs between two trials of the slower way; the first trials come sooner.
const TRIAL_INTERVAL: u32 = 64;
/// What a message keeps of its weight when the next one comes.
const MEMORY: f32 = 0.9;

impl Choice {
    /// The class of a size.
    pub(crate) fn class(len: usize) -> usize {
        let pages = (len >> 12).max(1);
        (pages.ilog2() as usize).min(CLASSES - 1)
    }

    /// The way for the next message of `len` bytes.
    pub(crate) fn next(&mut self, len: usize) -> Way {
        let class = &mut self.classes[Self::class(len)];
        let (run, turn) = (class.seen / RUN, class.seen % RUN);
        class.seen = class.seen.wrapping_add(1);
        match run {
            0 => Way::Bounce,
            1 => Way::Cma,
            _ if run.is_power_of_two() || run.is_multiple_of(TRIAL_INTERVAL) => class.tried(turn),
            _ => class.better(),
        }
    }

    /// Learns from a message that met its receive at `since` and is complete now: it took the time
    /// since then, or since the message before it was complete, whichever is less.
    pub(crate) fn learn(&mut self, len: usize, way: Way, since: Instant, now: Instant) {
        let took = now.duration_since(since.max(self.last_done));
        self.last_done = now;
        let class = &mut self.classes[Self::class(len)];
        if class.seen % RUN == 1 {
            return;
        }
        if let Some(mean) = class.mean(way) {
            mean.add(took);
        }
    }
}

impl Class {
    fn better(&self) -> Way {
        if self.bounce.nanos() < self.cma.nanos() {
            Way::Bounce
        } else {
            Way::Cma
        }
    }

    /// The way that is on trial, the slower one so far. What was known of it is forgotten at the
    /// beginning: it may come from another time.
    fn tried(&mut self, turn: u32) -> Way {
        if turn == 0 {
            let slower = match self.better() {
                Way::Cma => Way::Bounce,
                _ => Way::Cma,
            };
            self.on_trial = slower;
            self.mean(slower).map(std::mem::take);
        }
        self.on_trial
    }

    fn mean(&mut self, way: Way) -> Option<&mut Mean> {
        match way {
            Way::Cma => Some(&mut self.cma),
            Way::Bounce => Some(&mut self.bounce),
            Way::Special => None,
        }
    }
}

impl Mean {
    fn add(&mut self, took: Duration) {
        self.nanos = self.nanos * MEMORY + took.as_nanos() as f32;
        self.messages = self.messages * MEMORY + 1.0;
    }

    /// Per message; nothing where none was measured, so that it is measured.
    fn nanos(&self) -> f32 {
        if self.messages > 0.0 {
            self.nanos / self.messages
        } else {
            0.0
        }
    }
}

impl Default for Choice {
    fn default() -> Self {
        Self {
            classes: [Class::default(); CLASSES],
            last_done: Instant::now(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends `count` messages, one after the other, that take the given nanoseconds; how many were
    /// bounced.
    fn run(choice: &mut Choice, count: u32, cma: u64, bounce: u64) -> u32 {
        let mut bounced = 0;
        for _ in 0..count {
            let way = choice.next(65536);
            let took = match way {
                Way::Cma => cma,
                _ => bounce,
            };
            bounced += u32::from(way == Way::Bounce);
            let since = choice.last_done;
            choice.learn(65536, way, since, since + Duration::from_nanos(took));
        }
        bounced
    }

    #[test]
    fn the_faster_way_is_taken() {
        let mut choice = Choice::default();
        assert!(run(&mut choice, 1000, 5000, 2000) > 900);
        let mut choice = Choice::default();
        assert!(run(&mut choice, 1000, 2000, 5000) < 100);
    }

    #[test]
    fn a_change_of_the_world_is_noticed() {
        let mut choice = Choice::default();
        run(&mut choice, 1000, 5000, 2000);
        run(&mut choice, 1000, 1000, 8000);
        assert!(run(&mut choice, 1000, 1000, 8000) < 50);
    }

    #[test]
    fn one_trial_is_enough_to_return_to_a_way_that_has_become_fast() {
        let mut choice = Choice::default();
        run(&mut choice, 4 * RUN * TRIAL_INTERVAL, 500, 50_000);
        run(&mut choice, RUN * (TRIAL_INTERVAL + 1), 500, 200);
        assert_eq!(run(&mut choice, RUN, 500, 200), RUN);
    }

    #[test]
    fn messages_under_way_together_are_not_charged_for_each_other() {
        let mut choice = Choice::default();
        run(&mut choice, 2 * RUN, 3000, 3000);
        // A window of messages that all met their receives at once and are complete one after the
        // other, 1000 ns each.
        let since = choice.last_done;
        for number in 1..=64 {
            let now = since + Duration::from_nanos(1000 * number);
            choice.learn(65536, Way::Bounce, since, now);
        }
        assert_eq!(choice.classes[Choice::class(65536)].better(), Way::Bounce);
    }

    #[test]
    fn messages_that_are_complete_together_share_their_time() {
        let mut mean = Mean::default();
        for _ in 0..100 {
            mean.add(Duration::from_nanos(8000));
            (0..7).for_each(|_| mean.add(Duration::ZERO));
        }
        let nanos = mean.nanos();
        assert!((500.0..1500.0).contains(&nanos), "{nanos}");
    }

    #[test]
    fn sizes_learn_apart() {
        assert_ne!(Choice::class(16 << 10), Choice::class(64 << 10));
        assert_eq!(Choice::class(1), Choice::class(4096));
        assert!(Choice::class(usize::MAX) < CLASSES);
    }
}
