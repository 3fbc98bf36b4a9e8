//! The state of an endpoint: what its lock protects.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use selvedge::{Context, Errno, FiAddr, OpFlags, Result};
use selvedge_kit::Ep;
use selvedge_kit::Report;
use selvedge_kit::copy::TxBuf;
use selvedge_kit::cq::Sink;
use selvedge_kit::sight::Way;
use selvedge_kit::srx::{
    Allowance, Envelope, Kind, Manner, Matcher, PLAIN, Posted, Receiver, Shared, Source,
};
use selvedge_kit::wait::Pause;

use crate::av::Av;
use crate::cmd::Header;
use crate::config::Config;
use crate::control::Control;
use crate::domain;
use crate::exchange::Exchange;
use crate::name::Name;
use crate::parking::Wakeups;
use crate::peer::{Peer, State as PeerState};
use crate::progress::{LOOKS, LOOKS_IN_TURN};
use crate::proto::into::Into;
use crate::proto::{self, Sent, inject, inline, iov, status};
use crate::receive;
use crate::rma::direct::Aim;

/// Everything that an endpoint is.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) config: Config,
    pub(crate) ep: Ep,
    pub(crate) av: Arc<Av>,
    pub(crate) control: Control,
    /// What all endpoints of the domain have in common.
    pub(crate) shared: Arc<domain::Shared>,
    /// The peers that were met or addressed; the index is the peer's [`Source`]. Places of peers
    /// that are gone for good are used again.
    pub(crate) peers: Vec<Peer>,
    pub(crate) names: FxHashMap<Name, u32>,
    /// Peers by index of the address vector; [`NOBODY`] where it was not looked up yet.
    addrs: Vec<u32>,
    addr_epoch: u64,
    /// The same for contexts of scalable endpoints, whose indices are no places.
    contexts: FxHashMap<FiAddr, u32>,
    pub(crate) inbound: Inbound,
    pub(crate) manner: Manner,
    /// Peers whose commands are polled at every turn.
    pub(crate) hot: Vec<u32>,
    /// Peers with large messages or unanswered sends under way.
    pub(crate) active: Vec<u32>,
    /// Peers that have rung and were not polled since, first come first served.
    pub(crate) rung: VecDeque<u32>,
    /// Peers that are gone and have left messages for which there was no room.
    pub(crate) ending: Vec<u32>,
    /// Places of peers that are gone for good, or were when they were noted down.
    vacant: Vec<u32>,
    pub(crate) turn: Turn,
    pub(crate) wakeups: Wakeups,
    pub(crate) exchange: Exchange,
    /// How many lives of peers have ended, if a layer wants to know.
    pub(crate) ends: Arc<AtomicU64>,
    /// Where direct accesses go.
    pub(crate) aim: Aim,
}

/// The two sides of receive matching.
#[derive(Debug)]
pub(crate) struct Inbound {
    msgs: Matcher<Unexpected>,
    tags: Matcher<Unexpected>,
    pub(crate) allowance: Allowance,
    /// Whether a message waits with its sender, because too much waits here.
    is_stalled: bool,
}

/// A message that waits for its receive.
#[derive(Debug)]
pub(crate) enum Unexpected {
    /// It is here; the sender may want to know when it has been received.
    Bytes { bytes: Box<[u8]>, ack: Option<Ack> },
    /// It is with the sender, as long as that lives.
    Offer { life: u32, msg_id: u32 },
}

/// A sender that wants to know when its message has been received.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ack {
    pub(crate) life: u32,
    pub(crate) msg_id: u32,
}

/// When the rarer duties of progress are due.
#[derive(Debug)]
pub(crate) struct Turn {
    /// How often progress looks before it has found nothing.
    pub(crate) looks: usize,
    /// What is between two looks.
    pub(crate) pause: Pause,
    /// Polls that found nothing, or messages, since the clock was read.
    pub(crate) ticks: usize,
    pub(crate) last_control: Instant,
    /// How long the last look at the sockets took.
    pub(crate) control_time: Duration,
    /// The peer that was looked at last in a sweep.
    pub(crate) sweep: usize,
    /// The peer that was looked at last for a place that is not needed any more.
    reuse: usize,
}

