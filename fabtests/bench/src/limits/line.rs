//! Words that are stored by one core and seen by the other: a cache line's round trip, and what a put
//! cannot beat.

use std::sync::atomic::{AtomicU64, Ordering};

use super::shared::Layout;
use crate::clock::Clock;
use crate::cpu::Idle;
use crate::pair::Side;
use crate::timing::{Counts, Timing, round_trips};

/// A process's hold on what both look at.
#[derive(Debug)]
pub(super) struct Line<'a> {
    /// Where the other process stores.
    seen: &'a AtomicU64,
    /// Where the other process looks.
    stored: &'a AtomicU64,
    idle: Idle,
    /// What the word says when it is the active process's turn; both processes count alike.
    turn: u64,
}

impl<'a> Line<'a> {
    /// One line that is handed to and fro. Whoever looks at it gets it from who has just stored, and
    /// has it to itself when it answers: on some machines it travels once for each way.
    pub(super) fn shared(layout: &'a Layout, idle: Idle) -> Self {
        Self::new(&layout.line.0, &layout.line.0, idle)
    }

    /// A line for each way, as the windows of two processes that put are: the one that looks takes
    /// it from the one that stores, which has to take it back for the next store.
    pub(super) fn each_way(layout: &'a Layout, side: Side, idle: Idle) -> Self {
        let (passive, active) = (&layout.put_to_passive.0, &layout.put_to_active.0);
        match side {
            Side::Active => Self::new(active, passive, idle),
            Side::Passive => Self::new(passive, active, idle),
        }
    }

    fn new(seen: &'a AtomicU64, stored: &'a AtomicU64, idle: Idle) -> Self {
        Self {
            seen,
            stored,
            idle,
            turn: 0,
        }
    }

    pub(super) fn measure(&mut self, clock: Clock, counts: Counts) -> anyhow::Result<Timing> {
        round_trips(clock, counts, || {
            self.stored.store(self.turn + 1, Ordering::Release);
            self.turn += 2;
            self.wait_for(self.turn);
            Ok(())
        })
    }

    pub(super) fn answer(&mut self, counts: Counts) {
        for _ in 0..counts.total() {
            self.wait_for(self.turn + 1);
            self.turn += 2;
            self.stored.store(self.turn, Ordering::Release);
        }
    }

    #[inline]
    fn wait_for(&self, value: u64) {
        while self.seen.load(Ordering::Acquire) != value {
            self.idle.pause();
        }
    }
}
