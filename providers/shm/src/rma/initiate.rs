//! The general path of one-sided operations: their checks, and the queue of operations that wait
//! for the peer.

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
/// As [`crate::endpoint::send::send`]. An access that the peer does not allow fails by completion.
pub(crate) fn post(connector: &mut Connector<'_>, op: RmaOp, local: LocalBuffer) -> Result {
    let (report, len) = (&op.report, op.segments.len());
    if report.flags.contains(OpFlags::INJECT) && len > connector.setup.config.inject_size {
        return Err(Errno::MsgSize);
    }
    let index = connector.peers.resolve(op.peer)?;
    let peer = &mut connector.peers[index];
    peer.check_fence(op.is_fenced())?;
    let is_first = peer.deferred.is_empty();
    let (data, flags) = (op.data, op.report.flags);
    let needs_no_connection = is_first && sibling::may_access(peer, data, flags)?;
    if !peer.is_ready() && !needs_no_connection {
        return connect_and_defer(connector, index, op, local);
    }
    let result = execute(connector, index, &op, local);
    result.map_err(|(errno, _)| errno)
}

/// Connects to the peer, and defers the operation until the peer's key table is complete.
#[cold]
fn connect_and_defer(
    connector: &mut Connector<'_>,
    index: usize,
    op: RmaOp,
    local: LocalBuffer,
) -> Result {
    connector.ensure_connected(index)?;
    poll_peer(connector, index);
    if connector.peers[index].is_ready() {
        let result = execute(connector, index, &op, local);
        return result.map_err(|(errno, _)| errno);
    }
    let local = match local {
        // The caller may reuse an injected buffer when the post returns.
        LocalBuffer::Source(buf) if op.report.flags.contains(OpFlags::INJECT) => {
            let mut copy = vec![0; buf.len()].into_boxed_slice();
            buf.read(0, &mut copy);
            LocalBuffer::SourceCopy(copy)
        }
        local => local,
    };
    defer(connector, index, DeferredOp::RmaOp(op, local))
}

/// Defers an operation until the peer's key table is complete.
///
/// # Errors
/// [`Errno::Again`] while too many operations are deferred; [`Errno::NotConn`] for a disconnected
/// peer.
#[cold]
pub(crate) fn defer(
    connector: &mut Connector<'_>,
    index: usize,
    deferred_op: DeferredOp,
) -> Result {
    let peer = &mut connector.peers[index];
    if peer.deferred.len() >= MAX_OPS {
        return Err(Errno::Again);
    }
    match peer.state {
        PeerState::Connected | PeerState::Backlogged => peer.state = PeerState::Backlogged,
        PeerState::Waiting { .. } => {}
        _ => return Err(Errno::NotConn),
    }
    peer.deferred.push_back(deferred_op);
    connector.schedule.activate(peer, &connector.setup.ep);
    Ok(())
}

/// Checks that no deferred operation precedes a new post to the peer.
///
/// # Errors
/// [`Errno::Again`] while deferred operations remain; [`Errno::NotConn`] for a disconnected peer.
#[cold]
pub(crate) fn check_deferred(connector: &mut Connector<'_>, index: usize) -> Result {
    if connector.peers[index].deferred.is_empty() {
        return Ok(());
    }
    poll_peer(connector, index);
    if !connector.peers[index].deferred.is_empty() {
        Err(Errno::Again)
    } else if connector.peers[index].state == PeerState::Connected {
        Ok(())
    } else {
        Err(Errno::NotConn)
    }
}

/// Receives the peer's packets, and executes its deferred operations.
pub(crate) fn poll_peer(connector: &mut Connector<'_>, index: usize) {
    connector.receive_all(index);
    run_deferred(connector, index);
}