/// A send, as far as all kinds have it in common.
#[derive(Debug)]
pub(crate) struct Send {
    pub(crate) header: Header,
    pub(crate) dest: FiAddr,
    pub(crate) context: Context,
    pub(crate) flags: OpFlags,
    /// Whether success is reported (fi_inject(3) does not).
    pub(crate) reports: bool,
}

impl Send {
    /// How a message of `len` bytes is told of.
    #[inline(always)]
    fn report(&self, len: usize) -> Report {
        Report {
            what: self.header.kind.sent(),
            context: self.context,
            flags: self.flags,
            completes: self.reports,
            len,
        }
    }
}

const NOBODY: u32 = u32::MAX;

impl State {
    pub(crate) fn new(
        config: Config,
        manner: Manner,
        ep: Ep,
        av: Arc<Av>,
        control: Control,
        shared: Arc<domain::Shared>,
    ) -> Self {
        let looks = match ep.has_layer() {
            true => LOOKS_IN_TURN,
            false => LOOKS,
        };
        Self {
            manner,
            inbound: Inbound {
                msgs: Matcher::new(),
                tags: Matcher::new(),
                allowance: Allowance::new(config.unexpected_size),
                is_stalled: false,
            },
            config,
            ep,
            av,
            control,
            shared,
            peers: Vec::new(),
            names: FxHashMap::default(),
            addrs: Vec::new(),
            addr_epoch: 0,
            contexts: FxHashMap::default(),
            hot: Vec::new(),
            active: Vec::new(),
            rung: VecDeque::new(),
            ending: Vec::new(),
            vacant: Vec::new(),
            turn: Turn {
                looks,
                pause: Pause::here(),
                ticks: 0,
                last_control: Instant::now(),
                control_time: Duration::ZERO,
                sweep: 0,
                reuse: 0,
            },
            wakeups: Wakeups::default(),
            exchange: Exchange::default(),
            ends: Arc::default(),
            aim: Aim::NOWHERE,
        }
    }

    /// Sends eight bytes if nothing has to be done first: the most frequent message, all in line.
    /// Whatever it does not wait for comes after it was committed. Says whether it was sent;
    /// [`Self::send`] knows why not.
    #[inline(always)]
    pub(crate) fn send_word(&mut self, word: u64, send: &Send) -> bool {
        let has_room = !send.reports || self.ep.tx_cq.room() > 0;
        if has_room
            && proto::is_inline(&self.config, &send.header, 8, send.flags)
            && let Some(peer) = self.known_peer(send.dest)
            && peer.state == PeerState::Linked
            && let Some(out) = &mut peer.out
            && let Some(slot) = out.tx.claim()
        {
            send.header
                .commit_inline(slot, 8, |slot, at| slot.put(at, word));
            out.mark_last();
            if !peer.is_looking() {
                self.ring_at(send.dest, send.flags);
            }
            send.report(8).done_plainly(&self.ep);
            return true;
        }
        false
    }

    /// Sends what goes into a command, likewise: any other length than eight bytes.
    #[inline(always)]
    fn send_inline(&mut self, buf: &TxBuf, send: &Send) -> bool {
        let len = buf.len();
        if proto::is_inline(&self.config, &send.header, len, send.flags)
            && let Some(peer) = self.known_peer(send.dest)
            && peer.state == PeerState::Linked
            && let Some(out) = &mut peer.out
            && let Some(slot) = out.tx.claim()
        {
            inline::send(slot, &send.header, buf);
            out.mark_last();
            if !peer.is_looking() {
                self.ring_at(send.dest, send.flags);
            }
            self.report(send, len);
            return true;
        }
        false
    }

