//! `Schedule`: which peers an endpoint polls, and when the rarer duties of progress are due.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use selvedge_kit::Ep;
use selvedge_kit::wait::SpinHint;

use crate::peers::Peers;
use crate::peers::peer::Peer;
use crate::progress::parking::Parking;
use crate::smr::doorbell::Doorbell;

/// How often the polled peers are looked at before a call that finds nothing returns. A thread that
/// waits calls again at once: a message then meets a poll, and not the way into the library.
const POLLS_PER_CALL: usize = 8;
/// The same where a layer looks for its own messages between two calls.
const POLLS_PER_CALL_LAYERED: usize = 2;
/// Ticks after which progress reads the clock, whatever it finds.
const CLOCK_CHECK_DUE: usize = usize::MAX / 2;
/// Unpolled peers whose queues are looked at in one sweep.
const SWEEP: usize = 64;

/// The peers that progress looks after, each list by numbers of peers.
#[derive(Debug)]
pub(crate) struct Schedule {
    /// Peers whose commands are polled at every turn.
    pub(crate) polled: Vec<u32>,
    /// How many peers may be polled at every turn.
    most_polled: usize,
    /// Peers with large messages or unanswered sends under way.
    pub(crate) active: Vec<u32>,
    /// Peers that have rung and were not polled since, first come first served.
    pub(crate) rung: VecDeque<u32>,
    /// Peers that are gone and have left messages for which there was no room.
    pub(crate) ending: Vec<u32>,
    /// How often progress polls before it has found nothing.
    pub(crate) polls_per_call: usize,
    /// The pause between two polls.
    pub(crate) pause: SpinHint,
    /// Polls that found nothing, or messages, since the clock was read.
    pub(crate) ticks: usize,
    pub(crate) last_control: Instant,
    /// How long the last poll of the sockets took.
    pub(crate) control_time: Duration,
    /// The peer that was looked at last in a sweep.
    sweep: usize,
    pub(crate) parking: Parking,
}

impl Schedule {
    /// No peers, of which `most_polled` may be polled at every turn.
    pub(crate) fn new(most_polled: usize, has_layer: bool) -> Self {
        Self {
            polled: Vec::new(),
            most_polled,
            active: Vec::new(),
            rung: VecDeque::new(),
            ending: Vec::new(),
            polls_per_call: match has_layer {
                true => POLLS_PER_CALL_LAYERED,
                false => POLLS_PER_CALL,
            },
            pause: SpinHint::measured(),
            ticks: 0,
            last_control: Instant::now(),
            control_time: Duration::ZERO,
            sweep: 0,
            parking: Parking::default(),
        }
    }

    /// Looks after the transfers with a peer from now on.
    pub(crate) fn activate(&mut self, peer: &mut Peer, ep: &Ep) {
        if !std::mem::replace(&mut peer.is_active, true) {
            self.active.push(peer.index);
        }
        self.parking.wake(ep);
    }

    /// Polls a peer at every turn from now on, in place of another if there are too many.
    pub(crate) fn start_polling(&mut self, peers: &mut Peers, index: usize, ep: &Ep) {
        let Some(peer) = peers.get_mut(index) else {
            return;
        };
        if peer.is_polled || peer.out.is_none() || peer.inbox.is_none() {
            return;
        }
        peer.disarm_wake_up(true);
        peer.is_polled = true;
        if self.polled.len() >= self.most_polled {
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

    /// A peer is gone: it is not polled, and does not wake the endpoint.
    pub(crate) fn remove(&mut self, peer: &mut Peer) {
        self.polled.retain(|&polled| polled != peer.index);
        peer.is_polled = false;
        peer.wake_up.spend();
    }

    /// A polled peer that used up a turn is the last of the next one.
    #[inline]
    pub(crate) fn yield_turn(&mut self, position: usize) {
        if position + 1 < self.polled.len() {
            self.polled[position..].rotate_left(1);
        }
    }

    /// A peer that is not polled and has more commands is as one that has rung.
    pub(crate) fn requeue(&mut self, peer: &mut Peer) {
        if !peer.is_polled && peer.has_commands() && !std::mem::replace(&mut peer.has_rung, true) {
            self.rung.push_back(peer.index);
        }
    }

    /// Notes down which peers have rung.
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

    /// Polls unpolled peers that have sent something but were not heard to ring: the doorbell is only
    /// a hint. No more than can be polled together: the next sweep begins with the others.
    pub(crate) fn sweep(&mut self, peers: &mut Peers, ep: &Ep) {
        if !self.has_unpolled(peers) {
            return;
        }
        let mut found = 0;
        for _ in 0..SWEEP.min(peers.len()) {
            self.sweep = (self.sweep + 1) % peers.len();
            let peer = &peers[self.sweep];
            if !peer.is_polled && peer.has_commands() {
                self.start_polling(peers, self.sweep, ep);
                found += 1;
            }
            if found == self.most_polled {
                break;
            }
        }
    }

    /// A peer does not wake the endpoint any more. Threads that are parked relied on it.
    pub(crate) fn spend_wakeup(&mut self, ep: &Ep) {
        if self.parking.is_armed() {
            // A thread that goes on polling disarms the others' wake-ups without delay.
            self.ticks = CLOCK_CHECK_DUE;
        }
        self.parking.spend(ep);
    }

    fn has_unpolled(&self, peers: &Peers) -> bool {
        peers.len() > self.polled.len()
    }
}
