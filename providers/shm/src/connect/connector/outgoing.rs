//! Connections that this endpoint opens: the first attempt, further ones, and the hello.

use std::time::{Duration, Instant};

use selvedge::{Errno, Error, Result};
use selvedge_kit::telemetry::EventKind;

use super::{Connector, log_error};
use crate::connect::connection::{ConnectError, Connection};
use crate::peers::outbox::Outbox;
use crate::peers::peer::{NextConnection, State as PeerState};
use crate::provider::setup::Setup;

/// The additional timeout, after `FI_SHM_PEER_TIMEOUT`, for a peer that exists and has no room for
/// another connection.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

impl Connector<'_> {
    /// Ensures that the peer has an outbox, and that it is connected or that attempts to connect to
    /// it are scheduled.
    ///
    /// # Errors
    /// [`Errno::NotConn`] for a peer that is disconnected and was not restarted; [`Errno::Again`]
    /// while its last incarnation is searched for; [`Errno::ConnRefused`] when it refuses; the
    /// system's error when memory or descriptors are short.
    #[cold]
    pub(crate) fn ensure_connected(&mut self, index: usize) -> Result {
        self.control.accept_limiter.begin(Instant::now());
        let result = match self.peers[index].state {
            PeerState::Connected | PeerState::Backlogged | PeerState::Waiting { .. } => {
                return Ok(());
            }
            PeerState::Idle => self.connect_first(index),
            PeerState::Disconnected => self.reconnect(index),
            PeerState::Draining { .. } => return Err(Errno::NotConn),
        };
        self.schedule.parking.wake(&self.setup.ep);
        result
    }

    /// Connects to a peer for the first time, and schedules further attempts if it does not exist
    /// yet.
    fn connect_first(&mut self, index: usize) -> Result {
        match self.connect(index) {
            Ok(()) => Ok(()),
            Err(ConnectError::Failed(error)) => Err(self.abandon_connect(index, &error)),
            Err(ConnectError::Refused(error) | ConnectError::Untrusted(error)) => {
                self.abandon_connect(index, &error);
                Err(Errno::ConnRefused)
            }
            // An earlier incarnation has left more commands than there is room for.
            Err(_) if self.is_draining(index) => Err(Errno::NotConn),
            Err(ConnectError::NotYet(_) | ConnectError::Busy(_)) => {
                self.ensure_outbox(index, None).map_err(|e| log_error(&e))?;
                let deadline = Instant::now() + self.setup.config.peer_timeout;
                let peer = &mut self.peers[index];
                peer.state = PeerState::Waiting { deadline };
                self.setup
                    .ep
                    .stats
                    .record_event(EventKind::AwaitingPeer, peer.name.as_str(), 0);
                self.update_telemetry();
                self.control.retry_later(index);
                Ok(())
            }
        }
    }

    /// Tries once to connect to a disconnected peer.
    fn reconnect(&mut self, index: usize) -> Result {
        match self.connect(index) {
            Ok(()) => Ok(()),
            Err(ConnectError::Failed(error)) => Err(self.abandon_connect(index, &error)),
            Err(ConnectError::Refused(error) | ConnectError::Untrusted(error)) => {
                self.abandon_connect(index, &error);
                Err(Errno::ConnRefused)
            }
            Err(ConnectError::NotYet(_) | ConnectError::Busy(_)) => {
                self.peers[index].out = None;
                self.drain_latest_incarnation(index)
            }
        }
    }

    /// Receives the messages of an incarnation that may have begun and ended since the last
    /// disconnect, before the post fails.
    ///
    /// # Errors
    /// [`Errno::Again`] while connections from before the post wait in the accept backlog;
    /// [`Errno::NotConn`] afterwards.
    fn drain_latest_incarnation(&mut self, index: usize) -> Result {
        let mark = self.control.accept_limiter.mark();
        let mark = *self.peers[index].search_mark.get_or_insert(mark);
        let is_drained = self.receive_all_before(index, mark);
        let peer = &mut self.peers[index];
        match peer.state {
            // The peer has connected to this endpoint meanwhile.
            PeerState::Connected | PeerState::Backlogged => Ok(()),
            _ if !is_drained || peer.next_connection.is_some() => Err(Errno::Again),
            _ => {
                peer.search_mark = None;
                Err(Errno::NotConn)
            }
        }
    }

    /// Drops the outbox after a failed attempt to connect, and logs the error. Returns its number.
    fn abandon_connect(&mut self, index: usize, error: &Error) -> Errno {
        self.peers[index].out = None;
        log_error(error)
    }

    /// Connects to the peer and sends a hello with the outbox.
    pub(crate) fn connect(&mut self, index: usize) -> Result<(), ConnectError> {
        let mut next = self.connect_next_incarnation(index)?;
        let is_drained = self.drain_previous_incarnation(index, next.mark);
        match self.peers[index].state {
            // The peer has connected to this endpoint first.
            PeerState::Connected | PeerState::Backlogged => return Ok(()),
            PeerState::Draining { .. } => {
                return Err(ConnectError::NotYet(
                    "an earlier incarnation is not drained",
                ));
            }
            PeerState::Idle | PeerState::Disconnected | PeerState::Waiting { .. } => {}
        }
        if !is_drained {
            self.peers[index].next_connection = Some(next);
            return Err(ConnectError::Busy(
                "earlier connections are not handled yet",
            ));
        }
        if !self.advance_key_proof(index, &mut next)? {
            self.peers[index].next_connection = Some(next);
            return Err(ConnectError::Busy("it has not proved its auth_key"));
        }
        let NextConnection {
            mut connection,
            proof,
            ..
        } = next;
        self.ensure_outbox(index, Some(&connection))?;
        self.control.watch_connection(&mut connection, index)?;
        match (self.send_hello(index, &connection), proof) {
            // The peer has closed the connection between its proof and this hello.
            (Err(ConnectError::NotYet(_)), Some(proof)) => {
                let is_late = self.is_late(&proof);
                return Err(self.restart_key_proof(index, is_late));
            }
            (sent, _) => sent?,
        }
        self.mark_connected(index, connection);
        Ok(())
    }

    /// Tries again to connect to a peer, or fails its operations after the deadline.
    pub(super) fn retry_connect(&mut self, index: usize, now: Instant) {
        let PeerState::Waiting { deadline } = self.peers[index].state else {
            return;
        };
        let connected = self.connect(index);
        let deadline = match self.peers[index].state {
            PeerState::Waiting { deadline } => deadline,
            _ => deadline,
        };
        match connected {
            Ok(()) => {}
            // The next attempt follows when the earlier incarnation is drained.
            Err(ConnectError::NotYet(_)) if self.is_draining(index) => {}
            Err(ConnectError::NotYet(_)) if now < deadline => self.control.retry_later(index),
            Err(ConnectError::Busy(_))
                if now < deadline + BUSY_TIMEOUT || self.peers[index].awaits_key_proof() =>
            {
                self.control.retry_later(index);
            }
            Err(ConnectError::NotYet(reason) | ConnectError::Busy(reason)) => {
                self.peers[index].next_connection = None;
                self.disconnect(index, Errno::ConnRefused, reason);
            }
            Err(ConnectError::Refused(error)) => {
                self.handle_refusal(index, error.errno(), error.message())
            }
            Err(ConnectError::Untrusted(error)) => self.disconnect_after_error(index, &error),
            Err(ConnectError::Failed(error)) => {
                self.disconnect(index, log_error(&error), "the attempt to connect failed");
            }
        }
    }

    fn is_draining(&self, index: usize) -> bool {
        matches!(self.peers[index].state, PeerState::Draining { .. })
    }

    /// Ensures that the peer has an outbox, on the NUMA node that `FI_SHM_NUMA` selects. An outbox
    /// that was created before there was a connection is moved there.
    pub(super) fn ensure_outbox(
        &mut self,
        index: usize,
        connection: Option<&Connection>,
    ) -> Result<(), Error> {
        let peer_pid = || connection.map_or(0, Connection::peer_pid);
        let node = self.setup.config.placement.node(peer_pid);
        let peer = &mut self.peers[index];
        if let (Some(out), Some(node)) = (&mut peer.out, node) {
            out.move_to(node);
        }
        if peer.out.is_none() {
            let addr = peer.fi_addr(&self.setup.av);
            let out = Outbox::create(node, &peer.name, addr, &self.setup.config)?;
            if self.setup.ep.counts_remote_access() {
                out.region.request_notifications();
            }
            peer.out = Some(out);
        }
        Ok(())
    }

    pub(super) fn send_hello(
        &mut self,
        index: usize,
        connection: &Connection,
    ) -> Result<(), ConnectError> {
        let peer = &mut self.peers[index];
        let is_first = peer.connections.is_empty();
        let region = &peer.outbox().region;
        let Setup { config, shared, .. } = self.setup;
        let control = &*self.control;
        let send_hello =
            || control.send_hello(connection, index, region, config, shared.key_chunks());
        if is_first {
            shared.announcements.add_subscriber(connection, send_hello)
        } else {
            send_hello()
        }
    }

    /// Adds the connection over which the peer has received the outbox, and completes the sends
    /// that waited for it.
    pub(super) fn mark_connected(&mut self, index: usize, connection: Connection) {
        let peer = &mut self.peers[index];
        if peer.pidfd.is_none() {
            peer.pidfd = connection
                .peer_pidfd()
                .filter(|fd| self.control.watch_process(fd, index).is_ok());
        }
        (peer.next_connection, peer.search_mark) = (None, None);
        peer.connections.push(connection);
        peer.state = if peer.deferred.is_empty() {
            PeerState::Connected
        } else {
            PeerState::Backlogged
        };
        for report in std::mem::take(&mut peer.held_sends) {
            report.done(&self.setup.ep);
        }
        self.update_telemetry();
    }
}
