//! Peers: what an endpoint knows of every endpoint that it talks to.
//!
//! A peer has two halves. The [`Outbox`] is memory of ours: commands and payloads to the peer, and
//! our answers to its commands. The [`Inbox`] is the peer's outbox to us, mapped read-only. We can
//! send as soon as the first half exists; answers and credits need the second.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use rustc_hash::FxHashMap;
use selvedge::{Errno, Error, FiAddr};
use selvedge_kit::Report;
use selvedge_kit::copy::{RxBuf, TxBuf};

use crate::atomic::{Backlog, Question};
use crate::choice::Choice;
use crate::cma::Target;
use crate::cmd::Nonsense;
use crate::config::Config;
use crate::intake::Mark;
use crate::last_words::{Aside, Next};
use crate::name::Name;
use crate::packet::Hello;
use crate::proto::iov::Incoming;
use crate::rendezvous::Link;
use crate::rma::Later;
use crate::rma::access::PeerKeys;
use crate::rma::direct::Windows;
use crate::rma::read::Reply;
use crate::rma::sibling::{Sibling, Siblings};
use crate::smr::attention::Caller;
use crate::smr::bounce::{BounceReceiver, BounceSender, Filled};
use crate::smr::bytes::Bytes;
use crate::smr::cmd_queue::{BadCredit, Credit, Received, Receiver, Sender, Slot};
use crate::smr::doorbell::Bell;
use crate::smr::inject_pool::{InjectPool, Walk};
use crate::smr::resp_queue::{Resp, RespReceiver, RespSender};
use crate::smr::{Attr, PeerRegion, Region};
use crate::special::Blocks;
use crate::stores::Storing;

/// One other endpoint, under its name. It may die and come back: see [`Peer::life`]. Once it is gone
/// for good, another endpoint may take its place.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) name: Name,
    pub(crate) state: State,
    /// Counts incarnations: what belongs to an earlier life is not answered in a later one.
    pub(crate) life: u32,
    /// The peer's own number of its life, once it has said hello.
    pub(crate) incarnation: Option<u128>,
    pub(crate) out: Option<Outbox>,
    pub(crate) inbox: Option<Inbox>,
    pub(crate) links: Vec<Link>,
    pub(crate) pidfd: Option<OwnedFd>,
    /// The process to copy from, where that is allowed.
    pub(crate) cma: Option<Target>,
    /// Atomics to it and of it that wait for something.
    pub(crate) atomics: Backlog,
    /// Sends that wait for the peer to exist.
    pub(crate) held: Vec<Report>,
    /// One-sided operations that wait for the peer's hello, and what came behind them.
    pub(crate) later: VecDeque<Later>,
    /// Whether a one-sided operation takes more than a copy: the peer is to be told of it, or it has
    /// to come behind a fenced one.
    pub(crate) is_careful: bool,
    /// Whether a fenced operation may not be over.
    pub(crate) is_fenced: bool,
    /// Whether the peer counts what one-sided operations do without it.
    pub(crate) wants_notices: bool,
    /// The peer as an endpoint of this domain, if it is or was one.
    pub(crate) sibling: Option<Arc<Sibling>>,
    /// What is meant for its next life, while this one is heard.
    pub(crate) aside: Option<Box<Aside>>,
    /// Whether this life has a next one, for which receives from it wait when it is over.
    pub(crate) has_next: bool,
    /// Its next life, which earlier ones are heard before.
    pub(crate) next: Option<Next>,
    /// The connections that waited when it was last sought in vain.
    pub(crate) sought_at: Option<Mark>,
    /// Large messages of the peer, by its numbers for them.
    pub(crate) incoming: FxHashMap<u32, Incoming>,
    pub(crate) bounce: Option<BounceReceiver>,
    /// Messages to it of which no bytes will come, and why: it was not told yet.
    pub(crate) aborts: VecDeque<(u32, Errno)>,
    /// Segments of messages whose commands have not been read yet.
    pub(crate) early: Vec<Filled>,
    pub(crate) choice: Choice,
    /// Its special memory.
    pub(crate) blocks: Blocks,
    /// What of it our one-sided operations used last.
    pub(crate) windows: Windows,
    /// Packets that the peer may have sent over the socket before something began to wait for one of
    /// them.
    pub(crate) news_ahead: usize,
    /// What the peer lets us do with its memory.
    pub(crate) keys: PeerKeys,
    /// Memory of its messages that wait for a receive, in bytes.
    pub(crate) kept: usize,
    /// Whether the endpoint polls this peer at every turn.
    pub(crate) is_hot: bool,
    /// Whether the endpoint looks after transfers with this peer at every turn.
    pub(crate) is_active: bool,
    /// Whether it has rung and was not polled since.
    pub(crate) has_rung: bool,
    /// Whether there are commands that it was not told of, because more were to follow.
    pub(crate) is_untold: bool,
    /// Whether the peer's next command wakes whoever sleeps here.
    pub(crate) wakes_us: bool,
    /// Whether the peer was told to wake us, and was not looked at since.
    pub(crate) is_unsettled: bool,
    fi_addr: FiAddr,
    fi_epoch: u64,
}

