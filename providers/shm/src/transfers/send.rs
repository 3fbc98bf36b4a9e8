//! Selects the protocol of each sent message.

use selvedge::{Errno, OpFlags, Result};
use selvedge_kit::Report;
use selvedge_kit::copy::TxBuf;

use super::{ACK_FLAGS, Sent, inject, inline, iov};
use crate::peers::ops::{Op, OpBody};
use crate::peers::peer::Peer;
use crate::provider::config::Config;
use crate::provider::shared::Shared;
use crate::transfers::cmd::{Header, inline_room};

/// Flags that exclude a message from the fast path.
pub(crate) const SLOW_PATH_FLAGS: OpFlags = ACK_FLAGS
    .union(OpFlags::FENCE)
    .union(OpFlags::DEFERRED)
    .union(OpFlags::LEND);

/// Returns whether a message travels inside its command.
#[inline(always)]
pub(crate) fn is_inline(config: &Config, header: &Header, len: usize, flags: OpFlags) -> bool {
    len <= config.inline_size
        && len <= inline_room(header.data.is_some())
        && !flags.intersects(SLOW_PATH_FLAGS)
}

/// Sends a message by the protocol for its size.
///
/// # Errors
/// [`Errno::Again`] while there is no room, or while a fenced message has to wait for earlier
/// operations to the peer; [`Errno::MsgSize`] for an injected message that is too large.
pub(crate) fn send(
    peer: &mut Peer,
    config: &Config,
    shared: &Shared,
    header: &Header,
    buf: TxBuf,
    report: Report,
) -> Result<Sent> {
    let Report { flags, len, .. } = report;
    if flags.contains(OpFlags::FENCE) && peer.has_unfinished() {
        return Err(Errno::Again);
    }
    let other_flags = flags.difference(OpFlags::FENCE.union(OpFlags::DEFERRED));
    if is_inline(config, header, len, other_flags) {
        peer.reserve(0)?;
        inline::send(peer.slot(), header, &buf);
        return Ok(Sent::Done);
    }
    let is_acked = flags.intersects(ACK_FLAGS);
    let op = Op {
        report,
        body: OpBody::Sent,
    };
    if len <= config.inject_size && !flags.contains(OpFlags::LEND) {
        return inject::send(peer, header, &buf, is_acked.then_some(op));
    }
    if flags.contains(OpFlags::INJECT) {
        return Err(Errno::MsgSize);
    }
    iov::send(peer, config, shared, header, buf, op)?;
    Ok(Sent::Pending)
}
