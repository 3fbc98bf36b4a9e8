//! The end of a peer's incarnation, and the close of an endpoint.
//!
//! A peer is disconnected when its socket closes, its process dies, or it violates the protocol.
//! The endpoint still receives the commands that the peer had committed, as soon as there is room
//! for them, except after a violation. All other operations with the peer fail. The next
//! incarnation can then take the peer's name.

use std::time::{Duration, Instant};

use selvedge::{CompletionFlags, Context, Errno, Error, OpFlags};
use selvedge_kit::Report;
use selvedge_kit::rate_limit::warn_limited;
use selvedge_kit::telemetry::EventKind;

use crate::atomic::{Backlog, response};
use crate::connect::Connector;
use crate::endpoint::state::State;
use crate::matching::command_receiver::move_transfers;
use crate::peers::Peers;
use crate::peers::name::Name;
use crate::peers::peer::{Peer, State as PeerState};
use crate::rma::remote_memory::PeerKeys;
use crate::transfers::cmd::ProtocolError;
use crate::transfers::incoming::Stage;

/// Timeout for sending owed responses when an endpoint closes.
const LINGER: Duration = Duration::from_millis(100);
/// The maximum number of rounds that drain bounce segments; more than bounce memory holds.
const DRAIN_ROUNDS: usize = 1024;

