//! The target side of one-sided operations: executes peers' commands on registered memory.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use selvedge::MrAccess;
use selvedge::rma::RmaIov;
use selvedge_kit::cq::Sink;
use selvedge_kit::rate_limit::warn_limited;

use super::cmd::{
    self, Body, InlineWrite, Notification, OneSided, Outcome, Response, Write, parse, split_inbox,
};
use super::read;
use super::write;
use crate::peers::ops::OpBody;
use crate::peers::peer::Peer;
use crate::progress::schedule::Schedule;
use crate::provider::setup::Setup;
use crate::smr::keys::Denied;
use crate::transfers::cmd::ProtocolError;
use crate::transfers::destination::{Destination, RemoteWrite};
use crate::transfers::{inline, sar, transfer};

/// Executes the peer's next read, write, result or notification command. Returns `false` if there
/// is no command, or no room for its response; a later call executes the command then.
///
/// # Errors
/// When the command is invalid.
#[inline(never)]
pub(crate) fn take_command(
    peer: &mut Peer,
    setup: &Setup,
    schedule: &mut Schedule,
    sink: &mut Sink<'_>,
) -> Result<bool, ProtocolError> {
    let Some(inbox) = &mut peer.inbox else {
        return Ok(false);
    };
    if let Some(slot) = inbox.rx.peek() {
        if let Some(inline_write) = InlineWrite::parse(&slot) {
            let result = write::put_inline(&slot, &inline_write, &setup.shared);
            inbox.rx.release();
            let (data, len) = (inline_write.data, inline_write.segment.len);
            let segment = [inline_write.segment];
            finish_write(
                peer,
                setup,
                &segment,
                RemoteWrite { data, len },
                result,
                sink,
            );
            return Ok(true);
        }
        if let Some(notification) = Notification::parse(&slot)? {
            inbox.rx.release();
            take_notification(peer, setup, notification, sink);
            return Ok(true);
        }
    }
    let saved_position = inbox.pool_position;
    let (Some(slot), mut cursor) = split_inbox(inbox) else {
        return Ok(false);
    };
    match parse(&slot, &mut cursor)? {
        OneSided::Write(write) => take_write(peer, setup, schedule, &write)?,
        OneSided::Read(read) => {
            if !read::respond(peer, setup, schedule, &read) {
                if let Some(inbox) = &mut peer.inbox {
                    inbox.pool_position = saved_position;
                }
                return Ok(false);
            }
            release(peer);
        }
        OneSided::Result(response) => take_result(peer, setup, schedule, &response)?,
    }
    Ok(true)
}

/// Takes up to `budget` consecutive notifications of direct writes with remote data, and returns
/// their number. A notification accesses no memory and needs no response.
#[inline(never)]
pub(crate) fn take_write_notifications(
    peer: &mut Peer,
    setup: &Setup,
    budget: usize,
    sink: &mut Sink<'_>,
) -> usize {
    let src = peer.fi_addr(&setup.av);
    let Some(inbox) = &mut peer.inbox else {
        return 0;
    };
    for taken in 0..budget {
        let write_notification = inbox
            .rx
            .peek()
            .and_then(|slot| cmd::parse_write_notification(&slot));
        let Some((data, len)) = write_notification else {
            return taken;
        };
        inbox.rx.release();
        let data = Some(data);
        RemoteWrite { data, len }.report(&setup.ep, src, sink);
    }
    budget
}

fn release(peer: &mut Peer) {
    if let Some(inbox) = &mut peer.inbox {
        inbox.rx.release();
    }
}

#[inline]
fn take_write(
    peer: &mut Peer,
    setup: &Setup,
    schedule: &mut Schedule,
    write: &Write,
) -> Result<(), ProtocolError> {
    let Some(inbox) = &mut peer.inbox else {
        return Ok(());
    };
    let (result, ack) = match write.body {
        Body::Iov {
            msg_id,
            eager,
            segments,
        } => {
            inbox.rx.release();
            transfer::register_incoming(peer, msg_id, eager, segments)?;
            schedule.activate(peer, &setup.ep);
            write::start_incoming(peer, setup, write, msg_id);
            return Ok(());
        }
        Body::Inject { offset, ack } => (
            write::put_injected(inbox, write, offset, &setup.shared),
            ack,
        ),
    };
    inbox.rx.release();
    if let Some(msg_id) = ack {
        peer.respond(peer.incarnation, msg_id, write::response_status(result));
    }
    let remote_write = RemoteWrite {
        data: write.data,
        len: write.segments.len(),
    };
    let segments = write.segments.all();
    finish_write(
        peer,
        setup,
        segments,
        remote_write,
        result,
        &mut Sink::none(),
    );
    Ok(())
}