    /// Sends what goes through the inject pool, likewise: the usual message that is longer.
    #[inline(always)]
    fn send_pooled(&mut self, buf: &TxBuf, send: &Send) -> bool {
        let len = buf.len();
        if proto::is_pooled(&self.config, &send.header, len, send.flags)
            && let Some(peer) = self.known_peer(send.dest)
            && peer.state == PeerState::Linked
            && inject::send(peer, &send.header, buf, None).is_ok()
        {
            if !peer.is_looking() {
                self.ring_at(send.dest, send.flags);
            }
            self.ep.sight.count_way(Way::SentInject, len);
            send.report(len).done_plainly(&self.ep);
            return true;
        }
        false
    }

    /// Sends a message.
    #[inline(never)]
    pub(crate) fn send(&mut self, buf: TxBuf, send: &Send) -> Result {
        if send.reports && self.ep.tx_cq.room() == 0 {
            return Err(Errno::Again);
        }
        if self.send_inline(&buf, send) || self.send_pooled(&buf, send) {
            return Ok(());
        }
        self.send_otherwise(buf, send)
    }

    #[inline(never)]
    fn send_otherwise(&mut self, buf: TxBuf, send: &Send) -> Result {
        let index = self.peer_at(send.dest)?;
        if self.peers[index].state != PeerState::Linked {
            self.reach(index)?;
            self.wait_behind(index)?;
        }
        let peer = &mut self.peers[index];
        if peer.inbox.is_none() && peer.is_full() {
            // The peer may have said by now where it gives slots back.
            self.hear(index);
            self.stir();
        }
        let (peer, len) = (&mut self.peers[index], buf.len());
        match proto::send(
            peer,
            &self.config,
            &self.shared.special,
            &send.header,
            buf,
            send.report(len),
        ) {
            Ok(Sent::Done) => self.sent(index, send, len),
            Ok(Sent::Later) => {
                self.announce(index, send.flags);
                self.activate(index);
            }
            Err(Errno::Proto) => {
                self.quarantine(index, "credit for commands that were never sent");
                return Err(Errno::NotConn);
            }
            Err(errno) => return Err(errno),
        }
        Ok(())
    }

    /// The bytes of a message are with the peer, or will be once it exists.
    fn sent(&mut self, index: usize, send: &Send, len: usize) {
        if !proto::is_inline(&self.config, &send.header, len, send.flags) {
            self.ep.sight.count_way(Way::SentInject, len);
        }
        let peer = &mut self.peers[index];
        if peer.state != PeerState::Linked {
            peer.held.push(send.report(len));
            return;
        }
        self.announce(index, send.flags);
        self.report(send, len);
    }

    #[inline(always)]
    fn report(&self, send: &Send, len: usize) {
        send.report(len).done(&self.ep);
    }

    /// Posts a plain receive from any peer.
    #[inline(always)]
    pub(crate) fn recv(&mut self, posted: Posted) {
        let matcher = self.inbound.matcher(posted.kind);
        if let Some((posted, env, unexpected)) = matcher.post(posted) {
            self.meet(posted, env, unexpected);
        }
    }

    /// Posts a receive from the peer at `src`, or from any.
    #[inline(never)]
    pub(crate) fn recv_from(&mut self, src: FiAddr, mut posted: Posted) -> Result {
        if !PLAIN.contains(posted.flags) {
            return self.recv_otherwise(posted, src);
        }
        if src != self.manner.any {
            self.direct(&mut posted, src)?;
        }
        self.recv(posted);
        Ok(())
    }

    /// Makes a receive wait for the peer at `src` alone, if it may.
    pub(crate) fn direct(&mut self, posted: &mut Posted, src: FiAddr) -> Result {
        if !self.manner.directs(posted.kind) {
            return Ok(());
        }
        let index = self.peer_at(src)?;
        posted.src = Source(index as u32);
        self.expect_from(index, posted)
    }

