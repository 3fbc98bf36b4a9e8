//! The state of an endpoint, which its lock protects.

mod frames;
mod operations;
mod peer_frames;
mod progress;
mod reachability;
mod receive;

pub(crate) use operations::{AfterSend, Deferred, Op, PendingSend, ReceivedFrame, Unexpected};
pub(crate) use peer_frames::Route;

use std::collections::VecDeque;
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::Instant;

use rustc_hash::FxHashMap;
use selvedge::{Errno, FiAddr, Result};
use selvedge_kit::srx::{Kind, Matcher, ReceivePolicy, Source};
use selvedge_kit::telemetry::{Gauge, PeerSnapshot, PeerState, SnapshotWriter};
use selvedge_kit::{Ep, Report};
use slab::Slab;

use crate::av::Av;
use crate::config::Timeouts;
use crate::link::{Frame, Link};
use crate::name::Name;
use crate::state::peer_frames::{Reachability, RefusedFrame};

/// Posted receives of each link: for message frames, and for control frames.
const POSTED_FRAMES: [usize; 2] = [32, 16];

/// The state of an endpoint.
#[derive(Debug)]
pub(crate) struct State {
    // Dropped first: the links use the memory of the operations.
    pub(crate) links: [Link; 2],
    pub(crate) ops: Slab<Op>,
    /// The receives for message frames of each link in the order of their posts, with the frames
    /// that were received out of order.
    pub(crate) posted_frames: [VecDeque<(usize, Option<ReceivedFrame>)>; 2],
    pub(crate) ep: Ep,
    pub(crate) av: Arc<Av>,
    pub(crate) policy: ReceivePolicy,
    msgs: Matcher<Unexpected>,
    tags: Matcher<Unexpected>,
    pub(crate) local_name: Name,
    /// The number of this endpoint's incarnation, which distinguishes it from earlier endpoints of
    /// its name.
    pub(crate) incarnation: u64,
    pub(crate) peers: Vec<Peer>,
    /// Peers by link and the link's address index.
    peers_by_link: FxHashMap<(usize, FiAddr), u32>,
    pub(crate) incarnations: FxHashMap<u64, u32>,
    /// The numbers of unsolicited peers without a name and with one.
    pub(crate) unsolicited_unnamed: usize,
    pub(crate) unsolicited_named: usize,
    /// Peers by index of the address vector; [`NO_PEER`] for an index that was not looked up.
    peers_by_addr: Vec<u32>,
    addr_epoch: u64,
    /// Sends that wait for a response of their peer.
    pub(crate) pending_sends: Slab<PendingSend>,
    pub(crate) serial: u32,
    /// The next tag for the bytes of a large message.
    pub(crate) next_tag: u64,
    /// Work that a link had no room for.
    pub(crate) deferred: VecDeque<Deferred>,
    /// Peers whose link has refused a frame.
    pub(crate) refused_peers: Vec<usize>,
    /// The transmits that each link has not completed.
    pub(crate) transmits: [usize; 2],
    pub(crate) timeouts: Timeouts,
    pub(crate) next_probe: Instant,
    pub(crate) spare_frames: Vec<Frame>,
    /// Frames whose receives are not posted, because the limit of unexpected messages is reached.
    pub(crate) withheld: [Vec<Frame>; 2],
    /// Bytes of unexpected messages, and their limit.
    pub(crate) unexpected_bytes: usize,
    pub(crate) unexpected_limit: usize,
    pub(crate) progress_calls: u32,
    /// Whether reads or writes by peers are counted.
    pub(crate) counts_remote_access: bool,
    /// The link that last had a completion.
    pub(crate) active_link: usize,
}

/// A peer.
#[derive(Debug)]
pub(crate) struct Peer {
    /// The peer's name; `None` if the peer has not sent its name.
    pub(crate) name: Option<Name>,
    pub(crate) link: usize,
    /// The peer's address index on the link.
    pub(crate) link_addr: FiAddr,
    /// The number of the peer's incarnation; 0 until the peer has sent a frame.
    pub(crate) incarnation: u64,
    /// Whether a hello was sent to the peer.
    pub(crate) is_hello_sent: bool,
    /// Whether a receive is posted that detects the peer's failure.
    pub(crate) is_watched: bool,
    /// The number of operations to the peer that are not complete.
    pub(crate) outstanding: usize,
    /// The number of control frames that wait for room on the peer's link.
    pub(crate) queued_controls: usize,
    /// Frames that the link has refused, in their order.
    pub(crate) refused_frames: VecDeque<RefusedFrame>,
    pub(crate) reachability: Reachability,
    /// The error for the next one-sided operation: the peer was unreachable.
    pub(crate) failure: Option<Errno>,
    fi_addr: FiAddr,
    fi_epoch: u64,
}

