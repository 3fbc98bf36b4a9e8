//! Posts that wait for a counter. What they promise about memory is kept as in [`super::post`].

#![expect(unsafe_code, reason = "posts are promises about memory")]

use anyhow::Context as _;
use selvedge::atomic::{AtomicMsg, Family, Ioc, IocMut, RmaIoc};
use selvedge::op::{Compared, Fetched};
use selvedge::rma::{RmaIov, WriteMsg};
use selvedge::trigger::{Action, Done, Work};
use selvedge::{Context, Op, OpFlags, msg, tagged};

use super::atomics::{Call, Parts};
use super::ground::{End, Ground};
use super::post::{Access, Lists, Piece, Recv, Send};
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
    unsafe fn later(&self, op: Op<'_>, flags: OpFlags, later: &Later<'_>) -> anyhow::Result<()> {
        let action = Action::Post {
            ep: &self.ep,
            op,
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
        let mut lists = Lists::default();
        let (iov, desc) = lists.read(self, pieces);
        let (dest, context) = (send.dest, Context(send.context));
        let data = send.data.unwrap_or(0);
        let op = match send.tag {
            None => Op::Send(msg::SendMsg {
                iov,
                desc,
                dest,
                context,
                data,
            }),
            Some(tag) => Op::TaggedSend(tagged::SendMsg {
                iov,
                desc,
                dest,
                tag,
                context,
                data,
            }),
        };
        // SAFETY: the memory is of the endpoint's domain (`Lists`), which outlives it.
        unsafe { self.later(op, send.flags, later) }
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
        let mut lists = Lists::default();
        let (iov, desc) = lists.write(self, pieces);
        let (src, context) = (recv.src, Context(recv.context));
        let op = match recv.tag {
            None => Op::Recv(msg::RecvMsg {
                iov,
                desc,
                src,
                context,
            }),
            Some(tag) => Op::TaggedRecv(tagged::RecvMsg {
                iov,
                desc,
                src,
                tag,
                context,
            }),
        };
        // SAFETY: as above.
        unsafe { self.later(op, recv.flags, later) }
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
        let mut lists = Lists::default();
        let (iov, desc) = lists.read(self, pieces);
        let op = Op::Write(WriteMsg {
            iov,
            desc,
            dest: access.peer,
            rma_iov: &[RmaIov {
                addr: access.remote.addr,
                len: pieces.iter().map(|piece| piece.len).sum(),
                key: access.remote.key,
            }],
            context: Context(access.context),
            data: access.data.unwrap_or(0),
        });
        // SAFETY: as above.
        unsafe { self.later(op, access.flags, later) }
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
        let read = |piece: &Piece<'_>| [Ioc::from_raw(piece.base(self).cast_const().cast(), 1)];
        let (iov, compare) = (read(&parts.operand), read(&parts.comparand));
        let result = [IocMut::from_raw(parts.result.base(self).cast(), 1)];
        let msg = AtomicMsg {
            iov: &iov,
            desc: &[],
            dest: access.peer,
            rma_iov: &[RmaIoc {
                addr: access.remote.addr,
                count: 1,
                key: access.remote.key,
            }],
            datatype: call.datatype,
            op: call.op,
            context: Context(access.context),
            data: 0,
        };
        let fetched = Fetched {
            iov: &result,
            desc: &[],
        };
        let compared = Compared {
            iov: &compare,
            desc: &[],
        };
        let op = match call.family {
            Family::Base => Op::Atomic(msg),
            Family::Fetch => Op::FetchAtomic(msg, fetched),
            Family::Compare => Op::CompareAtomic(msg, compared, fetched),
        };
        // SAFETY: as above: `base` checks whose memory it is.
        unsafe { self.later(op, access.flags, later) }
    }
}
