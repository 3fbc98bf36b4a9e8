//! Loads of lines that the other core has just written, and additions to them: what a get and an
//! atomic cannot beat.

use std::sync::atomic::Ordering;

use super::shared::{Layout, Line};
use crate::clock::{Clock, ticks};
use crate::cpu::Idle;
use crate::fabric::{LINES, STRIDE};
use crate::timing::{Counts, Timing};

/// A process's hold on the lines.
#[derive(Debug)]
pub(super) struct Loads<'a> {
    lines: &'a [Line; LINES],
    written: &'a Line,
    read: &'a Line,
    idle: Idle,
    /// Turns so far; both processes count alike.
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

    /// Each load waits for the one before, as the bytes of a get are there when it is done.
    pub(super) fn measure(&mut self, clock: Clock, counts: Counts) -> Timing {
        self.touch(clock, counts, |line| line.0.load(Ordering::Acquire))
    }

    /// The same with additions, the smallest part of an atomic.
    pub(super) fn measure_add(&mut self, clock: Clock, counts: Counts) -> Timing {
        self.touch(clock, counts, |line| line.0.fetch_add(1, Ordering::AcqRel))
    }

    fn touch(&mut self, clock: Clock, counts: Counts, touch: impl Fn(&Line) -> u64) -> Timing {
        let mut taken = Vec::new();
        for _ in 0..turns(counts) {
            self.turn += 1;
            self.wait_for(self.written);
            let start = ticks();
            let mut place = 0;
            for _ in 0..LINES {
                let value = touch(&self.lines[place]);
                // Never 0: what was loaded is the turn.
                place = (place + STRIDE + usize::from(value == 0)) % LINES;
            }
            std::hint::black_box(place);
            taken.push(clock.ns(ticks() - start) / LINES as f64);
            self.read.0.store(self.turn, Ordering::Release);
        }
        Timing::of(&taken)
    }

    pub(super) fn answer(&mut self, counts: Counts) {
        for _ in 0..turns(counts) {
            self.turn += 1;
            for line in self.lines {
                line.0.store(self.turn, Ordering::Release);
            }
            self.written.0.store(self.turn, Ordering::Release);
            self.wait_for(self.read);
        }
    }

    fn wait_for(&self, line: &Line) {
        while line.0.load(Ordering::Acquire) < self.turn {
            self.idle.pause();
        }
    }
}

fn turns(counts: Counts) -> usize {
    (counts.total() / LINES).max(8)
}