/// Counts and reports an executed write, or warns of a denied one.
#[inline]
fn finish_write(
    peer: &mut Peer,
    setup: &Setup,
    segments: &[RmaIov],
    remote_write: RemoteWrite,
    result: Result<(), Denied>,
    sink: &mut Sink<'_>,
) {
    match result {
        Ok(()) => {
            setup
                .shared
                .keys
                .count_segments(segments, MrAccess::REMOTE_WRITE);
            remote_write.report(&setup.ep, peer.fi_addr(&setup.av), sink);
        }
        Err(denied) => warn_refused(peer.name.as_str(), denied),
    }
}

/// Takes the response to a read request of this endpoint: bytes, a stream of bytes, or an error.
fn take_result(
    peer: &mut Peer,
    setup: &Setup,
    schedule: &mut Schedule,
    response: &Response,
) -> Result<(), ProtocolError> {
    if peer.out.is_none() {
        // The operation has failed already, because the peer has disconnected.
        release(peer);
        return Ok(());
    }
    if !is_expected(peer, response) {
        return Err(ProtocolError("a response without a request"));
    }
    if let Outcome::Stream { stream, .. } = response.outcome {
        // The operation is still in the table. If the registration fails, the disconnect of the
        // peer fails the operation.
        transfer::register_stream(peer, stream)?;
    }
    let op = peer.outbox().ops.remove(response.msg_id);
    let (Some(mut op), Some(inbox)) = (op, &mut peer.inbox) else {
        return Ok(());
    };
    if let (Outcome::Inline { len, words }, OpBody::Requested { buf }) =
        (&response.outcome, &mut op.body)
    {
        inline::receive_words(words, *len, buf);
    }
    inbox.rx.release();
    let (ep, src) = (&setup.ep, peer.fi_addr(&setup.av));
    match response.outcome {
        Outcome::Inline { .. } => op.succeed(ep),
        Outcome::Stream { len, stream } => {
            transfer::start_stream(peer, stream, Destination::Read(Box::new(op)), len);
            schedule.activate(peer, ep);
            sar::copy_kept_segments(peer, ep, src, stream);
        }
        Outcome::Failed(errno) => {
            let detail = format!("{} refused the access: {errno}", peer.name);
            op.fail(ep, errno, src, detail);
        }
    }
    Ok(())
}

/// Takes a notification that a peer has accessed this process's memory directly.
#[inline]
fn take_notification(
    peer: &mut Peer,
    setup: &Setup,
    notification: Notification,
    sink: &mut Sink<'_>,
) {
    let src = peer.fi_addr(&setup.av);
    let Notification {
        is_write,
        data,
        len,
    } = notification;
    if is_write {
        RemoteWrite { data, len }.report(&setup.ep, src, sink)
    } else {
        setup.ep.peer_read(len)
    }
}

/// Whether an outstanding operation waits for this response. An operation that waits for a
/// different response stays in the table, and the disconnect of the peer fails it.
fn is_expected(peer: &mut Peer, response: &Response) -> bool {
    let op = peer
        .out
        .as_mut()
        .and_then(|out| out.ops.get_mut(response.msg_id));
    op.is_some_and(|op| match (&op.body, &response.outcome) {
        (OpBody::Requested { .. }, Outcome::Inline { len, .. } | Outcome::Stream { len, .. }) => {
            *len == op.report.len
        }
        (OpBody::Requested { .. }, Outcome::Failed(_)) => true,
        _ => false,
    })
}

/// Warns of a denied write. A correct peer checks the key table itself and does not post such a
/// write.
#[cold]
fn warn_refused(name: &str, denied: Denied) {
    warn_limited(
        "selvedge::shm::ep_data",
        format_args!("{name}: a write was refused: {}", denied.text()),
    );
}
