//! Posts that wait for a counter. What they promise about memory is kept as in [`super::post`].

#![expect(unsafe_code, reason = "posts are promises about memory")]

use anyhow::Context as _;
use selvedge::trigger::{Action, Done, Work};
use selvedge::{Op, OpFlags};

use super::atomics::{Call, Parts};
use super::ground::{End, Ground};
use super::post::{Access, Piece, Recv, Send};
use super::wait::Count;

/// When a post is carried out, and who is told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Later<'a> {
    gate: &'a Count,
    threshold: u64,
    done: Done<'a>,
}

impl<'a> Later<'a> {
    /// An operation that is triggered when a counter has reached a number.
    pub(super) fn triggered(gate: &'a Count, threshold: u64) -> Self {
        Self {
            gate,
            threshold,
            done: Done::Endpoint,
        }
    }

    /// Work that is deferred until then, and tells a counter.
    pub(super) fn deferred(gate: &'a Count, threshold: u64, done: &'a Count) -> Self {
        Self {
            gate,
            threshold,
            done: Done::Counter(Some(done.cntr())),
        }
    }
}

impl Ground {
    /// Has a counter changed when another one has reached a number.
    ///
    /// # Errors
    /// The domain's.
    pub(super) fn count_later(
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

impl End {
    /// # Safety
    /// As the post.
    unsafe fn later(&self, op: &Op<'_>, flags: OpFlags, later: &Later<'_>) -> anyhow::Result<()> {
        let action = Action::Post {
            ep: &self.ep,
            op: *op,
            flags,
            done: later.done,
        };
        let (cntr, threshold) = (later.gate.cntr(), later.threshold);
        let work = Work {
            cntr,
            threshold,
            action,
        };
        // SAFETY: passed on from the caller.
        unsafe { self.ground.domain().queue_work(&work) }.context("queueing work")?;
        Ok(())
    }

    /// A send.
    ///
    /// # Errors
    /// The domain's.
    pub(super) fn send_later(
        &self,
        pieces: &[Piece<'_>],
        send: &Send,
        later: &Later<'_>,
    ) -> anyhow::Result<()> {
        // SAFETY: the memory is of the endpoint's domain (`Lists`), which outlives it.
        self.send_op(pieces, send, |op, flags| unsafe {
            self.later(op, flags, later)
        })
    }

    /// A receive.
    ///
    /// # Errors
    /// The domain's.
    pub(super) fn recv_later(
        &self,
        pieces: &[Piece<'_>],
        recv: &Recv,
        later: &Later<'_>,
    ) -> anyhow::Result<()> {
        // SAFETY: as above.
        self.recv_op(pieces, recv, |op| unsafe {
            self.later(op, recv.flags, later)
        })
    }

    /// A write to a peer's memory.
    ///
    /// # Errors
    /// The domain's.
    pub(super) fn write_later(
        &self,
        pieces: &[Piece<'_>],
        access: &Access,
        later: &Later<'_>,
    ) -> anyhow::Result<()> {
        // SAFETY: as above.
        self.write_op(pieces, access, |op, flags| unsafe {
            self.later(op, flags, later)
        })
    }

    /// An atomic of one element.
    ///
    /// # Errors
    /// The domain's.
    pub(super) fn atomic_later(
        &self,
        call: Call,
        parts: &Parts<'_>,
        access: &Access,
        later: &Later<'_>,
    ) -> anyhow::Result<()> {
        // SAFETY: as above: `Piece::base` checks whose memory it is.
        self.atomic_op(call, parts, 1, access, |op| unsafe {
            self.later(op, access.flags, later)
        })
    }
}
