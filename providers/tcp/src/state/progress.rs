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

/// The maximum number of events of one turn.
const EVENTS: usize = 64;
/// The message budget of a turn that the caller does not limit.
const BUDGET: usize = 64;
/// The minimum time for which a thread parks, and the maximum time while a stalled connection may
/// continue without a wake-up.
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
        if self.polling.should_poll_all(done, is_focused, Instant::now) {
            done += self.poll_sockets(budget, sink);
        }
        self.flush_all();
        done
    }

    #[inline(never)]
    fn arm(&mut self, _seen: &mut u64) -> ArmOutcome {
        let sink = &mut Sink::none();
        self.flush_all();
        let done = self.resume(BUDGET, sink) + self.poll_sockets(BUDGET, sink);
        self.flush_all();
        if done > 0 {
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
    /// Polls all sockets and delivers the received frames.
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
                index => self.handle_connection_event(index as usize, event.events(), budget, sink),
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

    fn handle_connection_event(
        &mut self,
        index: usize,
        events: EpollFlags,
        budget: usize,
        sink: &mut Sink<'_>,
    ) -> usize {
        let Some(connection) = self.connections.get(index) else {
            return 0;
        };
        let id = connection.id;
        if connection.stage != Stage::Up {
            return self.continue_handshake(index);
        }
        let mut done = 0;
        if events.contains(EpollFlags::EPOLLOUT) {
            self.flush(index);
        }
        if events.intersects(READ) && self.connections.contains(id) {
            done = self.read(index, budget, sink);
            self.polling.record_activity(index);
        }
        if events.intersects(HANG_UP) && self.connections.contains(id) && done == 0 {
            done += usize::from(self.begin_drain(index));
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
        overdue
            .iter()
            .for_each(|&index| self.handle_deadline(index, now));
        overdue.len()
    }

    /// Schedules a connection with bytes to send.
    #[inline]
    pub(super) fn schedule(&mut self, index: usize) {
        self.connections.mark_dirty(index);
        self.polling.wake(&self.ep);
    }

    /// Sends the queued frames of a connection.
    pub(super) fn flush(&mut self, index: usize) {
        let Some(connection) = self.connections.get_mut(index).filter(|it| it.is_up()) else {
            return;
        };
        let was_blocked = connection.outgoing.tx.is_blocked;
        match connection.flush(&self.keys, &self.ep) {
            Ok(()) if connection.outgoing.tx.is_blocked != was_blocked => self.watch(index),
            Ok(()) => {}
            Err(error) => self.send_failed(index, error),
        }
    }

    /// Sends the queued frames of all connections.
    #[inline]
    pub(super) fn flush_all(&mut self) {
        while let Some(index) = self.connections.pop_dirty() {
            self.flush(index);
        }
    }

    /// Reads a connection and delivers the received frames, at most about `budget` messages.
    /// Returns the number of frames.
    pub(super) fn read(&mut self, index: usize, budget: usize, sink: &mut Sink<'_>) -> usize {
        let mut delivery = Delivery {
            ep: &self.ep,
            config: &self.config,
            keys: &self.keys,
            peers: &mut self.peers,
            matching: &mut self.matching,
        };
        let Some(connection) = self.connections.get_mut(index).filter(|it| it.is_up()) else {
            return 0;
        };
        let (mut done, was_blocked) = (0, connection.outgoing.tx.is_blocked);
        let scratch = &mut self.scratch;
        if let Err(end) = connection.read(&mut delivery, scratch, budget, &mut done, sink) {
            self.disconnect(index, end);
            return done;
        }
        let has_to_resume = connection.has_to_resume();
        let is_watched = connection.outgoing.tx.is_blocked == was_blocked;
        if connection.outgoing.take_response_queued() {
            self.schedule(index);
        }
        if has_to_resume {
            self.connections.mark_stalled(index);
            if self.connections.is_backpressured() {
                self.polling.limit_park(&self.ep);
            }
        }
        if has_to_resume || !is_watched {
            self.watch(index);
        }
        done
    }

    /// Reads stalled connections again.
    fn resume(&mut self, budget: usize, sink: &mut Sink<'_>) -> usize {
        let mut done = 0;
        for index in self.connections.take_stalled() {
            let (connections, mut delivery) = self.connections_and_delivery();
            let connection = connections.get_mut(index);
            if let Some(Err(error)) = connection.map(|stalled| delivery.retry_held(stalled)) {
                self.disconnect(index, error.into());
                continue;
            }
            done += self.read(index, budget, sink);
            self.watch(index);
        }
        done
    }

    /// Updates the epoll events of a connection, and ends the connection if the update fails.
    pub(super) fn watch(&mut self, index: usize) {
        if let Err(cause) = self.connections.watch(index) {
            self.disconnect(index, Disconnect::Closed(Err(cause)));
        }
    }
}

#[cfg(test)]
mod tests;
