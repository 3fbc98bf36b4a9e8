//! Telemetry: the snapshot of queues and peers that an endpoint publishes for `fi_top`.

use std::time::Instant;

use selvedge_kit::telemetry::{Gauge, PeerSnapshot, PeerState as PublishedState, SnapshotWriter};

use crate::matching::Matching;
use crate::peers::Peers;
use crate::peers::peer::{Peer, State as PeerState};
use crate::provider::setup::Setup;
use crate::transfers::incoming::Stage;

/// The maximum number of peers that are searched for busy ones, if the stats page has no room for
/// all.
const PEERS_MAX: usize = 1024;

/// Writes a snapshot if the next one is due.
#[inline]
pub(crate) fn update(setup: &Setup, peers: &Peers, matching: &Matching, now: Instant) {
    if setup.ep.stats.is_snapshot_due(now) {
        update_now(setup, peers, matching, now);
    }
}

/// Writes a snapshot.
#[cold]
pub(crate) fn update_now(setup: &Setup, peers: &Peers, matching: &Matching, now: Instant) {
    setup.ep.stats.write_snapshot(now, |snapshot| {
        matching.write_snapshot(snapshot);
        let unread = setup.ep.unread();
        snapshot.set_gauge(Gauge::Unread, unread);
        snapshot.set_gauge(Gauge::Peers, peers.len());
        let outstanding = peers
            .iter()
            .take(PEERS_MAX)
            .map(Peer::outstanding_and_queued);
        snapshot.set_gauge(Gauge::Outstanding, outstanding.sum());
        write_peers(peers, snapshot);
    });
}

/// Writes the peers. Writes busy ones first if the stats page has no room for all.
fn write_peers(peers: &Peers, snapshot: &mut SnapshotWriter<'_>) {
    let searched = || peers.iter().take(PEERS_MAX);
    if peers.len() <= SnapshotWriter::MAX_PEERS {
        return searched().for_each(|peer| peer.write_snapshot(snapshot));
    }
    let (busy, idle): (Vec<_>, Vec<_>) = searched().partition(|peer| peer.is_busy());
    for peer in busy.into_iter().chain(idle).take(SnapshotWriter::MAX_PEERS) {
        peer.write_snapshot(snapshot);
    }
}

impl Peer {
    /// Returns the number of this endpoint's incomplete operations with the peer.
    fn outstanding_and_queued(&self) -> usize {
        self.outstanding() + self.held_sends.len() + self.deferred.len()
    }

    fn is_busy(&self) -> bool {
        self.outstanding_and_queued() > 0 || !self.incoming.is_empty() || self.kept_bytes > 0
    }

    fn write_snapshot(&self, snapshot: &mut SnapshotWriter<'_>) {
        let stages = || self.incoming.values().map(|incoming| &incoming.stage);
        let unmatched = stages().filter(|stage| matches!(stage, Stage::Unmatched));
        let moving = stages().filter(|stage| matches!(stage, Stage::Moving(_)));
        let entry = PeerSnapshot {
            index: self.index,
            state: self.published_state(),
            outstanding: self.outstanding(),
            queued: self.held_sends.len() + self.deferred.len(),
            unmatched: unmatched.count(),
            transferring: moving.count(),
            unexpected_bytes: self.kept_bytes,
            is_full: self.is_full(),
        };
        snapshot.add_peer(self.name.as_str(), &entry);
    }

    fn published_state(&self) -> PublishedState {
        match self.state {
            PeerState::Idle => PublishedState::Idle,
            PeerState::Waiting { .. } => PublishedState::Connecting,
            PeerState::Connected | PeerState::Backlogged if self.inbox.is_none() => {
                PublishedState::Handshaking
            }
            PeerState::Connected | PeerState::Backlogged => PublishedState::Connected,
            PeerState::Draining { .. } => PublishedState::Draining,
            PeerState::Disconnected => PublishedState::Disconnected,
        }
    }
}

impl Matching {
    fn write_snapshot(&self, snapshot: &mut SnapshotWriter<'_>) {
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
