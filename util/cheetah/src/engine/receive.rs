//! Receive buffers of an engine, and which of them are posted.

#![expect(unsafe_code, reason = "buffers are posted whole and lent in parts")]

use std::sync::Arc;

use selvedge::cq::Entry;
use selvedge::{CompletionFlags, Errno};

use super::Mark;
use crate::net::Net;
use crate::recv::{Buffer, Part};

/// Buffers that each fabric has at first.
const COUNT: usize = 2;

/// All buffers; the number of one is its index.
#[derive(Debug, Default)]
pub(super) struct Receives {
    slots: Vec<Slot>,
    /// Those that came back and are not posted again.
    idle: Vec<usize>,
}

#[derive(Debug)]
struct Slot {
    buffer: Arc<Buffer>,
    net: usize,
}

impl Receives {
    pub(super) fn post(nets: &[Net]) -> selvedge::Result<Self> {
        let mut receives = Self::default();
        for net in 0..nets.len() {
            for _ in 0..COUNT {
                receives.add(nets, net)?;
            }
        }
        Ok(receives)
    }

    /// A message that has come: its part of the buffer; `None` if the entry brings none.
    #[inline]
    pub(super) fn received(&mut self, net: usize, index: usize, entry: &Entry) -> Option<Part> {
        let slot = self.slots.get(index).filter(|slot| slot.net == net)?;
        // SAFETY: the completion says so; `repost` waits until no part is lent.
        let part = unsafe { Buffer::part(&slot.buffer, entry.buf, entry.len) };
        self.returned(net, index, entry);
        part
    }

    /// Notes whether the buffer has come back.
    pub(super) fn returned(&mut self, net: usize, index: usize, entry: &Entry) {
        let is_known = self.slots.get(index).is_some_and(|slot| slot.net == net);
        if is_known && entry.flags.contains(CompletionFlags::MULTI_RECV) {
            self.idle.push(index);
        }
    }

    /// Posts what has come back and is read; a new one in place of what is still being read.
    #[inline]
    pub(super) fn repost(&mut self, nets: &[Net]) {
        if !self.idle.is_empty() {
            self.repost_idle(nets);
        }
    }

    #[cold]
    fn repost_idle(&mut self, nets: &[Net]) {
        let mut still = Vec::new();
        for index in std::mem::take(&mut self.idle) {
            let slot = &self.slots[index];
            let is_read = Arc::strong_count(&slot.buffer) == 1;
            // SAFETY: the buffer has come back, and nobody but this table has it.
            let is_posted =
                is_read && unsafe { post(&nets[slot.net], &slot.buffer, index) }.is_ok();
            if !is_posted {
                still.push(index);
            }
        }
        self.idle = still;
        for net in 0..nets.len() {
            let all = self.slots.iter().filter(|slot| slot.net == net).count();
            let idle = self
                .idle
                .iter()
                .filter(|&&index| self.slots[index].net == net);
            if all == idle.count() {
                // A failure is tried again at the next message's end, or by the next poll.
                let _ = self.add(nets, net);
            }
        }
    }

    fn add(&mut self, nets: &[Net], net: usize) -> selvedge::Result {
        let index = self.slots.len();
        let buffer = Arc::new(Buffer::new());
        // SAFETY: it is new, and is kept in the table, which the engine drops after its fabrics.
        unsafe { post(&nets[net], &buffer, index) }?;
        self.slots.push(Slot { buffer, net });
        Ok(())
    }
}

/// # Safety
/// As [`Net::take_into`].
unsafe fn post(net: &Net, buffer: &Buffer, index: usize) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    unsafe { net.take_into(buffer, Mark::Buffer(index).context()) }
}
