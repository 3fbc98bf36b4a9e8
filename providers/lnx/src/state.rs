//! The state of an endpoint: what its lock protects.

use std::collections::VecDeque;
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::Instant;

use rustc_hash::FxHashMap;
use selvedge::cq::Entry;
use selvedge::{Errno, FiAddr, Result};
use selvedge_kit::copy::TxBuf;
use selvedge_kit::srx::{Envelope, Kind, Matcher, Posted, ReceivePolicy, Source};
use selvedge_kit::telemetry::{Gauge, PeerSnapshot, PeerState, SnapshotWriter};
use selvedge_kit::{Ep, Report};
use slab::Slab;

use crate::arrive::Kept;
use crate::av::Av;
use crate::link::{Frame, Link};
use crate::name::Name;
use crate::wire::Header;

/// Frames that wait for messages on each link, and for answers.
const LISTENING: [usize; 2] = [32, 16];

/// Everything that an endpoint is.
#[derive(Debug)]
pub(crate) struct State {
    // Closed first: the links use what the operations keep.
    pub(crate) links: [Link; 2],
    pub(crate) ops: Slab<Op>,
    /// The frames that listen for messages on each link, in the order of their posts, and what they
    /// have brought before it was their turn.
    pub(crate) listening: [VecDeque<(usize, Option<Heard>)>; 2],
    pub(crate) ep: Ep,
    pub(crate) av: Arc<Av>,
    pub(crate) policy: ReceivePolicy,
    msgs: Matcher<Kept>,
    tags: Matcher<Kept>,
    pub(crate) own: Name,
    /// Tells this endpoint from others that had its name.
    pub(crate) life: u64,
    pub(crate) peers: Vec<Peer>,
    /// Peers by link, and index there.
    places: FxHashMap<(usize, FiAddr), u32>,
    pub(crate) lives: FxHashMap<u64, u32>,
    /// Peers that came without a name, and those that came with one.
    pub(crate) unnamed: usize,
    pub(crate) introduced: usize,
    /// Peers by index of the address vector; [`NOBODY`] where it was not looked up yet.
    addrs: Vec<u32>,
    addr_epoch: u64,
    /// Sends that wait for a word of their peer.
    pub(crate) asks: Slab<Ask>,
    pub(crate) serial: u32,
    /// The next tag for the bytes of a large message.
    pub(crate) next_tag: u64,
    /// What a link had no room for.
    pub(crate) later: VecDeque<Later>,
    pub(crate) spare: Vec<Frame>,
    /// Frames that do not listen, because too much is kept.
    pub(crate) muted: [Vec<Frame>; 2],
    /// Bytes of messages that wait for their receives, and how many there may be.
    pub(crate) kept: usize,
    pub(crate) most: usize,
    pub(crate) turn: u32,
    /// Somebody counts what peers do to our memory.
    pub(crate) counts_peers: bool,
    /// The link that last had something.
    pub(crate) hot: usize,
}

/// A frame that came: so many bytes of it, and its sender's index on the link.
pub(crate) type Heard = (Frame, usize, FiAddr);

/// An operation of ours on a link, with the memory that it uses.
#[derive(Debug)]
pub(crate) enum Op {
    /// A frame listens; whether for answers.
    Listen(Frame, bool),
    /// A frame is on its way to a peer.
    Say(Frame, usize, Then),
    /// The bytes of a large message are.
    Body(TxBuf, usize, Report),
    /// Those of one that we receive.
    Coming(Posted, Envelope),
    /// A peer's memory is read, written or changed.
    Access(usize, Report),
    /// Waits for the end of a peer.
    Watch(usize),
}

/// What follows when a frame is out.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Then {
    Nothing,
    Report(Report),
    /// The peer answers under this number.
    Answer(u64),
}

/// A send that waits for a word of its peer.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) number: u64,
    pub(crate) peer: usize,
    pub(crate) report: Report,
    /// The bytes of a large message, until they are asked for.
    pub(crate) buf: Option<TxBuf>,
}

/// Work that waits until a link, or the queue of receives, has room.
#[derive(Debug)]
pub(crate) enum Later {
    Answer(usize, Header),
    Body(Ask, u64),
    Fetch(Posted, Envelope, u64),
    Watch(usize),
    /// A link has received something from this index there.
    Came(usize, Entry, FiAddr),
}

