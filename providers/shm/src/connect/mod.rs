//! `Connector`: connects peers, receives their packets and ends their incarnations.
//!
//! The first message to a peer connects to it: the message is in the outbox before the peer
//! receives the hello. With an authorization key, both sides prove the key first, and messages wait
//! in the outbox. A peer responds to a hello with a hello of its own. If both connect at the same
//! time, each side takes the other's first hello and ignores the second, which has the same
//! content.
//!
//! The module `disconnect` ends incarnations.

pub(crate) mod accept_limiter;
pub(crate) mod connection;
pub(crate) mod control;
pub(crate) mod directory;
pub(crate) mod discard;
pub(crate) mod disconnect;
pub(crate) mod exchange;
pub(crate) mod incarnation;
pub(crate) mod liveness;
pub(crate) mod packet;
pub(crate) mod user;

use std::time::{Duration, Instant};

use nix::poll::PollFlags;
use selvedge::{Errno, Error, Result};
use selvedge_kit::cq::Sink;
use selvedge_kit::rate_limit::warn_limited;
use selvedge_kit::telemetry::EventKind;

use crate::connect::connection::{
    ConnectError, Connection, PACKETS_MAX, PACKETS_PER_POLL, ReceiveOutcome,
};
use crate::connect::control::{Control, SocketEvent, Unauthenticated};
use crate::connect::liveness::is_ready;
use crate::connect::packet::{Hello, Packet, ReceivedHello};
use crate::matching::Matching;
use crate::matching::command_receiver::CommandReceiver;
use crate::peers::Peers;
use crate::peers::outbox::{Inbox, Outbox};
use crate::peers::peer::{NextConnection, Peer, State as PeerState};
use crate::peers::telemetry;
use crate::progress::schedule::Schedule;
use crate::provider::config::Protocol;
use crate::provider::setup::Setup;
use crate::smr::bounce::{BounceReceiver, Shape};
use crate::transfers::cma::CmaProcess;
use crate::transfers::transfer;

/// The parts of an endpoint that change when peers connect and disconnect.
#[derive(Debug)]
pub(crate) struct Connector<'a> {
    pub(crate) setup: &'a Setup,
    pub(crate) peers: &'a mut Peers,
    pub(crate) matching: &'a mut Matching,
    pub(crate) schedule: &'a mut Schedule,
    pub(crate) control: &'a mut Control,
}

/// The additional timeout, after `FI_SHM_PEER_TIMEOUT`, for a peer that exists and has no room for
/// another connection.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum number of commands that are taken from a peer when it wakes the endpoint.
const BUDGET: usize = 64;