/// How far we got with a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// No contact.
    Idle,
    /// There are messages for it, and nobody has its name yet.
    Waiting {
        /// When to give up.
        deadline: Instant,
    },
    /// It has our outbox.
    Linked,
    /// It has our outbox; one-sided operations wait for its hello, and everything else has to wait
    /// behind them.
    Behind,
    /// It is gone, and there was no room yet for all that it had committed.
    Ending {
        errno: Errno,
        why: &'static str,
        /// The number behind its last command.
        last: u64,
    },
    /// It is gone; a later post tries anew.
    Dead,
}

/// Our memory for a peer.
#[derive(Debug)]
pub(crate) struct Outbox {
    pub(crate) region: Region,
    pub(crate) tx: Sender,
    pool: InjectPool,
    /// By slot: how far the pool was used when the slot was committed.
    marks: Box<[u64]>,
    pub(crate) resp: RespSender,
    /// Where we give the peer's command slots back.
    pub(crate) credit: Credit,
    pub(crate) ops: Ops,
    pub(crate) bounce: Option<BounceSender>,
    /// Operations whose bytes go through bounce segments, first come first served.
    pub(crate) streams: VecDeque<u32>,
    /// By size class, a bit each: whether the last message was bounced.
    pub(crate) bounced: u64,
    /// How payloads are stored.
    pub(crate) storing: Storing,
}

/// The peer's memory for us.
#[derive(Debug)]
pub(crate) struct Inbox {
    pub(crate) region: PeerRegion,
    pub(crate) rx: Receiver,
    pub(crate) walk: Walk,
    pub(crate) pool: Bytes,
    pub(crate) resp: RespReceiver,
    credit: Credit,
    pub(crate) bell: Bell,
    pub(crate) caller: Caller,
    /// From which positions of the queue and the pool on it is worth it to publish both.
    publish_from: u64,
    publish_pool_from: u64,
    /// Whether the last message had its payload in the pool: the next one probably has, too.
    pub(crate) payload_expected: bool,
}

/// An operation that the peer has to answer.
#[derive(Debug)]
pub(crate) struct Op {
    pub(crate) report: Report,
    pub(crate) body: OpBody,
}

/// What is left to do for an operation.
#[derive(Debug)]
pub(crate) enum OpBody {
    /// The bytes are with the peer; it has to confirm.
    Sent,
    /// The peer takes the bytes from our memory, or asks us to bounce them.
    Offered {
        buf: TxBuf,
        /// Bytes that went into segments.
        filled: usize,
        /// Whether the peer wants them all.
        granted: bool,
        /// Whether they are in special memory.
        special: bool,
    },
    /// The peer changes its memory, and tells what came of it.
    Atomic(Question),
    /// The peer sends bytes, which go here.
    Asked { buf: RxBuf },
    /// The peer has asked for these bytes of ours, which go to it in segments.
    Reply { memory: Reply, filled: usize },
}

/// Outstanding operations by `msg_id`: index and generation, so that a late or forged answer does
/// not hit a later operation.
#[derive(Debug, Default)]
pub(crate) struct Ops {
    slots: Vec<(u16, Option<Op>)>,
    free: Vec<u16>,
    /// Operations that wait for bytes of the peer.
    asked: usize,
    /// Bytes on their way to the peer, which is to say when it has them.
    replies: usize,
}

impl Peer {
    pub(crate) fn new(name: Name, siblings: &Siblings) -> Self {
        Self {
            sibling: siblings.find(&name),
            name,
            state: State::Idle,
            life: 0,
            incarnation: None,
            out: None,
            inbox: None,
            links: Vec::new(),
            pidfd: None,
            cma: None,
            atomics: Backlog::default(),
            held: Vec::new(),
            later: VecDeque::new(),
            is_careful: false,
            is_fenced: false,
            wants_notices: false,
            aside: None,
            has_next: false,
            next: None,
            sought_at: None,
            incoming: FxHashMap::default(),
            bounce: None,
            aborts: VecDeque::new(),
            early: Vec::new(),
            choice: Choice::default(),
            blocks: Blocks::default(),
            windows: Windows::default(),
            news_ahead: 0,
            keys: PeerKeys::default(),
            kept: 0,
            is_hot: false,
            is_active: false,
            has_rung: false,
            is_untold: false,
            wakes_us: false,
            is_unsettled: false,
            fi_addr: FiAddr::UNSPEC,
            fi_epoch: u64::MAX,
        }
    }

