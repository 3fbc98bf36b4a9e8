//! Rest: how threads that wait for an endpoint sleep, and how peers are woken.
//!
//! Before somebody sleeps, every peer whose commands are read is told to wake us with the next one,
//! and then looked at a last time ([`State::rest`]). A wake-up is a packet over the socket to the
//! peer, whose other packets and whose end wake as well: a sleeper sleeps on the endpoint's
//! `epoll(7)` descriptor. Who wakes us pays for it once and is not asked again before it was heard.
//!
//! All sleepers of an endpoint rely on the same promises of its peers. When one is spent or taken
//! back, which progress does that is made by somebody who is awake, the others are woken to ask anew.

use std::time::Duration;

use selvedge_kit::cq::Sink;
use selvedge_kit::wait::Rest;

use crate::packet::encode_wake;
use crate::peer::{Peer, State as PeerState};
use crate::smr::attention::last_look;
use crate::state::State;

/// How long a sleep may be when something might come without waking anybody.
const NAP: Duration = Duration::from_millis(1);
/// Ticks after which progress looks at the clock, whatever it finds.
const GET_UP: usize = usize::MAX / 2;
/// Messages that are taken from a peer in a last look.
const BUDGET: usize = 64;

/// What an endpoint knows of those who sleep.
#[derive(Debug, Default)]
pub(crate) struct Bed {
    /// Whether somebody may sleep: all peers have been told to wake us.
    is_made: bool,
    /// Whether that has ever been so: peers that are not polled are told to wake us from then on.
    was_made: bool,
    /// Whether a peer no longer wakes us though the bed is made.
    is_weak: bool,
    /// Peers may not have noticed that we sleep.
    is_unfenced: bool,
    night: u64,
    /// Peers that were told to wake us, and were not looked at since.
    unsettled: Vec<u32>,
    /// How often somebody who does not sleep has made progress.
    beats: u64,
}

impl State {
    /// Whether whoever asks may sleep.
    #[inline(never)]
    pub(crate) fn rest(&mut self, seen: &mut u64) -> Rest {
        // Peers need not wake us as long as somebody polls, who would take their promise back at
        // once.
        let others_poll = *seen != 0 && *seen != self.bed.beats;
        *seen = self.bed.beats;
        if others_poll {
            return Rest::AtMost(NAP);
        }
        if self.look_from_bed() > 0 {
            return Rest::Moved;
        }
        self.make_bed();
        let moved = self.poll_settled() + self.move_active();
        if moved > 0 || self.bed.is_weak {
            return Rest::Moved;
        }
        self.show_now(self.turn.last_control);
        match self.needs_a_look() {
            true => Rest::AtMost(NAP),
            false => self
                .control
                .patience()
                .map_or(Rest::UntilWoken, Rest::AtMost),
        }
    }

    /// A sleeper was woken, and will ask again before it sleeps.
    #[inline(never)]
    pub(crate) fn woken(&mut self) {
        self.look_from_bed();
        if self.bed.is_weak {
            self.stir();
        }
    }

    /// Has whoever sleeps look at what was left to progress.
    #[inline]
    pub(crate) fn stir(&mut self) {
        if self.bed.is_made {
            self.ep.wake();
        }
    }

    /// Somebody makes progress who does not sleep: nobody needs to wake us. Whether the bed was
    /// made.
    pub(crate) fn get_up(&mut self) -> bool {
        self.bed.beats += 1;
        let was_made = std::mem::take(&mut self.bed.is_made);
        if was_made {
            for &index in &self.hot {
                let peer = &mut self.peers[index as usize];
                peer.wakes_us = false;
                if let Some(out) = &peer.out {
                    out.region.set_attentive(true);
                }
            }
            self.bed.is_weak = false;
            self.ep.wake();
        }
        was_made
    }

    /// Everything that progress does.
    fn look_from_bed(&mut self) -> usize {
        let now = std::time::Instant::now();
        self.turn.last_control = now;
        self.look_at_sockets(now);
        if self.config.eager_exchange {
            self.exchange_addresses(now);
        }
        self.poll_hot(BUDGET, &mut Sink::none()) + self.move_active()
    }

    fn move_active(&mut self) -> usize {
        match self.active.is_empty() {
            true => 0,
            false => self.move_transfers(),
        }
    }

    /// Tells every peer to wake us that does not know it yet.
    fn make_bed(&mut self) {
        if !std::mem::replace(&mut self.bed.was_made, true) {
            for index in 0..self.peers.len() {
                self.leave_quiet(index);
            }
        }
        self.bed.is_made = true;
        self.bed.is_weak = false;
        // Whoever is awake and looks only now and then, as one does between two waits, leaves the bed
        // as it is: the peers' promises hold. Whoever goes on looking gets up at the clock.
        self.turn.ticks = 0;
        let mut is_news = !self.bed.unsettled.is_empty();
        for place in 0..self.hot.len() {
            is_news |= self.ask_to_wake(self.hot[place] as usize);
        }
        if is_news && !last_look() {
            self.bed.is_unfenced = true;
        }
    }

    /// Whether the peer had to be told.
    fn ask_to_wake(&mut self, index: usize) -> bool {
        let peer = &mut self.peers[index];
        if peer.wakes_us {
            return false;
        }
        if let (Some(out), Some(inbox)) = (&peer.out, &peer.inbox) {
            self.bed.night += 1;
            out.region.fall_asleep(self.bed.night);
            self.bed.is_unfenced |= !inbox.region.is_fenced();
            peer.wakes_us = true;
        }
        peer.wakes_us
    }

    /// A peer is not polled any more: once somebody has slept here, it is to wake us.
    pub(crate) fn leave_quiet(&mut self, index: usize) {
        if self.bed.was_made
            && !self.peers[index].is_hot
            && self.ask_to_wake(index)
            && !std::mem::replace(&mut self.peers[index].is_unsettled, true)
        {
            self.bed.unsettled.push(index as u32);
        }
    }

    /// The last look at those that were told to wake us.
    fn poll_settled(&mut self) -> usize {
        let mut moved = self.poll_hot(BUDGET, &mut Sink::none());
        for index in std::mem::take(&mut self.bed.unsettled) {
            let index = index as usize;
            let taken = self.poll(index, BUDGET, &mut Sink::none());
            if taken > 0 {
                self.warm_up(index);
            }
            moved += taken;
            let is_unsettled = !self.peers[index].is_hot && self.is_held_up(index);
            self.peers[index].is_unsettled = is_unsettled;
            if is_unsettled {
                self.bed.unsettled.push(index as u32);
            }
        }
        moved
    }

    /// A peer has woken us.
    pub(crate) fn was_woken_by(&mut self, index: usize) {
        self.peers[index].wakes_us = false;
        self.weaken();
        self.warm_up(index);
        self.poll(index, BUDGET, &mut Sink::none());
    }

    /// A peer does not wake us any more. If there are sleepers who rely on it, the next progress by
    /// somebody who is awake gets up, and tells them.
    pub(crate) fn weaken(&mut self) {
        self.bed.is_weak = true;
        if self.bed.is_made {
            self.turn.ticks = GET_UP;
        }
    }

    /// Whether something might move without anybody being woken.
    fn needs_a_look(&self) -> bool {
        self.bed.is_unfenced
            || self.config.eager_exchange
            || self.control.is_restless()
            || !self.ending.is_empty()
            || !self.bed.unsettled.is_empty()
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
        !self.later.is_empty() || !self.atomics.is_empty() || self.state == PeerState::Behind
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
