//! The memory of one direction of a channel.

use std::ops::Range;

use selvedge_testkit::domain::{Block, DomainContext};

use super::{CONTROL, ChannelConfig};
use crate::upstream::payload::CANARY;

/// Maximum memory of all slots of one direction.
const SLOTS: usize = 64 << 20;

/// The memory of one direction: two preposted buffers, then the slots.
#[derive(Clone, Debug)]
pub(super) struct Buffers {
    pub(super) block: Block,
    pub(super) preposted_size: usize,
    slot: usize,
    pub(super) slots: usize,
    /// For each preposted buffer, the number of its last receive, and how many bytes were poisoned.
    posted: [(u64, usize); 2],
    /// How many bytes of the next one are poisoned.
    pub(super) size: usize,
}

impl Buffers {
    pub(super) fn new(domain: &DomainContext, config: &ChannelConfig) -> anyhow::Result<Self> {
        let preposted_size = slot_size(config.largest);
        let window = match config.window {
            0 => 0,
            window => ((window + 1) * preposted_size).min(SLOTS.max(2 * preposted_size)),
        };
        Ok(Self {
            block: domain.buffers(2 * preposted_size + window)?,
            preposted_size,
            slot: preposted_size,
            slots: window / preposted_size,
            posted: [(0, 0); 2],
            size: preposted_size - 2 * CANARY,
        })
    }

    /// Divides the memory into slots for messages of a size.
    pub(super) fn lay_out(&mut self, size: usize, window: usize) {
        self.slot = slot_size(size);
        self.size = self.slot - 2 * CANARY;
        self.slots =
            ((self.block.memory.len() - 2 * self.preposted_size) / self.slot).min(window + 1);
    }

    pub(super) fn preposted(&self, index: usize) -> Range<usize> {
        let at = index * self.preposted_size + CANARY;
        at..at + self.preposted_size - 2 * CANARY
    }

    /// The index of the preposted buffer of a receive.
    fn index(&self, number: u64) -> usize {
        usize::from(self.posted[1].0 == number)
    }

    /// The preposted buffer of the next receive: not the one that was posted last.
    pub(super) fn next_preposted(&mut self, number: u64) -> Range<usize> {
        let index = usize::from(self.posted[0] >= self.posted[1]);
        self.posted[index] = (number, self.size);
        self.preposted(index)
    }

    pub(super) fn preposted_of(&self, number: u64) -> Range<usize> {
        self.preposted(self.index(number))
    }

    /// The poisoned part of a preposted buffer.
    pub(super) fn poisoned(&self, number: u64) -> Range<usize> {
        let index = self.index(number);
        let at = self.preposted(index).start;
        at..at + self.posted[index].1
    }

    pub(super) fn at_slot(&self, number: u64) -> Range<usize> {
        let slots = self.slots.max(1) as u64;
        let at = 2 * self.preposted_size + (number % slots) as usize * self.slot + CANARY;
        at..at + self.slot - 2 * CANARY
    }
}

/// The size of a slot: a message and its canaries, in whole cache lines.
fn slot_size(size: usize) -> usize {
    size.max(CONTROL).next_multiple_of(64) + 2 * CANARY
}
