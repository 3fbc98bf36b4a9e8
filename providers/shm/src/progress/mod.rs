//! Progress: polls the queues of peers, moves large messages, polls the sockets at intervals, and
//! decides whether a thread may park.

pub(crate) mod parking;
pub(crate) mod schedule;

use std::time::{Duration, Instant};

use selvedge_kit::cq::Sink;
use selvedge_kit::shell::EndpointState;
use selvedge_kit::wait::ArmOutcome;

use crate::connect::connection::PACKETS_PER_POLL;
use crate::connect::{Connector, disconnect};
use crate::endpoint::state::State;
use crate::matching::command_receiver::{move_transfers, take_responses};
use crate::peers::telemetry;
use crate::rma::initiate::run_deferred;
use crate::transfers::cmd::ProtocolError;

/// Empty polls between two reads of the clock.
const IDLE_TICKS: usize = 16;
/// Messages between two reads of the clock.
const BUSY_TICKS: usize = 512;
/// The interval, while idle, between two polls of the sockets, each with a sweep over peers outside
/// the polled set.
const IDLE_INTERVAL: Duration = Duration::from_micros(20);
/// The same interval under load.
const BUSY_INTERVAL: Duration = Duration::from_millis(1);
/// The number of peers that have rung and whose commands one poll takes. This limit and
/// [`RUNG_BUDGET`] bound the delay of other peers, however many peers ring.
const RUNG_PEERS_PER_POLL: usize = 64;
/// Commands that one poll takes from each peer that has rung.
const RUNG_BUDGET: usize = 16;
/// The longest time that a thread parks while progress without a wake-up is possible.
const PARK_TIMEOUT: Duration = Duration::from_millis(1);
/// Messages that the last poll before a park takes from one peer.
const LAST_BUDGET: usize = 64;

impl EndpointState for State {
    #[inline]
    fn progress(&mut self, budget: usize, sink: &mut Sink<'_>) -> usize {
        let mut done = match self.schedule.polled[..] {
            [only] => poll_only(self, only as usize, budget, sink),
            _ => poll_all(self, budget, sink),
        };
        if !self.schedule.active.is_empty() {
            done += serve_active(self);
        }
        poll_periodic(self, done);
        if self.schedule.parking.is_unbounded() {
            bound_parked(self);
        }
        done
    }

    #[inline(never)]
    fn arm(&mut self, seen: &mut u64) -> ArmOutcome {
        // While another thread polls, the peers are not armed: that thread would disarm them at
        // once.
        if self.schedule.parking.has_polled_since(seen) {
            return ArmOutcome::AtMost(PARK_TIMEOUT);
        }
        if progress_before_park(self) > 0 {
            return ArmOutcome::Progressed;
        }
        arm(self);
        let moved = poll_armed(self) + move_active(self);
        if moved > 0 || !self.schedule.parking.may_park() {
            return ArmOutcome::Progressed;
        }
        let now = self.schedule.last_control;
        telemetry::update_now(&self.setup, &self.peers, &self.matching, now);
        if may_progress_unwoken(self) {
            return ArmOutcome::AtMost(PARK_TIMEOUT);
        }
        self.schedule.parking.park_unbounded();
        let timeout = self.control.park_timeout();
        timeout.map_or(ArmOutcome::UntilWoken, ArmOutcome::AtMost)
    }

    #[inline(never)]
    fn woken(&mut self) {
        progress_before_park(self);
    }

    fn close(&mut self) {
        disconnect::close(self);
    }
}

/// Takes commands of the only polled peer.
#[inline(always)]
fn poll_only(state: &mut State, index: usize, budget: usize, sink: &mut Sink<'_>) -> usize {
    let Some(inbox) = &state.peers[index].inbox else {
        return 0;
    };
    let polls_per_call = if state.schedule.active.is_empty() {
        state.schedule.polls_per_call
    } else {
        1
    };
    for _ in 0..polls_per_call {
        if inbox.rx.peek().is_some() {
            return take_commands(state, index, budget, sink);
        }
        inbox.prefetch_expected_payload();
        state.schedule.pause.pause();
    }
    0
}

/// Takes commands of a peer that has sent some. Not inlined, so that an empty poll saves fewer
/// registers.
#[inline(never)]
fn take_commands(state: &mut State, index: usize, budget: usize, sink: &mut Sink<'_>) -> usize {
    let (mut receiver, peers) = state.command_receiver();
    receiver.take_commands(&mut peers[index], budget, sink)
}

