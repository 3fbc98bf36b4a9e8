//! Receive buffers of an engine.

#![expect(unsafe_code, reason = "buffers are posted and borrowed whole")]

use std::collections::VecDeque;
use std::sync::Arc;

use selvedge::Errno;

use super::completion::CompletionKind;
use crate::net::Net;
use crate::net::recv::{Buffer, BufferedMessage};

/// Number of receives that are posted to each fabric. Further messages wait in the provider.
const POSTED_PER_NET: usize = 64;
/// Maximum number of replaced buffers that are kept for reuse.
const IN_USE_MAX: usize = 64;

/// The receive buffers of all fabrics. A completion names a buffer by the index of its slot.
#[derive(Debug, Default)]
pub(crate) struct Receives {
    slots: Vec<Slot>,
    /// Indices of the slots whose buffers are not posted.
    idle: Vec<usize>,
    /// Buffers that were replaced because they were still in use when their slots were posted
    /// again; the oldest first.
    in_use: VecDeque<Arc<Buffer>>,
}

#[derive(Debug)]
struct Slot {
    buffer: Arc<Buffer>,
    net: usize,
}

impl Receives {
    pub(crate) fn post(nets: &[Net]) -> selvedge::Result<Self> {
        let mut receives = Self::default();
        for net in 0..nets.len() {
            for _ in 0..POSTED_PER_NET {
                let buffer = Arc::new(Buffer::new());
                receives.idle.push(receives.slots.len());
                receives.slots.push(Slot { buffer, net });
            }
        }
        receives.post_idle(nets)?;
        Ok(receives)
    }

    /// A received message, borrowed until its buffer is posted again; `None` for an invalid index
    /// or length.
    #[inline]
    pub(crate) fn message(&self, net: usize, index: usize, len: usize) -> Option<&[u8]> {
        let slot = self.slots.get(index).filter(|slot| slot.net == net)?;
        // SAFETY: the caller has read the message's completion. Only this table posts the buffer
        // again, and the table is borrowed as long as the message.
        unsafe { slot.buffer.message(len) }
    }

    /// As [`Self::message`], with shared ownership of the buffer.
    pub(crate) fn shared_message(
        &self,
        net: usize,
        index: usize,
        len: usize,
    ) -> Option<BufferedMessage> {
        let slot = self.slots.get(index).filter(|slot| slot.net == net)?;
        // SAFETY: the caller has read the message's completion. `renew` ensures that a posted
        // buffer has no other owner.
        unsafe { BufferedMessage::new(&slot.buffer, len) }
    }

    /// Marks a buffer as idle after its completion.
    #[inline]
    pub(crate) fn mark_idle(&mut self, index: usize) {
        if index < self.slots.len() {
            self.idle.push(index);
        }
    }

    /// Posts the idle buffers.
    #[inline]
    pub(crate) fn repost(&mut self, nets: &[Net]) {
        if !self.idle.is_empty() {
            // The next poll retries a failed post.
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
        // SAFETY: the buffer is idle and has no other owner than this table, which the engine drops
        // after its fabrics.
        unsafe { nets[slot.net].post_recv(&slot.buffer, CompletionKind::Buffer(index).context()) }
    }

    /// Replaces the buffer of a slot if a reader still owns it.
    #[inline]
    fn renew(&mut self, index: usize) {
        if Arc::get_mut(&mut self.slots[index].buffer).is_none() {
            let spare = self.spare();
            let replaced = std::mem::replace(&mut self.slots[index].buffer, spare);
            self.in_use.push_back(replaced);
        }
    }

    /// A buffer without another owner.
    #[cold]
    fn spare(&mut self) -> Arc<Buffer> {
        if let Some(mut oldest) = self.in_use.pop_front() {
            if Arc::get_mut(&mut oldest).is_some() {
                return oldest;
            }
            // The buffers after it may be released earlier, so it goes to the end.
            if self.in_use.len() < IN_USE_MAX {
                self.in_use.push_back(oldest);
            }
        }
        Arc::new(Buffer::new())
    }
}
