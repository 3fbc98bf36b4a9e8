//! Inject protocol: the message is in the inject pool, and its offset is in the command.

use selvedge::{Errno, Result};
use selvedge_kit::copy::{RxBuf, TxBuf};

use super::{MAX_OPS, Sent};
use crate::peers::ops::Op;
use crate::peers::outbox::Inbox;
use crate::peers::peer::Peer;
use crate::smr::bytes::Bytes;
use crate::smr::inject_pool::PoolPosition;
use crate::transfers::cmd::{Header, ProtocolError};

/// Copies the message into the inject pool and commits its command. With `op`, the peer
/// acknowledges the receive.
///
/// # Errors
/// As [`Peer::reserve`]; [`Errno::Again`] while too many operations are outstanding.
#[inline(always)]
pub(crate) fn send(peer: &mut Peer, header: &Header, buf: &TxBuf, op: Option<Op>) -> Result<Sent> {
    let len = buf.len();
    if op.is_some() && peer.outstanding() >= MAX_OPS {
        return Err(Errno::Again);
    }
    let offset = peer.reserve(len)?;
    let mut end = offset;
    for segment in buf.segments(0, len) {
        peer.outbox().store(end, segment);
        end += segment.len();
    }
    let sent = if op.is_some() {
        Sent::Pending
    } else {
        Sent::Done
    };
    let ack = op.map(|op| peer.outbox().ops.insert(op));
    header.commit_inject(peer.slot(), offset, len, ack);
    peer.outbox().prefetch_next_payload();
    Ok(sent)
}

/// A cursor over a peer's inject pool, and the pool's bytes.
#[derive(Debug)]
pub(crate) struct PoolCursor<'a> {
    cursor: &'a mut PoolPosition,
    bytes: &'a Bytes,
}

impl<'a> PoolCursor<'a> {
    pub(crate) fn new(cursor: &'a mut PoolPosition, bytes: &'a Bytes) -> Self {
        Self { cursor, bytes }
    }

    pub(crate) fn bytes(&self) -> &'a Bytes {
        self.bytes
    }

    /// Checks that the next payload, of `len` bytes, is at `offset`, and advances past it. Returns
    /// the payload's offset.
    #[inline]
    pub(crate) fn advance(&mut self, offset: u64, len: usize) -> Result<usize, ProtocolError> {
        match self.cursor.advance(len) {
            _ if len == 0 => Ok(0),
            Some(next) if next as u64 == offset => Ok(next),
            _ => Err(ProtocolError(
                "payload at an unexpected offset of the inject pool",
            )),
        }
    }
}

/// As [`PoolCursor::advance`], for the cursor of an inbox.
#[inline]
pub(crate) fn locate(inbox: &mut Inbox, offset: u64, len: usize) -> Result<usize, ProtocolError> {
    PoolCursor::new(&mut inbox.pool_position, &inbox.pool).advance(offset, len)
}

/// Copies a payload to the buffer of a receive. Returns the number of bytes that fit.
#[inline]
pub(crate) fn receive(inbox: &Inbox, offset: usize, len: usize, buf: &mut RxBuf) -> usize {
    let mut copied = 0;
    for segment in buf.segments(0, len) {
        inbox.pool.copy_out(offset + copied, segment);
        copied += segment.len();
    }
    copied
}

/// Copies the payload of an unexpected message to the heap.
pub(crate) fn copy_to_heap(inbox: &Inbox, offset: usize, len: usize) -> Box<[u8]> {
    let mut bytes = Box::new_uninit_slice(len);
    inbox.pool.copy_out(offset, &mut bytes);
    assume_filled(bytes)
}

#[expect(unsafe_code, reason = "the bytes were just filled")]
fn assume_filled(bytes: Box<[std::mem::MaybeUninit<u8>]>) -> Box<[u8]> {
    // SAFETY: `copy_out` fills the whole slice or panics.
    unsafe { bytes.assume_init() }
}
