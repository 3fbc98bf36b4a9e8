//! The engine of a context: moves bytes, rings bells, and queues what has been invoked. It runs no
//! code of the application's; whoever drives it takes arrivals from its inbox.
//!
//! Everything is done on the thread that calls, which has the engine to itself: `core::home`.

mod barrier;
mod failures;
mod get;
mod hear;
mod invoke;
mod loss;
mod order;
mod parcel;
mod peer;
mod post;
mod put;
mod receive;
mod special;

pub(crate) use get::Get;
pub(crate) use invoke::{Bytes, Order};
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
use crate::wire::{Port, Said};
use crate::{Error, Result, memory};
use barrier::Barrier;
use failures::Failures;
use invoke::{Fetch, Lent};
use order::Registered;
use parcel::Parcels;
use peer::{Letter, Peer};
use put::{Lending, Taking, Way};
use receive::Receives;
use special::Blocks;

/// Something that was invoked here.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) from: usize,
    pub(crate) port: Port,
    pub(crate) payload: Payload,
}

/// What is known of a context that has just been lost, beyond that.
pub(crate) type Obituary = Box<dyn Fn(usize) -> Option<String> + Send>;

/// One context.
pub(crate) struct Engine {
    // First, because closing an endpoint gives back the memory that the rest holds.
    nets: Vec<Net>,
    /// Where completions are read to, and who their senders are.
    done: Box<[Entry; BATCH]>,
    from: Box<[FiAddr; BATCH]>,
    me: usize,
    peers: Vec<Peer>,
    /// Who each fabric's senders are: contexts have their numbers in those that reach them alone.
    senders: Vec<Vec<usize>>,
    receives: Receives,
    bells: Arc<Bells>,
    ops: FxHashMap<u64, Op>,
    next_op: u64,
    /// Operations that the fabric had no room for.
    to_post: VecDeque<u64>,
    /// Peers with messages that the fabric had no room for.
    backlog: Vec<usize>,
    /// Peers that are gone or take no messages, why, and since when.
    suspects: Vec<(usize, String, Instant)>,
    inbox: VecDeque<Arrival>,
    blocks: Blocks,
    parcels: Parcels,
    barrier: Barrier,
    registered: Registered,
    /// What went wrong and has not been reported.
    failures: Failures,
    /// Why a bell may never ring.
    muffled: FxHashMap<u64, Error>,
    /// Why nothing can be relied on any more.
    broken: Option<Error>,
    copies: Copies,
    obituary: Option<Obituary>,
    /// Handed over by the last poll: there was something.
    stirred: bool,
    /// Something was sent since the last poll, and may not have left.
    owes_flush: bool,
}

/// What completes later.
#[derive(Debug)]
enum Op {
    Put(Lending),
    Taking(Taking),
    Get(Get),
    Lent(Lent),
    Fetch(Fetch),
    Flush { to: usize },
}

impl Op {
    /// The context on the other side.
    fn peer(&self) -> usize {
        match self {
            Self::Put(op) => op.put.to,
            Self::Taking(op) => op.from,
            Self::Get(op) => op.of,
            Self::Lent(op) => op.to,
            Self::Fetch(op) => op.from,
            Self::Flush { to } => *to,
        }
    }
}

/// What the context of a completion says.
#[derive(Clone, Copy, Debug)]
enum Mark {
    /// A receive buffer.
    Buffer(usize),
    /// The end of a peer.
    Watch(usize),
    /// An operation.
    Op(u64),
    /// A message or put to a peer, whose success nobody is told of.
    To(usize),
    /// A barrier's message to a peer.
    Told(usize),
}

const MARK_SHIFT: u32 = 56;

impl Mark {
    fn context(self) -> Context {
        let (kind, number) = match self {
            Self::Buffer(index) => (0, index as u64),
            Self::Watch(peer) => (1, peer as u64),
            Self::Op(op) => (2, op),
            Self::To(peer) => (3, peer as u64),
            Self::Told(peer) => (4, peer as u64),
        };
        Context(kind << MARK_SHIFT | number)
    }

    fn of(context: Context) -> Self {
        let number = context.0 & ((1 << MARK_SHIFT) - 1);
        match context.0 >> MARK_SHIFT {
            0 => Self::Buffer(number as usize),
            1 => Self::Watch(number as usize),
            2 => Self::Op(number),
            3 => Self::To(number as usize),
            _ => Self::Told(number as usize),
        }
    }
}

/// What one context is told of another one at the start.
#[derive(Clone, Debug)]
pub(crate) struct Acquaintance {
    pub(crate) net: usize,
    pub(crate) address: String,
    pub(crate) key: u64,
}

