//! Write: the initiator sends the bytes by a command, and the target stores them in the registered
//! memory that its key table names.
//!
//! The bytes are inside the command, in the inject pool, or announced by an RTS like those of a
//! large message. After an RTS, the target copies the bytes from the writer's memory or requests
//! bounce segments. The target checks key, bounds and rights again, and checks them anew for each
//! step of a large write.

use std::sync::Arc;

use selvedge::rma::RmaIov;
use selvedge::{Errno, MrAccess, OpFlags, Result};
use selvedge_kit::copy::TxBuf;
use selvedge_kit::mr::Regions;

use super::cmd::{Header, InlineWrite, Notification, Write, inline_write_max, list_len, put_list};
use super::{LocalBuffer, PostError, RmaOp};
use crate::memory::keys::KeyChunks;
use crate::peers::ops::OpBody;
use crate::peers::outbox::Inbox;
use crate::peers::peer::Peer;
use crate::provider::setup::Setup;
use crate::provider::shared::Shared;
use crate::smr::cmd_queue::Received;
use crate::smr::keys::Denied;
use crate::transfers::destination::{Destination, Memory, RemoteWrite};
use crate::transfers::incoming::{ENTRY_LEN, SourceSegments};
use crate::transfers::iov::{self, fill_eager};
use crate::transfers::{ACK_FLAGS, MAX_OPS, Sent, sar, status};

/// The number of words of the longest payload of an inline write.
const INLINE_WORDS: usize = inline_write_max(false) / 8;

impl RmaOp {
    /// Whether the target has to acknowledge the write.
    fn is_acked(&self) -> bool {
        self.report
            .flags
            .intersects(ACK_FLAGS.union(OpFlags::FENCE))
    }
}

/// Sends a write that the peer's key table allows.
///
/// # Errors
/// As [`Peer::reserve`], with the buffer.
#[inline]
pub(super) fn write(
    peer: &mut Peer,
    setup: &Setup,
    op: &RmaOp,
    local: LocalBuffer,
) -> Result<Sent, PostError> {
    let sent = match &local {
        LocalBuffer::Source(buf) => match write_directly(peer, op, buf) {
            Ok(false) => send_small(peer, setup, op, buf),
            done => done.map(|_| Some(Sent::Done)),
        },
        LocalBuffer::SourceCopy(bytes) => send_copy(peer, op, bytes),
        LocalBuffer::Destination(_) => Err(Errno::Inval),
    };
    match (sent, local) {
        (Ok(Some(sent)), _) => Ok(sent),
        (Ok(None), LocalBuffer::Source(buf)) => send_rts(peer, setup, op, buf),
        (Ok(None), local) => Err((Errno::MsgSize, local)),
        (Err(errno), local) => Err((errno, local)),
    }
}

/// Writes special memory, and notifies a peer that requests notifications. Returns `false` without
/// effect for other memory, and for a fenced write.
///
/// # Errors
/// As [`Peer::reserve_notification`].
#[inline]
fn write_directly(peer: &mut Peer, op: &RmaOp, buf: &TxBuf) -> Result<bool> {
    if op.is_fenced() || !peer.has_mapped_blocks() {
        return Ok(false);
    }
    peer.reserve_notification(op.data)?;
    let is_done = peer.write_directly(buf, op.segments.all());
    if is_done {
        peer.notify(Notification {
            is_write: true,
            data: op.data,
            len: buf.len(),
        });
    }
    Ok(is_done)
}

/// Sends a write that fits a command or the inject pool. Returns `None` for a larger one.
#[inline]
fn send_small(peer: &mut Peer, setup: &Setup, op: &RmaOp, buf: &TxBuf) -> Result<Option<Sent>> {
    let (len, data) = (buf.len(), op.data);
    let header = Header {
        segments: &op.segments,
        data,
    };
    let is_acked = op.is_acked();
    if !is_acked && len <= inline_write_max(data.is_some()) && op.segments.only().is_some() {
        peer.reserve(0)?;
        send_inline(peer, &op.segments.all()[0], data, buf);
        return Ok(Some(Sent::Done));
    }
    if len > setup.config.inject_size {
        return Ok(None);
    }
    inject(peer, op, &header, is_acked, len, |peer, mut offset| {
        for segment in buf.segments(0, len) {
            peer.outbox().store(offset, segment);
            offset += segment.len();
        }
    })
    .map(Some)
}

/// Sends the copy of an injected write that waited for the peer's key table.
#[cold]
fn send_copy(peer: &mut Peer, op: &RmaOp, bytes: &[u8]) -> Result<Option<Sent>> {
    let header = Header {
        segments: &op.segments,
        data: op.data,
    };
    let is_acked = op.is_acked();
    inject(peer, op, &header, is_acked, bytes.len(), |peer, offset| {
        peer.outbox().store(offset, bytes);
    })
    .map(Some)
}