/// The maximum number of connections between two endpoints: one from each side.
const CONNECTIONS_MAX: usize = 2;

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
                self.ensure_outbox(index).map_err(|e| log_error(&e))?;
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
        self.ensure_outbox(index)?;
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

    fn is_draining(&self, index: usize) -> bool {
        matches!(self.peers[index].state, PeerState::Draining { .. })
    }

    fn ensure_outbox(&mut self, index: usize) -> Result<(), Error> {
        let peer = &mut self.peers[index];
        if peer.out.is_none() {
            let addr = peer.fi_addr(&self.setup.av);
            let out = Outbox::create(&peer.name, addr, &self.setup.config)?;
            if self.setup.ep.counts_remote_access() {
                out.region.request_notifications();
            }
            peer.out = Some(out);
        }
        Ok(())
    }

    fn send_hello(&mut self, index: usize, connection: &Connection) -> Result<(), ConnectError> {
        let peer = &mut self.peers[index];
        let is_first = peer.connections.is_empty();
        let region = &peer.outbox().region;
        let Setup { config, shared, .. } = self.setup;
        let control = &*self.control;
        let send_hello =
            || control.send_hello(connection, index, region, config, shared.key_chunks());
        match is_first {
            true => shared.announcements.add_subscriber(connection, send_hello),
            false => send_hello(),
        }
    }

    /// Adds the connection over which the peer has received the outbox, and completes the sends
    /// that waited for it.
    fn mark_connected(&mut self, index: usize, connection: Connection) {
        let peer = &mut self.peers[index];
        if peer.pidfd.is_none() {
            peer.pidfd = connection
                .peer_pidfd()
                .filter(|fd| self.control.watch_process(fd, index).is_ok());
        }
        (peer.next_connection, peer.search_mark) = (None, None);
        peer.connections.push(connection);
        peer.state = match peer.deferred.is_empty() {
            true => PeerState::Connected,
            false => PeerState::Backlogged,
        };
        for report in std::mem::take(&mut peer.held_sends) {
            report.done(&self.setup.ep);
        }
        self.update_telemetry();
    }

    /// Polls the sockets for new connections, packets of peers, and closed connections.
    pub(crate) fn poll_sockets(&mut self, now: Instant) {
        self.setup.shared.announcements.catch_up();
        self.control.accept_limiter.begin(now);
        let mut has_unauthenticated =
            self.control.has_expired_connection(now) || self.control.is_out_of_descriptors();
        for event in self.control.events() {
            match event {
                SocketEvent::Unauthenticated => has_unauthenticated = true,
                SocketEvent::Peer(index) => self.receive_ready(index),
            }
        }
        for index in self.control.take_peers_without_descriptors() {
            self.resume_receive(index as usize);
        }
        for index in self.control.due_retries(now) {
            self.retry_connect(index, now);
        }
        for index in std::mem::take(&mut self.schedule.ending) {
            self.continue_drain(index as usize);
        }
        for (connection, received) in self.control.take_early_hellos() {
            self.handle_hello(connection, received);
        }
        if has_unauthenticated {
            self.accept_connections(now);
            self.control.drop_expired_connections(now);
        }
        self.control.check_name_files(now);
    }

    /// Tries again to connect to a peer, or fails its operations after the deadline.
    fn retry_connect(&mut self, index: usize, now: Instant) {
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

    /// Receives packets of unauthenticated connections and accepts new ones, within the limits of
    /// [`accept_limiter`].
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
        match has_ended(&self.peers[index]) {
            true => self.receive_all(index),
            false => _ = self.receive_batch(index),
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
        self.ensure_outbox(index)?;
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

    /// Receives up to [`PACKETS_PER_POLL`] packets of a peer. Returns whether no more wait.
    pub(crate) fn receive_batch(&mut self, index: usize) -> bool {
        self.receive_until(index, PACKETS_PER_POLL, |_| false)
    }

    /// Receives packets of a peer whose socket is ready, up to a wake packet. The wake packet is
    /// usually the only one; packets behind it make the socket ready at the next poll.
    fn receive_ready(&mut self, index: usize) {
        self.receive_until(index, PACKETS_PER_POLL, |packet| {
            matches!(packet, Packet::Wake)
        });
    }

    /// Receives from a peer whose next packet waited for free descriptors.
    #[cold]
    fn resume_receive(&mut self, index: usize) {
        for connection in &mut self.peers[index].connections {
            if let Err(cause) = connection.rewatch() {
                let error = Error::new(Errno::from_raw(cause as i32), "watching a peer");
                return self.disconnect_after_error(index, &error.because(cause));
            }
        }
        self.receive_ready(index);
    }

    /// Receives all packets of a peer that wait now, and handles the end of its connection. The
    /// limit is [`PACKETS_MAX`] packets, so that a peer that keeps sending does not block the
    /// caller.
    pub(crate) fn receive_all(&mut self, index: usize) {
        self.receive_until(index, PACKETS_MAX, |_| false);
    }

    /// Receives up to `max` packets, or up to one for which `is_last` holds. Returns whether no
    /// more wait.
    fn receive_until(&mut self, index: usize, max: usize, is_last: fn(&Packet) -> bool) -> bool {
        for _ in 0..max {
            match next_packet(&mut self.peers[index]) {
                Ok(ReceiveOutcome::Empty) => return true,
                Ok(ReceiveOutcome::NoDescriptors) => {
                    self.peers[index]
                        .connections
                        .iter_mut()
                        .for_each(Connection::unwatch);
                    self.control.wait_for_descriptors(index);
                    return true;
                }
                Ok(ReceiveOutcome::Closed) => {
                    self.end_incarnation(index, Errno::ConnReset, "it has closed or died");
                    return true;
                }
                Ok(ReceiveOutcome::Packet(packet)) => {
                    if let Packet::Refusal { errno, reason } = *packet {
                        self.handle_refusal(index, errno, &reason);
                        return true;
                    }
                    let is_last = is_last(&packet);
                    if let Err(error) = self.handle_packet(index, *packet) {
                        self.disconnect_after_error(index, &error);
                        return true;
                    }
                    if is_last {
                        return false;
                    }
                }
                Err(error) => {
                    self.disconnect_after_error(index, &error);
                    return true;
                }
            }
        }
        false
    }

    fn handle_packet(&mut self, index: usize, packet: Packet) -> Result<(), Error> {
        let peer = &mut self.peers[index];
        match packet {
            Packet::Hello(received) => self.handle_hello_response(index, received),
            Packet::Bounce {
                segment_count,
                segment_size,
                fd,
            } => {
                let shape = Shape {
                    count: segment_count as usize,
                    size: segment_size as usize,
                };
                if peer.bounce.is_some() {
                    return Err(Error::new(Errno::Proto, "it sends a second bounce region"));
                }
                peer.bounce = Some(BounceReceiver::attach(fd, shape)?);
                Ok(())
            }
            Packet::Block { info, fd } => peer.blocks.map(info, fd),
            Packet::Release { block } => {
                peer.blocks.release(block);
                peer.mapped_regions.clear();
                Ok(())
            }
            Packet::Keys { chunk, fd } => peer.keys.attach(chunk as usize, fd),
            Packet::Abort { msg_id, errno } => {
                let src = peer.fi_addr(&self.setup.av);
                match transfer::abort_incoming(peer, &self.setup.ep, src, msg_id, errno) {
                    true => Ok(()),
                    false => Err(Error::new(
                        Errno::Proto,
                        "it aborts a message whose segments were not requested",
                    )),
                }
            }
            Packet::Wake => {
                self.handle_wake(index);
                Ok(())
            }
            Packet::KeyRequest { .. } | Packet::Nonce(_) | Packet::Proof(_) => Err(Error::new(
                Errno::Proto,
                "it sends a key proof that was not requested",
            )),
            Packet::Refusal { errno, reason } => Err(Error::new(errno, reason)),
        }
    }

    /// Handles a wake packet.
    fn handle_wake(&mut self, index: usize) {
        let ep = &self.setup.ep;
        self.peers[index].wake_up.spend();
        self.schedule.spend_wakeup(ep);
        self.schedule.start_polling(self.peers, index, ep);
        self.take_commands(index, BUDGET);
    }

    /// Takes up to `budget` commands of a peer, outside of a read of a completion queue.
    pub(crate) fn take_commands(&mut self, index: usize, budget: usize) {
        let mut receiver = CommandReceiver {
            setup: self.setup,
            matching: self.matching,
            schedule: self.schedule,
            peers: self.peers.len(),
        };
        receiver.poll(&mut self.peers[index], budget, &mut Sink::none());
    }

    /// Returns the error of a post that found no room for its command. Disconnects a peer that has
    /// published an invalid credit.
    pub(crate) fn reserve_error(&mut self, index: usize, errno: Errno) -> Errno {
        if errno != Errno::Proto {
            return errno;
        }
        self.disconnect_for_violation(index, "credit for commands that were never sent");
        Errno::NotConn
    }

    fn update_telemetry(&self) {
        telemetry::update_now(self.setup, self.peers, self.matching, Instant::now());
    }

    /// Handles the peer's response to this endpoint's hello, or its hello on the second connection.
    fn handle_hello_response(
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
}

/// Receives the next packet of a peer, over any connection. The end of the connection is reported
/// last: if the process has exited, the sockets are read once more, because the process may have
/// sent packets after the first read.
fn next_packet(peer: &mut Peer) -> Result<ReceiveOutcome, Error> {
    match receive_any(peer)? {
        ReceiveOutcome::Empty if has_exited(peer) => Ok(match receive_any(peer)? {
            ReceiveOutcome::Empty => ReceiveOutcome::Closed,
            outcome => outcome,
        }),
        outcome => Ok(outcome),
    }
}

fn receive_any(peer: &mut Peer) -> Result<ReceiveOutcome, Error> {
    let mut is_closed = false;
    for connection in &mut peer.connections {
        match connection.receive()? {
            ReceiveOutcome::Empty => {}
            ReceiveOutcome::Closed => is_closed = true,
            outcome @ (ReceiveOutcome::Packet(_) | ReceiveOutcome::NoDescriptors) => {
                return Ok(outcome);
            }
        }
    }
    Ok(if is_closed {
        ReceiveOutcome::Closed
    } else {
        ReceiveOutcome::Empty
    })
}

/// Whether the peer has closed a connection or its process has exited. Only packets that wait
/// already can follow.
fn has_ended(peer: &Peer) -> bool {
    has_exited(peer) || peer.connections.iter().any(Connection::has_ended)
}

/// Whether the peer's process has exited.
fn has_exited(peer: &Peer) -> bool {
    let pidfd = peer.pidfd.as_ref();
    pidfd.is_some_and(|fd| is_ready(fd, PollFlags::POLLIN))
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

/// Logs an error where it is decided, and returns its number.
fn log_error(error: &Error) -> Errno {
    warn_limited("selvedge::shm::ep_ctrl", format_args!("{error}"));
    error.errno()
}
