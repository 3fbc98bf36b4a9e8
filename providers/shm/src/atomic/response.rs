//! Responses to atomic commands: the fetched values, or an error.
//!
//! A response is itself a command, which the target sends. Up to [`INLINE_MAX`] bytes of fetched
//! values are inside the command, more bytes are in the inject pool. A response for which there is
//! no room waits in the target's [`super::Backlog`], and the target continues to take commands:
//! otherwise two endpoints that flood each other with atomics would deadlock.
//!
//! ```text
//! word 1   msg_id of the atomic | error number << 32, 0 for success
//! inline   the bytes from word 2 on
//! inject   word 3: number of bytes, 4: offset into the inject pool
//! ```

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use selvedge::{Errno, Result};
use selvedge_kit::Report;

use super::{OutstandingAtomic, Response};
use crate::peers::ops::{Op, OpBody};
use crate::peers::outbox::Inbox;
use crate::peers::peer::Peer;
use crate::provider::setup::Setup;
use crate::smr::cmd_queue::Received;
use crate::transfers::cmd::{self, INLINE_MAX, ProtocolError};
use crate::transfers::{MAX_OPS, inject, inline};

/// Responds to an atomic command of the peer's current incarnation, with the fetched bytes or with
/// an error.
///
/// # Errors
/// [`ProtocolError`] when the peer has more atomics outstanding than allowed, or claims to have
/// consumed commands that were never sent.
pub(crate) fn respond(
    peer: &mut Peer,
    msg_id: u32,
    result: Result<&[u8]>,
) -> Result<(), ProtocolError> {
    let (errno, bytes) = match result {
        Ok(bytes) => (None, bytes),
        Err(errno) => (Some(errno), &[][..]),
    };
    if peer.atomics.owed_responses.is_empty() && send(peer, msg_id, errno, bytes)? {
        peer.announce();
        return Ok(());
    }
    if peer.atomics.owed_responses.len() >= MAX_OPS {
        return Err(ProtocolError("more atomics than may be outstanding"));
    }
    peer.atomics.owed_responses.push_back(Response {
        msg_id,
        errno,
        bytes: bytes.into(),
    });
    Ok(())
}

/// Sends delayed responses while there is room. Returns the number of sent responses.
///
/// # Errors
/// [`ProtocolError`] when the peer claims to have consumed commands that were never sent.
pub(crate) fn send_owed_responses(peer: &mut Peer) -> Result<usize, ProtocolError> {
    let mut sent = 0;
    while let Some(response) = peer.atomics.owed_responses.pop_front() {
        if !send(peer, response.msg_id, response.errno, &response.bytes)? {
            peer.atomics.owed_responses.push_front(response);
            break;
        }
        sent += 1;
    }
    if sent > 0 {
        peer.announce();
    }
    Ok(sent)
}

/// Sends a response if there is room. Returns `false` if there is none.
fn send(
    peer: &mut Peer,
    msg_id: u32,
    errno: Option<Errno>,
    bytes: &[u8],
) -> Result<bool, ProtocolError> {
    let is_inline = bytes.len() <= INLINE_MAX;
    let offset = match peer.reserve(if is_inline { 0 } else { bytes.len() }) {
        Ok(offset) => offset,
        Err(Errno::Proto) => return Err(ProtocolError("credit for commands that were never sent")),
        // A disconnected peer needs no response.
        Err(Errno::NotConn) => return Ok(true),
        Err(_) => return Ok(false),
    };
    if !is_inline {
        peer.outbox().payload().copy_in(offset, bytes);
    }
    let mut slot = peer.slot();
    let errno = errno.map_or(0, |errno| errno.as_raw() as u32);
    slot.put(1, u64::from(msg_id) | u64::from(errno) << 32);
    if is_inline {
        for (word, chunk) in (2..).zip(bytes.chunks(8)) {
            slot.put(word, inline::to_word(chunk));
        }
        slot.commit(cmd::head(
            cmd::OP_ATOMIC_RESULT,
            cmd::SRC_INLINE,
            0,
            bytes.len() as u32,
        ));
    } else {
        slot.put(3, bytes.len() as u64);
        slot.put(4, offset as u64);
        slot.commit(cmd::head(cmd::OP_ATOMIC_RESULT, cmd::SRC_INJECT, 0, 0));
    }
    Ok(true)
}

