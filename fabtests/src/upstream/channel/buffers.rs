//! The memory of one direction of a channel.

use std::ops::Range;

use selvedge_testkit::domain::{Block, DomainContext};

use super::config::{CONTROL, ChannelConfig};
use crate::upstream::data::payload::CANARY;

/// Maximum memory of all slots of one direction, unless a single message needs more.
const MAX_SLOT_MEMORY: usize = 64 << 20;

/// The memory of one direction: two preposted buffers, then the slots.
#[derive(Clone, Debug)]
pub(super) struct Buffers {
    pub(super) block: Block,
    /// The size of a preposted buffer, with its canaries.
    pub(super) preposted_size: usize,
    /// The size of a slot, with its canaries.
    slot_size: usize,
    pub(super) slot_count: usize,
    /// For each preposted buffer, the number of the receive that was posted last into it, and how
    /// many bytes were poisoned then.
    posted: [(u64, usize); 2],
    /// How many bytes of a preposted buffer the next post poisons.
    pub(super) poison_size: usize,
}

impl Buffers {
    pub(super) fn new(domain: &DomainContext, config: &ChannelConfig) -> anyhow::Result<Self> {
        let preposted_size = slot_size(config.largest);
        let slot_memory = match config.window {
            0 => 0,
            window => ((window + 1) * preposted_size).min(MAX_SLOT_MEMORY.max(2 * preposted_size)),
        };
        Ok(Self {
            block: domain.buffers(2 * preposted_size + slot_memory)?,
            preposted_size,
            slot_size: preposted_size,
            slot_count: slot_memory / preposted_size,
            posted: [(0, 0); 2],
            poison_size: preposted_size - 2 * CANARY,
        })
    }

    /// Divides the memory behind the preposted buffers into slots for messages of `size` bytes, at
    /// most one more than the window.
    pub(super) fn lay_out(&mut self, size: usize, window: usize) {
        self.slot_size = slot_size(size);
        self.poison_size = self.slot_size - 2 * CANARY;
        let slot_memory = self.block.memory.len() - 2 * self.preposted_size;
        self.slot_count = (slot_memory / self.slot_size).min(window + 1);
    }

    /// The range of a preposted buffer between its canaries.
    pub(super) fn preposted(&self, index: usize) -> Range<usize> {
        let at = index * self.preposted_size + CANARY;
        at..at + self.preposted_size - 2 * CANARY
    }

    /// The index of the preposted buffer into which receive `number` was posted.
    fn index(&self, number: u64) -> usize {
        usize::from(self.posted[1].0 == number)
    }

    /// Selects the preposted buffer for receive `number`: the one that the last receive did not
    /// use.
    pub(super) fn next_preposted(&mut self, number: u64) -> Range<usize> {
        let index = usize::from(self.posted[0] >= self.posted[1]);
        self.posted[index] = (number, self.poison_size);
        self.preposted(index)
    }

    /// The preposted buffer of receive `number`.
    pub(super) fn preposted_of(&self, number: u64) -> Range<usize> {
        self.preposted(self.index(number))
    }

    /// The part of receive `number`'s preposted buffer that was poisoned by its post.
    pub(super) fn poisoned(&self, number: u64) -> Range<usize> {
        let index = self.index(number);
        let at = self.preposted(index).start;
        at..at + self.posted[index].1
    }

    /// The slot of message `number`, between its canaries.
    pub(super) fn slot_of(&self, number: u64) -> Range<usize> {
        let slot_count = self.slot_count.max(1) as u64;
        let at = 2 * self.preposted_size + (number % slot_count) as usize * self.slot_size + CANARY;
        at..at + self.slot_size - 2 * CANARY
    }
}

/// The size of a slot for messages of `size` bytes: the message, or a control message if that is
/// larger, in whole cache lines, and two canaries.
fn slot_size(size: usize) -> usize {
    size.max(CONTROL).next_multiple_of(64) + 2 * CANARY
}
