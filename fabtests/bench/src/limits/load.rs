//! Loads of lines that the other core has just written, and additions to them: the limits of a get
//! and an atomic.

use std::sync::atomic::Ordering;

use super::shared::{CacheLine, Layout};
use crate::clock::{Clock, ticks};
use crate::cpu::Idle;
use crate::fabric::{LINES, STRIDE};
use crate::timing::{Counts, Timing};

/// One process's view of the lines.
#[derive(Debug)]
pub(super) struct Loads<'a> {
    lines: &'a [CacheLine; LINES],
    written: &'a CacheLine,
    read: &'a CacheLine,
    idle: Idle,
    /// Turns so far. Both processes count alike.
    turn: u64,
}

impl<'a> Loads<'a> {
    pub(super) fn new(layout: &'a Layout, idle: Idle) -> Self {
        Self {
            lines: &layout.lines,
            written: &layout.lines_written,
            read: &layout.lines_read,
            idle,
            turn: 0,
        }
    }

    /// Each load depends on the one before, as the bytes of a get have arrived when it completes.
    pub(super) fn measure(&mut self, clock: Clock, counts: Counts) -> Timing {
        self.touch(clock, counts, |line| line.0.load(Ordering::Acquire))
    }

    /// As [`Self::measure`] with additions, the smallest part of an atomic.
    pub(super) fn measure_add(&mut self, clock: Clock, counts: Counts) -> Timing {
        self.touch(clock, counts, |line| line.0.fetch_add(1, Ordering::AcqRel))
    }

    fn touch(&mut self, clock: Clock, counts: Counts, touch: impl Fn(&CacheLine) -> u64) -> Timing {
        let mut taken = Vec::new();
        for _ in 0..turns(counts) {
            self.turn += 1;
            self.wait_for(self.written);
            let start = ticks();
            let mut index = 0;
            for _ in 0..LINES {
                let value = touch(&self.lines[index]);
                // The value is the turn, which is never 0.
                index = (index + STRIDE + usize::from(value == 0)) % LINES;
            }
            std::hint::black_box(index);
            taken.push(clock.ns(ticks() - start) / LINES as f64);
            self.read.0.store(self.turn, Ordering::Release);
        }
        Timing::of(&taken)
    }

    pub(super) fn respond(&mut self, counts: Counts) {
        for _ in 0..turns(counts) {
            self.turn += 1;
            for line in self.lines {
                line.0.store(self.turn, Ordering::Release);
            }
            self.written.0.store(self.turn, Ordering::Release);
            self.wait_for(self.read);
        }
    }

    fn wait_for(&self, line: &CacheLine) {
        while line.0.load(Ordering::Acquire) < self.turn {
            self.idle.pause();
        }
    }
}

fn turns(counts: Counts) -> usize {
    (counts.total() / LINES).max(8)
}
