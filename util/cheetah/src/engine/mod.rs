//! The engine of a context: progresses operations, rings bells, and queues invocations. It runs no
//! code of the application; the caller takes invocations from its inbox.
//!
//! All work is done on the calling thread, which has exclusive access: `core::state_cell`.

mod barrier;
mod dispatch;
mod failures;
mod get;
mod invoke;
mod parcel;
mod peer;
mod peer_failure;
mod post;
mod put;
mod receive;
mod registration;
mod special;

pub(crate) use get::Get;
pub(crate) use invoke::{Bytes, InvokeTarget};
pub(crate) use parcel::Parcel;
pub(crate) use put::Put;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use selvedge::cq::Entry;
use selvedge::{CompletionFlags, Context, Errno, FiAddr};

use crate::bell::{BellName, Bells};
use crate::copies::Copies;
use crate::net::{self, Net};
use crate::recv::Payload;
use crate::wire::{Port, WireMessage};
use crate::{Error, Result, memory};
use barrier::Barrier;
use failures::Failures;
use invoke::{Fetch, OutgoingInvocation};
use parcel::Parcels;
use peer::{OutgoingMessage, Peer};
use put::{PutOp, PutProtocol, PutReceive};
use receive::Receives;
use registration::Registered;
use special::Blocks;

/// An invocation of this context.
#[derive(Debug)]
pub(crate) struct Invocation {
    pub(crate) from: usize,
    pub(crate) port: Port,
    pub(crate) payload: Payload,
}

/// Returns details about the exit of a failed context, if known.
pub(crate) type ExitLookup = Box<dyn Fn(usize) -> Option<String> + Send>;

/// The engine of one context.
pub(crate) struct Engine {
    // Dropped first, because the closed endpoints no longer access the memory of the other fields.
    nets: Vec<Net>,
    /// Arrays that completions and their source addresses are read into.
    entries: Box<[Entry; BATCH]>,
    from: Box<[FiAddr; BATCH]>,
    rank: usize,
    peers: Vec<Peer>,
    /// Context numbers by fabric and address vector index.
    senders: Vec<Vec<usize>>,
    receives: Receives,
    bells: Arc<Bells>,
    ops: FxHashMap<u64, Op>,
    next_op: u64,
    /// Operations that wait for room in the fabric.
    to_post: VecDeque<u64>,
    /// Peers with messages that wait for room in the fabric.
    backlog: Vec<usize>,
    /// Peers that seem to have failed: number, reason, and time of detection.
    suspects: Vec<(usize, String, Instant)>,
    inbox: VecDeque<Invocation>,
    blocks: Blocks,
    parcels: Parcels,
    barrier: Barrier,
    registered: Registered,
    /// Failures that were not reported yet.
    failures: Failures,
    /// Errors by the address of a bell that may never ring.
    bell_errors: FxHashMap<u64, Error>,
    /// The failure of the whole run.
    broken: Option<Error>,
    copies: Copies,
    exit_lookup: Option<ExitLookup>,
    /// The current poll has found an event.
    has_progressed: bool,
    /// Messages that were sent since the last poll may not have been flushed.
    owes_flush: bool,
}

/// An operation that completes later.
#[derive(Debug)]
enum Op {
    Put(PutOp),
    PutReceive(PutReceive),
    Get(Get),
    Invoke(OutgoingInvocation),
    Fetch(Fetch),
    Flush { to: usize },
}

impl Op {
    /// Returns the remote context of the operation.
    fn peer(&self) -> usize {
        match self {
            Self::Put(op) => op.put.to,
            Self::PutReceive(op) => op.from,
            Self::Get(op) => op.target,
            Self::Invoke(op) => op.to,
            Self::Fetch(op) => op.from,
            Self::Flush { to } => *to,
        }
    }
}

/// The owner of a completion, encoded in its context.
#[derive(Clone, Copy, Debug)]
enum CompletionKind {
    /// A receive buffer, by index.
    Buffer(usize),
    /// The watch of a peer.
    Watch(usize),
    /// An operation.
    Op(u64),
    /// A message or put to a peer whose success is not reported.
    Unreported(usize),
    /// A barrier message to a peer.
    Barrier(usize),
}

const KIND_SHIFT: u32 = 56;

