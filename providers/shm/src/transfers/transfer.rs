//! The stages of a peer's large message: it is registered, moves, and is finished or aborted.

use std::time::Instant;

use nix::unistd::{SysconfVar, sysconf};
use selvedge::{Errno, FiAddr};
use selvedge_kit::Ep;
use selvedge_kit::telemetry::ProtocolCounter;

use super::destination::Destination;
use super::incoming::{Incoming, Moving, SourceSegments, Stage};
use super::{MAX_OPS, status};
use crate::connect::connection::Connection;
use crate::peers::peer::Peer;
use crate::smr::bounce::Filled;
use crate::transfers::cmd::ProtocolError;
use crate::transfers::protocol_selector::RendezvousProtocol;

/// The maximum number of registered transfers per peer: incomplete messages of the peer, finished
/// messages with outstanding eager segments, and requested reads, at most [`MAX_OPS`] of each.
const MAX_INCOMING: usize = 3 * MAX_OPS;

/// Registers a message whose bytes are in these segments of the peer's memory.
///
/// # Errors
/// [`ProtocolError`] when the `msg_id` is in use, too many messages are outstanding, or the peer's
/// process cannot have these segments.
pub(crate) fn register_incoming(
    peer: &mut Peer,
    msg_id: u32,
    eager: u32,
    segments: SourceSegments,
) -> Result<(), ProtocolError> {
    if peer.incoming.contains_key(&msg_id) || peer.views.has(msg_id) {
        return Err(ProtocolError("msg_id of an outstanding message"));
    }
    if peer.incoming.len() + peer.views.len() >= MAX_INCOMING {
        return Err(ProtocolError("more messages than may be outstanding"));
    }
    if !are_plausible(&segments, peer) {
        return Err(ProtocolError(
            "a message of more bytes than the memory of its process",
        ));
    }
    let is_of_message = |filled: &mut Filled| filled.msg_id == msg_id;
    let kept: Vec<_> = peer.early_segments.extract_if(.., is_of_message).collect();
    let incoming = Incoming {
        is_recent: peer.recent_sources.note(&segments),
        segments,
        eager: eager.saturating_sub(kept.len() as u32),
        kept,
        stage: Stage::Unmatched,
    };
    peer.incoming.insert(msg_id, incoming);
    Ok(())
}

/// Registers requested bytes that arrive in bounce segments with the `msg_id` `stream`. The caller
/// must call [`start_stream`] next.
pub(crate) fn register_stream(peer: &mut Peer, stream: u32) -> Result<(), ProtocolError> {
    register_incoming(peer, stream, 0, SourceSegments::none())
}

/// Sets the destination of a registered stream.
pub(crate) fn start_stream(peer: &mut Peer, stream: u32, destination: Destination, len: usize) {
    if let Some(incoming) = peer.incoming.get_mut(&stream) {
        incoming.stage = Stage::Moving(Moving {
            destination,
            len,
            protocol: RendezvousProtocol::Bounce,
            done: 0,
            measurement: None,
        });
    }
}

/// Reports a received message, locally and to the sender.
pub(crate) fn finish(
    peer: &mut Peer,
    ep: &Ep,
    src: FiAddr,
    msg_id: u32,
    moving: Moving,
    status: u32,
) {
    if let Some(measurement) = moving.measurement {
        peer.protocol_selector.record(measurement, Instant::now());
    }
    let status = moving.destination.denial().map_or(status, status::failed);
    peer.respond(peer.incarnation, msg_id, status);
    if let Destination::Receive(..) = moving.destination {
        ep.stats
            .count_protocol(protocol_counter(moving.protocol), moving.len);
    }
    moving.destination.finish(&peer.name, ep, src);
}

/// Returns the counter of a large message that was received by this protocol.
fn protocol_counter(protocol: RendezvousProtocol) -> ProtocolCounter {
    match protocol {
        RendezvousProtocol::Cma => ProtocolCounter::ReceivedCma,
        RendezvousProtocol::Special => ProtocolCounter::ReceivedDirect,
        RendezvousProtocol::Bounce => ProtocolCounter::ReceivedBounce,
    }
}

/// Fails a message that the sender cannot send in bounce segments. Returns `false` if this endpoint
/// has not requested the message in bounce segments.
pub(crate) fn abort_incoming(
    peer: &mut Peer,
    ep: &Ep,
    src: FiAddr,
    msg_id: u32,
    errno: Errno,
) -> bool {
    let is_bounced = peer.incoming.get(&msg_id).is_some_and(
        |incoming| matches!(&incoming.stage, Stage::Moving(moving) if moving.protocol == RendezvousProtocol::Bounce),
    );
    if !is_bounced {
        return false;
    }
    if let Some(moving) = end_transfer(peer, msg_id) {
        let detail = format!("{} could not send the bytes of its message", peer.name);
        moving.destination.fail(ep, errno, src, detail);
    }
    true
}

/// Ends a transfer, and removes it from the table unless eager segments are still to arrive.
pub(crate) fn end_transfer(peer: &mut Peer, msg_id: u32) -> Option<Moving> {
    let incoming = peer.incoming.get_mut(&msg_id)?;
    let stage = std::mem::replace(&mut incoming.stage, Stage::Discarding);
    let kept = std::mem::take(&mut incoming.kept);
    if incoming.eager == 0 {
        peer.incoming.remove(&msg_id);
    }
    for filled in kept {
        peer.respond(peer.incarnation, filled.segment, status::SEGMENT);
    }
    match stage {
        Stage::Moving(moving) => Some(moving),
        Stage::Unmatched | Stage::Discarding => None,
    }
}

/// Whether the peer's process can have memory with these addresses and lengths.
fn are_plausible(segments: &SourceSegments, peer: &Peer) -> bool {
    let mut segments = segments.list[..segments.count].iter();
    segments.all(|segment| is_plausible(peer, segment.addr, segment.len))
}

/// The end of every address space: x86-64 with five levels of page tables has the largest user
/// address space on Linux.
const ADDRESS_SPACE_END: u64 = 1 << 56;
/// The length in bytes from which on a segment is compared with the sender's mapped memory. The
/// comparison takes some ten microseconds, and a copy of as many bytes ten milliseconds.
const CHECKED_LEN: u64 = 1 << 28;

/// Whether the peer's process can have `len` bytes at `addr`. For a process that is not visible in
/// `/proc`, only the end of the address space is checked.
fn is_plausible(peer: &Peer, addr: u64, len: u64) -> bool {
    let is_in_address_space = addr
        .checked_add(len)
        .is_some_and(|end| end <= ADDRESS_SPACE_END);
    is_in_address_space
        && (len < CHECKED_LEN || mapped_bytes(peer).is_none_or(|mapped| len <= mapped))
}

/// Returns the number of bytes that the peer's process has mapped, if `/proc` shows it.
#[cold]
fn mapped_bytes(peer: &Peer) -> Option<u64> {
    let pid = peer.connections.first().map(Connection::peer_pid)?;
    let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = statm.split_whitespace().next()?.parse().ok()?;
    let page = sysconf(SysconfVar::PAGE_SIZE).ok()??;
    // An exited process has no pages; its messages fail when the peer is disconnected.
    (pages > 0).then_some(pages.checked_mul(u64::try_from(page).ok()?)?)
}
