//! `Schedule`: the peers that an endpoint polls, and the times of its periodic work.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use selvedge_kit::Ep;
use selvedge_kit::wait::SpinHint;

use crate::peers::Peers;
use crate::peers::peer::Peer;
use crate::progress::parking::Parking;
use crate::smr::doorbell::Doorbell;

/// The number of polls of the polled peers before an empty call of progress returns. A waiting
/// thread calls again at once: with several polls per call, a message more often arrives during a
/// poll than between two calls.
const POLLS_PER_CALL: usize = 8;
/// The same number where a collective layer polls for its own messages between two calls.
const POLLS_PER_CALL_LAYERED: usize = 2;
/// A number of ticks with which the next call of progress reads the clock in any case.
const FORCE_CLOCK_CHECK: usize = usize::MAX / 2;
/// The maximum number of peers that one sweep checks.
const PEERS_PER_SWEEP: usize = 64;

/// The peers that progress serves. Each list contains numbers of peers.
#[derive(Debug)]
pub(crate) struct Schedule {
    /// The polled set: the peers that every call of progress polls.
    pub(crate) polled: Vec<u32>,
    /// The largest number of polled peers.
    max_polled: usize,
    /// Peers with active transfers or outstanding sends.
    pub(crate) active: Vec<u32>,
    /// Peers that have rung and were not polled since, in order of their rings.
    pub(crate) rung: VecDeque<u32>,
    /// Disconnected peers for whose last commands there is no room yet.
    pub(crate) ending: Vec<u32>,
    /// The number of polls before an empty call of progress returns.
    pub(crate) polls_per_call: usize,
    /// The pause between two polls.
    pub(crate) pause: SpinHint,
    /// The number of empty polls and messages since the clock was read.
    pub(crate) ticks: usize,
    /// The time of the last poll of the sockets.
    pub(crate) last_control: Instant,
    /// The duration of the last poll of the sockets.
    pub(crate) control_time: Duration,
    /// The peer that the last sweep checked last.
    sweep_cursor: usize,
    pub(crate) parking: Parking,
}

impl Schedule {
    /// Creates an empty schedule that polls at most `max_polled` peers.
    pub(crate) fn new(max_polled: usize, has_layer: bool) -> Self {
        Self {
            polled: Vec::new(),
            max_polled,
            active: Vec::new(),
            rung: VecDeque::new(),
            ending: Vec::new(),
            polls_per_call: if has_layer {
                POLLS_PER_CALL_LAYERED
            } else {
                POLLS_PER_CALL
            },
            pause: SpinHint::measured(),
            ticks: 0,
            last_control: Instant::now(),
            control_time: Duration::ZERO,
            sweep_cursor: 0,
            parking: Parking::default(),
        }
    }

    /// Advances the transfers with a peer from now on.
    pub(crate) fn activate(&mut self, peer: &mut Peer, ep: &Ep) {
        if !std::mem::replace(&mut peer.is_active, true) {
            self.active.push(peer.index);
        }
        self.parking.wake(ep);
    }

    /// Adds a peer to the polled set. If the set is full, the new peer replaces the oldest one.
    pub(crate) fn start_polling(&mut self, peers: &mut Peers, index: usize, ep: &Ep) {
        let Some(peer) = peers.get_mut(index) else {
            return;
        };
        if peer.is_polled || peer.out.is_none() || peer.inbox.is_none() {
            return;
        }
        peer.disarm_wake_up(true);
        peer.is_polled = true;
        if self.polled.len() >= self.max_polled {
            let oldest = self.polled.remove(0) as usize;
            self.stop_polling(&mut peers[oldest]);
        }
        self.polled.push(index as u32);
        self.spend_wakeup(ep);
    }

    fn stop_polling(&mut self, peer: &mut Peer) {
        peer.is_polled = false;
        peer.disarm_wake_up(false);
        self.parking.arm_unpolled(peer);
        self.requeue(peer);
    }

    /// Removes a disconnected peer from the polled set, and forgets its wake-up.
    pub(crate) fn remove(&mut self, peer: &mut Peer) {
        self.polled.retain(|&polled| polled != peer.index);
        peer.is_polled = false;
        peer.wake_up.spend();
    }

    /// Moves a polled peer that has used up the budget to the end of the polled set.
    #[inline]
    pub(crate) fn yield_turn(&mut self, position: usize) {
        if position + 1 < self.polled.len() {
            self.polled[position..].rotate_left(1);
        }
    }

    /// Queues an unpolled peer that has more commands, as if it had rung.
    pub(crate) fn requeue(&mut self, peer: &mut Peer) {
        if !peer.is_polled && peer.has_commands() && !std::mem::replace(&mut peer.has_rung, true) {
            self.rung.push_back(peer.index);
        }
    }

    /// Queues the peers that have rung the doorbell.
    pub(crate) fn collect_rings(&mut self, peers: &mut Peers, doorbell: &Doorbell) {
        if !self.has_unpolled(peers) {
            return;
        }
        doorbell.drain(peers.len(), |bit| {
            if let Some(peer) = peers.get_mut(bit)
                && !std::mem::replace(&mut peer.has_rung, true)
            {
                self.rung.push_back(bit as u32);
            }
        });
    }

    /// Starts to poll unpolled peers that have sent commands without a ring: the doorbell is only a
    /// hint. A sweep adds at most as many peers as the polled set holds; the next sweep continues
    /// with the others.
    pub(crate) fn sweep(&mut self, peers: &mut Peers, ep: &Ep) {
        if !self.has_unpolled(peers) {
            return;
        }
        let mut found = 0;
        for _ in 0..PEERS_PER_SWEEP.min(peers.len()) {
            self.sweep_cursor = (self.sweep_cursor + 1) % peers.len();
            let peer = &peers[self.sweep_cursor];
            if !peer.is_polled && peer.has_commands() {
                self.start_polling(peers, self.sweep_cursor, ep);
                found += 1;
            }
            if found == self.max_polled {
                break;
            }
        }
    }

    /// Records that a peer's wake-up is spent. Wakes the parked threads, which relied on it.
    pub(crate) fn spend_wakeup(&mut self, ep: &Ep) {
        if self.parking.is_armed() {
            // If a thread continues to poll, it disarms the other peers without delay.
            self.ticks = FORCE_CLOCK_CHECK;
        }
        self.parking.spend(ep);
    }

    fn has_unpolled(&self, peers: &Peers) -> bool {
        peers.len() > self.polled.len()
    }
}
