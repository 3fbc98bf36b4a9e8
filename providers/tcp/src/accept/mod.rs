//! `Acceptor`: the listener of an endpoint, and its unauthenticated connections.
//!
//! A connection is unauthenticated until its hello message has arrived. The acceptor closes an
//! unauthenticated connection after the connect timeout, or sooner while all slots are in use, when
//! further connections wait in the kernel's backlog. After malformed input, it closes the
//! connection at once. Established connections are not affected.

pub(crate) mod contexts;
pub(crate) mod listen;

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use selvedge::Error;
use selvedge_kit::auth::AuthKey;
use selvedge_kit::ip::canonical_addr;
use selvedge_kit::rate_limit::warn_limited;

use crate::accept::listen::{ANYWHERE, Listener, listen, listen_error, warn_if_public};
use crate::config::{CONTROL, Config};
use crate::socket::tls::{HANDSHAKE_FAILURE, HANDSHAKE_RECORD, is_tls_error, unexpected_tls};
use crate::socket::{Socket, is_not_ready};
use crate::wire::ProtocolError;
use crate::wire::hello::{DATA_MAX, HEADER, Hello, Kind};
use crate::wire::proof::{PROOF_MAGIC, Server};

/// Maximum number of connections that one poll accepts.
const ACCEPTS: usize = 64;
/// The `epoll(7)` token of the listener and of unauthenticated connections.
pub(crate) const ACCEPTOR: u64 = u64::MAX;
/// How long a connection may stay unauthenticated while all slots are in use. The time is long
/// enough for the handshakes of many peers that share one core.
const CONTENDED_TIMEOUT: Duration = Duration::from_millis(20);

/// A listener and its unauthenticated connections.
#[derive(Debug)]
pub(crate) struct Acceptor {
    listener: Listener,
    /// The listener's address.
    pub(crate) addr: SocketAddr,
    /// The unauthenticated connections, oldest first.
    unauthenticated: VecDeque<Unauthenticated>,
    /// Connection requests that the application has neither accepted nor rejected.
    unanswered_requests: usize,
    /// Whether the listener's events are disabled because there is no room for a connection.
    is_paused: bool,
    /// A spare descriptor, used to accept and close a connection when the process has none left.
    spare_fd: Option<File>,
    config: Config,
}

/// A connection that has not completed its handshake.
#[derive(Debug)]
struct Unauthenticated {
    socket: Socket,
    peer_addr: SocketAddr,
    /// The authorization key that the peer must prove to have.
    key: AuthKey,
    proof: Server,
    received: Vec<u8>,
    /// The epoll events that are enabled for the socket.
    watched: EpollFlags,
    accepted_at: Instant,
}

/// A connection whose request (hello message) has arrived.
#[derive(Debug)]
pub(crate) struct ConnectionRequest {
    pub(crate) socket: Socket,
    pub(crate) peer_addr: SocketAddr,
    pub(crate) hello: Hello,
    /// Bytes that arrived after the hello message.
    pub(crate) trailing: Vec<u8>,
}

impl Acceptor {
    /// Listens at an address. Port 0 stands for a port of the configured range or, without a range,
    /// for one that the system chooses.
    ///
    /// # Errors
    /// System errors, with the address.
    pub(crate) fn open(addr: SocketAddr, config: &Config, epoll: &Epoll) -> Result<Self, Error> {
        let listener = listen(addr, config).map_err(|cause| listen_error(addr, cause))?;
        Self::from_listener(listener, config, epoll)
    }

    /// Accepts connections at an open listener.
    ///
    /// # Errors
    /// System errors.
    pub(crate) fn from_listener(
        listener: Listener,
        config: &Config,
        epoll: &Epoll,
    ) -> Result<Self, Error> {
        let addr = listener.fd().local_addr();
        let addr = canonical_addr(addr.map_err(|cause| listen_error(ANYWHERE, cause))?);
        let nonblocking = listener.fd().set_nonblocking(true);
        nonblocking.map_err(|cause| listen_error(addr, cause))?;
        let event = EpollEvent::new(EpollFlags::EPOLLIN, ACCEPTOR);
        epoll
            .add(&listener, event)
            .map_err(|cause| listen_error(addr, cause.into()))?;
        if !config.authenticates_peers() {
            warn_if_public(addr);
        }
        Ok(Self {
            listener,
            addr,
            unauthenticated: VecDeque::new(),
            unanswered_requests: 0,
            is_paused: false,
            spare_fd: File::open("/dev/null").ok(),
            config: config.clone(),
        })
    }

    /// Whether there is no unauthenticated connection.
    pub(crate) fn is_idle(&self) -> bool {
        self.unauthenticated.is_empty()
    }

