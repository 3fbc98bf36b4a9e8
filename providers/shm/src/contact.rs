//! Contact: how peers are met, heard and lost.
//!
//! The first message to a peer makes the contact: its bytes are in our outbox when the peer hears
//! of us. Whoever is met answers with a hello of its own. When both connect at once, each side
//! takes the other's first hello and ignores the second: they say the same.
//!
//! A peer is lost when its socket ends or its process dies, or when it breaks the protocol. What it
//! had sent by then is still received; everything else that it had a part in fails.

use std::time::{Duration, Instant};

use selvedge::{Errno, Error, Result};
use selvedge_kit::srx::Source;

use crate::cma::Target;
use crate::config::Protocol;
use crate::control::News;
use crate::liveness::pidfd;
use crate::peer::{Inbox, OpBody, Outbox, Peer, State as PeerState};
use crate::proto::iov::Stage;
use crate::rendezvous::{ConnectError, Heard, Hello, Link, Packet};
use crate::smr::bounce::{BounceReceiver, Shape};
use crate::state::State;

/// How long a post to a peer that is gone is refused without looking for it again.
const DEAD_PAUSE: Duration = Duration::from_millis(10);

impl State {
    /// Makes sure that a message to the peer can be written: there is an outbox, and somebody has
    /// it or is looked for.
    ///
    /// # Errors
    /// [`Errno::NotConn`] for a peer that is gone and not back.
    #[cold]
    pub(crate) fn reach(&mut self, index: usize) -> Result {
        let now = Instant::now();
        match self.peers[index].state {
            PeerState::Linked | PeerState::Waiting { .. } => Ok(()),
            PeerState::Idle => self.begin(index, now, true),
            PeerState::Dead { next_try } if now < next_try => Err(Errno::NotConn),
            PeerState::Dead { .. } => self.begin(index, now, false),
        }
    }

    /// Looks for the peer; with `patient`, also when it is not there yet.
    fn begin(&mut self, index: usize, now: Instant, patient: bool) -> Result {
        let link = match Link::connect(&self.peers[index].name) {
            Ok(link) => Some(link),
            Err(ConnectError::NotYet) if patient => None,
            Err(ConnectError::NotYet) => {
                let next_try = now + DEAD_PAUSE;
                self.peers[index].state = PeerState::Dead { next_try };
                return Err(Errno::NotConn);
            }
            Err(ConnectError::Failed(error)) => return Err(report(&error)),
        };
        self.ensure_outbox(index).map_err(|e| report(&e))?;
        match link {
            Some(link) => self.link_up(index, link).map_err(|e| report(&e)),
            None => {
                let deadline = now + self.config.peer_timeout;
                self.peers[index].state = PeerState::Waiting { deadline };
                self.control.waiting.push(index as u32);
                Ok(())
            }
        }
    }

    fn ensure_outbox(&mut self, index: usize) -> Result<(), Error> {
        let peer = &mut self.peers[index];
        if peer.out.is_none() {
            peer.out = Some(Outbox::create(&peer.name, index as u32, &self.config)?);
        }
        Ok(())
    }

    /// Says hello over a socket and keeps it: from here on the peer has our outbox.
    fn link_up(&mut self, index: usize, link: Link) -> Result<(), Error> {
        let peer = &mut self.peers[index];
        let out = peer.out.as_ref().expect("made before the contact");
        self.control
            .greet(&link, index, &out.region, &self.config)?;
        self.control.watch_peer(link.fd(), index)?;
        if peer.pidfd.is_none()
            && let Some(fd) = pidfd(link.peer_pid())
        {
            self.control.watch_peer(&fd, index)?;
            peer.pidfd = Some(fd);
        }
        peer.links.push(link);
        peer.state = PeerState::Linked;
        self.release_held(index);
        Ok(())
    }

    /// Reports the sends that waited for the peer to exist.
    fn release_held(&mut self, index: usize) {
        for held in std::mem::take(&mut self.peers[index].held) {
            let what = held.kind.sent();
            match held.reports {
                true => self.ep.tx_done(held.context, what, held.flags),
                false => self.ep.tx_counted(what),
            }
        }
    }

    /// Looks at the sockets: new connections, what peers say, and who is gone.
    pub(crate) fn look_at_sockets(&mut self, now: Instant) {
        for news in self.control.news() {
            match news {
                News::Strangers => self.meet_strangers(now),
                News::Peer(index) => self.hear(index),
            }
        }
        if !self.control.waiting.is_empty() {
            self.look_for_waited(now);
        }
        if !self.control.strangers.is_empty() {
            self.control.drop_silent(now);
        }
    }

