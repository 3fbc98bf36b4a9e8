//! The state of an endpoint: what its lock protects.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use nix::sys::epoll::{Epoll, EpollEvent};
use rustc_hash::FxHashMap;
use selvedge::{Address, Errno, FiAddr, Result};
use selvedge_kit::ip::Av;
use selvedge_kit::mr::Keys;
use selvedge_kit::srx::{Allowance, Kind, Manner, Matcher, Shared};
use selvedge_kit::{Ep, Report};
use slab::Slab;

use crate::arrive::Hoard;
use crate::cm::Connection;
use crate::config::Config;
use crate::greet::Door;
use crate::lane::{Lane, Stage};
use crate::rx::SCRATCH;
use crate::wire::hello::Introduction;

/// Everything that an endpoint is.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) config: Config,
    pub(crate) ep: Ep,
    /// None for an endpoint with a connection.
    pub(crate) av: Option<Arc<Av>>,
    pub(crate) keys: Arc<Keys>,
    pub(crate) manner: Manner,
    pub(crate) inbound: Inbound,
    pub(crate) hoard: Hoard,
    pub(crate) epoll: Arc<Epoll>,
    /// Where peers come in; none for an endpoint with a connection.
    pub(crate) door: Option<Door>,
    pub(crate) connection: Connection,
    pub(crate) own: Introduction,
    /// The peers that were met or addressed; the index is the peer's source.
    pub(crate) peers: Vec<Peer>,
    names: FxHashMap<SocketAddr, u32>,
    /// Peers by index of the address vector; [`NOBODY`] where it was not looked up yet.
    addrs: Vec<u32>,
    addr_epoch: u64,
    /// The same for contexts of scalable endpoints, whose indices are no places.
    contexts: FxHashMap<FiAddr, u32>,
    pub(crate) lanes: Slab<Lane>,
    next_serial: u64,
    /// The lane that last had something.
    pub(crate) hot: usize,
    /// Lanes with something to send.
    pub(crate) dirty: Vec<usize>,
    /// Lanes that are not read.
    pub(crate) stalled: Vec<usize>,
    /// Lanes that are not up yet.
    pub(crate) rising: Vec<usize>,
    /// Turns of progress so far.
    pub(crate) turn: u64,
    /// Whether what comes comes by that lane.
    pub(crate) is_focused: bool,
    /// Turns since the last look at all sockets: those that found nothing, and the others.
    pub(crate) idle: u32,
    pub(crate) busy: u32,
    /// Somebody may sleep.
    pub(crate) is_resting: bool,
    pub(crate) scratch: Box<[u8]>,
}

/// The two sides of receive matching.
#[derive(Debug)]
pub(crate) struct Inbound {
    msgs: Matcher<usize>,
    tags: Matcher<usize>,
    pub(crate) allowance: Allowance,
}

impl Inbound {
    /// Has messages meet shared receives, where there are none of its own for them.
    pub(crate) fn share(&mut self, srx: &Arc<Shared>) {
        self.msgs.share(srx, Kind::Msg);
        self.tags.share(srx, Kind::Tagged);
    }

    #[inline]
    pub(crate) fn matcher(&mut self, kind: Kind) -> &mut Matcher<usize> {
        match kind {
            Kind::Msg => &mut self.msgs,
            Kind::Tagged => &mut self.tags,
        }
    }
}

/// Somebody to talk to.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) addr: SocketAddr,
    pub(crate) lane: Option<usize>,
    /// The last connection with it has ended, or could not be made, and there is none since.
    pub(crate) is_lost: bool,
    /// What it has waiting for receives, as the allowance counts it.
    pub(crate) kept: usize,
    /// Which context of a scalable endpoint it is, as far as is known.
    context: u16,
    fi_addr: FiAddr,
    fi_epoch: u64,
}

impl Peer {
    fn new(addr: SocketAddr) -> Self {
        Self {
            addr,
            lane: None,
            is_lost: false,
            kept: 0,
            context: 0,
            fi_addr: FiAddr::UNSPEC,
            fi_epoch: u64::MAX,
        }
    }

    /// What completions call the peer, looked up again when that has changed.
    #[inline]
    pub(crate) fn fi_addr(&mut self, av: Option<&Av>) -> FiAddr {
        if let Some(av) = av
            && self.fi_epoch != av.epoch()
        {
            self.fi_epoch = av.epoch();
            self.fi_addr = match self.context {
                0 => av.source(&self.addr),
                context => av.context_source(&self.addr, context),
            };
        }
        self.fi_addr
    }

