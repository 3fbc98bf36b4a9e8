//! `State`: the state of an endpoint, and its progress.
//!
//! The first datagram after a turn of progress is sent at once. Later ones wait for the next turn,
//! or until they fill a batch. Datagrams are received directly into the buffers of posted receives,
//! many in one system call.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Instant;

use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use nix::sys::socket::SockaddrStorage;
use selvedge::{Address, Context, Errno, FiAddr, OpFlags, Result};
use selvedge_kit::copy::TxBuf;
use selvedge_kit::cq::Sink;
use selvedge_kit::eq::Queue;
use selvedge_kit::ip::{Av, canonical_addr};
use selvedge_kit::shell::EndpointState;
use selvedge_kit::srx::{Envelope, Posted, Source};
use selvedge_kit::telemetry::Gauge;
use selvedge_kit::wait::ArmOutcome;
use selvedge_kit::{Ep, Report};

use crate::socket::{BATCH, Batch, ReceivedDatagram, Socket};

/// The number of datagrams that a turn handles if its caller sets no budget.
const BUDGET: usize = 64;
/// The number of progress turns between two checks of the clock.
const SNAPSHOT_TURNS: u64 = 16;
/// The longest park while progress is possible without a wake-up.
const PARK_TIMEOUT: std::time::Duration = std::time::Duration::from_millis(1);

/// The state of an endpoint.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) ep: Ep,
    pub(crate) av: Arc<Av>,
    /// Weak, because queued events may hold the endpoint.
    pub(crate) eq: Weak<Queue>,
    pub(crate) socket: Socket,
    /// The joined groups; each has its own socket.
    pub(crate) groups: Vec<Group>,
    pub(crate) epoll: Arc<Epoll>,
    receives: VecDeque<Posted>,
    sends: VecDeque<Datagram>,
    /// The maximum number of waiting sends.
    max_sends: usize,
    /// Addresses by address-vector index, cached since the vector last changed.
    destinations: Vec<Option<(SocketAddr, SockaddrStorage)>>,
    destinations_epoch: u64,
    /// The last source, and its address-vector index.
    last_source: Option<(SocketAddr, FiAddr)>,
    last_source_epoch: u64,
    /// The number of progress turns, and the turn in which a datagram was last sent at once.
    turn: u64,
    sent_turn: u64,
    /// Whether the kernel's buffer is full.
    is_blocked: bool,
    /// Whether a thread may be parked.
    is_parked: bool,
    watched: EpollFlags,
}

/// A group that was joined.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) number: u64,
    pub(crate) socket: Socket,
}

/// A datagram to send.
#[derive(Debug)]
pub(crate) struct Datagram {
    pub(crate) peer: FiAddr,
    pub(crate) dest_addr: (SocketAddr, SockaddrStorage),
    pub(crate) body: Body,
    pub(crate) report: Report,
}

/// The bytes of a datagram.
#[derive(Debug)]
pub(crate) enum Body {
    Borrowed(TxBuf),
    Copied(Box<[u8]>),
}

impl Body {
    fn add<'a>(&'a self, batch: &mut Batch<'a>, dest: &SockaddrStorage) -> bool {
        match self {
            Self::Borrowed(buf) => batch.send(dest, buf.segments(0, usize::MAX)),
            Self::Copied(bytes) => batch.send(dest, std::iter::once(&bytes[..])),
        }
    }

    /// Copies the bytes into memory of the endpoint.
    fn into_copied(self) -> Self {
        match self {
            Self::Borrowed(buf) => {
                let segments: Vec<_> = buf.segments(0, usize::MAX).collect();
                Self::Copied(segments.concat().into())
            }
            copy => copy,
        }
    }
}

/// The arguments of [`State::new`].
pub(crate) struct StateArgs {
    pub(crate) ep: Ep,
    pub(crate) av: Arc<Av>,
    pub(crate) eq: Weak<Queue>,
    pub(crate) socket: Socket,
    pub(crate) epoll: Arc<Epoll>,
    /// The maximum number of waiting sends.
    pub(crate) max_sends: usize,
}