impl CompletionKind {
    fn context(self) -> Context {
        let (kind, number) = match self {
            Self::Buffer(index) => (0, index as u64),
            Self::Watch(peer) => (1, peer as u64),
            Self::Op(op) => (2, op),
            Self::Unreported(peer) => (3, peer as u64),
            Self::Barrier(peer) => (4, peer as u64),
        };
        Context(kind << KIND_SHIFT | number)
    }

    fn from_context(context: Context) -> Self {
        let number = context.0 & ((1 << KIND_SHIFT) - 1);
        match context.0 >> KIND_SHIFT {
            0 => Self::Buffer(number as usize),
            1 => Self::Watch(number as usize),
            2 => Self::Op(number),
            3 => Self::Unreported(number as usize),
            _ => Self::Barrier(number as usize),
        }
    }
}

/// The addresses of one context, exchanged at the start.
#[derive(Clone, Debug)]
pub(crate) struct PeerAddress {
    pub(crate) net: usize,
    pub(crate) address: String,
    pub(crate) key: u64,
}

/// Completions that are read at once.
const BATCH: usize = 16;
/// Maximum number of batches of one poll, so that a flood does not block the caller.
const BATCHES: usize = 16;

impl Engine {
    /// Starts the engine and connects to the barrier neighbours.
    ///
    /// # Errors
    /// The fabric's error.
    pub(crate) fn start(
        nets: Vec<Net>,
        rank: usize,
        addresses: &[PeerAddress],
        exit_lookup: Option<ExitLookup>,
    ) -> Result<Self> {
        let operation_error = |error: selvedge::Error| Error::Fabric {
            context: rank,
            detail: error.to_string(),
        };
        let mut peers = Vec::new();
        let mut senders = vec![Vec::new(); nets.len()];
        for (number, peer) in addresses.iter().enumerate() {
            let addr = nets[peer.net].add(&peer.address).map_err(operation_error)?;
            peers.push(Peer::new(peer.net, addr, peer.key));
            let (by_index, index) = (&mut senders[peer.net], addr.0 as usize);
            by_index.resize(by_index.len().max(index + 1), usize::MAX);
            by_index[index] = number;
        }
        let receives = Receives::post(&nets).map_err(|errno| Error::Fabric {
            context: rank,
            detail: format!("receive buffers: {errno}"),
        })?;
        let mut engine = Self {
            nets,
            entries: Box::new([Entry::default(); BATCH]),
            from: Box::new([FiAddr::UNSPEC; BATCH]),
            rank,
            receives,
            bells: Bells::new(),
            ops: FxHashMap::default(),
            next_op: 0,
            to_post: VecDeque::new(),
            backlog: Vec::new(),
            suspects: Vec::new(),
            inbox: VecDeque::new(),
            blocks: Blocks::default(),
            parcels: Parcels::default(),
            barrier: Barrier::new(rank, peers.len()),
            registered: Registered::default(),
            failures: Failures::default(),
            bell_errors: FxHashMap::default(),
            broken: None,
            copies: Copies::default(),
            exit_lookup,
            has_progressed: false,
            owes_flush: false,
            senders,
            peers,
        };
        for peer in engine.neighbours() {
            engine.send(peer, &WireMessage::Hello, &[]);
            engine.watch(peer);
        }
        Ok(engine)
    }

    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    pub(crate) fn size(&self) -> usize {
        self.peers.len()
    }

    pub(crate) fn bells(&self) -> &Arc<Bells> {
        &self.bells
    }

    pub(crate) fn copies(&self) -> Copies {
        self.copies
    }

    pub(crate) fn nets(&self) -> &[Net] {
        &self.nets
    }

    /// Progresses operations and rings bells. Returns whether there was an event.
    #[inline]
    pub(crate) fn progress(&mut self) -> bool {
        self.has_progressed = false;
        self.owes_flush = false;
        // Receives are posted before the completions are handled, which may take long.
        self.receives.repost(&self.nets);
        for net in 0..self.nets.len() {
            self.drain(net);
        }
        if !self.suspects.is_empty() {
            self.fail_suspects();
        }
        if !self.backlog.is_empty() || !self.to_post.is_empty() {
            self.retry();
        }
        self.has_progressed
    }

