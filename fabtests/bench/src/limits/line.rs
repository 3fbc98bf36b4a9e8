//! Words that one core stores and the other polls: the round trip of a cache line, and the limit of
//! a put.

use std::sync::atomic::{AtomicU64, Ordering};

use super::shared::Layout;
use crate::machine::cpu::Idle;
use crate::measure::clock::Clock;
use crate::measure::timing::{Counts, Timing, round_trips};
use crate::pair::Side;

/// One process's view of the words that both poll.
#[derive(Debug)]
pub(super) struct LinePingpong<'a> {
    /// The word that the other process stores.
    polled: &'a AtomicU64,
    /// The word that the other process polls.
    stored: &'a AtomicU64,
    idle: Idle,
    /// Value of the word before the active process stores. Both processes count the same turns.
    turn: u64,
}

impl<'a> LinePingpong<'a> {
    /// Uses one line for both directions. The poller fetches the line from the core that has just
    /// stored, and already owns the line for its own store: on some machines the line travels once
    /// per direction.
    pub(super) fn shared(layout: &'a Layout, idle: Idle) -> Self {
        Self::new(&layout.line.0, &layout.line.0, idle)
    }

    /// Uses one line per direction, like two processes that put into each other's memory. The
    /// poller fetches the line from the storing core, which has to fetch the line back for its next
    /// store.
    pub(super) fn per_direction(layout: &'a Layout, side: Side, idle: Idle) -> Self {
        let (passive, active) = (&layout.put_to_passive.0, &layout.put_to_active.0);
        match side {
            Side::Active => Self::new(active, passive, idle),
            Side::Passive => Self::new(passive, active, idle),
        }
    }

    fn new(polled: &'a AtomicU64, stored: &'a AtomicU64, idle: Idle) -> Self {
        Self {
            polled,
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

    pub(super) fn respond(&mut self, counts: Counts) {
        for _ in 0..counts.total() {
            self.wait_for(self.turn + 1);
            self.turn += 2;
            self.stored.store(self.turn, Ordering::Release);
        }
    }

    #[inline]
    fn wait_for(&self, value: u64) {
        while self.polled.load(Ordering::Acquire) != value {
            self.idle.wait_between_polls();
        }
    }
}