impl State {
    /// Makes the state of a new endpoint.
    ///
    /// # Errors
    /// System errors.
    pub(crate) fn new(args: StateArgs) -> io::Result<Self> {
        let StateArgs {
            ep,
            av,
            eq,
            socket,
            epoll,
            max_sends,
        } = args;
        epoll.add(&socket, EpollEvent::empty())?;
        Ok(Self {
            ep,
            av,
            eq,
            socket,
            groups: Vec::new(),
            epoll,
            receives: VecDeque::new(),
            sends: VecDeque::new(),
            max_sends,
            destinations: Vec::new(),
            destinations_epoch: u64::MAX,
            last_source: None,
            last_source_epoch: 0,
            turn: 1,
            sent_turn: 0,
            is_blocked: false,
            is_parked: false,
            watched: EpollFlags::empty(),
        })
    }

    /// Returns the address at an address-vector index.
    pub(crate) fn destination(&mut self, peer: FiAddr) -> Result<(SocketAddr, SockaddrStorage)> {
        let epoch = self.av.epoch();
        if epoch != self.destinations_epoch {
            self.destinations.clear();
            self.destinations_epoch = epoch;
        }
        let index = peer.0 as usize;
        if let Some(Some(name)) = self.destinations.get(index) {
            return Ok(*name);
        }
        let addr = self.av.addr(peer).ok_or(Errno::Inval)?;
        let name = (addr, SockaddrStorage::from(addr));
        if index >= self.destinations.len() {
            self.destinations.resize(index + 1, None);
        }
        self.destinations[index] = Some(name);
        Ok(name)
    }

    /// Posts a datagram.
    pub(crate) fn post(&mut self, datagram: Datagram) -> Result {
        if datagram.report.reports_success && self.ep.tx_cq.room() <= self.sends.len() {
            return Err(Errno::Again);
        }
        if self.sends.len() >= self.max_sends {
            self.flush();
            if self.sends.len() >= self.max_sends {
                return Err(Errno::Again);
            }
        }
        let is_batched = datagram.report.flags.contains(OpFlags::MORE);
        let is_first = self.sends.is_empty() && self.sent_turn != self.turn;
        if is_first && !is_batched && !self.is_blocked {
            self.sent_turn = self.turn;
            return self.send_at_once(datagram);
        }
        self.queue(datagram);
        if self.sends.len() >= BATCH && !self.is_blocked {
            self.flush();
        }
        Ok(())
    }

    fn send_at_once(&mut self, datagram: Datagram) -> Result {
        let mut batch = Batch::new();
        datagram.body.add(&mut batch, &datagram.dest_addr.1);
        let sent = self.socket.send(&mut batch);
        match sent {
            Ok(_) => self.complete(datagram, Ok(())),
            Err(cause) if would_block(&cause) => {
                self.is_blocked = true;
                self.queue(datagram);
            }
            Err(cause) => self.complete(datagram, Err(cause)),
        }
        Ok(())
    }

    fn queue(&mut self, datagram: Datagram) {
        let is_injected = datagram.report.flags.contains(OpFlags::INJECT);
        let body = if is_injected {
            datagram.body.into_copied()
        } else {
            datagram.body
        };
        self.sends.push_back(Datagram { body, ..datagram });
        self.wake();
    }

    /// Sends as many waiting datagrams as the kernel takes.
    fn flush(&mut self) {
        self.is_blocked = false;
        while !self.sends.is_empty() {
            let mut batch = Batch::new();
            for datagram in &self.sends {
                if !datagram.body.add(&mut batch, &datagram.dest_addr.1) {
                    break;
                }
            }
            let sent = self.socket.send(&mut batch);
            match sent {
                Ok(count) => {
                    for _ in 0..count {
                        if let Some(datagram) = self.sends.pop_front() {
                            self.complete(datagram, Ok(()));
                        }
                    }
                }
                Err(cause) if would_block(&cause) => {
                    self.is_blocked = true;
                    return;
                }
                Err(cause) => {
                    if let Some(datagram) = self.sends.pop_front() {
                        self.complete(datagram, Err(cause));
                    }
                }
            }
        }
    }

