//! Sight: what an endpoint lets `fi_top` see of its queues and peers.

use std::time::Instant;

use selvedge_kit::sight::{Gauge, PeerStanding, PeerState as Seen, Standing};

use crate::matching::Matching;
use crate::peers::Peers;
use crate::peers::peer::{Peer, State as PeerState};
use crate::provider::setup::Setup;
use crate::transfers::incoming::Stage;

/// Peers that are looked through for those that something waits for, when there are more than a page
/// has room for.
const LOOKED_AT: usize = 1024;

/// Writes down how things stand, if that was long ago.
#[inline]
pub(crate) fn show(setup: &Setup, peers: &Peers, matching: &Matching, now: Instant) {
    if setup.ep.sight.is_due(now) {
        show_now(setup, peers, matching, now);
    }
}

/// Writes down how things stand.
#[cold]
pub(crate) fn show_now(setup: &Setup, peers: &Peers, matching: &Matching, now: Instant) {
    setup.ep.sight.write_standing(now, |standing| {
        matching.show(standing);
        let unread = setup.ep.unread();
        standing.gauge(Gauge::Unread, unread);
        standing.gauge(Gauge::Peers, peers.len());
        let outstanding = peers.iter().take(LOOKED_AT).map(Peer::pending);
        standing.gauge(Gauge::Outstanding, outstanding.sum());
        show_peers(peers, standing);
    });
}

/// Those that something waits for come first, if there are too many.
fn show_peers(peers: &Peers, standing: &mut Standing<'_>) {
    let shown = || peers.iter().take(LOOKED_AT);
    if peers.len() <= Standing::PEERS {
        return shown().for_each(|peer| peer.show(standing));
    }
    let (busy, quiet): (Vec<_>, Vec<_>) = shown().partition(|peer| peer.is_busy());
    for peer in busy.into_iter().chain(quiet).take(Standing::PEERS) {
        peer.show(standing);
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

    fn show(&self, standing: &mut Standing<'_>) {
        let stages = || self.incoming.values().map(|incoming| &incoming.stage);
        let offered = stages().filter(|stage| matches!(stage, Stage::Unmatched));
        let moving = stages().filter(|stage| matches!(stage, Stage::Moving(_)));
        let row = PeerStanding {
            index: self.index,
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

impl Matching {
    fn show(&self, standing: &mut Standing<'_>) {
        let matchers = self.matchers();
        let posted = matchers.iter().map(|(_, matcher)| matcher.posted_len());
        let unexpected = matchers.iter().map(|(_, matcher)| matcher.unexpected_len());
        standing.gauge(Gauge::Posted, posted.sum());
        standing.gauge(Gauge::Unexpected, unexpected.sum());
        standing.gauge(Gauge::UnexpectedBytes, self.quota.bytes());
        standing.gauge(Gauge::UnexpectedLimit, self.quota.limit());
        for (kind, matcher) in matchers {
            standing.waits(matcher.posted());
            standing.kept(kind, matcher.unexpected());
        }
    }
}
