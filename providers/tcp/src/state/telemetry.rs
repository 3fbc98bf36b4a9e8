//! Telemetry: what an endpoint lets `fi_top` see of its queues and peers.

use std::time::Instant;

use selvedge_kit::Ep;
use selvedge_kit::telemetry::{Gauge, PeerSnapshot, PeerState, SnapshotWriter};

use crate::connection::table::Connections;
use crate::connection::{Connection, Stage};
use crate::matching::Matching;
use crate::peers::{Peer, Peers};

/// Peers that are looked through for those that something waits for.
const PEERS_MAX: usize = 1024;

/// Writes down how things stand.
#[cold]
pub(super) fn write(
    now: Instant,
    ep: &Ep,
    peers: &Peers,
    connections: &Connections,
    matching: &Matching,
) {
    ep.stats.write_snapshot(now, |snapshot| {
        matching.show(snapshot);
        snapshot.set_gauge(Gauge::Unread, ep.unread());
        snapshot.set_gauge(Gauge::Peers, peers.len());
        let pending = connections.iter().map(|it| it.outgoing.pending());
        snapshot.set_gauge(Gauge::Outstanding, pending.sum());
        let numbered = || {
            let peers = peers.iter().enumerate().take(PEERS_MAX);
            peers.map(|(index, peer)| {
                let connection = peer.connection.and_then(|at| connections.get(at));
                (index, peer, connection)
            })
        };
        let is_busy = |it: &Connection| it.outgoing.pending() > 0;
        let busy = numbered().filter(|&(_, _, it)| it.is_some_and(is_busy));
        let quiet = numbered().filter(|&(_, _, it)| !it.is_some_and(is_busy));
        for (index, peer, connection) in busy.chain(quiet).take(SnapshotWriter::MAX_PEERS) {
            let kept = matching.bytes_of(index);
            write_peer(snapshot, index, peer, connection, kept);
        }
    });
}

fn write_peer(
    snapshot: &mut SnapshotWriter<'_>,
    index: usize,
    peer: &Peer,
    connection: Option<&Connection>,
    kept: usize,
) {
    let held = connection.map_or(0, |it| it.outgoing.waiting());
    let row = PeerSnapshot {
        index: index as u32,
        state: connection.map_or(PeerState::Idle, state),
        outstanding: connection.map_or(0, |it| it.outgoing.pending() - held),
        queued: held,
        unmatched: 0,
        transferring: connection.map_or(0, |it| it.incoming.coming.len()),
        unexpected_bytes: kept,
        is_full: connection.is_some_and(|it| it.outgoing.tx.is_blocked),
    };
    snapshot.add_peer(&peer.addr.to_string(), &row);
}

fn state(connection: &Connection) -> PeerState {
    match connection.stage {
        _ if connection.is_parting => PeerState::Draining,
        Stage::Resting { .. } | Stage::Connecting { .. } => PeerState::Connecting,
        Stage::Securing | Stage::Proving | Stage::Asking => PeerState::Handshaking,
        Stage::Up => PeerState::Connected,
    }
}
