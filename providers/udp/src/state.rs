//! The state of an endpoint, and what moves it.
//!
//! The first datagram after a turn of progress leaves at once; those that follow it wait for the
//! next turn, or until there are enough for a system call of their own. Datagrams are received
//! straight into the buffers of posted receives, many in one call.

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

/// Datagrams that are taken when nobody says how many.
const BUDGET: usize = 64;
/// Turns of progress between two looks at the clock.
const SNAPSHOT_TURNS: u64 = 16;
/// How long a sleep may be when something might move without anybody being woken.
const PARK_TIMEOUT: std::time::Duration = std::time::Duration::from_millis(1);

/// Everything that an endpoint is.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) ep: Ep,
    pub(crate) av: Arc<Av>,
    /// The queue may hold the endpoint, and so must not be held by it.
    pub(crate) eq: Weak<Queue>,
    pub(crate) socket: Socket,
    /// The groups that were joined: datagrams to them come by sockets of their own.
    pub(crate) groups: Vec<Group>,
    pub(crate) epoll: Arc<Epoll>,
    receives: VecDeque<Posted>,
    sends: VecDeque<Datagram>,
    /// Sends that may wait.
    max_sends: usize,
    /// Where indices of the address vector lead, as far as that was asked since it last changed.
    destinations: Vec<Option<(SocketAddr, SockaddrStorage)>>,
    destinations_epoch: u64,
    /// The last sender, and its index.
    last_source: Option<(SocketAddr, FiAddr)>,
    last_source_epoch: u64,
    /// Turns of progress so far, and the one in which something was last sent at once.
    turn: u64,
    sent_turn: u64,
    /// The kernel takes no more at the moment.
    is_blocked: bool,
    /// Somebody may sleep.
    is_parked: bool,
    watched: EpollFlags,
}

/// A group that was joined.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) number: u64,
    pub(crate) socket: Socket,
}

/// A datagram of ours.
#[derive(Debug)]
pub(crate) struct Datagram {
    pub(crate) peer: FiAddr,
    pub(crate) to: (SocketAddr, SockaddrStorage),
    pub(crate) body: Body,
    pub(crate) report: Report,
}

/// Its bytes.
#[derive(Debug)]
pub(crate) enum Body {
    Borrowed(TxBuf),
    Copied(Box<[u8]>),
}

impl Body {
    fn add<'a>(&'a self, batch: &mut Batch<'a>, to: &SockaddrStorage) -> bool {
        match self {
            Self::Borrowed(buf) => batch.send(to, buf.segments(0, usize::MAX)),
            Self::Copied(bytes) => batch.send(to, std::iter::once(&bytes[..])),
        }
    }

    /// The same bytes, in memory of ours.
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

/// What an endpoint is made of.
pub(crate) struct Parts {
    pub(crate) ep: Ep,
    pub(crate) av: Arc<Av>,
    pub(crate) eq: Weak<Queue>,
    pub(crate) socket: Socket,
    pub(crate) epoll: Arc<Epoll>,
    /// Sends that may wait.
    pub(crate) max_sends: usize,
}

impl State {
    /// # Errors
    /// The system's.
    pub(crate) fn new(parts: Parts) -> io::Result<Self> {
        let Parts {
            ep,
            av,
            eq,
            socket,
            epoll,
            max_sends,
        } = parts;
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

    // ---- sending ----

    /// Where an index of the address vector leads.
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
        datagram.body.add(&mut batch, &datagram.to.1);
        let sent = self.socket.send(&mut batch);
        match sent {
            Ok(_) => self.done(datagram, Ok(())),
            Err(cause) if would_block(&cause) => {
                self.is_blocked = true;
                self.queue(datagram);
            }
            Err(cause) => self.done(datagram, Err(cause)),
        }
        Ok(())
    }

    fn queue(&mut self, datagram: Datagram) {
        let is_injected = datagram.report.flags.contains(OpFlags::INJECT);
        let body = match is_injected {
            true => datagram.body.into_copied(),
            false => datagram.body,
        };
        self.sends.push_back(Datagram { body, ..datagram });
        self.wake();
    }

