//! Segmentation and reassembly (SAR): sender and receiver copy at the same time, through bounce
//! segments.
//!
//! The sender fills segments ([`fill_segment`]) when the receiver requests them. If the last
//! message of the same class went through segments (was bounced), the sender fills the first
//! few segments without a request (eager segments). The receiver copies each segment out and frees
//! it ([`handle_segment`]). Segments of several messages may be outstanding at once.

use selvedge::{CompletionFlags, Errno, FiAddr};
use selvedge_kit::Ep;
use selvedge_kit::rate_limit::warn_limited;
use selvedge_kit::telemetry::ProtocolCounter;

use super::incoming::{SourceSegments, Stage};
use super::transfer::{end_transfer, finish};
use super::{MAX_OPS, status};
use crate::connect::connection::ConnectError;
use crate::connect::packet::{encode_abort, encode_bounce};
use crate::peers::ops::{Op, OpBody};
use crate::peers::outbox::Outbox;
use crate::peers::peer::Peer;
use crate::provider::config::Config;
use crate::smr::bounce::{BounceSender, Filled, Shape};
use crate::smr::keys::Denied;
use crate::smr::resp_queue::Resp;
use crate::transfers::cmd::ProtocolError;
use crate::transfers::protocol_selector::{MessageClass, RendezvousProtocol};

/// The maximum number of segments that one poll takes from one peer.
const SEGMENT_BATCH: usize = 8;
/// The maximum number of aborts that wait for room in a peer's socket: one for each message and
/// each read whose segments the peer can request.
const MAX_ABORTS: usize = 2 * MAX_OPS;

/// The number of eager segments for a message of `len` bytes: 0 unless the last message of its
/// class was bounced, and at most half of the free segments.
fn eager_segment_count(out: &Outbox, config: &Config, class: MessageClass, len: usize) -> u32 {
    let Some(bounce) = &out.bounce else { return 0 };
    if out.bounced & class.bit() == 0 {
        return 0;
    }
    let wanted = len.div_ceil(config.segment_size);
    wanted.min(bounce.free() / 2) as u32
}

/// Returns the class of a message, and the number of its eager segments. Call it once for each
/// message, in the order of their RTS.
pub(crate) fn classify(
    out: &mut Outbox,
    config: &Config,
    segments: &SourceSegments,
    len: usize,
) -> (MessageClass, u32) {
    let class = MessageClass::of(len, out.recent_sources.note(segments));
    if segments.are_special() {
        return (class, 0);
    }
    (class, eager_segment_count(out, config, class, len))
}

/// Fills the next segment of an operation, if bytes are left and a segment is free. Returns whether
/// it filled one.
///
/// # Errors
/// The reason why the registered memory that the peer reads may not be read any more.
pub(crate) fn fill_segment(out: &mut Outbox, msg_id: u32) -> Result<bool, Denied> {
    let (Some(bounce), Some(op)) = (&mut out.bounce, out.ops.get_mut(msg_id)) else {
        return Ok(false);
    };
    let copy_selector = &mut out.copy_selector;
    let total = op.report.len;
    let copied = match &mut op.body {
        OpBody::Rts { buf, filled, .. } if *filled < total => {
            let from = *filled;
            let copied = bounce.fill(msg_id, total - from, |segments, mut offset, len| {
                for segment in buf.segments(from, len) {
                    copy_selector.copy_in(segments, offset, segment);
                    offset += segment.len();
                }
            });
            *filled += copied;
            copied
        }
        OpBody::Reply { reply, filled } if *filled < total => {
            let copied = reply.fill(bounce, msg_id, *filled, total)?;
            *filled += copied;
            copied
        }
        _ => 0,
    };
    Ok(copied > 0)
}

/// Starts to send a message through segments, which the peer has requested.
fn start_bounce(peer: &mut Peer, config: &Config, msg_id: u32) -> Result<(), Errno> {
    let op = peer.out.as_mut().and_then(|out| out.ops.get_mut(msg_id));
    if !op.is_some_and(|op| matches!(op.body, OpBody::Rts { bounced: false, .. })) {
        return Err(Errno::Proto);
    }
    ensure_bounce(peer, config)?;
    let out = peer.outbox();
    if let Some(op) = out.ops.get_mut(msg_id)
        && let OpBody::Rts { bounced, class, .. } = &mut op.body
    {
        *bounced = true;
        out.bounced |= class.bit();
        out.streams.push_back(msg_id);
    }
    Ok(())
}

