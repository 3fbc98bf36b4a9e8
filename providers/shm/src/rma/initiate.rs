//! The general path of one-sided operations: what is checked first, and what waits for the peer.

use selvedge::rma::RmaIov;
use selvedge::{Errno, FiAddr, OpFlags, Result};

use super::access::Grant;
use super::{Access, Grants, Later, Local, Refused, read, sibling, violation, write};
use crate::atomic;
use crate::connect::Connector;
use crate::peers::peer::State as PeerState;
use crate::smr::keys::Denied;
use crate::transfers::{MAX_OPS, Sent};

/// Posts a one-sided operation.
///
/// # Errors
/// Those of a send. What the peer does not allow fails by completion.
pub(crate) fn post(at: &mut Connector<'_>, access: Access, local: Local) -> Result {
    let (report, len) = (&access.report, access.places.len());
    if report.flags.contains(OpFlags::INJECT) && len > at.setup.config.inject_size {
        return Err(Errno::MsgSize);
    }
    let index = at.peers.at(access.peer)?;
    let peer = &mut at.peers[index];
    peer.pass_fence(access.is_fenced())?;
    let is_first = peer.later.is_empty();
    let (data, flags) = (access.data, access.report.flags);
    let needs_no_contact = is_first && sibling::may_access(peer, data, flags)?;
    if !peer.is_ready() && !needs_no_contact {
        return post_later(at, index, access, local);
    }
    let done = carry_out(at, index, &access, local);
    done.map_err(|(errno, _)| errno)
}

/// Makes contact, and keeps the operation until the peer has answered.
#[cold]
fn post_later(at: &mut Connector<'_>, index: usize, access: Access, local: Local) -> Result {
    at.reach(index)?;
    hear(at, index);
    if at.peers[index].is_ready() {
        let done = carry_out(at, index, &access, local);
        return done.map_err(|(errno, _)| errno);
    }
    let local = match local {
        // The caller's buffer is the caller's again when the post returns.
        Local::From(buf) if access.report.flags.contains(OpFlags::INJECT) => {
            let mut copy = vec![0; buf.len()].into_boxed_slice();
            buf.read(0, &mut copy);
            Local::Copy(copy)
        }
        local => local,
    };
    keep_for_later(at, index, Later::Access(access, local))
}

/// Keeps an operation until the peer has answered.
///
/// # Errors
/// [`Errno::Again`] while too many are kept; [`Errno::NotConn`] for a peer that is gone.
#[cold]
pub(crate) fn keep_for_later(at: &mut Connector<'_>, index: usize, later: Later) -> Result {
    let peer = &mut at.peers[index];
    if peer.later.len() >= MAX_OPS {
        return Err(Errno::Again);
    }
    match peer.state {
        PeerState::Linked | PeerState::Behind => peer.state = PeerState::Behind,
        PeerState::Waiting { .. } => {}
        _ => return Err(Errno::NotConn),
    }
    peer.later.push_back(later);
    at.schedule.activate(peer, &at.setup.ep);
    Ok(())
}

/// Whether something may go to the peer now, or has to wait behind one-sided operations.
///
/// # Errors
/// [`Errno::Again`] if it has to wait; [`Errno::NotConn`] for a peer that is gone.
#[cold]
pub(crate) fn wait_behind(at: &mut Connector<'_>, index: usize) -> Result {
    if at.peers[index].later.is_empty() {
        return Ok(());
    }
    hear(at, index);
    match at.peers[index].later.is_empty() {
        true if at.peers[index].state == PeerState::Linked => Ok(()),
        true => Err(Errno::NotConn),
        false => Err(Errno::Again),
    }
}

/// Reads what a peer says over its sockets, and carries out what has waited for it.
pub(crate) fn hear(at: &mut Connector<'_>, index: usize) {
    at.listen(index);
    go_on(at, index);
}

