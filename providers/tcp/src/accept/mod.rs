//! `Acceptor`: the listener of an endpoint, and the connections that have come to it and have not said
//! who they are.
//!
//! A connection that says nothing, or nonsense, is ended after a while, or soon when many others come,
//! which wait in the kernel meanwhile; peers that are connected already notice nothing.

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

use crate::accept::listen::{ANYWHERE, Listener, failed, listen, warn_of_the_public};
use crate::config::{CONTROL, Config};
use crate::socket::tls::{HELLO, REFUSAL, is_insecure, unwanted};
use crate::socket::{Socket, is_not_ready};
use crate::wire::Nonsense;
use crate::wire::hello::{DATA_MAX, HEADER, Hello, Kind};
use crate::wire::proof::{Called, QUESTION};

/// Connections that are accepted in one turn.
const ACCEPTS: usize = 64;
/// What `epoll(7)` knows the listener by, and connections that have not said who they are.
pub(crate) const ACCEPTOR: u64 = u64::MAX;
/// How long a stranger may be silent while others wait for its place: long enough for a crowd whose
/// members take turns on one core.
const GRACE: Duration = Duration::from_millis(20);

/// A listener, and the connections that have come to it and have not said who they are.
#[derive(Debug)]
pub(crate) struct Acceptor {
    listener: Listener,
    /// Where it is.
    pub(crate) addr: SocketAddr,
    /// In the order in which they came.
    strangers: VecDeque<Stranger>,
    /// Connection requests that the application has neither accepted nor rejected.
    waiting: usize,
    /// Nobody is let in until there is room.
    is_shut: bool,
    /// Kept for turning peers away when descriptors are short.
    spare: Option<File>,
    config: Config,
}

/// A connection that has not said who it is.
#[derive(Debug)]
struct Stranger {
    socket: Socket,
    from: SocketAddr,
    /// What it has to prove.
    key: AuthKey,
    proof: Called,
    said: Vec<u8>,
    /// What the socket is watched for.
    watched: EpollFlags,
    came: Instant,
}

/// Somebody who wants a connection.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) socket: Socket,
    pub(crate) from: SocketAddr,
    pub(crate) hello: Hello,
    /// What came behind the greeting.
    pub(crate) rest: Vec<u8>,
}

impl Acceptor {
    /// Listens at an address; at a port of the configured range, or the system's choice, if it has
    /// none.
    ///
    /// # Errors
    /// The system's, with the address.
    pub(crate) fn open(addr: SocketAddr, config: &Config, epoll: &Epoll) -> Result<Self, Error> {
        let listener = listen(addr, config).map_err(|cause| failed(addr, cause))?;
        Self::at(listener, config, epoll)
    }