    /// Gives the place of a peer that is gone to one with another name.
    pub(crate) fn become_another(&mut self, name: Name, siblings: &Siblings) {
        let (life, is_active, has_rung) = (self.life, self.is_active, self.has_rung);
        *self = Self {
            life,
            is_active,
            has_rung,
            ..Self::new(name, siblings)
        };
    }

    /// What completions call the peer: its index in the address vector, or the number that it was
    /// given in its place. Looked up again when that has changed.
    #[inline]
    pub(crate) fn fi_addr(&mut self, av: &crate::av::Av) -> FiAddr {
        let epoch = av.epoch();
        if self.fi_epoch != epoch {
            self.look_up(av, epoch);
        }
        self.fi_addr
    }

    #[cold]
    fn look_up(&mut self, av: &crate::av::Av, epoch: u64) {
        self.fi_epoch = epoch;
        self.fi_addr = av.source(&self.name);
        if let Some(out) = &self.out {
            out.region.set_peer_index(av.find(&self.name).0);
        }
    }

    /// Asks for the cache lines that an answer to the peer begins with. The peer looks at them all
    /// the time; so they come while the message that has just arrived is being taken, and not while
    /// the answer waits for them.
    #[inline(always)]
    pub(crate) fn expect_answer(&self) {
        if let Some(out) = &self.out {
            out.tx.prepare();
            out.pool.prepare();
        }
    }

    /// Lets the peer use again what was consumed, once it is worth it.
    #[inline(always)]
    pub(crate) fn publish_credit(&mut self) {
        if let (Some(inbox), Some(out)) = (&mut self.inbox, &self.out) {
            inbox.publish(&out.credit);
        }
    }

    /// Makes sure of a command slot and of `len` bytes of the pool, and says where those are. The
    /// command must follow ([`Self::slot`]).
    ///
    /// # Errors
    /// [`Errno::Again`] while there is no room, and nothing is reserved then; [`Errno::Proto`] when
    /// the peer lies about what it has consumed.
    #[inline]
    pub(crate) fn reserve(&mut self, len: usize) -> Result<usize, Errno> {
        let out = self.out.as_mut().ok_or(Errno::NotConn)?;
        if out.tx.room() == 0 {
            out.refresh(self.inbox.as_ref())?;
            if out.tx.room() == 0 {
                return Err(Errno::Again);
            }
        }
        let offset = match len {
            0 => 0,
            _ => out.claim_payload(len, self.inbox.as_ref())?,
        };
        out.mark(out.tx.position());
        Ok(offset)
    }

    /// Whether no command fits, as far as we know.
    pub(crate) fn is_full(&self) -> bool {
        self.out.as_ref().is_some_and(|out| out.tx.room() == 0)
    }

    /// Makes sure of a slot for an answer to a command of the peer, for which there is always room
    /// as long as both keep to the rules. `false` while there is none.
    pub(crate) fn reserve_answer(&mut self) -> bool {
        let Some(out) = &mut self.out else {
            return false;
        };
        if out.tx.claim_kept().is_none() && out.refresh(self.inbox.as_ref()).is_err() {
            return false;
        }
        let has_room = out.tx.claim_kept().is_some();
        if has_room {
            out.mark(out.tx.position());
        }
        has_room
    }