    fn complete(&self, datagram: Datagram, result: io::Result<()>) {
        let Datagram {
            peer,
            dest_addr,
            body,
            report,
        } = datagram;
        // The caller's memory must not be in use when the completion is written.
        drop(body);
        match result {
            Ok(()) => report.done(&self.ep),
            // The device queue was full and dropped the datagram, as any hop may.
            Err(cause) if cause.raw_os_error() == Some(libc::ENOBUFS) => report.done(&self.ep),
            Err(cause) => {
                let errno = cause.raw_os_error().map_or(Errno::Io, Errno::from_raw);
                let detail = format!("sending to {} failed: {cause}", dest_addr.0);
                report.failed(&self.ep, errno, peer, detail);
            }
        }
    }

    /// Posts a receive.
    pub(crate) fn post_receive(&mut self, posted: Posted) {
        self.receives.push_back(posted);
        if self.receives.len() == 1 {
            self.wake();
        }
    }

    /// Cancels a posted receive.
    pub(crate) fn cancel(&mut self, context: Context) -> Result {
        let index = self.receives.iter().position(|it| it.context == context);
        let posted = index.and_then(|index| self.receives.remove(index));
        self.ep.rx_cancelled(posted.ok_or(Errno::NoEnt)?);
        Ok(())
    }

    fn receive(&mut self, budget: usize, sink: &mut Sink<'_>) -> usize {
        let mut done = self.receive_from(None, budget, sink);
        for group in 0..self.groups.len() {
            done += self.receive_from(Some(group), budget, sink);
        }
        done
    }

    /// Receives from the socket of a group, or from the endpoint's own.
    fn receive_from(&mut self, group: Option<usize>, budget: usize, sink: &mut Sink<'_>) -> usize {
        let room = self.ep.rx_cq.room();
        let max = budget.min(BATCH).min(room);
        if max == 0 || self.receives.is_empty() {
            return 0;
        }
        let mut datagrams = [None; BATCH];
        let mut batch = Batch::new();
        for posted in self.receives.iter_mut().take(max) {
            batch.receive(posted.buf.segments(0, usize::MAX));
        }
        let socket = match group {
            None => &self.socket,
            Some(group) => &self.groups[group].socket,
        };
        let mut slots = datagrams.iter_mut();
        let received = socket.receive(&mut batch, |datagram| {
            if let Some(slot) = slots.next() {
                *slot = Some(datagram);
            }
        });
        if let Err(cause) = &received
            && !would_block(cause)
        {
            // Errors that other hosts cause, such as an unreachable destination of an earlier send,
            // do not fail a receive.
            log::info!(target: TARGET, "receiving datagrams failed: {cause}");
        }
        for datagram in datagrams.iter().flatten() {
            self.complete_receive(*datagram, sink);
        }
        received.unwrap_or(0)
    }

    /// Completes the oldest receive with a datagram.
    fn complete_receive(&mut self, received: ReceivedDatagram, sink: &mut Sink<'_>) {
        let Some(posted) = self.receives.pop_front() else {
            return;
        };
        let src = received
            .src
            .map_or(FiAddr::UNSPEC, |src| self.source_addr(src));
        let env = Envelope {
            src: Source::ANY,
            tag: 0,
            len: received.len,
            data: 0,
            has_data: false,
        };
        let len = received.len.min(posted.buf.len());
        match received.src {
            Some(addr) if self.ep.is_unknown(src) => {
                let addr = Address::Ip(canonical_addr(addr));
                self.ep.rx_unknown(posted, &env, len, &addr);
            }
            _ => self.ep.rx_done(posted, &env, len, src, sink),
        }
    }

    /// Returns the address-vector index of a source.
    fn source_addr(&mut self, src: SocketAddr) -> FiAddr {
        let epoch = self.av.epoch();
        if let Some((last_source, index)) = self.last_source
            && last_source == src
            && self.last_source_epoch == epoch
        {
            return index;
        }
        let index = self.av.source(&canonical_addr(src));
        (self.last_source, self.last_source_epoch) = (Some((src, index)), epoch);
        index
    }

