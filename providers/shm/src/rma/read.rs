//! Read: the initiator copies out of the peer's memory, or requests the bytes from the peer.
//!
//! The initiator copies from the mapping of the peer's shared heap, or with `process_vm_readv(2)`,
//! and checks afterwards that the region was still registered. If the region was not, the initiator
//! discards the bytes and requests them from the peer, which knows the region's state. If the call
//! is denied or disabled, the initiator requests the bytes, too. The peer responds with the bytes
//! inside a command or in bounce segments.

use std::sync::Arc;

use selvedge::{Errno, MrAccess, Result};
use selvedge_kit::copy::RxBuf;
use selvedge_kit::segments::RmaSegments;

use super::cmd::{
    Notification, RESULT_MAX, Read, commit_failure, commit_read, commit_result, commit_stream,
    list_len, put_list,
};
use super::{Grants, LocalBuffer, PostError, RmaOp};
use crate::peers::ops::{Op, OpBody, Reply};
use crate::peers::peer::Peer;
use crate::progress::schedule::Schedule;
use crate::provider::config::Protocol;
use crate::provider::setup::Setup;
use crate::provider::shared::Shared;
use crate::smr::keys::Denied;
use crate::transfers::{MAX_OPS, Sent, sar};

/// The number of bytes that are copied before the next check that the region is still registered.
const COPY_STEP: usize = 1 << 20;

/// Executes a read that the peer's key table allows.
pub(super) fn read(
    peer: &mut Peer,
    setup: &Setup,
    op: &RmaOp,
    mut buf: RxBuf,
    grants: &Grants,
) -> Result<Sent, PostError> {
    if op.is_fenced() {
        return request_bytes(peer, setup, op, buf);
    }
    if let Err(errno) = peer.reserve_notification(None) {
        return Err((errno, LocalBuffer::Destination(buf)));
    }
    let is_direct = peer.has_mapped_blocks() && peer.read_directly(&mut buf, op.segments.all());
    if !is_direct
        && copy_from_arenas(peer, op, &mut buf, grants).is_none()
        && copy_from_process(peer, setup, op, &mut buf, grants).is_err()
    {
        return request_bytes(peer, setup, op, buf);
    }
    drop(buf);
    peer.notify(Notification {
        is_write: false,
        data: None,
        len: op.segments.len(),
    });
    Ok(Sent::Done)
}

/// Copies all segments from the peer's shared heap, if they lie in it. Otherwise returns `None`;
/// the buffer may be changed then.
fn copy_from_arenas(peer: &Peer, op: &RmaOp, buf: &mut RxBuf, grants: &Grants) -> Option<()> {
    let mut copied = 0;
    for (segment, grant) in op.segments.all().iter().zip(&grants.list) {
        let grant = grant.as_ref().filter(|grant| !grant.entry.is_counted())?;
        let found = peer.blocks.find_arena(grant.memory, segment.len as u64);
        let (memory, mut offset) = found?;
        for to in buf.segments(copied, segment.len) {
            let len = to.len();
            memory.bytes().copy_out(offset, to);
            offset += len;
        }
        // The peer may have withdrawn the key, or its memory may have left the file at a fork.
        if !memory.is_offered() || !peer.keys.is_current(grant) {
            return None;
        }
        copied += segment.len;
    }
    Some(())
}

/// Copies all segments with `process_vm_readv(2)`.
///
/// # Errors
/// When a region is withdrawn meanwhile, cannot be copied from, or has a counter. The caller then
/// requests the bytes from the peer, which knows the region's state.
fn copy_from_process(
    peer: &Peer,
    setup: &Setup,
    op: &RmaOp,
    buf: &mut RxBuf,
    grants: &Grants,
) -> Result {
    let process = peer.cma.ok_or(Errno::Perm)?;
    if setup.config.protocol == Protocol::Bounce {
        return Err(Errno::Perm);
    }
    let mut copied = 0;
    for (segment, grant) in op.segments.all().iter().zip(&grants.list) {
        let grant = grant.as_ref().ok_or(Errno::Inval)?;
        if grant.entry.is_counted() {
            return Err(Errno::Perm);
        }
        let mut from = grant.memory;
        let mut remaining = segment.len;
        while remaining > 0 {
            let step = remaining.min(COPY_STEP);
            for to in buf.segments(copied, step) {
                process.read(from, to)?;
                from += to.len() as u64;
            }
            if !peer.keys.is_current(grant) {
                return Err(Errno::KeyRejected);
            }
            copied += step;
            remaining -= step;
        }
    }
    Ok(())
}