    /// Whether a message from this peer alone can come: one that is gone and has left none is
    /// looked for, as for a send.
    #[inline]
    fn expect_from(&mut self, index: usize, posted: &Posted) -> Result {
        if !matches!(self.peers[index].state, PeerState::Dead) {
            return Ok(());
        }
        let matcher = self.inbound.matcher(posted.kind);
        if matcher.peek(posted.src, posted.tag).is_some() {
            return Ok(());
        }
        self.reach(index)
    }

    /// A receive takes a message that waited for it.
    #[cold]
    pub(crate) fn meet(&mut self, mut posted: Posted, env: Envelope, unexpected: Unexpected) {
        let index = env.src.0 as usize;
        let peer = &mut self.peers[index];
        let src = peer.fi_addr(&self.av);
        match unexpected {
            Unexpected::Bytes { bytes, ack } => {
                self.inbound.allowance.free(bytes.len(), &mut peer.kept);
                let fits = posted.buf.write(0, &bytes);
                if let Some(ack) = ack {
                    peer.answer(ack.life, ack.msg_id, status::DONE);
                }
                self.ep.sight.count_way(Way::ReceivedLate, env.len);
                receive::report(peer, &self.ep, src, posted, &env, fits, &mut Sink::none());
            }
            Unexpected::Offer { life, .. } if life != peer.life => {
                let detail = format!("{} is gone, and its message with it", peer.name);
                self.ep.rx_failed(posted, Errno::ConnReset, src, detail);
            }
            Unexpected::Offer { msg_id, .. } => {
                let into = Into::Receive(posted, env);
                iov::start(peer, &self.config, &self.ep, src, msg_id, into, env.len);
                self.stir();
            }
        }
    }

    /// The peer at an index of the address vector.
    #[inline]
    pub(crate) fn peer_at(&mut self, addr: FiAddr) -> Result<usize> {
        match self.known_index(addr) {
            Some(index) if index != NOBODY => Ok(index as usize),
            _ => self.look_up(addr),
        }
    }

    /// The peer at an index of the address vector, if it was looked up before.
    #[inline(always)]
    pub(crate) fn known_peer(&mut self, addr: FiAddr) -> Option<&mut Peer> {
        let index = self.known_index(addr)?;
        self.peers.get_mut(index as usize)
    }

    /// What was found out about an index of the address vector, [`NOBODY`] included.
    #[inline(always)]
    fn known_index(&self, addr: FiAddr) -> Option<u32> {
        (self.av.epoch() == self.addr_epoch).then_some(())?;
        self.addrs.get(addr.0 as usize).copied()
    }

