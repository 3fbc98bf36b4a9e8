//! Single gets and atomics: each completes before the next begins. Small gets and atomics access
//! lines that the target has just written, each line once per turn.

use std::sync::atomic::Ordering;

use super::{DATA, LINES, Run, STRIDE, TURNS};
use crate::measure::clock::{Clock, ticks};
use crate::measure::timing::{Counts, Timing, round_trips};
use crate::pair::Side;

impl Run<'_> {
    /// Runs one side of consecutive gets of one size.
    pub(super) fn gets(
        &mut self,
        side: Side,
        clock: Clock,
        counts: Counts,
    ) -> anyhow::Result<Timing> {
        match side {
            Side::Active => round_trips(clock, counts, || self.get(DATA)),
            Side::Passive => Ok(Timing::default()),
        }
    }

    /// Runs one side of consecutive accesses to lines that the target has just written.
    pub(super) fn line_turns(
        &mut self,
        side: Side,
        clock: Clock,
        counts: Counts,
        access: fn(&mut Self, usize) -> anyhow::Result<()>,
    ) -> anyhow::Result<Timing> {
        let turns = (counts.total() / LINES).max(8) as u64;
        let first = self.region.word(TURNS).load(Ordering::Acquire);
        self.synchronise()?;
        let mut means = Vec::new();
        for turn in first + 1..=first + turns {
            match side {
                Side::Active => {
                    self.wait_for(turn);
                    let start = ticks();
                    for line in 0..LINES {
                        access(self, DATA + line * STRIDE % LINES * 64)?;
                    }
                    means.push(clock.ns(ticks() - start) / LINES as f64);
                    self.store_remote_word(TURNS, turn)?;
                }
                Side::Passive => {
                    for line in 0..LINES {
                        self.region
                            .word(DATA + line * 64)
                            .store(turn, Ordering::Release);
                    }
                    self.store_remote_word(TURNS, turn)?;
                    self.wait_for(turn);
                }
            }
        }
        Ok(Timing::from_means(&means))
    }

    fn wait_for(&self, turn: u64) {
        while self.region.word(TURNS).load(Ordering::Acquire) < turn {
            self.idle.wait_between_polls();
        }
    }
}
