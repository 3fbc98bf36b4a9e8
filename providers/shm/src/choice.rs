//! Which way a large message takes: learnt per peer and size class from what was fastest.
//!
//! No fixed threshold is right: whether one copy through the kernel or two through shared cache
//! lines is faster depends on the processors, on how far apart they are, and on the size. So the
//! receiver measures both ways and takes the better one, and tries the other now and then in case
//! the world has changed.

use std::time::Duration;

/// A way for the bytes of a large message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The receiver copies from the sender's memory.
    Cma,
    /// Both copy, through bounce segments.
    Bounce,
}

/// What was learnt about one peer.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    classes: [Class; CLASSES],
}

#[derive(Clone, Copy, Debug)]
struct Class {
    /// Nanoseconds per message, smoothed; 0 where nothing was measured.
    cma: f32,
    bounce: f32,
    /// Messages seen.
    seen: u32,
}

/// Powers of two from 4 KiB up; the last class takes everything beyond.
const CLASSES: usize = 16;
/// Messages of a run over one way. The first of a run is not measured: the sender prepares for the
/// way that the message before took.
const RUN: u32 = 4;
/// Between two trials of the slower way.
const TRIAL_INTERVAL: u32 = 512;

impl Choice {
    /// The class of a size.
    pub(crate) fn class(len: usize) -> usize {
        let pages = (len >> 12).max(1);
        (pages.ilog2() as usize).min(CLASSES - 1)
    }

    /// The way for the next message of `len` bytes.
    pub(crate) fn next(&mut self, len: usize) -> Way {
        let class = &mut self.classes[Self::class(len)];
        let turn = class.seen;
        class.seen = class.seen.wrapping_add(1);
        match class.trial(turn) {
            Some(way) => way,
            None => class.better(),
        }
    }

    /// Learns how long a message took from its match to its completion.
    pub(crate) fn learn(&mut self, len: usize, way: Way, took: Duration) {
        let class = &mut self.classes[Self::class(len)];
        if class.seen % RUN == 1 {
            return;
        }
        let took = (took.as_nanos() as f32).max(1.0);
        let known = match way {
            Way::Cma => &mut class.cma,
            Way::Bounce => &mut class.bounce,
        };
        // A better time counts at once: the slower ones were disturbed.
        *known = match *known {
            0.0 => took,
            before if took < before => before * 0.5 + took * 0.5,
            before => before * 0.9 + took.min(before * 4.0) * 0.1,
        };
    }
}

impl Class {
    /// The way to try in this turn, if it is one for trying.
    fn trial(&self, turn: u32) -> Option<Way> {
        match turn {
            _ if turn < RUN => Some(Way::Bounce),
            _ if turn < 2 * RUN => Some(Way::Cma),
            _ if turn % TRIAL_INTERVAL < RUN => Some(self.worse()),
            _ => None,
        }
    }

    fn better(&self) -> Way {
        if self.bounce < self.cma {
            Way::Bounce
        } else {
            Way::Cma
        }
    }

    fn worse(&self) -> Way {
        match self.better() {
            Way::Cma => Way::Bounce,
            Way::Bounce => Way::Cma,
        }
    }
}

impl Default for Choice {
    fn default() -> Self {
        let class = Class {
            cma: 0.0,
            bounce: 0.0,
            seen: 0,
        };
        Self {
            classes: [class; CLASSES],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends `count` messages that take the given times; how many were bounced.
    fn run(choice: &mut Choice, count: u32, cma: u64, bounce: u64) -> u32 {
        let mut bounced = 0;
        for _ in 0..count {
            let way = choice.next(65536);
            let took = match way {
                Way::Cma => cma,
                Way::Bounce => bounce,
            };
            bounced += u32::from(way == Way::Bounce);
            choice.learn(65536, way, Duration::from_nanos(took));
        }
        bounced
    }

    #[test]
    fn the_faster_way_is_taken() {
        let mut choice = Choice::default();
        assert!(run(&mut choice, 1000, 5000, 2000) > 950);
        let mut choice = Choice::default();
        assert!(run(&mut choice, 1000, 2000, 5000) < 50);
    }

    #[test]
    fn a_change_of_the_world_is_noticed() {
        let mut choice = Choice::default();
        run(&mut choice, 1000, 5000, 2000);
        run(&mut choice, 2000, 1000, 8000);
        assert!(run(&mut choice, 1000, 1000, 8000) < 50);
    }

    #[test]
    fn sizes_learn_apart() {
        assert_ne!(Choice::class(16 << 10), Choice::class(64 << 10));
        assert_eq!(Choice::class(1), Choice::class(4096));
        assert!(Choice::class(usize::MAX) < CLASSES);
    }
}