    #[cold]
    fn look_up(&mut self, addr: FiAddr) -> Result<usize> {
        let epoch = self.av.epoch();
        if epoch != self.addr_epoch {
            self.addrs.clear();
            self.contexts.clear();
            self.addr_epoch = epoch;
        }
        if let Some(&index) = self.contexts.get(&addr) {
            return Ok(index as usize);
        }
        let name = self.av.name(addr).ok_or(Errno::Inval)?;
        let index = self.peer_named(&name);
        if self.av.names_context(addr) {
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

    /// The peer with a name, met or not.
    pub(crate) fn peer_named(&mut self, name: &Name) -> usize {
        if let Some(&index) = self.names.get(name) {
            return index as usize;
        }
        let index = self.peers.len();
        self.peers
            .push(Peer::new(name.clone(), &self.shared.siblings));
        self.names.insert(name.clone(), index as u32);
        index
    }

    /// The peer that a stranger says it is. If nobody has had the name, it takes the place of a
    /// peer that is gone for good, so that strangers who come and go do not pile up.
    pub(crate) fn peer_met(&mut self, name: &Name) -> usize {
        if self.names.contains_key(name) {
            return self.peer_named(name);
        }
        let Some(index) = self.vacancy() else {
            return self.peer_named(name);
        };
        self.names.remove(&self.peers[index].name);
        self.names.insert(name.clone(), index as u32);
        self.peers[index].become_another(name.clone(), &self.shared.siblings);
        index
    }

    /// The place of a peer that is gone for good: one that was noted down, or one of the next few.
    fn vacancy(&mut self) -> Option<usize> {
        const LOOKS: usize = 4;
        while let Some(index) = self.vacant.pop() {
            if self.is_forgotten(index as usize) {
                return Some(index as usize);
            }
        }
        (0..LOOKS.min(self.peers.len())).find_map(|_| {
            self.turn.reuse = (self.turn.reuse + 1) % self.peers.len();
            let index = self.turn.reuse;
            self.is_forgotten(index).then_some(index)
        })
    }

    /// Whether a peer is gone, has left nothing and is not in the address vector.
    fn is_forgotten(&mut self, index: usize) -> bool {
        let peer = &mut self.peers[index];
        peer.state == PeerState::Dead
            && peer.fi_addr(&self.av) == FiAddr::UNSPEC
            && !self.inbound.has_left(Source(index as u32))
    }

    /// A stranger was not accepted: if nobody else asks for a peer with its name, there is none.
    pub(crate) fn dismiss(&mut self, index: usize) {
        let peer = &mut self.peers[index];
        if peer.state == PeerState::Idle && peer.fi_addr(&self.av) == FiAddr::UNSPEC {
            peer.state = PeerState::Dead;
            self.vacant.push(index as u32);
        }
    }

    /// Looks after the transfers with a peer from now on.
    pub(crate) fn activate(&mut self, index: usize) {
        let peer = &mut self.peers[index];
        if !std::mem::replace(&mut peer.is_active, true) {
            self.active.push(index as u32);
        }
        self.stir();
    }
}

impl Inbound {
    #[inline]
    pub(crate) fn matcher(&mut self, kind: Kind) -> &mut Matcher<Unexpected> {
        match kind {
            Kind::Msg => &mut self.msgs,
            Kind::Tagged => &mut self.tags,
        }
    }

    /// Has messages meet shared receives, where there are none of its own for them.
    pub(crate) fn share(&mut self, srx: &Arc<Shared>) {
        self.msgs.share(srx, Kind::Msg);
        self.tags.share(srx, Kind::Tagged);
    }

    /// Keeps a message until its receive is posted; `kept` is what its sender has waiting.
    #[cold]
    pub(crate) fn keep(
        &mut self,
        kind: Kind,
        env: Envelope,
        bytes: Box<[u8]>,
        ack: Option<Ack>,
        kept: &mut usize,
    ) {
        self.is_stalled = false;
        self.allowance.keep(bytes.len(), kept);
        self.matcher(kind)
            .store(env, Unexpected::Bytes { bytes, ack });
    }

    /// A message has to wait with its sender. Whether the one before had not.
    #[cold]
    pub(crate) fn stall(&mut self) -> bool {
        !std::mem::replace(&mut self.is_stalled, true)
    }

    /// Both sides of matching, to look at.
    pub(crate) fn matchers(&self) -> [(Kind, &Matcher<Unexpected>); 2] {
        [(Kind::Msg, &self.msgs), (Kind::Tagged, &self.tags)]
    }

    /// Whether a message of this source waits for its receive.
    fn has_left(&mut self, source: Source) -> bool {
        [&mut self.msgs, &mut self.tags]
            .into_iter()
            .any(|matcher| matcher.has_from(source))
    }

    /// Forgets the receives that name a source, and the offers of a source that is gone. Messages
    /// that are here stay, and so do claimed offers: whoever claimed one is told.
    pub(crate) fn fail_source(&mut self, source: Source) -> Vec<Posted> {
        let mut failed = Vec::new();
        for matcher in [&mut self.msgs, &mut self.tags] {
            failed.extend(matcher.fail_source(source));
            matcher.drop_unexpected(|env, unexpected| {
                env.src == source && matches!(unexpected, Unexpected::Offer { .. })
            });
        }
        failed
    }
}
