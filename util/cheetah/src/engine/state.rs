//! `Engine`: the state of a context, its failures and its bells.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use selvedge::FiAddr;
use selvedge::cq::Entry;

use super::ops::op::{Invocation, Op, PutProtocol};
use super::parts::barrier::Barrier;
use super::parts::blocks::Blocks;
use super::parts::copies::Copies;
use super::parts::failures::Failures;
use super::parts::parcel::Parcels;
use super::parts::peer::Peer;
use super::parts::receive::Receives;
use super::parts::registered::Registered;
use crate::bell::{BellName, Bells};
use crate::net::Net;
use crate::net::wire::WireMessage;
use crate::{Error, Result, memory};

/// Returns details about the exit of a failed context, if known.
pub(crate) type ExitLookup = Box<dyn Fn(usize) -> Option<String> + Send>;

/// The engine of one context.
pub(crate) struct Engine {
    // Dropped first, because the closed endpoints no longer access the memory of the other fields.
    pub(super) nets: Vec<Net>,
    /// Arrays that completions and their source addresses are read into.
    pub(super) entries: Box<[Entry; BATCH]>,
    pub(super) from: Box<[FiAddr; BATCH]>,
    pub(super) rank: usize,
    pub(super) peers: Vec<Peer>,
    /// Context numbers by fabric and address vector index.
    pub(super) senders: Vec<Vec<usize>>,
    pub(super) receives: Receives,
    pub(super) bells: Arc<Bells>,
    pub(super) ops: FxHashMap<u64, Op>,
    pub(super) next_op: u64,
    /// Operations that wait for room in the fabric.
    pub(super) to_post: VecDeque<u64>,
    /// Peers with messages that wait for room in the fabric.
    pub(super) backlog: Vec<usize>,
    /// Peers that seem to have failed: number, reason, and time of detection.
    pub(super) suspects: Vec<(usize, String, Instant)>,
    pub(super) inbox: VecDeque<Invocation>,
    pub(super) blocks: Blocks,
    pub(super) parcels: Parcels,
    pub(super) barrier: Barrier,
    pub(super) registered: Registered,
    /// Failures that were not reported yet.
    pub(super) failures: Failures,
    /// Errors by the address of a bell that may never ring.
    pub(super) bell_errors: FxHashMap<u64, Error>,
    /// The failure of the whole run.
    pub(super) broken: Option<Error>,
    pub(super) copies: Copies,
    pub(super) exit_lookup: Option<ExitLookup>,
    /// The current poll has found an event.
    pub(super) has_progressed: bool,
    /// Messages that were sent since the last poll may not have been flushed.
    pub(super) owes_flush: bool,
}

/// The addresses of one context, exchanged at the start.
#[derive(Clone, Debug)]
pub(crate) struct PeerAddress {
    pub(crate) net: usize,
    pub(crate) address: String,
    pub(crate) key: u64,
}

/// Completions that are read at once.
pub(super) const BATCH: usize = 16;
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
        if has_no_pending && self.to_post.is_empty() {
            Duration::from_millis(500)
        } else {
            // The fabric does not signal when there is room again.
            Duration::from_micros(200)
        }
    }

    /// Ends an operation of this context with an error, and records the failure.
    pub(super) fn fail_op(&mut self, op: Op, error: &Error) {
        self.abort_op(op, error);
        self.fail(error.clone());
    }

    /// Ends an operation of this context with an error that its bell carries.
    pub(super) fn abort_op(&mut self, op: Op, error: &Error) {
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
    pub(super) fn is_moving(&self, number: u64) -> bool {
        let is_posted = match self.ops.get(&number) {
            Some(Op::Fetch(_) | Op::PutReceive(_)) => true,
            Some(Op::Put(put)) => put.protocol != PutProtocol::Requested,
            Some(Op::Get(get)) => get.is_reading,
            _ => false,
        };
        is_posted && !self.to_post.contains(&number)
    }

    pub(super) fn add_op(&mut self, op: Op) -> u64 {
        let number = self.next_op;
        self.next_op += 1;
        self.ops.insert(number, op);
        number
    }

    /// Rings a bell of this context.
    #[inline]
    pub(super) fn ring(&mut self, bell: BellName) -> Result<(), ()> {
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
    pub(super) fn ring_for(&mut self, peer: usize, bell: BellName) {
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
    pub(super) fn ring_local(&mut self, bell: BellName) {
        if self.ring(bell).is_err() {
            self.fail(Error::bad_pointer(self.rank, bell.address(), 4, "bell"));
        }
    }

    /// Records the error of a bell that may never ring.
    pub(super) fn fail_bell(&mut self, bell: BellName, error: &Error) {
        if !bell.is_none() {
            self.bell_errors.insert(bell.address(), error.clone());
        }
    }

    #[cold]
    pub(crate) fn fail(&mut self, error: Error) {
        log::debug!("context {}: {error}", self.rank);
        self.failures.push(error);
    }

    pub(super) fn operation_error(&self, peer: usize, detail: &str) -> Error {
        Error::Fabric {
            context: self.rank,
            detail: format!("an operation with context {peer} failed: {detail}"),
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