/// Takes commands of the polled peers.
#[inline(never)]
fn poll_all(state: &mut State, budget: usize, sink: &mut Sink<'_>) -> usize {
    for _ in 0..state.schedule.polls_per_call {
        let done = poll_polled_peers(state, budget, sink);
        if done > 0 || !state.schedule.active.is_empty() {
            return done;
        }
        state.schedule.pause.pause();
    }
    0
}

/// Takes commands of the polled peers, up to the budget.
#[inline(always)]
fn poll_polled_peers(state: &mut State, budget: usize, sink: &mut Sink<'_>) -> usize {
    let (mut receiver, peers) = state.command_receiver();
    let mut done = 0;
    for position in 0..receiver.schedule.polled.len() {
        let index = receiver.schedule.polled[position] as usize;
        done += receiver.poll(&mut peers[index], budget - done, sink);
        if done >= budget {
            receiver.schedule.yield_turn(position);
            break;
        }
    }
    done
}

/// Takes commands of one peer, outside of a queue's read.
fn poll(state: &mut State, index: usize, budget: usize) -> usize {
    let (mut receiver, peers) = state.command_receiver();
    receiver.poll(&mut peers[index], budget, &mut Sink::none())
}

/// Serves the peers with active transfers, and disconnects those that violate the protocol.
#[cold]
fn serve_active(state: &mut State) -> usize {
    let mut done = 0;
    let mut position = 0;
    while let Some(&index) = state.schedule.active.get(position) {
        let index = index as usize;
        done += serve_peer(state, index);
        let peer = &mut state.peers[index];
        if peer.has_transfers() {
            position += 1;
        } else {
            peer.is_active = false;
            state.schedule.active.swap_remove(position);
        }
    }
    done
}

fn serve_peer(state: &mut State, index: usize) -> usize {
    let mut connector = state.connector();
    let peer = &mut connector.peers[index];
    if peer.awaits_only_responses() {
        let moved = take_responses(peer, connector.setup);
        return moved.unwrap_or_else(|ProtocolError(reason)| {
            connector.disconnect_for_violation(index, reason);
            0
        });
    }
    if let Some(ProtocolError(reason)) = peer.fault.take() {
        connector.disconnect_for_violation(index, reason);
        return 0;
    }
    poll_awaited_packets(&mut connector, index);
    run_deferred(&mut connector, index);
    match move_transfers(&mut connector.peers[index], connector.setup) {
        Ok(moved) => moved,
        Err(ProtocolError(reason)) => {
            connector.disconnect_for_violation(index, reason);
            0
        }
    }
}

/// Receives the packets that were in a peer's socket when a transfer began to wait for one of them,
/// a few at a time.
fn poll_awaited_packets(connector: &mut Connector<'_>, index: usize) {
    let ahead = std::mem::take(&mut connector.peers[index].packets_ahead);
    if ahead > 0 && !connector.receive_batch(index) {
        connector.peers[index].packets_ahead = ahead.saturating_sub(PACKETS_PER_POLL);
    }
}

/// Counts polls, and checks the clock when a check is due.
#[inline]
fn poll_periodic(state: &mut State, done: usize) {
    state.schedule.ticks += done.max(1);
    let (limit, interval) = match done {
        0 => (IDLE_TICKS, IDLE_INTERVAL),
        _ => (BUSY_TICKS, BUSY_INTERVAL),
    };
    if state.schedule.ticks >= limit {
        state.schedule.ticks = 0;
        check_clock(state, interval);
    }
}

#[cold]
fn check_clock(state: &mut State, interval: Duration) {
    let interval = if disarm(state) {
        Duration::ZERO
    } else {
        interval
    };
    drain_doorbell(state);
    let now = Instant::now();
    // A poll of the sockets that connects or disconnects peers takes long. Afterwards the connected
    // peers alone are polled for the same time, but for at most `BUSY_INTERVAL`, in case the poll
    // took long because the thread was preempted.
    let interval = interval.max(state.schedule.control_time.min(BUSY_INTERVAL));
    if now.duration_since(state.schedule.last_control) >= interval {
        let (ep, schedule) = (&state.setup.ep, &mut state.schedule);
        schedule.sweep(&mut state.peers, ep);
        poll_sockets(state, now);
        telemetry::update(&state.setup, &state.peers, &state.matching, now);
        let schedule = &mut state.schedule;
        schedule.last_control = Instant::now();
        schedule.control_time = schedule.last_control.duration_since(now);
    }
}

