//! `Polling`: selects the sockets that a turn of progress polls, and tracks parked threads that
//! must be woken.

use std::time::{Duration, Instant};

use selvedge_kit::Ep;

/// The number of empty turns between two polls of all sockets while the focused connection is read
/// alone. A poll takes about as long as a read attempt, and finds new connections and input of
/// other connections.
const FOCUSED_TURNS: u32 = 32;
/// The number of turns with input between two polls of all sockets. A poll in such a turn delays
/// the message to the waiting thread, but keeps the other connections from starving.
const BUSY_TURNS: u32 = 8;
/// A program whose turns are further apart than this polls all sockets in each of them: with
/// [`FOCUSED_TURNS`] turns between two polls, its messages and connections would wait for that many
/// of its calls.
const FREQUENT_TURNS: Duration = Duration::from_micros(100);

/// The polling state of an endpoint.
#[derive(Debug)]
pub(crate) struct Polling {
    /// The connection that last had input.
    pub(crate) focus: usize,
    /// Whether the focused connection is read alone.
    is_focused: bool,
    /// The number of turns without input since the last poll of all sockets.
    empty_turns: u32,
    /// The time of the last turn without input.
    last_empty_turn: Instant,
    /// The number of turns with input since the last poll of all sockets.
    busy_turns: u32,
    /// The number of turns of progress so far.
    pub(crate) turn: u64,
    /// Whether a thread may be parked.
    is_parked: bool,
    /// Whether a thread may be parked without a timeout. Such a thread does not poll a stalled
    /// connection.
    is_unbounded: bool,
}

impl Polling {
    pub(crate) fn new() -> Self {
        Self {
            focus: 0,
            is_focused: true,
            empty_turns: 0,
            last_empty_turn: Instant::now(),
            busy_turns: 0,
            turn: 1,
            is_parked: false,
            is_unbounded: false,
        }
    }

    /// Begins a turn. Returns whether the focused connection is read before all sockets are polled;
    /// `connections` is the number of connections.
    #[inline]
    pub(crate) fn begin_turn(&mut self, connections: usize) -> bool {
        self.turn += 1;
        self.is_focused || connections <= 1
    }

    /// Counts a turn that has received `done` messages so far. Returns whether the turn polls all
    /// sockets. `clock` returns the time.
    #[inline]
    pub(crate) fn should_poll_all(
        &mut self,
        done: usize,
        is_focused: bool,
        clock: impl FnOnce() -> Instant,
    ) -> bool {
        let should_poll_all = match done {
            0 => {
                self.empty_turns += 1;
                let is_seldom = self.is_turn_seldom(clock());
                !is_focused || is_seldom || self.empty_turns >= FOCUSED_TURNS
            }
            _ => {
                self.busy_turns += 1;
                self.busy_turns >= BUSY_TURNS
            }
        };
        if should_poll_all {
            (self.empty_turns, self.busy_turns) = (0, 0);
        }
        should_poll_all
    }

    /// Records a turn without input. Returns whether the previous one was long ago.
    #[inline]
    fn is_turn_seldom(&mut self, now: Instant) -> bool {
        let last = std::mem::replace(&mut self.last_empty_turn, now);
        now.duration_since(last) > FREQUENT_TURNS
    }

    /// Makes the next turn poll all sockets.
    pub(crate) fn poll_soon(&mut self) {
        (self.empty_turns, self.busy_turns) = (FOCUSED_TURNS, BUSY_TURNS);
    }

    /// Records that a poll of all sockets found input at a connection.
    pub(crate) fn record_activity(&mut self, index: usize) {
        self.is_focused = self.focus == index;
        self.focus = index;
    }

    /// Records that a thread may park until it is woken. Operations that another thread posts from
    /// now on must wake the parked thread.
    pub(crate) fn park(&mut self) {
        self.is_parked = true;
    }

    /// Records that a thread may park without a timeout.
    pub(crate) fn park_unbounded(&mut self) {
        self.is_unbounded = true;
    }

    /// Wakes a thread that is parked without a timeout, because a connection has stalled. The
    /// parked thread must check for room periodically, because the thread that has read the
    /// connection may make no further progress.
    #[cold]
    pub(crate) fn limit_park(&mut self, ep: &Ep) {
        if std::mem::take(&mut self.is_unbounded) {
            ep.wake();
        }
    }

    /// Wakes a parked thread, which then progresses pending work.
    #[inline]
    pub(crate) fn wake(&mut self, ep: &Ep) {
        if std::mem::take(&mut self.is_parked) {
            ep.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_focused_connection_is_read_alone_and_the_others_are_polled_periodically() {
        let mut polling = Polling::new();
        let now = polling.last_empty_turn;
        let mut polls = |done, turns| {
            let turn = |_: &u32| {
                let is_focused = polling.begin_turn(2);
                assert!(is_focused);
                polling.should_poll_all(done, is_focused, || now)
            };
            (0..turns).filter(turn).count()
        };
        assert_eq!(polls(0, FOCUSED_TURNS - 1), 0);
        assert_eq!(polls(0, 1), 1);
        assert_eq!(polls(1, BUSY_TURNS * 3), 3);
    }

    #[test]
    fn a_program_that_polls_seldom_polls_all_sockets_each_time() {
        let mut polling = Polling::new();
        let mut now = polling.last_empty_turn;
        for _ in 0..3 {
            now += 2 * FREQUENT_TURNS;
            assert!(polling.begin_turn(2) && polling.should_poll_all(0, true, || now));
        }
        assert!(!polling.should_poll_all(0, true, || now + FREQUENT_TURNS));
    }

    #[test]
    fn all_sockets_are_polled_without_focus_or_on_request() {
        let mut polling = Polling::new();
        let now = polling.last_empty_turn;
        let should_poll_all =
            |polling: &mut Polling, is_focused| polling.should_poll_all(0, is_focused, || now);
        polling.record_activity(7);
        let is_focused = polling.begin_turn(2);
        assert!(!is_focused && should_poll_all(&mut polling, is_focused));
        assert!(polling.begin_turn(1), "the connection is the only one");
        polling.record_activity(7);
        assert!(polling.begin_turn(2));
        polling.poll_soon();
        assert!(should_poll_all(&mut polling, true) && !should_poll_all(&mut polling, true));
    }
}