    fn meet_strangers(&mut self, now: Instant) {
        loop {
            match self.control.listener.accept() {
                Ok(Some(link)) => self.control.keep_stranger(link, now),
                Ok(None) => break,
                Err(error) => {
                    report(&error);
                    break;
                }
            }
        }
        let strangers = std::mem::take(&mut self.control.strangers);
        for stranger in strangers {
            match stranger.link.receive() {
                Ok(Heard::Nothing) => self.control.strangers.push(stranger),
                Ok(Heard::End) => {}
                Ok(Heard::Packet(packet)) => {
                    if let Err(error) = self.welcome(stranger.link, *packet) {
                        report(&error);
                    }
                }
                Err(error) => drop(report(&error)),
            }
        }
    }

    /// A connection has said hello.
    fn welcome(&mut self, link: Link, packet: Packet) -> Result<(), Error> {
        let Packet::Hello(hello, region, bell) = packet else {
            return Err(Error::new(
                Errno::Proto,
                "a stranger did not say hello first",
            ));
        };
        self.control.accepts(&hello)?;
        let index = self.peer_named(&hello.name);
        if self.is_same_life(index, &hello)? {
            self.control.watch_peer(link.fd(), index)?;
            self.peers[index].links.push(link);
            return Ok(());
        }
        let inbox = Inbox::attach(&hello, region, bell)?;
        self.ensure_outbox(index)?;
        self.adopt(index, &hello, inbox, &link);
        self.link_up(index, link)
    }

    /// Whether we know this life of the peer already. If we know an earlier one, that one is over.
    fn is_same_life(&mut self, index: usize, hello: &Hello) -> Result<bool, Error> {
        // What the peer said over the socket that we opened comes first.
        self.hear(index);
        match self.peers[index].incarnation {
            None => Ok(false),
            Some(known) if known == hello.incarnation => Ok(true),
            Some(_) => {
                let what = format!(
                    "somebody calls itself {} while that endpoint is alive",
                    hello.name
                );
                Err(Error::new(Errno::AddrInUse, what))
            }
        }
    }

    /// Takes over what a hello brought.
    fn adopt(&mut self, index: usize, hello: &Hello, inbox: Inbox, link: &Link) {
        let peer = &mut self.peers[index];
        peer.incarnation = Some(hello.incarnation);
        peer.inbox = Some(inbox);
        if self.config.protocol != Protocol::Bounce {
            peer.cma = probe(peer, hello, link);
        }
        self.warm_up(index);
    }

    /// Hears what a peer says, and notices its end.
    pub(crate) fn hear(&mut self, index: usize) {
        loop {
            let Some(peer) = self.peers.get(index) else {
                return;
            };
            let mut packets = Vec::new();
            let mut is_over = peer.pidfd.as_ref().is_some_and(is_readable);
            for (place, link) in peer.links.iter().enumerate() {
                match link.receive() {
                    Ok(Heard::Nothing) => {}
                    Ok(Heard::End) => is_over = true,
                    Ok(Heard::Packet(packet)) => packets.push((place, *packet)),
                    Err(error) => {
                        report(&error);
                        is_over = true;
                    }
                }
            }
            let is_quiet = packets.is_empty();
            for (place, packet) in packets {
                if let Err(error) = self.understand(index, place, packet) {
                    report(&error);
                    self.quarantine(index, "a packet that makes no sense");
                    return;
                }
            }
            if is_quiet && is_over && self.drain(index) {
                self.lose(index, Errno::ConnReset, "it has closed or died");
            }
            if is_quiet {
                return;
            }
        }
    }

    fn understand(&mut self, index: usize, place: usize, packet: Packet) -> Result<(), Error> {
        match packet {
            Packet::Hello(hello, region, bell) => {
                let peer = &self.peers[index];
                if peer.incarnation == Some(hello.incarnation) {
                    return Ok(());
                }
                if peer.incarnation.is_some() || hello.name != peer.name {
                    let what = format!("{} answers as {}", peer.name, hello.name);
                    return Err(Error::new(Errno::Proto, what));
                }
                self.control.accepts(&hello)?;
                let inbox = Inbox::attach(&hello, region, bell)?;
                let pid = probe(&self.peers[index], &hello, &self.peers[index].links[place]);
                let peer = &mut self.peers[index];
                peer.incarnation = Some(hello.incarnation);
                peer.inbox = Some(inbox);
                peer.cma = pid.filter(|_| self.config.protocol != Protocol::Bounce);
                self.warm_up(index);
                Ok(())
            }
            Packet::Bounce {
                segment_count,
                segment_size,
                fd,
            } => {
                let shape = Shape {
                    count: segment_count as usize,
                    size: segment_size as usize,
                };
                self.peers[index].bounce = Some(BounceReceiver::attach(fd, shape)?);
                Ok(())
            }
        }
    }

