//! Sight: what an endpoint lets `fi_top` see of its queues and peers.

use std::time::Instant;

use selvedge_kit::telemetry::{Gauge, PeerSnapshot, PeerState as PublishedState, SnapshotWriter};

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
    if setup.ep.stats.is_snapshot_due(now) {
        show_now(setup, peers, matching, now);
    }
}

/// Writes down how things stand.
#[cold]
pub(crate) fn show_now(setup: &Setup, peers: &Peers, matching: &Matching, now: Instant) {
    setup.ep.stats.write_snapshot(now, |snapshot| {
        matching.show(snapshot);
        let unread = setup.ep.unread();
        snapshot.set_gauge(Gauge::Unread, unread);
        snapshot.set_gauge(Gauge::Peers, peers.len());
        let outstanding = peers.iter().take(LOOKED_AT).map(Peer::pending);
        snapshot.set_gauge(Gauge::Outstanding, outstanding.sum());
        show_peers(peers, snapshot);
    });
}

/// Those that something waits for come first, if there are too many.
fn show_peers(peers: &Peers, snapshot: &mut SnapshotWriter<'_>) {
    let shown = || peers.iter().take(LOOKED_AT);
    if peers.len() <= SnapshotWriter::MAX_PEERS {
        return shown().for_each(|peer| peer.show(snapshot));
    }
    let (busy, quiet): (Vec<_>, Vec<_>) = shown().partition(|peer| peer.is_busy());
    for peer in busy
        .into_iter()
        .chain(quiet)
        .take(SnapshotWriter::MAX_PEERS)
    {
        peer.show(snapshot);
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

    fn show(&self, snapshot: &mut SnapshotWriter<'_>) {
        let stages = || self.incoming.values().map(|incoming| &incoming.stage);
        let offered = stages().filter(|stage| matches!(stage, Stage::Unmatched));
        let moving = stages().filter(|stage| matches!(stage, Stage::Moving(_)));
        let row = PeerSnapshot {
            index: self.index,
            state: self.seen_state(),
            outstanding: self.outstanding(),
            queued: self.held.len() + self.later.len(),
            unmatched: offered.count(),
            transferring: moving.count(),
            unexpected_bytes: self.kept,
            is_full: self.is_full(),
        };
        snapshot.add_peer(self.name.as_str(), &row);
    }

    fn seen_state(&self) -> PublishedState {
        match self.state {
            PeerState::Idle => PublishedState::Idle,
            PeerState::Waiting { .. } => PublishedState::Connecting,
            PeerState::Linked | PeerState::Behind if self.inbox.is_none() => {
                PublishedState::Handshaking
            }
            PeerState::Linked | PeerState::Behind => PublishedState::Connected,
            PeerState::Ending { .. } => PublishedState::Draining,
            PeerState::Dead => PublishedState::Disconnected,
        }
    }
}

impl Matching {
    fn show(&self, snapshot: &mut SnapshotWriter<'_>) {
        let matchers = self.matchers();
        let posted = matchers.iter().map(|(_, matcher)| matcher.posted_len());
        let unexpected = matchers.iter().map(|(_, matcher)| matcher.unexpected_len());
        snapshot.set_gauge(Gauge::Posted, posted.sum());
        snapshot.set_gauge(Gauge::Unexpected, unexpected.sum());
        snapshot.set_gauge(Gauge::UnexpectedBytes, self.quota.bytes());
        snapshot.set_gauge(Gauge::UnexpectedLimit, self.quota.limit());
        for (kind, matcher) in matchers {
            snapshot.add_posted(matcher.posted());
            snapshot.add_unexpected(kind, matcher.unexpected());
        }
    }
}