/// Completions taken at once.
const BATCH: usize = 16;
/// Batches of one poll: a flood does not keep the caller for ever.
const BATCHES: usize = 16;

impl Engine {
    /// Makes contact with the contexts that barriers go by.
    ///
    /// # Errors
    /// What the fabric refuses.
    pub(crate) fn start(
        nets: Vec<Net>,
        me: usize,
        all: &[Acquaintance],
        obituary: Option<Obituary>,
    ) -> Result<Self> {
        let refused = |error: selvedge::Error| Error::Fabric {
            context: me,
            what: error.to_string(),
        };
        let mut peers = Vec::new();
        let mut senders = vec![Vec::new(); nets.len()];
        for (number, known) in all.iter().enumerate() {
            let addr = nets[known.net].add(&known.address).map_err(refused)?;
            peers.push(Peer::new(known.net, addr, known.key));
            let (known, place) = (&mut senders[known.net], addr.0 as usize);
            known.resize(known.len().max(place + 1), usize::MAX);
            known[place] = number;
        }
        let receives = Receives::post(&nets).map_err(|errno| Error::Fabric {
            context: me,
            what: format!("receive buffers: {errno}"),
        })?;
        let mut engine = Self {
            nets,
            done: Box::new([Entry::default(); BATCH]),
            from: Box::new([FiAddr::UNSPEC; BATCH]),
            me,
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
            barrier: Barrier::new(me, peers.len()),
            registered: Registered::default(),
            failures: Failures::default(),
            muffled: FxHashMap::default(),
            broken: None,
            copies: Copies::default(),
            obituary,
            stirred: false,
            owes_flush: false,
            senders,
            peers,
        };
        for peer in engine.neighbours() {
            engine.send(peer, &Said::Hello, &[]);
            engine.watch(peer);
        }
        Ok(engine)
    }

    pub(crate) fn me(&self) -> usize {
        self.me
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

    /// Moves bytes and rings bells; says whether anything has happened.
    #[inline]
    pub(crate) fn progress(&mut self) -> bool {
        self.stirred = false;
        self.owes_flush = false;
        // Here and not behind the messages, so that what they were for is not held up.
        self.receives.repost(&self.nets);
        for net in 0..self.nets.len() {
            self.drain(net);
        }
        if !self.suspects.is_empty() {
            self.lose_suspects();
        }
        if !self.backlog.is_empty() || !self.to_post.is_empty() {
            self.retry();
        }
        self.stirred
    }

    /// The next arrival, in the order of each sender's.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Arrival> {
        self.inbox.pop_front()
    }

    #[inline]
    pub(crate) fn has_arrivals(&self) -> bool {
        !self.inbox.is_empty()
    }

    /// How many arrivals nobody has taken.
    pub(crate) fn arrivals(&self) -> usize {
        self.inbox.len()
    }

    /// Whether something that was sent may not have left.
    #[inline]
    pub(crate) fn owes_flush(&self) -> bool {
        self.owes_flush
    }

    #[inline]
    pub(crate) fn has_failures(&self) -> bool {
        !self.failures.is_empty()
    }

    /// The oldest failure that no poll has told of.
    pub(crate) fn failure(&mut self) -> Option<Error> {
        self.failures.pop()
    }

    /// The oldest failure that neither a poll nor a wait has told of.
    pub(crate) fn unreported_failure(&mut self) -> Option<Error> {
        self.failures.pop_unreported()
    }

    /// Why waiting is in vain, if it is.
    pub(crate) fn hopeless(&self, bell: Option<BellName>) -> Option<&Error> {
        let muffled = bell.and_then(|bell| self.muffled.get(&bell.address()));
        muffled.or(self.broken.as_ref())
    }

    /// Forgets why a bell did not ring, which a wait has told: the bell is used for something else.
    pub(crate) fn forgive(&mut self, bell: BellName) {
        if let Some(why) = self.muffled.remove(&bell.address()) {
            self.failures.mark_reported(&why);
        }
    }

    /// Whether everything that was started here is done and sent.
    pub(crate) fn is_idle(&self) -> bool {
        self.ops.is_empty() && self.backlog.is_empty()
    }

    /// How long a sleep may last without harm.
    pub(crate) fn patience(&self) -> Duration {
        let is_settled = self.backlog.is_empty() && self.suspects.is_empty();
        match is_settled && self.to_post.is_empty() {
            true => Duration::from_millis(500),
            // Nobody says when there is room again.
            false => Duration::from_micros(200),
        }
    }

