//! Progress: looks at the queues of peers, moves large messages, and now and then looks around.

use std::time::{Duration, Instant};

use selvedge_kit::cq::Sink;

use crate::atomic::answer;
use crate::choice::Way;
use crate::cmd::Nonsense;
use crate::contact::PACKETS;
use crate::peer::Peer;
use crate::proto::iov::Stage;
use crate::proto::{iov, sar};
use crate::state::State;

/// How often the hot peers are looked at before a call that finds nothing returns. Whoever waits
/// calls again at once: a message then meets a look, and not the way into the library.
pub(crate) const LOOKS: usize = 8;
/// The same where a layer looks for its own messages between two calls.
pub(crate) const LOOKS_IN_TURN: usize = 2;
/// Empty polls between two looks at the clock.
const IDLE_TICKS: usize = 16;
/// Messages between two looks at the clock.
const BUSY_TICKS: usize = 512;
/// Between two looks at sockets and at the queues of quiet peers, when there is nothing else to do.
const IDLE_INTERVAL: Duration = Duration::from_micros(20);
/// The same under load.
const BUSY_INTERVAL: Duration = Duration::from_millis(1);
/// Quiet peers whose queues are looked at in one sweep.
const SWEEP: usize = 64;
/// Peers that have rung whose commands are taken in one look, and commands of each: those that wait
/// and those that are polled have their turn soon, however many ring.
const RUNG: usize = 64;
const RUNG_BUDGET: usize = 16;

impl State {
    /// Moves what can move; takes about `budget` messages at most. Says how much there was.
    #[inline]
    pub(crate) fn progress(&mut self, budget: usize, sink: &mut Sink<'_>) -> usize {
        let mut done = match self.hot[..] {
            [only] => self.poll_only(only as usize, budget, sink),
            _ => self.poll_all(budget, sink),
        };
        if !self.active.is_empty() {
            done += self.move_transfers();
        }
        self.look_around(done);
        if self.wakeups.parking.is_unbounded() {
            self.bound_parked();
        }
        done
    }

    /// Takes commands of the only hot peer.
    #[inline(always)]
    fn poll_only(&mut self, index: usize, budget: usize, sink: &mut Sink<'_>) -> usize {
        let Some(inbox) = &self.peers[index].inbox else {
            return 0;
        };
        let looks = match self.active.is_empty() {
            true => self.turn.looks,
            false => 1,
        };
        for _ in 0..looks {
            if inbox.rx.peek().is_some() {
                return self.take_some(index, budget, sink);
            }
            inbox.expect_payload();
            self.turn.pause.rest();
        }
        0
    }

    /// Takes commands of the hot peers.
    #[inline(never)]
    fn poll_all(&mut self, budget: usize, sink: &mut Sink<'_>) -> usize {
        for _ in 0..self.turn.looks {
            let done = self.poll_hot(budget, sink);
            if done > 0 || !self.active.is_empty() {
                return done;
            }
            self.turn.pause.rest();
        }
        0
    }

    /// Takes commands of the hot peers, up to the budget.
    #[inline(always)]
    pub(crate) fn poll_hot(&mut self, budget: usize, sink: &mut Sink<'_>) -> usize {
        let mut done = 0;
        for turn in 0..self.hot.len() {
            // A peer that is polled may be cut off and be hot no more.
            let Some(&index) = self.hot.get(turn) else {
                break;
            };
            done += self.poll(index as usize, budget - done, sink);
            if done >= budget {
                self.yield_turn(turn);
                break;
            }
        }
        done
    }

    /// The peer that used up a turn is the last of the next one.
    #[inline]
    fn yield_turn(&mut self, place: usize) {
        if place + 1 < self.hot.len() {
            self.hot[place..].rotate_left(1);
        }
    }

    /// Takes up to `budget` commands of one peer.
    #[inline(always)]
    pub(crate) fn poll(&mut self, index: usize, budget: usize, sink: &mut Sink<'_>) -> usize {
        match &self.peers[index].inbox {
            Some(inbox) if inbox.rx.peek().is_some() => self.take_some(index, budget, sink),
            Some(inbox) => {
                inbox.expect_payload();
                0
            }
            None => 0,
        }
    }

    /// Looks after the peers with transfers under way.
    #[cold]
    pub(crate) fn move_transfers(&mut self) -> usize {
        let mut done = 0;
        let mut place = 0;
        while let Some(&index) = self.active.get(place) {
            let index = index as usize;
            self.hear_wanted_news(index);
            self.go_on(index);
            match self.move_transfer(index) {
                Ok(moved) => done += moved,
                Err(Nonsense(what)) => self.quarantine(index, what),
            }
            if self.peers[index].has_transfers() {
                place += 1;
            } else {
                self.peers[index].is_active = false;
                self.active.swap_remove(place);
            }
        }
        done
    }

    /// Hears what a peer has said before something began to wait for it, a few packets at a time.
    fn hear_wanted_news(&mut self, index: usize) {
        let ahead = std::mem::take(&mut self.peers[index].news_ahead);
        if ahead > 0 && !self.hear_some(index) {
            self.peers[index].news_ahead = ahead.saturating_sub(PACKETS);
        }
    }

