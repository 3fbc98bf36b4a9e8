//! Connections of `FI_EP_RDM` endpoints. The first operation opens one, a failed attempt is
//! retried, and when both sides connect at the same time one of the two connections wins.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use selvedge::Errno;
use selvedge_kit::cq::Sink;
use selvedge_kit::rate_limit::warn_limited;
use selvedge_kit::telemetry::EventKind;

use super::State;
use crate::accept::ConnectionRequest;
use crate::config::CONTROL;
use crate::connection::Stage;
use crate::connection::failure::Failure;
use crate::connection::handshake::{HandshakeContext, HandshakeError, HandshakeStep};
use crate::connection::receive::Disconnect;
use crate::socket::Socket;
use crate::wire::hello::{Hello, Kind, Negotiated, RdmData};

/// The error text for a peer whose private data are not those of an `FI_EP_RDM` endpoint.
const OTHER_PROTOCOL: &str = "the peer is a connected endpoint, or uses a protocol layer over \
                              connections (tcp;ofi_rxm): request tcp and FI_EP_RDM on both sides";
/// The time between two attempts to reach a peer.
const RETRY: Duration = Duration::from_millis(10);

impl State {
    /// Starts to connect to a peer, and returns the index of the connection.
    #[cold]
    pub(super) fn connect_peer(&mut self, peer: usize) -> usize {
        let now = Instant::now();
        let until = now + self.config.connect_timeout;
        let port = self
            .acceptor
            .as_ref()
            .map_or(0, |acceptor| acceptor.addr.port());
        let request = RdmData::request(port).encode().to_vec();
        let index = (self.connections).add(peer, Stage::Connecting { until }, request, now);
        self.peers[peer].connection = Some(index);
        self.start_connect(index, now);
        index
    }

    /// Starts one connection attempt.
    fn start_connect(&mut self, index: usize, now: Instant) {
        let Some(acceptor) = &self.acceptor else {
            return;
        };
        let connection = &mut self.connections[index];
        let peer_addr = self.peers[connection.peer].addr;
        match Socket::connect(acceptor.addr.ip(), peer_addr, &self.config.socket_options) {
            Ok(socket) => {
                connection.stage = Stage::Connecting {
                    until: now + self.config.connect_timeout,
                };
                self.connections.set_socket(index, socket);
                self.watch(index);
            }
            Err(cause) => {
                self.handshake_failed(index, HandshakeError::unreachable(&self.config, cause))
            }
        }
    }

    /// Continues the handshake of a connection. Returns 1 if the handshake made progress, else 0.
    pub(super) fn continue_handshake(&mut self, index: usize) -> usize {
        let connection = &mut self.connections[index];
        let context = HandshakeContext {
            config: &self.config,
            extension: self.extension,
            peer: &self.peers[connection.peer],
            is_rdm: self.cm.is_none(),
        };
        let step = connection.continue_handshake(context);
        let has_progressed = !matches!(step, Ok(HandshakeStep::Idle));
        match step {
            Ok(HandshakeStep::Idle | HandshakeStep::Progressed) => self.watch(index),
            Ok(HandshakeStep::Complete(hello)) if self.cm.is_some() => {
                self.on_passive_response(index, hello);
            }
            Ok(HandshakeStep::Complete(hello)) => self.on_rdm_response(index, &hello),
            Err(error) => self.handshake_failed(index, error),
        }
        usize::from(has_progressed)
    }

    fn on_rdm_response(&mut self, index: usize, hello: &Hello) {
        let rdm_data = RdmData::from_hello(hello).ok();
        let error = match (hello.kind, rdm_data) {
            (Kind::Response, Some(rdm_data)) => {
                self.record_context(self.connections[index].peer, hello);
                return self.establish(
                    index,
                    Negotiated::new(hello, Some(&rdm_data), rdm_data.version_after_response()),
                );
            }
            // The peer prefers its own request, or has another temporary reason. The peer is
            // running, but handshakes with many other peers may delay its response.
            (Kind::Reject, rdm_data) => {
                let timeout = self.config.peer_timeout.max(self.config.connect_timeout);
                let cause = match rdm_data {
                    Some(_) => io::ErrorKind::ConnectionRefused.into(),
                    None => io::Error::new(io::ErrorKind::ConnectionRefused, OTHER_PROTOCOL),
                };
                HandshakeError::Retry(cause, timeout)
            }
            _ => {
                let cause = io::Error::new(io::ErrorKind::InvalidData, OTHER_PROTOCOL);
                HandshakeError::unreachable(&self.config, cause)
            }
        };
        self.handshake_failed(index, error);
    }