    /// The slot that [`Self::reserve_answer`] has made sure of.
    #[expect(
        clippy::expect_used,
        reason = "reserved by this endpoint, whatever peers write"
    )]
    pub(crate) fn answer_slot(&mut self) -> Slot<'_> {
        let slot = self.outbox().tx.claim_kept();
        slot.expect("a slot was reserved")
    }

    /// The slot that [`Self::reserve`] has made sure of.
    #[expect(
        clippy::expect_used,
        reason = "reserved by this endpoint, whatever peers write"
    )]
    #[inline]
    pub(crate) fn slot(&mut self) -> Slot<'_> {
        self.outbox().tx.claim().expect("a slot was reserved")
    }

    /// Our memory for the peer.
    #[expect(
        clippy::expect_used,
        reason = "reserved by this endpoint, whatever peers write"
    )]
    #[inline]
    pub(crate) fn outbox(&mut self) -> &mut Outbox {
        self.out.as_mut().expect("something was reserved in it")
    }

    /// Operations that the peer owes us an answer for.
    pub(crate) fn outstanding(&self) -> usize {
        self.out.as_ref().map_or(0, |out| out.ops.len())
    }

    /// Whether an operation to the peer is not complete yet.
    pub(crate) fn has_unfinished(&self) -> bool {
        let is_idle = self.held.is_empty() && self.later.is_empty() && self.atomics.is_idle();
        !is_idle || self.outstanding() > 0
    }

    /// Answers a command of the peer, if its life is still the one in which it asked.
    pub(crate) fn answer(&mut self, life: u32, msg_id: u32, status: u32) {
        if self.life == life
            && let Some(out) = &mut self.out
        {
            out.resp.push(Resp { msg_id, status });
            self.wake();
        }
    }

    /// Whether anything is on its way in either direction that polling commands does not move.
    pub(crate) fn has_transfers(&self) -> bool {
        let sending = self.out.as_ref().is_some_and(|out| !out.ops.is_empty());
        let is_idle = self.incoming.is_empty() && self.later.is_empty() && self.atomics.is_empty();
        sending || !is_idle || self.is_untold || !self.aborts.is_empty()
    }
}

impl Outbox {
    /// Makes the memory for the peer called `name`, which has index `addr` in our address vector.
    pub(crate) fn create(name: &Name, addr: FiAddr, config: &Config) -> Result<Self, Error> {
        let region = Region::create(&Attr {
            sizes: config.region,
            peer: name.as_str(),
        })?;
        region.set_peer_index(addr.0);
        let mut tx = region.cmd_sender();
        tx.keep_back(config.kept_slots());
        Ok(Self {
            tx,
            pool: region.inject_pool(),
            marks: vec![0; config.region.cmd_count].into(),
            resp: region.resp_sender(),
            credit: region.credit(),
            ops: Ops::default(),
            bounce: None,
            streams: VecDeque::new(),
            bounced: 0,
            storing: Storing::default(),
            region,
        })
    }

    /// Whether no more bytes of an operation can go into segments.
    pub(crate) fn is_filled(&mut self, msg_id: u32) -> bool {
        match self.ops.get_mut(msg_id) {
            Some(op) => match &op.body {
                OpBody::Offered { filled, .. } | OpBody::Reply { filled, .. } => {
                    *filled == op.report.len
                }
                OpBody::Sent | OpBody::Atomic(_) | OpBody::Asked { .. } => true,
            },
            None => true,
        }
    }

    /// The memory that payloads are copied to.
    #[inline]
    pub(crate) fn payload(&self) -> &Bytes {
        self.pool.bytes()
    }

    /// Copies a part of a payload to where it was promised a place.
    #[inline]
    pub(crate) fn store(&mut self, at: usize, from: &[u8]) {
        self.storing.copy_in(self.pool.bytes(), at, from);
    }

    #[cold]
    fn refresh(&mut self, inbox: Option<&Inbox>) -> Result<(), Errno> {
        let Some(inbox) = inbox else { return Ok(()) };
        let consumed = inbox.credit.read();
        if consumed == self.tx.consumed() {
            // The mark of the last one may be overwritten already: the queue may be full.
            return Ok(());
        }
        self.tx
            .refresh(consumed)
            .map_err(|BadCredit(_)| Errno::Proto)?;
        self.pool.free_to(self.marks[self.slot_of(consumed - 1)]);
        Ok(())
    }

    fn claim_payload(&mut self, len: usize, inbox: Option<&Inbox>) -> Result<usize, Errno> {
        if let Some(offset) = self.pool.claim(len) {
            return Ok(offset);
        }
        self.refresh(inbox)?;
        self.pool.claim(len).ok_or(Errno::Again)
    }

    /// Asks for the cache lines of the next payload, once a command has been committed.
    #[inline]
    pub(crate) fn look_ahead_in_pool(&self) {
        self.pool.look_ahead();
    }

    /// Remembers how far the pool was used when the last slot was committed.
    #[inline(always)]
    pub(crate) fn mark_last(&mut self) {
        self.mark(self.tx.position() - 1);
    }

    #[inline(always)]
    fn mark(&mut self, position: u64) {
        let slot = self.slot_of(position);
        self.marks[slot] = self.pool.position();
        self.tx.look_ahead();
    }

    #[inline]
    fn slot_of(&self, position: u64) -> usize {
        position as usize & (self.marks.len() - 1)
    }
}