    pub(crate) fn move_transfer(&mut self, index: usize) -> Result<usize, Nonsense> {
        let Self {
            peers,
            ep,
            config,
            av,
            ..
        } = self;
        let peer = &mut peers[index];
        let addr = peer.fi_addr(av);
        let mut moved = answer::pay(peer)? + usize::from(peer.end_run());
        moved += sar::take_answers(peer, config, ep, addr)?;
        moved += sar::send_aborts(peer) + usize::from(sar::stream(peer)?);
        moved += sar::receive(peer, ep, addr)?;
        if peer.news_ahead == 0
            && let Some(msg_id) = pulled(peer)
        {
            moved += iov::step(peer, ep, addr, msg_id);
        }
        Ok(moved)
    }

    /// Does what is due besides polling, which is nothing most of the time.
    #[inline]
    fn look_around(&mut self, done: usize) {
        self.turn.ticks += done.max(1);
        let (limit, interval) = match done {
            0 => (IDLE_TICKS, IDLE_INTERVAL),
            _ => (BUSY_TICKS, BUSY_INTERVAL),
        };
        if self.turn.ticks >= limit {
            self.turn.ticks = 0;
            self.look_at_clock(interval);
        }
    }

    #[cold]
    fn look_at_clock(&mut self, interval: Duration) {
        let interval = match self.disarm_wakeups() {
            true => Duration::ZERO,
            false => interval,
        };
        self.answer_bells();
        let now = Instant::now();
        // New connections and ends of peers take long: the connected peers have their turn for as
        // long, unless the thread was kept from running meanwhile.
        let interval = interval.max(self.turn.control_time.min(BUSY_INTERVAL));
        if now.duration_since(self.turn.last_control) >= interval {
            self.sweep();
            self.look_at_sockets(now);
            if self.config.eager_exchange {
                self.exchange_addresses(now);
            }
            self.show(now);
            self.turn.last_control = Instant::now();
            self.turn.control_time = self.turn.last_control.duration_since(now);
        }
    }

    /// Takes commands of peers that have rung, which are polled from now on. Those that have more
    /// wait behind the others. Says how many commands there were.
    pub(crate) fn answer_bells(&mut self) -> usize {
        self.hear_bells();
        let mut done = 0;
        for _ in 0..RUNG.min(self.rung.len()) {
            let Some(index) = self.rung.pop_front() else {
                break;
            };
            let index = index as usize;
            self.peers[index].has_rung = false;
            self.warm_up(index);
            done += self.poll(index, RUNG_BUDGET, &mut Sink::none());
            self.requeue(index);
        }
        done
    }

    /// Notes down who has rung.
    fn hear_bells(&mut self) {
        if self.peers.len() <= self.hot.len() {
            return;
        }
        let Self {
            control,
            peers,
            rung,
            ..
        } = self;
        control.doorbell.drain(peers.len(), |bit| {
            if let Some(peer) = peers.get_mut(bit)
                && !std::mem::replace(&mut peer.has_rung, true)
            {
                rung.push_back(bit as u32);
            }
        });
    }

    /// A peer that is not polled and has more commands is as one that has rung.
    fn requeue(&mut self, index: usize) {
        let peer = &mut self.peers[index];
        let inbox = peer.inbox.as_ref().filter(|_| !peer.is_hot);
        if inbox.is_some_and(|inbox| inbox.rx.peek().is_some())
            && !std::mem::replace(&mut peer.has_rung, true)
        {
            self.rung.push_back(index as u32);
        }
    }

    /// Warms up quiet peers that have news but were not heard: the doorbell is only a hint. No more
    /// than can be hot together: the next sweep begins with the others.
    fn sweep(&mut self) {
        if self.peers.len() <= self.hot.len() {
            return;
        }
        let mut warmed = 0;
        for _ in 0..SWEEP.min(self.peers.len()) {
            self.turn.sweep = (self.turn.sweep + 1) % self.peers.len();
            let index = self.turn.sweep;
            let peer = &self.peers[index];
            let inbox = peer.inbox.as_ref().filter(|_| !peer.is_hot);
            if inbox.is_some_and(|inbox| inbox.rx.peek().is_some()) {
                self.warm_up(index);
                warmed += 1;
            }
            if warmed == self.config.hot_peers {
                break;
            }
        }
    }

    /// Polls a peer at every turn from now on, in place of another if there are too many.
    pub(crate) fn warm_up(&mut self, index: usize) {
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        let Some(out) = peer.out.as_ref().filter(|_| peer.inbox.is_some()) else {
            return;
        };
        if peer.is_hot {
            return;
        }
        out.region.set_attentive(true);
        peer.wakes_us = false;
        peer.is_hot = true;
        if self.hot.len() >= self.config.hot_peers {
            let oldest = self.hot.remove(0) as usize;
            self.cool_down(oldest);
        }
        self.hot.push(index as u32);
        self.spend_wakeup();
    }

    fn cool_down(&mut self, index: usize) {
        let peer = &mut self.peers[index];
        peer.is_hot = false;
        if let Some(out) = &peer.out {
            out.region.set_attentive(false);
        }
        self.leave_quiet(index);
        self.requeue(index);
    }
}

/// A message that is on its way into a receive by copies that the receiver makes alone.
fn pulled(peer: &Peer) -> Option<u32> {
    peer.incoming
        .iter()
        .find_map(|(&msg_id, incoming)| match &incoming.stage {
            Stage::Moving(moving) if moving.way != Way::Bounce => Some(msg_id),
            _ => None,
        })
}