/// Somebody to talk to.
#[derive(Debug)]
pub(crate) struct Peer {
    /// None for one that has not said it.
    pub(crate) name: Option<Name>,
    pub(crate) link: usize,
    /// Its index on that link.
    pub(crate) at: FiAddr,
    /// What tells it from others of this name; 0 as long as it has said nothing.
    pub(crate) life: u64,
    /// It knows our name.
    pub(crate) is_greeted: bool,
    /// Its end will be noticed.
    pub(crate) is_watched: bool,
    /// Sends to it that are not complete.
    pub(crate) busy: usize,
    /// Answers that wait for room on its link.
    pub(crate) owed: usize,
    fi_addr: FiAddr,
    fi_epoch: u64,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => name.fmt(f),
            None => f.write_str("a peer without a name"),
        }
    }
}

const NOBODY: u32 = u32::MAX;

impl State {
    pub(crate) fn new(
        links: [Link; 2],
        ep: Ep,
        av: Arc<Av>,
        policy: ReceivePolicy,
        own: Name,
    ) -> Self {
        let counts_peers = links.iter().any(Link::counts_peers);
        Self {
            links,
            ops: Slab::new(),
            listening: [VecDeque::new(), VecDeque::new()],
            ep,
            av,
            policy,
            msgs: Matcher::new(),
            tags: Matcher::new(),
            own,
            life: RandomState::new().build_hasher().finish() | 1,
            peers: Vec::new(),
            places: FxHashMap::default(),
            lives: FxHashMap::default(),
            unnamed: 0,
            introduced: 0,
            addrs: Vec::new(),
            addr_epoch: 0,
            asks: Slab::new(),
            serial: 0,
            next_tag: 0,
            later: VecDeque::new(),
            spare: Vec::new(),
            muted: [Vec::new(), Vec::new()],
            kept: 0,
            most: usize::MAX,
            turn: 0,
            counts_peers,
            hot: 0,
        }
    }

    /// Writes down how things stand, if that was long ago.
    pub(crate) fn show(&self) {
        let now = Instant::now();
        if !self.ep.stats.is_snapshot_due(now) {
            return;
        }
        self.ep.stats.write_snapshot(now, |snapshot| {
            let posted = self.msgs.posted_len() + self.tags.posted_len();
            let unexpected = self.msgs.unexpected_len() + self.tags.unexpected_len();
            let outstanding = self.peers.iter().map(|peer| peer.busy).sum();
            snapshot.set_gauge(Gauge::Posted, posted);
            snapshot.set_gauge(Gauge::Unexpected, unexpected);
            snapshot.set_gauge(Gauge::UnexpectedBytes, self.kept);
            snapshot.set_gauge(Gauge::UnexpectedLimit, self.most);
            snapshot.set_gauge(Gauge::Outstanding, outstanding);
            snapshot.set_gauge(Gauge::Unread, self.ep.unread());
            snapshot.set_gauge(Gauge::Peers, self.peers.len());
            for (kind, matcher) in [(Kind::Msg, &self.msgs), (Kind::Tagged, &self.tags)] {
                snapshot.add_posted(matcher.posted());
                snapshot.add_unexpected(kind, matcher.unexpected());
            }
            for (index, peer) in self
                .peers
                .iter()
                .enumerate()
                .take(SnapshotWriter::MAX_PEERS)
            {
                let row = PeerSnapshot {
                    index: index as u32,
                    state: match peer.life {
                        0 => PeerState::Handshaking,
                        _ => PeerState::Connected,
                    },
                    outstanding: peer.busy,
                    queued: 0,
                    unmatched: 0,
                    transferring: 0,
                    unexpected_bytes: 0,
                    is_full: false,
                };
                snapshot.add_peer(&peer.to_string(), &row);
            }
        });
    }

    /// Begins to listen on both links.
    ///
    /// # Errors
    /// The links'.
    pub(crate) fn listen(&mut self) -> Result {
        for link in 0..self.links.len() {
            for (count, is_answer) in LISTENING.into_iter().zip([false, true]) {
                for _ in 0..count {
                    self.listen_with(link, Frame::new(), is_answer)?;
                }
            }
        }
        Ok(())
    }

    pub(crate) fn listen_with(&mut self, link: usize, frame: Frame, is_answer: bool) -> Result {
        let key = self.ops.insert(Op::Listen(frame, is_answer));
        let Op::Listen(frame, _) = &mut self.ops[key] else {
            return Ok(());
        };
        let posted = self.links[link].recv(frame, is_answer, key);
        match posted {
            Ok(()) if !is_answer => self.listening[link].push_back((key, None)),
            Ok(()) => {}
            Err(_) => drop(self.ops.remove(key)),
        }
        posted
    }

