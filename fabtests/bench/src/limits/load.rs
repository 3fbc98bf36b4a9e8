//! Loads of lines that the other core has just written, and additions to them: the limits of a get
//! and an atomic.

use std::sync::atomic::Ordering;

use super::shared::{CacheLine, Layout};
use crate::fabric::{LINES, STRIDE};
use crate::machine::cpu::Idle;
use crate::measure::clock::{Clock, ticks};
use crate::measure::timing::{Counts, Timing};

/// One process's view of the lines.
#[derive(Debug)]
pub(super) struct Loads<'a> {
    lines: &'a [CacheLine; LINES],
    written: &'a CacheLine,
    read: &'a CacheLine,
    idle: Idle,
    /// Number of turns so far. Both processes count the same turns.
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

    /// Measures loads. Each load depends on the previous one, because the bytes of a get have
    /// arrived when the get completes.
    pub(super) fn measure(&mut self, clock: Clock, counts: Counts) -> Timing {
        self.measure_accesses(clock, counts, |line| line.0.load(Ordering::Acquire))
    }

    /// Measures additions as [`Self::measure`] does loads. An addition is the least work of an
    /// atomic.
    pub(super) fn measure_add(&mut self, clock: Clock, counts: Counts) -> Timing {
        self.measure_accesses(clock, counts, |line| line.0.fetch_add(1, Ordering::AcqRel))
    }

    fn measure_accesses(
        &mut self,
        clock: Clock,
        counts: Counts,
        access: impl Fn(&CacheLine) -> u64,
    ) -> Timing {
        let mut means = Vec::new();
        for _ in 0..turn_count(counts) {
            self.turn += 1;
            self.wait_for(self.written);
            let start = ticks();
            let mut index = 0;
            for _ in 0..LINES {
                let value = access(&self.lines[index]);
                // The value is the turn, which is never 0.
                index = (index + STRIDE + usize::from(value == 0)) % LINES;
            }
            std::hint::black_box(index);
            means.push(clock.ns(ticks() - start) / LINES as f64);
            self.read.0.store(self.turn, Ordering::Release);
        }
        Timing::from_means(&means)
    }

    pub(super) fn respond(&mut self, counts: Counts) {
        for _ in 0..turn_count(counts) {
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
            self.idle.wait_between_polls();
        }
    }
}

/// Number of turns for the round trips of `counts`: at least eight.
fn turn_count(counts: Counts) -> usize {
    (counts.total() / LINES).max(8)
}