    #[inline]
    fn drain(&mut self, net: usize) {
        for _ in 0..BATCHES {
            match self.nets[net].poll(&mut *self.done, &mut *self.from) {
                Ok(0) => return,
                Ok(count) => {
                    self.stirred = true;
                    for index in 0..count {
                        let (entry, from) = (self.done[index], self.from[index]);
                        self.completed(net, &entry, from);
                    }
                    if count < BATCH {
                        return;
                    }
                }
                Err(Errno::Avail) => {
                    self.stirred = true;
                    self.failed(net);
                }
                Err(errno) => {
                    self.fail(Error::Fabric {
                        context: self.me,
                        what: format!("completion queue: {errno}"),
                    });
                    return;
                }
            }
        }
    }

    #[inline]
    fn completed(&mut self, net: usize, entry: &Entry, from: FiAddr) {
        let place = usize::try_from(from.0).ok();
        let known = place.and_then(|place| self.senders[net].get(place));
        let peer = known.copied().filter(|&peer| peer < self.peers.len());
        if entry.flags.contains(CompletionFlags::REMOTE_WRITE) {
            if let Some(peer) = peer {
                self.ring_for(peer, BellName::from_word(entry.data));
            }
            return;
        }
        match Mark::of(entry.context) {
            Mark::Buffer(index) => self.arrived(net, index, peer, entry),
            Mark::Op(op) => self.op_done(op),
            Mark::Told(_) => self.barrier.left(),
            Mark::Watch(_) | Mark::To(_) => {}
        }
    }

    #[cold]
    fn failed(&mut self, net: usize) {
        let Some(error) = self.nets[net].error() else {
            return;
        };
        let detail = format!("{} ({})", error.detail, error.errno);
        let mark = Mark::of(error.entry.context);
        if let Mark::Told(_) = mark {
            self.barrier.left();
        }
        match mark {
            Mark::Watch(peer) | Mark::To(peer) | Mark::Told(peer) if net::is_loss(error.errno) => {
                self.suspects.push((peer, detail, Instant::now()));
            }
            Mark::To(peer) | Mark::Told(peer) => self.fail(self.refused(peer, &detail)),
            Mark::Op(op) => self.op_failed(op, error.errno, &detail),
            Mark::Buffer(index) => {
                self.receives.returned(index);
                log::warn!("context {}: receive failed: {detail}", self.me);
            }
            Mark::Watch(peer) => self.watch_ended(peer, &detail),
        }
    }

