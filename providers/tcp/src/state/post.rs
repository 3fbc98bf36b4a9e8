//! Posting: operations go into the connection of their peer, which the first of them makes; receives
//! go to the matcher.

use selvedge::{Errno, FiAddr, OpFlags, Result};
use selvedge_kit::Ep;
use selvedge_kit::srx::{
    COMMON_FLAGS, Envelope, Kind, Matcher, Posted, ReceivePolicy, Receiver, Source,
};

use super::State;
use crate::connection::Connection;
use crate::connection::delivery::Delivery;
use crate::connection::operation::Posting;
use crate::matching::{Kept, Where};
use crate::wire::Nonsense;

impl State {
    /// Posts an operation to a peer.
    #[inline]
    pub(crate) fn post(&mut self, peer: usize, posting: Posting) -> Result {
        if posting.report.reports_success && self.ep.tx_cq.room() == 0 {
            return Err(Errno::Again);
        }
        if posting.report.flags.contains(OpFlags::FENCE) && !self.is_settled(peer) {
            return Err(Errno::Again);
        }
        if self.config.is_strict && self.may_overtake(peer, &posting) {
            return Err(Errno::Again);
        }
        match self.peers[peer].connection {
            Some(at) if self.connections[at].is_up() => self.post_to(at, posting),
            Some(at) => self.post_behind(at, posting),
            None if self.cm.is_some() => Err(Errno::NotConn),
            None => {
                let at = self.reach(peer);
                // It may have failed at once, and is no more.
                match self.peers[peer].connection == Some(at) {
                    true => self.post_behind(at, posting),
                    false => Err(Errno::ConnRefused),
                }
            }
        }
    }

    /// Posts an operation to a peer that has been reached.
    #[inline]
    fn post_to(&mut self, at: usize, posting: Posting) -> Result {
        let (flags, most) = (posting.report.flags, self.config.tx_size);
        if !self.connections[at].outgoing.has_room_for(&posting, most) {
            self.flush(at);
            match self.connections.get(at) {
                Some(it) if it.outgoing.has_room_for(&posting, most) => {}
                Some(_) => return Err(Errno::Again),
                None => return Err(Errno::NotConn),
            }
        }
        self.queue(at, posting);
        self.polling.hot = at;
        let tx = &mut self.connections[at].outgoing.tx;
        if !flags.contains(OpFlags::MORE) && tx.leaves_at_once(self.polling.turn) {
            self.flush(at);
        } else {
            self.schedule(at);
        }
        Ok(())
    }

    /// Posts an operation to a peer that is being reached.
    #[cold]
    fn post_behind(&mut self, at: usize, posting: Posting) -> Result {
        let most = self.config.tx_size;
        self.connections[at].outgoing.wait(posting, most)?;
        self.polling.wake(&self.ep);
        Ok(())
    }

    /// Whether everything that was posted to a peer is complete.
    #[cold]
    fn is_settled(&mut self, peer: usize) -> bool {
        let Some(at) = self.peers[peer].connection else {
            return true;
        };
        self.flush(at);
        let connection = self.connections.get(at);
        connection.is_none_or(|it| it.outgoing.is_settled())
    }

    /// Whether an operation might complete before one that was posted to the same peer earlier: one
    /// that the peer answers and has not answered, one whose way is not known before the peer is
    /// reached, or any where this one fails at once.
    #[cold]
    fn may_overtake(&mut self, peer: usize, posting: &Posting) -> bool {
        let connection = self.peers[peer].connection.map(|at| &self.connections[at]);
        connection.is_some_and(|it| it.outgoing.is_unanswered() || it.outgoing.waiting() > 0)
            || posting.is_extension() && !self.is_settled(peer)
    }

    /// Queues an operation of a connection that is up.
    #[inline]
    pub(super) fn queue(&mut self, at: usize, posting: Posting) {
        let outgoing = &mut self.connections[at].outgoing;
        match outgoing.understands(&posting) {
            true => outgoing.queue(posting, self.config.eager_size),
            false => self.not_supported(at, posting),
        }
    }

