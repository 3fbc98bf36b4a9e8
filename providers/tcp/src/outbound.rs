//! Operations on their way to a peer: queued in its lane, or behind those that wait until it is
//! reached.

use selvedge::{Errno, OpFlags, Result};
use selvedge_kit::srx::Kind;

use crate::lane::{ASKS_MAX, FETCHES_MAX, Lane, Posting, Then};
use crate::state::State;
use crate::wire::frame::{Head, Wish};

impl State {
    /// Posts an operation to a peer.
    #[inline]
    pub(crate) fn post(&mut self, peer: usize, posting: Posting) -> Result {
        if posting.report.completes && self.ep.tx_cq.room() == 0 {
            return Err(Errno::Again);
        }
        if posting.report.flags.contains(OpFlags::FENCE) && !self.is_settled(peer) {
            return Err(Errno::Again);
        }
        if self.config.is_strict && self.may_overtake(peer, &posting) {
            return Err(Errno::Again);
        }
        match self.peers[peer].lane {
            Some(at) if self.lanes[at].is_up() => self.post_to(at, posting),
            Some(at) => self.post_behind(at, posting),
            None if self.door.is_none() => Err(Errno::NotConn),
            None => {
                let at = self.reach(peer);
                // It may have failed at once, and is no more.
                match self.peers[peer].lane == Some(at) {
                    true => self.post_behind(at, posting),
                    false => Err(Errno::ConnRefused),
                }
            }
        }
    }

    /// Posts an operation to a peer that has been reached.
    #[inline]
    fn post_to(&mut self, at: usize, posting: Posting) -> Result {
        let flags = posting.report.flags;
        if !self.has_room_for(at, &posting) {
            self.flush(at);
            match self.lanes.get(at) {
                Some(_) if self.has_room_for(at, &posting) => {}
                Some(_) => return Err(Errno::Again),
                None => return Err(Errno::NotConn),
            }
        }
        self.enqueue(at, posting);
        self.hot = at;
        let lane = &mut self.lanes[at];
        if !flags.contains(OpFlags::MORE) && lane.tx.leaves_at_once(self.turn) {
            self.flush(at);
        } else {
            self.soil(at);
        }
        Ok(())
    }

    /// Whether everything that was posted to a peer is complete.
    #[cold]
    fn is_settled(&mut self, peer: usize) -> bool {
        let Some(at) = self.peers[peer].lane else {
            return true;
        };
        self.flush(at);
        self.lanes.get(at).is_none_or(Lane::is_settled)
    }

    /// Whether an operation might complete before one that was posted to the same peer earlier: one
    /// that the peer answers and has not answered, one whose way is not known before the peer is
    /// reached, or any where this one fails at once.
    #[cold]
    fn may_overtake(&mut self, peer: usize, posting: &Posting) -> bool {
        let lane = self.peers[peer].lane.map(|at| &self.lanes[at]);
        lane.is_some_and(|lane| lane.is_unanswered() || !lane.waiting.is_empty())
            || posting.is_ours() && !self.is_settled(peer)
    }

    fn has_room_for(&self, at: usize, posting: &Posting) -> bool {
        let lane = &self.lanes[at];
        let is_copied = posting.body.is_copied(posting.report.flags);
        let has_answer = match &posting.then {
            Then::Read(_) => lane.reads.len() < FETCHES_MAX,
            Then::Atomic(_) => lane.atomics.len() < FETCHES_MAX,
            Then::Done => lane.asks.len() < ASKS_MAX,
        };
        has_answer && lane.tx.has_room(self.config.tx_size, is_copied)
    }

    /// Posts an operation to a peer that is being reached.
    #[cold]
    fn post_behind(&mut self, at: usize, posting: Posting) -> Result {
        let lane = &mut self.lanes[at];
        if lane.waiting.len() >= self.config.tx_size.min(FETCHES_MAX) {
            return Err(Errno::Again);
        }
        let is_injected = posting.report.flags.contains(OpFlags::INJECT);
        let body = match is_injected {
            true => posting.body.copied(),
            false => posting.body,
        };
        lane.waiting.push_back(Posting { body, ..posting });
        self.stir();
        Ok(())
    }

    /// Queues an operation, in the way that the peer understands.
    pub(crate) fn enqueue(&mut self, at: usize, posting: Posting) {
        let lane = &mut self.lanes[at];
        if !lane.terms.knows() && posting.is_ours() {
            return self.not_supported(at, posting);
        }
        if let Head::Message {
            kind: Kind::Tagged,
            tag,
            data,
            wish,
            len,
        } = posting.head
            && len > self.config.eager_size
            && lane.terms.offers
            && !posting.report.flags.contains(OpFlags::INJECT)
            && let Some(id) = (1..=254).find(|id| !lane.offers.contains_key(id))
        {
            let head = Head::Offer {
                id,
                tag,
                data,
                wants_answer: wish != Wish::Never,
                len,
            };
            let order = lane.terms.order;
            lane.tx.copy(&head, order, |_| {});
            lane.offers.insert(id, Posting { head, ..posting });
            return;
        }
        lane.queue(posting);
    }

    /// The peer does not understand an operation.
    #[cold]
    fn not_supported(&mut self, at: usize, posting: Posting) {
        let peer = self.lanes[at].peer;
        let report = posting.report;
        // The caller's memory goes before the completion comes.
        drop(posting);
        let detail = format!(
            "{} is a libfabric, which has neither atomics nor matched completions",
            self.peers[peer]
        );
        let src = self.peer_addr(peer);
        report.failed(&self.ep, Errno::OpNotSupp, src, detail);
    }
}
