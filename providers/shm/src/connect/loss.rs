//! Loss: how the life of a peer ends.
//!
//! A peer is lost when its socket ends or its process dies, or when it breaks the protocol. What it
//! had committed by then is still received, as soon as there is room for it; everything else that
//! it had a part in fails. Its name is free for a next life after that.

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

/// How long an endpoint that closes waits for room for the answers that it owes.
const LINGER: Duration = Duration::from_millis(100);
/// Rounds of segments that a peer that is gone may have left; more than its bounce memory holds.
const LAST_ROUNDS: usize = 1024;

impl Connector<'_> {
    /// The peer does not want to talk to us. What was sent to it is lost, complete or not.
    pub(crate) fn refused(&mut self, index: usize, errno: Errno, why: &str) {
        let peer = &self.peers[index];
        let sent = peer.out.as_ref().filter(|_| peer.inbox.is_none());
        let lost = match sent.map_or(0, |out| out.tx.position()) {
            0 => String::new(),
            count => format!("; what was sent to it is lost: {count}"),
        };
        self.report_lost(index, &format!("it refuses: {why}: {errno}{lost}"));
        let name = &self.peers[index].name;
        warn_limited(
            "selvedge::shm::ep_ctrl",
            format_args!("{name} refuses to talk ({errno}): {why}{lost}"),
        );
        self.lose(
            index,
            Errno::ConnRefused,
            &format!("it refuses: {why}: {errno}{lost}"),
        );
    }

    /// Messages were reported complete, and a peer that has never answered will not receive them: one
    /// error says so, without a context, as the error of an inject.
    fn report_lost(&mut self, index: usize, why: &str) {
        let peer = &mut self.peers[index];
        let Some(out) = peer.out.as_ref().filter(|_| peer.inbox.is_none()) else {
            return;
        };
        let unfinished = out.ops.len() + peer.held.len();
        if out.tx.position() <= unfinished as u64 {
            return;
        }
        let addr = peer.fi_addr(&self.setup.av);
        let detail = format!("{}: {why}", peer.name);
        let report = Report {
            kind: CompletionFlags::SEND | CompletionFlags::MSG,
            context: Context::default(),
            flags: OpFlags::DEFAULT,
            reports_success: false,
            len: 0,
        };
        report.failed(&self.setup.ep, Errno::ConnRefused, addr, detail);
    }

    /// Ends the contact with a peer after an error in what it says over its socket. If this process is
    /// short of something, the peer has broken no rule: what it had committed is received first.
    pub(crate) fn cut_off(&mut self, index: usize, error: &Error) {
        let what = error.to_string();
        match error.errno() {
            Errno::KeyRejected => {
                warn_limited("selvedge::shm::ep_ctrl", format_args!("{what}"));
                self.report_lost(index, &what);
                self.lose(index, Errno::ConnRefused, &what);
            }
            Errno::MFile | Errno::NFile | Errno::NoMem => {
                let name = &self.peers[index].name;
                warn_limited(
                    "selvedge::shm::ep_ctrl",
                    format_args!("{name} cannot be kept: {what}"),
                );
                let why = "this process has too little memory or descriptors for it";
                self.end(index, Errno::ConnReset, why);
            }
            _ => self.quarantine(index, &what),
        }
    }

    /// Stops believing a peer that broke the protocol.
    #[cold]
    pub(crate) fn quarantine(&mut self, index: usize, what: &str) {
        let name = &self.peers[index].name;
        warn_limited(
            "selvedge::shm::ep_data",
            format_args!("{name} is cut off: {what}"),
        );
        self.report_lost(index, what);
        self.lose(index, Errno::ConnReset, what);
    }

    /// The peer is gone. What it had committed is received first, now or when there is room.
    pub(crate) fn end(&mut self, index: usize, errno: Errno, why: &'static str) {
        let peer = &mut self.peers[index];
        // Its memory is gone, or its own again.
        peer.cma = None;
        let last = peer
            .inbox
            .as_ref()
            .map_or(0, |inbox| inbox.rx.position() + inbox.rx.capacity());
        let is_drained = self.drain(index, last);
        if self.peers[index].state == PeerState::Dead {
            return;
        }
        self.sever(index, errno, why);
        if is_drained {
            self.forget(index, errno, why);
        } else {
            self.peers[index].state = PeerState::Ending { errno, why, last };
            self.schedule.ending.push(index as u32);
        }
    }

    /// Goes on receiving what a peer that is gone has left, and ends its life after the last.
    pub(crate) fn bury(&mut self, index: usize) {
        let PeerState::Ending { errno, why, last } = self.peers[index].state else {
            return;
        };
        match self.drain(index, last) {
            true => self.forget(index, errno, why),
            false => self.schedule.ending.push(index as u32),
        }
    }

    /// Takes what a peer that is gone had committed, up to its command number `last`. `false`
    /// while there is no room for all of it.
    fn drain(&mut self, index: usize, last: u64) -> bool {
        let inbox = self.peers[index].inbox.as_ref();
        let budget = inbox.map_or(0, |inbox| last - inbox.rx.position());
        self.take_commands(index, budget as usize);
        if let Some(ProtocolError(what)) = self.peers[index].fault.take() {
            self.quarantine(index, what);
        }
        for _ in 0..LAST_ROUNDS {
            if !matches!(move_transfers(&mut self.peers[index], self.setup), Ok(1..)) {
                break;
            }
        }
        let inbox = self.peers[index].inbox.as_ref();
        inbox.is_none_or(|inbox| inbox.rx.position() >= last || inbox.rx.peek().is_none())
    }

    /// Ends a peer's life at once, whatever it had committed.
    #[cold]
    pub(crate) fn lose(&mut self, index: usize, errno: Errno, why: &str) {
        self.sever(index, errno, why);
        self.forget(index, errno, why);
    }

    /// Fails everything that was sent to the peer, and says no more to it.
    fn sever(&mut self, index: usize, errno: Errno, why: &str) {
        let peer = &mut self.peers[index];
        self.schedule.remove(peer);
        self.setup.count_end();
        let addr = peer.fi_addr(&self.setup.av);
        let detail = format!("{}: {why}", peer.name);
        peer.life = peer.life.wrapping_add(1);
        peer.links.clear();
        peer.pidfd = None;
        peer.cma = None;
        peer.mapped_regions.clear();
        peer.aborts.clear();
        peer.fault = None;
        let held = std::mem::take(&mut peer.held);
        peer.atomics = Backlog::default();
        for held in held {
            held.failed(&self.setup.ep, errno, addr, detail.clone());
        }
        for later in std::mem::take(&mut peer.later) {
            later.fail(&self.setup.ep, errno, addr, detail.clone());
        }
        let Some(mut out) = peer.out.take() else {
            return;
        };
        // The peer may live and be at copying: it learns that the copy is void before the sends
        // fail and their memory is used for something else.
        out.region.close();
        for op in out.ops.drain() {
            op.fail(&self.setup.ep, errno, addr, detail.clone());
        }
    }

    /// Fails everything that was to come from the peer, and lets its memory go.
    fn forget(&mut self, index: usize, errno: Errno, why: &str) {
        let peer = &mut self.peers[index];
        let addr = peer.fi_addr(&self.setup.av);
        let detail = format!("{}: {why}", peer.name);
        let name = peer.name.as_str();
        self.setup
            .ep
            .stats
            .record_event(EventKind::Disconnected, name, errno.as_raw() as u64);
        peer.state = PeerState::Dead;
        peer.incarnation = None;
        peer.inbox = None;
        peer.bounce = None;
        peer.early.clear();
        peer.blocks.clear();
        peer.mapped_regions.clear();
        peer.keys = PeerKeys::default();
        for (_, message) in std::mem::take(&mut peer.incoming) {
            if let Stage::Moving(moving) = message.stage {
                moving
                    .destination
                    .fail(&self.setup.ep, errno, addr, detail.clone());
            }
        }
        let has_next = std::mem::take(&mut peer.has_next);
        if !has_next && peer.next.is_none() {
            for posted in self.matching.fail_source(peer.source()) {
                self.setup.ep.rx_failed(posted, errno, addr, detail.clone());
            }
        }
        self.take_up(index);
    }
}

