//! Receive buffers of an engine, and which of them are posted.

#![expect(unsafe_code, reason = "buffers are posted whole and lent whole")]

use std::collections::VecDeque;
use std::sync::Arc;

use selvedge::Errno;

use super::Mark;
use crate::net::Net;
use crate::recv::{Buffer, Part};

/// Messages that each fabric takes before the next look at it; more wait with the provider.
const COUNT: usize = 64;
/// Buffers that are lent and looked at again.
const LENT: usize = 64;

/// All buffers; the number of one is its index.
#[derive(Debug, Default)]
pub(super) struct Receives {
    slots: Vec<Slot>,
    /// Those that came back and are not posted again.
    idle: Vec<usize>,
    /// Buffers that were lent when their slots needed one; the oldest first.
    lent: VecDeque<Arc<Buffer>>,
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
                let buffer = Arc::new(Buffer::new());
                receives.idle.push(receives.slots.len());
                receives.slots.push(Slot { buffer, net });
            }
        }
        receives.post_idle(nets)?;
        Ok(receives)
    }

    /// A message that has come, for as long as its buffer is not posted again; `None` if it is none.
    #[inline]
    pub(super) fn message(&self, net: usize, index: usize, len: usize) -> Option<&[u8]> {
        let slot = self.slots.get(index).filter(|slot| slot.net == net)?;
        // SAFETY: the completion says so; the buffer is posted again by this table alone, which is
        // borrowed.
        unsafe { slot.buffer.message(len) }
    }

    /// As [`Self::message`], for as long as one likes.
    pub(super) fn part(&self, net: usize, index: usize, len: usize) -> Option<Part> {
        let slot = self.slots.get(index).filter(|slot| slot.net == net)?;
        // SAFETY: the completion says so; `renew` sees to it that nobody else has what is posted.
        unsafe { Part::new(&slot.buffer, len) }
    }

    /// Notes that a buffer has come back.
    #[inline]
    pub(super) fn returned(&mut self, index: usize) {
        if index < self.slots.len() {
            self.idle.push(index);
        }
    }

    /// Posts what has come back.
    #[inline]
    pub(super) fn repost(&mut self, nets: &[Net]) {
        if !self.idle.is_empty() {
            // What has failed is tried again by the next poll.
            let _ = self.post_idle(nets);
        }
    }

    fn post_idle(&mut self, nets: &[Net]) -> selvedge::Result {
        while let Some(index) = self.idle.pop() {
            let posted = self.post_one(nets, index);
            if posted.is_err() {
                self.idle.push(index);
                return posted;
            }
        }
        Ok(())
    }

    fn post_one(&mut self, nets: &[Net], index: usize) -> Result<(), Errno> {
        self.renew(index);
        let slot = &self.slots[index];
        // SAFETY: it has come back, or was never posted; nobody but this table has it, which the
        // engine drops after its fabrics.
        unsafe { nets[slot.net].take_into(&slot.buffer, Mark::Buffer(index).context()) }
    }

    /// Gives a slot another buffer if its own is lent.
    #[inline]
    fn renew(&mut self, index: usize) {
        if Arc::get_mut(&mut self.slots[index].buffer).is_none() {
            let spare = self.spare();
            let lent = std::mem::replace(&mut self.slots[index].buffer, spare);
            self.lent.push_back(lent);
        }
    }

    /// A buffer that nobody has.
    #[cold]
    fn spare(&mut self) -> Arc<Buffer> {
        if let Some(mut oldest) = self.lent.pop_front() {
            if Arc::get_mut(&mut oldest).is_some() {
                return oldest;
            }
            // Somebody keeps it for long: others may be given back before.
            if self.lent.len() < LENT {
                self.lent.push_back(oldest);
            }
        }
        Arc::new(Buffer::new())
    }
}
