//! Sight: what an endpoint lets `fi_top` see of its queues and peers.

use std::time::Instant;

use selvedge_kit::sight::{Gauge, PeerStanding, PeerState as Seen, Standing};

use crate::peer::{Peer, State as PeerState};
use crate::proto::iov::Stage;
use crate::state::State;

/// Peers that are looked through for those that something waits for, when there are more than a page
/// has room for.
const LOOKED_AT: usize = 1024;

impl State {
    /// Writes down how things stand, if that was long ago.
    #[inline]
    pub(crate) fn show(&self, now: Instant) {
        if self.ep.sight.is_due(now) {
            self.show_now(now);
        }
    }

    /// Writes down how things stand.
    #[cold]
    pub(crate) fn show_now(&self, now: Instant) {
        self.ep.sight.write_standing(now, |standing| {
            self.inbound.show(standing);
            let unread = self.ep.unread();
            standing.gauge(Gauge::Unread, unread);
            standing.gauge(Gauge::Peers, self.peers.len());
            let outstanding = self.peers.iter().take(LOOKED_AT).map(Peer::pending);
            standing.gauge(Gauge::Outstanding, outstanding.sum());
            self.show_peers(standing);
        });
    }

    /// Those that something waits for come first, if there are too many.
    fn show_peers(&self, standing: &mut Standing<'_>) {
        let numbered = || self.peers.iter().enumerate().take(LOOKED_AT);
        if self.peers.len() <= Standing::PEERS {
            return numbered().for_each(|(index, peer)| peer.show(index, standing));
        }
        let (busy, quiet): (Vec<_>, Vec<_>) = numbered().partition(|(_, peer)| peer.is_busy());
        for (index, peer) in busy.into_iter().chain(quiet).take(Standing::PEERS) {
            peer.show(index, standing);
        }
    }
}

impl Peer {
    /// Own operations with it that are not complete.
    fn pending(&self) -> usize {
        self.outstanding() + self.held.len() + self.later.len()
    }

    fn is_busy(&self) -> bool {
        self.pending() > 0 || !self.incoming.is_empty() || self.kept > 0
    }

    fn show(&self, index: usize, standing: &mut Standing<'_>) {
        let stages = || self.incoming.values().map(|incoming| &incoming.stage);
        let offered = stages().filter(|stage| matches!(stage, Stage::Unmatched));
        let moving = stages().filter(|stage| matches!(stage, Stage::Moving(_)));
        let row = PeerStanding {
            index: index as u32,
            state: self.seen_state(),
            unanswered: self.outstanding(),
            held: self.held.len() + self.later.len(),
            offered: offered.count(),
            moving: moving.count(),
            kept: self.kept,
            is_full: self.is_full(),
        };
        standing.peer(self.name.as_str(), &row);
    }

    fn seen_state(&self) -> Seen {
        match self.state {
            PeerState::Idle => Seen::Idle,
            PeerState::Waiting { .. } => Seen::Awaited,
            PeerState::Linked | PeerState::Behind if self.inbox.is_none() => Seen::Greeting,
            PeerState::Linked | PeerState::Behind => Seen::Up,
            PeerState::Ending { .. } => Seen::Ending,
            PeerState::Dead => Seen::Gone,
        }
    }
}

impl crate::state::Inbound {
    fn show(&self, standing: &mut Standing<'_>) {
        let matchers = self.matchers();
        let posted = matchers.iter().map(|(_, matcher)| matcher.posted_len());
        let unexpected = matchers.iter().map(|(_, matcher)| matcher.unexpected_len());
        standing.gauge(Gauge::Posted, posted.sum());
        standing.gauge(Gauge::Unexpected, unexpected.sum());
        standing.gauge(Gauge::UnexpectedBytes, self.allowance.bytes());
        standing.gauge(Gauge::UnexpectedLimit, self.allowance.limit());
        for (kind, matcher) in matchers {
            standing.waits(matcher.posted());
            standing.kept(kind, matcher.unexpected());
        }
    }
}

/// The ways of messages that are counted apart.
pub(crate) mod way {
    use selvedge_kit::sight::Way as Counted;

    use crate::choice::Way;
    use crate::peer::OpBody;
    use crate::proto::status;

    /// The way of a message of ours that its peer has answered.
    pub(crate) fn sent(body: &OpBody, answer: u32) -> Counted {
        match (body, answer) {
            (_, status::BOUNCED) => Counted::SentBounce,
            (OpBody::Offered { special: true, .. }, _) => Counted::SentDirect,
            (OpBody::Offered { .. }, _) => Counted::SentCma,
            _ => Counted::SentInject,
        }
    }

    /// The way of a large message that was received.
    pub(crate) fn received(way: Way) -> Counted {
        match way {
            Way::Cma => Counted::ReceivedCma,
            Way::Special => Counted::ReceivedDirect,
            Way::Bounce => Counted::ReceivedBounce,
        }
    }
}
