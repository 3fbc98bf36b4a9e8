//! Parking: how threads that wait for an endpoint sleep, and how peers are woken.
//!
//! Before a thread parks, every peer whose commands are read is told to wake the endpoint with the
//! next one, and then polled a last time ([`State::rest`]). A wake-up is a packet over the socket to
//! the peer, whose other packets and whose end wake as well: a parked thread sleeps on the endpoint's
//! `epoll(7)` descriptor. A peer sends one wake-up, and the next one when it was told again.
//! [`crate::smr::parking`] says what the threads that are parked for one endpoint owe each other.

use std::time::Duration;

use selvedge_kit::cq::Sink;
use selvedge_kit::wait::Rest;

use crate::packet::encode_wake;
use crate::peer::{Peer, State as PeerState};
use crate::smr::attention::last_look;
use crate::smr::parking::Parking;
use crate::state::State;

/// How long a thread may park when something might move without anybody waking it.
const NAP: Duration = Duration::from_millis(1);
/// Ticks after which progress reads the clock, whatever it finds.
const CLOCK_DUE: usize = usize::MAX / 2;
/// Messages that are taken from a peer in the last poll before a thread parks.
const BUDGET: usize = 64;

/// The state of an endpoint's parked threads and of the peers that wake them.
#[derive(Debug, Default)]
pub(crate) struct Wakeups {
    pub(crate) parking: Parking,
    /// Whether a thread has ever parked: peers that are not polled are told to wake the endpoint from
    /// then on.
    was_armed: bool,
    /// Peers may not have noticed that they are to wake the endpoint.
    is_unfenced: bool,
    /// The number of the last wake-up that peers were asked for.
    night: u64,
    /// Peers that were asked to wake the endpoint, and were not polled since.
    unsettled: Vec<u32>,
}

impl State {
    /// Whether the thread that asks may park.
    #[inline(never)]
    pub(crate) fn rest(&mut self, seen: &mut u64) -> Rest {
        // Peers need not wake us as long as another thread polls: it would disarm them at once.
        if self.wakeups.parking.has_polled_since(seen) {
            return Rest::AtMost(NAP);
        }
        if self.progress_before_park() > 0 {
            return Rest::Moved;
        }
        self.arm_wakeups();
        let moved = self.poll_settled() + self.move_active();
        if moved > 0 || !self.wakeups.parking.may_park() {
            return Rest::Moved;
        }
        self.show_now(self.turn.last_control);
        if self.needs_a_poll() {
            return Rest::AtMost(NAP);
        }
        self.wakeups.parking.park_unbounded();
        self.control
            .patience()
            .map_or(Rest::UntilWoken, Rest::AtMost)
    }

    /// A parked thread was woken, and goes on waiting or leaves.
    #[inline(never)]
    pub(crate) fn woken(&mut self) {
        self.progress_before_park();
    }

    /// Has parked threads look at what was left to progress.
    #[inline]
    pub(crate) fn stir(&mut self) {
        if self.wakeups.parking.is_armed() {
            self.wakeups.parking.wake();
            self.ep.wake();
        }
    }

    /// Wakes threads that are parked without a bound when something may move without a wake-up: the
    /// thread that has found it may not make progress again.
    #[cold]
    #[inline(never)]
    pub(crate) fn bound_parked(&mut self) {
        if self.needs_a_poll() {
            self.stir();
        }
    }

    /// A thread makes progress that does not park: no peer needs to wake us. Whether peers were to.
    pub(crate) fn disarm_wakeups(&mut self) -> bool {
        let was_armed = self.wakeups.parking.disarm();
        if was_armed {
            for &index in &self.hot {
                let peer = &mut self.peers[index as usize];
                peer.wakes_us = false;
                if let Some(out) = &peer.out {
                    out.region.set_attentive(true);
                }
            }
            self.ep.wake();
        }
        was_armed
    }

    /// Everything that progress does.
    fn progress_before_park(&mut self) -> usize {
        let now = std::time::Instant::now();
        self.turn.last_control = now;
        self.look_at_sockets(now);
        if self.config.eager_exchange {
            self.exchange_addresses(now);
        }
        let rung = match self.rung.is_empty() {
            true => 0,
            false => self.answer_bells(),
        };
        rung + self.poll_hot(BUDGET, &mut Sink::none()) + self.move_active()
    }

    fn move_active(&mut self) -> usize {
        match self.active.is_empty() {
            true => 0,
            false => self.move_transfers(),
        }
    }

    /// Tells every peer to wake us that does not know it yet.
    fn arm_wakeups(&mut self) {
        if !std::mem::replace(&mut self.wakeups.was_armed, true) {
            for index in 0..self.peers.len() {
                self.leave_quiet(index);
            }
        }
        self.wakeups.parking.arm();
        // A thread that polls only now and then, as one does between two waits, leaves the peers
        // armed: their wake-ups hold. One that goes on polling disarms them at the clock.
        self.turn.ticks = 0;
        let mut is_news = !self.wakeups.unsettled.is_empty();
        for place in 0..self.hot.len() {
            is_news |= self.ask_to_wake(self.hot[place] as usize);
        }
        if is_news && !last_look() {
            self.wakeups.is_unfenced = true;
        }
    }

