//! `Control`: the listening socket of an endpoint, its unauthenticated connections, and the
//! `epoll(7)` descriptor that watches them, the connections of its peers and their pidfds.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use selvedge::info::EpType;
use selvedge::{Errno, Error};
use selvedge_kit::auth::AuthKey;
use selvedge_kit::auth::proof::{Mismatch, Responder};
use selvedge_kit::rate_limit::warn_limited;

use crate::connect::accept_limiter::AcceptLimiter;
use crate::connect::connection::{AcceptOutcome, ConnectError, Connection, Listener};
use crate::connect::directory;
use crate::connect::discard;
use crate::connect::packet::{Bytes, Hello, Packet, ReceivedHello, encode_nonce, encode_proof};
use crate::peers::name::{Name, random};
use crate::provider::config::Config;
use crate::smr::Memory;
use crate::smr::doorbell::Doorbell;

/// The maximum number of events that one poll handles. The disconnect of a peer is an event that
/// takes some hundred microseconds.
const EVENTS: usize = 8;
/// Interval between attempts to connect to peers that do not exist yet.
const RETRY_INTERVAL: Duration = Duration::from_micros(500);
/// The maximum number of attempts to connect in one interval.
const RETRIES_PER_INTERVAL: usize = 16;

/// The sockets of an endpoint, and the content of its hello.
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) name: Name,
    pub(crate) incarnation_id: u128,
    ep_type: EpType,
    pub(crate) key: AuthKey,
    nonce: Box<u64>,
    pub(crate) listener: Listener,
    /// The directory of the name, if the name is a file.
    directory: Option<Arc<Path>>,
    /// The time of the next check that the name's file exists.
    next_name_check: Instant,
    epoll: Arc<Epoll>,
    pub(crate) doorbell: Doorbell,
    doorbell_memory: Memory,
    /// The maximum number of unauthenticated connections.
    unauthenticated_max: usize,
    /// The timeout of an unauthenticated connection's hello.
    hello_timeout: Duration,
    /// Limits the number of connections that one poll accepts.
    pub(crate) accept_limiter: AcceptLimiter,
    /// Connections whose hello was not received yet.
    unauthenticated: VecDeque<Unauthenticated>,
    /// Connections whose hello was received during the drain of an earlier incarnation of the peer.
    early_hellos: Vec<(Connection, ReceivedHello)>,
    /// Peers that do not exist yet, with scheduled attempts to connect.
    retries: VecDeque<u32>,
    next_retry: Instant,
    pub(crate) exchange: AddressExchange,
    /// Whether connections wait in the backlog for free descriptors.
    is_out_of_descriptors: bool,
    /// Peers whose next packet waits for free descriptors.
    peers_without_descriptors: Vec<u32>,
}

/// State of the eager address exchange with the peers of the address vector.
#[derive(Debug, Default)]
pub(crate) struct AddressExchange {
    /// The epoch of the address vector at the last exchange.
    pub(crate) epoch: Option<u64>,
    /// The time of the next exchange, while a peer is not connected.
    pub(crate) next_time: Option<Instant>,
}

/// A connection whose hello was not received yet.
#[derive(Debug)]
pub(crate) struct Unauthenticated {
    pub(crate) connection: Connection,
    /// The start of the hello timeout.
    since: Instant,
    /// The state of the key proof.
    proof: Responder,
    /// The name in the key request.
    name: Option<Name>,
}

impl Unauthenticated {
    /// Whether the connection may send a hello.
    pub(crate) fn has_proved_key(&self) -> bool {
        self.proof.is_verified()
    }
}

/// A socket that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocketEvent {
    /// The listener, or an unauthenticated connection.
    Unauthenticated,
    /// A connection or the pidfd of a peer, by the peer's number.
    Peer(usize),
}

/// The `epoll(7)` token of the listener and of unauthenticated connections.
const UNAUTHENTICATED: u64 = u64::MAX;