    /// It has said which context it is, or was addressed as that.
    pub(crate) fn is_context(&mut self, context: u16) {
        if context != self.context {
            self.context = context;
            self.fi_epoch = u64::MAX;
        }
    }

    pub(crate) fn to_address(&self) -> Address {
        Address::Ip(self.addr)
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.addr.fmt(f)
    }
}

const NOBODY: u32 = u32::MAX;

/// What an endpoint is made of.
pub(crate) struct Parts {
    pub(crate) config: Config,
    pub(crate) ep: Ep,
    pub(crate) av: Option<Arc<Av>>,
    pub(crate) keys: Arc<Keys>,
    pub(crate) manner: Manner,
    pub(crate) epoll: Arc<Epoll>,
    pub(crate) door: Option<Door>,
    pub(crate) connection: Connection,
}

impl State {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts {
            config,
            ep,
            av,
            keys,
            manner,
            epoll,
            door,
            connection,
        } = parts;
        Self {
            inbound: Inbound {
                msgs: Matcher::new(),
                tags: Matcher::new(),
                allowance: Allowance::new(config.unexpected_size),
            },
            config,
            ep,
            av,
            keys,
            manner,
            hoard: Hoard::default(),
            epoll,
            door,
            connection,
            own: Introduction::new(),
            peers: Vec::new(),
            names: FxHashMap::default(),
            addrs: Vec::new(),
            addr_epoch: 0,
            contexts: FxHashMap::default(),
            lanes: Slab::new(),
            next_serial: 0,
            hot: 0,
            dirty: Vec::new(),
            stalled: Vec::new(),
            rising: Vec::new(),
            is_focused: true,
            turn: 1,
            idle: 0,
            busy: 0,
            is_resting: false,
            scratch: vec![0; SCRATCH].into(),
        }
    }

    /// The peer that an operation names.
    #[inline]
    pub(crate) fn peer_at(&mut self, addr: FiAddr) -> Result<usize> {
        let Some(av) = &self.av else {
            return self.connection.peer();
        };
        if av.epoch() == self.addr_epoch
            && let Some(&index) = self.addrs.get(addr.0 as usize)
            && index != NOBODY
        {
            return Ok(index as usize);
        }
        self.look_up(addr)
    }

    #[cold]
    fn look_up(&mut self, addr: FiAddr) -> Result<usize> {
        let av = self.av.as_ref().ok_or(Errno::NoAv)?;
        let epoch = av.epoch();
        if epoch != self.addr_epoch {
            self.addrs.clear();
            self.contexts.clear();
            self.addr_epoch = epoch;
        }
        if let Some(&index) = self.contexts.get(&addr) {
            return Ok(index as usize);
        }
        let known = av.addr(addr).ok_or(Errno::Inval)?;
        let context = av.context(addr) as u16;
        let index = self.peer_named(known);
        if context != 0 {
            self.peers[index].is_context(context);
            self.contexts.insert(addr, index as u32);
            return Ok(index);
        }
        let place = addr.0 as usize;
        if place >= self.addrs.len() {
            self.addrs.resize(place + 1, NOBODY);
        }
        self.addrs[place] = index as u32;
        Ok(index)
    }

    /// The peer with an address, met or not.
    pub(crate) fn peer_named(&mut self, addr: SocketAddr) -> usize {
        if let Some(&index) = self.names.get(&addr) {
            return index as usize;
        }
        let index = self.vacancy().unwrap_or(self.peers.len());
        match self.peers.get_mut(index) {
            Some(peer) => {
                self.names.remove(&peer.addr);
                *peer = Peer::new(addr);
            }
            None => self.peers.push(Peer::new(addr)),
        }
        self.names.insert(addr, index as u32);
        index
    }

    /// The place of a peer that is gone, has left nothing, and is not in the address vector: one of
    /// the next few, so that strangers who come and go do not pile up.
    fn vacancy(&mut self) -> Option<usize> {
        const LOOKS: usize = 4;
        let len = self.peers.len();
        let start = self.next_serial as usize;
        (0..LOOKS.min(len))
            .map(|look| (start + look) % len)
            .find(|&index| {
                let peer = &mut self.peers[index];
                peer.lane.is_none()
                    && peer.kept == 0
                    && peer.fi_addr(self.av.as_deref()) == FiAddr::UNSPEC
                    && !self.inbound.has_from(index)
            })
    }

    /// The peer's index in the address vector.
    pub(crate) fn peer_addr(&mut self, index: usize) -> FiAddr {
        self.peers[index].fi_addr(self.av.as_deref())
    }

    /// The same, of the peer at the other end of a lane.
    pub(crate) fn lane_addr(&mut self, at: usize) -> FiAddr {
        self.peer_addr(self.lanes[at].peer)
    }

    /// Makes a lane.
    pub(crate) fn add_lane(&mut self, peer: usize, stage: Stage, now: Instant) -> usize {
        self.next_serial += 1;
        let lane = Lane::new(peer, self.next_serial, stage, now);
        let at = self.lanes.insert(lane);
        if stage != Stage::Up {
            self.rising.push(at);
        }
        at
    }

    /// Watches the socket of a lane for what it waits for.
    pub(crate) fn watch(&mut self, at: usize) {
        let Some(lane) = self.lanes.get_mut(at) else {
            return;
        };
        if lane.is_parting {
            return;
        }
        let wanted = lane.interest();
        let Some(socket) = lane.socket.as_ref().filter(|_| lane.watched != wanted) else {
            return;
        };
        let mut event = EpollEvent::new(wanted, token(at));
        let is_new = lane.watched.is_empty();
        let done = match is_new {
            true => self.epoll.add(socket, event).or_else(|cause| match cause {
                nix::errno::Errno::EEXIST => self.epoll.modify(socket, &mut event),
                cause => Err(cause),
            }),
            false => self.epoll.modify(socket, &mut event),
        };
        match done {
            Ok(()) => lane.watched = wanted,
            Err(cause) => self.lane_ended(at, Err(cause.into())),
        }
    }

    /// Notes down that a lane has something to send.
    #[inline]
    pub(crate) fn soil(&mut self, at: usize) {
        let tx = &mut self.lanes[at].tx;
        if !std::mem::replace(&mut tx.is_dirty, true) {
            self.dirty.push(at);
        }
        self.stir();
    }

    /// Has whoever sleeps look at what was left to progress.
    #[inline]
    pub(crate) fn stir(&mut self) {
        if std::mem::take(&mut self.is_resting) {
            self.ep.wake();
        }
    }

    /// Sends what a lane has to send.
    pub(crate) fn flush(&mut self, at: usize) {
        let Some(lane) = self.lanes.get_mut(at).filter(|lane| lane.is_up()) else {
            return;
        };
        let was_blocked = lane.tx.is_blocked;
        match lane.flush(&self.keys, &self.ep) {
            Ok(()) if lane.tx.is_blocked != was_blocked => self.watch(at),
            Ok(()) => {}
            Err(broken) => self.cannot_send(at, broken),
        }
    }

    /// Sends what all lanes have to send.
    #[inline]
    pub(crate) fn flush_all(&mut self) {
        while let Some(at) = self.dirty.pop() {
            if let Some(lane) = self.lanes.get_mut(at) {
                lane.tx.is_dirty = false;
                self.flush(at);
            }
        }
    }

    /// What has come of an operation that a peer has answered.
    pub(crate) fn answered(&mut self, at: usize, report: &Report, status: u32) {
        if status == 0 {
            return report.done(&self.ep);
        }
        let errno = i32::try_from(status).map_or(Errno::Other, Errno::from_raw);
        let peer = &self.peers[self.lanes[at].peer];
        let why = match errno {
            Errno::KeyRejected => "nobody there has the key",
            Errno::Acces => "the region does not grant the right",
            Errno::Fault => "the bytes are not all inside the region",
            Errno::Inval => "the target has an address that the operation cannot have",
            _ => "it was not carried out",
        };
        let detail = format!("{peer} refuses: {why}");
        let src = self.lane_addr(at);
        report.failed(&self.ep, errno, src, detail);
    }
}

impl Inbound {
    /// Both sides of matching, to look at.
    pub(crate) fn matchers(&self) -> [(Kind, &Matcher<usize>); 2] {
        [(Kind::Msg, &self.msgs), (Kind::Tagged, &self.tags)]
    }

    /// Whether a peer's message waits for its receive, or a receive for that peer.
    fn has_from(&mut self, peer: usize) -> bool {
        let source = selvedge_kit::srx::Source(peer as u32);
        [&mut self.msgs, &mut self.tags]
            .into_iter()
            .any(|matcher| matcher.has_from(source) || matcher.awaits(source))
    }
}

/// What `epoll(7)` knows a lane by.
pub(crate) const fn token(at: usize) -> u64 {
    at as u64
}

/// The token of the listener, and of those who have come in and not said who they are.
pub(crate) const DOOR: u64 = u64::MAX;
