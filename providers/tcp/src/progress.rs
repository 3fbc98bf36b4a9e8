//! Progress: sends what was posted, reads what came, and now and then looks around.

use std::time::Instant;

use nix::sys::epoll::{EpollEvent, EpollFlags, EpollTimeout};
use selvedge_kit::cq::Sink;
use selvedge_kit::wait::Rest;

use crate::lane::Stage;
use crate::state::{DOOR, State};

/// Turns that find nothing between two looks at all sockets, while what comes comes by one lane. A
/// look takes about as long as a try to read, and finds who wants to be let in, or another lane that
/// has something.
const FOCUSED_TURNS: u32 = 32;
/// Turns that find something there. A look in such a turn stands between a message and whoever waits
/// for it, so that it is taken only for the sake of the others.
const BUSY_TURNS: u32 = 8;
/// Sockets that are looked at in one turn.
const EVENTS: usize = 64;
/// Messages that are taken when nobody says how many.
const BUDGET: usize = 64;

impl State {
    /// Moves what can move; takes about `budget` messages at most. Says how much there was.
    #[inline]
    pub(crate) fn progress(&mut self, budget: usize, sink: &mut Sink<'_>) -> usize {
        self.turn += 1;
        self.is_resting = false;
        self.flush_all();
        let mut done = 0;
        if !self.stalled.is_empty() {
            done += self.resume(budget, sink);
        }
        let is_focused = self.is_focused || self.lanes.len() <= 1;
        if is_focused {
            done += self.read(self.hot, budget, sink);
        }
        let is_due = match done {
            0 => {
                self.idle += 1;
                !is_focused || self.idle >= FOCUSED_TURNS
            }
            _ => {
                self.busy += 1;
                self.busy >= BUSY_TURNS
            }
        };
        if is_due {
            (self.idle, self.busy) = (0, 0);
            done += self.look_around(budget, sink);
        }
        if !self.dirty.is_empty() {
            self.flush_all();
        }
        done
    }

    /// Has the next turn look at all sockets.
    pub(crate) fn look_soon(&mut self) {
        (self.idle, self.busy) = (FOCUSED_TURNS, BUSY_TURNS);
    }

    /// Looks at all sockets, and at the clock if something has a time.
    pub(crate) fn look_around(&mut self, budget: usize, sink: &mut Sink<'_>) -> usize {
        let mut events = [EpollEvent::empty(); EVENTS];
        #[cfg(test)]
        crate::socket::count_call();
        let count = self.epoll.wait(&mut events, EpollTimeout::ZERO);
        let mut done = 0;
        for event in &events[..count.unwrap_or(0)] {
            done += match event.data() {
                DOOR => self.open_door(),
                at => self.lane_event(at as usize, event.events(), budget, sink),
            };
        }
        self.show();
        done + self.keep_time()
    }

    fn lane_event(
        &mut self,
        at: usize,
        events: EpollFlags,
        budget: usize,
        sink: &mut Sink<'_>,
    ) -> usize {
        let Some(lane) = self.lanes.get(at) else {
            return 0;
        };
        let serial = lane.serial;
        match lane.stage {
            Stage::Resting { .. } => 0,
            Stage::Connecting { .. } => self.connected(at),
            Stage::Securing => self.secured(at),
            Stage::Proving => self.proved(at),
            Stage::Asking => self.greeted(at),
            Stage::Up => {
                let mut done = 0;
                if events.contains(EpollFlags::EPOLLOUT) {
                    self.flush(at);
                }
                if events.intersects(READ) && self.is_same(at, serial) {
                    done = self.read(at, budget, sink);
                    self.is_focused = self.hot == at;
                    self.hot = at;
                }
                if events.intersects(END) && self.is_same(at, serial) && done == 0 {
                    done += usize::from(self.last_words(at));
                }
                done
            }
        }
    }

    pub(crate) fn is_same(&self, at: usize, serial: u64) -> bool {
        self.lanes.get(at).is_some_and(|lane| lane.serial == serial)
    }

    /// Does what has its time.
    fn keep_time(&mut self) -> usize {
        if self.rising.is_empty() && self.door.as_ref().is_none_or(|door| door.is_quiet()) {
            return 0;
        }
        let now = Instant::now();
        if let Some(door) = &mut self.door {
            door.turn_out(now, &self.epoll);
        }
        let mut done = 0;
        for at in self.rising.clone() {
            let lane = self.lanes.get(at);
            if lane
                .and_then(|lane| lane.deadline())
                .is_some_and(|end| end <= now)
            {
                self.time_is_up(at, now);
                done += 1;
            }
        }
        self.rising
            .retain(|&at| self.lanes.get(at).is_some_and(|lane| !lane.is_up()));
        done
    }

    /// Whether whoever asks may sleep.
    #[inline(never)]
    pub(crate) fn rest(&mut self) -> Rest {
        let sink = &mut Sink::none();
        self.flush_all();
        let moved = self.resume(BUDGET, sink) + self.look_around(BUDGET, sink);
        self.flush_all();
        if moved > 0 {
            return Rest::Moved;
        }
        self.is_resting = true;
        self.show_now(Instant::now());
        let lanes = self.rising.iter().filter_map(|&at| self.lanes.get(at));
        let deadlines = lanes.filter_map(|lane| lane.deadline());
        let door = self.door.as_ref().and_then(|door| door.deadline());
        let stalled = self.stalled.iter().any(|&at| self.is_choked(at));
        match deadlines.chain(door).min() {
            _ if stalled => Rest::AtMost(NAP),
            None => Rest::UntilWoken,
            Some(end) => Rest::AtMost(end.saturating_duration_since(Instant::now()).max(NAP)),
        }
    }

    /// A lane that waits for room that nobody tells of.
    fn is_choked(&self, at: usize) -> bool {
        let lane = self.lanes.get(at);
        lane.is_some_and(|lane| lane.rx.held.is_none())
    }

    /// A sleeper was woken, and will ask again before it sleeps.
    #[inline(never)]
    pub(crate) fn woken(&mut self) {
        self.look_soon();
        self.progress(BUDGET, &mut Sink::none());
    }
}

/// How long a sleep may be when something might move without anybody being woken.
const NAP: std::time::Duration = std::time::Duration::from_millis(1);
const READ: EpollFlags = EpollFlags::EPOLLIN.union(END);
const END: EpollFlags = EpollFlags::EPOLLHUP
    .union(EpollFlags::EPOLLERR)
    .union(EpollFlags::EPOLLRDHUP);

#[cfg(test)]
mod tests;