/// Takes the response that is the peer's next command.
///
/// # Errors
/// [`ProtocolError`] when the response is invalid, or has no outstanding atomic.
pub(crate) fn take_response(peer: &mut Peer, setup: &Setup) -> Result<(), ProtocolError> {
    let src = peer.fi_addr(&setup.av);
    let Some(inbox) = &mut peer.inbox else {
        return Ok(());
    };
    let slot = inbox.peeked()?;
    let word = slot.word(1);
    let (msg_id, errno) = (word as u32, (word >> 32) as i32);
    let (small, large);
    let bytes: &[u8] = match slot.head() >> 8 & 0xff {
        cmd::SRC_INLINE => {
            small = inline_bytes(&slot)?;
            let bytes = small.0.get(..small.1);
            bytes.ok_or(ProtocolError("inline values beyond the command"))?
        }
        cmd::SRC_INJECT => {
            let (len, offset) = (cmd::parse_len(slot.word(3))?, slot.word(4));
            large = inject_bytes(inbox, len, offset)?;
            &large
        }
        _ => return Err(ProtocolError("unknown op_src of a response")),
    };
    inbox.rx.release();
    // A response with too many or too few values is invalid.
    let len = (errno == 0).then_some(bytes.len());
    let Some((report, outstanding_op)) = remove_outstanding(peer, msg_id, len)? else {
        return Ok(());
    };
    if errno != 0 {
        let detail = format!("{}: {outstanding_op}: the peer refused", peer.name);
        // The buffer is released before the completion is written.
        drop(outstanding_op);
        report.failed(&setup.ep, Errno::from_raw(errno), src, detail);
        return Ok(());
    }
    if let Some(mut result) = outstanding_op.result {
        result.write(0, bytes);
    }
    report.done(&setup.ep);
    Ok(())
}

/// Removes the operation that a response completes. `len` is the number of fetched bytes, or `None`
/// for an error. Returns `None` if all operations have failed already, because the peer has
/// disconnected.
fn remove_outstanding(
    peer: &mut Peer,
    msg_id: u32,
    len: Option<usize>,
) -> Result<Option<(Report, OutstandingAtomic)>, ProtocolError> {
    let Some(out) = &mut peer.out else {
        return Ok(None);
    };
    match out.ops.get_mut(msg_id).map(|op| &op.body) {
        Some(OpBody::Atomic(outstanding_op))
            if len.is_none_or(|len| len == outstanding_op.result_len()) => {}
        Some(OpBody::Atomic(_)) => return Err(ProtocolError("wrong number of fetched values")),
        _ => return Err(NOT_REQUESTED),
    }
    match out.ops.remove(msg_id) {
        Some(Op {
            report,
            body: OpBody::Atomic(outstanding_op),
        }) => {
            peer.atomics.outstanding -= 1;
            Ok(Some((report, outstanding_op)))
        }
        _ => Err(NOT_REQUESTED),
    }
}

const NOT_REQUESTED: ProtocolError = ProtocolError("a response without an outstanding atomic");

fn inline_bytes(slot: &Received<'_>) -> Result<([u8; INLINE_MAX], usize), ProtocolError> {
    let len = (slot.head() >> 24) as usize;
    if len > INLINE_MAX {
        return Err(ProtocolError("inline length beyond the command"));
    }
    let mut bytes = [0; INLINE_MAX];
    let words = bytes.as_chunks_mut().0;
    for (index, word) in words.iter_mut().enumerate().take(len.div_ceil(8)) {
        *word = slot.word(2 + index).to_ne_bytes();
    }
    Ok((bytes, len))
}

fn inject_bytes(inbox: &mut Inbox, len: usize, offset: u64) -> Result<Box<[u8]>, ProtocolError> {
    let start = inject::locate(inbox, offset, len)?;
    Ok(inject::copy_to_heap(inbox, start, len))
}
