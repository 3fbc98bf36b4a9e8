//! `CommandReceiver`: executes the commands that peers have sent. [`move_transfers`] advances the
//! large messages to and from a peer.
//!
//! The fast path takes messages without parsing them ([`crate::matching::fast_path`]); this file
//! has the general path.

use selvedge::{Errno, OpFlags};
use selvedge_kit::cq::Sink;
use selvedge_kit::srx::{Envelope, Posted};
use selvedge_kit::telemetry;

use crate::atomic::{self, response};
use crate::matching::fast_path::{
    FastPath, FirstUnindexed, Oldest, PREFETCH_PAYLOAD_MAX, ReceiveLookup,
};
use crate::matching::lent::handover;
use crate::matching::{self, Ack, Matching, Unexpected};
use crate::peers::outbox::Inbox;
use crate::peers::peer::Peer;
use crate::progress::schedule::Schedule;
use crate::provider::setup::Setup;
use crate::rma::target;
use crate::transfers::cmd::{self, Body, Cmd, ProtocolError, Rts};
use crate::transfers::destination::Destination;
use crate::transfers::incoming::Stage;
use crate::transfers::protocol_selector::RendezvousProtocol;
use crate::transfers::{inject, inline, iov, sar, status};

/// The parts of an endpoint that change when received commands are executed.
#[derive(Debug)]
pub(crate) struct CommandReceiver<'a> {
    pub(crate) setup: &'a Setup,
    pub(crate) matching: &'a mut Matching,
    pub(crate) schedule: &'a mut Schedule,
    /// The number of peers that share the quota of unexpected messages.
    pub(crate) peers: usize,
}

