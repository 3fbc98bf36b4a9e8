//! Intake: how many new connections an endpoint takes, and when.
//!
//! The peers that are connected come first: in one poll of the sockets an endpoint connects to a few
//! processes of its own user, turns a few strangers away, and leaves the others in the kernel's queue.
//! Connections of other users have to wait the longer, the more of them come.

use std::time::{Duration, Instant};

use crate::connect::rendezvous::BACKLOG;

/// Hellos that are answered in one poll. Each takes some hundred microseconds: memory is mapped.
const HELLOS: usize = 4;
/// Connections that are taken in one poll.
const CONNECTIONS: usize = 16;
/// For how long no connection is taken after one of another user: ten thousand of those are turned
/// away in a second, in a tenth of a core's time.
const PAUSE: Duration = Duration::from_micros(100);

/// The pace at which connections are taken.
#[derive(Debug)]
pub(crate) struct Intake {
    next: Instant,
    /// Hellos and connections that may still be taken in this poll.
    hellos: usize,
    connections: usize,
    /// Connections taken so far, and as many as the kernel keeps whenever none waited.
    taken: u64,
}

/// All connections that waited at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark(u64);

impl Intake {
    /// Nothing was taken yet.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            next: now,
            hellos: 0,
            connections: 0,
            taken: 0,
        }
    }

    /// Begins a poll of the sockets.
    pub(crate) fn begin(&mut self, now: Instant) {
        let is_paused = now < self.next;
        self.hellos = HELLOS;
        self.connections = if is_paused { 0 } else { CONNECTIONS };
    }

    /// Whether another hello may be answered in this poll.
    pub(crate) fn allows_hello(&self) -> bool {
        self.hellos > 0
    }

    /// Whether another connection may be taken in this poll.
    pub(crate) fn allows_connection(&self) -> bool {
        self.connections > 0 && self.allows_hello()
    }

    /// A hello was answered.
    pub(crate) fn count_hello(&mut self) {
        self.hellos -= 1;
    }

    /// A connection was taken.
    pub(crate) fn count_connection(&mut self) {
        self.connections -= 1;
        self.taken += 1;
    }

    /// The connection that was taken was another user's.
    pub(crate) fn count_stranger(&mut self, now: Instant) {
        self.count_connection();
        self.next = self.next.max(now) + PAUSE;
    }

    /// No connection waits.
    pub(crate) fn count_none(&mut self) {
        self.connections = 0;
        self.taken += ALL;
    }

    /// The connections that wait now.
    pub(crate) fn mark(&self) -> Mark {
        Mark(self.taken)
    }

    /// Whether all of those have been taken.
    pub(crate) fn has_taken(&self, mark: Mark) -> bool {
        self.taken - mark.0 >= ALL
    }
}

/// More connections than the kernel keeps.
const ALL: u64 = BACKLOG as u64 + 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_poll_takes_a_few_connections_and_answers_fewer_hellos() {
        let now = Instant::now();
        let mut intake = Intake::new(now);
        intake.begin(now);
        for _ in 0..CONNECTIONS {
            assert!(intake.allows_connection());
            intake.count_connection();
        }
        assert!(!intake.allows_connection());
        intake.begin(now);
        for _ in 0..HELLOS {
            assert!(intake.allows_connection());
            intake.count_connection();
            intake.count_hello();
        }
        assert!(!intake.allows_hello() && !intake.allows_connection());
    }

    #[test]
    fn connections_of_other_users_make_all_wait() {
        let now = Instant::now();
        let mut intake = Intake::new(now);
        intake.begin(now);
        (0..CONNECTIONS).for_each(|_| intake.count_stranger(now));
        let pause = PAUSE * CONNECTIONS as u32;
        intake.begin(now + pause / 2);
        assert!(intake.allows_hello() && !intake.allows_connection());
        intake.begin(now + pause);
        assert!(intake.allows_connection());
    }

    #[test]
    fn all_that_waited_were_taken_when_none_waits_or_as_many_have_come() {
        let now = Instant::now();
        let mut intake = Intake::new(now);
        let mark = intake.mark();
        assert!(!intake.has_taken(mark));
        for _ in 0..ALL {
            assert!(!intake.has_taken(mark));
            intake.begin(now);
            intake.count_connection();
        }
        assert!(intake.has_taken(mark));
        let mark = intake.mark();
        assert!(!intake.has_taken(mark));
        intake.count_none();
        assert!(intake.has_taken(mark));
    }
}
