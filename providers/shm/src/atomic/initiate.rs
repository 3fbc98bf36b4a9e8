//! The initiator's side of atomics: checks, the choice between direct execution and a command, and
//! deferral until the peer is connected.

use selvedge::atomic::RmaIoc;
use selvedge::{Errno, OpFlags, Result};

use super::{AtomicError, OutstandingAtomic, Request, command, rights, target_segment};
use crate::connect::Connector;
use crate::peers::peer::Peer;
use crate::provider::setup::Setup;
use crate::rma::cmd::Notification;
use crate::rma::initiate::{defer, poll_peer};
use crate::rma::{DeferredOp, sibling};
use crate::smr::keys::{Denied, Kind};

/// Posts an atomic.
///
/// # Errors
/// As a send. An access that the peer does not allow fails by completion.
#[inline(never)]
pub(super) fn post(connector: &mut Connector<'_>, mut request: Request) -> Result {
    if request.report.reports_success && connector.setup.ep.tx_cq.room() == 0 {
        return Err(Errno::Again);
    }
    let index = connector.peers.resolve(request.dest)?;
    let peer = &mut connector.peers[index];
    if request.report.flags.contains(OpFlags::FENCE) && peer.has_unfinished() {
        return Err(Errno::Again);
    }
    let is_first = peer.deferred.is_empty();
    if peer.is_ready() || is_first && may_apply_to_sibling(peer, &request)? {
        return execute(connector, index, &mut request);
    }
    connect_and_defer(connector, index, request)
}

/// Connects to the peer, and defers the request until the peer's key table is complete.
#[cold]
fn connect_and_defer(connector: &mut Connector<'_>, index: usize, mut request: Request) -> Result {
    connector.ensure_connected(index)?;
    poll_peer(connector, index);
    if connector.peers[index].is_ready() {
        return execute(connector, index, &mut request);
    }
    defer(connector, index, DeferredOp::Atomic(Box::new(request)))
}

/// Checks the request against the peer's key table and executes it.
pub(crate) fn execute(
    connector: &mut Connector<'_>,
    index: usize,
    request: &mut Request,
) -> Result {
    let peer = &mut connector.peers[index];
    if may_apply_to_sibling(peer, request)? {
        apply_to_sibling(peer, connector.setup, request);
        return Ok(());
    }
    let is_special = match check(connector, index, request) {
        Ok(is_special) => is_special,
        // A chunk of the peer's key table may still wait for a free descriptor.
        Err(_) if connector.control.waits_for_descriptors(index) => return Err(Errno::Again),
        Err((error, target)) => {
            report_refused(
                &connector.peers[index],
                connector.setup,
                request,
                error,
                &target,
            );
            return Ok(());
        }
    };
    if is_special && request.data.is_none() && connector.peers[index].atomics.is_idle() {
        // The announcement of the block may still be in the socket.
        connector.receive_all(index);
        let done = apply_and_notify(&mut connector.peers[index], request);
        if done.map_err(|errno| connector.reserve_error(index, errno))? {
            request.report.done(&connector.setup.ep);
            return Ok(());
        }
    }
    let peer = &mut connector.peers[index];
    match command::send(peer, request) {
        Ok(()) => {
            peer.announce();
            connector.schedule.activate(peer, &connector.setup.ep);
            Ok(())
        }
        Err(errno) => Err(connector.reserve_error(index, errno)),
    }
}

/// Whether the post may execute the atomic on the memory of an endpoint of this domain.
fn may_apply_to_sibling(peer: &mut Peer, request: &Request) -> Result<bool> {
    // Remote data needs a command, and direct atomics must not overtake outstanding ones.
    let is_plain = request.data.is_none() && peer.atomics.is_idle();
    Ok(is_plain && sibling::may_access(peer, None, request.report.flags)?)
}

/// Executes an atomic on a sibling's memory, and reports it.
fn apply_to_sibling(peer: &mut Peer, setup: &Setup, request: &mut Request) {
    let kernel = request.kernel;
    match command::execute(setup, &kernel, &request.targets, &request.payload) {
        Ok(fetched) => {
            if let Some(mut result) = request.result.take() {
                result.write(0, fetched.as_slice());
            }
            command::count_access(setup, &kernel, &request.targets);
            sibling::notify(peer, !kernel.has_result(), None, request.report.len);
            request.report.done(&setup.ep);
        }
        Err(error) => {
            let target = request.targets.as_slice()[0];
            report_refused(peer, setup, request, error, &target);
        }
    }
}

/// Executes the request directly if possible, and notifies a peer that counts direct accesses.
///
/// # Errors
/// As [`Peer::reserve`].
fn apply_and_notify(peer: &mut Peer, request: &mut Request) -> Result<bool> {
    peer.reserve_notification(None)?;
    let is_done = peer.apply_directly(request);
    if is_done {
        peer.notify(Notification {
            is_write: !request.kernel.has_result(),
            data: None,
            len: request.report.len,
        });
        peer.announce();
    }
    Ok(is_done)
}

/// Checks that the peer's key table allows the request. Returns whether all targets are special
/// memory. Before it denies the request it receives the peer's packets: the peer may have
/// registered the memory since.
///
/// # Errors
/// The reason, and the target that it concerns.
fn check(
    connector: &mut Connector<'_>,
    index: usize,
    request: &Request,
) -> Result<bool, (AtomicError, RmaIoc)> {
    match check_targets(&mut connector.peers[index], request) {
        Ok(is_special) => Ok(is_special),
        Err(_) => {
            connector.receive_all(index);
            check_targets(&mut connector.peers[index], request)
        }
    }
}

#[cold]
fn report_refused(
    peer: &Peer,
    setup: &Setup,
    request: &mut Request,
    error: AtomicError,
    target: &RmaIoc,
) {
    // The buffer is released before the completion is written.
    drop(request.result.take());
    let (name, outstanding_op) = (&peer.name, OutstandingAtomic::new(&request.kernel, target));
    let detail = format!("{name}: {outstanding_op}: {}", error.text());
    let report = request.report;
    report.failed(&setup.ep, error.errno(), request.dest, detail);
}

fn check_targets(peer: &mut Peer, request: &Request) -> Result<bool, (AtomicError, RmaIoc)> {
    let mut is_special = true;
    for target in request.targets.as_slice() {
        let error = |error| (error, *target);
        let segment = target_segment(&request.kernel, target)
            .ok_or_else(|| error(AtomicError::Denied(Denied::Bounds)))?;
        let grant = peer.keys.check(&segment, rights(&request.kernel));
        let grant = grant.map_err(|denied| error(AtomicError::Denied(denied)))?;
        let aligned = request.kernel.check(grant.memory);
        aligned.map_err(|unaligned| error(AtomicError::Unaligned(unaligned)))?;
        is_special &= grant.entry.kind == Kind::Special;
    }
    Ok(is_special)
}
