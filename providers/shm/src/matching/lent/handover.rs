//! The handover of a lent message to the receive that has matched it.

use selvedge::{FiAddr, OpFlags};
use selvedge_kit::Ep;
use selvedge_kit::cq::Sink;
use selvedge_kit::srx::{Envelope, Posted};
use selvedge_kit::telemetry::ProtocolCounter;

use super::views::{LentBytes, PendingView};
use crate::memory::special::OutOfBlock;
use crate::peers::peer::Peer;
use crate::transfers::MAX_OPS;
use crate::transfers::cmd::{ProtocolError, Rts};
use crate::transfers::destination::Destination;
use crate::transfers::incoming::{Moving, SourceSegment, Stage};
use crate::transfers::protocol_selector::RendezvousProtocol;

/// Reports a matched message by reference, if the sender lends it, the receive accepts lent
/// messages, and this process has mapped the bytes. Returns `false` without effect if the message
/// has to be copied.
///
/// A message of a sender without an address is copied: its receive is reported with an error entry,
/// which has no room for a number.
///
/// # Errors
/// [`ProtocolError`] when the bytes are not inside the block that the sender names.
pub(crate) fn hand_over(
    peer: &mut Peer,
    ep: &Ep,
    src: FiAddr,
    msg_id: u32,
) -> Result<bool, ProtocolError> {
    let Some(segment) = lent_segment(peer, msg_id) else {
        return Ok(false);
    };
    let Some(view) = find_view(peer, ep, src, msg_id, segment)? else {
        return Ok(false);
    };
    let Some((posted, env)) = take_receive(peer, msg_id) else {
        return Ok(false);
    };
    report(peer, ep, src, view, (posted, &env), &mut Sink::none());
    Ok(true)
}

/// Finds the bytes of an RTS that can be reported by reference before it is in the table of
/// transfers. Returns `None` for an RTS that takes the general path, which reports its violations
/// of the protocol.
pub(crate) fn find_new(
    peer: &Peer,
    ep: &Ep,
    src: FiAddr,
    rts: &Rts,
    len: usize,
) -> Option<PendingView> {
    let segment = SourceSegment {
        addr: rts.addr_or_offset,
        len: len as u64,
        block: rts.block,
    };
    let is_used = peer.incoming.contains_key(&rts.msg_id) || peer.views.has(rts.msg_id);
    let awaits_others = peer.packets_ahead > 0 || !peer.early_segments.is_empty();
    if !rts.is_lent || is_used || awaits_others || peer.views.len() >= MAX_OPS {
        return None;
    }
    find_view(peer, ep, src, rts.msg_id, segment).unwrap_or(None)
}

/// Finds the bytes of a lent message, if they can be reported by reference.
fn find_view(
    peer: &Peer,
    ep: &Ep,
    src: FiAddr,
    msg_id: u32,
    segment: SourceSegment,
) -> Result<Option<PendingView>, ProtocolError> {
    let found = peer.blocks.lend(segment.block, segment.addr, segment.len);
    let lent: Option<LentBytes> = found.map_err(|OutOfBlock| OUT_OF_BLOCK)?;
    let (Some(lent), Some(inbox)) = (lent, &peer.inbox) else {
        return Ok(None);
    };
    let is_reported = lent.begin(|| inbox.region.closed_flag()) && !ep.is_unknown(src);
    Ok(is_reported.then_some(PendingView { lent, msg_id }))
}

/// Reports a message by reference.
pub(crate) fn report(
    peer: &mut Peer,
    ep: &Ep,
    src: FiAddr,
    view: PendingView,
    (posted, env): (Posted, &Envelope),
    sink: &mut Sink<'_>,
) {
    let number = peer.views.add(peer.index, view);
    ep.stats
        .count_protocol(ProtocolCounter::ReceivedLent, env.len);
    ep.rx_lent(posted, env, number, src, sink);
}

/// The violation of a sender that lends bytes outside of the block that it names.
pub(crate) const OUT_OF_BLOCK: ProtocolError =
    ProtocolError("a lent message outside of its block of special memory");

/// Returns the bytes of a matched message that the sender lends and the receive accepts.
fn lent_segment(peer: &Peer, msg_id: u32) -> Option<SourceSegment> {
    let incoming = peer.incoming.get(&msg_id)?;
    let Stage::Moving(Moving {
        destination: Destination::Receive(posted, _),
        protocol: RendezvousProtocol::Special,
        done: 0,
        ..
    }) = &incoming.stage
    else {
        return None;
    };
    let is_accepted = posted.flags.contains(OpFlags::LEND);
    incoming.segments.lent().filter(|_| is_accepted)
}

/// Ends the transfer of a matched message, and returns its receive.
fn take_receive(peer: &mut Peer, msg_id: u32) -> Option<(Posted, Envelope)> {
    match peer.incoming.remove(&msg_id)?.stage {
        Stage::Moving(Moving {
            destination: Destination::Receive(posted, env),
            ..
        }) => Some((posted, env)),
        _ => None,
    }
}
