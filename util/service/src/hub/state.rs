//! `State`: the connections of a hub, and what their completions do to them.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use selvedge::FiAddr;
use selvedge::owned::{Buf, Completions};
use slab::Slab;

use super::attempts::Attempts;
use super::link::closing::LINGER;
use super::link::{Call, Link};
use super::shared::Shared;
use crate::machine::{Machine, Role};
use crate::message::Body;
use crate::port::{Key, Port};
use crate::wire::Limits;
use crate::{End, Error, Message, Options};

/// The number of completions of one poll.
const BATCH: usize = 64;
/// The number of completed receives for frames that are posted again while frames arrive: half of
/// the receives of a port.
const SPENT_MAX: usize = 32;
/// When a post that found a full queue is tried again, if no completion comes first.
const RETRY: Duration = Duration::from_millis(1);

/// The number of outstanding sends of all connections for which every transport has room.
const ROOM_OF_SENDS: u64 = 128;

/// A change that a listener reports besides messages and requests.
#[derive(Debug)]
pub(crate) enum Change {
    Connected(Arc<Shared>),
    Lost(Arc<Shared>, End),
}

/// The receives for frames that have completed and are to be posted again.
#[derive(Debug, Default)]
pub(super) struct SpentReceives {
    /// Their number.
    pub(super) spent: usize,
    /// The buffers of some of them.
    pub(super) spare: Vec<Buf>,
}

/// The time limit of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestLimit {
    /// The start of the request.
    pub(crate) start: Instant,
    pub(crate) timeout: Duration,
}

/// The result of a request: the response, or the reason why there is none.
pub(crate) type Outcome = Result<Body, Error>;

/// The state of a hub, behind its lock.
#[derive(Debug)]
pub(crate) struct State {
    pub(super) role: Role,
    pub(super) options: Options,
    pub(super) links: Slab<Link>,
    generation: u32,
    /// The connections by the peer's index, for each port.
    pub(super) peers: Vec<FxHashMap<FiAddr, usize>>,
    /// The receives of each port that are to be posted again.
    pub(super) receives: Vec<SpentReceives>,
    /// Peers without a connection, whose addresses are removed later.
    lingering: VecDeque<(Instant, usize, FiAddr)>,
    /// Connections with messages or requests for a listener.
    listed: VecDeque<usize>,
    pub(super) changes: VecDeque<Change>,
    pub(super) change_wakers: Vec<Waker>,
    /// The attempts of a client to connect.
    pub(super) attempts: Attempts,
    /// Tasks to wake when the lock is released.
    pub(super) woken: Vec<Waker>,
    /// The next time at which [`Self::sweep`] has something to do.
    pub(super) next_sweep: Option<Instant>,
    /// The error of a port, which ends everything.
    pub(super) failure: Option<Error>,
}

impl State {
    pub(super) fn new(role: Role, options: Options, ports: usize, attempts: Attempts) -> Self {
        Self {
            role,
            options,
            links: Slab::new(),
            generation: 0,
            peers: vec![FxHashMap::default(); ports],
            receives: std::iter::repeat_with(SpentReceives::default)
                .take(ports)
                .collect(),
            lingering: VecDeque::new(),
            listed: VecDeque::new(),
            changes: VecDeque::new(),
            change_wakers: Vec::new(),
            attempts,
            woken: Vec::new(),
            next_sweep: None,
            failure: None,
        }
    }

    /// A list for [`Self::poll`].
    pub(super) fn completions() -> Completions {
        Completions::with_capacity(BATCH)
    }

    /// Drives the ports once. Returns whether there was anything to do.
    pub(super) fn poll(&mut self, ports: &[Port], done: &mut Completions) -> bool {
        let mut is_active = false;
        for (index, port) in ports.iter().enumerate() {
            if let Err(error) = port.poll(done) {
                self.fail(ports, &error);
                return true;
            }
            let is_idle = done.is_empty();
            for completion in done.drain() {
                self.complete(ports, index, completion);
            }
            is_active |= !is_idle;
            if is_idle || self.receives[index].spent >= SPENT_MAX {
                self.post_receives(ports, index);
            }
        }
        is_active
    }

    /// Posts the receives of a port again that have completed. A response goes out before that.
    fn post_receives(&mut self, ports: &[Port], index: usize) {
        for _ in 0..std::mem::take(&mut self.receives[index].spent) {
            let spare = self.receives[index].spare.pop();
            if let Err(error) = ports[index].receive_frame(spare) {
                return self.fail(ports, &error);
            }
        }
    }

    /// Ends everything with the error of a port.
    pub(super) fn fail(&mut self, ports: &[Port], error: &Error) {
        let indices: Vec<_> = self.links.iter().map(|(index, _)| index).collect();
        for index in indices {
            self.end(ports, index, &End::Lost(error.to_string()));
        }
        self.failure = Some(error.clone());
        self.woken.append(&mut self.change_wakers);
        self.woken.extend(self.attempts.waker.take());
    }