    /// Returns when the oldest unauthenticated connection expires.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let first = self.unauthenticated.front()?;
        Some(first.accepted_at + self.timeout())
    }

    /// Returns how long a connection may stay unauthenticated.
    fn timeout(&self) -> Duration {
        if self.is_backlog_full() {
            self.config.connect_timeout.min(CONTENDED_TIMEOUT)
        } else {
            self.config.connect_timeout
        }
    }

    /// Closes expired connections. Enables the listener's events again if there is room.
    pub(crate) fn expire(&mut self, now: Instant, epoll: &Epoll) {
        let timeout = self.timeout();
        while let Some(expired) = self
            .unauthenticated
            .pop_front_if(|it| it.accepted_at + timeout <= now)
        {
            warn_limited(
                CONTROL,
                format_args!(
                    "{} is closed: it connected and sent no complete handshake in time",
                    expired.peer_addr
                ),
            );
        }
        self.set_paused(self.is_full(0), epoll);
    }

    /// Sets the number of connection requests that wait for the application. `FI_TCP_REQUESTS`
    /// limits the sum of these requests and the unauthenticated connections.
    pub(crate) fn set_unanswered_requests(&mut self, unanswered_requests: usize, epoll: &Epoll) {
        self.unanswered_requests = unanswered_requests;
        self.set_paused(self.is_full(0), epoll);
    }

    /// Whether there is no room for another connection. `requests` is the number of requests that
    /// this poll has completed.
    fn is_full(&self, requests: usize) -> bool {
        let pending = self.unauthenticated.len() + self.unanswered_requests + requests;
        self.is_backlog_full() || pending >= self.config.max_requests
    }

    /// Whether all slots of unauthenticated connections are in use.
    fn is_backlog_full(&self) -> bool {
        self.unauthenticated.len() >= self.config.max_unauthenticated
    }

    /// Enables or disables the events of the listener.
    fn set_paused(&mut self, is_paused: bool, epoll: &Epoll) {
        if is_paused == self.is_paused {
            return;
        }
        let interest = if is_paused {
            EpollFlags::empty()
        } else {
            EpollFlags::EPOLLIN
        };
        let event = &mut EpollEvent::new(interest, ACCEPTOR);
        // If it fails, the listener keeps its state and the next call tries again.
        if epoll.modify(&self.listener, event).is_ok() {
            self.is_paused = is_paused;
        }
    }

    /// Reads the unauthenticated connections and accepts new ones. Returns the completed requests.
    pub(crate) fn poll(&mut self, epoll: &Epoll) -> Vec<ConnectionRequest> {
        let mut requests = Vec::new();
        for _ in 0..self.unauthenticated.len() {
            let connection = self.unauthenticated.pop_front();
            requests.extend(connection.and_then(|it| self.read_handshake(it, epoll)));
        }
        for _ in 0..ACCEPTS {
            if self.is_full(requests.len()) {
                break;
            }
            match self.listener.fd().accept() {
                Ok((stream, peer_addr)) => {
                    requests.extend(self.accept_stream(stream, peer_addr, epoll))
                }
                Err(cause) if is_not_ready(&cause) => break,
                Err(cause) => {
                    if !self.reject_without_descriptor(&cause) {
                        break;
                    }
                }
            }
        }
        self.set_paused(self.is_full(requests.len()), epoll);
        requests
    }

    fn read_handshake(
        &mut self,
        connection: Unauthenticated,
        epoll: &Epoll,
    ) -> Option<ConnectionRequest> {
        match connection.read() {
            HandshakeOutcome::Pending(mut connection) => {
                connection.watch(epoll);
                self.unauthenticated.push_back(connection);
                None
            }
            HandshakeOutcome::Complete(request) => {
                let _ = epoll.delete(&request.socket);
                Some(request)
            }
            HandshakeOutcome::Closed => None,
        }
    }

    /// Adds an accepted connection. Returns its request if that has already arrived.
    fn accept_stream(
        &mut self,
        stream: TcpStream,
        peer_addr: SocketAddr,
        epoll: &Epoll,
    ) -> Option<ConnectionRequest> {
        let mut socket = Socket::new(stream, &self.config.socket_options).ok()?;
        if let Some(tls) = &self.config.tls {
            socket.set_tls(tls.server_session().ok()?);
        }
        let event = EpollEvent::new(EpollFlags::EPOLLIN, ACCEPTOR);
        epoll.add(&socket, event).ok()?;
        let connection = Unauthenticated {
            socket,
            peer_addr: canonical_addr(peer_addr),
            key: self.config.key,
            proof: Server::new(&self.config.key),
            received: Vec::new(),
            watched: EpollFlags::EPOLLIN,
            accepted_at: Instant::now(),
        };
        self.read_handshake(connection, epoll)
    }

    /// Handles a failure of accept(2). When descriptors are exhausted, it frees the spare one,
    /// accepts a connection with it and closes that connection at once. Otherwise the connection
    /// would wait and keep the listener readable. Returns whether more connections may wait.
    fn reject_without_descriptor(&mut self, cause: &io::Error) -> bool {
        let is_short = matches!(cause.raw_os_error(), Some(libc::EMFILE | libc::ENFILE));
        if !is_short || self.spare_fd.take().is_none() {
            return !is_short && cause.kind() == io::ErrorKind::ConnectionAborted;
        }
        let accepted = self.listener.fd().accept();
        if let Ok((_, peer_addr)) = &accepted {
            warn_limited(
                CONTROL,
                format_args!(
                    "{peer_addr} is closed: the process has no file descriptor left ({cause}); raise its limit (RLIMIT_NOFILE)"
                ),
            );
        }
        let accepted_one = accepted.is_ok();
        drop(accepted);
        self.spare_fd = File::open("/dev/null").ok();
        accepted_one
    }
}

