//! `AcceptLimiter`: limits how many new connections an endpoint accepts in one poll of the sockets.
//!
//! Connected peers have priority: in one poll an endpoint accepts a few connections of its own
//! user, rejects a few of other users, and leaves the rest in the kernel's accept backlog. After
//! each connection of another user, the endpoint accepts none for a while.

use std::time::{Duration, Instant};

use crate::connect::connection::BACKLOG;

/// The maximum number of hellos that one poll handles. Each takes some hundred microseconds,
/// because it maps memory.
const HELLOS_PER_POLL: usize = 4;
/// The maximum number of connections that one poll accepts.
const CONNECTIONS_PER_POLL: usize = 16;
/// The time without accepting after a connection of another user. An endpoint rejects at most ten
/// thousand such connections per second, in a tenth of a core's time.
const PAUSE: Duration = Duration::from_micros(100);

/// Counters of accepted connections and handled hellos.
#[derive(Debug)]
pub(crate) struct AcceptLimiter {
    /// The time from which on connections are accepted.
    resumes_at: Instant,
    /// The numbers of hellos and connections that this poll may still handle.
    hellos: usize,
    connections: usize,
    /// The number of connections accepted so far, plus [`BACKLOG_BOUND`] each time the backlog was
    /// empty.
    accepted: u64,
}

/// A position in the sequence of accepted connections: behind all that waited in the accept backlog
/// at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BacklogMark(u64);

impl AcceptLimiter {
    /// Creates a limiter at `now`.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            resumes_at: now,
            hellos: 0,
            connections: 0,
            accepted: 0,
        }
    }

    /// Begins a poll of the sockets.
    pub(crate) fn begin(&mut self, now: Instant) {
        let is_paused = now < self.resumes_at;
        self.hellos = HELLOS_PER_POLL;
        self.connections = if is_paused { 0 } else { CONNECTIONS_PER_POLL };
    }

    /// Whether another hello may be handled in this poll.
    pub(crate) fn allows_hello(&self) -> bool {
        self.hellos > 0
    }

    /// Whether another connection may be accepted in this poll.
    pub(crate) fn allows_connection(&self) -> bool {
        self.connections > 0 && self.allows_hello()
    }

    /// Counts a handled hello.
    pub(crate) fn count_hello(&mut self) {
        self.hellos -= 1;
    }

    /// Counts an accepted connection.
    pub(crate) fn count_connection(&mut self) {
        self.connections -= 1;
        self.accepted += 1;
    }

    /// Counts an accepted connection of another user.
    pub(crate) fn count_other_user(&mut self, now: Instant) {
        self.count_connection();
        self.resumes_at = self.resumes_at.max(now) + PAUSE;
    }

    /// Records that the backlog is empty.
    pub(crate) fn record_empty_backlog(&mut self) {
        self.connections = 0;
        self.accepted += BACKLOG_BOUND;
    }

    /// Returns the position behind all connections that wait now.
    pub(crate) fn mark(&self) -> BacklogMark {
        BacklogMark(self.accepted)
    }

    /// Whether all connections before the mark were accepted.
    pub(crate) fn has_passed(&self, mark: BacklogMark) -> bool {
        self.accepted - mark.0 >= BACKLOG_BOUND
    }
}

/// A number larger than the number of connections that the backlog holds.
const BACKLOG_BOUND: u64 = BACKLOG as u64 + 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_poll_takes_a_few_connections_and_replies_to_fewer_hellos() {
        let now = Instant::now();
        let mut accept_limiter = AcceptLimiter::new(now);
        accept_limiter.begin(now);
        for _ in 0..CONNECTIONS_PER_POLL {
            assert!(accept_limiter.allows_connection());
            accept_limiter.count_connection();
        }
        assert!(!accept_limiter.allows_connection());
        accept_limiter.begin(now);
        for _ in 0..HELLOS_PER_POLL {
            assert!(accept_limiter.allows_connection());
            accept_limiter.count_connection();
            accept_limiter.count_hello();
        }
        assert!(!accept_limiter.allows_hello() && !accept_limiter.allows_connection());
    }

    #[test]
    fn connections_of_other_users_pause_accepting() {
        let now = Instant::now();
        let mut accept_limiter = AcceptLimiter::new(now);
        accept_limiter.begin(now);
        (0..CONNECTIONS_PER_POLL).for_each(|_| accept_limiter.count_other_user(now));
        let pause = PAUSE * CONNECTIONS_PER_POLL as u32;
        accept_limiter.begin(now + pause / 2);
        assert!(accept_limiter.allows_hello() && !accept_limiter.allows_connection());
        accept_limiter.begin(now + pause);
        assert!(accept_limiter.allows_connection());
    }

    #[test]
    fn a_mark_is_reached_when_the_backlog_is_empty_or_as_many_connections_were_accepted() {
        let now = Instant::now();
        let mut accept_limiter = AcceptLimiter::new(now);
        let mark = accept_limiter.mark();
        assert!(!accept_limiter.has_passed(mark));
        for _ in 0..BACKLOG_BOUND {
            assert!(!accept_limiter.has_passed(mark));
            accept_limiter.begin(now);
            accept_limiter.count_connection();
        }
        assert!(accept_limiter.has_passed(mark));
        let mark = accept_limiter.mark();
        assert!(!accept_limiter.has_passed(mark));
        accept_limiter.record_empty_backlog();
        assert!(accept_limiter.has_passed(mark));
    }
}