    /// Does what is to be done at this time: requests time out, posts are tried again, addresses of
    /// ended connections are removed. Returns whether it was time for that.
    pub(super) fn sweep(&mut self, ports: &[Port], now: Instant) -> bool {
        if self.next_sweep.is_none_or(|at| now < at) {
            return false;
        }
        self.next_sweep = None;
        while let Some(&(at, port, peer)) = self.lingering.front() {
            if now < at {
                self.sweep_at(at);
                break;
            }
            self.lingering.pop_front();
            if !self.peers[port].contains_key(&peer) {
                ports[port].remove(peer);
            }
        }
        let indices: Vec<_> = self.links.iter().map(|(index, _)| index).collect();
        for index in indices {
            self.expire_calls(index, now);
            self.probe(ports, index, now);
            self.pump(ports, index);
            self.check_reachable(ports, index, now);
        }
        self.attempt(ports, now);
        true
    }

    fn expire_calls(&mut self, index: usize, now: Instant) {
        let Some(link) = self.links.get_mut(index) else {
            return;
        };
        let mut next = None;
        for (id, call) in link.calls.iter_mut() {
            match call.deadline {
                Some(at) if call.outcome.is_none() && at <= now => {
                    call.outcome = Some(Err(Error::Timeout(call.timeout)));
                    self.woken.extend(call.waker.take());
                    link.machine.cancel(id);
                }
                Some(at) if call.outcome.is_none() => {
                    next = Some(next.map_or(at, |next: Instant| next.min(at)));
                }
                _ => {}
            }
        }
        if let Some(at) = next {
            self.sweep_at(at);
        }
    }

    /// Probes a peer whose death the transport does not report.
    fn probe(&mut self, ports: &[Port], index: usize, now: Instant) {
        let probe = |link: &mut Link| link.probe(&ports[link.shared.port], now);
        if let Some(at) = self.links.get_mut(index).and_then(probe) {
            self.sweep_at(at);
        }
    }

    /// Ends the connection to a peer that is not reachable any more. A transport without room for
    /// sends refuses them to every peer.
    fn check_reachable(&mut self, ports: &[Port], index: usize, now: Instant) {
        let is_unreachable = |link: &mut Link| link.is_unreachable(&ports[link.shared.port], now);
        if !self.links.get_mut(index).is_some_and(is_unreachable) {
            return;
        }
        let sends = self.links.iter().map(|(_, link)| link.outstanding_sends());
        if sends.sum::<u64>() < ROOM_OF_SENDS {
            let text = "its transport has refused all messages for some seconds".to_owned();
            self.end(ports, index, &End::Lost(text));
        }
    }

    /// Has [`Self::sweep`] called at this time.
    pub(super) fn sweep_at(&mut self, at: Instant) {
        self.next_sweep = Some(self.next_sweep.map_or(at, |next| next.min(at)));
    }

    /// Makes a connection.
    pub(super) fn connect(
        &mut self,
        ports: &[Port],
        (port, peer): (usize, FiAddr),
        (address, nonce): (String, u64),
        remote: Limits,
    ) -> Result<usize, Error> {
        self.generation = self.generation.wrapping_add(1);
        let vacant = self.links.vacant_entry();
        let index = vacant.key();
        let key = Key {
            index: u32::try_from(index).unwrap_or(u32::MAX),
            generation: self.generation,
        };
        let shared = Arc::new(Shared {
            key,
            port,
            address,
            identity: ports[port].identity(peer),
            remote_limit: remote.message_len,
            end: OnceLock::new(),
        });
        let machine = Machine::new(self.role, self.options.limits, remote);
        let mut link = Link::new(shared, peer, nonce, machine);
        link.watch(&ports[port])?;
        vacant.insert(link);
        self.peers[port].insert(peer, index);
        self.probe(ports, index, Instant::now());
        Ok(index)
    }

    /// The connection with this key, if it has not ended.
    pub(super) fn link(&mut self, key: Key) -> Option<&mut Link> {
        let link = self.links.get_mut(key.index as usize)?;
        (link.shared.key == key).then_some(link)
    }

    /// The connection of a handle, if it has not ended.
    pub(super) fn open_link(&mut self, shared: &Shared) -> Result<&mut Link, Error> {
        if let Some(end) = shared.end.get() {
            return Err(Error::Ended(end.clone()));
        }
        self.link(shared.key).ok_or(Error::Ended(End::Local))
    }

