//! Progress: sends queued frames, reads the focused connection, and periodically polls all sockets.

use std::time::{Duration, Instant};

use nix::sys::epoll::{EpollEvent, EpollFlags, EpollTimeout};
use selvedge_kit::cq::Sink;
use selvedge_kit::shell::EndpointState;
use selvedge_kit::wait::ArmOutcome;

use super::{State, telemetry};
use crate::accept::{ACCEPTOR, Acceptor};
use crate::connection::Stage;
use crate::connection::delivery::Delivery;
use crate::connection::receive::Disconnect;

/// Events that are taken in one turn.
const EVENTS: usize = 64;
/// The message budget of a turn that the caller does not limit.
const BUDGET: usize = 64;
/// How long a thread parks at least, and at most when something might move without waking it.
const PARK_TIMEOUT: Duration = Duration::from_millis(1);

const HANG_UP: EpollFlags = EpollFlags::EPOLLHUP
    .union(EpollFlags::EPOLLERR)
    .union(EpollFlags::EPOLLRDHUP);
const READ: EpollFlags = EpollFlags::EPOLLIN.union(HANG_UP);

impl EndpointState for State {
    #[inline]
    fn progress(&mut self, budget: usize, sink: &mut Sink<'_>) -> usize {
        let is_focused = self.polling.begin_turn(self.connections.len());
        self.flush_all();
        let mut done = 0;
        if self.connections.has_stalled() {
            done += self.resume(budget, sink);
        }
        if is_focused {
            done += self.read(self.polling.focus, budget, sink);
        }
        if self.polling.is_due(done, is_focused) {
            done += self.poll_sockets(budget, sink);
        }
        self.flush_all();
        done
    }

    #[inline(never)]
    fn arm(&mut self, _seen: &mut u64) -> ArmOutcome {
        let sink = &mut Sink::none();
        self.flush_all();
        let moved = self.resume(BUDGET, sink) + self.poll_sockets(BUDGET, sink);
        self.flush_all();
        if moved > 0 {
            return ArmOutcome::Progressed;
        }
        self.polling.park();
        let now = Instant::now();
        self.write_telemetry(now);
        if self.connections.is_backpressured() {
            return ArmOutcome::AtMost(PARK_TIMEOUT);
        }
        self.polling.park_unbounded();
        let acceptor_deadline = self.acceptor.as_ref().and_then(Acceptor::deadline);
        let deadlines = acceptor_deadline
            .into_iter()
            .chain(self.connections.deadline());
        match deadlines.min() {
            None => ArmOutcome::UntilWoken,
            Some(deadline) => {
                ArmOutcome::AtMost(deadline.saturating_duration_since(now).max(PARK_TIMEOUT))
            }
        }
    }

    #[inline(never)]
    fn woken(&mut self) {
        self.poll_now();
    }

    fn close(&mut self) {
        self.close_all();
    }
}

impl State {
    /// Polls all sockets and delivers what has arrived.
    pub(super) fn poll_now(&mut self) {
        self.polling.poll_soon();
        self.progress(BUDGET, &mut Sink::none());
    }

    /// Polls all sockets, and checks deadlines.
    fn poll_sockets(&mut self, budget: usize, sink: &mut Sink<'_>) -> usize {
        let mut events = [EpollEvent::empty(); EVENTS];
        #[cfg(test)]
        crate::socket::count_call();
        let epoll = &self.connections.epoll;
        let count = epoll.wait(&mut events, EpollTimeout::ZERO);
        let mut done = 0;
        for event in &events[..count.unwrap_or(0)] {
            done += match event.data() {
                ACCEPTOR => self.accept_requests(),
                at => self.connection_event(at as usize, event.events(), budget, sink),
            };
        }
        let now = Instant::now();
        if self.ep.stats.is_snapshot_due(now) {
            self.write_telemetry(now);
        }
        done + self.check_deadlines()
    }

    fn write_telemetry(&self, now: Instant) {
        telemetry::write(
            now,
            &self.ep,
            &self.peers,
            &self.connections,
            &self.matching,
        );
    }