    /// Tries again to find the peers that did not exist, and gives up on those that never will.
    fn look_for_waited(&mut self, now: Instant) {
        for index in std::mem::take(&mut self.control.waiting) {
            let place = index as usize;
            let PeerState::Waiting { deadline } = self.peers[place].state else {
                continue;
            };
            match Link::connect(&self.peers[place].name) {
                Ok(link) => {
                    if let Err(error) = self.link_up(place, link) {
                        self.lose(place, report(&error), "saying hello failed");
                    }
                }
                Err(ConnectError::NotYet) if now < deadline => self.control.waiting.push(index),
                Err(ConnectError::NotYet) => {
                    self.lose(place, Errno::ConnRefused, "no endpoint has this name");
                }
                Err(ConnectError::Failed(error)) => {
                    self.lose(place, report(&error), "it cannot be connected to");
                }
            }
        }
    }

    /// Stops believing a peer that broke the protocol.
    #[cold]
    pub(crate) fn quarantine(&mut self, index: usize, what: &str) {
        let name = &self.peers[index].name;
        log::warn!(target: "selvedge::shm::ep_data", "{name} is cut off: {what}");
        self.peers[index].inbox = None;
        self.lose(index, Errno::ConnReset, what);
    }

    /// Ends a peer's life: fails everything that it has a part in.
    #[cold]
    pub(crate) fn lose(&mut self, index: usize, errno: Errno, why: &str) {
        let peer = &mut self.peers[index];
        let addr = peer.fi_addr(&self.av);
        let detail = format!("{}: {why}", peer.name);
        peer.life = peer.life.wrapping_add(1);
        peer.state = PeerState::Dead {
            next_try: Instant::now(),
        };
        peer.incarnation = None;
        peer.links.clear();
        peer.pidfd = None;
        peer.cma = None;
        peer.inbox = None;
        peer.bounce = None;
        let out = peer.out.take();
        let held = std::mem::take(&mut peer.held);
        let incoming = std::mem::take(&mut peer.incoming);
        self.forget_turns(index);
        let ep = &self.ep;
        for held in held {
            ep.tx_failed(held.context, held.kind.sent(), errno, addr, detail.clone());
        }
        for op in out
            .into_iter()
            .flat_map(|mut out| out.ops.drain().collect::<Vec<_>>())
        {
            if !matches!(op.body, OpBody::Reported) {
                ep.tx_failed(op.context, op.kind.sent(), errno, addr, detail.clone());
            }
        }
        for (_, message) in incoming {
            if let Stage::Moving(moving) = message.stage {
                ep.rx_failed(moving.posted, errno, addr, detail.clone());
            }
        }
        for posted in self.inbound.fail_source(Source(index as u32)) {
            ep.rx_failed(posted, errno, addr, detail.clone());
        }
    }

    /// Takes what a peer that is gone had committed. `false` while there is no room for all of it;
    /// its end is noticed again then.
    fn drain(&mut self, index: usize) -> bool {
        while self.poll(index, usize::MAX) > 0 {}
        while matches!(self.move_transfer(index), Ok(moved) if moved > 0) {}
        let inbox = self.peers[index].inbox.as_ref();
        inbox.is_none_or(|inbox| inbox.rx.peek().is_none())
    }

    fn forget_turns(&mut self, index: usize) {
        self.hot.retain(|&hot| hot as usize != index);
        self.peers[index].is_hot = false;
        self.control
            .waiting
            .retain(|&waiting| waiting as usize != index);
    }

    /// Ends every contact. Nothing of ours is touched by a peer afterwards: a copy that is under
    /// way is thrown away by whoever makes it.
    pub(crate) fn close(&mut self) {
        for peer in &mut self.peers {
            if let Some(out) = &peer.out {
                out.region.close();
            }
            peer.links.clear();
            peer.incoming.clear();
            peer.out = None;
            peer.inbox = None;
        }
    }
}

/// Whether the peer's memory can be read.
fn probe(peer: &Peer, hello: &Hello, link: &Link) -> Option<Target> {
    let target = Target::probe(link.peer_pid(), hello.nonce_addr, hello.nonce);
    if let Err(errno) = target {
        log::info!(
            target: "selvedge::shm::ep_ctrl",
            "{}: no cross-memory attach ({errno}); large messages are bounced", peer.name
        );
    }
    target.ok()
}

fn is_readable(fd: &std::os::fd::OwnedFd) -> bool {
    use std::os::fd::AsFd;

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    matches!(poll(&mut fds, PollTimeout::ZERO), Ok(1))
}

/// Logs an error where it is decided; what is left is its number.
fn report(error: &Error) -> Errno {
    log::warn!(target: "selvedge::shm::ep_ctrl", "{error}");
    error.errno()
}