    #[inline]
    pub(crate) fn matcher(&mut self, kind: Kind) -> &mut Matcher<Kept> {
        match kind {
            Kind::Msg => &mut self.msgs,
            Kind::Tagged => &mut self.tags,
        }
    }

    /// The peer that an operation names.
    #[inline]
    pub(crate) fn peer_at(&mut self, addr: FiAddr) -> Result<usize> {
        if self.av.epoch() == self.addr_epoch
            && let Some(&index) = self.addrs.get(addr.0 as usize)
            && index != NOBODY
        {
            return Ok(index as usize);
        }
        self.look_up(addr)
    }

    #[cold]
    fn look_up(&mut self, addr: FiAddr) -> Result<usize> {
        let epoch = self.av.epoch();
        if epoch != self.addr_epoch {
            self.addrs.clear();
            self.addr_epoch = epoch;
        }
        let name = self.av.name(addr).ok_or(Errno::Inval)?;
        let index = self.peer_named(&name)?;
        // Whatever else it may be called.
        (self.peers[index].name, self.peers[index].fi_epoch) = (Some(name), u64::MAX);
        let place = addr.0 as usize;
        if place >= self.addrs.len() {
            self.addrs.resize(place + 1, NOBODY);
        }
        self.addrs[place] = index as u32;
        Ok(index)
    }

    /// The peer of a name, met or not.
    pub(crate) fn peer_named(&mut self, name: &Name) -> Result<usize> {
        let (link, addr) = match name.host == self.own.host {
            true => (0, &name.near),
            false => (1, &name.far),
        };
        let at = self.links[link].insert(addr)?;
        Ok(self.peer_on(link, at, Some(name)))
    }

    /// The peer with this index on a link, met or not; `name` is what it says to be called.
    pub(crate) fn peer_on(&mut self, link: usize, at: FiAddr, name: Option<&Name>) -> usize {
        let index = match self.places.get(&(link, at)) {
            Some(&index) => index as usize,
            None => self.add_peer(link, at),
        };
        let peer = &mut self.peers[index];
        if peer.name.is_none() {
            (peer.name, peer.fi_epoch) = (name.cloned(), u64::MAX);
        }
        index
    }

    /// Whether a peer with this index on a link is known.
    pub(crate) fn is_met(&self, link: usize, at: FiAddr) -> bool {
        self.places.contains_key(&(link, at))
    }

    fn add_peer(&mut self, link: usize, at: FiAddr) -> usize {
        if at != FiAddr::UNSPEC {
            self.places.insert((link, at), self.peers.len() as u32);
        }
        self.peers.push(Peer {
            name: None,
            link,
            at,
            life: 0,
            is_greeted: false,
            is_watched: false,
            busy: 0,
            owed: 0,
            fi_addr: FiAddr::UNSPEC,
            fi_epoch: u64::MAX,
        });
        self.peers.len() - 1
    }

    /// What completions call the peer, looked up again when the address vector has changed.
    pub(crate) fn peer_addr(&mut self, index: usize) -> FiAddr {
        let peer = &mut self.peers[index];
        let epoch = self.av.epoch();
        if peer.fi_epoch != epoch {
            peer.fi_epoch = epoch;
            let name = peer.name.as_ref();
            peer.fi_addr = name.map_or(FiAddr::UNSPEC, |name| self.av.source(name));
        }
        peer.fi_addr
    }

    /// A send is over, and nothing of ours touches its memory any more.
    pub(crate) fn sent(&mut self, peer: usize, report: &Report) {
        self.peers[peer].busy -= 1;
        report.done(&self.ep);
    }

    /// A send has failed, likewise.
    #[cold]
    pub(crate) fn not_sent(&mut self, peer: usize, report: &Report, errno: Errno, detail: &str) {
        self.peers[peer].busy -= 1;
        let src = self.peer_addr(peer);
        report.failed(&self.ep, errno, src, detail);
    }

    /// A peer is gone: what waits for it fails.
    #[cold]
    pub(crate) fn lose(&mut self, peer: usize, errno: Errno, detail: &str) {
        self.peers[peer].is_greeted = false;
        let lost = self.asks.iter().filter(|(_, ask)| ask.peer == peer);
        for key in lost.map(|(key, _)| key).collect::<Vec<_>>() {
            let Ask { report, buf, .. } = self.asks.remove(key);
            drop(buf);
            self.not_sent(peer, &report, errno, detail);
        }
        let src = self.peer_addr(peer);
        for kind in [Kind::Msg, Kind::Tagged] {
            for posted in self.matcher(kind).fail_source(Source(peer as u32)) {
                self.ep.rx_failed(posted, errno, src, detail);
            }
        }
    }
}