    /// Accepts the connections that come to a listener.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn at(listener: Listener, config: &Config, epoll: &Epoll) -> Result<Self, Error> {
        let addr = listener.fd().local_addr();
        let addr = canonical_addr(addr.map_err(|cause| failed(ANYWHERE, cause))?);
        let nonblocking = listener.fd().set_nonblocking(true);
        nonblocking.map_err(|cause| failed(addr, cause))?;
        let event = EpollEvent::new(EpollFlags::EPOLLIN, ACCEPTOR);
        epoll
            .add(&listener, event)
            .map_err(|cause| failed(addr, cause.into()))?;
        if !config.asks_who_comes() {
            warn_of_the_public(addr);
        }
        Ok(Self {
            listener,
            addr,
            strangers: VecDeque::new(),
            waiting: 0,
            is_shut: false,
            spare: File::open("/dev/null").ok(),
            config: config.clone(),
        })
    }

    /// Whether no connection waits that has not said who it is.
    pub(crate) fn is_idle(&self) -> bool {
        self.strangers.is_empty()
    }

    /// When the first of those who wait has had its time.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let first = self.strangers.front()?;
        Some(first.came + self.patience())
    }

    /// How long a stranger may be silent.
    fn patience(&self) -> Duration {
        match self.is_crowded() {
            true => self.config.connect_timeout.min(GRACE),
            false => self.config.connect_timeout,
        }
    }

    /// Ends the connections that have had their time, and accepts others again.
    pub(crate) fn expire(&mut self, now: Instant, epoll: &Epoll) {
        let patience = self.patience();
        while let Some(late) = self.strangers.pop_front_if(|it| it.came + patience <= now) {
            warn_limited(
                CONTROL,
                format_args!("{} connects and says nothing", late.from),
            );
        }
        self.set_shut(self.is_full(0), epoll);
    }

    /// So many connection requests wait for the application; new connections are taken as far as
    /// `FI_TCP_REQUESTS` leaves room for theirs.
    pub(crate) fn set_waiting(&mut self, waiting: usize, epoll: &Epoll) {
        self.waiting = waiting;
        self.set_shut(self.is_full(0), epoll);
    }

    /// Whether no connection is taken any more beside `callers` that have just said who they are.
    fn is_full(&self, callers: usize) -> bool {
        let requests = self.strangers.len() + self.waiting + callers;
        self.is_crowded() || requests >= self.config.requests
    }

    /// Whether others wait for the place of a connection that has not said who it is.
    fn is_crowded(&self) -> bool {
        self.strangers.len() >= self.config.strangers
    }

    /// Whether the listener tells of nobody.
    fn set_shut(&mut self, is_shut: bool, epoll: &Epoll) {
        if is_shut == self.is_shut {
            return;
        }
        let wanted = match is_shut {
            true => EpollFlags::empty(),
            false => EpollFlags::EPOLLIN,
        };
        let event = &mut EpollEvent::new(wanted, ACCEPTOR);
        // If it fails, the listener stays as it is, and this is tried again.
        if epoll.modify(&self.listener, event).is_ok() {
            self.is_shut = is_shut;
        }
    }

    /// Takes what connections have said, and accepts others. The callers that have said who they are.
    pub(crate) fn poll(&mut self, epoll: &Epoll) -> Vec<Caller> {
        let mut callers = Vec::new();
        for _ in 0..self.strangers.len() {
            let stranger = self.strangers.pop_front();
            callers.extend(stranger.and_then(|it| self.listen_to(it, epoll)));
        }
        for _ in 0..ACCEPTS {
            if self.is_full(callers.len()) {
                break;
            }
            match self.listener.fd().accept() {
                Ok((stream, from)) => callers.extend(self.let_in(stream, from, epoll)),
                Err(cause) if is_not_ready(&cause) => break,
                Err(cause) => {
                    if !self.turn_away(&cause) {
                        break;
                    }
                }
            }
        }
        self.set_shut(self.is_full(callers.len()), epoll);
        callers
    }

    fn listen_to(&mut self, stranger: Stranger, epoll: &Epoll) -> Option<Caller> {
        match stranger.listen() {
            Heard::Nothing(mut stranger) => {
                stranger.watch(epoll);
                self.strangers.push_back(stranger);
                None
            }
            Heard::All(caller) => {
                let _ = epoll.delete(&caller.socket);
                Some(caller)
            }
            Heard::Gone => None,
        }
    }

    /// Lets somebody in, who may have said already who it is.
    fn let_in(&mut self, stream: TcpStream, from: SocketAddr, epoll: &Epoll) -> Option<Caller> {
        let mut socket = Socket::new(stream, &self.config.link).ok()?;
        if let Some(tls) = &self.config.tls {
            socket.secure(tls.answer().ok()?);
        }
        let event = EpollEvent::new(EpollFlags::EPOLLIN, ACCEPTOR);
        epoll.add(&socket, event).ok()?;
        let stranger = Stranger {
            socket,
            from: canonical_addr(from),
            key: self.config.key,
            proof: Called::of(&self.config.key),
            said: Vec::new(),
            watched: EpollFlags::EPOLLIN,
            came: Instant::now(),
        };
        self.listen_to(stranger, epoll)
    }

    /// Descriptors are short: whoever comes is let in by the spare one and turned away at once, so
    /// that it does not wait, nor keep us busy. Whether there may be others.
    fn turn_away(&mut self, cause: &io::Error) -> bool {
        let is_short = matches!(cause.raw_os_error(), Some(libc::EMFILE | libc::ENFILE));
        if !is_short || self.spare.take().is_none() {
            return !is_short && cause.kind() == io::ErrorKind::ConnectionAborted;
        }
        let gone = self.listener.fd().accept();
        if let Ok((_, from)) = &gone {
            warn_limited(
                CONTROL,
                format_args!("{from} is turned away: descriptors are short ({cause})"),
            );
        }
        let had_one = gone.is_ok();
        drop(gone);
        self.spare = File::open("/dev/null").ok();
        had_one
    }
}

