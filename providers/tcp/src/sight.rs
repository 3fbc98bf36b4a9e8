//! Sight: what an endpoint lets `fi_top` see of its queues and peers.

use std::time::Instant;

use selvedge_kit::sight::{Gauge, PeerStanding, PeerState, Standing};

use crate::lane::{Lane, Stage};
use crate::state::{Inbound, Peer, State};

/// Peers that are looked through for those that something waits for.
const LOOKED_AT: usize = 1024;

impl State {
    /// Writes down how things stand, if that was long ago.
    pub(crate) fn show(&self) {
        let now = Instant::now();
        if self.ep.sight.is_due(now) {
            self.show_now(now);
        }
    }

    /// Writes down how things stand.
    #[cold]
    pub(crate) fn show_now(&self, now: Instant) {
        self.ep.sight.write_standing(now, |standing| {
            self.inbound.show(standing);
            standing.gauge(Gauge::Unread, self.ep.unread());
            standing.gauge(Gauge::Peers, self.peers.len());
            let pending = self.lanes.iter().map(|(_, lane)| lane.pending());
            standing.gauge(Gauge::Outstanding, pending.sum());
            let numbered = || self.peers.iter().enumerate().take(LOOKED_AT);
            let is_busy = |peer: &Peer| self.lane_of(peer).is_some_and(|it| it.pending() > 0);
            let busy = numbered().filter(|(_, peer)| is_busy(peer));
            let quiet = numbered().filter(|(_, peer)| !is_busy(peer));
            for (index, peer) in busy.chain(quiet).take(Standing::PEERS) {
                self.show_peer(index, peer, standing);
            }
        });
    }

    fn lane_of(&self, peer: &Peer) -> Option<&Lane> {
        peer.lane.and_then(|at| self.lanes.get(at))
    }

    fn show_peer(&self, index: usize, peer: &Peer, standing: &mut Standing<'_>) {
        let lane = self.lane_of(peer);
        let row = PeerStanding {
            index: index as u32,
            state: lane.map_or(PeerState::Idle, Lane::seen_state),
            unanswered: lane.map_or(0, |lane| lane.pending() - lane.waiting.len()),
            held: lane.map_or(0, |lane| lane.waiting.len()),
            offered: 0,
            moving: lane.map_or(0, |lane| lane.coming.len()),
            kept: peer.kept,
            is_full: lane.is_some_and(|lane| lane.tx.is_blocked),
        };
        standing.peer(&peer.addr.to_string(), &row);
    }
}

impl Lane {
    /// Own operations that are not complete.
    fn pending(&self) -> usize {
        let answers = self.asks.len() + self.reads.len() + self.atomics.len();
        self.waiting.len() + answers + self.offers.len()
    }

    fn seen_state(&self) -> PeerState {
        match self.stage {
            _ if self.is_parting => PeerState::Ending,
            Stage::Resting { .. } | Stage::Connecting { .. } => PeerState::Awaited,
            Stage::Securing | Stage::Proving | Stage::Asking => PeerState::Greeting,
            Stage::Up => PeerState::Up,
        }
    }
}

impl Inbound {
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