impl CommandReceiver<'_> {
    /// Takes up to `budget` commands of one peer.
    #[inline(always)]
    pub(crate) fn poll(&mut self, peer: &mut Peer, budget: usize, sink: &mut Sink<'_>) -> usize {
        match &peer.inbox {
            Some(inbox) if inbox.rx.peek().is_some() => self.take_in_turn(peer, budget, sink),
            Some(inbox) => {
                inbox.prefetch_expected_payload();
                0
            }
            None => 0,
        }
    }

    /// [`Self::take_commands`] where several peers are polled.
    #[inline(never)]
    fn take_in_turn(&mut self, peer: &mut Peer, budget: usize, sink: &mut Sink<'_>) -> usize {
        self.take_commands(peer, budget, sink)
    }

    /// Takes up to `budget` commands of a peer that has sent some. A peer that violates the
    /// protocol is marked ([`Peer::fault`]), and active from then on.
    ///
    /// Inlined: the response to the only polled peer leaves 4 ns sooner than through a call. Where
    /// the cores are far apart it leaves 65 ns sooner, because the polling peer takes the
    /// response's cache line back in between (measured).
    #[inline(always)]
    pub(crate) fn take_commands(
        &mut self,
        peer: &mut Peer,
        budget: usize,
        sink: &mut Sink<'_>,
    ) -> usize {
        let budget = budget.min(self.setup.ep.rx_cq.room());
        // The prefetch is issued twice: before the commands, because lines of a distant core take
        // long to arrive, and after them, because a near core has taken the lines back meanwhile.
        peer.prefetch_response_slot();
        let taken = self.fast_path(peer).take::<Oldest>(peer, budget, sink);
        peer.publish_credit();
        peer.prefetch_response_slot();
        if taken < budget && peer.has_commands() {
            taken + self.reborrow().take_slow_path(peer, budget - taken, sink)
        } else {
            taken
        }
    }

    /// The same parts for a call that is not inlined. The caller's struct itself is then never in
    /// memory.
    #[inline(always)]
    fn reborrow(&mut self) -> CommandReceiver<'_> {
        CommandReceiver {
            setup: self.setup,
            matching: &mut *self.matching,
            schedule: &mut *self.schedule,
            peers: self.peers,
        }
    }

    /// Takes commands. The first one needs the slow path.
    #[inline(never)]
    fn take_slow_path(&mut self, peer: &mut Peer, budget: usize, sink: &mut Sink<'_>) -> usize {
        let mut taken = 0;
        while taken < budget
            && let Some((op, is_lent)) = next_op(peer)
        {
            let is_message = op <= cmd::OP_LAST_MESSAGE;
            let fast_taken = match is_message {
                true if is_lent => 0,
                true => self.take_fast::<FirstUnindexed>(peer, budget - taken, sink),
                false => target::take_write_notifications(peer, self.setup, budget - taken, sink),
            };
            taken += fast_taken;
            if fast_taken > 0 {
                continue;
            }
            peer.publish_credit();
            let result = if is_message {
                self.take_message(peer, sink)
            } else {
                self.take_one_sided(peer, op, sink)
            };
            match result {
                Ok(true) => {
                    taken += 1;
                    taken += self.take_fast::<Oldest>(peer, budget - taken, sink);
                }
                Ok(false) => break,
                Err(fault) => {
                    peer.fault = Some(fault);
                    self.schedule.activate(peer, &self.setup.ep);
                    break;
                }
            }
        }
        peer.publish_credit();
        taken
    }

    /// The fast path for the commands of a peer.
    #[inline(always)]
    fn fast_path(&mut self, peer: &mut Peer) -> FastPath<'_> {
        FastPath::new(self.matching, &self.setup.ep, peer, &self.setup.av)
    }

    /// Takes commands by the fast path, for the receives that `R` finds.
    #[inline(never)]
    fn take_fast<R: ReceiveLookup>(
        &mut self,
        peer: &mut Peer,
        budget: usize,
        sink: &mut Sink<'_>,
    ) -> usize {
        self.fast_path(peer).take::<R>(peer, budget, sink)
    }

    /// Takes one message. Returns `false` if there is none, or no room to keep it.
    #[inline(never)]
    fn take_message(
        &mut self,
        peer: &mut Peer,
        sink: &mut Sink<'_>,
    ) -> Result<bool, ProtocolError> {
        let source = peer.source();
        let Some(inbox) = &mut peer.inbox else {
            return Ok(false);
        };
        let Some(slot) = inbox.rx.peek() else {
            return Ok(false);
        };
        let cmd = cmd::parse(&slot, source)?;
        let Body::Inline { word } = cmd.body else {
            return self.take_external(peer, &cmd, sink);
        };
        let env = &cmd.env;
        match self.matching.matcher(cmd.kind).match_message(env) {
            Some(mut posted) => {
                let fits = inline::receive(&slot, word, env.len, &mut posted.buf);
                inbox.rx.release();
                let src = peer.fi_addr(&self.setup.av);
                matching::report(&peer.name, &self.setup.ep, src, posted, env, fits, sink);
            }
            None if self.has_room(env.len, peer.kept_bytes) => {
                let bytes = inline::copy_to_heap(&slot, word, env.len);
                inbox.rx.release();
                self.matching
                    .keep(cmd.kind, cmd.env, bytes, None, &mut peer.kept_bytes);
            }
            None => {
                self.stall(peer, env.len);
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether an unexpected message of `len` bytes may be kept. `kept` is the number of bytes that
    /// are kept of its sender.
    fn has_room(&self, len: usize, kept: usize) -> bool {
        self.matching.quota.has_room(len, kept, self.peers - 1)
    }

    /// Records that a message stays with its sender, because the quota of unexpected messages is
    /// used up.
    #[cold]
    fn stall(&mut self, peer: &Peer, len: usize) {
        if self.matching.stall() {
            let (name, stats) = (peer.name.as_str(), &self.setup.ep.stats);
            stats.record_event(telemetry::EventKind::Stalled, name, len as u64);
        }
    }

    /// Takes a one-sided or atomic command.
    #[inline(never)]
    fn take_one_sided(
        &mut self,
        peer: &mut Peer,
        op: u32,
        sink: &mut Sink<'_>,
    ) -> Result<bool, ProtocolError> {
        let Self {
            setup, schedule, ..
        } = self;
        match op {
            cmd::OP_ATOMIC..=cmd::OP_COMPARE_ATOMIC => {
                atomic::command::take_command(peer, setup, schedule)?;
            }
            cmd::OP_ATOMIC_RESULT => response::take_response(peer, setup)?,
            _ => return target::take_command(peer, setup, schedule, sink),
        }
        Ok(true)
    }

    /// Takes a command whose message is outside of the command.
    fn take_external(
        &mut self,
        peer: &mut Peer,
        cmd: &Cmd,
        sink: &mut Sink<'_>,
    ) -> Result<bool, ProtocolError> {
        match cmd.body {
            Body::Inject { offset, ack } => self.take_inject(peer, cmd, offset, ack, sink),
            Body::Iov(ref rts) => {
                if self.take_lent(peer, cmd, rts, sink) {
                    return Ok(true);
                }
                iov::accept_rts(peer, rts, cmd.env.len)?;
                release(peer.inbox.as_mut());
                self.schedule.activate(peer, &self.setup.ep);
                self.match_rts(peer, cmd, rts.msg_id);
                Ok(true)
            }
            Body::Inline { .. } => Err(ProtocolError("an inline message out of line")),
        }
    }

    fn take_inject(
        &mut self,
        peer: &mut Peer,
        cmd: &Cmd,
        offset: u64,
        ack: Option<u32>,
        sink: &mut Sink<'_>,
    ) -> Result<bool, ProtocolError> {
        let (incarnation, env) = (peer.incarnation, &cmd.env);
        let Some(inbox) = &mut peer.inbox else {
            return Ok(false);
        };
        let saved_position = inbox.pool_position;
        inbox.expects_payload = env.len <= PREFETCH_PAYLOAD_MAX;
        let start = inject::locate(inbox, offset, env.len)?;
        match self.matching.matcher(cmd.kind).match_message(env) {
            Some(mut posted) => {
                let fits = inject::receive(inbox, start, env.len, &mut posted.buf);
                inbox.rx.release();
                if let Some(msg_id) = ack {
                    peer.respond(incarnation, msg_id, status::DONE);
                }
                let src = peer.fi_addr(&self.setup.av);
                let counter = telemetry::ProtocolCounter::ReceivedInject;
                self.setup.ep.stats.count_protocol(counter, env.len);
                matching::report(&peer.name, &self.setup.ep, src, posted, env, fits, sink);
            }
            None if self.has_room(env.len, peer.kept_bytes) => {
                let bytes = inject::copy_to_heap(inbox, start, env.len);
                inbox.rx.release();
                let ack = ack.map(|msg_id| Ack {
                    incarnation,
                    msg_id,
                });
                self.matching
                    .keep(cmd.kind, cmd.env, bytes, ack, &mut peer.kept_bytes);
            }
            None => {
                inbox.pool_position = saved_position;
                self.stall(peer, env.len);
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Takes a lent message for the oldest receive, if it accepts lent messages: without an entry in
    /// the table of transfers. Returns `false` without effect if the message takes the general path.
    #[inline(always)]
    fn take_lent(&mut self, peer: &mut Peer, cmd: &Cmd, rts: &Rts, sink: &mut Sink<'_>) -> bool {
        let (ep, src) = (&self.setup.ep, peer.fi_addr(&self.setup.av));
        let Some(view) = handover::find_new(peer, ep, src, rts, cmd.env.len) else {
            return false;
        };
        let accepts_lent = |posted: &Posted| posted.flags.contains(OpFlags::LEND);
        let matcher = self.matching.matcher(cmd.kind);
        let Some(posted) = matcher.match_oldest_if(&cmd.env, accepts_lent) else {
            return false;
        };
        release(peer.inbox.as_mut());
        handover::report(peer, ep, src, view, (posted, &cmd.env), sink);
        true
    }

    fn match_rts(&mut self, peer: &mut Peer, cmd: &Cmd, msg_id: u32) {
        let matcher = self.matching.matcher(cmd.kind);
        match matcher.match_message(&cmd.env) {
            Some(posted) => {
                let src = peer.fi_addr(&self.setup.av);
                let (destination, len) = (Destination::Receive(posted, cmd.env), cmd.env.len);
                let Setup { config, ep, .. } = self.setup;
                iov::start(peer, config, ep, src, msg_id, destination, len);
            }
            None => {
                let incarnation = peer.incarnation;
                matcher.store(
                    cmd.env,
                    Unexpected::Rts {
                        incarnation,
                        msg_id,
                    },
                );
            }
        }
    }

    /// Delivers an unexpected message of `peer` to a receive.
    #[cold]
    pub(crate) fn deliver(
        &mut self,
        peer: &mut Peer,
        mut posted: Posted,
        env: Envelope,
        unexpected: Unexpected,
    ) {
        let Setup { config, ep, av, .. } = self.setup;
        let src = peer.fi_addr(av);
        match unexpected {
            Unexpected::Bytes { bytes, ack } => {
                self.matching
                    .quota
                    .release(bytes.len(), &mut peer.kept_bytes);
                let fits = posted.buf.write(0, &bytes);
                if let Some(ack) = ack {
                    peer.respond(ack.incarnation, ack.msg_id, status::DONE);
                }
                ep.stats
                    .count_protocol(telemetry::ProtocolCounter::ReceivedLate, env.len);
                matching::report(&peer.name, ep, src, posted, &env, fits, &mut Sink::none());
            }
            Unexpected::Rts { incarnation, .. } if incarnation != peer.incarnation => {
                let detail = format!("{} disconnected before its message was received", peer.name);
                ep.rx_failed(posted, Errno::ConnReset, src, detail);
            }
            Unexpected::Rts { msg_id, .. } => {
                let destination = Destination::Receive(posted, env);
                iov::start(peer, config, ep, src, msg_id, destination, env.len);
                self.schedule.parking.wake(ep);
            }
        }
    }
}

/// Returns the op number of the peer's next command, if there is one, and whether the command lends
/// a message.
#[inline(always)]
fn next_op(peer: &Peer) -> Option<(u32, bool)> {
    let inbox = peer.inbox.as_ref()?;
    let slot = inbox.rx.peek()?;
    Some((cmd::op(&slot), cmd::is_lent(&slot)))
}

fn release(inbox: Option<&mut Inbox>) {
    if let Some(inbox) = inbox {
        inbox.rx.release();
    }
}

/// Takes the responses of a peer. Returns their number.
///
/// # Errors
/// [`ProtocolError`] when the peer violates the protocol.
pub(crate) fn take_responses(peer: &mut Peer, setup: &Setup) -> Result<usize, ProtocolError> {
    let addr = peer.fi_addr(&setup.av);
    sar::take_responses(peer, &setup.config, &setup.ep, addr)
}

/// Advances the large messages with a peer in both directions. Returns the work done, in units of
/// about one small message.
///
/// # Errors
/// [`ProtocolError`] when the peer violates the protocol.
pub(crate) fn move_transfers(peer: &mut Peer, setup: &Setup) -> Result<usize, ProtocolError> {
    let Setup { config, ep, av, .. } = setup;
    let addr = peer.fi_addr(av);
    let mut moved = response::send_owed_responses(peer)? + usize::from(peer.announce_pending());
    moved += sar::take_responses(peer, config, ep, addr)?;
    moved += sar::send_aborts(peer) + usize::from(sar::fill_streams(peer)?);
    moved += sar::receive_segments(peer, ep, addr)?;
    if peer.packets_ahead == 0
        && let Some(msg_id) = next_pull(peer)
    {
        moved += iov::copy_step(peer, ep, addr, msg_id);
    }
    Ok(moved)
}

/// Returns a moving message that the receiver alone copies, if there is one.
fn next_pull(peer: &Peer) -> Option<u32> {
    peer.incoming
        .iter()
        .find_map(|(&msg_id, incoming)| match &incoming.stage {
            Stage::Moving(moving) if moving.protocol != RendezvousProtocol::Bounce => Some(msg_id),
            _ => None,
        })
}