/// Waits for room for the answers to atomics that were carried out: what has happened is to be
/// reported as done.
fn pay_owed_answers(peers: &mut Peers) {
    let deadline = Instant::now() + LINGER;
    while owes_answers(peers) && Instant::now() < deadline {
        std::thread::yield_now();
    }
}

/// Whether answers to connected peers are left when those were sent that there is room for.
fn owes_answers(peers: &mut Peers) -> bool {
    let mut is_owing = false;
    for peer in peers.iter_mut() {
        // A peer that lies about what it has consumed gets no answer.
        if peer.state == PeerState::Linked && response::send_owed_responses(peer).is_ok() {
            is_owing |= !peer.atomics.is_empty();
        }
    }
    is_owing
}

/// Waits for peers that exist, have not proved their authorization key yet, and are to have injected
/// messages: those were complete when they were posted, and there is no completion that the
/// application could have waited for. A proof takes `FI_SHM_HELLO_TIMEOUT` at most, and so does this.
fn finish_proofs(state: &mut State) {
    let deadline = Instant::now() + state.setup.config.hello_timeout;
    let is_awaited =
        |peer: &Peer| peer.next.is_some() && discarded_by_closing(&peer.state, &peer.held) > 0;
    while state.peers.iter().any(is_awaited) {
        let now = Instant::now();
        if now >= deadline {
            return;
        }
        let mut at = state.connector();
        at.control.intake.begin(now);
        for index in at.control.due(now) {
            at.search(index, now);
        }
        std::thread::yield_now();
    }
}