    /// Establishes a connection after the handshake, and queues the waiting operations.
    pub(super) fn establish(&mut self, index: usize, negotiated: Negotiated) {
        let connection = &mut self.connections[index];
        connection.end_handshake(Stage::Up);
        let waiting = connection.outgoing.establish(negotiated);
        let peer = &mut self.peers[connection.peer];
        peer.is_disconnected = false;
        self.ep
            .stats
            .record_event(EventKind::Connected, &peer.to_string(), 0);
        for operation in waiting {
            self.queue(index, operation);
        }
        self.polling.focus = index;
        self.connections.mark_stalled(index);
        self.schedule(index);
        self.watch(index);
    }

    /// Handles a failed handshake: schedules a retry, or drops the connection.
    fn handshake_failed(&mut self, index: usize, error: HandshakeError) {
        let (cause, timeout) = match error {
            HandshakeError::Retry(cause, timeout) => (cause, timeout),
            HandshakeError::Fatal(reason) => {
                let cause = io::Error::new(io::ErrorKind::ConnectionRefused, reason);
                (cause, Duration::ZERO)
            }
        };
        let (now, connection) = (Instant::now(), &self.connections[index]);
        let peer = &self.peers[connection.peer];
        if self.cm.is_some() {
            let failure = Failure::not_connected(peer, &cause);
            return self.drop_connection(index, &failure);
        }
        if now.duration_since(connection.since) >= timeout {
            let failure = Failure::unreachable(peer, &cause);
            return self.drop_connection(index, &failure);
        }
        log::info!(target: CONTROL, "{peer} cannot be reached yet, retrying: {cause}");
        self.connections.disconnect(index);
        self.connections[index].end_handshake(Stage::Retrying { until: now + RETRY });
    }

    /// Handles the deadline of a connection whose handshake is not complete.
    pub(super) fn handle_deadline(&mut self, index: usize, now: Instant) {
        let connection = &self.connections[index];
        let peer = &self.peers[connection.peer];
        let failure = match connection.stage {
            Stage::Retrying { .. } => return self.start_connect(index, now),
            Stage::Connecting { .. } if self.cm.is_some() => {
                Failure::not_connected(peer, &io::ErrorKind::TimedOut.into())
            }
            Stage::Connecting { .. } => Failure::new(
                Errno::TimedOut,
                format!("{peer} does not respond within FI_TCP_CONNECT_TIMEOUT"),
            ),
            Stage::TlsHandshake | Stage::Authenticating | Stage::AwaitingResponse => {
                return self.check_response_wait(index, now);
            }
            Stage::Up => return,
        };
        self.drop_connection(index, &failure);
    }

    /// Handles a peer whose host has accepted the connection and whose program has not responded:
    /// logs a warning at doubling intervals, or drops the connection after `FI_TCP_ANSWER_TIMEOUT`.
    #[cold]
    fn check_response_wait(&mut self, index: usize, now: Instant) {
        let connection = &mut self.connections[index];
        let peer = &self.peers[connection.peer];
        let Some(response_wait) = &mut connection.response_wait else {
            return;
        };
        let waited = now.duration_since(response_wait.since);
        let limit = self.config.answer_timeout;
        if !limit.is_zero() && waited >= limit {
            let detail = format!(
                "{peer} does not respond: its host has accepted the connection, but its program has \
                 made no progress within FI_TCP_ANSWER_TIMEOUT, or uses another protocol"
            );
            return self.drop_connection(index, &Failure::new(Errno::TimedOut, detail));
        }
        response_wait.until = response_wait.since + self.config.next_response_check(waited);
        warn_limited(
            CONTROL,
            format_args!(
                "{peer} has not responded for {waited:.1?}: its host has accepted the connection, but \
                 its program makes no progress; still waiting. If that program uses another \
                 protocol, correct the address. FI_TCP_ANSWER_TIMEOUT limits the wait"
            ),
        );
    }

    /// Accepts connections and handles completed requests.
    pub(super) fn accept_requests(&mut self) -> usize {
        let Some(acceptor) = &mut self.acceptor else {
            return 0;
        };
        let requests = acceptor.poll(&self.connections.epoll);
        let count = requests.len();
        requests
            .into_iter()
            .for_each(|request| self.on_request(request));
        count
    }

