//! Contact: how peers are met, heard and lost.
//!
//! The first message to a peer makes the contact: its bytes are in our outbox when the peer hears
//! of us. With an authorization key, both ends prove it before that, and messages wait in the
//! outbox. Whoever is met answers with a hello of its own. When both connect at once, each side
//! takes the other's first hello and ignores the second: they say the same.
//!
//! How peers are lost again is the business of the module `loss`.

pub(crate) mod control;
pub(crate) mod directory;
pub(crate) mod discard;
pub(crate) mod exchange;
pub(crate) mod incarnation;
pub(crate) mod intake;
pub(crate) mod liveness;
pub(crate) mod loss;
pub(crate) mod packet;
pub(crate) mod rendezvous;
pub(crate) mod user;

use std::time::{Duration, Instant};

use nix::poll::PollFlags;
use selvedge::{Errno, Error, Result};
use selvedge_kit::cq::Sink;
use selvedge_kit::rate_limit::warn_limited;
use selvedge_kit::telemetry::EventKind;

use crate::connect::control::{Control, News, Stranger};
use crate::connect::liveness::is_ready;
use crate::connect::packet::{Hello, Introduction, Packet};
use crate::connect::rendezvous::{ContactError, Heard, Link, PACKETS, PACKETS_AHEAD};
use crate::matching::Matching;
use crate::matching::command_receiver::CommandReceiver;
use crate::peers::Peers;
use crate::peers::outbox::{Inbox, Outbox};
use crate::peers::peer::{Peer, State as PeerState};
use crate::peers::telemetry;
use crate::progress::schedule::Schedule;
use crate::provider::config::Protocol;
use crate::provider::setup::Setup;
use crate::smr::bounce::{BounceReceiver, Shape};
use crate::transfers::cma::Target;
use crate::transfers::transfer;

/// The parts of an endpoint that connections to peers, and their ends, change.
#[derive(Debug)]
pub(crate) struct Connector<'a> {
    pub(crate) setup: &'a Setup,
    pub(crate) peers: &'a mut Peers,
    pub(crate) matching: &'a mut Matching,
    pub(crate) schedule: &'a mut Schedule,
    pub(crate) control: &'a mut Control,
}

/// How much longer than `FI_SHM_PEER_TIMEOUT` a peer is tried that exists and has no room for
/// another connection.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Messages that are taken from a peer that has woken the endpoint.
const BUDGET: usize = 64;

/// Sockets between two endpoints: one that we opened, one that the peer did.
const LINKS_MAX: usize = 2;