/// Aborts a message for which bounce segments cannot be created or announced, and logs the error.
fn abort_without_segments(peer: &mut Peer, msg_id: u32, errno: Errno) -> Result<(), ProtocolError> {
    warn_limited(
        "selvedge::shm::ep_data",
        format_args!(
            "cannot create bounce segments for {}: {errno}; a message to it failed",
            peer.name
        ),
    );
    queue_abort(peer, msg_id, errno)
}

/// Aborts a transfer through segments: tells the peer, as soon as its socket has room, that no more
/// segments will follow.
///
/// # Errors
/// When more aborts wait than the peer can have requests: the peer requests segments, but does not
/// receive the packets with the aborts.
fn queue_abort(peer: &mut Peer, msg_id: u32, errno: Errno) -> Result<(), ProtocolError> {
    if peer.aborts.len() >= MAX_ABORTS {
        return Err(ProtocolError(
            "requests for segments, while it does not receive the aborts",
        ));
    }
    peer.aborts.push_back((msg_id, errno));
    send_aborts(peer);
    Ok(())
}

/// Sends the aborts that waited for room in the peer's socket. Returns the number of packets sent.
pub(crate) fn send_aborts(peer: &mut Peer) -> usize {
    let mut sent = 0;
    let Some(connection) = peer.connections.first() else {
        return 0;
    };
    while let Some(&(msg_id, errno)) = peer.aborts.front() {
        match connection.send(&encode_abort(msg_id, errno), &[]) {
            Ok(()) => sent += 1,
            // The socket has no room, or the peer has disconnected, which the socket reports.
            Err(ConnectError::NotYet(_) | ConnectError::Busy(_)) => return sent,
            Err(
                ConnectError::Failed(error)
                | ConnectError::Refused(error)
                | ConnectError::Untrusted(error),
            ) => {
                warn_limited("selvedge::shm::ep_data", format_args!("{error}"));
            }
        }
        peer.aborts.pop_front();
    }
    sent
}

/// Creates bounce segments for the peer, and announces them now or as soon as its socket has room.
/// No segment is filled before the announcement is sent.
///
/// # Errors
/// The system's error, when memory is short; [`Errno::NotConn`] and [`Errno::ConnReset`] for a
/// disconnected peer.
pub(crate) fn ensure_bounce(peer: &mut Peer, config: &Config) -> Result<(), Errno> {
    let out = peer.out.as_mut().ok_or(Errno::NotConn)?;
    if out.bounce.is_some() {
        return Ok(());
    }
    if out.unannounced.is_none() {
        let shape = Shape {
            count: config.segment_count,
            size: config.segment_size,
        };
        out.unannounced = Some(BounceSender::create(out.node, shape)?);
    }
    match announce_bounce(peer) {
        Ok(()) | Err(ConnectError::Busy(_)) => Ok(()),
        Err(error) => {
            peer.outbox().unannounced = None;
            Err(error.into())
        }
    }
}

/// Announces the segments that were created for the peer, if they were not announced yet.
#[cold]
fn announce_bounce(peer: &mut Peer) -> Result<(), ConnectError> {
    let Some(out) = &mut peer.out else {
        return Ok(());
    };
    let Some(bounce) = &out.unannounced else {
        return Ok(());
    };
    let Some(connection) = peer.connections.first() else {
        return Err(ConnectError::NotYet("the peer has disconnected"));
    };
    let Shape { count, size } = bounce.shape();
    let packet = encode_bounce(count as u32, size as u32);
    connection.send(&packet, &[bounce.memory().fd()])?;
    out.bounce = out.unannounced.take();
    Ok(())
}

/// Fills free segments for the operations whose segments the peer has requested, one segment for
/// each operation in turn. Returns whether it filled any.
///
/// # Errors
/// As [`queue_abort`].
pub(crate) fn fill_streams(peer: &mut Peer) -> Result<bool, ProtocolError> {
    if peer.has_unannounced_segments() && announce_bounce(peer).is_err() {
        // The socket has no room, or the peer has disconnected, which the socket reports.
        return Ok(false);
    }
    let Some(out) = &mut peer.out else {
        return Ok(false);
    };
    let mut has_filled = false;
    while let Some(msg_id) = out.streams.pop_front() {
        let filled = match fill_segment(out, msg_id) {
            Ok(filled) => filled,
            Err(denied) => {
                out.ops.remove(msg_id);
                queue_abort(peer, msg_id, denied.errno())?;
                return Ok(true);
            }
        };
        has_filled |= filled;
        if !out.is_filled(msg_id) {
            out.streams.push_front(msg_id);
            if !filled {
                break;
            }
            out.streams.rotate_left(1);
        }
    }
    if has_filled {
        peer.wake();
    }
    Ok(has_filled)
}