    /// Handles a peer's connection request.
    fn on_request(&mut self, mut request: ConnectionRequest) {
        let Some(acceptor) = &self.acceptor else {
            return;
        };
        let Ok(rdm_data) = RdmData::from_hello(&request.hello) else {
            let peer_addr = request.peer_addr;
            warn_limited(
                CONTROL,
                format_args!("{peer_addr} is rejected: {OTHER_PROTOCOL}"),
            );
            let hello = Hello::new(Kind::Reject, None, &[]);
            // A peer that does not receive the rejection sees the end of the connection.
            let _ = request.socket.send_all(&hello.encode());
            return;
        };
        let Ok(local) = request.socket.local_addr() else {
            return;
        };
        let local_name = (local.ip(), acceptor.addr.port());
        let peer_name = (request.peer_addr.ip(), rdm_data.port);
        let is_needed = |peer| self.matching.needs_peer(peer);
        let peer = self
            .peers
            .find_or_insert(SocketAddr::from(peer_name), is_needed);
        self.record_context(peer, &request.hello);
        let index = if local_name == peer_name {
            Some(self.add_accepted(peer))
        } else {
            let is_peer_lower = is_lower(peer_name, local_name);
            self.connection_for_request(peer, &request, &rdm_data, is_peer_lower)
        };
        match index {
            Some(index) => self.accept(index, request, &rdm_data),
            None => {
                let hello = Hello::new(Kind::Reject, None, &rdm_data.encode());
                // A peer that does not receive the rejection sees the end of the connection.
                let _ = request.socket.send_all(&hello.encode());
            }
        }
    }

    fn add_accepted(&mut self, peer: usize) -> usize {
        (self.connections).add(peer, Stage::Up, Vec::new(), Instant::now())
    }

    /// Records the context number of a peer's hello message.
    fn record_context(&mut self, peer: usize, hello: &Hello) {
        if let Some(extension) = hello.extension {
            self.peers[peer].set_context(extension.context);
        }
    }

    /// Returns the connection that takes a peer's request, or `None` to reject the request. When
    /// both sides send a request, the request of the side with the higher address wins.
    fn connection_for_request(
        &mut self,
        peer: usize,
        request: &ConnectionRequest,
        rdm_data: &RdmData,
        is_peer_lower: bool,
    ) -> Option<usize> {
        if let Some(index) = self.peers[peer].connection
            && self.connections[index].is_up()
        {
            // The old connection may have ended, and this endpoint has not read the end.
            let id = self.connections[index].id;
            self.read(index, usize::MAX, &mut Sink::none());
            if self.connections.contains(id) {
                let negotiated = self.connections[index].negotiated();
                let incarnation = request.hello.extension.map(|it| it.incarnation);
                let is_same_incarnation = match (negotiated.incarnation, incarnation) {
                    (Some(previous), Some(new)) => previous == new,
                    (None, None) => negotiated.pid == rdm_data.pid,
                    _ => false,
                };
                if is_same_incarnation {
                    return None;
                }
                let detail = format!("{} has restarted", self.peers[peer]);
                self.drop_connection(index, &Failure::new(Errno::ConnReset, detail));
            }
        }
        let Some(index) = self.peers[peer].connection else {
            let index = self.add_accepted(peer);
            self.peers[peer].connection = Some(index);
            return Some(index);
        };
        let is_requesting = match self.connections[index].stage {
            Stage::Connecting { .. }
            | Stage::TlsHandshake
            | Stage::Authenticating
            | Stage::AwaitingResponse => true,
            Stage::Retrying { .. } | Stage::Up => false,
        };
        (!is_requesting || !is_peer_lower).then_some(index)
    }

    /// Accepts a peer's request.
    fn accept(&mut self, index: usize, request: ConnectionRequest, rdm_data: &RdmData) {
        let ConnectionRequest {
            mut socket,
            hello,
            trailing,
            ..
        } = request;
        let extension = hello.extension.map(|_| self.extension);
        let response = Hello::new(Kind::Response, extension, &rdm_data.response().encode());
        let sent = socket.send_all(&response.encode());
        self.connections.set_socket(index, socket);
        self.connections[index].incoming.keep_trailing(&trailing);
        if let Err(cause) = sent {
            return self.disconnect(index, Disconnect::Closed(Err(cause)));
        }
        self.establish(
            index,
            Negotiated::new(&hello, Some(rdm_data), rdm_data.version_after_request()),
        );
    }
}

/// Whether the first address is lower. All releases compare addresses by their bytes in network
/// order.
fn is_lower(first: (IpAddr, u16), second: (IpAddr, u16)) -> bool {
    let octets = |ip| match ip {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    (octets(first.0), first.1) < (octets(second.0), second.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_compare_by_their_bytes() {
        let addr = |text: &str| {
            let addr: SocketAddr = text.parse().unwrap();
            (addr.ip(), addr.port())
        };
        let ascending = ["9.0.0.1:9", "10.0.0.1:1", "10.0.0.1:256", "10.0.0.2:1"];
        for pair in ascending.windows(2) {
            assert!(is_lower(addr(pair[0]), addr(pair[1])), "{pair:?}");
            assert!(!is_lower(addr(pair[1]), addr(pair[0])), "{pair:?}");
        }
        assert!(!is_lower(addr("10.0.0.1:1"), addr("10.0.0.1:1")));
    }
}