/// Injected messages that are lost if the endpoint closes in this state.
fn discarded_by_closing(state: &PeerState, held: &[Report]) -> usize {
    match state {
        PeerState::Waiting { .. } => held.iter().filter(|report| !report.reports_success).count(),
        _ => 0,
    }
}

/// Says in the log which injected messages for a peer are lost. Queues are not told: fi_close(3)
/// discards what is outstanding without completions.
fn report_discarded(own: &Name, peer: &Peer) {
    let aside = peer.aside.as_ref().map_or(0, |aside| {
        let (state, held) = aside.held();
        discarded_by_closing(state, held)
    });
    let count = discarded_by_closing(&peer.state, &peer.held) + aside;
    if count == 0 {
        return;
    }
    let name = &peer.name;
    let why = match peer.is_asked() {
        true => "it has not proved its auth_key",
        false => "it was not connected",
    };
    warn_limited(
        "selvedge::shm::ep_ctrl",
        format_args!("{own} closes, and injected messages for {name} are lost ({why}): {count}"),
    );
}

/// Ends every contact. Nothing of ours is touched by a peer afterwards: a copy that is under
/// way is thrown away by whoever makes it.
pub(crate) fn close(state: &mut State) {
    state.setup.shared.siblings.remove(&state.control.name);
    finish_proofs(state);
    let State { peers, control, .. } = state;
    pay_owed_answers(peers);
    for peer in peers.iter_mut() {
        report_discarded(&control.name, peer);
        if let Some(out) = &peer.out {
            out.region.close();
        }
        if let Some(aside) = peer.aside.take() {
            aside.close();
        }
        peer.links.clear();
        peer.next = None;
        peer.incoming.clear();
        peer.atomics = Backlog::default();
        peer.later.clear();
        peer.out = None;
        peer.inbox = None;
        peer.blocks.clear();
        peer.mapped_regions.clear();
    }
}
