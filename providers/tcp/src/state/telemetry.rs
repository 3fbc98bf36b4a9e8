//! Telemetry: the state of queues and peers that an endpoint shows to `fi_top`.

use std::time::Instant;

use selvedge_kit::Ep;
use selvedge_kit::telemetry::{Gauge, PeerSnapshot, PeerState, SnapshotWriter};

use crate::connection::table::Connections;
use crate::connection::{Connection, Stage};
use crate::matching::Matching;
use crate::peers::{Peer, Peers};

/// The number of peers that are searched for busy ones.
const PEERS_MAX: usize = 1024;

/// Writes a snapshot of the endpoint's state.
#[cold]
pub(super) fn write(
    now: Instant,
    ep: &Ep,
    peers: &Peers,
    connections: &Connections,
    matching: &Matching,
) {
    ep.stats.write_snapshot(now, |snapshot| {
        matching.write_telemetry(snapshot);
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
        let idle = numbered().filter(|&(_, _, it)| !it.is_some_and(is_busy));
        for (index, peer, connection) in busy.chain(idle).take(SnapshotWriter::MAX_PEERS) {
            let unexpected_bytes = matching.unexpected_bytes(index);
            write_peer(snapshot, index, peer, connection, unexpected_bytes);
        }
    });
}

fn write_peer(
    snapshot: &mut SnapshotWriter<'_>,
    index: usize,
    peer: &Peer,
    connection: Option<&Connection>,
    unexpected_bytes: usize,
) {
    let waiting = connection.map_or(0, |it| it.outgoing.waiting());
    let entry = PeerSnapshot {
        index: index as u32,
        state: connection.map_or(PeerState::Idle, state),
        outstanding: connection.map_or(0, |it| it.outgoing.pending() - waiting),
        queued: waiting,
        unmatched: 0,
        transferring: connection.map_or(0, |it| it.incoming.requested.len()),
        unexpected_bytes,
        is_full: connection.is_some_and(|it| it.outgoing.tx.is_blocked),
    };
    snapshot.add_peer(&peer.addr.to_string(), &entry);
}

fn state(connection: &Connection) -> PeerState {
    match connection.stage {
        _ if connection.is_draining => PeerState::Draining,
        Stage::Retrying { .. } | Stage::Connecting { .. } => PeerState::Connecting,
        Stage::TlsHandshake | Stage::Authenticating | Stage::AwaitingResponse => {
            PeerState::Handshaking
        }
        Stage::Up => PeerState::Connected,
    }
}
