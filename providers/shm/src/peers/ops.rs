//! `Ops`: the outstanding operations to which a peer has to respond, by `msg_id`.

use std::sync::Arc;

use selvedge::{CompletionFlags, Context, Errno, FiAddr, MrAccess, OpFlags, Result};
use selvedge_kit::copy::{RxBuf, TxBuf};
use selvedge_kit::segments::RmaSegments;
use selvedge_kit::{Ep, Report};

use crate::atomic::OutstandingAtomic;
use crate::provider::shared::Shared;
use crate::smr::bounce::BounceSender;
use crate::smr::keys::Denied;
use crate::transfers::protocol_selector::MessageClass;

/// An operation to which the peer has to respond.
#[derive(Debug)]
pub(crate) struct Op {
    pub(crate) report: Report,
    pub(crate) body: OpBody,
}

/// The stage of an operation.
#[derive(Debug)]
pub(crate) enum OpBody {
    /// The bytes were sent, and the peer has to acknowledge them.
    Sent,
    /// The RTS was sent: the peer copies the bytes from this process, or requests bounce segments.
    Rts {
        buf: TxBuf,
        /// The number of bytes copied into segments so far.
        filled: usize,
        /// Whether the peer has requested the bytes in bounce segments.
        bounced: bool,
        /// Whether the bytes are in special memory.
        special: bool,
        /// Whether the bytes are lent: the peer reads them until it responds.
        is_lent: bool,
        /// The class by which the peer selects the protocol.
        class: MessageClass,
    },
    /// The peer executes an atomic and responds with the result.
    Atomic(OutstandingAtomic),
    /// The peer sends bytes of a read to this buffer.
    Requested { buf: RxBuf },
    /// The peer reads these bytes, which are sent in bounce segments.
    Reply { reply: Reply, filled: usize },
}

impl OpBody {
    fn is_lent(&self) -> bool {
        matches!(self, Self::Rts { is_lent: true, .. })
    }
}

/// Outstanding operations by `msg_id`. A `msg_id` consists of a slot index and a generation, so
/// that a late or forged response does not match a later operation.
#[derive(Debug, Default)]
pub(crate) struct Ops {
    /// The generation of each slot, and its operation.
    slots: Vec<(u16, Option<Op>)>,
    free: Vec<u16>,
    /// The number of operations that wait for bytes of the peer.
    requested: usize,
    /// The number of replies that the peer has not acknowledged.
    replies: usize,
    /// The number of lent messages.
    lent: usize,
}

/// Registered memory that is sent to a peer in bounce segments. The regions are looked up again for
/// each segment.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) domain: Arc<Shared>,
    pub(crate) segments: RmaSegments,
}

impl Reply {
    /// Fills a bounce segment with the bytes from `from` on, of `len` in total. Returns the number
    /// of bytes copied.
    ///
    /// # Errors
    /// The reason why the memory must not be read any more.
    pub(crate) fn fill(
        &self,
        bounce: &mut BounceSender,
        msg_id: u32,
        from: usize,
        len: usize,
    ) -> Result<usize, Denied> {
        let regions = self.domain.keys.regions();
        let size = bounce.shape().size;
        let parts = self.segments.clip(from, size);
        let parts: Result<Vec<_>, _> = parts
            .map(|segment| regions.locate(&segment, MrAccess::REMOTE_READ))
            .collect();
        let parts = parts?;
        Ok(bounce.fill(msg_id, len - from, |segments, mut offset, _| {
            for part in parts {
                segments.copy_from(offset, part);
                offset += part.len();
            }
        }))
    }
}

impl Reply {
    /// Adds the finished read to the counters of the regions.
    pub(crate) fn count_read(&self) {
        let keys = &self.domain.keys;
        keys.count_segments(self.segments.all(), MrAccess::REMOTE_READ);
    }
}

impl Op {
    /// Creates a reply to a read of the peer. A reply reports no completion.
    pub(crate) fn reply(reply: Reply, len: usize) -> Self {
        Self {
            report: Report {
                kind: CompletionFlags::empty(),
                context: Context::default(),
                flags: OpFlags::empty(),
                reports_success: false,
                len,
            },
            body: OpBody::Reply { reply, filled: 0 },
        }
    }