impl Connector<'_> {
    /// Makes sure that a message to the peer can be written: there is an outbox, and somebody has
    /// it or is looked for.
    ///
    /// # Errors
    /// [`Errno::NotConn`] for a peer that is gone and not back; what was short, if something was.
    #[cold]
    pub(crate) fn reach(&mut self, index: usize) -> Result {
        self.control.intake.begin(Instant::now());
        let reached = match self.peers[index].state {
            PeerState::Linked | PeerState::Behind | PeerState::Waiting { .. } => return Ok(()),
            PeerState::Idle => self.reach_first(index),
            PeerState::Dead => self.reach_again(index),
            PeerState::Ending { .. } => return Err(Errno::NotConn),
        };
        self.schedule.parking.wake(&self.setup.ep);
        reached
    }

    /// Looks for a peer that was never met, and waits for it if it is not there yet.
    fn reach_first(&mut self, index: usize) -> Result {
        match self.introduce(index) {
            Ok(()) => Ok(()),
            Err(ContactError::Failed(error)) => Err(self.give_back(index, &error)),
            Err(ContactError::Refused(error) | ContactError::Untrusted(error)) => {
                self.give_back(index, &error);
                Err(Errno::ConnRefused)
            }
            // An earlier life has left more than there is room for.
            Err(_) if self.is_ending(index) => Err(Errno::NotConn),
            Err(ContactError::NotYet(_) | ContactError::Busy(_)) => {
                self.ensure_outbox(index).map_err(|e| report(&e))?;
                let deadline = Instant::now() + self.setup.config.peer_timeout;
                let peer = &mut self.peers[index];
                peer.state = PeerState::Waiting { deadline };
                self.setup
                    .ep
                    .stats
                    .record_event(EventKind::AwaitingPeer, peer.name.as_str(), 0);
                self.show_now();
                self.control.wait_for(index);
                Ok(())
            }
        }
    }

    /// Looks once for a peer that is gone.
    fn reach_again(&mut self, index: usize) -> Result {
        match self.introduce(index) {
            Ok(()) => Ok(()),
            Err(ContactError::Failed(error)) => Err(self.give_back(index, &error)),
            Err(ContactError::Refused(error) | ContactError::Untrusted(error)) => {
                self.give_back(index, &error);
                Err(Errno::ConnRefused)
            }
            Err(ContactError::NotYet(_) | ContactError::Busy(_)) => {
                self.peers[index].out = None;
                self.hear_the_latest(index)
            }
        }
    }

    /// Receives what a life may have left that began and ended since, before it is said that there is
    /// none. [`Errno::Again`] as long as connections wait that came before the post.
    fn hear_the_latest(&mut self, index: usize) -> Result {
        let mark = self.control.intake.mark();
        let mark = *self.peers[index].sought_at.get_or_insert(mark);
        let is_heard = self.hear_all_before(index, mark);
        let peer = &mut self.peers[index];
        match peer.state {
            // It has come just now.
            PeerState::Linked | PeerState::Behind => Ok(()),
            _ if !is_heard || peer.next.is_some() => Err(Errno::Again),
            _ => {
                peer.sought_at = None;
                Err(Errno::NotConn)
            }
        }
    }

    /// Nothing stays of a contact that did not come about.
    fn give_back(&mut self, index: usize, error: &Error) -> Errno {
        self.peers[index].out = None;
        report(error)
    }

    /// Connects to the peer and says hello: from here on it has our outbox.
    pub(crate) fn introduce(&mut self, index: usize) -> Result<(), ContactError> {
        let mut next = self.next_life(index)?;
        let is_heard = self.hear_last_words(index, next.mark);
        match self.peers[index].state {
            // It was faster.
            PeerState::Linked | PeerState::Behind => return Ok(()),
            PeerState::Ending { .. } => {
                return Err(ContactError::NotYet("an earlier life is not over"));
            }
            PeerState::Idle | PeerState::Dead | PeerState::Waiting { .. } => {}
        }
        if !is_heard {
            self.peers[index].next = Some(next);
            return Err(ContactError::Busy("others have connected before it"));
        }
        if !self.is_trusted(index, &mut next)? {
            self.peers[index].next = Some(next);
            return Err(ContactError::Busy("it has not proved its auth_key"));
        }
        let mut link = next.link;
        self.ensure_outbox(index)?;
        self.control.watch_link(&mut link, index)?;
        self.greet(index, &link)?;
        self.link_up(index, link);
        Ok(())
    }

    fn is_ending(&self, index: usize) -> bool {
        matches!(self.peers[index].state, PeerState::Ending { .. })
    }

    fn ensure_outbox(&mut self, index: usize) -> Result<(), Error> {
        let peer = &mut self.peers[index];
        if peer.out.is_none() {
            let addr = peer.fi_addr(&self.setup.av);
            let out = Outbox::create(&peer.name, addr, &self.setup.config)?;
            if self.setup.ep.counts_remote_access() {
                out.region.want_notices();
            }
            peer.out = Some(out);
        }
        Ok(())
    }

    fn greet(&mut self, index: usize, link: &Link) -> Result<(), ContactError> {
        let peer = &mut self.peers[index];
        let is_first = peer.links.is_empty();
        let region = &peer.outbox().region;
        let Setup { config, shared, .. } = self.setup;
        let control = &*self.control;
        let greet = || control.greet(link, index, region, config, shared.keys.chunks());
        match is_first {
            true => shared.announcements.add_subscriber(link, greet),
            false => greet(),
        }
    }

    /// Keeps a socket over which the peer has our outbox, and reports the sends that waited for
    /// the peer to exist.
    fn link_up(&mut self, index: usize, link: Link) {
        let peer = &mut self.peers[index];
        if peer.pidfd.is_none() {
            peer.pidfd = link
                .peer_pidfd()
                .filter(|fd| self.control.watch_process(fd, index).is_ok());
        }
        (peer.next, peer.sought_at) = (None, None);
        peer.links.push(link);
        peer.state = match peer.later.is_empty() {
            true => PeerState::Linked,
            false => PeerState::Behind,
        };
        for held in std::mem::take(&mut peer.held) {
            held.done(&self.setup.ep);
        }
        self.show_now();
    }

    /// Polls the sockets: new connections, what peers say, and which are gone.
    pub(crate) fn poll_sockets(&mut self, now: Instant) {
        self.setup.shared.announcements.catch_up();
        self.control.intake.begin(now);
        let mut has_strangers = self.control.has_stale(now) || self.control.is_short();
        for news in self.control.news() {
            match news {
                News::Strangers => has_strangers = true,
                News::Peer(index) => self.hear_news(index),
            }
        }
        for index in self.control.take_short_peers() {
            self.hear_again(index as usize);
        }
        for index in self.control.due(now) {
            self.search(index, now);
        }
        for index in std::mem::take(&mut self.schedule.ending) {
            self.bury(index as usize);
        }
        for (link, introduction) in self.control.take_early() {
            self.welcome(link, introduction);
        }
        if has_strangers {
            self.meet_strangers(now);
            self.control.drop_silent(now);
        }
        self.control.tend(now);
    }

    /// Tries again to find a peer that did not exist, or gives it up.
    fn search(&mut self, index: usize, now: Instant) {
        let PeerState::Waiting { deadline } = self.peers[index].state else {
            return;
        };
        let met = self.introduce(index);
        let deadline = match self.peers[index].state {
            PeerState::Waiting { deadline } => deadline,
            _ => deadline,
        };
        match met {
            Ok(()) => {}
            // It is looked for again when its earlier life is over.
            Err(ContactError::NotYet(_)) if self.is_ending(index) => {}
            Err(ContactError::NotYet(_)) if now < deadline => self.control.wait_for(index),
            Err(ContactError::Busy(_))
                if now < deadline + BUSY_TIMEOUT || self.peers[index].is_asked() =>
            {
                self.control.wait_for(index);
            }
            Err(ContactError::NotYet(why) | ContactError::Busy(why)) => {
                self.peers[index].next = None;
                self.lose(index, Errno::ConnRefused, why);
            }
            Err(ContactError::Refused(error)) => {
                self.refused(index, error.errno(), error.message())
            }
            Err(ContactError::Untrusted(error)) => self.cut_off(index, &error),
            Err(ContactError::Failed(error)) => {
                self.lose(index, report(&error), "it cannot be connected to");
            }
        }
    }

    /// Hears connections that have not said hello, and takes new ones, as far as the intake allows.
    pub(crate) fn meet_strangers(&mut self, now: Instant) {
        for _ in 0..self.control.strangers() {
            if self.control.intake.allows_hello()
                && let Some(stranger) = self.control.take_stranger()
            {
                self.hear_stranger(stranger);
            }
        }
        while let Some(stranger) = self.control.accept(now) {
            self.hear_stranger(stranger);
        }
    }

    fn hear_stranger(&mut self, mut stranger: Stranger) {
        match stranger.link.receive() {
            Ok(Heard::Nothing) => self.control.keep_stranger(stranger),
            Ok(Heard::Short) => self.control.keep_short(stranger, Instant::now()),
            Ok(Heard::End) => {}
            Ok(Heard::Packet(packet)) => {
                self.control.intake.count_hello();
                self.understand_stranger(stranger, *packet);
            }
            Err(error) => refuse(stranger.link, &error),
        }
    }

    fn understand_stranger(&mut self, mut stranger: Stranger, packet: Packet) {
        let said = match packet {
            Packet::Hello(introduction) if stranger.is_convincing() => {
                return self.welcome(stranger.link, introduction);
            }
            Packet::Hello(introduction) => {
                let error = self.control.has_another_key(&introduction.hello.name);
                return refuse(stranger.link, &error);
            }
            said => said,
        };
        match self.control.examine(&mut stranger, said) {
            // One that does not hear it notices the end.
            Ok(answer) if stranger.link.send(&answer, &[]).is_err() => {}
            Ok(_) => self.control.keep_stranger(stranger),
            Err(error) => refuse(stranger.link, &error),
        }
    }

    /// A connection has said hello.
    pub(crate) fn welcome(&mut self, link: Link, introduction: Introduction) {
        if let Err(error) = self.control.accepts(&introduction.hello) {
            return refuse(link, &error);
        }
        let has_left = |source| self.matching.has_unexpected_from(source);
        let index = self.peers.introduced(&introduction.hello.name, has_left);
        // What the peer said over the socket that we opened comes first, all of it if it has ended.
        match has_ended(&self.peers[index]) {
            true => self.listen(index),
            false => _ = self.listen_some(index),
        }
        let peer = &self.peers[index];
        let is_known = peer.incarnation == Some(introduction.hello.incarnation);
        let is_ending = matches!(peer.state, PeerState::Ending { .. });
        // An earlier life than the one that we talk to or wait for, perhaps.
        let is_sought = matches!(
            peer.state,
            PeerState::Linked | PeerState::Behind | PeerState::Waiting { .. }
        );
        let is_doubtful = is_sought && link.is_over();
        let welcomed = match peer.incarnation {
            _ if is_ending => return self.control.keep_early(link, introduction),
            None if is_doubtful => self.hear_out(index, link, introduction),
            Some(_) if is_known => self.add_link(index, link),
            Some(_) => Err((link, taken(&peer.name))),
            None => self.accept(index, link, introduction),
        };
        if let Err((link, error)) = welcomed {
            refuse(link, &error);
            self.peers.dismiss(index);
        }
    }

    /// Keeps a second socket to a peer that is known already.
    fn add_link(&mut self, index: usize, mut link: Link) -> Result<(), (Link, Error)> {
        let peer = &mut self.peers[index];
        if peer.links.len() >= LINKS_MAX {
            let what = format!("{} connects again and again", peer.name);
            return Err((link, Error::new(Errno::Proto, what)));
        }
        match self.control.watch_link(&mut link, index) {
            Ok(()) => peer.links.push(link),
            Err(error) => return Err((link, error)),
        }
        Ok(())
    }

    /// Takes over what a hello brought, and answers it.
    pub(crate) fn accept(
        &mut self,
        index: usize,
        mut link: Link,
        introduction: Introduction,
    ) -> Result<(), (Link, Error)> {
        let is_met = !matches!(self.peers[index].state, PeerState::Idle | PeerState::Dead);
        match self.answer_hello(index, &mut link, introduction) {
            Ok((hello, inbox)) => {
                self.link_up(index, link);
                self.adopt(index, &hello, inbox);
                Ok(())
            }
            Err(error) => {
                if !is_met {
                    self.peers[index].out = None;
                }
                Err((link, error))
            }
        }
    }

    fn answer_hello(
        &mut self,
        index: usize,
        link: &mut Link,
        introduction: Introduction,
    ) -> Result<(Hello, Inbox), Error> {
        let (hello, inbox) = attach(introduction)?;
        self.ensure_outbox(index)?;
        self.control.watch_link(link, index)?;
        match self.greet(index, link) {
            Ok(()) => {}
            // Gone already. Its messages are received, then its end is noticed.
            Err(ContactError::NotYet(_) | ContactError::Busy(_)) => {}
            Err(
                ContactError::Failed(error)
                | ContactError::Refused(error)
                | ContactError::Untrusted(error),
            ) => return Err(error),
        }
        Ok((hello, inbox))
    }

    /// Begins a life of the peer: from here on its commands are read.
    fn adopt(&mut self, index: usize, hello: &Hello, inbox: Inbox) {
        let peer = &mut self.peers[index];
        peer.incarnation = Some(hello.incarnation);
        peer.wants_notices = inbox.region.wants_notices();
        (peer.is_careful, peer.is_fenced) = (peer.wants_notices, false);
        peer.sibling = self.setup.shared.siblings.find(&peer.name);
        peer.inbox = Some(inbox);
        peer.keys.expect(hello.key_chunks as usize);
        if self.setup.config.protocol != Protocol::Bounce {
            peer.cma = probe(peer, hello);
        }
        self.setup
            .ep
            .stats
            .record_event(EventKind::Connected, peer.name.as_str(), 0);
        self.schedule
            .start_polling(self.peers, index, &self.setup.ep);
        self.show_now();
    }

    /// Hears as much of a peer as one poll of the sockets does. Says whether that was all.
    pub(crate) fn listen_some(&mut self, index: usize) -> bool {
        self.listen_until(index, PACKETS, |_| false)
    }

    /// Hears what there is news of. Most of the time a peer has woken us, and that is all: whatever
    /// is behind it is news again at the next poll.
    fn hear_news(&mut self, index: usize) {
        self.listen_until(index, PACKETS, |packet| matches!(packet, Packet::Wake));
    }

    /// Hears a peer whose next packet had to wait for a descriptor.
    #[cold]
    fn hear_again(&mut self, index: usize) {
        for link in &mut self.peers[index].links {
            if let Err(cause) = link.unmute() {
                let error = Error::new(Errno::from_raw(cause as i32), "watching a peer");
                return self.cut_off(index, &error.because(cause));
            }
        }
        self.hear_news(index);
    }

    /// Hears all that a peer has said when this is called, and notices its end. What a peer says
    /// meanwhile is heard up to as much as a socket keeps.
    pub(crate) fn listen(&mut self, index: usize) {
        self.listen_until(index, PACKETS_AHEAD, |_| false);
    }

    /// Hears so many packets at most. Says whether no more of them wait.
    fn listen_until(&mut self, index: usize, most: usize, is_last: fn(&Packet) -> bool) -> bool {
        for _ in 0..most {
            match next_packet(&mut self.peers[index]) {
                Ok(Heard::Nothing) => return true,
                Ok(Heard::Short) => {
                    self.peers[index].links.iter_mut().for_each(Link::mute);
                    self.control.wait_for_descriptors(index);
                    return true;
                }
                Ok(Heard::End) => {
                    self.end(index, Errno::ConnReset, "it has closed or died");
                    return true;
                }
                Ok(Heard::Packet(packet)) => {
                    if let Packet::Refusal { errno, why } = *packet {
                        self.refused(index, errno, &why);
                        return true;
                    }
                    let is_last = is_last(&packet);
                    if let Err(error) = self.understand(index, *packet) {
                        self.cut_off(index, &error);
                        return true;
                    }
                    if is_last {
                        return false;
                    }
                }
                Err(error) => {
                    self.cut_off(index, &error);
                    return true;
                }
            }
        }
        false
    }

    fn understand(&mut self, index: usize, packet: Packet) -> Result<(), Error> {
        let peer = &mut self.peers[index];
        match packet {
            Packet::Hello(introduction) => self.hear_answer(index, introduction),
            Packet::Bounce {
                segment_count,
                segment_size,
                fd,
            } => {
                let shape = Shape {
                    count: segment_count as usize,
                    size: segment_size as usize,
                };
                if peer.bounce.is_some() {
                    return Err(Error::new(Errno::Proto, "it has two bounce regions"));
                }
                peer.bounce = Some(BounceReceiver::attach(fd, shape)?);
                Ok(())
            }
            Packet::Block { place, fd } => peer.blocks.map(place, fd),
            Packet::Release { block } => {
                peer.blocks.release(block);
                peer.mapped_regions.clear();
                Ok(())
            }
            Packet::Keys { chunk, fd } => peer.keys.attach(chunk as usize, fd),
            Packet::Abort { msg_id, errno } => {
                let src = peer.fi_addr(&self.setup.av);
                match transfer::abort_incoming(peer, &self.setup.ep, src, msg_id, errno) {
                    true => Ok(()),
                    false => Err(Error::new(Errno::Proto, "it aborts what was not asked for")),
                }
            }
            Packet::Wake => {
                self.woken_by(index);
                Ok(())
            }
            Packet::Question { .. } | Packet::Nonce(_) | Packet::Proof(_) => {
                Err(Error::new(Errno::Proto, "it proves what was not asked for"))
            }
            Packet::Refusal { errno, why } => Err(Error::new(errno, why)),
        }
    }

    /// A peer has woken the endpoint.
    fn woken_by(&mut self, index: usize) {
        let ep = &self.setup.ep;
        self.peers[index].wake_up.spend();
        self.schedule.spend_wakeup(ep);
        self.schedule.start_polling(self.peers, index, ep);
        self.take_commands(index, BUDGET);
    }

    /// Takes up to `budget` commands of a peer, outside of a read of a queue.
    pub(crate) fn take_commands(&mut self, index: usize, budget: usize) {
        let mut receiver = CommandReceiver {
            setup: self.setup,
            matching: self.matching,
            schedule: self.schedule,
            peers: self.peers.len(),
        };
        receiver.poll(&mut self.peers[index], budget, &mut Sink::none());
    }

    /// What a post fails with that found no room for its command. A peer that lies about the commands
    /// that it has consumed is cut off.
    pub(crate) fn reserve_error(&mut self, index: usize, errno: Errno) -> Errno {
        if errno != Errno::Proto {
            return errno;
        }
        self.quarantine(index, "credit for commands that were never sent");
        Errno::NotConn
    }

    fn show_now(&self) {
        telemetry::show_now(self.setup, self.peers, self.matching, Instant::now());
    }

    /// The peer has answered our hello, or says over a second socket what it said over the first.
    fn hear_answer(&mut self, index: usize, introduction: Introduction) -> Result<(), Error> {
        let (peer, hello) = (&self.peers[index], &introduction.hello);
        if peer.incarnation == Some(hello.incarnation) {
            return Ok(());
        }
        if peer.incarnation.is_some() || hello.name != peer.name {
            let what = format!("{} answers as {}", peer.name, hello.name);
            return Err(Error::new(Errno::Proto, what));
        }
        self.control.accepts(hello)?;
        let (hello, inbox) = attach(introduction)?;
        self.adopt(index, &hello, inbox);
        Ok(())
    }
}

