//! The memory of one direction of a channel.

use std::ops::Range;

use selvedge_testkit::domain::{Block, DomainContext};

use super::{CONTROL, Manners};
use crate::upstream::payload::CANARY;

/// Most memory of all slots of one direction.
const SLOTS: usize = 64 << 20;

/// Memory of one direction: the buffers at rest, then the slots.
#[derive(Clone, Debug)]
pub(super) struct Buffers {
    pub(super) block: Block,
    pub(super) rest: usize,
    slot: usize,
    pub(super) slots: usize,
    /// Which receive each buffer at rest was last posted for, and how much of it was poisoned.
    posted: [(u64, usize); 2],
    /// How much of the next one will be.
    pub(super) size: usize,
}

impl Buffers {
    pub(super) fn new(ground: &DomainContext, manners: &Manners) -> anyhow::Result<Self> {
        let rest = room(manners.largest);
        let window = match manners.window {
            0 => 0,
            window => ((window + 1) * rest).min(SLOTS.max(2 * rest)),
        };
        Ok(Self {
            block: ground.buffers(2 * rest + window)?,
            rest,
            slot: rest,
            slots: window / rest,
            posted: [(0, 0); 2],
            size: rest - 2 * CANARY,
        })
    }

    /// Lays the slots out for messages of a size.
    pub(super) fn lay_out(&mut self, size: usize, window: usize) {
        self.slot = room(size);
        self.size = self.slot - 2 * CANARY;
        self.slots = ((self.block.memory.len() - 2 * self.rest) / self.slot).min(window + 1);
    }

    pub(super) fn rest(&self, which: usize) -> Range<usize> {
        let at = which * self.rest + CANARY;
        at..at + self.rest - 2 * CANARY
    }

    /// Which buffer at rest a receive was posted with.
    fn which(&self, number: u64) -> usize {
        usize::from(self.posted[1].0 == number)
    }

    /// The buffer at rest for the next receive: not the one that was posted last.
    pub(super) fn next_rest(&mut self, number: u64) -> Range<usize> {
        let which = usize::from(self.posted[0] >= self.posted[1]);
        self.posted[which] = (number, self.size);
        self.rest(which)
    }

    pub(super) fn at_rest(&self, number: u64) -> Range<usize> {
        self.rest(self.which(number))
    }

    /// The part of a buffer at rest that was poisoned.
    pub(super) fn poisoned(&self, number: u64) -> Range<usize> {
        let which = self.which(number);
        let at = self.rest(which).start;
        at..at + self.posted[which].1
    }

    pub(super) fn at_slot(&self, number: u64) -> Range<usize> {
        let slots = self.slots.max(1) as u64;
        let at = 2 * self.rest + (number % slots) as usize * self.slot + CANARY;
        at..at + self.slot - 2 * CANARY
    }
}

/// A message with its canaries, in whole lines.
fn room(size: usize) -> usize {
    size.max(CONTROL).next_multiple_of(64) + 2 * CANARY
}
