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

use crate::socket::{BATCH, Batch, Came, Socket};

/// Datagrams that are taken when nobody says how many.
const BUDGET: usize = 64;
/// Turns of progress between two looks at the clock.
const SHOWN: u64 = 16;
/// How long a sleep may be when something might move without anybody being woken.
const NAP: std::time::Duration = std::time::Duration::from_millis(1);

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
    sends: VecDeque<Out>,
    /// Sends that may wait.
    most: usize,
    /// Where indices of the address vector lead, as far as that was asked since it last changed.
    names: Vec<Option<(SocketAddr, SockaddrStorage)>>,
    names_epoch: u64,
    /// The last sender, and its index.
    last: Option<(SocketAddr, FiAddr)>,
    last_epoch: u64,
    /// Turns of progress so far, and the one in which something was last sent at once.
    turn: u64,
    sent_turn: u64,
    /// The kernel takes no more at the moment.
    is_blocked: bool,
    /// Somebody may sleep.
    is_resting: bool,
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
pub(crate) struct Out {
    pub(crate) peer: FiAddr,
    pub(crate) to: (SocketAddr, SockaddrStorage),
    pub(crate) body: Body,
    pub(crate) report: Report,
}

/// Its bytes.
#[derive(Debug)]
pub(crate) enum Body {
    Caller(TxBuf),
    Copy(Box<[u8]>),
}

