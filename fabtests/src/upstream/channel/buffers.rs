//! The memory of one direction of a channel.

use std::ops::Range;

use selvedge_testkit::domain::{Block, DomainContext};

use super::{CONTROL, ChannelConfig};
use crate::upstream::payload::CANARY;

/// Maximum memory of all slots of one direction.
const SLOTS: usize = 64 << 20;

/// The memory of one direction: two standing buffers, then the slots.
#[derive(Clone, Debug)]
pub(super) struct Buffers {
    pub(super) block: Block,
    pub(super) standing: usize,
    slot: usize,
    pub(super) slots: usize,
    /// For each standing buffer, the number of its last receive, and how many bytes were poisoned.
    posted: [(u64, usize); 2],
    /// How many bytes of the next one are poisoned.
    pub(super) size: usize,
}

impl Buffers {
    pub(super) fn new(domain: &DomainContext, config: &ChannelConfig) -> anyhow::Result<Self> {
        let standing = slot_size(config.largest);
        let window = match config.window {
            0 => 0,
            window => ((window + 1) * standing).min(SLOTS.max(2 * standing)),
        };
        Ok(Self {
            block: domain.buffers(2 * standing + window)?,
            standing,
            slot: standing,
            slots: window / standing,
            posted: [(0, 0); 2],
            size: standing - 2 * CANARY,
        })
    }

    /// Divides the memory into slots for messages of a size.
    pub(super) fn lay_out(&mut self, size: usize, window: usize) {
        self.slot = slot_size(size);
        self.size = self.slot - 2 * CANARY;
        self.slots = ((self.block.memory.len() - 2 * self.standing) / self.slot).min(window + 1);
    }

    pub(super) fn standing(&self, index: usize) -> Range<usize> {
        let at = index * self.standing + CANARY;
        at..at + self.standing - 2 * CANARY
    }

    /// The index of the standing buffer of a receive.
    fn index(&self, number: u64) -> usize {
        usize::from(self.posted[1].0 == number)
    }

    /// The standing buffer of the next receive: not the one that was posted last.
    pub(super) fn next_standing(&mut self, number: u64) -> Range<usize> {
        let index = usize::from(self.posted[0] >= self.posted[1]);
        self.posted[index] = (number, self.size);
        self.standing(index)
    }

    pub(super) fn standing_of(&self, number: u64) -> Range<usize> {
        self.standing(self.index(number))
    }

    /// The poisoned part of a standing buffer.
    pub(super) fn poisoned(&self, number: u64) -> Range<usize> {
        let index = self.index(number);
        let at = self.standing(index).start;
        at..at + self.posted[index].1
    }

    pub(super) fn at_slot(&self, number: u64) -> Range<usize> {
        let slots = self.slots.max(1) as u64;
        let at = 2 * self.standing + (number % slots) as usize * self.slot + CANARY;
        at..at + self.slot - 2 * CANARY
    }
}

/// The size of a slot: a message and its canaries, in whole cache lines.
fn slot_size(size: usize) -> usize {
    size.max(CONTROL).next_multiple_of(64) + 2 * CANARY
}
