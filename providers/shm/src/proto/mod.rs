//! The ways of a message: which one it takes, and each way with both its halves in one file.
//!
//! | way | for | who copies |
//! |---|---|---|
//! | [`inline`] | what fits the command | both |
//! | [`inject`] | up to `FI_SHM_INJECT_SIZE` | both, through the inject pool |
//! | [`iov`] | the rest | the receiver, out of the sender's memory: special memory that it has mapped, or by cross-memory attach |
//! | [`sar`] | the rest where that is slower or not allowed | both, through bounce segments |

mod extent;
pub(crate) mod inject;
pub(crate) mod inline;
pub(crate) mod into;
pub(crate) mod iov;
pub(crate) mod sar;

use selvedge::{Errno, OpFlags, Result};
use selvedge_kit::Report;
use selvedge_kit::copy::TxBuf;

use crate::cmd::{Header, inline_room};
use crate::config::Config;
use crate::peer::{Op, OpBody, Peer};
use crate::special::Special;

/// Answers to commands (`smr_resp.status`): what happened, in the lowest byte.
pub(crate) mod status {
    /// The message has been received.
    pub(crate) const DONE: u32 = 0;
    /// The message has been received through bounce segments.
    pub(crate) const BOUNCED: u32 = 1;
    /// The sender is to bounce the message.
    pub(crate) const BOUNCE: u32 = 2;
    /// `msg_id` is a segment that may be used again.
    pub(crate) const SEGMENT: u32 = 3;
    /// The message was not received; the error number is in the upper bits.
    pub(crate) const FAILED: u32 = 4;

    /// It was not received, and why.
    pub(crate) fn failed(errno: selvedge::Errno) -> u32 {
        FAILED | (errno.as_raw() as u32) << 8
    }
}

/// Operations that one peer may owe us an answer for. Each is answered twice at most, and every
/// segment is given back once: the response queue has room for all of that.
pub(crate) const MAX_OPS: usize = 128;

/// Flags that ask for more than the sender can know by itself.
pub(crate) const ACKED: OpFlags = OpFlags::DELIVERY_COMPLETE.union(OpFlags::MATCH_COMPLETE);

/// Flags of messages that do not go right away.
const CONSIDERED: OpFlags = ACKED.union(OpFlags::FENCE).union(OpFlags::DEFERRED);

/// What became of a message that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// It no longer depends on the sender's memory.
    Done,
    /// The peer will answer.
    Later,
}

/// Whether a message goes inside a command.
#[inline(always)]
pub(crate) fn is_inline(config: &Config, header: &Header, len: usize, flags: OpFlags) -> bool {
    len <= config.inline_size
        && len <= inline_room(header.data.is_some())
        && !flags.intersects(CONSIDERED)
}

/// Whether a message goes through the inject pool, and nobody wants to hear of it.
#[inline(always)]
pub(crate) fn is_pooled(config: &Config, header: &Header, len: usize, flags: OpFlags) -> bool {
    len <= config.inject_size
        && !is_inline(config, header, len, flags)
        && !flags.intersects(CONSIDERED)
}

/// Sends a message the way that suits its size.
///
/// # Errors
/// [`Errno::Again`] while there is no room, or something has to be finished before a fenced one;
/// [`Errno::MsgSize`] for an injected one that is too large.
pub(crate) fn send(
    peer: &mut Peer,
    config: &Config,
    special: &Special,
    header: &Header,
    buf: TxBuf,
    report: Report,
) -> Result<Sent> {
    let Report { flags, len, .. } = report;
    if flags.contains(OpFlags::FENCE) && peer.has_unfinished() {
        return Err(Errno::Again);
    }
    let way = flags.difference(OpFlags::FENCE.union(OpFlags::DEFERRED));
    if is_inline(config, header, len, way) {
        peer.reserve(0)?;
        inline::send(peer.slot(), header, &buf);
        return Ok(Sent::Done);
    }
    let acked = flags.intersects(ACKED);
    let op = Op {
        report,
        body: OpBody::Sent,
    };
    if len <= config.inject_size {
        return inject::send(peer, header, &buf, acked.then_some(op));
    }
    if flags.contains(OpFlags::INJECT) {
        return Err(Errno::MsgSize);
    }
    iov::send(peer, config, special, header, buf, op)?;
    Ok(Sent::Later)
}