    /// Reports success. The buffer is dropped before the completion is pushed.
    pub(crate) fn succeed(self, ep: &Ep) {
        let Self { report, body } = self;
        if let OpBody::Reply { reply, .. } = body {
            reply.count_read();
            return ep.peer_read(report.len);
        }
        drop(body);
        report.done(ep);
    }

    /// Reports an error. The buffer is dropped before the completion is pushed.
    pub(crate) fn fail(self, ep: &Ep, errno: Errno, peer: FiAddr, detail: String) {
        let Self { report, body } = self;
        let is_local = !matches!(body, OpBody::Reply { .. });
        drop(body);
        if is_local {
            report.failed(ep, errno, peer, detail);
        }
    }
}

impl Ops {
    /// Whether no operation is outstanding.
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.len() == self.free.len()
    }

    /// Returns the number of outstanding operations, without replies.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len() - self.replies
    }

    /// Returns the number of replies that the peer has not acknowledged.
    pub(crate) fn replies(&self) -> usize {
        self.replies
    }

    /// Returns the number of operations that wait for bytes of the peer.
    pub(crate) fn requested(&self) -> usize {
        self.requested
    }

    /// Returns the number of lent messages.
    pub(crate) fn lent(&self) -> usize {
        self.lent
    }

    /// Inserts an operation and returns its `msg_id`.
    pub(crate) fn insert(&mut self, op: Op) -> u32 {
        self.requested += usize::from(matches!(op.body, OpBody::Requested { .. }));
        self.replies += usize::from(matches!(op.body, OpBody::Reply { .. }));
        self.lent += usize::from(op.body.is_lent());
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            (self.slots.len() - 1) as u16
        });
        let (generation, slot) = &mut self.slots[usize::from(index)];
        *slot = Some(op);
        u32::from(*generation) << 16 | u32::from(index)
    }

    /// Returns the operation with a `msg_id`, if the generation matches.
    pub(crate) fn get_mut(&mut self, msg_id: u32) -> Option<&mut Op> {
        let (generation, slot) = self.slots.get_mut(usize::from(msg_id as u16))?;
        slot.as_mut()
            .filter(|_| u32::from(*generation) == msg_id >> 16)
    }

    /// Removes the operation with a `msg_id`.
    pub(crate) fn remove(&mut self, msg_id: u32) -> Option<Op> {
        self.get_mut(msg_id)?;
        let (generation, slot) = &mut self.slots[usize::from(msg_id as u16)];
        *generation = generation.wrapping_add(1);
        self.free.push(msg_id as u16);
        let op = slot.take()?;
        self.requested -= usize::from(matches!(op.body, OpBody::Requested { .. }));
        self.replies -= usize::from(matches!(op.body, OpBody::Reply { .. }));
        self.lent -= usize::from(op.body.is_lent());
        Some(op)
    }

    /// Removes all operations.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Op> {
        self.free.clear();
        (self.requested, self.replies, self.lent) = (0, 0, 0);
        std::mem::take(&mut self.slots)
            .into_iter()
            .filter_map(|(_, op)| op)
    }
}

#[cfg(test)]
mod tests {
    use selvedge::{CompletionFlags, Context, OpFlags};

    use super::*;

    fn op() -> Op {
        Op {
            report: Report {
                kind: CompletionFlags::SEND,
                context: Context(0),
                flags: OpFlags::empty(),
                reports_success: true,
                len: 0,
            },
            body: OpBody::Sent,
        }
    }

    #[test]
    fn a_msg_id_is_not_valid_for_the_next_operation_in_its_slot() {
        let mut ops = Ops::default();
        let first = ops.insert(op());
        assert!(ops.remove(first).is_some());
        let second = ops.insert(op());
        assert_ne!(first, second);
        assert!(ops.remove(first).is_none());
        assert!(ops.get_mut(u32::MAX).is_none());
        assert_eq!(ops.len(), 1);
    }
}