enum Heard {
    Nothing(Stranger),
    All(Caller),
    Gone,
}

impl Stranger {
    /// Has its socket tell when there is room for what TLS has to say, while there is none.
    fn watch(&mut self, epoll: &Epoll) {
        let mut wanted = EpollFlags::EPOLLIN;
        wanted.set(EpollFlags::EPOLLOUT, self.socket.is_behind());
        if wanted != self.watched {
            self.watched = wanted;
            // If it fails, the stranger has its time, as if it said nothing.
            let _ = epoll.modify(&self.socket, &mut EpollEvent::new(wanted, ACCEPTOR));
        }
    }

    fn listen(mut self) -> Heard {
        if self.socket.is_behind() && self.socket.catch_up().is_err() {
            return Heard::Gone;
        }
        let mut bytes = [0; HEADER + DATA_MAX];
        match self.socket.recv_bytes(&mut bytes) {
            Ok(0) => return Heard::Gone,
            Ok(count) => self.said.extend_from_slice(&bytes[..count]),
            Err(cause) if is_not_ready(&cause) => return Heard::Nothing(self),
            Err(cause) => return self.break_off(&cause),
        }
        if !self.socket.is_sealed() && self.said.starts_with(&HELLO) {
            let _ = self.socket.send_whole(&REFUSAL);
            return self.break_off(&unwanted());
        }
        let heard = match self.prove() {
            Ok(true) => self.greet(),
            Ok(false) => Heard::Nothing(self),
            Err(Nonsense(what)) => self.refuse(what),
        };
        match heard {
            // Nobody is going to tell of what is behind that.
            Heard::Nothing(stranger) if stranger.socket.is_loaded() => stranger.listen(),
            heard => heard,
        }
    }

    /// Nothing more can come of it.
    fn break_off(mut self, cause: &io::Error) -> Heard {
        if is_insecure(cause) {
            warn_limited(CONTROL, format_args!("{} is refused: {cause}", self.from));
            // So that it gets the reason.
            self.socket.part();
        }
        Heard::Gone
    }

    /// Whether it has proved what it has to.
    fn prove(&mut self) -> Result<bool, Nonsense> {
        while let Some(answer) = self.proof.hear(&self.key, &mut self.said)? {
            // Whoever does not hear it notices the end.
            let _ = self.socket.send_whole(&answer);
        }
        Ok(self.proof.is_convinced())
    }

    fn greet(mut self) -> Heard {
        if self.said.starts_with(&QUESTION) {
            return self.refuse("that it has an auth_key, and here is none");
        }
        match Hello::parse(&self.said) {
            Ok(None) => Heard::Nothing(self),
            Ok(Some((hello, len))) if hello.kind == Kind::Request => Heard::All(Caller {
                rest: self.said.split_off(len),
                socket: self.socket,
                from: self.from,
                hello,
            }),
            Ok(Some(_)) => self.refuse("an answer to nothing"),
            Err(Nonsense(what)) => self.refuse(what),
        }
    }

    fn refuse(self, what: &str) -> Heard {
        warn_limited(CONTROL, format_args!("{} says {what}", self.from));
        Heard::Gone
    }
}
