//! Telemetry: what an endpoint lets `fi_top` see of its queues and peers.

use std::time::Instant;

use selvedge_kit::Ep;
use selvedge_kit::sight::{Gauge, PeerStanding, PeerState, Standing};

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
    ep.sight.write_standing(now, |standing| {
        matching.write_telemetry(standing);
        standing.gauge(Gauge::Unread, ep.unread());
        standing.gauge(Gauge::Peers, peers.len());
        let pending = connections.iter().map(|it| it.outgoing.pending());
        standing.gauge(Gauge::Outstanding, pending.sum());
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
        for (index, peer, connection) in busy.chain(idle).take(Standing::PEERS) {
            let unexpected_bytes = matching.unexpected_bytes(index);
            write_peer(standing, index, peer, connection, unexpected_bytes);
        }
    });
}

fn write_peer(
    standing: &mut Standing<'_>,
    index: usize,
    peer: &Peer,
    connection: Option<&Connection>,
    unexpected_bytes: usize,
) {
    let waiting = connection.map_or(0, |it| it.outgoing.waiting());
    let entry = PeerStanding {
        index: index as u32,
        state: connection.map_or(PeerState::Idle, state),
        unanswered: connection.map_or(0, |it| it.outgoing.pending() - waiting),
        held: waiting,
        offered: 0,
        moving: connection.map_or(0, |it| it.incoming.requested.len()),
        kept: unexpected_bytes,
        is_full: connection.is_some_and(|it| it.outgoing.tx.is_blocked),
    };
    standing.peer(&peer.addr.to_string(), &entry);
}

fn state(connection: &Connection) -> PeerState {
    match connection.stage {
        _ if connection.is_draining => PeerState::Ending,
        Stage::Retrying { .. } | Stage::Connecting { .. } => PeerState::Awaited,
        Stage::TlsHandshake | Stage::Authenticating | Stage::AwaitingResponse => {
            PeerState::Greeting
        }
        Stage::Up => PeerState::Up,
    }
}
