//! The end of a connection, which fails the connection's operations and directed receives; and the
//! close of the endpoint, which first sends queued bytes until the close timeout.

use std::io;
use std::os::fd::AsFd;
use std::time::Instant;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use selvedge::Errno;
use selvedge_kit::cq::Sink;
use selvedge_kit::srx::Source;
use selvedge_kit::telemetry::EventKind;

use super::State;
use crate::connection::Connection;
use crate::connection::failure::Failure;
use crate::connection::receive::Disconnect;
use crate::connection::tx::SendError;
use crate::wire::ProtocolError;

impl State {
    /// Ends a connection for a given reason.
    #[cold]
    pub(super) fn disconnect(&mut self, index: usize, reason: Disconnect) {
        let connection = &mut self.connections[index];
        let peer = &self.peers[connection.peer];
        let failure = match reason {
            // The kernel reports the reason of a lost connection once, and then the end of the
            // stream.
            Disconnect::Closed(Ok(())) => {
                Failure::ended(peer, connection.send_error.take().map_or(Ok(()), Err))
            }
            Disconnect::Closed(result) => Failure::ended(peer, result),
            Disconnect::Protocol(ProtocolError(error)) => Failure::protocol_error(peer, error),
        };
        self.drop_connection(index, &failure);
    }

    /// Handles a send error. Bytes that the peer had sent are delivered first.
    #[cold]
    pub(super) fn send_failed(&mut self, index: usize, error: SendError) {
        let cause = match error {
            SendError::Withdrawn => {
                let error = ProtocolError("a read of memory that is no longer registered");
                return self.disconnect(index, Disconnect::Protocol(error));
            }
            SendError::Io(cause) => cause,
        };
        let connection = &mut self.connections[index];
        let id = connection.id;
        if !is_hang_up(&cause) {
            connection.send_error = cause.raw_os_error().map(io::Error::from_raw_os_error);
        }
        while self.connections.contains(id) && self.read(index, usize::MAX, &mut Sink::none()) > 0 {
        }
        if self.connections.contains(id) && !self.begin_drain(index) {
            self.disconnect(index, Disconnect::Closed(Err(cause)));
        }
    }

    /// Starts to drain a stalled connection that the peer has closed: operations posted to the peer
    /// fail, and the peer's messages are kept. Returns false if the connection is not stalled.
    pub(super) fn begin_drain(&mut self, index: usize) -> bool {
        let connection = &mut self.connections[index];
        if !connection.incoming.is_stalled() {
            return false;
        }
        connection.is_draining = true;
        let peer = connection.peer;
        self.connections.unwatch(index);
        let detail = format!("{} has closed the connection", self.peers[peer]);
        self.fail_operations(index, Errno::ConnReset, &detail);
        if self.peers[peer].connection == Some(index) {
            // Later posts open a new connection.
            self.peers[peer].connection = None;
        }
        true
    }

    /// Removes a connection, and fails its operations and the receives that depend on it.
    pub(super) fn drop_connection(&mut self, index: usize, failure: &Failure) {
        let Failure {
            errno, ref detail, ..
        } = *failure;
        self.ep
            .stats
            .record_event(EventKind::Disconnected, detail, errno.as_raw() as u64);
        if let Some(cm) = self
            .cm
            .as_ref()
            .filter(|_| !self.connections[index].is_up())
        {
            cm.report_failure(failure);
        }
        self.fail_operations(index, errno, detail);
        let (connections, mut delivery) = self.connections_and_delivery();
        let mut connection = connections.remove(index);
        delivery.fail(&mut connection, errno, detail);
        self.matching.drop_connection(connection.id);
        let peer = connection.peer;
        // The end of a second connection, or of a replaced one, does not disconnect the peer.
        if self.peers[peer].connection.is_none_or(|main| main == index) {
            self.peers[peer].connection = None;
            self.peers[peer].is_disconnected = true;
            let source = Source(peer as u32);
            let src = self.peers.fi_addr(peer);
            for posted in self.matching.take_posted(|it| it.fail_source(source)) {
                self.ep.rx_failed(posted, errno, src, detail);
            }
        }
        if self.cm.is_some() {
            self.connection_closed(connection.is_up());
        }
    }

    /// Fails the operations posted to a connection.
    fn fail_operations(&mut self, index: usize, errno: Errno, detail: &str) {
        let connection = &mut self.connections[index];
        let src = self.peers.fi_addr(connection.peer);
        // The memory of the operations must not be in use when their completions are written.
        for report in connection.outgoing.fail() {
            report.failed(&self.ep, errno, src, detail);
        }
    }

    /// Sends queued bytes until all are sent or the close timeout has passed.
    pub(super) fn flush_before_close(&mut self) {
        let deadline = Instant::now() + self.config.close_timeout;
        let has_unsent = |it: &Connection| it.is_up() && !it.outgoing.tx.is_idle();
        loop {
            let unsent = self.connections.iter().filter(|it| has_unsent(it));
            let unsent: Vec<_> = unsent.map(|it| it.id.index).collect();
            unsent.iter().for_each(|&index| self.flush(index));
            let mut remaining = unsent
                .iter()
                .filter_map(|&index| self.connections.get(index));
            let Some(connection) = remaining.find(|it| has_unsent(it)) else {
                return;
            };
            let remaining_time = deadline.saturating_duration_since(Instant::now());
            let Some(socket) = connection
                .socket
                .as_ref()
                .filter(|_| !remaining_time.is_zero())
            else {
                return;
            };
            let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)];
            let remaining_time = PollTimeout::try_from(remaining_time).unwrap_or(PollTimeout::MAX);
            // The loop checks the queues again, whatever poll(2) returns.
            let _ = poll(&mut fds, remaining_time);
        }
    }

    /// Closes all connections and drops all receives, without completions.
    pub(super) fn close_all(&mut self) {
        self.flush_before_close();
        self.connections.close_all();
        self.acceptor = None;
        self.matching.take_posted(|it| it.drain_posted());
    }
}

/// Whether the error means that the peer has closed the connection.
fn is_hang_up(cause: &io::Error) -> bool {
    matches!(
        cause.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
    )
}