enum HandshakeOutcome {
    Pending(Unauthenticated),
    Complete(ConnectionRequest),
    Closed,
}

impl Unauthenticated {
    /// Enables the write event while TLS records wait for room in the socket.
    fn watch(&mut self, epoll: &Epoll) {
        let mut interest = EpollFlags::EPOLLIN;
        interest.set(EpollFlags::EPOLLOUT, self.socket.has_unsent_records());
        if interest != self.watched {
            self.watched = interest;
            // If it fails, the connection expires like a silent one.
            let _ = epoll.modify(&self.socket, &mut EpollEvent::new(interest, ACCEPTOR));
        }
    }

    fn read(mut self) -> HandshakeOutcome {
        if self.socket.has_unsent_records() && self.socket.flush_records().is_err() {
            return HandshakeOutcome::Closed;
        }
        let mut bytes = [0; HEADER + DATA_MAX];
        match self.socket.recv_bytes(&mut bytes) {
            Ok(0) => return HandshakeOutcome::Closed,
            Ok(count) => self.received.extend_from_slice(&bytes[..count]),
            Err(cause) if is_not_ready(&cause) => return HandshakeOutcome::Pending(self),
            Err(cause) => return self.close_after_error(&cause),
        }
        if !self.socket.is_encrypted() && self.received.starts_with(&HANDSHAKE_RECORD) {
            let _ = self.socket.send_all(&HANDSHAKE_FAILURE);
            return self.close_after_error(&unexpected_tls());
        }
        let outcome = match self.check_proof() {
            Ok(true) => self.parse_request(),
            Ok(false) => HandshakeOutcome::Pending(self),
            Err(ProtocolError(reason)) => self.reject(reason),
        };
        match outcome {
            // The socket reports no event for input that TLS has buffered.
            HandshakeOutcome::Pending(connection) if connection.socket.has_buffered_input() => {
                connection.read()
            }
            outcome => outcome,
        }
    }

    /// Closes a connection after an error, and logs a TLS error.
    fn close_after_error(mut self, cause: &io::Error) -> HandshakeOutcome {
        if is_tls_error(cause) {
            warn_limited(
                CONTROL,
                format_args!("{} is rejected: {cause}", self.peer_addr),
            );
            // Lets the peer receive the alert.
            self.socket.close_gracefully();
        }
        HandshakeOutcome::Closed
    }

    /// Continues the proof of the key. Returns true when it is complete, or not required.
    fn check_proof(&mut self) -> Result<bool, ProtocolError> {
        while let Some(response) = self.proof.receive(&self.key, &mut self.received)? {
            // If the send fails, the peer sees the close.
            let _ = self.socket.send_all(&response);
        }
        Ok(self.proof.is_proved())
    }

    fn parse_request(mut self) -> HandshakeOutcome {
        if self.received.starts_with(&PROOF_MAGIC) {
            return self.reject("a proof of an auth_key, and this endpoint has no auth_key");
        }
        match Hello::parse(&self.received) {
            Ok(None) => HandshakeOutcome::Pending(self),
            Ok(Some((hello, len))) if hello.kind == Kind::Request => {
                HandshakeOutcome::Complete(ConnectionRequest {
                    trailing: self.received.split_off(len),
                    socket: self.socket,
                    peer_addr: self.peer_addr,
                    hello,
                })
            }
            Ok(Some(_)) => self.reject("a hello response without a request"),
            Err(ProtocolError(reason)) => self.reject(reason),
        }
    }

    fn reject(self, reason: &str) -> HandshakeOutcome {
        warn_limited(
            CONTROL,
            format_args!("{} is closed: it sent {reason}", self.peer_addr),
        );
        HandshakeOutcome::Closed
    }
}