/// Executes the operations that waited for the peer's key table, in the order of their posts.
pub(crate) fn run_deferred(connector: &mut Connector<'_>, index: usize) {
    let peer = &connector.peers[index];
    if peer.deferred.is_empty() || peer.inbox.is_none() || !peer.keys.are_complete() {
        return;
    }
    while let Some(deferred_op) = connector.peers[index].deferred.pop_front() {
        let result = match deferred_op {
            DeferredOp::RmaOp(op, local) => execute(connector, index, &op, local)
                .map_err(|(errno, local)| (errno, DeferredOp::RmaOp(op, local))),
            DeferredOp::Atomic(mut request) => {
                atomic::initiate::execute(connector, index, &mut request)
                    .map_err(|errno| (errno, DeferredOp::Atomic(request)))
            }
        };
        match result {
            Ok(()) => {}
            Err((Errno::Again, deferred_op)) => {
                return connector.peers[index].deferred.push_front(deferred_op);
            }
            Err((errno, deferred_op)) => {
                let detail = format!("{} cannot be reached", connector.peers[index].name);
                deferred_op.fail(&connector.setup.ep, errno, FiAddr::UNSPEC, detail);
            }
        }
    }
    let peer = &mut connector.peers[index];
    if peer.state == PeerState::Backlogged {
        peer.state = PeerState::Connected;
    }
}

/// Checks the operation against the peer's key table and executes it.
fn execute(
    connector: &mut Connector<'_>,
    index: usize,
    op: &RmaOp,
    local: LocalBuffer,
) -> Result<(), PostError> {
    let peer = &mut connector.peers[index];
    match sibling::may_access(peer, op.data, op.report.flags) {
        Ok(true) => {
            sibling::execute(peer, connector.setup, op, local);
            return Ok(());
        }
        Ok(false) => {}
        Err(errno) => return Err((errno, local)),
    }
    let grants = match find_grants(connector, index, op) {
        Ok(grants) => grants,
        Err(_) if connector.control.waits_for_descriptors(index) => {
            return Err((Errno::Again, local));
        }
        Err((segment, denied)) => {
            drop(local);
            report_denied(connector, index, op, &segment, denied);
            return Ok(());
        }
    };
    let peer = &mut connector.peers[index];
    let sent = match local {
        LocalBuffer::Destination(buf) => read::read(peer, connector.setup, op, buf, &grants),
        local if grants.need_confirmation() => {
            write::write(peer, connector.setup, &op.with_delivery_complete(), local)
        }
        local => write::write(peer, connector.setup, op, local),
    };
    let sent = sent.map_err(|(errno, local)| (connector.reserve_error(index, errno), local))?;
    let peer = &mut connector.peers[index];
    peer.announce();
    match sent {
        Sent::Done => op.report.done(&connector.setup.ep),
        Sent::Pending => {
            if op.is_fenced() {
                (peer.needs_slow_path, peer.is_fenced) = (true, true);
            }
            connector.schedule.activate(peer, &connector.setup.ep);
        }
    }
    Ok(())
}

/// Looks up the grants for all segments of an operation.
#[inline]
fn find_grants(
    connector: &mut Connector<'_>,
    index: usize,
    op: &RmaOp,
) -> Result<Grants, (RmaIov, Denied)> {
    let rights = op.rights();
    let mut grants = Grants::default();
    for (segment, grant) in op.segments.all().iter().zip(&mut grants.list) {
        *grant = Some(match connector.peers[index].keys.check(segment, rights) {
            Err(Denied::Key) => refresh_and_check(connector, index, segment, rights)?,
            found => found.map_err(|denied| (*segment, denied))?,
        });
    }
    Ok(grants)
}

/// Receives the peer's packets and checks the key table once more: a new chunk may hold the key.
#[cold]
fn refresh_and_check(
    connector: &mut Connector<'_>,
    index: usize,
    segment: &RmaIov,
    rights: u32,
) -> Result<Grant, (RmaIov, Denied)> {
    connector.receive_all(index);
    let found = connector.peers[index].keys.check(segment, rights);
    found.map_err(|denied| (*segment, denied))
}

/// Reports an operation that the peer's key table denies.
#[cold]
fn report_denied(
    connector: &mut Connector<'_>,
    index: usize,
    op: &RmaOp,
    segment: &RmaIov,
    denied: Denied,
) {
    let peer = &mut connector.peers[index];
    let addr = peer.fi_addr(&connector.setup.av);
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
    op.report.failed(&connector.setup.ep, errno, addr, detail);
}
