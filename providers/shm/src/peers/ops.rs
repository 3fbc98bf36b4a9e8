//! Operations that a peer has to answer, by number.

use std::sync::Arc;

use selvedge::{CompletionFlags, Context, Errno, FiAddr, OpFlags, Result};
use selvedge_kit::copy::{RxBuf, TxBuf};
use selvedge_kit::segments::RmaSegments;
use selvedge_kit::{Ep, Report};

use crate::atomic::OutstandingAtomic;
use crate::provider::shared::Shared;
use crate::smr::bounce::BounceSender;
use crate::smr::keys::{Denied, RIGHT_READ};

/// An operation that the peer has to answer.
#[derive(Debug)]
pub(crate) struct Op {
    pub(crate) report: Report,
    pub(crate) body: OpBody,
}

/// What is left to do for an operation.
#[derive(Debug)]
pub(crate) enum OpBody {
    /// The bytes are with the peer; it has to confirm.
    Sent,
    /// The peer takes the bytes from our memory, or asks us to bounce them.
    Offered {
        buf: TxBuf,
        /// Bytes that went into segments.
        filled: usize,
        /// Whether the peer wants them all.
        granted: bool,
        /// Whether they are in special memory.
        special: bool,
    },
    /// The peer changes its memory, and tells what came of it.
    Atomic(OutstandingAtomic),
    /// The peer sends bytes, which go here.
    Asked { buf: RxBuf },
    /// The peer has asked for these bytes of ours, which go to it in segments.
    Reply { memory: Reply, filled: usize },
}

/// Outstanding operations by `msg_id`: index and generation, so that a late or forged answer does
/// not hit a later operation.
#[derive(Debug, Default)]
pub(crate) struct Ops {
    slots: Vec<(u16, Option<Op>)>,
    free: Vec<u16>,
    /// Operations that wait for bytes of the peer.
    asked: usize,
    /// Bytes on their way to the peer, which is to say when it has them.
    replies: usize,
}

/// Registered memory that goes to a peer in segments, looked up for each of them anew.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) domain: Arc<Shared>,
    pub(crate) places: RmaSegments,
}

impl Reply {
    /// Fills a segment with the bytes from `from` on; says how many.
    ///
    /// # Errors
    /// Why the memory may not be read any more.
    pub(crate) fn fill(
        &self,
        bounce: &mut BounceSender,
        msg_id: u32,
        from: usize,
        len: usize,
    ) -> Result<usize, Denied> {
        let regions = self.domain.keys.regions();
        let most = bounce.shape().size;
        let parts = self.places.clip(from, most);
        let parts: Result<Vec<_>, _> = parts
            .map(|place| regions.locate(&place, RIGHT_READ))
            .collect();
        let parts = parts?;
        Ok(bounce.fill(msg_id, len - from, |segments, mut at, _| {
            for part in parts {
                segments.copy_from(at, part);
                at += part.len();
            }
        }))
    }
}

impl Reply {
    /// All of it has gone.
    pub(crate) fn count(&self) {
        self.domain.keys.count_read(&self.places);
    }
}

impl Op {
    /// Bytes on their way to a peer that has asked for them: nothing is reported.
    pub(crate) fn reply(memory: Reply, len: usize) -> Self {
        Self {
            report: Report {
                kind: CompletionFlags::empty(),
                context: Context::default(),
                flags: OpFlags::empty(),
                reports_success: false,
                len,
            },
            body: OpBody::Reply { memory, filled: 0 },
        }
    }

    /// Reports success. The buffer goes before the completion comes.
    pub(crate) fn succeed(self, ep: &Ep) {
        let Self { report, body } = self;
        if let OpBody::Reply { memory, .. } = body {
            memory.count();
            return ep.peer_read(report.len);
        }
        drop(body);
        report.done(ep);
    }

    /// Reports an error, likewise.
    pub(crate) fn fail(self, ep: &Ep, errno: Errno, peer: FiAddr, detail: String) {
        let Self { report, body } = self;
        let is_own = !matches!(body, OpBody::Reply { .. });
        drop(body);
        if is_own {
            report.failed(ep, errno, peer, detail);
        }
    }
}

impl Ops {
    /// Whether nothing is outstanding.
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.len() == self.free.len()
    }

    /// Operations of ours that are outstanding.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len() - self.replies
    }

    /// What the peer has asked for and does not have yet.
    pub(crate) fn replies(&self) -> usize {
        self.replies
    }

    /// Operations that wait for bytes of the peer.
    pub(crate) fn asked(&self) -> usize {
        self.asked
    }

    /// Keeps an operation; its `msg_id`.
    pub(crate) fn insert(&mut self, op: Op) -> u32 {
        self.asked += usize::from(matches!(op.body, OpBody::Asked { .. }));
        self.replies += usize::from(matches!(op.body, OpBody::Reply { .. }));
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            (self.slots.len() - 1) as u16
        });
        let (generation, slot) = &mut self.slots[usize::from(index)];
        *slot = Some(op);
        u32::from(*generation) << 16 | u32::from(index)
    }

    /// The operation that an answer is for.
    pub(crate) fn get_mut(&mut self, msg_id: u32) -> Option<&mut Op> {
        let (generation, slot) = self.slots.get_mut(usize::from(msg_id as u16))?;
        slot.as_mut()
            .filter(|_| u32::from(*generation) == msg_id >> 16)
    }

    /// Ends an operation.
    pub(crate) fn remove(&mut self, msg_id: u32) -> Option<Op> {
        self.get_mut(msg_id)?;
        let (generation, slot) = &mut self.slots[usize::from(msg_id as u16)];
        *generation = generation.wrapping_add(1);
        self.free.push(msg_id as u16);
        let op = slot.take()?;
        self.asked -= usize::from(matches!(op.body, OpBody::Asked { .. }));
        self.replies -= usize::from(matches!(op.body, OpBody::Reply { .. }));
        Some(op)
    }

    /// Ends all of them.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Op> {
        self.free.clear();
        (self.asked, self.replies) = (0, 0);
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
    fn a_number_is_not_valid_for_the_next_operation_in_its_place() {
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