impl Control {
    /// Binds the name and creates the sockets and the doorbell.
    pub(crate) fn open(
        name: Name,
        ep_type: EpType,
        key: AuthKey,
        config: &Config,
    ) -> Result<Self, Error> {
        let directory = config.directory.clone();
        let listener = Listener::bind(&name, directory.as_deref())?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)
            .map_err(|e| failed("watching sockets", e))?
            .into();
        let (doorbell, doorbell_memory) = Doorbell::create()?;
        let control = Self {
            name,
            incarnation_id: u128::from(random()) << 64 | u128::from(random()),
            ep_type,
            key,
            unauthenticated_max: config.unauthenticated_max,
            hello_timeout: config.hello_timeout,
            nonce: Box::new(random()),
            listener,
            directory,
            next_name_check: Instant::now() + directory::INTERVAL,
            epoll,
            doorbell,
            doorbell_memory,
            accept_limiter: AcceptLimiter::new(Instant::now()),
            unauthenticated: VecDeque::new(),
            early_hellos: Vec::new(),
            retries: VecDeque::new(),
            next_retry: Instant::now(),
            exchange: AddressExchange::default(),
            is_out_of_descriptors: false,
            peers_without_descriptors: Vec::new(),
        };
        map_watch_error(control.watch(control.listener.fd(), UNAUTHENTICATED))?;
        Ok(control)
    }

    /// Returns the `epoll(7)` descriptor, which is readable when a socket is ready.
    pub(crate) fn epoll(&self) -> Arc<Epoll> {
        Arc::clone(&self.epoll)
    }

    /// Whether work is pending that no socket reports.
    pub(crate) fn needs_polling(&self) -> bool {
        let waits = !self.retries.is_empty() || !self.early_hellos.is_empty();
        waits || self.is_out_of_descriptors || !self.peers_without_descriptors.is_empty()
    }

    /// Returns the longest time without a poll, if there is a limit: the file of a name may be
    /// removed.
    pub(crate) fn park_timeout(&self) -> Option<Duration> {
        self.directory.as_ref().map(|_| directory::INTERVAL)
    }

    /// Sends a hello with this endpoint's name and the memory that the peer maps.
    pub(crate) fn send_hello(
        &self,
        connection: &Connection,
        index: usize,
        region: &crate::smr::Region,
        config: &Config,
        key_chunks: usize,
    ) -> Result<(), ConnectError> {
        let hello = Hello {
            ep_type: self.ep_type as u32,
            incarnation_id: self.incarnation_id,
            bell: index as u32,
            sizes: config.region,
            nonce_addr: std::ptr::from_ref(&*self.nonce).expose_provenance() as u64,
            nonce: *self.nonce,
            key_chunks: key_chunks as u32,
            name: self.name.clone(),
        };
        connection.send(&hello.encode(), &[region.fd(), self.doorbell_memory.fd()])
    }

    /// Checks a packet of a key proof, and returns the response.
    ///
    /// # Errors
    /// [`Errno::KeyRejected`] when the connection has another key, or a key where this endpoint has
    /// none.
    pub(crate) fn check_key_proof(
        &self,
        unauthenticated: &mut Unauthenticated,
        packet: Packet,
    ) -> Result<Bytes, Error> {
        let (word, encode): (_, fn(&_) -> _) = match (&unauthenticated.proof, packet) {
            (Responder::AwaitNonce | Responder::Verified, Packet::KeyRequest { nonce, name }) => {
                unauthenticated.name = Some(name);
                (nonce, encode_nonce)
            }
            (Responder::AwaitProof { .. }, Packet::Proof(proof)) => (proof, encode_proof),
            _ => {
                return Err(Error::new(
                    Errno::Proto,
                    "the first packet of a connection is neither a hello nor a key request",
                ));
            }
        };
        let response = unauthenticated.proof.receive(&self.key, &word);
        response
            .map(|response| encode(&response))
            .map_err(|Mismatch| match &unauthenticated.name {
                Some(name) => self.key_mismatch(name),
                None => Error::new(Errno::Proto, "a key proof that was not requested"),
            })
    }

    /// Returns the error for a peer with another authorization key.
    pub(crate) fn key_mismatch(&self, name: &Name) -> Error {
        let reason = format!("{name} does not have the auth_key of {}", self.name);
        Error::new(Errno::KeyRejected, reason)
    }

    /// Checks that a hello is from an endpoint of the same type.
    pub(crate) fn check_ep_type(&self, hello: &Hello) -> Result<(), Error> {
        if hello.ep_type == self.ep_type as u32 {
            return Ok(());
        }
        let remote = EpType::from_raw(hello.ep_type).map_or("unknown", EpType::text);
        let reason = format!(
            "{} is an endpoint of type {remote}, {} of type {}",
            hello.name, self.name, self.ep_type
        );
        Err(Error::new(Errno::Proto, reason))
    }

    /// Watches the connection under the peer's number. It may have been watched as an
    /// unauthenticated connection before.
    pub(crate) fn watch_connection(
        &self,
        connection: &mut Connection,
        index: usize,
    ) -> Result<(), Error> {
        map_watch_error(connection.watch(&self.epoll, index as u64))
    }

    /// Watches a peer's pidfd until the descriptor is closed.
    pub(crate) fn watch_process(&self, fd: &OwnedFd, index: usize) -> Result<(), Error> {
        map_watch_error(self.watch(fd, index as u64))
    }

    /// Accepts the next connection of this process's user, within the limits of this poll.
    pub(crate) fn accept(&mut self, now: Instant) -> Option<Unauthenticated> {
        while self.accept_limiter.allows_connection() && !discard::is_saturated() {
            let accepted = match self.listener.check_descriptors() {
                Ok(()) => self.listener.accept(),
                Err(error) => Err(error),
            };
            match accepted {
                Ok(AcceptOutcome::Connection(connection)) => {
                    self.accept_limiter.count_connection();
                    self.resume_accept();
                    return Some(self.new_unauthenticated(connection, now));
                }
                Ok(AcceptOutcome::Rejected) => self.accept_limiter.count_other_user(now),
                Ok(AcceptOutcome::Empty) => self.accept_limiter.record_empty_backlog(),
                Err(error) => {
                    self.pause_accept(&error);
                    return None;
                }
            }
            self.resume_accept();
        }
        None
    }

    /// Wraps a connection from which no packet was received yet.
    fn new_unauthenticated(&self, connection: Connection, since: Instant) -> Unauthenticated {
        let proof = Responder::new(&self.key);
        Unauthenticated {
            connection,
            since,
            proof,
            name: None,
        }
    }

    /// Stops watching the listener until descriptors are free.
    #[cold]
    fn pause_accept(&mut self, error: &Error) {
        if !std::mem::replace(&mut self.is_out_of_descriptors, true) {
            let name = &self.name;
            warn_limited("selvedge::shm::ep_ctrl", format_args!("{name}: {error}"));
            let _ = self.epoll.delete(self.listener.fd());
        }
    }

    /// Watches the listener again after [`Self::pause_accept`].
    fn resume_accept(&mut self) {
        if self.is_out_of_descriptors && self.watch(self.listener.fd(), UNAUTHENTICATED).is_ok() {
            self.is_out_of_descriptors = false;
        }
    }

    /// Keeps a connection whose hello cannot be received before descriptors are free. The timeout
    /// of the hello starts again.
    pub(crate) fn keep_until_descriptors(
        &mut self,
        mut unauthenticated: Unauthenticated,
        now: Instant,
    ) {
        if let Err(error) = self.listener.check_descriptors() {
            self.pause_accept(&error);
        }
        unauthenticated.connection.unwatch();
        unauthenticated.since = now;
        self.unauthenticated.push_back(unauthenticated);
    }

    /// Records that a peer's next packet waits for free descriptors.
    #[cold]
    pub(crate) fn wait_for_descriptors(&mut self, index: usize) {
        if self.waits_for_descriptors(index) {
            return;
        }
        let name = &self.name;
        warn_limited(
            "selvedge::shm::ep_ctrl",
            format_args!(
                "{name}: memory of a peer waits until a descriptor is free (RLIMIT_NOFILE)"
            ),
        );
        self.peers_without_descriptors.push(index as u32);
    }

    /// Whether the next packet of a peer waits for free descriptors.
    pub(crate) fn waits_for_descriptors(&self, index: usize) -> bool {
        self.peers_without_descriptors.contains(&(index as u32))
    }

    /// Takes the list of peers whose next packets wait for free descriptors.
    pub(crate) fn take_peers_without_descriptors(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.peers_without_descriptors)
    }

    /// Whether connections wait in the backlog for free descriptors.
    pub(crate) fn is_out_of_descriptors(&self) -> bool {
        self.is_out_of_descriptors
    }

    /// Binds the name again if its files were removed.
    pub(crate) fn check_name_files(&mut self, now: Instant) {
        let Some(directory) = &self.directory else {
            return;
        };
        if now < self.next_name_check {
            return;
        }
        self.next_name_check = now + directory::INTERVAL;
        if self.listener.has_lost_name() {
            let directory = Arc::clone(directory);
            self.rebind(&directory, now);
        }
    }

    #[cold]
    fn rebind(&mut self, directory: &Path, now: Instant) {
        let rebound = self.listener.bind_again(&self.name, directory);
        let rebound = rebound.and_then(|listener| {
            map_watch_error(self.watch(listener.fd(), UNAUTHENTICATED))?;
            Ok(listener)
        });
        match rebound {
            Ok(listener) => {
                // Connections in the backlog of the old socket are kept.
                let old = std::mem::replace(&mut self.listener, listener);
                for connection in old.into_connections() {
                    self.admit(self.new_unauthenticated(connection, now));
                }
            }
            Err(error) => warn_limited(
                "selvedge::shm::ep_ctrl",
                format_args!("no peer can connect to {} any more: {error}", self.name),
            ),
        }
    }

    /// Keeps a connection until its hello arrives. If there are too many, drops the connection that
    /// has waited longest.
    pub(crate) fn keep_unauthenticated(&mut self, unauthenticated: Unauthenticated) {
        if self.unauthenticated.len() >= self.unauthenticated_max {
            self.unauthenticated.pop_front();
        }
        self.admit(unauthenticated);
    }

    /// Keeps a connection regardless of the limit: its hello may have arrived already.
    fn admit(&mut self, mut unauthenticated: Unauthenticated) {
        match map_watch_error(
            unauthenticated
                .connection
                .watch(&self.epoll, UNAUTHENTICATED),
        ) {
            Ok(()) => self.unauthenticated.push_back(unauthenticated),
            Err(error) => unauthenticated.connection.refuse(&error),
        }
    }

    /// Returns the number of unauthenticated connections.
    pub(crate) fn unauthenticated_count(&self) -> usize {
        self.unauthenticated.len()
    }

    /// Takes the unauthenticated connection that has waited longest.
    pub(crate) fn pop_unauthenticated(&mut self) -> Option<Unauthenticated> {
        self.unauthenticated.pop_front()
    }

    /// Keeps a connection and its hello until an earlier incarnation of the peer is drained.
    pub(crate) fn keep_early_hello(&mut self, connection: Connection, received: ReceivedHello) {
        if self.early_hellos.len() < self.unauthenticated_max {
            self.early_hellos.push((connection, received));
        } else {
            let reason = format!(
                "{} already keeps the maximum of waiting connections (FI_SHM_PENDING)",
                self.name
            );
            connection.refuse(&Error::new(Errno::Busy, reason));
        }
    }

    /// Takes the connections of [`Self::keep_early_hello`].
    pub(crate) fn take_early_hellos(&mut self) -> Vec<(Connection, ReceivedHello)> {
        std::mem::take(&mut self.early_hellos)
    }

    /// Whether the hello timeout of a connection has passed. The hello may have arrived since.
    pub(crate) fn has_expired_connection(&self, now: Instant) -> bool {
        let timeout = self.hello_timeout;
        self.unauthenticated
            .iter()
            .any(|connection| now.duration_since(connection.since) >= timeout)
    }

    /// Drops connections after their hello timeout, if this poll has received from all of them.
    pub(crate) fn drop_expired_connections(&mut self, now: Instant) {
        if !self.accept_limiter.allows_hello() {
            return;
        }
        let timeout = self.hello_timeout;
        self.unauthenticated
            .retain(|connection| now.duration_since(connection.since) < timeout);
    }

    /// Schedules another attempt to connect to a peer.
    pub(crate) fn retry_later(&mut self, index: usize) {
        self.retries.push_back(index as u32);
    }

    /// Schedules another attempt to connect to a peer, unless one is scheduled.
    pub(crate) fn ensure_retry(&mut self, index: usize) {
        if !self.retries.contains(&(index as u32)) {
            self.retry_later(index);
        }
    }

    /// Takes the peers whose next attempt to connect is due. If an attempt fails, the caller must
    /// schedule another.
    pub(crate) fn due_retries(&mut self, now: Instant) -> Vec<usize> {
        if self.retries.is_empty() || now < self.next_retry {
            return Vec::new();
        }
        self.next_retry = now + RETRY_INTERVAL;
        let count = RETRIES_PER_INTERVAL.min(self.retries.len());
        self.retries.drain(..count).map(|i| i as usize).collect()
    }

    /// Polls for ready sockets, without blocking.
    pub(crate) fn events(&self) -> Vec<SocketEvent> {
        let mut events = [EpollEvent::empty(); EVENTS];
        let count = self.epoll.wait(&mut events, EpollTimeout::ZERO);
        events[..count.unwrap_or(0)]
            .iter()
            .map(|event| match event.data() {
                UNAUTHENTICATED => SocketEvent::Unauthenticated,
                index => SocketEvent::Peer(index as usize),
            })
            .collect()
    }

    fn watch(&self, fd: &OwnedFd, token: u64) -> nix::Result<()> {
        let event = EpollEvent::new(EpollFlags::EPOLLIN, token);
        self.epoll.add(fd, event)
    }
}

fn map_watch_error(result: nix::Result<()>) -> Result<(), Error> {
    result.map_err(|e| failed("watching a peer", e))
}

fn failed(action: &str, cause: nix::errno::Errno) -> Error {
    Error::new(Errno::from_raw(cause as i32), action).because(cause)
}