/// Carries out what has waited for the peer's table, in order.
pub(crate) fn go_on(at: &mut Connector<'_>, index: usize) {
    let peer = &at.peers[index];
    if peer.later.is_empty() || peer.inbox.is_none() || !peer.keys.are_complete() {
        return;
    }
    while let Some(later) = at.peers[index].later.pop_front() {
        let done = match later {
            Later::Access(access, local) => carry_out(at, index, &access, local)
                .map_err(|(errno, local)| (errno, Later::Access(access, local))),
            Later::Atomic(mut request) => atomic::initiate::carry_out(at, index, &mut request)
                .map_err(|errno| (errno, Later::Atomic(request))),
        };
        match done {
            Ok(()) => {}
            Err((Errno::Again, later)) => {
                return at.peers[index].later.push_front(later);
            }
            Err((errno, later)) => {
                let detail = format!("{} cannot be reached", at.peers[index].name);
                later.fail(&at.setup.ep, errno, FiAddr::UNSPEC, detail);
            }
        }
    }
    let peer = &mut at.peers[index];
    if peer.state == PeerState::Behind {
        peer.state = PeerState::Linked;
    }
}

/// Checks what is asked for and does it.
fn carry_out(
    at: &mut Connector<'_>,
    index: usize,
    access: &Access,
    local: Local,
) -> Result<(), Refused> {
    let peer = &mut at.peers[index];
    match sibling::may_access(peer, access.data, access.report.flags) {
        Ok(true) => {
            sibling::access(peer, at.setup, access, local);
            return Ok(());
        }
        Ok(false) => {}
        Err(errno) => return Err((errno, local)),
    }
    let grants = match grants(at, index, access) {
        Ok(grants) => grants,
        Err(_) if at.control.waits_for_descriptors(index) => {
            return Err((Errno::Again, local));
        }
        Err((place, denied)) => {
            drop(local);
            deny(at, index, access, &place, denied);
            return Ok(());
        }
    };
    let peer = &mut at.peers[index];
    let sent = match local {
        Local::To(buf) => read::read(peer, at.setup, access, buf, &grants),
        local if grants.are_vague() => write::write(peer, at.setup, &access.confirmed(), local),
        local => write::write(peer, at.setup, access, local),
    };
    let sent = sent.map_err(|(errno, local)| (at.reserve_error(index, errno), local))?;
    let peer = &mut at.peers[index];
    peer.announce();
    match sent {
        Sent::Done => access.report.done(&at.setup.ep),
        Sent::Later => {
            if access.is_fenced() {
                (peer.is_careful, peer.is_fenced) = (true, true);
            }
            at.schedule.activate(peer, &at.setup.ep);
        }
    }
    Ok(())
}

/// What the peer's table says to all places of an operation.
#[inline]
fn grants(
    at: &mut Connector<'_>,
    index: usize,
    access: &Access,
) -> Result<Grants, (RmaIov, Denied)> {
    let rights = access.rights();
    let mut grants = Grants::default();
    for (place, grant) in access.places.all().iter().zip(&mut grants.list) {
        *grant = Some(match at.peers[index].keys.check(place, rights) {
            Err(Denied::Key) => check_again(at, index, place, rights)?,
            found => found.map_err(|denied| (*place, denied))?,
        });
    }
    Ok(grants)
}

/// The key may be in a chunk that the peer has told of meanwhile.
#[cold]
fn check_again(
    at: &mut Connector<'_>,
    index: usize,
    place: &RmaIov,
    rights: u32,
) -> Result<Grant, (RmaIov, Denied)> {
    at.listen(index);
    let found = at.peers[index].keys.check(place, rights);
    found.map_err(|denied| (*place, denied))
}

/// Reports an operation that the peer does not allow.
#[cold]
fn deny(at: &mut Connector<'_>, index: usize, access: &Access, place: &RmaIov, denied: Denied) {
    let peer = &mut at.peers[index];
    let addr = peer.fi_addr(&at.setup.av);
    let (errno, detail) = match peer.inbox {
        Some(_) => {
            let detail = violation(peer.name.as_str(), place, denied);
            (denied.errno(), detail)
        }
        None => (Errno::ConnReset, format!("{}: it is gone", peer.name)),
    };
    access.report.failed(&at.setup.ep, errno, addr, detail);
}