    /// Writes a telemetry snapshot, if one is due.
    fn write_snapshot(&self) {
        let now = Instant::now();
        if self.ep.stats.is_snapshot_due(now) {
            self.ep.stats.write_snapshot(now, |snapshot| {
                snapshot.set_gauge(Gauge::Posted, self.receives.len());
                snapshot.set_gauge(Gauge::Outstanding, self.sends.len());
                snapshot.set_gauge(Gauge::Unread, self.ep.unread());
                snapshot.add_posted(self.receives.iter());
            });
        }
    }

    /// Wakes a parked thread, so that it polls again.
    fn wake(&mut self) {
        if std::mem::take(&mut self.is_parked) {
            self.ep.wake();
        }
    }

    /// Updates the epoll events of the sockets. Input is enabled only while a receive is posted.
    fn watch(&mut self) -> io::Result<()> {
        let mut interest = EpollFlags::empty();
        let has_room = !self.receives.is_empty() && self.ep.rx_cq.room() > 0;
        interest.set(EpollFlags::EPOLLIN, has_room);
        interest.set(EpollFlags::EPOLLOUT, self.is_blocked);
        if interest == self.watched {
            return Ok(());
        }
        self.epoll
            .modify(&self.socket, &mut EpollEvent::new(interest, 0))?;
        let group_interest = interest & EpollFlags::EPOLLIN;
        for group in &self.groups {
            self.epoll
                .modify(&group.socket, &mut EpollEvent::new(group_interest, 0))?;
        }
        self.watched = interest;
        Ok(())
    }

    /// Joins a group.
    pub(crate) fn join(&mut self, group: SocketAddr, number: u64, buffer: usize) -> io::Result<()> {
        let local_addr = self.socket.local_addr()?;
        let group_addr = SocketAddr::new(group.ip(), group.port());
        let socket = Socket::open(group_addr, buffer, true)?;
        socket.join(group.ip(), local_addr.ip())?;
        let interest = self.watched & EpollFlags::EPOLLIN;
        self.epoll.add(&socket, EpollEvent::new(interest, 0))?;
        self.groups.push(Group { number, socket });
        self.wake();
        Ok(())
    }

    /// Leaves a group.
    pub(crate) fn leave(&mut self, number: u64) {
        self.groups.retain(|group| {
            if group.number == number {
                // The descriptor may already be removed from epoll.
                let _ = self.epoll.delete(&group.socket);
            }
            group.number != number
        });
    }
}

/// Whether the error only means that the call would block or was interrupted.
fn would_block(cause: &io::Error) -> bool {
    matches!(
        cause.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

const TARGET: &str = "selvedge::udp::ep_data";

impl EndpointState for State {
    fn progress(&mut self, budget: usize, sink: &mut Sink<'_>) -> usize {
        self.turn += 1;
        if !self.sends.is_empty() {
            self.flush();
        }
        if self.turn.is_multiple_of(SNAPSHOT_TURNS) {
            self.write_snapshot();
        }
        self.receive(budget, sink)
    }

    fn arm(&mut self, _seen: &mut u64) -> ArmOutcome {
        if self.progress(BUDGET, &mut Sink::none()) > 0 {
            return ArmOutcome::Progressed;
        }
        self.is_parked = true;
        self.write_snapshot();
        if self.watch().is_err() {
            return ArmOutcome::AtMost(PARK_TIMEOUT);
        }
        // Input may be disabled because the queue was full; no event reports that it has room
        // again.
        if self.receives.is_empty() || self.watched.contains(EpollFlags::EPOLLIN) {
            ArmOutcome::UntilWoken
        } else {
            ArmOutcome::AtMost(PARK_TIMEOUT)
        }
    }

    fn woken(&mut self) {
        self.progress(BUDGET, &mut Sink::none());
    }

    /// Sends the waiting datagrams once, and releases all memory.
    fn close(&mut self) {
        self.flush();
        self.sends.clear();
        self.receives.clear();
        self.groups.clear();
    }
}

impl AsMut<Ep> for State {
    fn as_mut(&mut self) -> &mut Ep {
        &mut self.ep
    }
}