    /// The peer does not understand an operation.
    #[cold]
    fn not_supported(&mut self, at: usize, posting: Posting) {
        let peer = self.connections[at].peer;
        let report = posting.report;
        // The caller's memory goes before the completion comes.
        drop(posting);
        let detail = format!(
            "{} is a libfabric, which has neither atomics nor matched completions",
            self.peers[peer]
        );
        let src = self.peers.fi_addr(peer);
        report.failed(&self.ep, Errno::OpNotSupp, src, detail);
    }

    /// Posts a receive from the peer at `src`, or from any.
    pub(crate) fn recv_from(&mut self, src: FiAddr, mut posted: Posted) -> Result {
        if !COMMON_FLAGS.contains(posted.flags) {
            return self.recv_with_flags(posted, src);
        }
        if src != self.matching.policy.any_source {
            self.direct(&mut posted, src)?;
        }
        let source = posted.src;
        match self.matching.matcher(posted.kind).post(posted) {
            Some((posted, env, key)) => self.deliver(posted, env, key),
            None if source != Source::ANY => self.reach_if_lost(source.0 as usize),
            None => {}
        }
        Ok(())
    }

    /// A receive waits for a peer alone. If the connection with that peer is lost, nothing would end
    /// the receive: a new connection lets the peer send, and the receive fails if none can be made.
    fn reach_if_lost(&mut self, peer: usize) {
        let is_lost = self.peers[peer].is_lost && self.peers[peer].connection.is_none();
        if is_lost && self.cm.is_none() {
            self.reach(peer);
            self.polling.wake(&self.ep);
        }
    }

    /// Takes a message that has waited, and has `act` do something with it and the connection that it
    /// came by, if that has not ended.
    #[cold]
    fn take_kept(
        &mut self,
        key: usize,
        act: impl FnOnce(&mut Delivery<'_>, Option<&mut Connection>, Kept) -> Result<(), Nonsense>,
    ) {
        let kept = self.matching.take(key);
        let (from, was_held) = (kept.from, kept.place == Where::Held);
        let (connections, mut delivery) = self.parts();
        if let Err(what) = act(&mut delivery, connections.named(from), kept) {
            return self.end(from.at, what.into());
        }
        let connection = connections.named(from);
        if connection.is_some_and(|it| it.outgoing.take_owing()) {
            self.schedule(from.at);
        }
        // There may be room by now for a message of another peer, or behind this one.
        if was_held || self.connections.has_stalled() {
            self.polling.wake(&self.ep);
        }
    }
}

impl Receiver for State {
    type Kept = usize;

    fn matcher(&mut self, kind: Kind) -> &mut Matcher<usize> {
        self.matching.matcher(kind)
    }

    fn policy(&self) -> &ReceivePolicy {
        &self.matching.policy
    }

    fn ep(&self) -> &Ep {
        &self.ep
    }

    fn source_at(&mut self, addr: FiAddr) -> Result<Source> {
        Ok(Source(self.peer_at(addr)? as u32))
    }

    fn addr_of(&mut self, source: Source) -> FiAddr {
        self.peers.fi_addr(source.0 as usize)
    }

    fn direct(&mut self, posted: &mut Posted, src: FiAddr) -> Result {
        if self.matching.policy.is_directed(posted.kind) {
            posted.src = self.source_at(src)?;
        }
        Ok(())
    }

    fn poll_unexpected(&mut self) {
        self.poll_now();
    }

    fn deliver(&mut self, posted: Posted, env: Envelope, key: usize) {
        self.take_kept(key, |delivery, from, kept| {
            delivery.meet(from, posted, env, &kept)
        });
    }

    fn discard(&mut self, _env: &Envelope, key: usize) {
        self.take_kept(key, |delivery, from, kept| delivery.discard(from, &kept));
    }
}