impl Peer {
    pub(crate) fn route(&self) -> Route {
        Route {
            link: self.link,
            link_addr: self.link_addr,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => name.fmt(f),
            None => f.write_str("a peer without a name"),
        }
    }
}

const NO_PEER: u32 = u32::MAX;

impl State {
    pub(crate) fn new(
        links: [Link; 2],
        ep: Ep,
        av: Arc<Av>,
        policy: ReceivePolicy,
        local_name: Name,
        timeouts: Timeouts,
    ) -> Self {
        let counts_remote_access = links.iter().any(Link::counts_remote_access);
        Self {
            links,
            ops: Slab::new(),
            posted_frames: [VecDeque::new(), VecDeque::new()],
            ep,
            av,
            policy,
            msgs: Matcher::new(),
            tags: Matcher::new(),
            local_name,
            incarnation: RandomState::new().build_hasher().finish() | 1,
            peers: Vec::new(),
            peers_by_link: FxHashMap::default(),
            incarnations: FxHashMap::default(),
            unsolicited_unnamed: 0,
            unsolicited_named: 0,
            peers_by_addr: Vec::new(),
            addr_epoch: 0,
            pending_sends: Slab::new(),
            serial: 0,
            next_tag: 0,
            deferred: VecDeque::new(),
            refused_peers: Vec::new(),
            transmits: [0; 2],
            timeouts,
            next_probe: Instant::now(),
            spare_frames: Vec::new(),
            withheld: [Vec::new(), Vec::new()],
            unexpected_bytes: 0,
            unexpected_limit: usize::MAX,
            progress_calls: 0,
            counts_remote_access,
            active_link: 0,
        }
    }

