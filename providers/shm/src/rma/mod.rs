//! One-sided operations: reads and writes of a peer's registered memory.
//!
//! The initiator looks the key up in the peer's table before anything moves ([`access`]); what is
//! not allowed is an error completion. Special memory is read and written by the initiator
//! ([`direct`]). Other writes go as commands ([`write`]), because nobody writes into another
//! process's memory; other reads are made by the initiator alone where it can, and asked for
//! otherwise ([`read`]).
//!
//! Before the peer has said hello its table is not known: operations wait for it, and whatever is
//! posted behind them too.

pub(crate) mod access;
pub(crate) mod cmd;
pub(crate) mod direct;
pub(crate) mod places;
mod post;
pub(crate) mod read;
pub(crate) mod sibling;
mod take;
pub(crate) mod write;

use selvedge::rma::RmaIov;
use selvedge::{CompletionFlags, Errno, FiAddr, OpFlags, Result};
use selvedge_kit::Ep;
use selvedge_kit::copy::{RxBuf, TxBuf};

use crate::atomic::Request;
use crate::peer::{Op, OpBody, Peer, State as PeerState};
use crate::proto::{MAX_OPS, Sent};
use crate::smr::keys::{Denied, Kind, RIGHT_READ, RIGHT_WRITE};
use crate::state::State;
use selvedge_kit::Report;
use selvedge_kit::places::{Places, RMA_IOV_LIMIT};

use access::Grant;
pub(crate) use cmd::Notice;
use cmd::commit_notice;

/// A one-sided operation, as far as all kinds have it in common.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub(crate) places: Places,
    pub(crate) peer: FiAddr,
    pub(crate) data: Option<u64>,
    pub(crate) report: Report,
}

/// The own side's memory of an operation.
#[derive(Debug)]
pub(crate) enum Local {
    /// The bytes to write.
    From(TxBuf),
    /// A copy of them.
    Copy(Box<[u8]>),
    /// Where the bytes go that are read.
    To(RxBuf),
}

/// An operation that waits until the peer's table is known.
#[derive(Debug)]
pub(crate) enum Later {
    Access(Access, Local),
    Atomic(Box<Request>),
}

/// Why an operation was not taken, and its memory.
type Refused = (Errno, Local);

/// What the table says to the places of an operation.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    pub(crate) list: [Option<Grant>; RMA_IOV_LIMIT],
}

impl Grants {
    /// Whether only the peer can tell that there is memory at all.
    fn are_vague(&self) -> bool {
        let mut all = self.list.iter().flatten();
        all.any(|grant| grant.row.kind == Kind::Whole)
    }
}

impl Access {
    /// The same operation, complete when the peer says so.
    fn confirmed(&self) -> Self {
        let mut access = self.clone();
        access.report.flags |= OpFlags::DELIVERY_COMPLETE;
        access
    }

    /// The operation in the table of those that the peer has to answer.
    fn op(&self, body: OpBody) -> Op {
        let report = self.report;
        Op { report, body }
    }

    fn is_read(&self) -> bool {
        self.report.what.contains(CompletionFlags::READ)
    }

    fn is_fenced(&self) -> bool {
        self.report.flags.contains(OpFlags::FENCE)
    }

    /// Rights that it needs.
    fn rights(&self) -> u32 {
        match self.is_read() {
            true => RIGHT_READ,
            false => RIGHT_WRITE,
        }
    }
}

impl Later {
    /// It will not come to anything.
    pub(crate) fn fail(self, ep: &Ep, errno: Errno, peer: FiAddr, detail: String) {
        match self {
            Self::Access(access, local) => {
                drop(local);
                access.report.failed(ep, errno, peer, detail);
            }
            Self::Atomic(request) => request.failed(ep, errno, peer, detail),
        }
    }
}

