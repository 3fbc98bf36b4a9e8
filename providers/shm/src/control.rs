//! What an endpoint listens to besides shared memory: its rendezvous socket, the sockets to its
//! peers, and their process descriptors, behind one `epoll(7)` descriptor.

use std::hash::{BuildHasher, RandomState};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use selvedge::info::EpType;
use selvedge::{Errno, Error};

use crate::config::Config;
use crate::name::Name;
use crate::rendezvous::{Hello, Link, Listener};
use crate::smr::Memory;
use crate::smr::doorbell::Doorbell;

/// Connections that have not said hello yet and are kept all the same.
const STRANGERS_MAX: usize = 64;
/// How long a connection may take to say hello.
const STRANGER_PATIENCE: Duration = Duration::from_secs(1);
/// Events of one look.
const EVENTS: usize = 32;

/// The sockets of an endpoint, and what it says about itself there.
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) name: Name,
    pub(crate) incarnation: u128,
    ep_type: EpType,
    nonce: Box<u64>,
    pub(crate) listener: Listener,
    epoll: Epoll,
    pub(crate) doorbell: Doorbell,
    doorbell_memory: Memory,
    /// Connections that have not said hello.
    pub(crate) strangers: Vec<Stranger>,
    /// Peers that do not exist yet and are waited for.
    pub(crate) waiting: Vec<u32>,
}

/// A connection that has not said hello.
#[derive(Debug)]
pub(crate) struct Stranger {
    pub(crate) link: Link,
    since: Instant,
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
    pub(crate) fn open(name: Name, ep_type: EpType) -> Result<Self, Error> {
        let listener = Listener::bind(&name)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)
            .map_err(|e| failed("watching sockets", e))?;
        let (doorbell, doorbell_memory) = Doorbell::create()?;
        let control = Self {
            name,
            incarnation: u128::from(random()) << 64 | u128::from(random()),
            ep_type,
            nonce: Box::new(random()),
            listener,
            epoll,
            doorbell,
            doorbell_memory,
            strangers: Vec::new(),
            waiting: Vec::new(),
        };
        control.watch(control.listener.fd(), STRANGERS)?;
        Ok(control)
    }

    /// Says hello: who we are, and the memory that the peer needs to talk to us.
    pub(crate) fn greet(
        &self,
        link: &Link,
        index: usize,
        region: &crate::smr::Region,
        config: &Config,
    ) -> Result<(), Error> {
        let hello = Hello {
            ep_type: self.ep_type as u32,
            incarnation: self.incarnation,
            bell: index as u32,
            index: index as u64,
            sizes: config.region,
            nonce_addr: std::ptr::from_ref(&*self.nonce).expose_provenance() as u64,
            nonce: *self.nonce,
            name: self.name.clone(),
        };
        link.send(&hello.encode(), &[region.fd(), self.doorbell_memory.fd()])
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

    /// Listens to a peer's socket or process from now on. Closing the descriptor ends that.
    pub(crate) fn watch_peer(&self, fd: &OwnedFd, index: usize) -> Result<(), Error> {
        self.watch(fd, index as u64)
    }

    /// Keeps a connection until it says hello.
    pub(crate) fn keep_stranger(&mut self, link: Link, now: Instant) {
        if self.strangers.len() >= STRANGERS_MAX {
            self.strangers.remove(0);
        }
        if self.watch(link.fd(), STRANGERS).is_ok() {
            self.strangers.push(Stranger { link, since: now });
        }
    }

    /// Drops the connections that have been silent for too long.
    pub(crate) fn drop_silent(&mut self, now: Instant) {
        self.strangers
            .retain(|stranger| now.duration_since(stranger.since) < STRANGER_PATIENCE);
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

    /// Listens to a descriptor; one that was a stranger's may become a peer's.
    fn watch(&self, fd: &OwnedFd, token: u64) -> Result<(), Error> {
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP;
        let mut event = EpollEvent::new(flags, token);
        match self.epoll.add(fd.as_fd(), event) {
            Err(nix::errno::Errno::EEXIST) => self.epoll.modify(fd.as_fd(), &mut event),
            other => other,
        }
        .map_err(|e| failed("watching a peer", e))
    }
}

fn failed(what: &str, cause: nix::errno::Errno) -> Error {
    Error::new(Errno::from_raw(cause as i32), what).because(cause)
}

/// A random number: the standard library seeds its hashers from the system.
fn random() -> u64 {
    RandomState::new().hash_one(std::process::id())
}
