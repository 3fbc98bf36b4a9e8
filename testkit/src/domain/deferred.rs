//! Posts that wait for a counter. What they promise about memory is kept as in [`super::post`].

#![expect(unsafe_code, reason = "posts are promises about memory")]

use anyhow::Context as _;
use selvedge::trigger::{Action, CompletionTarget, Work};
use selvedge::{Op, OpFlags};

use super::{
    Access, AtomicBuffers, AtomicCall, Count, DomainContext, DomainEndpoint, Recv, Segment, Send,
};

/// When a post is carried out, and who is told.
#[derive(Clone, Copy, Debug)]
pub struct Deferred<'a> {
    gate: &'a Count,
    threshold: u64,
    done: CompletionTarget<'a>,
}

impl<'a> Deferred<'a> {
    /// An operation that is triggered when a counter has reached a number.
    pub fn triggered(gate: &'a Count, threshold: u64) -> Self {
        Self {
            gate,
            threshold,
            done: CompletionTarget::Endpoint,
        }
    }

    /// Work that is deferred until then, and tells a counter.
    pub fn with_counter(gate: &'a Count, threshold: u64, done: &'a Count) -> Self {
        Self {
            gate,
            threshold,
            done: CompletionTarget::Counter(Some(done.cntr())),
        }
    }
}

impl DomainContext {
    /// Has a counter changed when another one has reached a number.
    ///
    /// # Errors
    /// The domain's.
    pub fn count_deferred(
        &self,
        gate: &Count,
        threshold: u64,
        action: Action<'_>,
    ) -> anyhow::Result<()> {
        let is_post = matches!(action, Action::Post { .. });
        anyhow::ensure!(!is_post, "{action:?} is about memory");
        let cntr = gate.cntr();
        let work = Work {
            cntr,
            threshold,
            action,
        };
        // SAFETY: a counter is no memory.
        unsafe { self.domain().queue_work(&work) }.context("queueing work")?;
        Ok(())
    }
}

impl DomainEndpoint {
    /// # Safety
    /// As the post.
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
            done: deferred.done,
        };
        let (cntr, threshold) = (deferred.gate.cntr(), deferred.threshold);
        let work = Work {
            cntr,
            threshold,
            action,
        };
        // SAFETY: passed on from the caller.
        unsafe { self.context.domain().queue_work(&work) }.context("queueing work")?;
        Ok(())
    }

    /// A send.
    ///
    /// # Errors
    /// The domain's.
    pub fn send_deferred(
        &self,
        segments: &[Segment<'_>],
        send: &Send,
        deferred: &Deferred<'_>,
    ) -> anyhow::Result<()> {
        // SAFETY: the memory is of the endpoint's domain (`Lists`), which outlives it.
        self.send_op(segments, send, |op, flags| unsafe {
            self.queue(op, flags, deferred)
        })
    }

    /// A receive.
    ///
    /// # Errors
    /// The domain's.
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

    /// A write to a peer's memory.
    ///
    /// # Errors
    /// The domain's.
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

    /// An atomic of one element.
    ///
    /// # Errors
    /// The domain's.
    pub fn atomic_deferred(
        &self,
        call: AtomicCall,
        parts: &AtomicBuffers<'_>,
        access: &Access,
        deferred: &Deferred<'_>,
    ) -> anyhow::Result<()> {
        // SAFETY: as above: `Segment::base` checks whose memory it is.
        self.atomic_op(call, parts, 1, access, |op| unsafe {
            self.queue(op, access.flags, deferred)
        })
    }
}