    fn connection_event(
        &mut self,
        at: usize,
        events: EpollFlags,
        budget: usize,
        sink: &mut Sink<'_>,
    ) -> usize {
        let Some(connection) = self.connections.get(at) else {
            return 0;
        };
        let id = connection.id;
        if connection.stage != Stage::Up {
            return self.continue_handshake(at);
        }
        let mut done = 0;
        if events.contains(EpollFlags::EPOLLOUT) {
            self.flush(at);
        }
        if events.intersects(READ) && self.connections.contains(id) {
            done = self.read(at, budget, sink);
            self.polling.note_activity(at);
        }
        if events.intersects(HANG_UP) && self.connections.contains(id) && done == 0 {
            done += usize::from(self.begin_drain(at));
        }
        done
    }

    /// Handles expired deadlines. Returns their number.
    fn check_deadlines(&mut self) -> usize {
        if !self.connections.has_connecting()
            && self
                .acceptor
                .as_ref()
                .is_none_or(|acceptor| acceptor.is_idle())
        {
            return 0;
        }
        let now = Instant::now();
        if let Some(acceptor) = &mut self.acceptor {
            acceptor.expire(now, &self.connections.epoll);
        }
        let overdue = self.connections.overdue(now);
        overdue.iter().for_each(|&at| self.deadline_passed(at, now));
        overdue.len()
    }

    /// Schedules a connection with bytes to send.
    #[inline]
    pub(super) fn schedule(&mut self, at: usize) {
        self.connections.mark_dirty(at);
        self.polling.wake(&self.ep);
    }

    /// Sends the queued frames of a connection.
    pub(super) fn flush(&mut self, at: usize) {
        let Some(connection) = self.connections.get_mut(at).filter(|it| it.is_up()) else {
            return;
        };
        let was_blocked = connection.outgoing.tx.is_blocked;
        match connection.flush(&self.keys, &self.ep) {
            Ok(()) if connection.outgoing.tx.is_blocked != was_blocked => self.watch(at),
            Ok(()) => {}
            Err(broken) => self.send_failed(at, broken),
        }
    }

    /// Sends the queued frames of all connections.
    #[inline]
    pub(super) fn flush_all(&mut self) {
        while let Some(at) = self.connections.pop_dirty() {
            self.flush(at);
        }
    }

    /// Reads a connection and delivers the received frames, about `budget` messages at most.
    /// Returns the number of frames.
    pub(super) fn read(&mut self, at: usize, budget: usize, sink: &mut Sink<'_>) -> usize {
        let mut delivery = Delivery {
            ep: &self.ep,
            config: &self.config,
            keys: &self.keys,
            peers: &mut self.peers,
            matching: &mut self.matching,
        };
        let Some(connection) = self.connections.get_mut(at).filter(|it| it.is_up()) else {
            return 0;
        };
        let (mut done, was_blocked) = (0, connection.outgoing.tx.is_blocked);
        let scratch = &mut self.scratch;
        if let Err(end) = connection.read(&mut delivery, scratch, budget, &mut done, sink) {
            self.disconnect(at, end);
            return done;
        }
        let has_to_resume = connection.has_to_resume();
        let is_watched = connection.outgoing.tx.is_blocked == was_blocked;
        if connection.outgoing.take_response_queued() {
            self.schedule(at);
        }
        if has_to_resume {
            self.connections.mark_stalled(at);
            if self.connections.is_backpressured() {
                self.polling.limit_park(&self.ep);
            }
        }
        if has_to_resume || !is_watched {
            self.watch(at);
        }
        done
    }

    /// Reads stalled connections again.
    fn resume(&mut self, budget: usize, sink: &mut Sink<'_>) -> usize {
        let mut done = 0;
        for at in self.connections.take_stalled() {
            let (connections, mut delivery) = self.parts();
            let from = connections.get_mut(at);
            if let Some(Err(error)) = from.map(|from| delivery.retry_held(from)) {
                self.disconnect(at, error.into());
                continue;
            }
            done += self.read(at, budget, sink);
            self.watch(at);
        }
        done
    }

    /// Updates the epoll events of a connection, and ends it if that fails.
    pub(super) fn watch(&mut self, at: usize) {
        if let Err(cause) = self.connections.watch(at) {
            self.disconnect(at, Disconnect::Closed(Err(cause)));
        }
    }
}

#[cfg(test)]
mod tests;
