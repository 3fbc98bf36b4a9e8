//! Constructors of [`Op`] values, which select the operation by an optional tag or by the family of
//! an atomic.

use selvedge::atomic::{AtomicMsg, Family};
use selvedge::op::{Compared, Fetched};
use selvedge::{FiAddr, Op, OpFlags, TagMatch, msg, tagged};

/// Returns a send, tagged if `tag` is set.
#[inline]
pub fn send(msg: msg::SendMsg<'_>, tag: Option<u64>) -> Op<'_> {
    let msg::SendMsg {
        iov,
        desc,
        dest,
        context,
        data,
    } = msg;
    tag.map_or(Op::Send(msg), |tag| {
        Op::TaggedSend(tagged::SendMsg {
            iov,
            desc,
            dest,
            tag,
            context,
            data,
        })
    })
}

/// Returns a receive, tagged if `tag` is set.
#[inline]
pub fn recv(msg: msg::RecvMsg<'_>, tag: Option<TagMatch>) -> Op<'_> {
    let msg::RecvMsg {
        iov,
        desc,
        src,
        context,
    } = msg;
    tag.map_or(Op::Recv(msg), |tag| {
        Op::TaggedRecv(tagged::RecvMsg {
            iov,
            desc,
            src,
            tag,
            context,
        })
    })
}

/// Returns an injected send, tagged if `tag` is set.
#[inline]
pub fn inject(buf: &[u8], dest: FiAddr, tag: Option<u64>, data: Option<u64>) -> Op<'_> {
    match tag {
        None => Op::Inject { buf, dest, data },
        Some(tag) => Op::TaggedInject {
            buf,
            dest,
            tag,
            data,
        },
    }
}

/// Returns an atomic of `family`. Operands that the family does not use are ignored.
#[inline]
pub fn atomic<'a>(
    family: Family,
    msg: AtomicMsg<'a>,
    compared: Compared<'a>,
    fetched: Fetched<'a>,
) -> Op<'a> {
    match family {
        Family::Base => Op::Atomic(msg),
        Family::Fetch => Op::FetchAtomic(msg, fetched),
        Family::Compare => Op::CompareAtomic(msg, compared, fetched),
    }
}

/// Returns `flags`, with [`OpFlags::REMOTE_CQ_DATA`] if `data` is set.
#[inline]
pub fn with_data(flags: OpFlags, data: Option<u64>) -> OpFlags {
    match data {
        Some(_) => flags | OpFlags::REMOTE_CQ_DATA,
        None => flags,
    }
}
