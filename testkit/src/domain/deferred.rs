//! Deferred posts of a [`DomainEndpoint`]. Their promises about memory are kept as in
//! [`super::post`].

#![expect(unsafe_code, reason = "a post is a promise about memory")]

use anyhow::Context as _;
use selvedge::trigger::{Action, CompletionTarget, Work};
use selvedge::{Op, OpFlags};

use super::{
    Access, AtomicBuffers, AtomicCall, Count, DomainContext, DomainEndpoint, Recv, Segment, Send,
};

/// The trigger of a deferred post, and its completion target.
#[derive(Clone, Copy, Debug)]
pub struct Deferred<'a> {
    trigger: &'a Count,
    threshold: u64,
    target: CompletionTarget<'a>,
}

impl<'a> Deferred<'a> {
    /// A triggered operation: it is posted when `trigger` reaches `threshold`.
    pub fn triggered(trigger: &'a Count, threshold: u64) -> Self {
        Self {
            trigger,
            threshold,
            target: CompletionTarget::Endpoint,
        }
    }

    /// Deferred work: it is posted when `trigger` reaches `threshold`, and increments `done`.
    pub fn with_counter(trigger: &'a Count, threshold: u64, done: &'a Count) -> Self {
        Self {
            trigger,
            threshold,
            target: CompletionTarget::Counter(Some(done.cntr())),
        }
    }
}

impl DomainContext {
    /// Queues an action on a counter until `trigger` reaches `threshold`.
    ///
    /// # Errors
    /// Those of the domain.
    pub fn count_deferred(
        &self,
        trigger: &Count,
        threshold: u64,
        action: Action<'_>,
    ) -> anyhow::Result<()> {
        let is_post = matches!(action, Action::Post { .. });
        anyhow::ensure!(!is_post, "{action:?} accesses memory");
        let cntr = trigger.cntr();
        let work = Work {
            cntr,
            threshold,
            action,
        };
        // SAFETY: the action does not access memory.
        unsafe { self.domain().queue_work(&work) }.context("queueing work")?;
        Ok(())
    }
}

impl DomainEndpoint {
    /// # Safety
    /// The requirements of the post.
    unsafe fn queue(
        &self,
        op: &Op<'_>,
        flags: OpFlags,
        deferred: &Deferred<'_>,
    ) -> anyhow::Result<()> {
        let action = Action::Post {
            ep: &self.ep,
            op: *op,
            flags,
            done: deferred.target,
        };
        let (cntr, threshold) = (deferred.trigger.cntr(), deferred.threshold);
        let work = Work {
            cntr,
            threshold,
            action,
        };
        // SAFETY: passed on from the caller.
        unsafe { self.context.domain().queue_work(&work) }.context("queueing work")?;
        Ok(())
    }

    /// Queues a send.
    ///
    /// # Errors
    /// Those of the domain.
    pub fn send_deferred(
        &self,
        segments: &[Segment<'_>],
        send: &Send,
        deferred: &Deferred<'_>,
    ) -> anyhow::Result<()> {
        // SAFETY: the memory belongs to the endpoint's domain (`SegmentLists` checks it), which
        // outlives it.
        self.send_op(segments, send, |op, flags| unsafe {
            self.queue(op, flags, deferred)
        })
    }

    /// Queues a receive.
    ///
    /// # Errors
    /// Those of the domain.
    pub fn recv_deferred(
        &self,
        segments: &[Segment<'_>],
        recv: &Recv,
        deferred: &Deferred<'_>,
    ) -> anyhow::Result<()> {
        // SAFETY: as above.
        self.recv_op(segments, recv, |op| unsafe {
            self.queue(op, recv.flags, deferred)
        })
    }

    /// Queues a write to a peer's memory.
    ///
    /// # Errors
    /// Those of the domain.
    pub fn write_deferred(
        &self,
        segments: &[Segment<'_>],
        access: &Access,
        deferred: &Deferred<'_>,
    ) -> anyhow::Result<()> {
        // SAFETY: as above.
        self.write_op(segments, access, |op, flags| unsafe {
            self.queue(op, flags, deferred)
        })
    }

    /// Queues an atomic on one element.
    ///
    /// # Errors
    /// Those of the domain.
    pub fn atomic_deferred(
        &self,
        call: AtomicCall,
        buffers: &AtomicBuffers<'_>,
        access: &Access,
        deferred: &Deferred<'_>,
    ) -> anyhow::Result<()> {
        // SAFETY: as above; `Segment::base` checks the domain of the memory.
        self.atomic_op(call, buffers, 1, access, |op| unsafe {
            self.queue(op, access.flags, deferred)
        })
    }
}