/// Takes the peer's responses. Returns their number.
///
/// # Errors
/// When one of them is invalid.
pub(crate) fn take_responses(
    peer: &mut Peer,
    config: &Config,
    ep: &Ep,
    dest: FiAddr,
) -> Result<usize, ProtocolError> {
    let mut taken = 0;
    while let Some(resp) = peer.inbox.as_mut().and_then(|inbox| inbox.resp.pop()) {
        take_response(peer, config, ep, dest, resp)?;
        taken += 1;
    }
    Ok(taken)
}

fn take_response(
    peer: &mut Peer,
    config: &Config,
    ep: &Ep,
    dest: FiAddr,
    resp: Resp,
) -> Result<(), ProtocolError> {
    let Resp { msg_id, status } = resp;
    match status & 0xff {
        status::SEGMENT => free_segment(peer, msg_id),
        status::BOUNCE => match start_bounce(peer, config, msg_id) {
            Ok(()) => Ok(()),
            Err(Errno::Proto) => Err(ProtocolError("a request for segments that fits no message")),
            Err(errno) => {
                abort_without_segments(peer, msg_id, errno)?;
                fail(peer, ep, dest, msg_id, errno)
            }
        },
        status_kind @ (status::DONE | status::BOUNCED) => complete(peer, ep, msg_id, status_kind),
        status::FAILED => {
            let errno = Errno::from_raw((status >> 8) as i32);
            fail(peer, ep, dest, msg_id, errno)
        }
        _ => Err(ProtocolError("a response with an unknown status")),
    }
}

fn free_segment(peer: &mut Peer, segment: u32) -> Result<(), ProtocolError> {
    let bounce = peer.out.as_mut().and_then(|out| out.bounce.as_mut());
    if bounce.is_some_and(|bounce| bounce.free_segment(segment)) {
        Ok(())
    } else {
        Err(ProtocolError(
            "a response that frees a segment it does not hold",
        ))
    }
}

fn complete(peer: &mut Peer, ep: &Ep, msg_id: u32, status_kind: u32) -> Result<(), ProtocolError> {
    let op = remove_op(peer, msg_id, status_kind)?;
    // The peer did not need the eager segments, so the next message of this class gets none. A
    // message in special memory has no eager segments, and does not change what the next message
    // gets.
    if let OpBody::Rts { filled, class, .. } = op.body
        && status_kind == status::DONE
        && filled > 0
    {
        peer.outbox().bounced &= !class.bit();
    }
    if op.report.kind.contains(CompletionFlags::SEND) {
        ep.stats
            .count_protocol(protocol_counter(&op.body, status_kind), op.report.len);
    }
    op.succeed(ep);
    Ok(())
}

/// The counter for a sent message to which the peer has responded with `response`.
fn protocol_counter(body: &OpBody, response: u32) -> ProtocolCounter {
    match (body, response) {
        (_, status::BOUNCED) => ProtocolCounter::SentBounce,
        (OpBody::Rts { is_lent: true, .. }, _) => ProtocolCounter::SentLent,
        (OpBody::Rts { special: true, .. }, _) => ProtocolCounter::SentDirect,
        (OpBody::Rts { .. }, _) => ProtocolCounter::SentCma,
        _ => ProtocolCounter::SentInject,
    }
}

fn fail(
    peer: &mut Peer,
    ep: &Ep,
    dest: FiAddr,
    msg_id: u32,
    errno: Errno,
) -> Result<(), ProtocolError> {
    let op = remove_op(peer, msg_id, status::FAILED)?;
    let detail = format!("the message could not be delivered to {}", peer.name);
    op.fail(ep, errno, dest, detail);
    Ok(())
}

/// Removes the operation that a response completes. An operation that this response cannot complete
/// stays in the table, and fails when the peer is disconnected.
fn remove_op(peer: &mut Peer, msg_id: u32, status_kind: u32) -> Result<Op, ProtocolError> {
    const UNKNOWN_OP: ProtocolError = ProtocolError("a response without an operation");
    let out = peer.out.as_mut().ok_or(UNKNOWN_OP)?;
    let op = out.ops.get_mut(msg_id).ok_or(UNKNOWN_OP)?;
    if !is_ended_by(op, status_kind) {
        return Err(ProtocolError("a response that does not fit its operation"));
    }
    out.streams.retain(|&id| id != msg_id);
    out.ops.remove(msg_id).ok_or(UNKNOWN_OP)
}