impl State {
    /// Posts a one-sided operation.
    pub(crate) fn access(&mut self, access: Access, local: Local) -> Result {
        let (report, len) = (&access.report, access.places.len());
        if report.flags.contains(OpFlags::INJECT) && len > self.config.inject_size {
            return Err(Errno::MsgSize);
        }
        let index = self.peer_at(access.peer)?;
        self.peers[index].pass_fence(access.is_fenced())?;
        let is_first = self.peers[index].later.is_empty();
        let (data, flags) = (access.data, access.report.flags);
        let needs_no_contact = is_first && self.may_access_sibling(index, data, flags)?;
        if !self.is_ready(index) && !needs_no_contact {
            return self.access_later(index, access, local);
        }
        let done = self.carry_out_access(index, &access, local);
        done.map_err(|(errno, _)| errno)
    }

    /// Whether nothing has to be waited for.
    #[inline(always)]
    pub(crate) fn is_ready(&self, index: usize) -> bool {
        let peer = &self.peers[index];
        peer.state == PeerState::Linked && peer.inbox.is_some() && peer.keys.are_complete()
    }

    /// Makes contact, and keeps the operation until the peer has answered.
    #[cold]
    fn access_later(&mut self, index: usize, access: Access, local: Local) -> Result {
        self.reach(index)?;
        self.hear(index);
        if self.is_ready(index) {
            let done = self.carry_out_access(index, &access, local);
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
        self.keep_for_later(index, Later::Access(access, local))
    }

    /// Keeps an operation until the peer has answered.
    #[cold]
    pub(crate) fn keep_for_later(&mut self, index: usize, later: Later) -> Result {
        let peer = &mut self.peers[index];
        if peer.later.len() >= MAX_OPS {
            return Err(Errno::Again);
        }
        match peer.state {
            PeerState::Linked | PeerState::Behind => peer.state = PeerState::Behind,
            PeerState::Waiting { .. } => {}
            _ => return Err(Errno::NotConn),
        }
        peer.later.push_back(later);
        self.activate(index);
        Ok(())
    }

    /// Whether something may go to the peer now, or has to wait behind one-sided operations.
    #[cold]
    pub(crate) fn wait_behind(&mut self, index: usize) -> Result {
        if self.peers[index].later.is_empty() {
            return Ok(());
        }
        self.hear(index);
        match self.peers[index].later.is_empty() {
            true if self.peers[index].state == PeerState::Linked => Ok(()),
            true => Err(Errno::NotConn),
            false => Err(Errno::Again),
        }
    }

    /// Carries out what has waited for the peer's table, in order.
    pub(crate) fn go_on(&mut self, index: usize) {
        let peer = &self.peers[index];
        if peer.later.is_empty() || peer.inbox.is_none() || !peer.keys.are_complete() {
            return;
        }
        while let Some(later) = self.peers[index].later.pop_front() {
            let done = match later {
                Later::Access(access, local) => self
                    .carry_out_access(index, &access, local)
                    .map_err(|(errno, local)| (errno, Later::Access(access, local))),
                Later::Atomic(mut request) => self
                    .carry_out(index, &mut request)
                    .map_err(|errno| (errno, Later::Atomic(request))),
            };
            match done {
                Ok(()) => {}
                Err((Errno::Again, later)) => {
                    return self.peers[index].later.push_front(later);
                }
                Err((errno, later)) => {
                    let detail = format!("{} cannot be reached", self.peers[index].name);
                    later.fail(&self.ep, errno, FiAddr::UNSPEC, detail);
                }
            }
        }
        let peer = &mut self.peers[index];
        if peer.state == PeerState::Behind {
            peer.state = PeerState::Linked;
        }
    }

    /// Checks what is asked for and does it.
    fn carry_out_access(
        &mut self,
        index: usize,
        access: &Access,
        local: Local,
    ) -> Result<(), Refused> {
        match self.may_access_sibling(index, access.data, access.report.flags) {
            Ok(true) => {
                self.access_sibling(index, access, local);
                return Ok(());
            }
            Ok(false) => {}
            Err(errno) => return Err((errno, local)),
        }
        let grants = match self.grants(index, access) {
            Ok(grants) => grants,
            Err(_) if self.control.waits_for_descriptors(index) => {
                return Err((Errno::Again, local));
            }
            Err((place, denied)) => {
                drop(local);
                self.deny(index, access, &place, denied);
                return Ok(());
            }
        };
        let sent = match local {
            Local::To(buf) => self.read(index, access, buf, &grants)?,
            local if grants.are_vague() => self.write(index, &access.confirmed(), local)?,
            local => self.write(index, access, local)?,
        };
        let peer = &mut self.peers[index];
        peer.announce();
        match sent {
            Sent::Done => access.report.done(&self.ep),
            Sent::Later => {
                if access.is_fenced() {
                    (peer.is_careful, peer.is_fenced) = (true, true);
                }
                self.activate(index);
            }
        }
        Ok(())
    }

    /// What the peer's table says to all places of an operation.
    #[inline]
    fn grants(&mut self, index: usize, access: &Access) -> Result<Grants, (RmaIov, Denied)> {
        let rights = access.rights();
        let mut grants = Grants::default();
        for (place, grant) in access.places.all().iter().zip(&mut grants.list) {
            *grant = Some(match self.peers[index].keys.check(place, rights) {
                Err(Denied::Key) => self.check_again(index, place, rights)?,
                found => found.map_err(|denied| (*place, denied))?,
            });
        }
        Ok(grants)
    }

    /// The key may be in a chunk that the peer has told of meanwhile.
    #[cold]
    fn check_again(
        &mut self,
        index: usize,
        place: &RmaIov,
        rights: u32,
    ) -> Result<Grant, (RmaIov, Denied)> {
        self.listen(index);
        let found = self.peers[index].keys.check(place, rights);
        found.map_err(|denied| (*place, denied))
    }

    /// Reports an operation that the peer does not allow.
    #[cold]
    fn deny(&mut self, index: usize, access: &Access, place: &RmaIov, denied: Denied) {
        let peer = &mut self.peers[index];
        let addr = peer.fi_addr(&self.av);
        let (errno, detail) = match peer.inbox {
            Some(_) => {
                let detail = violation(peer.name.as_str(), place, denied);
                (denied.errno(), detail)
            }
            None => (Errno::ConnReset, format!("{}: it is gone", peer.name)),
        };
        access.report.failed(&self.ep, errno, addr, detail);
    }
}

impl Peer {
    /// Whether a one-sided operation may begin: nothing behind a fenced one does before that is
    /// over, and a fenced one not before all others are.
    fn pass_fence(&mut self, is_fenced: bool) -> Result {
        if (self.is_fenced || is_fenced) && self.has_unfinished() {
            return Err(Errno::Again);
        }
        if std::mem::take(&mut self.is_fenced) {
            self.is_careful = self.wants_notices;
        }
        Ok(())
    }

    /// Makes sure of room for the notice of what is done without the peer, if it needs one.
    ///
    /// # Errors
    /// As [`Self::reserve`].
    pub(crate) fn reserve_notice(&mut self, data: Option<u64>) -> Result {
        match self.wants_notices || data.is_some() {
            true => self.reserve(0).map(drop),
            false => Ok(()),
        }
    }

    /// Tells a peer that counts it of what was done without it; or that data comes with it.
    pub(crate) fn notify(&mut self, notice: Notice) {
        if self.wants_notices || notice.data.is_some() {
            commit_notice(self.slot(), notice);
        }
    }
}

/// The sentence of a violation: key and address, and what is wrong.
fn violation(name: &str, place: &RmaIov, denied: Denied) -> String {
    format!(
        "{name}: key {:#x}, {} bytes at {:#x}: {}",
        place.key,
        place.len,
        place.addr,
        denied.text()
    )
}