/// Requests the bytes from the peer.
fn request_bytes(
    peer: &mut Peer,
    setup: &Setup,
    op: &RmaOp,
    buf: RxBuf,
) -> Result<Sent, PostError> {
    match setup.config.check_request_quota(peer) {
        Ok(()) => {}
        Err(errno) => return Err((errno, LocalBuffer::Destination(buf))),
    }
    let list = list_len(&op.segments);
    let offset = match peer.reserve(list) {
        Ok(offset) => offset,
        Err(errno) => return Err((errno, LocalBuffer::Destination(buf))),
    };
    if list > 0 {
        put_list(&op.segments, peer.outbox().payload(), offset);
    }
    let msg_id = peer
        .outbox()
        .ops
        .insert(op.to_op(OpBody::Requested { buf }));
    commit_read(peer.slot(), &op.segments, offset, msg_id);
    Ok(Sent::Pending)
}

/// Responds to a peer's read request. Returns `false` while there is no room for the response.
pub(super) fn respond(
    peer: &mut Peer,
    setup: &Setup,
    schedule: &mut Schedule,
    read: &Read,
) -> bool {
    let Some(out) = &peer.out else {
        // A disconnected peer needs no response.
        return true;
    };
    let replies = out.ops.replies();
    if replies >= MAX_OPS || !peer.reserve_response() {
        return false;
    }
    let (shared, len) = (&setup.shared, read.segments.len());
    if len > RESULT_MAX {
        let reply = Reply {
            domain: Arc::clone(shared),
            segments: read.segments,
        };
        let allowed = check_rights(shared, &read.segments);
        let result = allowed.map(|()| (reply, len)).map_err(Denied::errno);
        respond_in_bounce_segments(peer, setup, read.msg_id, result);
        schedule.activate(peer, &setup.ep);
        return true;
    }
    let mut bytes = [[0; 8]; RESULT_MAX / 8];
    match copy_registered(shared, &read.segments, bytes.as_flattened_mut()) {
        Ok(()) => {
            let words = bytes.map(u64::from_ne_bytes);
            let slot = peer.response_slot();
            commit_result(slot, read.msg_id, &words[..len.div_ceil(8)], len);
            setup.ep.peer_read(len);
            shared
                .keys
                .count_segments(read.segments.all(), MrAccess::REMOTE_READ);
        }
        Err(denied) => commit_failure(peer.response_slot(), read.msg_id, denied.errno()),
    }
    peer.announce();
    true
}

/// Responds with the bytes in bounce segments, or with the error. The caller has reserved a slot.
fn respond_in_bounce_segments(
    peer: &mut Peer,
    setup: &Setup,
    msg_id: u32,
    reply: Result<(Reply, usize), Errno>,
) {
    let result = reply.and_then(|(reply, len)| {
        sar::ensure_bounce(peer, &setup.config)?;
        let out = peer.outbox();
        let stream = out.ops.insert(Op::reply(reply, len));
        out.streams.push_back(stream);
        Ok((len, stream))
    });
    match result {
        Ok((len, stream)) => commit_stream(peer.response_slot(), msg_id, len, stream),
        Err(errno) => commit_failure(peer.response_slot(), msg_id, errno),
    }
    peer.announce();
}

impl crate::provider::config::Config {
    /// Checks that this endpoint may request one more read from the peer.
    ///
    /// # Errors
    /// [`Errno::Again`] when as many requests are outstanding as the peer has reserved slots.
    pub(crate) fn check_request_quota(&self, peer: &Peer) -> Result {
        let requested = peer.out.as_ref().map_or(0, |out| out.ops.requested());
        if requested as u64 >= self.reserved_slots() || peer.outstanding() >= MAX_OPS {
            Err(Errno::Again)
        } else {
            Ok(())
        }
    }
}

fn check_rights(domain: &Shared, segments: &RmaSegments) -> Result<(), Denied> {
    let regions = domain.keys.regions();
    let mut all = segments.all().iter();
    all.try_for_each(|segment| regions.allow(segment, MrAccess::REMOTE_READ))
}

/// Copies registered memory of this process to `bytes`.
fn copy_registered(
    domain: &Shared,
    segments: &RmaSegments,
    bytes: &mut [u8],
) -> Result<(), Denied> {
    let regions = domain.keys.regions();
    let mut copied = 0;
    for segment in segments.all() {
        let from = regions.locate(segment, MrAccess::REMOTE_READ)?;
        from.read_into(&mut bytes[copied..copied + segment.len]);
        copied += segment.len;
    }
    Ok(())
}