/// Polls the sockets, and connects to inserted addresses if the configuration demands it.
fn poll_sockets(state: &mut State, now: Instant) {
    let mut connector = state.connector();
    connector.poll_sockets(now);
    if connector.setup.config.eager_exchange {
        connector.exchange_addresses(now);
    }
}

/// Takes commands of peers that have rung, and polls these peers from now on. A peer with more
/// commands is queued behind the others. Returns the number of commands.
pub(crate) fn drain_doorbell(state: &mut State) -> usize {
    let State {
        peers,
        schedule,
        control,
        ..
    } = state;
    schedule.collect_rings(peers, &control.doorbell);
    let mut done = 0;
    for _ in 0..RUNG_PEERS_PER_POLL.min(state.schedule.rung.len()) {
        let Some(index) = state.schedule.rung.pop_front() else {
            break;
        };
        let index = index as usize;
        state.peers[index].has_rung = false;
        start_polling(state, index);
        done += poll(state, index, RUNG_BUDGET);
        state.schedule.requeue(&mut state.peers[index]);
    }
    done
}

fn start_polling(state: &mut State, index: usize) {
    let (schedule, peers) = (&mut state.schedule, &mut state.peers);
    schedule.start_polling(peers, index, &state.setup.ep);
}

/// Disarms the wake-ups of peers, because a thread that does not park makes progress. Returns
/// whether they were armed.
fn disarm(state: &mut State) -> bool {
    let (schedule, ep) = (&mut state.schedule, &state.setup.ep);
    let polled = &schedule.polled;
    schedule.parking.disarm(&mut state.peers, polled, ep)
}

/// Wakes the threads that are parked without a timeout if progress without a wake-up has become
/// possible. They have to poll for it, because the calling thread may never poll again.
#[cold]
#[inline(never)]
fn bound_parked(state: &mut State) {
    if may_progress_unwoken(state) {
        state.schedule.parking.wake(&state.setup.ep);
    }
}

/// One full round of progress before a park: sockets, rung peers, polled peers and active
/// transfers.
fn progress_before_park(state: &mut State) -> usize {
    let now = Instant::now();
    state.schedule.last_control = now;
    poll_sockets(state, now);
    let rung = if state.schedule.rung.is_empty() {
        0
    } else {
        drain_doorbell(state)
    };
    rung + poll_polled_peers(state, LAST_BUDGET, &mut Sink::none()) + move_active(state)
}

fn move_active(state: &mut State) -> usize {
    if state.schedule.active.is_empty() {
        0
    } else {
        serve_active(state)
    }
}

/// Arms the wake-up of every peer that is not armed yet.
fn arm(state: &mut State) {
    let schedule = &mut state.schedule;
    schedule.parking.arm(&mut state.peers, &schedule.polled);
    // A thread that polls only a few times between two waits leaves the peers armed. A thread that
    // continues to poll disarms them at the next check of the clock.
    schedule.ticks = 0;
}

/// Polls the armed peers a last time.
fn poll_armed(state: &mut State) -> usize {
    let mut moved = poll_polled_peers(state, LAST_BUDGET, &mut Sink::none());
    for index in state.schedule.parking.take_unsettled() {
        let index = index as usize;
        let taken = poll(state, index, LAST_BUDGET);
        if taken > 0 {
            start_polling(state, index);
        }
        moved += taken;
        state.schedule.parking.settle(&mut state.peers[index]);
    }
    moved
}

/// Whether progress without a wake-up is possible.
fn may_progress_unwoken(state: &State) -> bool {
    let State {
        setup,
        peers,
        schedule,
        control,
        ..
    } = state;
    let any_peer = |list: &[u32], predicate: fn(&crate::peers::peer::Peer) -> bool| {
        list.iter().any(|&index| predicate(&peers[index as usize]))
    };
    schedule.parking.is_uncertain()
        || setup.config.eager_exchange
        || control.needs_polling()
        || !schedule.rung.is_empty()
        || !schedule.ending.is_empty()
        || setup.shared.announcements.is_behind()
        || any_peer(&schedule.active, |peer| peer.waits_for_room())
        || any_peer(&schedule.polled, |peer| peer.has_commands())
}