    fn op_done(&mut self, number: u64) {
        match self.ops.remove(&number) {
            Some(Op::Put(op)) => self.ring_own(op.put.local_bell),
            Some(Op::Taking(op)) => self.taken(&op),
            Some(Op::Get(op)) => self.got(op),
            Some(Op::Fetch(op)) => self.fetched(number, op),
            Some(op) => {
                log::warn!("context {}: {op:?} completes too early", self.me);
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
        if net::is_loss(errno) {
            self.lose(peer, detail);
        }
        match (op, self.check_alive(peer)) {
            (Op::Fetch(op), _) => self.not_fetched(number, &op),
            (Op::Taking(op), _) => self.not_taken(&op, errno),
            (op, Err(why)) => self.mute(op, &why),
            (op, Ok(())) => self.give_up(op, &self.refused(peer, detail)),
        }
    }

    /// Ends an operation of this context with an error, and reports it.
    fn give_up(&mut self, op: Op, why: &Error) {
        self.mute(op, why);
        self.fail(why.clone());
    }

    /// Ends an operation of this context with an error that its bell carries.
    fn mute(&mut self, op: Op, why: &Error) {
        match op {
            Op::Put(op) => self.muffle(op.put.local_bell, why),
            Op::Get(op) => self.muffle(op.local_bell, why),
            Op::Lent(op) => {
                self.muffle(op.bell, why);
                self.parcels.take_back(op.bytes);
            }
            // Nobody here waits for these.
            Op::Fetch(_) | Op::Taking(_) | Op::Flush { .. } => {}
        }
    }

    /// Whether the fabric has memory of this operation.
    fn is_moving(&self, number: u64) -> bool {
        let is_posted = match self.ops.get(&number) {
            Some(Op::Fetch(_) | Op::Taking(_)) => true,
            Some(Op::Put(put)) => put.way != Way::Asked,
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

    /// Sends, or queues behind what could not be sent. It never waits.
    fn send(&mut self, to: usize, said: &Said, bytes: &[u8]) {
        let head = said.head();
        let context = Mark::To(to).context();
        let letter = Letter {
            tag: head.tag,
            pieces: [head.bytes(), bytes],
            told: None,
        };
        self.send_by(to, &letter, |net, addr| {
            net.send_behind(addr, &head, bytes, context)
        });
    }

    /// As [`Self::send`], for a barrier, which does not end before this has left.
    fn send_off(&mut self, to: usize, said: &Said) {
        let head = said.head();
        let (tag, words, context) = (head.tag, head.bytes(), Mark::Told(to).context());
        let letter = Letter {
            tag,
            pieces: [words, &[]],
            told: Some(context),
        };
        self.send_by(to, &letter, |net, addr| {
            net.send_off(addr, tag, words, context)
        });
    }

    /// As [`Self::send`], for a message that is all in `message`.
    #[inline]
    fn send_whole(&mut self, to: usize, tag: u64, message: &[u8]) {
        let letter = Letter {
            tag,
            pieces: [&[], message],
            told: None,
        };
        self.send_by(to, &letter, |net, addr| net.send(addr, tag, message));
    }

    #[inline]
    fn send_by(
        &mut self,
        to: usize,
        letter: &Letter<'_>,
        send: impl FnOnce(&Net, FiAddr) -> selvedge::Result,
    ) {
        let peer = &self.peers[to];
        if !peer.has_backlog() {
            let net = &self.nets[peer.net];
            match send(net, peer.addr) {
                Ok(()) => {
                    self.owes_flush |= net.dawdles;
                    return;
                }
                Err(Errno::Again) => {}
                Err(errno) => return self.not_sent(to, errno),
            }
        }
        self.queue(to, letter);
    }

    #[cold]
    fn queue(&mut self, to: usize, letter: &Letter<'_>) {
        let peer = &mut self.peers[to];
        if peer.is_lost() {
            return;
        }
        if peer.queue(letter) {
            self.backlog.push(to);
        }
    }

    #[cold]
    fn not_sent(&mut self, to: usize, errno: Errno) {
        match net::is_loss(errno) {
            // What it has said before it went is heard first: it may have said goodbye.
            true => {
                let why = format!("a message to it is refused: {errno}");
                self.suspects.push((to, why, Instant::now()));
            }
            false => self.fail(self.refused(to, &errno.to_string())),
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
                    self.stirred = true;
                    self.owes_flush |= self.nets[self.peers[to].net].dawdles;
                }
                Err(Errno::Again) => self.backlog.push(to),
                Err(errno) => self.not_sent(to, errno),
            }
        }
    }

    /// Rings a bell of this context.
    #[inline]
    fn ring(&mut self, bell: BellName) -> Result<(), ()> {
        if bell.is_none() {
            return Ok(());
        }
        if let Some(count) = self.bells.named(bell) {
            count.fetch_add(1, std::sync::atomic::Ordering::Release);
            return Ok(());
        }
        let address = bell.anywhere().ok_or(())?;
        memory::increment(address, self.blocks.contain(address, 4))
    }

    /// Rings a bell that another context has named, and tells it if there is none.
    #[inline]
    fn ring_for(&mut self, peer: usize, bell: BellName) {
        if self.ring(bell).is_err() {
            let said = Said::PutFailed {
                to: bell.address(),
                len: 4,
                local: BellName::NONE,
            };
            self.send(peer, &said, &[]);
        }
    }

    /// Rings a bell that a call of this context has named.
    #[inline]
    fn ring_own(&mut self, bell: BellName) {
        if self.ring(bell).is_err() {
            self.fail(self.bad_pointer(self.me, bell.address(), 4, "bell"));
        }
    }

    /// Says why a bell may never ring.
    fn muffle(&mut self, bell: BellName, why: &Error) {
        if !bell.is_none() {
            self.muffled.insert(bell.address(), why.clone());
        }
    }

    #[cold]
    pub(crate) fn fail(&mut self, why: Error) {
        log::debug!("context {}: {why}", self.me);
        self.failures.push(why);
    }

    fn refused(&self, peer: usize, detail: &str) -> Error {
        Error::Fabric {
            context: self.me,
            what: format!("an operation with context {peer} failed: {detail}"),
        }
    }

    fn bad_pointer(&self, context: usize, address: u64, len: u64, what: &'static str) -> Error {
        let _ = self;
        Error::BadPointer {
            context,
            address,
            len,
            what,
        }
    }

    /// Checks a context's number.
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
            .field("me", &self.me)
            .field("size", &self.peers.len())
            .field("ops", &self.ops.len())
            .finish_non_exhaustive()
    }
}
