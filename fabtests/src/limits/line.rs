//! The cache line's round trip: one word, stored by one core and seen by the other, and back.

use std::sync::atomic::{AtomicU64, Ordering};

use super::shared::Layout;
use crate::clock::Clock;
use crate::cpu::Idle;
use crate::timing::{Counts, Timing, round_trips};

/// A process's hold on the line.
#[derive(Debug)]
pub(super) struct Line<'a> {
    word: &'a AtomicU64,
    idle: Idle,
    /// What the word says when it is the active process's turn; both processes count alike.
    turn: u64,
}

impl<'a> Line<'a> {
    pub(super) fn new(layout: &'a Layout, idle: Idle) -> Self {
        Self {
            word: &layout.line.0,
            idle,
            turn: 0,
        }
    }

    pub(super) fn measure(&mut self, clock: Clock, counts: Counts) -> anyhow::Result<Timing> {
        round_trips(clock, counts, || {
            self.word.store(self.turn + 1, Ordering::Release);
            self.turn += 2;
            self.wait_for(self.turn);
            Ok(())
        })
    }

    pub(super) fn answer(&mut self, counts: Counts) {
        for _ in 0..counts.total() {
            self.wait_for(self.turn + 1);
            self.turn += 2;
            self.word.store(self.turn, Ordering::Release);
        }
    }

    #[inline]
    fn wait_for(&self, value: u64) {
        while self.word.load(Ordering::Acquire) != value {
            self.idle.pause();
        }
    }
}