/// Sends the RTS of a large write.
fn send_rts(peer: &mut Peer, setup: &Setup, op: &RmaOp, buf: TxBuf) -> Result<Sent, PostError> {
    if peer.outstanding() >= MAX_OPS {
        return Err((Errno::Again, LocalBuffer::Source(buf)));
    }
    let segments = SourceSegments::from_buf(&buf, &setup.shared);
    let list = list_len(&op.segments);
    let offset = match peer.reserve(list + segments.count * ENTRY_LEN) {
        Ok(offset) => offset,
        Err(errno) => return Err((errno, LocalBuffer::Source(buf))),
    };
    let out = peer.outbox();
    let (class, eager) = sar::classify(out, &setup.config, &segments, buf.len());
    if list > 0 {
        put_list(&op.segments, out.payload(), offset);
    }
    segments.put(out.payload(), offset + list);
    let msg_id = out.ops.insert(op.to_op(OpBody::Rts {
        buf,
        filled: 0,
        bounced: false,
        special: segments.are_special(),
        is_lent: false,
        class,
    }));
    let header = Header {
        segments: &op.segments,
        data: op.data,
    };
    header.commit_iov(peer.slot(), offset, msg_id, segments.count, eager);
    fill_eager(peer, msg_id, eager);
    Ok(Sent::Pending)
}

/// Starts to receive a write whose RTS has been registered.
pub(super) fn start_incoming(peer: &mut Peer, setup: &Setup, write: &Write, msg_id: u32) {
    let len = write.segments.len();
    let destination = Destination::Memory(Memory {
        domain: Arc::clone(&setup.shared),
        segments: write.segments,
        remote_write: RemoteWrite {
            data: write.data,
            len,
        },
        denied: None,
    });
    let src = peer.fi_addr(&setup.av);
    iov::start(
        peer,
        &setup.config,
        &setup.ep,
        src,
        msg_id,
        destination,
        len,
    );
}

/// Sends an inline write. The caller has reserved a slot.
#[inline]
pub(super) fn send_inline(peer: &mut Peer, segment: &RmaIov, data: Option<u64>, buf: &TxBuf) {
    if segment.len == 8 {
        return InlineWrite::commit(segment, data, peer.slot(), &[buf.word()]);
    }
    let mut bytes = [[0; 8]; INLINE_WORDS];
    buf.read(0, bytes.as_flattened_mut());
    let words = bytes.map(u64::from_ne_bytes);
    InlineWrite::commit(
        segment,
        data,
        peer.slot(),
        &words[..segment.len.div_ceil(8)],
    );
}

/// Sends a write through the inject pool. `copy` stores the payload at the offset that it receives.
fn inject(
    peer: &mut Peer,
    op: &RmaOp,
    header: &Header<'_>,
    is_acked: bool,
    len: usize,
    copy: impl FnOnce(&mut Peer, usize),
) -> Result<Sent> {
    if is_acked && peer.outstanding() >= MAX_OPS {
        return Err(Errno::Again);
    }
    let list = list_len(&op.segments);
    let offset = peer.reserve(list + len)?;
    if list > 0 {
        put_list(&op.segments, peer.outbox().payload(), offset);
    }
    copy(peer, offset + list);
    let ack = is_acked.then(|| peer.outbox().ops.insert(op.to_op(OpBody::Sent)));
    header.commit_inject(peer.slot(), offset, ack);
    if is_acked {
        Ok(Sent::Pending)
    } else {
        Ok(Sent::Done)
    }
}

/// Stores the bytes of an inline write in registered memory of this process.
#[inline]
pub(super) fn put_inline(
    slot: &Received<'_>,
    inline_write: &InlineWrite,
    domain: &Shared,
) -> Result<(), Denied> {
    let regions = domain.keys.regions();
    let (segment, word) = (&inline_write.segment, inline_write.word);
    let target = regions.locate(segment, MrAccess::REMOTE_WRITE)?;
    if segment.len == 8 {
        target.write(&slot.word(word).to_ne_bytes());
        return Ok(());
    }
    let mut bytes = [[0; 8]; INLINE_WORDS];
    for (index, bytes) in bytes[..segment.len.div_ceil(8)].iter_mut().enumerate() {
        *bytes = slot.word(word + index).to_ne_bytes();
    }
    target.write(&bytes.as_flattened()[..segment.len]);
    Ok(())
}

/// Stores the bytes of a write from the inject pool in registered memory of this process: all bytes
/// or, if a segment is denied, none.
pub(super) fn put_injected(
    inbox: &Inbox,
    write: &Write,
    mut offset: usize,
    domain: &Shared,
) -> Result<(), Denied> {
    let regions = domain.keys.regions();
    check_segments(&regions, write)?;
    for segment in write.segments.all() {
        inbox
            .pool
            .copy_to(offset, regions.locate(segment, MrAccess::REMOTE_WRITE)?);
        offset += segment.len;
    }
    Ok(())
}

fn check_segments(regions: &Regions<'_, KeyChunks>, write: &Write) -> Result<(), Denied> {
    let mut segments = write.segments.all().iter();
    segments.try_for_each(|segment| regions.locate(segment, MrAccess::REMOTE_WRITE).map(drop))
}

/// Returns the response status of a write that requests a response.
pub(super) fn response_status(result: Result<(), Denied>) -> u32 {
    match result {
        Ok(()) => status::DONE,
        Err(denied) => status::failed(denied.errno()),
    }
}