impl Connector<'_> {
    /// Handles the peer's refusal of the connection. Messages sent to the peer are lost, even if
    /// their completions were reported.
    pub(crate) fn handle_refusal(&mut self, index: usize, errno: Errno, reason: &str) {
        let peer = &self.peers[index];
        let sent = peer.out.as_ref().filter(|_| peer.inbox.is_none());
        let lost = match sent.map_or(0, |out| out.tx.position()) {
            0 => String::new(),
            count => format!("; what was sent to it is lost: {count}"),
        };
        self.report_lost_messages(index, &format!("it refuses: {reason}: {errno}{lost}"));
        let name = &self.peers[index].name;
        warn_limited(
            "selvedge::shm::ep_ctrl",
            format_args!("{name} refuses the connection ({errno}): {reason}{lost}"),
        );
        self.disconnect(
            index,
            Errno::ConnRefused,
            &format!("it refuses: {reason}: {errno}{lost}"),
        );
    }

    /// Reports that messages to a peer that has never responded are lost, although they completed:
    /// with one error completion without a context, like the error of an inject.
    fn report_lost_messages(&mut self, index: usize, reason: &str) {
        let peer = &mut self.peers[index];
        let Some(out) = peer.out.as_ref().filter(|_| peer.inbox.is_none()) else {
            return;
        };
        let unfinished = out.ops.len() + peer.held_sends.len();
        if out.tx.position() <= unfinished as u64 {
            return;
        }
        let addr = peer.fi_addr(&self.setup.av);
        let detail = format!("{}: {reason}", peer.name);
        let report = Report {
            kind: CompletionFlags::SEND | CompletionFlags::MSG,
            context: Context::default(),
            flags: OpFlags::DEFAULT,
            reports_success: false,
            len: 0,
        };
        report.failed(&self.setup.ep, Errno::ConnRefused, addr, detail);
    }

    /// Disconnects a peer after an error of its connection. If the error is that this process is
    /// out of memory or descriptors, the peer has not violated the protocol, and its committed
    /// commands are received first.
    pub(crate) fn disconnect_after_error(&mut self, index: usize, error: &Error) {
        let reason = error.to_string();
        match error.errno() {
            Errno::KeyRejected => {
                warn_limited("selvedge::shm::ep_ctrl", format_args!("{reason}"));
                self.report_lost_messages(index, &reason);
                self.disconnect(index, Errno::ConnRefused, &reason);
            }
            Errno::MFile | Errno::NFile | Errno::NoMem => {
                let name = &self.peers[index].name;
                warn_limited(
                    "selvedge::shm::ep_ctrl",
                    format_args!("{name} is disconnected: {reason}"),
                );
                let reason = "this process has too little memory or descriptors for it";
                self.end_incarnation(index, Errno::ConnReset, reason);
            }
            _ => self.disconnect_for_violation(index, &reason),
        }
    }

    /// Disconnects a peer that has violated the protocol.
    #[cold]
    pub(crate) fn disconnect_for_violation(&mut self, index: usize, reason: &str) {
        let name = &self.peers[index].name;
        warn_limited(
            "selvedge::shm::ep_data",
            format_args!("{name} is disconnected: {reason}"),
        );
        self.report_lost_messages(index, reason);
        self.disconnect(index, Errno::ConnReset, reason);
    }

    /// Ends a peer's incarnation after its committed commands are received, now or when there is
    /// room for them.
    pub(crate) fn end_incarnation(&mut self, index: usize, errno: Errno, reason: &'static str) {
        let peer = &mut self.peers[index];
        // The process may have exited, or may use its memory for other data.
        peer.cma = None;
        let end = peer
            .inbox
            .as_ref()
            .map_or(0, |inbox| inbox.rx.position() + inbox.rx.capacity());
        let is_drained = self.drain(index, end);
        if self.peers[index].state == PeerState::Disconnected {
            return;
        }
        self.fail_outgoing(index, errno, reason);
        if is_drained {
            self.fail_incoming(index, errno, reason);
        } else {
            self.peers[index].state = PeerState::Draining { errno, reason, end };
            self.schedule.ending.push(index as u32);
        }
    }

    /// Continues to receive the commands of a disconnected peer, and ends its incarnation after the
    /// last command.
    pub(crate) fn continue_drain(&mut self, index: usize) {
        let PeerState::Draining { errno, reason, end } = self.peers[index].state else {
            return;
        };
        if self.drain(index, end) {
            self.fail_incoming(index, errno, reason)
        } else {
            self.schedule.ending.push(index as u32)
        }
    }

    /// Takes the commands that a disconnected peer had committed, up to the position `end` of its
    /// queue. Returns `false` while there is no room for all of them.
    fn drain(&mut self, index: usize, end: u64) -> bool {
        let inbox = self.peers[index].inbox.as_ref();
        let budget = inbox.map_or(0, |inbox| end - inbox.rx.position());
        self.take_commands(index, budget as usize);
        if let Some(ProtocolError(reason)) = self.peers[index].fault.take() {
            self.disconnect_for_violation(index, reason);
        }
        for _ in 0..DRAIN_ROUNDS {
            if !matches!(move_transfers(&mut self.peers[index], self.setup), Ok(1..)) {
                break;
            }
        }
        let inbox = self.peers[index].inbox.as_ref();
        inbox.is_none_or(|inbox| inbox.rx.position() >= end || inbox.rx.peek().is_none())
    }

    /// Ends a peer's incarnation at once, without receiving its committed commands.
    #[cold]
    pub(crate) fn disconnect(&mut self, index: usize, errno: Errno, reason: &str) {
        self.fail_outgoing(index, errno, reason);
        self.fail_incoming(index, errno, reason);
    }

    /// Fails all operations to the peer, and closes outbox and connections.
    fn fail_outgoing(&mut self, index: usize, errno: Errno, reason: &str) {
        let peer = &mut self.peers[index];
        self.schedule.remove(peer);
        self.setup.count_ended_incarnation();
        let addr = peer.fi_addr(&self.setup.av);
        let detail = format!("{}: {reason}", peer.name);
        peer.incarnation = peer.incarnation.wrapping_add(1);
        peer.connections.clear();
        peer.pidfd = None;
        peer.cma = None;
        peer.mapped_regions.clear();
        peer.aborts.clear();
        peer.fault = None;
        let held = std::mem::take(&mut peer.held_sends);
        peer.atomics = Backlog::default();
        for report in held {
            report.failed(&self.setup.ep, errno, addr, detail.clone());
        }
        for deferred_op in std::mem::take(&mut peer.deferred) {
            deferred_op.fail(&self.setup.ep, errno, addr, detail.clone());
        }
        let Some(mut out) = peer.out.take() else {
            return;
        };
        // The peer may be alive and copying: the closed region invalidates its copy before the
        // sends fail and their memory is reused.
        out.region.close();
        for op in out.ops.drain() {
            op.fail(&self.setup.ep, errno, addr, detail.clone());
        }
    }

    /// Fails all operations from the peer, and unmaps its memory.
    fn fail_incoming(&mut self, index: usize, errno: Errno, reason: &str) {
        let peer = &mut self.peers[index];
        let addr = peer.fi_addr(&self.setup.av);
        let detail = format!("{}: {reason}", peer.name);
        let name = peer.name.as_str();
        self.setup
            .ep
            .stats
            .record_event(EventKind::Disconnected, name, errno.as_raw() as u64);
        peer.state = PeerState::Disconnected;
        peer.incarnation_id = None;
        peer.inbox = None;
        peer.bounce = None;
        peer.early_segments.clear();
        peer.blocks.clear();
        peer.views.end_all();
        peer.mapped_regions.clear();
        peer.keys = PeerKeys::default();
        for (_, message) in std::mem::take(&mut peer.incoming) {
            if let Stage::Moving(moving) = message.stage {
                moving
                    .destination
                    .fail(&self.setup.ep, errno, addr, detail.clone());
            }
        }
        let has_next_incarnation = std::mem::take(&mut peer.has_next_incarnation);
        if !has_next_incarnation && peer.next_connection.is_none() {
            for posted in self.matching.fail_source(peer.source()) {
                self.setup.ep.rx_failed(posted, errno, addr, detail.clone());
            }
        }
        self.resume_next_incarnation(index);
    }
}