impl Body {
    fn add<'a>(&'a self, batch: &mut Batch<'a>, to: &SockaddrStorage) -> bool {
        match self {
            Self::Caller(buf) => batch.send(to, buf.segments(0, usize::MAX)),
            Self::Copy(bytes) => batch.send(to, std::iter::once(&bytes[..])),
        }
    }

    /// The same bytes, in memory of ours.
    fn copied(self) -> Self {
        match self {
            Self::Caller(buf) => {
                let pieces: Vec<_> = buf.segments(0, usize::MAX).collect();
                Self::Copy(pieces.concat().into())
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
    pub(crate) most: usize,
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
            most,
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
            most,
            names: Vec::new(),
            names_epoch: u64::MAX,
            last: None,
            last_epoch: 0,
            turn: 1,
            sent_turn: 0,
            is_blocked: false,
            is_resting: false,
            watched: EpollFlags::empty(),
        })
    }

    // ---- sending ----

    /// Where an index of the address vector leads.
    pub(crate) fn name_of(&mut self, peer: FiAddr) -> Result<(SocketAddr, SockaddrStorage)> {
        let epoch = self.av.epoch();
        if epoch != self.names_epoch {
            self.names.clear();
            self.names_epoch = epoch;
        }
        let place = peer.0 as usize;
        if let Some(Some(name)) = self.names.get(place) {
            return Ok(*name);
        }
        let addr = self.av.addr(peer).ok_or(Errno::Inval)?;
        let name = (addr, SockaddrStorage::from(addr));
        if place >= self.names.len() {
            self.names.resize(place + 1, None);
        }
        self.names[place] = Some(name);
        Ok(name)
    }

    /// Posts a datagram.
    pub(crate) fn post(&mut self, out: Out) -> Result {
        if out.report.reports_success && self.ep.tx_cq.room() <= self.sends.len() {
            return Err(Errno::Again);
        }
        if self.sends.len() >= self.most {
            self.flush();
            if self.sends.len() >= self.most {
                return Err(Errno::Again);
            }
        }
        let waits = out.report.flags.contains(OpFlags::MORE);
        let is_first = self.sends.is_empty() && self.sent_turn != self.turn;
        if is_first && !waits && !self.is_blocked {
            self.sent_turn = self.turn;
            return self.send_at_once(out);
        }
        self.queue(out);
        if self.sends.len() >= BATCH && !self.is_blocked {
            self.flush();
        }
        Ok(())
    }

    fn send_at_once(&mut self, out: Out) -> Result {
        let mut batch = Batch::new();
        out.body.add(&mut batch, &out.to.1);
        let sent = self.socket.send(&mut batch);
        match sent {
            Ok(_) => self.done(out, Ok(())),
            Err(cause) if is_full(&cause) => {
                self.is_blocked = true;
                self.queue(out);
            }
            Err(cause) => self.done(out, Err(cause)),
        }
        Ok(())
    }

    fn queue(&mut self, out: Out) {
        let is_injected = out.report.flags.contains(OpFlags::INJECT);
        let body = match is_injected {
            true => out.body.copied(),
            false => out.body,
        };
        self.sends.push_back(Out { body, ..out });
        self.stir();
    }

    /// Sends what the kernel takes.
    fn flush(&mut self) {
        self.is_blocked = false;
        while !self.sends.is_empty() {
            let mut batch = Batch::new();
            for out in &self.sends {
                if !out.body.add(&mut batch, &out.to.1) {
                    break;
                }
            }
            let sent = self.socket.send(&mut batch);
            match sent {
                Ok(count) => {
                    for _ in 0..count {
                        if let Some(out) = self.sends.pop_front() {
                            self.done(out, Ok(()));
                        }
                    }
                }
                Err(cause) if is_full(&cause) => {
                    self.is_blocked = true;
                    return;
                }
                Err(cause) => {
                    if let Some(out) = self.sends.pop_front() {
                        self.done(out, Err(cause));
                    }
                }
            }
        }
    }

    fn done(&self, out: Out, how: io::Result<()>) {
        let Out {
            peer,
            to,
            body,
            report,
        } = out;
        // Nothing reads the memory any more when the completion comes.
        drop(body);
        match how {
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
            self.stir();
        }
    }

    /// Takes a posted receive back.
    pub(crate) fn cancel(&mut self, context: Context) -> Result {
        let place = self.receives.iter().position(|it| it.context == context);
        let posted = place.and_then(|place| self.receives.remove(place));
        self.ep.rx_cancelled(posted.ok_or(Errno::NoEnt)?);
        Ok(())
    }

    fn receive(&mut self, budget: usize, sink: &mut Sink<'_>) -> usize {
        let mut done = self.receive_by(None, budget, sink);
        for group in 0..self.groups.len() {
            done += self.receive_by(Some(group), budget, sink);
        }
        done
    }

    /// Receives by the socket of a group, or the endpoint's own.
    fn receive_by(&mut self, group: Option<usize>, budget: usize, sink: &mut Sink<'_>) -> usize {
        let room = self.ep.rx_cq.room();
        let most = budget.min(BATCH).min(room);
        if most == 0 || self.receives.is_empty() {
            return 0;
        }
        let mut came = [None; BATCH];
        let mut batch = Batch::new();
        for posted in self.receives.iter_mut().take(most) {
            batch.receive(posted.buf.segments(0, usize::MAX));
        }
        let socket = match group {
            None => &self.socket,
            Some(group) => &self.groups[group].socket,
        };
        let mut places = came.iter_mut();
        let received = socket.receive(&mut batch, |datagram| {
            if let Some(place) = places.next() {
                *place = Some(datagram);
            }
        });
        if let Err(cause) = &received
            && !is_full(cause)
        {
            // What others do to a socket is no error of a receive: a host that was sent to and is
            // not there, for instance.
            log::info!(target: TARGET, "a look for datagrams: {cause}");
        }
        for datagram in came.iter().flatten() {
            self.took(*datagram, sink);
        }
        received.unwrap_or(0)
    }

    /// The oldest receive has taken a datagram.
    fn took(&mut self, came: Came, sink: &mut Sink<'_>) {
        let Some(posted) = self.receives.pop_front() else {
            return;
        };
        let src = came.from.map_or(FiAddr::UNSPEC, |from| self.index_of(from));
        let env = Envelope {
            src: Source::ANY,
            tag: 0,
            len: came.len,
            data: 0,
            has_data: false,
        };
        let len = came.len.min(posted.buf.len());
        match came.from {
            Some(from) if self.ep.is_unknown(src) => {
                let from = Address::Ip(canonical_addr(from));
                self.ep.rx_unknown(posted, &env, len, &from);
            }
            _ => self.ep.rx_done(posted, &env, len, src, sink),
        }
    }

    /// The index of a sender in the address vector.
    fn index_of(&mut self, from: SocketAddr) -> FiAddr {
        let epoch = self.av.epoch();
        if let Some((last, index)) = self.last
            && last == from
            && self.last_epoch == epoch
        {
            return index;
        }
        let index = self.av.source(&canonical_addr(from));
        (self.last, self.last_epoch) = (Some((from, index)), epoch);
        index
    }

    // ---- progress ----

    /// Writes down how things stand, if that was long ago.
    fn show(&self) {
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
    fn stir(&mut self) {
        if std::mem::take(&mut self.is_resting) {
            self.ep.wake();
        }
    }

    /// Watches the sockets for what may move now: nothing is read without a receive.
    fn watch(&mut self) -> io::Result<()> {
        let mut wanted = EpollFlags::empty();
        let has_room = !self.receives.is_empty() && self.ep.rx_cq.room() > 0;
        wanted.set(EpollFlags::EPOLLIN, has_room);
        wanted.set(EpollFlags::EPOLLOUT, self.is_blocked);
        if wanted == self.watched {
            return Ok(());
        }
        self.epoll
            .modify(&self.socket, &mut EpollEvent::new(wanted, 0))?;
        let of_groups = wanted & EpollFlags::EPOLLIN;
        for group in &self.groups {
            self.epoll
                .modify(&group.socket, &mut EpollEvent::new(of_groups, 0))?;
        }
        self.watched = wanted;
        Ok(())
    }

    /// Receives what is sent to a group, too.
    pub(crate) fn join(&mut self, group: SocketAddr, number: u64, buffer: usize) -> io::Result<()> {
        let own = self.socket.local_addr()?;
        let at = SocketAddr::new(group.ip(), group.port());
        let socket = Socket::open(at, buffer, true)?;
        socket.join(group.ip(), own.ip())?;
        let wanted = self.watched & EpollFlags::EPOLLIN;
        self.epoll.add(&socket, EpollEvent::new(wanted, 0))?;
        self.groups.push(Group { number, socket });
        self.stir();
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
fn is_full(cause: &io::Error) -> bool {
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
        if self.turn.is_multiple_of(SHOWN) {
            self.show();
        }
        self.receive(budget, sink)
    }

    fn arm(&mut self, _seen: &mut u64) -> ArmOutcome {
        if self.progress(BUDGET, &mut Sink::none()) > 0 {
            return ArmOutcome::Progressed;
        }
        self.is_resting = true;
        self.show();
        if self.watch().is_err() {
            return ArmOutcome::AtMost(NAP);
        }
        // As it was watched: there may be room by now, of which nothing tells.
        match self.receives.is_empty() || self.watched.contains(EpollFlags::EPOLLIN) {
            true => ArmOutcome::UntilWoken,
            false => ArmOutcome::AtMost(NAP),
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
