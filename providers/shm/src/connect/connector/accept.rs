//! Connections that peers open: unauthenticated ones, and the hellos that begin an incarnation.

use std::time::Instant;

use selvedge::{Errno, Error, Result};
use selvedge_kit::telemetry::EventKind;

use super::receive::has_ended;
use super::{Connector, log_error};
use crate::connect::connection::{ConnectError, Connection, ReceiveOutcome};
use crate::connect::control::Unauthenticated;
use crate::connect::packet::{Hello, Packet, ReceivedHello};
use crate::peers::outbox::Inbox;
use crate::peers::peer::{Peer, State as PeerState};
use crate::provider::config::Protocol;
use crate::transfers::cma::CmaProcess;

/// The maximum number of connections between two endpoints: one from each side.
const CONNECTIONS_MAX: usize = 2;

impl Connector<'_> {
    /// Receives packets of unauthenticated connections and accepts new ones, within the limits of
    /// [`crate::connect::accept_limiter`].
    pub(crate) fn accept_connections(&mut self, now: Instant) {
        for _ in 0..self.control.unauthenticated_count() {
            if self.control.accept_limiter.allows_hello()
                && let Some(unauthenticated) = self.control.pop_unauthenticated()
            {
                self.receive_unauthenticated(unauthenticated);
            }
        }
        while let Some(unauthenticated) = self.control.accept(now) {
            self.receive_unauthenticated(unauthenticated);
        }
    }

    fn receive_unauthenticated(&mut self, mut unauthenticated: Unauthenticated) {
        match unauthenticated.connection.receive() {
            Ok(ReceiveOutcome::Empty) => self.control.keep_unauthenticated(unauthenticated),
            Ok(ReceiveOutcome::NoDescriptors) => self
                .control
                .keep_until_descriptors(unauthenticated, Instant::now()),
            Ok(ReceiveOutcome::Closed) => {}
            Ok(ReceiveOutcome::Packet(packet)) => {
                self.control.accept_limiter.count_hello();
                self.handle_unauthenticated(unauthenticated, *packet);
            }
            Err(error) => refuse(unauthenticated.connection, &error),
        }
    }

    fn handle_unauthenticated(&mut self, mut unauthenticated: Unauthenticated, packet: Packet) {
        let packet = match packet {
            Packet::Hello(received) if unauthenticated.has_proved_key() => {
                return self.handle_hello(unauthenticated.connection, received);
            }
            Packet::Hello(received) => {
                let error = self.control.key_mismatch(&received.hello.name);
                return refuse(unauthenticated.connection, &error);
            }
            packet => packet,
        };
        match self.control.check_key_proof(&mut unauthenticated, packet) {
            // If the send fails, the peer reads that the connection is closed.
            Ok(response) if unauthenticated.connection.send(&response, &[]).is_err() => {}
            Ok(_) => self.control.keep_unauthenticated(unauthenticated),
            Err(error) => refuse(unauthenticated.connection, &error),
        }
    }

    /// Handles the hello of a connection.
    pub(crate) fn handle_hello(&mut self, connection: Connection, received: ReceivedHello) {
        if let Err(error) = self.control.check_ep_type(&received.hello) {
            return refuse(connection, &error);
        }
        let has_unexpected = |source| self.matching.has_unexpected_from(source);
        let index = self
            .peers
            .find_or_reuse(&received.hello.name, has_unexpected);
        // Packets of existing connections are handled first, all of them if the incarnation has
        // ended.
        if has_ended(&self.peers[index]) {
            self.receive_all(index)
        } else {
            _ = self.receive_batch(index)
        }
        let peer = &self.peers[index];
        let is_current = peer.incarnation_id == Some(received.hello.incarnation_id);
        let is_draining = matches!(peer.state, PeerState::Draining { .. });
        // The hello may come from an earlier incarnation than the expected one.
        let is_expected = matches!(
            peer.state,
            PeerState::Connected | PeerState::Backlogged | PeerState::Waiting { .. }
        );
        let may_be_previous = is_expected && connection.has_ended();
        let handled = match peer.incarnation_id {
            _ if is_draining => return self.control.keep_early_hello(connection, received),
            None if may_be_previous => self.drain_ended_connection(index, connection, received),
            Some(_) if is_current => self.add_connection(index, connection),
            Some(_) => Err((connection, name_in_use(&peer.name))),
            None => self.accept_hello(index, connection, received),
        };
        if let Err((connection, error)) = handled {
            refuse(connection, &error);
            self.peers.release_unconnected(index);
        }
    }

    /// Adds the second connection of a connected peer.
    fn add_connection(
        &mut self,
        index: usize,
        mut connection: Connection,
    ) -> Result<(), (Connection, Error)> {
        let peer = &mut self.peers[index];
        if peer.connections.len() >= CONNECTIONS_MAX {
            let reason = format!(
                "{} has opened {CONNECTIONS_MAX} connections and opens another",
                peer.name
            );
            return Err((connection, Error::new(Errno::Proto, reason)));
        }
        match self.control.watch_connection(&mut connection, index) {
            Ok(()) => peer.connections.push(connection),
            Err(error) => return Err((connection, error)),
        }
        Ok(())
    }

    /// Attaches the memory that a hello passes, and responds to the hello.
    pub(crate) fn accept_hello(
        &mut self,
        index: usize,
        mut connection: Connection,
        received: ReceivedHello,
    ) -> Result<(), (Connection, Error)> {
        let was_connected = !matches!(
            self.peers[index].state,
            PeerState::Idle | PeerState::Disconnected
        );
        match self.respond_to_hello(index, &mut connection, received) {
            Ok((hello, inbox)) => {
                self.mark_connected(index, connection);
                self.start_incarnation(index, &hello, inbox);
                Ok(())
            }
            Err(error) => {
                if !was_connected {
                    self.peers[index].out = None;
                }
                Err((connection, error))
            }
        }
    }

    fn respond_to_hello(
        &mut self,
        index: usize,
        connection: &mut Connection,
        received: ReceivedHello,
    ) -> Result<(Hello, Inbox), Error> {
        let (hello, inbox) = attach(received)?;
        self.ensure_outbox(index, Some(connection))?;
        self.control.watch_connection(connection, index)?;
        match self.send_hello(index, connection) {
            Ok(()) => {}
            // The peer has closed already. Its messages are received before it is disconnected.
            Err(ConnectError::NotYet(_) | ConnectError::Busy(_)) => {}
            Err(
                ConnectError::Failed(error)
                | ConnectError::Refused(error)
                | ConnectError::Untrusted(error),
            ) => return Err(error),
        }
        Ok((hello, inbox))
    }

    /// Handles the peer's response to this endpoint's hello, or its hello on the second connection.
    pub(super) fn handle_hello_response(
        &mut self,
        index: usize,
        received: ReceivedHello,
    ) -> Result<(), Error> {
        let (peer, hello) = (&self.peers[index], &received.hello);
        if peer.incarnation_id == Some(hello.incarnation_id) {
            return Ok(());
        }
        if peer.incarnation_id.is_some() || hello.name != peer.name {
            let reason = format!("{} responds with the name {}", peer.name, hello.name);
            return Err(Error::new(Errno::Proto, reason));
        }
        self.control.check_ep_type(hello)?;
        let (hello, inbox) = attach(received)?;
        self.start_incarnation(index, &hello, inbox);
        Ok(())
    }

    /// Begins an incarnation of the peer, and starts to poll the peer's commands.
    fn start_incarnation(&mut self, index: usize, hello: &Hello, inbox: Inbox) {
        let peer = &mut self.peers[index];
        peer.incarnation_id = Some(hello.incarnation_id);
        peer.wants_notifications = inbox.region.wants_notifications();
        (peer.needs_slow_path, peer.is_fenced) = (peer.wants_notifications, false);
        peer.sibling = self.setup.shared.siblings.find(&peer.name);
        peer.inbox = Some(inbox);
        peer.keys.expect(hello.key_chunks as usize);
        if self.setup.config.protocol != Protocol::Bounce {
            peer.cma = probe_cma(peer, hello);
        }
        self.setup
            .ep
            .stats
            .record_event(EventKind::Connected, peer.name.as_str(), 0);
        self.schedule
            .start_polling(self.peers, index, &self.setup.ep);
        self.update_telemetry();
    }
}

/// Maps the memory that a hello passes.
fn attach(received: ReceivedHello) -> Result<(Hello, Inbox), Error> {
    let ReceivedHello {
        hello,
        region,
        bell,
    } = received;
    let inbox = Inbox::attach(&hello, region, bell)?;
    Ok((hello, inbox))
}

/// Tests whether the peer's memory can be read by cross-memory attach.
fn probe_cma(peer: &Peer, hello: &Hello) -> Option<CmaProcess> {
    let pid = peer.connections.first().map_or(0, Connection::peer_pid);
    let process = CmaProcess::probe(pid, hello.nonce_addr, hello.nonce);
    if let Err(errno) = process {
        log::info!(
            target: "selvedge::shm::ep_ctrl",
            "{}: no cross-memory attach ({errno}); large messages are bounced", peer.name
        );
    }
    process.ok()
}

fn name_in_use(name: &crate::peers::name::Name) -> Error {
    let reason = format!("another process uses the name {name} while that endpoint is alive");
    Error::new(Errno::AddrInUse, reason)
}

/// Refuses a connection and logs the reason.
fn refuse(connection: Connection, error: &Error) {
    log_error(error);
    connection.refuse(error);
}