    /// The next invocation, in each sender's order.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Invocation> {
        self.inbox.pop_front()
    }

    #[inline]
    pub(crate) fn has_messages(&self) -> bool {
        !self.inbox.is_empty()
    }

    /// Number of invocations that were not taken yet.
    pub(crate) fn message_count(&self) -> usize {
        self.inbox.len()
    }

    /// Returns whether sent messages may not have been flushed.
    #[inline]
    pub(crate) fn owes_flush(&self) -> bool {
        self.owes_flush
    }

    #[inline]
    pub(crate) fn has_failures(&self) -> bool {
        !self.failures.is_empty()
    }

    /// Removes the oldest failure that no poll has returned.
    pub(crate) fn failure(&mut self) -> Option<Error> {
        self.failures.pop()
    }

    /// Removes the oldest failure that neither a poll nor a wait has returned.
    pub(crate) fn unreported_failure(&mut self) -> Option<Error> {
        self.failures.pop_unreported()
    }

    /// The error that prevents the end of a wait for this bell, or for a barrier, if there is one.
    pub(crate) fn wait_error(&self, bell: Option<BellName>) -> Option<&Error> {
        let bell_errors = bell.and_then(|bell| self.bell_errors.get(&bell.address()));
        bell_errors.or(self.broken.as_ref())
    }

    /// Clears the error of a bell after a wait has returned it: the bell can be used again.
    pub(crate) fn clear_bell_error(&mut self, bell: BellName) {
        if let Some(error) = self.bell_errors.remove(&bell.address()) {
            self.failures.mark_reported(&error);
        }
    }

    /// Returns whether all local operations are complete and all messages sent.
    pub(crate) fn is_idle(&self) -> bool {
        self.ops.is_empty() && self.backlog.is_empty()
    }

    /// Longest time that the context may park.
    pub(crate) fn max_park_time(&self) -> Duration {
        let has_no_pending = self.backlog.is_empty() && self.suspects.is_empty();
        match has_no_pending && self.to_post.is_empty() {
            true => Duration::from_millis(500),
            // The fabric does not signal when there is room again.
            false => Duration::from_micros(200),
        }
    }

    #[inline]
    fn drain(&mut self, net: usize) {
        for _ in 0..BATCHES {
            match self.nets[net].poll(&mut *self.entries, &mut *self.from) {
                Ok(0) => return,
                Ok(count) => {
                    self.has_progressed = true;
                    for index in 0..count {
                        let (entry, from) = (self.entries[index], self.from[index]);
                        self.on_completion(net, &entry, from);
                    }
                    if count < BATCH {
                        return;
                    }
                }
                Err(Errno::Avail) => {
                    self.has_progressed = true;
                    self.on_error(net);
                }
                Err(errno) => {
                    self.fail(Error::Fabric {
                        context: self.rank,
                        detail: format!("completion queue: {errno}"),
                    });
                    return;
                }
            }
        }
    }

    #[inline]
    fn on_completion(&mut self, net: usize, entry: &Entry, from: FiAddr) {
        let index = usize::try_from(from.0).ok();
        let sender = index.and_then(|index| self.senders[net].get(index));
        let peer = sender.copied().filter(|&peer| peer < self.peers.len());
        if entry.flags.contains(CompletionFlags::REMOTE_WRITE) {
            if let Some(peer) = peer {
                self.ring_for(peer, BellName::from_word(entry.data));
            }
            return;
        }
        match CompletionKind::from_context(entry.context) {
            CompletionKind::Buffer(index) => self.handle_buffer(net, index, peer, entry),
            CompletionKind::Op(op) => self.op_done(op),
            CompletionKind::Barrier(_) => self.barrier.message_sent(),
            CompletionKind::Watch(_) | CompletionKind::Unreported(_) => {}
        }
    }

    #[cold]
    fn on_error(&mut self, net: usize) {
        let Some(error) = self.nets[net].error() else {
            return;
        };
        let detail = format!("{} ({})", error.detail, error.errno);
        let kind = CompletionKind::from_context(error.entry.context);
        if let CompletionKind::Barrier(_) = kind {
            self.barrier.message_sent();
        }
        match kind {
            CompletionKind::Watch(peer)
            | CompletionKind::Unreported(peer)
            | CompletionKind::Barrier(peer)
                if net::is_peer_failure(error.errno) =>
            {
                self.suspects.push((peer, detail, Instant::now()));
            }
            CompletionKind::Unreported(peer) | CompletionKind::Barrier(peer) => {
                self.fail(self.operation_error(peer, &detail))
            }
            CompletionKind::Op(op) => self.op_failed(op, error.errno, &detail),
            CompletionKind::Buffer(index) => {
                self.receives.mark_idle(index);
                log::warn!("context {}: receive failed: {detail}", self.rank);
            }
            CompletionKind::Watch(peer) => self.watch_ended(peer, &detail),
        }
    }

    fn op_done(&mut self, number: u64) {
        match self.ops.remove(&number) {
            Some(Op::Put(op)) => self.ring_local(op.put.local_bell),
            Some(Op::PutReceive(op)) => self.put_received(&op),
            Some(Op::Get(op)) => self.get_done(op),
            Some(Op::Fetch(op)) => self.fetched(number, op),
            Some(op) => {
                log::warn!("context {}: {op:?} completes too early", self.rank);
            }
            None => {}
        }
    }

    #[cold]
    fn op_failed(&mut self, number: u64, errno: Errno, detail: &str) {
        let Some(op) = self.ops.remove(&number) else {
            return;
        };
        let peer = op.peer();
        if net::is_peer_failure(errno) {
            self.fail_peer(peer, detail);
        }
        match (op, self.check_alive(peer)) {
            (Op::Fetch(op), _) => self.fetch_failed(number, &op),
            (Op::PutReceive(op), _) => self.put_receive_failed(&op, errno),
            (op, Err(error)) => self.abort_op(op, &error),
            (op, Ok(())) => self.fail_op(op, &self.operation_error(peer, detail)),
        }
    }

    /// Ends an operation of this context with an error, and records the failure.
    fn fail_op(&mut self, op: Op, error: &Error) {
        self.abort_op(op, error);
        self.fail(error.clone());
    }

    /// Ends an operation of this context with an error that its bell carries.
    fn abort_op(&mut self, op: Op, error: &Error) {
        match op {
            Op::Put(op) => self.fail_bell(op.put.local_bell, error),
            Op::Get(op) => self.fail_bell(op.local_bell, error),
            Op::Invoke(op) => {
                self.fail_bell(op.bell, error);
                self.parcels.release(op.bytes);
            }
            // These operations have no local bell.
            Op::Fetch(_) | Op::PutReceive(_) | Op::Flush { .. } => {}
        }
    }

    /// Returns whether the fabric owns memory of this operation.
    fn is_moving(&self, number: u64) -> bool {
        let is_posted = match self.ops.get(&number) {
            Some(Op::Fetch(_) | Op::PutReceive(_)) => true,
            Some(Op::Put(put)) => put.protocol != PutProtocol::Requested,
            Some(Op::Get(get)) => get.is_reading,
            _ => false,
        };
        is_posted && !self.to_post.contains(&number)
    }

    fn add_op(&mut self, op: Op) -> u64 {
        let number = self.next_op;
        self.next_op += 1;
        self.ops.insert(number, op);
        number
    }

    /// Sends a message, or queues it behind earlier ones. Never blocks.
    fn send(&mut self, to: usize, message: &WireMessage, bytes: &[u8]) {
        let head = message.head();
        let context = CompletionKind::Unreported(to).context();
        let message = OutgoingMessage {
            tag: head.tag,
            segments: [head.bytes(), bytes],
            completion: None,
        };
        self.send_by(to, &message, |net, addr| {
            net.send_with_head(addr, &head, bytes, context)
        });
    }

    /// As [`Self::send`], for a barrier, which is not complete before the message was sent.
    fn send_with_completion(&mut self, to: usize, message: &WireMessage) {
        let head = message.head();
        let (tag, words, context) = (
            head.tag,
            head.bytes(),
            CompletionKind::Barrier(to).context(),
        );
        let message = OutgoingMessage {
            tag,
            segments: [words, &[]],
            completion: Some(context),
        };
        self.send_by(to, &message, |net, addr| {
            net.send_with_completion(addr, tag, words, context)
        });
    }

    /// As [`Self::send`], for a message without a separate head.
    #[inline]
    fn send_without_head(&mut self, to: usize, tag: u64, bytes: &[u8]) {
        let message = OutgoingMessage {
            tag,
            segments: [&[], bytes],
            completion: None,
        };
        self.send_by(to, &message, |net, addr| net.send(addr, tag, bytes));
    }

    #[inline]
    fn send_by(
        &mut self,
        to: usize,
        message: &OutgoingMessage<'_>,
        send: impl FnOnce(&Net, FiAddr) -> selvedge::Result,
    ) {
        let peer = &self.peers[to];
        if !peer.has_backlog() {
            let net = &self.nets[peer.net];
            match send(net, peer.addr) {
                Ok(()) => {
                    self.owes_flush |= net.defers_sends;
                    return;
                }
                Err(Errno::Again) => {}
                Err(errno) => return self.handle_send_error(to, errno),
            }
        }
        self.queue(to, message);
    }

    #[cold]
    fn queue(&mut self, to: usize, message: &OutgoingMessage<'_>) {
        let peer = &mut self.peers[to];
        if peer.has_failed() {
            return;
        }
        if peer.queue(message) {
            self.backlog.push(to);
        }
    }

    #[cold]
    fn handle_send_error(&mut self, to: usize, errno: Errno) {
        match net::is_peer_failure(errno) {
            // Earlier messages of the peer are handled first, because they may include a close
            // message.
            true => {
                let error = format!("a message to the context was refused: {errno}");
                self.suspects.push((to, error, Instant::now()));
            }
            false => self.fail(self.operation_error(to, &errno.to_string())),
        }
    }

    #[cold]
    fn retry(&mut self) {
        for _ in 0..self.to_post.len() {
            if let Some(op) = self.to_post.pop_front() {
                self.post_for(op);
            }
        }
        for to in std::mem::take(&mut self.backlog) {
            let peer = &mut self.peers[to];
            match peer.send_backlog(&self.nets[peer.net]) {
                Ok(()) => {
                    self.has_progressed = true;
                    self.owes_flush |= self.nets[self.peers[to].net].defers_sends;
                }
                Err(Errno::Again) => self.backlog.push(to),
                Err(errno) => self.handle_send_error(to, errno),
            }
        }
    }

    /// Rings a bell of this context.
    #[inline]
    fn ring(&mut self, bell: BellName) -> Result<(), ()> {
        if bell.is_none() {
            return Ok(());
        }
        if let Some(count) = self.bells.lookup(bell) {
            count.fetch_add(1, std::sync::atomic::Ordering::Release);
            return Ok(());
        }
        let address = bell.address_outside_table().ok_or(())?;
        memory::increment(address, self.blocks.contain(address, 4))
    }

    /// Rings a bell for another context, and reports to that context if there is no such bell.
    #[inline]
    fn ring_for(&mut self, peer: usize, bell: BellName) {
        if self.ring(bell).is_err() {
            let message = WireMessage::PutFailed {
                to: bell.address(),
                len: 4,
                local: BellName::NONE,
            };
            self.send(peer, &message, &[]);
        }
    }

    /// Rings a bell for a call of this context.
    #[inline]
    fn ring_local(&mut self, bell: BellName) {
        if self.ring(bell).is_err() {
            self.fail(self.bad_pointer(self.rank, bell.address(), 4, "bell"));
        }
    }

    /// Records the error of a bell that may never ring.
    fn fail_bell(&mut self, bell: BellName, error: &Error) {
        if !bell.is_none() {
            self.bell_errors.insert(bell.address(), error.clone());
        }
    }

    #[cold]
    pub(crate) fn fail(&mut self, error: Error) {
        log::debug!("context {}: {error}", self.rank);
        self.failures.push(error);
    }

    fn operation_error(&self, peer: usize, detail: &str) -> Error {
        Error::Fabric {
            context: self.rank,
            detail: format!("an operation with context {peer} failed: {detail}"),
        }
    }

    fn bad_pointer(
        &self,
        context: usize,
        address: u64,
        len: u64,
        operation: &'static str,
    ) -> Error {
        let _ = self;
        Error::BadPointer {
            context,
            address,
            len,
            operation,
        }
    }

    /// Checks the number of a context.
    pub(crate) fn check(&self, context: usize) -> Result {
        if context < self.peers.len() {
            return Ok(());
        }
        Err(Error::NoContext {
            context,
            last: self.peers.len() - 1,
        })
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("me", &self.rank)
            .field("size", &self.peers.len())
            .field("ops", &self.ops.len())
            .finish_non_exhaustive()
    }
}