impl Inbox {
    /// The command that was seen to be next.
    ///
    /// # Errors
    /// When it is gone: the peer has changed what it had committed.
    #[inline]
    pub(crate) fn seen(&self) -> Result<Received<'_>, Nonsense> {
        let gone = Nonsense("a command that was taken back");
        self.rx.peek().ok_or(gone)
    }

    /// Maps what came with a hello.
    pub(crate) fn attach(hello: &Hello, region: OwnedFd, bell: OwnedFd) -> Result<Self, Error> {
        let region = PeerRegion::attach(region, hello.sizes)?;
        Ok(Self {
            rx: region.cmd_receiver(),
            walk: Walk::new(hello.sizes.inject_size),
            pool: region.inject_bytes(),
            resp: region.resp_receiver(),
            credit: region.credit(),
            bell: Bell::attach(bell, hello.bell as usize)?,
            caller: Caller::default(),
            region,
            publish_from: 0,
            publish_pool_from: 0,
            payload_expected: false,
        })
    }

    /// Keeps the line where the next payload would begin coming, while the command is awaited: both
    /// then arrive together.
    #[inline(always)]
    pub(crate) fn expect_payload(&self) {
        if self.payload_expected {
            self.pool.fetch(self.walk.offset());
        }
    }

    /// Gives consumed slots and payloads back when it is worth a write that the peer will read.
    #[inline(always)]
    pub(crate) fn publish(&mut self, credit: &Credit) {
        if self.rx.position() >= self.publish_from || self.walk.position() >= self.publish_pool_from
        {
            self.publish_now(credit);
        }
    }

    #[inline(never)]
    fn publish_now(&mut self, credit: &Credit) {
        let (position, bytes) = (self.rx.position(), self.pool.len() as u64);
        self.publish_from = position + self.rx.capacity().div_ceil(4);
        self.publish_pool_from = self.walk.position() + bytes.div_ceil(4);
        credit.publish(position);
    }
}

impl Ops {
    /// Whether nothing is outstanding.
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.len() == self.free.len()
    }

    /// Operations of ours that are outstanding.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len() - self.replies
    }

    /// What the peer has asked for and does not have yet.
    pub(crate) fn replies(&self) -> usize {
        self.replies
    }

    /// Operations that wait for bytes of the peer.
    pub(crate) fn asked(&self) -> usize {
        self.asked
    }

    /// Keeps an operation; its `msg_id`.
    pub(crate) fn insert(&mut self, op: Op) -> u32 {
        self.asked += usize::from(matches!(op.body, OpBody::Asked { .. }));
        self.replies += usize::from(matches!(op.body, OpBody::Reply { .. }));
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            (self.slots.len() - 1) as u16
        });
        let (generation, slot) = &mut self.slots[usize::from(index)];
        *slot = Some(op);
        u32::from(*generation) << 16 | u32::from(index)
    }

    /// The operation that an answer is for.
    pub(crate) fn get_mut(&mut self, msg_id: u32) -> Option<&mut Op> {
        let (generation, slot) = self.slots.get_mut(usize::from(msg_id as u16))?;
        slot.as_mut()
            .filter(|_| u32::from(*generation) == msg_id >> 16)
    }

    /// Ends an operation.
    pub(crate) fn remove(&mut self, msg_id: u32) -> Option<Op> {
        self.get_mut(msg_id)?;
        let (generation, slot) = &mut self.slots[usize::from(msg_id as u16)];
        *generation = generation.wrapping_add(1);
        self.free.push(msg_id as u16);
        let op = slot.take()?;
        self.asked -= usize::from(matches!(op.body, OpBody::Asked { .. }));
        self.replies -= usize::from(matches!(op.body, OpBody::Reply { .. }));
        Some(op)
    }

    /// Ends all of them.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Op> {
        self.free.clear();
        (self.asked, self.replies) = (0, 0);
        std::mem::take(&mut self.slots)
            .into_iter()
            .filter_map(|(_, op)| op)
    }
}

#[cfg(test)]
mod tests {
    use selvedge::{CompletionFlags, Context, OpFlags};

    use super::*;

    fn op() -> Op {
        Op {
            report: Report {
                what: CompletionFlags::SEND,
                context: Context(0),
                flags: OpFlags::empty(),
                completes: true,
                len: 0,
            },
            body: OpBody::Sent,
        }
    }

    #[test]
    fn a_number_is_not_valid_for_the_next_operation_in_its_place() {
        let mut ops = Ops::default();
        let first = ops.insert(op());
        assert!(ops.remove(first).is_some());
        let second = ops.insert(op());
        assert_ne!(first, second);
        assert!(ops.remove(first).is_none());
        assert!(ops.get_mut(u32::MAX).is_none());
        assert_eq!(ops.len(), 1);
    }
}
