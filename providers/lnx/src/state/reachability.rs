//! Reachability of peers over links that leave receives from a failed peer posted.
//!
//! Such a link refuses frames to a peer while it has no connection to it. lnx therefore sends a
//! probe, from time to time, to each peer for which an operation waits. If the link refuses all
//! frames to a peer for too long, lnx fails the operations of that peer. A peer that makes no
//! progress keeps its connection, which takes probes, so it does not fail.

use std::time::{Duration, Instant};

use selvedge::Errno;
use selvedge_kit::srx::Kind;

use crate::link::Frame;
use crate::state::peer_frames::Reachability;
use crate::state::{AfterSend, Op, State};
use crate::wire::{FrameKind, Header};

/// The time between two probes of a peer.
pub(crate) const PROBE_PERIOD: Duration = Duration::from_secs(1);

impl State {
    /// Fails a peer whose link has refused frames for too long.
    pub(crate) fn check_reachable(&mut self, peer: usize) {
        let link = self.peers[peer].link;
        // A link without room refuses frames to every peer.
        if self.transmits[link] >= self.links[link].tx_size / 2 {
            return;
        }
        let timeouts = self.timeouts;
        let reachability = &mut self.peers[peer].reachability;
        let was_connected = reachability.was_connected;
        if let Some(timeout) = reachability.has_failed(Instant::now(), timeouts) {
            *reachability = Reachability::default();
            let (errno, problem) = if was_connected {
                (Errno::ConnReset, "the connection is lost")
            } else {
                (Errno::HostUnreach, "there is no connection")
            };
            let detail = format!(
                "{}: {problem}, and the link could make none for {timeout:?}",
                self.peers[peer]
            );
            self.fail_refused(peer, errno, &detail);
            self.fail_link_ops(peer);
            self.fail_peer(peer, errno, &detail);
            self.peers[peer].failure = Some(errno);
        }
    }

    /// Cancels the receives of large messages' bytes from a failed peer.
    fn fail_link_ops(&mut self, peer: usize) {
        let link = self.peers[peer].link;
        for (key, op) in &self.ops {
            if matches!(op, Op::ReceiveBody(_, env) if env.src.0 as usize == peer) {
                self.links[link].cancel(key);
            }
        }
    }

    /// Sends a probe to each peer for which an operation waits, if probes are due.
    pub(crate) fn probe_peers(&mut self) {
        if self.links.iter().all(|link| link.is_watched) {
            return;
        }
        let now = Instant::now();
        if now < self.next_probe {
            return;
        }
        self.next_probe = now + PROBE_PERIOD;
        for peer in self.awaited_peers() {
            let it = &self.peers[peer];
            let is_idle = it.reachability.in_flight == 0 && it.refused_frames.is_empty();
            if is_idle && !self.links[it.link].is_watched {
                self.send_probe(peer);
            }
        }
    }

    fn send_probe(&mut self, peer: usize) {
        let mut frame = self.spare_frames.pop().unwrap_or_else(Frame::new);
        frame.write_header(&Header::new(FrameKind::Probe, self.incarnation));
        // A probe that the link refuses at once waits like a message.
        if let Err(errno) = self.send_frame(peer, frame, false, AfterSend::Nothing) {
            let detail = format!("{}: the link cannot send a probe", self.peers[peer]);
            self.fail_peer(peer, errno, &detail);
        }
    }

    /// The peers for which an operation waits.
    fn awaited_peers(&self) -> Vec<usize> {
        let sends = self.pending_sends.iter().map(|(_, pending)| pending.peer);
        let ops = self.ops.iter().filter_map(|(_, op)| match op {
            Op::ReceiveBody(_, env) => Some(env.src.0 as usize),
            Op::SendBody(_, peer, _) | Op::OneSided(peer, _) => Some(*peer),
            _ => None,
        });
        let receives = [Kind::Msg, Kind::Tagged].into_iter().flat_map(|kind| {
            let posted = self.matcher_of(kind).posted();
            posted.map(|posted| posted.src.0 as usize)
        });
        let mut peers: Vec<_> = sends.chain(ops).chain(receives).collect();
        peers.sort_unstable();
        peers.dedup();
        peers.retain(|&peer| peer < self.peers.len());
        peers
    }
}