    /// Whether the peer had to be told.
    fn ask_to_wake(&mut self, index: usize) -> bool {
        let peer = &mut self.peers[index];
        if peer.wakes_us {
            return false;
        }
        if let (Some(out), Some(inbox)) = (&peer.out, &peer.inbox) {
            self.wakeups.night += 1;
            out.region.fall_asleep(self.wakeups.night);
            self.wakeups.is_unfenced |= !inbox.region.is_fenced();
            peer.wakes_us = true;
        }
        peer.wakes_us
    }

    /// A peer is not polled any more: once a thread has parked here, it is to wake us.
    pub(crate) fn leave_quiet(&mut self, index: usize) {
        if self.wakeups.was_armed
            && !self.peers[index].is_hot
            && self.ask_to_wake(index)
            && !std::mem::replace(&mut self.peers[index].is_unsettled, true)
        {
            self.wakeups.unsettled.push(index as u32);
        }
    }

    /// The last poll of those that were told to wake us.
    fn poll_settled(&mut self) -> usize {
        let mut moved = self.poll_hot(BUDGET, &mut Sink::none());
        for index in std::mem::take(&mut self.wakeups.unsettled) {
            let index = index as usize;
            let taken = self.poll(index, BUDGET, &mut Sink::none());
            if taken > 0 {
                self.warm_up(index);
            }
            moved += taken;
            let is_unsettled = !self.peers[index].is_hot && self.is_held_up(index);
            self.peers[index].is_unsettled = is_unsettled;
            if is_unsettled {
                self.wakeups.unsettled.push(index as u32);
            }
        }
        moved
    }

    /// A peer has woken us.
    pub(crate) fn was_woken_by(&mut self, index: usize) {
        self.peers[index].wakes_us = false;
        self.spend_wakeup();
        self.warm_up(index);
        self.poll(index, BUDGET, &mut Sink::none());
    }

    /// A peer does not wake us any more. Threads that are parked relied on it.
    pub(crate) fn spend_wakeup(&mut self) {
        if self.wakeups.parking.is_armed() {
            // A thread that goes on polling disarms the others' wake-ups without delay.
            self.turn.ticks = CLOCK_DUE;
        }
        if self.wakeups.parking.spend() {
            self.ep.wake();
        }
    }

    /// Whether something might move without anybody being woken.
    fn needs_a_poll(&self) -> bool {
        self.wakeups.is_unfenced
            || self.config.eager_exchange
            || self.control.is_restless()
            || !self.rung.is_empty()
            || !self.ending.is_empty()
            || !self.wakeups.unsettled.is_empty()
            || self.shared.exports.is_behind()
            || self
                .active
                .iter()
                .any(|&index| self.peers[index as usize].waits_for_room())
            || self
                .hot
                .iter()
                .any(|&index| self.is_held_up(index as usize))
    }

    /// Whether a peer has sent something that had no place so far.
    fn is_held_up(&self, index: usize) -> bool {
        let inbox = self.peers[index].inbox.as_ref();
        inbox.is_some_and(|inbox| inbox.rx.peek().is_some())
    }
}

impl Peer {
    /// Whether something is to be said to the peer for which it has to make room, which it does
    /// without waking anybody.
    fn waits_for_room(&self) -> bool {
        let is_settled = self.later.is_empty() && self.atomics.is_empty() && self.aborts.is_empty();
        !is_settled || self.state == PeerState::Behind
    }

    /// The peer does not look: rings, and wakes it if it sleeps.
    #[cold]
    #[inline(never)]
    pub(crate) fn call(&mut self) {
        if let Some(inbox) = &self.inbox {
            inbox.bell.ring();
            self.wake();
        } else if let Some(link) = self.links.first() {
            // It has our outbox and may sleep already, but its own hello was not heard here yet.
            let _ = link.send(&encode_wake(), &[]);
        }
    }

    /// Wakes the peer if it sleeps. To be called after something was put where it looks.
    #[inline]
    pub(crate) fn wake(&mut self) {
        let inbox = self.inbox.as_ref();
        if let Some(night) = inbox.and_then(|inbox| inbox.caller.night(&inbox.region)) {
            self.wake_in(night);
        }
    }

    #[cold]
    fn wake_in(&mut self, night: u64) {
        let (Some(inbox), Some(link)) = (&mut self.inbox, self.links.first()) else {
            return;
        };
        // A peer whose socket is full is woken by what is in there; one that is gone by nothing.
        if link.send(&encode_wake(), &[]).is_ok() {
            inbox.caller.has_called(night);
        }
    }
}