/// Whether a response of this status can complete an operation.
fn is_ended_by(op: &Op, status_kind: u32) -> bool {
    match (&op.body, status_kind) {
        (OpBody::Sent | OpBody::Rts { .. }, status::DONE | status::FAILED) => true,
        (
            OpBody::Rts {
                bounced, filled, ..
            },
            status::BOUNCED,
        ) => *bounced && *filled == op.report.len,
        (OpBody::Reply { filled, .. }, status::BOUNCED) => *filled == op.report.len,
        // The peer answers atomics and reads with commands, not in its response queue.
        _ => false,
    }
}

/// Takes the segments that the peer has filled. Returns their number.
///
/// # Errors
/// When one of them is invalid.
pub(crate) fn receive_segments(
    peer: &mut Peer,
    ep: &Ep,
    src: FiAddr,
) -> Result<usize, ProtocolError> {
    for taken in 0..SEGMENT_BATCH {
        let Some(bounce) = &mut peer.bounce else {
            return Ok(taken);
        };
        let Some(filled) = bounce.peek().map_err(ProtocolError)? else {
            return Ok(taken);
        };
        bounce.take();
        let segment_count = bounce.shape().count;
        handle_segment(peer, ep, src, filled, segment_count)?;
    }
    Ok(SEGMENT_BATCH)
}

/// Copies, keeps or discards one filled segment, depending on the stage of its message. The peer
/// has `segment_count` segments in all.
fn handle_segment(
    peer: &mut Peer,
    ep: &Ep,
    src: FiAddr,
    filled: Filled,
    segment_count: usize,
) -> Result<(), ProtocolError> {
    let Some(incoming) = peer.incoming.get_mut(&filled.msg_id) else {
        // The command of this message has not been read yet: commands and segments arrive in two
        // queues.
        return hold_segment(&mut peer.early_segments, filled, segment_count);
    };
    incoming.eager = incoming.eager.saturating_sub(1);
    match &mut incoming.stage {
        Stage::Moving(moving) if moving.protocol == RendezvousProtocol::Bounce => {
            copy_segment_out(peer, ep, src, filled)
        }
        Stage::Moving(_) | Stage::Unmatched => {
            hold_segment(&mut incoming.kept, filled, segment_count)?
        }
        Stage::Discarding => discard_segment(peer, filled),
    }
    Ok(())
}

/// Keeps a segment for later. The peer cannot have filled more segments than it has.
fn hold_segment(
    kept: &mut Vec<Filled>,
    filled: Filled,
    segment_count: usize,
) -> Result<(), ProtocolError> {
    if kept.len() >= segment_count {
        return Err(ProtocolError("a segment that is announced twice"));
    }
    kept.push(filled);
    Ok(())
}

/// Copies the segments that arrived before the protocol of the message was selected.
pub(crate) fn copy_kept_segments(peer: &mut Peer, ep: &Ep, src: FiAddr, msg_id: u32) {
    let Some(incoming) = peer.incoming.get_mut(&msg_id) else {
        return;
    };
    for filled in std::mem::take(&mut incoming.kept) {
        copy_segment_out(peer, ep, src, filled);
    }
}

fn copy_segment_out(peer: &mut Peer, ep: &Ep, src: FiAddr, filled: Filled) {
    let (Some(bounce), Some(incoming)) = (&peer.bounce, peer.incoming.get_mut(&filled.msg_id))
    else {
        return;
    };
    let Stage::Moving(moving) = &mut incoming.stage else {
        return;
    };
    // The buffer may be longer than the message; a segment must not exceed the message.
    let len = (filled.len as usize).min(moving.len - moving.done);
    let mut offset = bounce.start(filled);
    // Copying out of segments does not fail.
    let _ = moving
        .destination
        .for_each_slice(moving.done, len, &mut |to| {
            let len = to.len();
            to.copy_from(bounce.bytes(), offset);
            offset += len;
            Ok(())
        });
    moving.done += len;
    let is_last = moving.done >= moving.len;
    peer.respond(peer.incarnation, filled.segment, status::SEGMENT);
    if is_last && let Some(moving) = end_transfer(peer, filled.msg_id) {
        finish(peer, ep, src, filled.msg_id, moving, status::BOUNCED);
    }
}

fn discard_segment(peer: &mut Peer, filled: Filled) {
    peer.respond(peer.incarnation, filled.segment, status::SEGMENT);
    if peer
        .incoming
        .get(&filled.msg_id)
        .is_some_and(|incoming| incoming.eager == 0)
    {
        peer.incoming.remove(&filled.msg_id);
    }
}
