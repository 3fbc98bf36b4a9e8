//! `Polling`: which sockets a turn of progress looks at, and whether a thread may be parked that has
//! to be woken.

use selvedge_kit::Ep;

/// Turns that find nothing between two polls of all sockets, while what comes comes by one connection.
/// A poll takes about as long as a try to read, and finds peers that want to be let in, or another
/// connection that has something.
const FOCUSED_TURNS: u32 = 32;
/// Turns that find something there. A poll in such a turn stands between a message and the thread that
/// waits for it, so that it is made only for the sake of the others.
const BUSY_TURNS: u32 = 8;

/// What an endpoint knows of its turns of progress.
#[derive(Debug)]
pub(crate) struct Polling {
    /// The connection that last had something.
    pub(crate) focus: usize,
    /// Whether what comes comes by that connection.
    is_focused: bool,
    /// Turns since the last poll of all sockets: those that found nothing, and the others.
    empty_turns: u32,
    busy_turns: u32,
    /// Turns of progress so far.
    pub(crate) turn: u64,
    /// A thread may be parked.
    is_parked: bool,
    /// A thread may be parked that does not look again by itself for a connection that is stalled.
    is_unbounded: bool,
}

impl Polling {
    pub(crate) fn new() -> Self {
        Self {
            focus: 0,
            is_focused: true,
            empty_turns: 0,
            busy_turns: 0,
            turn: 1,
            is_parked: false,
            is_unbounded: false,
        }
    }

    /// Begins a turn. Whether the hot connection, of so many, is to be read before all are polled.
    #[inline]
    pub(crate) fn begin_turn(&mut self, connections: usize) -> bool {
        self.turn += 1;
        self.is_focused || connections <= 1
    }

    /// Whether all sockets are to be polled in this turn, which has found `done` messages so far.
    #[inline]
    pub(crate) fn is_due(&mut self, done: usize, is_focused: bool) -> bool {
        let is_due = match done {
            0 => {
                self.empty_turns += 1;
                !is_focused || self.empty_turns >= FOCUSED_TURNS
            }
            _ => {
                self.busy_turns += 1;
                self.busy_turns >= BUSY_TURNS
            }
        };
        if is_due {
            (self.empty_turns, self.busy_turns) = (0, 0);
        }
        is_due
    }

    /// Has the next turn poll all sockets.
    pub(crate) fn poll_soon(&mut self) {
        (self.empty_turns, self.busy_turns) = (FOCUSED_TURNS, BUSY_TURNS);
    }

    /// A poll of all sockets has found something at a connection.
    pub(crate) fn note_activity(&mut self, at: usize) {
        self.is_focused = self.focus == at;
        self.focus = at;
    }

    /// A thread may park from now on, until it is woken: turns that another thread takes meanwhile do
    /// not progress what that thread posts afterwards.
    pub(crate) fn park(&mut self) {
        self.is_parked = true;
    }

    /// Likewise, for longer than a connection may be stalled without an event that tells of room.
    pub(crate) fn park_unbounded(&mut self) {
        self.is_unbounded = true;
    }

    /// A connection is stalled. A thread that is parked has to look for room now and then: the thread
    /// that has found it may not make progress again.
    #[cold]
    pub(crate) fn limit_park(&mut self, ep: &Ep) {
        if std::mem::take(&mut self.is_unbounded) {
            ep.wake();
        }
    }

    /// Has a thread that is parked look at what was left to progress.
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
    fn the_focused_connection_is_read_alone_and_the_others_are_polled_now_and_then() {
        let mut polling = Polling::new();
        let mut polls = |done, turns| {
            let turn = |_: &u32| {
                let is_focused = polling.begin_turn(2);
                assert!(is_focused);
                polling.is_due(done, is_focused)
            };
            (0..turns).filter(turn).count()
        };
        assert_eq!(polls(0, FOCUSED_TURNS - 1), 0);
        assert_eq!(polls(0, 1), 1);
        assert_eq!(polls(1, BUSY_TURNS * 3), 3);
    }

    #[test]
    fn all_sockets_are_polled_without_focus_or_on_request() {
        let mut polling = Polling::new();
        polling.note_activity(7);
        let is_focused = polling.begin_turn(2);
        assert!(!is_focused && polling.is_due(0, is_focused));
        assert!(polling.begin_turn(1), "it is the only one");
        polling.note_activity(7);
        assert!(polling.begin_turn(2));
        polling.poll_soon();
        assert!(polling.is_due(0, true) && !polling.is_due(0, true));
    }
}