    /// Writes a snapshot, if one is due.
    pub(crate) fn write_snapshot(&self) {
        let now = Instant::now();
        if !self.ep.stats.is_snapshot_due(now) {
            return;
        }
        self.ep.stats.write_snapshot(now, |snapshot| {
            let posted = self.msgs.posted_len() + self.tags.posted_len();
            let unexpected = self.msgs.unexpected_len() + self.tags.unexpected_len();
            let outstanding = self.peers.iter().map(|peer| peer.outstanding).sum();
            snapshot.set_gauge(Gauge::Posted, posted);
            snapshot.set_gauge(Gauge::Unexpected, unexpected);
            snapshot.set_gauge(Gauge::UnexpectedBytes, self.unexpected_bytes);
            snapshot.set_gauge(Gauge::UnexpectedLimit, self.unexpected_limit);
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
                let peer_snapshot = PeerSnapshot {
                    index: index as u32,
                    state: match peer.incarnation {
                        0 => PeerState::Handshaking,
                        _ => PeerState::Connected,
                    },
                    outstanding: peer.outstanding,
                    queued: 0,
                    unmatched: 0,
                    transferring: 0,
                    unexpected_bytes: 0,
                    is_full: false,
                };
                snapshot.add_peer(&peer.to_string(), &peer_snapshot);
            }
        });
    }

    /// Posts the receives of both links.
    ///
    /// # Errors
    /// The links' errors.
    pub(crate) fn post_receives(&mut self) -> Result {
        for link in 0..self.links.len() {
            for (count, is_control) in POSTED_FRAMES.into_iter().zip([false, true]) {
                for _ in 0..count {
                    self.post_receive(link, Frame::new(), is_control)?;
                }
            }
        }
        Ok(())
    }

    pub(crate) fn post_receive(&mut self, link: usize, frame: Frame, is_control: bool) -> Result {
        let key = self.ops.insert(Op::Receive(frame, is_control));
        let Op::Receive(frame, _) = &mut self.ops[key] else {
            return Ok(());
        };
        let posted = self.links[link].recv(frame, is_control, key);
        match posted {
            Ok(()) if !is_control => self.posted_frames[link].push_back((key, None)),
            Ok(()) => {}
            Err(_) => drop(self.ops.remove(key)),
        }
        posted
    }

    #[inline]
    pub(crate) fn matcher(&mut self, kind: Kind) -> &mut Matcher<Unexpected> {
        match kind {
            Kind::Msg => &mut self.msgs,
            Kind::Tagged => &mut self.tags,
        }
    }

    pub(crate) fn matcher_of(&self, kind: Kind) -> &Matcher<Unexpected> {
        match kind {
            Kind::Msg => &self.msgs,
            Kind::Tagged => &self.tags,
        }
    }

    /// The peer that an operation names.
    #[inline]
    pub(crate) fn peer_at(&mut self, addr: FiAddr) -> Result<usize> {
        if self.av.epoch() == self.addr_epoch
            && let Some(&index) = self.peers_by_addr.get(addr.0 as usize)
            && index != NO_PEER
        {
            return Ok(index as usize);
        }
        self.lookup_peer(addr)
    }

    #[cold]
    fn lookup_peer(&mut self, addr: FiAddr) -> Result<usize> {
        let epoch = self.av.epoch();
        if epoch != self.addr_epoch {
            self.peers_by_addr.clear();
            self.addr_epoch = epoch;
        }
        let name = self.av.name(addr).ok_or(Errno::Inval)?;
        let index = self.peer_named(&name)?;
        // The application's name of the peer replaces any other name.
        (self.peers[index].name, self.peers[index].fi_epoch) = (Some(name), u64::MAX);
        let slot = addr.0 as usize;
        if slot >= self.peers_by_addr.len() {
            self.peers_by_addr.resize(slot + 1, NO_PEER);
        }
        self.peers_by_addr[slot] = index as u32;
        Ok(index)
    }

    /// The peer with this name. A new peer is added.
    pub(crate) fn peer_named(&mut self, name: &Name) -> Result<usize> {
        let (link, addr) = if name.host == self.local_name.host {
            (0, &name.near)
        } else {
            (1, &name.far)
        };
        let link_addr = self.links[link].insert(addr)?;
        Ok(self.peer_on(link, link_addr, Some(name)))
    }

    /// The peer with this address index on a link. A new peer is added. `name` is used for a peer
    /// without a name.
    pub(crate) fn peer_on(&mut self, link: usize, link_addr: FiAddr, name: Option<&Name>) -> usize {
        let index = match self.peers_by_link.get(&(link, link_addr)) {
            Some(&index) => index as usize,
            None => self.add_peer(link, link_addr),
        };
        let peer = &mut self.peers[index];
        if peer.name.is_none() {
            (peer.name, peer.fi_epoch) = (name.cloned(), u64::MAX);
        }
        index
    }

    /// Whether the endpoint has a peer with this address index on a link.
    pub(crate) fn has_peer_at(&self, link: usize, link_addr: FiAddr) -> bool {
        self.peers_by_link.contains_key(&(link, link_addr))
    }

    fn add_peer(&mut self, link: usize, link_addr: FiAddr) -> usize {
        if link_addr != FiAddr::UNSPEC {
            self.peers_by_link
                .insert((link, link_addr), self.peers.len() as u32);
        }
        self.peers.push(Peer {
            name: None,
            link,
            link_addr,
            incarnation: 0,
            is_hello_sent: false,
            is_watched: false,
            outstanding: 0,
            queued_controls: 0,
            refused_frames: VecDeque::new(),
            reachability: Reachability::default(),
            failure: None,
            fi_addr: FiAddr::UNSPEC,
            fi_epoch: u64::MAX,
        });
        self.peers.len() - 1
    }

    /// The source address of the peer in completions, looked up again after a change of the address
    /// vector.
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

    /// Reports a send that is complete. No operation of lnx uses its memory any more.
    pub(crate) fn report_sent(&mut self, peer: usize, report: &Report) {
        self.peers[peer].outstanding -= 1;
        report.done(&self.ep);
    }

    /// Reports a send that has failed. No operation of lnx uses its memory any more.
    #[cold]
    pub(crate) fn fail_send(&mut self, peer: usize, report: &Report, errno: Errno, detail: &str) {
        self.peers[peer].outstanding -= 1;
        let src = self.peer_addr(peer);
        report.failed(&self.ep, errno, src, detail);
    }

    /// Fails all operations that wait for a failed peer.
    #[cold]
    pub(crate) fn fail_peer(&mut self, peer: usize, errno: Errno, detail: &str) {
        self.peers[peer].is_hello_sent = false;
        let failed = self
            .pending_sends
            .iter()
            .filter(|(_, pending)| pending.peer == peer);
        for key in failed.map(|(key, _)| key).collect::<Vec<_>>() {
            let PendingSend { report, buf, .. } = self.pending_sends.remove(key);
            drop(buf);
            self.fail_send(peer, &report, errno, detail);
        }
        let src = self.peer_addr(peer);
        for kind in [Kind::Msg, Kind::Tagged] {
            for posted in self.matcher(kind).fail_source(Source(peer as u32)) {
                self.ep.rx_failed(posted, errno, src, detail);
            }
        }
    }
}
