//! The general path of one-sided operations: checks, and the queue of operations that wait for the
//! peer.

use selvedge::rma::RmaIov;
use selvedge::{Errno, FiAddr, OpFlags, Result};

use super::remote_memory::Grant;
use super::{DeferredOp, Grants, LocalBuffer, PostError, RmaOp, denial_text, read, sibling, write};
use crate::atomic;
use crate::connect::Connector;
use crate::peers::peer::State as PeerState;
use crate::smr::keys::Denied;
use crate::transfers::{MAX_OPS, Sent};

/// Posts a one-sided operation.
///
/// # Errors
/// As a send. An access that the peer does not allow fails by completion.
pub(crate) fn post(at: &mut Connector<'_>, op: RmaOp, local: LocalBuffer) -> Result {
    let (report, len) = (&op.report, op.segments.len());
    if report.flags.contains(OpFlags::INJECT) && len > at.setup.config.inject_size {
        return Err(Errno::MsgSize);
    }
    let index = at.peers.at(op.peer)?;
    let peer = &mut at.peers[index];
    peer.check_fence(op.is_fenced())?;
    let is_first = peer.deferred.is_empty();
    let (data, flags) = (op.data, op.report.flags);
    let needs_no_connection = is_first && sibling::may_access(peer, data, flags)?;
    if !peer.is_ready() && !needs_no_connection {
        return connect_and_defer(at, index, op, local);
    }
    let done = execute(at, index, &op, local);
    done.map_err(|(errno, _)| errno)
}

/// Connects to the peer, and defers the operation until the peer's key table is complete.
#[cold]
fn connect_and_defer(
    at: &mut Connector<'_>,
    index: usize,
    op: RmaOp,
    local: LocalBuffer,
) -> Result {
    at.ensure_connected(index)?;
    poll_peer(at, index);
    if at.peers[index].is_ready() {
        let done = execute(at, index, &op, local);
        return done.map_err(|(errno, _)| errno);
    }
    let local = match local {
        // An injected buffer belongs to the caller again when the post returns.
        LocalBuffer::Source(buf) if op.report.flags.contains(OpFlags::INJECT) => {
            let mut copy = vec![0; buf.len()].into_boxed_slice();
            buf.read(0, &mut copy);
            LocalBuffer::SourceCopy(copy)
        }
        local => local,
    };
    defer(at, index, DeferredOp::RmaOp(op, local))
}

/// Defers an operation until the peer's key table is complete.
///
/// # Errors
/// [`Errno::Again`] while too many operations are deferred; [`Errno::NotConn`] for a disconnected
/// peer.
#[cold]
pub(crate) fn defer(at: &mut Connector<'_>, index: usize, later: DeferredOp) -> Result {
    let peer = &mut at.peers[index];
    if peer.deferred.len() >= MAX_OPS {
        return Err(Errno::Again);
    }
    match peer.state {
        PeerState::Connected | PeerState::Backlogged => peer.state = PeerState::Backlogged,
        PeerState::Waiting { .. } => {}
        _ => return Err(Errno::NotConn),
    }
    peer.deferred.push_back(later);
    at.schedule.activate(peer, &at.setup.ep);
    Ok(())
}

/// Checks that no deferred operation precedes a new post to the peer.
///
/// # Errors
/// [`Errno::Again`] while deferred operations remain; [`Errno::NotConn`] for a disconnected peer.
#[cold]
pub(crate) fn check_deferred(at: &mut Connector<'_>, index: usize) -> Result {
    if at.peers[index].deferred.is_empty() {
        return Ok(());
    }
    poll_peer(at, index);
    match at.peers[index].deferred.is_empty() {
        true if at.peers[index].state == PeerState::Connected => Ok(()),
        true => Err(Errno::NotConn),
        false => Err(Errno::Again),
    }
}

/// Receives the peer's packets, and executes its deferred operations.
pub(crate) fn poll_peer(at: &mut Connector<'_>, index: usize) {
    at.receive_all(index);
    run_deferred(at, index);
}