    /// Queues a request, and posts what the connection can send. Returns the number of the request.
    pub(super) fn request(
        &mut self,
        ports: &[Port],
        shared: &Shared,
        message: Message,
        limit: Option<RequestLimit>,
    ) -> Result<u64, Error> {
        let link = self.open_link(shared)?;
        link.check_length(&message)?;
        let deadline = limit.and_then(|limit| limit.start.checked_add(limit.timeout));
        let id = link.machine.request(message.into(), deadline);
        let call = Call {
            waker: None,
            outcome: None,
            deadline,
            timeout: limit.map_or(Duration::ZERO, |limit| limit.timeout),
        };
        link.calls.insert(id, call);
        if let Some(at) = deadline {
            self.sweep_at(at);
        }
        let now = || limit.map_or_else(Instant::now, |limit| limit.start);
        self.pump_at(ports, shared.key.index as usize, now);
        Ok(id)
    }

    /// Takes the outcome of a request, or has `waker` woken when there is one.
    pub(super) fn take_outcome(
        &mut self,
        key: Key,
        id: u64,
        waker: Option<&Waker>,
    ) -> Option<Outcome> {
        let ended = Some(Err(Error::Ended(End::Local)));
        let Some(link) = self.link(key) else {
            return ended;
        };
        let Some(call) = link.calls.get_mut(id) else {
            return ended;
        };
        let outcome = call.outcome.take();
        if outcome.is_some() {
            link.calls.remove(id);
        } else {
            call.waker = waker.cloned();
        }
        outcome
    }

    /// Posts and reports what a connection's machine has for its application and its peer.
    pub(super) fn pump(&mut self, ports: &[Port], index: usize) {
        self.pump_at(ports, index, Instant::now);
    }

    /// As [`Self::pump`]; `now` reads the clock for the deadlines of requests.
    fn pump_at(&mut self, ports: &[Port], index: usize, now: impl Fn() -> Instant) {
        let Some(link) = self.links.get_mut(index) else {
            return;
        };
        if !link.is_open() {
            return;
        }
        if let Err(end) = link.pump(&ports[link.shared.port], &mut self.woken, now) {
            return self.end(ports, index, &end);
        }
        let (is_blocked, closing_until) = (link.is_blocked(), link.closing_until());
        self.list(index);
        if is_blocked {
            self.sweep_at(Instant::now() + RETRY);
        }
        if let Some(at) = closing_until {
            self.sweep_at(at);
        }
    }

    /// Lists a connection that has something for the listener.
    fn list(&mut self, index: usize) {
        let Some(link) = self.links.get_mut(index) else {
            return;
        };
        let is_reported = self.role == Role::Server && !link.is_detached;
        if is_reported && !link.is_listed && link.machine.can_take() {
            link.is_listed = true;
            self.listed.push_back(index);
            self.woken.append(&mut self.change_wakers);
        }
    }

    /// Takes the next connection from the list: its index.
    pub(super) fn next_listed(&mut self) -> Option<usize> {
        let index = self.listed.pop_front()?;
        self.links.get_mut(index)?.is_listed = false;
        Some(index)
    }

    /// Has the messages of a connection received from the connection alone.
    pub(super) fn detach(&mut self, index: usize) {
        if let Some(link) = self.links.get_mut(index) {
            (link.is_detached, link.is_listed) = (true, false);
            self.listed.retain(|&listed| listed != index);
        }
    }

    /// Lists a connection again, or reports its end after its last message was taken.
    pub(super) fn after_take(&mut self, ports: &[Port], index: usize) {
        self.pump(ports, index);
        self.list(index);
        self.report_end(index);
    }

    /// Ends a connection.
    pub(super) fn end(&mut self, ports: &[Port], index: usize, end: &End) {
        let Some(link) = self.links.get_mut(index) else {
            return;
        };
        let (port, peer) = (link.shared.port, link.peer);
        if !link.is_open() {
            return;
        }
        link.end(end, &ports[port], &mut self.woken);
        if self.peers[port].get(&peer) == Some(&index) {
            self.peers[port].remove(&peer);
        }
        self.linger(port, peer);
        self.list(index);
        self.report_end(index);
    }

    /// Removes the address of a peer later.
    pub(super) fn linger(&mut self, port: usize, peer: FiAddr) {
        let at = Instant::now() + LINGER;
        self.lingering.push_back((at, port, peer));
        self.sweep_at(at);
    }

    /// Reports the end of a server's connection when all of its messages were taken, and frees it.
    fn report_end(&mut self, index: usize) {
        let Some(link) = self.links.get(index) else {
            return;
        };
        if self.role == Role::Client || link.machine.can_take() || link.is_listed {
            return;
        }
        let Some(end) = link.shared.end.get().cloned() else {
            return;
        };
        let link = self.links.remove(index);
        self.changes.push_back(Change::Lost(link.shared, end));
        self.woken.append(&mut self.change_wakers);
    }
}
