//! What an endpoint listens to besides shared memory: its rendezvous socket, the sockets to its
//! peers, and their process descriptors, behind one `epoll(7)` descriptor.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use selvedge::info::EpType;
use selvedge::{Errno, Error};
use selvedge_kit::auth::AuthKey;
use selvedge_kit::auth::proof::{Mismatch, Responder};
use selvedge_kit::rate_limit::warn_limited;

use crate::connect::directory;
use crate::connect::discard;
use crate::connect::intake::Intake;
use crate::connect::packet::{Bytes, Hello, Introduction, Packet, encode_nonce, encode_proof};
use crate::connect::rendezvous::{Accepted, ContactError, Link, Listener};
use crate::peers::name::{Name, random};
use crate::provider::config::Config;
use crate::smr::Memory;
use crate::smr::doorbell::Doorbell;

/// Events of one look. The end of a peer is one, and takes some hundred microseconds.
const EVENTS: usize = 8;
/// Between two searches for peers that do not exist yet.
const SEARCH_INTERVAL: Duration = Duration::from_micros(500);
/// Peers that are looked for in one search.
const SEARCH: usize = 16;

/// The sockets of an endpoint, and what it says about itself there.
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) name: Name,
    pub(crate) incarnation: u128,
    ep_type: EpType,
    pub(crate) key: AuthKey,
    nonce: Box<u64>,
    pub(crate) listener: Listener,
    /// Where the name is, if it is a file, and when to see next whether it still is.
    directory: Option<Arc<Path>>,
    next_tending: Instant,
    epoll: Arc<Epoll>,
    pub(crate) doorbell: Doorbell,
    doorbell_memory: Memory,
    /// Connections that are kept before they have become a peer's, and how long each may take to
    /// say hello.
    strangers_max: usize,
    hello_timeout: Duration,
    /// How many connections are taken, and when.
    pub(crate) intake: Intake,
    /// Connections that have not said hello.
    strangers: VecDeque<Stranger>,
    /// Those that have, and whose name is still an earlier life's.
    early: Vec<(Link, Introduction)>,
    /// Peers that do not exist yet and are waited for.
    waiting: VecDeque<u32>,
    next_search: Instant,
    pub(crate) exchange: Exchange,
    /// Whether connections wait until there are descriptors for them.
    is_short: bool,
    /// Peers whose next packet waits until there are descriptors for what comes along.
    short_peers: Vec<u32>,
}

/// When the endpoint last looked for the peers of its address vector.
#[derive(Debug, Default)]
pub(crate) struct Exchange {
    /// The address vector, as it was then.
    pub(crate) epoch: Option<u64>,
    pub(crate) next: Option<Instant>,
}

/// A connection that has not said hello.
#[derive(Debug)]
pub(crate) struct Stranger {
    pub(crate) link: Link,
    since: Instant,
    /// What has come of its proof that it has our key.
    proof: Responder,
    /// What it calls itself, once it has asked for our nonce.
    name: Option<Name>,
}

impl Stranger {
    /// Whether it may say hello.
    pub(crate) fn is_convincing(&self) -> bool {
        self.proof.is_verified()
    }
}

/// What there is news of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// Somebody connects, or has connected and speaks.
    Strangers,
    /// A peer speaks or is gone.
    Peer(usize),
}

/// The token of everything that is no peer.
const STRANGERS: u64 = u64::MAX;