    /// Sends what the kernel takes.
    fn flush(&mut self) {
        self.is_blocked = false;
        while !self.sends.is_empty() {
            let mut batch = Batch::new();
            for datagram in &self.sends {
                if !datagram.body.add(&mut batch, &datagram.to.1) {
                    break;
                }
            }
            let sent = self.socket.send(&mut batch);
            match sent {
                Ok(count) => {
                    for _ in 0..count {
                        if let Some(datagram) = self.sends.pop_front() {
                            self.done(datagram, Ok(()));
                        }
                    }
                }
                Err(cause) if would_block(&cause) => {
                    self.is_blocked = true;
                    return;
                }
                Err(cause) => {
                    if let Some(datagram) = self.sends.pop_front() {
                        self.done(datagram, Err(cause));
                    }
                }
            }
        }
    }

    fn done(&self, datagram: Datagram, result: io::Result<()>) {
        let Datagram {
            peer,
            to,
            body,
            report,
        } = datagram;
        // Nothing reads the memory any more when the completion comes.
        drop(body);
        match result {
            Ok(()) => report.done(&self.ep),
            // A device dropped it, as others on its way might.
            Err(cause) if cause.raw_os_error() == Some(libc::ENOBUFS) => report.done(&self.ep),
            Err(cause) => {
                let errno = cause.raw_os_error().map_or(Errno::Io, Errno::from_raw);
                let detail = format!("{} cannot be sent to: {cause}", to.0);
                report.failed(&self.ep, errno, peer, detail);
            }
        }
    }

    // ---- receiving ----

    /// Posts a receive.
    pub(crate) fn post_receive(&mut self, posted: Posted) {
        self.receives.push_back(posted);
        if self.receives.len() == 1 {
            self.wake();
        }
    }

    /// Takes a posted receive back.
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

    /// Receives by the socket of a group, or the endpoint's own.
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
            // What others do to a socket is no error of a receive: a host that was sent to and is
            // not there, for instance.
            log::info!(target: TARGET, "a look for datagrams: {cause}");
        }
        for datagram in datagrams.iter().flatten() {
            self.complete_receive(*datagram, sink);
        }
        received.unwrap_or(0)
    }

    /// The oldest receive has taken a datagram.
    fn complete_receive(&mut self, received: ReceivedDatagram, sink: &mut Sink<'_>) {
        let Some(posted) = self.receives.pop_front() else {
            return;
        };
        let src = received
            .from
            .map_or(FiAddr::UNSPEC, |from| self.source_addr(from));
        let env = Envelope {
            src: Source::ANY,
            tag: 0,
            len: received.len,
            data: 0,
            has_data: false,
        };
        let len = received.len.min(posted.buf.len());
        match received.from {
            Some(from) if self.ep.is_unknown(src) => {
                let from = Address::Ip(canonical_addr(from));
                self.ep.rx_unknown(posted, &env, len, &from);
            }
            _ => self.ep.rx_done(posted, &env, len, src, sink),
        }
    }

    /// The index of a sender in the address vector.
    fn source_addr(&mut self, from: SocketAddr) -> FiAddr {
        let epoch = self.av.epoch();
        if let Some((last_source, index)) = self.last_source
            && last_source == from
            && self.last_source_epoch == epoch
        {
            return index;
        }
        let index = self.av.source(&canonical_addr(from));
        (self.last_source, self.last_source_epoch) = (Some((from, index)), epoch);
        index
    }

    // ---- progress ----

    /// Writes down how things stand, if that was long ago.
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

    /// Has whoever sleeps ask again.
    fn wake(&mut self) {
        if std::mem::take(&mut self.is_parked) {
            self.ep.wake();
        }
    }

    /// Watches the sockets for what may move now: nothing is read without a receive.
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

    /// Receives what is sent to a group, too.
    pub(crate) fn join(&mut self, group: SocketAddr, number: u64, buffer: usize) -> io::Result<()> {
        let own = self.socket.local_addr()?;
        let at = SocketAddr::new(group.ip(), group.port());
        let socket = Socket::open(at, buffer, true)?;
        socket.join(group.ip(), own.ip())?;
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
                // It may be gone from there already.
                let _ = self.epoll.delete(&group.socket);
            }
            group.number != number
        });
    }
}

/// Whether there is nothing to do at the moment.
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
        // As it was watched: there may be room by now, of which nothing tells.
        match self.receives.is_empty() || self.watched.contains(EpollFlags::EPOLLIN) {
            true => ArmOutcome::UntilWoken,
            false => ArmOutcome::AtMost(PARK_TIMEOUT),
        }
    }

    fn woken(&mut self) {
        self.progress(BUDGET, &mut Sink::none());
    }

    /// Sends what is still here, once, and gives all memory up.
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