/// What a peer says next, over whichever socket. Its end comes after everything else: a process that
/// is over is asked for once more, because it may have spoken since.
fn next_packet(peer: &mut Peer) -> Result<Heard, Error> {
    match heard(peer)? {
        Heard::Nothing if is_over(peer) => Ok(match heard(peer)? {
            Heard::Nothing => Heard::End,
            heard => heard,
        }),
        heard => Ok(heard),
    }
}

fn heard(peer: &mut Peer) -> Result<Heard, Error> {
    let mut is_over = false;
    for link in &mut peer.links {
        match link.receive()? {
            Heard::Nothing => {}
            Heard::End => is_over = true,
            heard @ (Heard::Packet(_) | Heard::Short) => return Ok(heard),
        }
    }
    Ok(if is_over { Heard::End } else { Heard::Nothing })
}

/// Whether the peer has closed a socket or its process has ended: it says no more than waits there.
fn has_ended(peer: &Peer) -> bool {
    is_over(peer) || peer.links.iter().any(Link::is_over)
}

/// Whether the peer's process has ended.
fn is_over(peer: &Peer) -> bool {
    let pidfd = peer.pidfd.as_ref();
    pidfd.is_some_and(|fd| is_ready(fd, PollFlags::POLLIN))
}

/// Maps what came with a hello.
fn attach(introduction: Introduction) -> Result<(Hello, Inbox), Error> {
    let Introduction {
        hello,
        region,
        bell,
    } = introduction;
    let inbox = Inbox::attach(&hello, region, bell)?;
    Ok((hello, inbox))
}

/// Whether the peer's memory can be read.
fn probe(peer: &Peer, hello: &Hello) -> Option<Target> {
    let pid = peer.links.first().map_or(0, Link::peer_pid);
    let target = Target::probe(pid, hello.nonce_addr, hello.nonce);
    if let Err(errno) = target {
        log::info!(
            target: "selvedge::shm::ep_ctrl",
            "{}: no cross-memory attach ({errno}); large messages are bounced", peer.name
        );
    }
    target.ok()
}

fn taken(name: &crate::peers::name::Name) -> Error {
    let what = format!("somebody calls itself {name} while that endpoint is alive");
    Error::new(Errno::AddrInUse, what)
}

/// Ends a connection that cannot become a peer's.
fn refuse(link: Link, error: &Error) {
    report(error);
    link.refuse(error);
}

/// Logs an error where it is decided; what is left is its number.
fn report(error: &Error) -> Errno {
    warn_limited("selvedge::shm::ep_ctrl", format_args!("{error}"));
    error.errno()
}