/// Executes the operations that waited for the peer's key table, in order of posts.
pub(crate) fn run_deferred(at: &mut Connector<'_>, index: usize) {
    let peer = &at.peers[index];
    if peer.deferred.is_empty() || peer.inbox.is_none() || !peer.keys.are_complete() {
        return;
    }
    while let Some(later) = at.peers[index].deferred.pop_front() {
        let done = match later {
            DeferredOp::RmaOp(op, local) => execute(at, index, &op, local)
                .map_err(|(errno, local)| (errno, DeferredOp::RmaOp(op, local))),
            DeferredOp::Atomic(mut request) => atomic::initiate::execute(at, index, &mut request)
                .map_err(|errno| (errno, DeferredOp::Atomic(request))),
        };
        match done {
            Ok(()) => {}
            Err((Errno::Again, later)) => {
                return at.peers[index].deferred.push_front(later);
            }
            Err((errno, later)) => {
                let detail = format!("{} cannot be reached", at.peers[index].name);
                later.fail(&at.setup.ep, errno, FiAddr::UNSPEC, detail);
            }
        }
    }
    let peer = &mut at.peers[index];
    if peer.state == PeerState::Backlogged {
        peer.state = PeerState::Connected;
    }
}

/// Checks the operation against the peer's key table and executes it.
fn execute(
    at: &mut Connector<'_>,
    index: usize,
    op: &RmaOp,
    local: LocalBuffer,
) -> Result<(), PostError> {
    let peer = &mut at.peers[index];
    match sibling::may_access(peer, op.data, op.report.flags) {
        Ok(true) => {
            sibling::op(peer, at.setup, op, local);
            return Ok(());
        }
        Ok(false) => {}
        Err(errno) => return Err((errno, local)),
    }
    let grants = match grants(at, index, op) {
        Ok(grants) => grants,
        Err(_) if at.control.waits_for_descriptors(index) => {
            return Err((Errno::Again, local));
        }
        Err((segment, denied)) => {
            drop(local);
            report_denied(at, index, op, &segment, denied);
            return Ok(());
        }
    };
    let peer = &mut at.peers[index];
    let sent = match local {
        LocalBuffer::Destination(buf) => read::read(peer, at.setup, op, buf, &grants),
        local if grants.need_confirmation() => {
            write::write(peer, at.setup, &op.with_delivery_complete(), local)
        }
        local => write::write(peer, at.setup, op, local),
    };
    let sent = sent.map_err(|(errno, local)| (at.reserve_error(index, errno), local))?;
    let peer = &mut at.peers[index];
    peer.announce();
    match sent {
        Sent::Done => op.report.done(&at.setup.ep),
        Sent::Pending => {
            if op.is_fenced() {
                (peer.needs_slow_path, peer.is_fenced) = (true, true);
            }
            at.schedule.activate(peer, &at.setup.ep);
        }
    }
    Ok(())
}

/// Looks up the grants for all segments of an operation.
#[inline]
fn grants(at: &mut Connector<'_>, index: usize, op: &RmaOp) -> Result<Grants, (RmaIov, Denied)> {
    let rights = op.rights();
    let mut grants = Grants::default();
    for (segment, grant) in op.segments.all().iter().zip(&mut grants.list) {
        *grant = Some(match at.peers[index].keys.check(segment, rights) {
            Err(Denied::Key) => refresh_and_check(at, index, segment, rights)?,
            found => found.map_err(|denied| (*segment, denied))?,
        });
    }
    Ok(grants)
}

/// Receives the peer's packets and checks once more: a new chunk may hold the key.
#[cold]
fn refresh_and_check(
    at: &mut Connector<'_>,
    index: usize,
    segment: &RmaIov,
    rights: u32,
) -> Result<Grant, (RmaIov, Denied)> {
    at.receive_all(index);
    let found = at.peers[index].keys.check(segment, rights);
    found.map_err(|denied| (*segment, denied))
}

/// Reports an operation that the peer's key table denies.
#[cold]
fn report_denied(
    at: &mut Connector<'_>,
    index: usize,
    op: &RmaOp,
    segment: &RmaIov,
    denied: Denied,
) {
    let peer = &mut at.peers[index];
    let addr = peer.fi_addr(&at.setup.av);
    let (errno, detail) = match peer.inbox {
        Some(_) => {
            let detail = denial_text(peer.name.as_str(), segment, denied);
            (denied.errno(), detail)
        }
        None => (
            Errno::ConnReset,
            format!("{}: the peer has disconnected", peer.name),
        ),
    };
    op.report.failed(&at.setup.ep, errno, addr, detail);
}