/// Waits for room for the responses to executed atomics, so that the initiators read success.
fn send_owed_responses(peers: &mut Peers) {
    let deadline = Instant::now() + LINGER;
    while owes_responses(peers) && Instant::now() < deadline {
        std::thread::yield_now();
    }
}

/// Sends responses to connected peers while there is room. Returns whether some are left.
fn owes_responses(peers: &mut Peers) -> bool {
    let mut is_owing = false;
    for peer in peers.iter_mut() {
        // A peer that has published an invalid credit gets no response.
        if peer.state == PeerState::Connected && response::send_owed_responses(peer).is_ok() {
            is_owing |= !peer.atomics.is_empty();
        }
    }
    is_owing
}

/// Waits for the key proofs of existing peers for which injected messages are queued. An injected
/// message was complete when it was posted, so the application had no completion to wait for. A
/// proof takes `FI_SHM_HELLO_TIMEOUT` at most, which is also the timeout of this wait.
fn await_key_proofs(state: &mut State) {
    let deadline = Instant::now() + state.setup.config.hello_timeout;
    let is_awaited = |peer: &Peer| {
        peer.next_connection.is_some() && discarded_by_close(&peer.state, &peer.held_sends) > 0
    };
    while state.peers.iter().any(is_awaited) {
        let now = Instant::now();
        if now >= deadline {
            return;
        }
        let mut connector = state.connector();
        connector.control.accept_limiter.begin(now);
        for index in connector.control.due_retries(now) {
            connector.retry_connect(index, now);
        }
        std::thread::yield_now();
    }
}

/// The number of injected messages that are lost if the endpoint closes in this state.
fn discarded_by_close(state: &PeerState, held: &[Report]) -> usize {
    match state {
        PeerState::Waiting { .. } => held.iter().filter(|report| !report.reports_success).count(),
        _ => 0,
    }
}

/// Logs the injected messages for a peer that are lost. No completion is pushed: fi_close(3)
/// discards outstanding operations silently.
fn log_discarded(local: &Name, peer: &Peer) {
    let suspended = peer.suspended.as_ref().map_or(0, |suspended| {
        let (state, held) = suspended.state_and_sends();
        discarded_by_close(state, held)
    });
    let count = discarded_by_close(&peer.state, &peer.held_sends) + suspended;
    if count == 0 {
        return;
    }
    let name = &peer.name;
    let reason = if peer.awaits_key_proof() {
        "it has not proved its auth_key"
    } else {
        "it was not connected"
    };
    warn_limited(
        "selvedge::shm::ep_ctrl",
        format_args!(
            "{local} closes, and injected messages for {name} are lost ({reason}): {count}"
        ),
    );
}

/// Disconnects all peers. No peer uses this process's memory afterwards: a peer that is copying
/// from it discards the copy.
pub(crate) fn close(state: &mut State) {
    state.setup.shared.siblings.remove(&state.control.name);
    await_key_proofs(state);
    let State { peers, control, .. } = state;
    send_owed_responses(peers);
    for peer in peers.iter_mut() {
        log_discarded(&control.name, peer);
        if let Some(out) = &peer.out {
            out.region.close();
        }
        if let Some(suspended) = peer.suspended.take() {
            suspended.close();
        }
        peer.connections.clear();
        peer.next_connection = None;
        peer.incoming.clear();
        peer.atomics = Backlog::default();
        peer.deferred.clear();
        peer.out = None;
        peer.inbox = None;
        peer.blocks.clear();
        peer.mapped_regions.clear();
    }
}