impl Control {
    /// Takes the name and gets ready to be met.
    pub(crate) fn open(
        name: Name,
        ep_type: EpType,
        key: AuthKey,
        config: &Config,
    ) -> Result<Self, Error> {
        let directory = config.directory.clone();
        let listener = Listener::bind(&name, directory.as_deref())?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)
            .map_err(|e| failed("watching sockets", e))?
            .into();
        let (doorbell, doorbell_memory) = Doorbell::create()?;
        let control = Self {
            name,
            incarnation: u128::from(random()) << 64 | u128::from(random()),
            ep_type,
            key,
            strangers_max: config.strangers,
            hello_timeout: config.hello_timeout,
            nonce: Box::new(random()),
            listener,
            directory,
            next_tending: Instant::now() + directory::INTERVAL,
            epoll,
            doorbell,
            doorbell_memory,
            intake: Intake::new(Instant::now()),
            strangers: VecDeque::new(),
            early: Vec::new(),
            waiting: VecDeque::new(),
            next_search: Instant::now(),
            exchange: Exchange::default(),
            is_short: false,
            short_peers: Vec::new(),
        };
        watched(control.watch(control.listener.fd(), STRANGERS))?;
        Ok(control)
    }

    /// What becomes ready when there is news.
    pub(crate) fn epoll(&self) -> Arc<Epoll> {
        Arc::clone(&self.epoll)
    }

    /// Whether somebody is looked for, or has to be looked at again without further notice.
    pub(crate) fn is_restless(&self) -> bool {
        let waits = !self.waiting.is_empty() || !self.early.is_empty();
        waits || self.is_short || !self.short_peers.is_empty()
    }

    /// How long nobody needs to look, if not for ever: a name that is a file may be taken away.
    pub(crate) fn patience(&self) -> Option<Duration> {
        self.directory.as_ref().map(|_| directory::INTERVAL)
    }

    /// Says hello: who we are, and the memory that the peer needs to talk to us.
    pub(crate) fn greet(
        &self,
        link: &Link,
        index: usize,
        region: &crate::smr::Region,
        config: &Config,
        key_chunks: usize,
    ) -> Result<(), ContactError> {
        let hello = Hello {
            ep_type: self.ep_type as u32,
            incarnation: self.incarnation,
            bell: index as u32,
            sizes: config.region,
            nonce_addr: std::ptr::from_ref(&*self.nonce).expose_provenance() as u64,
            nonce: *self.nonce,
            key_chunks: key_chunks as u32,
            name: self.name.clone(),
        };
        link.send(&hello.encode(), &[region.fd(), self.doorbell_memory.fd()])
    }

    /// The answer to what a connection says to prove that it has our key.
    ///
    /// # Errors
    /// [`Errno::KeyRejected`] when it has another key, or one where we have none.
    pub(crate) fn examine(&self, stranger: &mut Stranger, said: Packet) -> Result<Bytes, Error> {
        let (word, encode): (_, fn(&_) -> _) = match (&stranger.proof, said) {
            (Responder::AwaitNonce | Responder::Verified, Packet::Question { nonce, name }) => {
                stranger.name = Some(name);
                (nonce, encode_nonce)
            }
            (Responder::AwaitProof { .. }, Packet::Proof(proof)) => (proof, encode_proof),
            _ => {
                return Err(Error::new(
                    Errno::Proto,
                    "a stranger did not say hello first",
                ));
            }
        };
        let answer = stranger.proof.receive(&self.key, &word);
        answer
            .map(|answer| encode(&answer))
            .map_err(|Mismatch| match &stranger.name {
                Some(name) => self.has_another_key(name),
                None => Error::new(Errno::Proto, "a proof that was not asked for"),
            })
    }

    /// Why there is no contact with this endpoint.
    pub(crate) fn has_another_key(&self, name: &Name) -> Error {
        let what = format!("{name} has not the auth_key of {}", self.name);
        Error::new(Errno::KeyRejected, what)
    }

    /// Whether a hello is from an endpoint of our kind.
    pub(crate) fn accepts(&self, hello: &Hello) -> Result<(), Error> {
        if hello.ep_type == self.ep_type as u32 {
            return Ok(());
        }
        let theirs = EpType::from_raw(hello.ep_type).map_or("unknown", EpType::text);
        let what = format!(
            "{} is an endpoint of type {theirs}, {} of type {}",
            hello.name, self.name, self.ep_type
        );
        Err(Error::new(Errno::Proto, what))
    }

    /// Listens to a peer's socket from now on; it may have been a stranger's.
    pub(crate) fn watch_link(&self, link: &mut Link, index: usize) -> Result<(), Error> {
        watched(link.watch(&self.epoll, index as u64))
    }

    /// Listens to a peer's process from now on. Closing the descriptor ends that.
    pub(crate) fn watch_process(&self, fd: &OwnedFd, index: usize) -> Result<(), Error> {
        watched(self.watch(fd, index as u64))
    }

    /// Takes the next connection of our own user, if one may be taken in this look.
    pub(crate) fn accept(&mut self, now: Instant) -> Option<Stranger> {
        while self.intake.allows_connection() && !discard::is_behind() {
            let accepted = match self.listener.check_descriptors() {
                Ok(()) => self.listener.accept(),
                Err(error) => Err(error),
            };
            match accepted {
                Ok(Accepted::Link(link)) => {
                    self.intake.count_connection();
                    self.run_on();
                    return Some(self.stranger(link, now));
                }
                Ok(Accepted::Stranger) => self.intake.count_stranger(now),
                Ok(Accepted::Nothing) => self.intake.count_none(),
                Err(error) => {
                    self.run_short(&error);
                    return None;
                }
            }
            self.run_on();
        }
        None
    }

    /// A connection that has said nothing yet.
    fn stranger(&self, link: Link, since: Instant) -> Stranger {
        let proof = Responder::new(&self.key);
        Stranger {
            link,
            since,
            proof,
            name: None,
        }
    }

    /// Connections wait: they are no news until there are descriptors again.
    #[cold]
    fn run_short(&mut self, error: &Error) {
        if !std::mem::replace(&mut self.is_short, true) {
            let name = &self.name;
            warn_limited("selvedge::shm::ep_ctrl", format_args!("{name}: {error}"));
            let _ = self.epoll.delete(self.listener.fd());
        }
    }

    /// There are descriptors again, if there were none.
    fn run_on(&mut self) {
        if self.is_short && self.watch(self.listener.fd(), STRANGERS).is_ok() {
            self.is_short = false;
        }
    }

    /// Keeps a connection whose hello cannot be taken until there are descriptors for what comes
    /// along. Its time to say hello begins anew.
    pub(crate) fn keep_short(&mut self, mut stranger: Stranger, now: Instant) {
        if let Err(error) = self.listener.check_descriptors() {
            self.run_short(&error);
        }
        stranger.link.mute();
        stranger.since = now;
        self.strangers.push_back(stranger);
    }

    /// A peer's next packet waits until there are descriptors for what comes along.
    #[cold]
    pub(crate) fn wait_for_descriptors(&mut self, index: usize) {
        if self.waits_for_descriptors(index) {
            return;
        }
        let name = &self.name;
        warn_limited(
            "selvedge::shm::ep_ctrl",
            format_args!("{name}: memory of a peer has to wait until there is a descriptor for it"),
        );
        self.short_peers.push(index as u32);
    }

    /// Whether the next packet of a peer waits until there are descriptors.
    pub(crate) fn waits_for_descriptors(&self, index: usize) -> bool {
        self.short_peers.contains(&(index as u32))
    }

    /// The peers whose next packets may be taken by now.
    pub(crate) fn take_short_peers(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.short_peers)
    }

    /// Whether connections wait until there are descriptors for them.
    pub(crate) fn is_short(&self) -> bool {
        self.is_short
    }

    /// Listens anew when somebody has removed the files of our name.
    pub(crate) fn tend(&mut self, now: Instant) {
        let Some(directory) = &self.directory else {
            return;
        };
        if now < self.next_tending {
            return;
        }
        self.next_tending = now + directory::INTERVAL;
        if self.listener.is_lost() {
            let directory = Arc::clone(directory);
            self.listen_anew(&directory, now);
        }
    }

    #[cold]
    fn listen_anew(&mut self, directory: &Path, now: Instant) {
        let anew = self.listener.bind_again(&self.name, directory);
        let anew = anew.and_then(|listener| {
            watched(self.watch(listener.fd(), STRANGERS))?;
            Ok(listener)
        });
        match anew {
            Ok(listener) => {
                // Who has come to the old socket is not sent away; nobody comes there any more.
                let old = std::mem::replace(&mut self.listener, listener);
                for link in old.into_links() {
                    self.admit(self.stranger(link, now));
                }
            }
            Err(error) => warn_limited(
                "selvedge::shm::ep_ctrl",
                format_args!("{} cannot be found any more: {error}", self.name),
            ),
        }
    }

    /// Keeps a connection that was heard to be silent until it says hello. Of all that were, the one
    /// that was heard first makes room.
    pub(crate) fn keep_stranger(&mut self, stranger: Stranger) {
        if self.strangers.len() >= self.strangers_max {
            self.strangers.pop_front();
        }
        self.admit(stranger);
    }

    /// Keeps a connection until it was heard, however many there are: it may have said hello.
    fn admit(&mut self, mut stranger: Stranger) {
        match watched(stranger.link.watch(&self.epoll, STRANGERS)) {
            Ok(()) => self.strangers.push_back(stranger),
            Err(error) => stranger.link.refuse(&error),
        }
    }

    /// How many connections have not said hello.
    pub(crate) fn strangers(&self) -> usize {
        self.strangers.len()
    }

    /// The one of them that was heard first.
    pub(crate) fn take_stranger(&mut self) -> Option<Stranger> {
        self.strangers.pop_front()
    }

    /// Keeps a connection whose name is still an earlier life's.
    pub(crate) fn keep_early(&mut self, link: Link, introduction: Introduction) {
        if self.early.len() < self.strangers_max {
            self.early.push((link, introduction));
        } else {
            let what = format!("{} has too many connections that wait", self.name);
            link.refuse(&Error::new(Errno::Busy, what));
        }
    }

    /// The connections whose names were still an earlier life's.
    pub(crate) fn take_early(&mut self) -> Vec<(Link, Introduction)> {
        std::mem::take(&mut self.early)
    }

    /// Whether a connection has been there for too long; it may have said hello by now.
    pub(crate) fn has_stale(&self, now: Instant) -> bool {
        let patience = self.hello_timeout;
        let mut strangers = self.strangers.iter();
        strangers.any(|stranger| now.duration_since(stranger.since) >= patience)
    }

    /// Drops the connections that have been silent for too long, if all of them were heard.
    pub(crate) fn drop_silent(&mut self, now: Instant) {
        if !self.intake.allows_hello() {
            return;
        }
        let patience = self.hello_timeout;
        self.strangers
            .retain(|stranger| now.duration_since(stranger.since) < patience);
    }

    /// Looks for a peer from now on.
    pub(crate) fn wait_for(&mut self, index: usize) {
        self.waiting.push_back(index as u32);
    }

    /// The same for one that may be looked for already.
    pub(crate) fn wait_again_for(&mut self, index: usize) {
        if !self.waiting.contains(&(index as u32)) {
            self.wait_for(index);
        }
    }

    /// The peers that are to be looked for now; those that are not found must be waited for again.
    pub(crate) fn due(&mut self, now: Instant) -> Vec<usize> {
        if self.waiting.is_empty() || now < self.next_search {
            return Vec::new();
        }
        self.next_search = now + SEARCH_INTERVAL;
        let count = SEARCH.min(self.waiting.len());
        self.waiting.drain(..count).map(|i| i as usize).collect()
    }

    /// What there is news of, without waiting.
    pub(crate) fn news(&self) -> Vec<News> {
        let mut events = [EpollEvent::empty(); EVENTS];
        let count = self.epoll.wait(&mut events, EpollTimeout::ZERO);
        events[..count.unwrap_or(0)]
            .iter()
            .map(|event| match event.data() {
                STRANGERS => News::Strangers,
                index => News::Peer(index as usize),
            })
            .collect()
    }

    fn watch(&self, fd: &OwnedFd, token: u64) -> nix::Result<()> {
        let event = EpollEvent::new(EpollFlags::EPOLLIN, token);
        self.epoll.add(fd, event)
    }
}

fn watched(done: nix::Result<()>) -> Result<(), Error> {
    done.map_err(|e| failed("watching a peer", e))
}

fn failed(what: &str, cause: nix::errno::Errno) -> Error {
    Error::new(Errno::from_raw(cause as i32), what).because(cause)
}
