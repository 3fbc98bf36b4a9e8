//! `Outbox` and `Inbox`: the shared memory of two connected endpoints.
//!
//! The [`Outbox`] is memory of this endpoint. It holds commands and payloads to the peer, and
//! responses to the peer's commands. The [`Inbox`] is the peer's outbox to this endpoint, mapped
//! read-only. Sending needs the outbox alone; receiving responses and credits needs the inbox.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use selvedge::{Errno, Error, FiAddr};
use selvedge_kit::numa::NodeId;

use crate::connect::packet::Hello;
use crate::peers::copy_selector::CopySelector;
use crate::peers::name::Name;
use crate::peers::ops::{OpBody, Ops};
use crate::provider::config::Config;
use crate::smr::bounce::BounceSender;
use crate::smr::bytes::Bytes;
use crate::smr::cmd_queue::{BadCredit, Credit, Received, Receiver, Sender};
use crate::smr::doorbell::Bell;
use crate::smr::inject_pool::{InjectPool, PoolPosition};
use crate::smr::poll_state::WakeRecord;
use crate::smr::resp_queue::{RespReceiver, RespSender};
use crate::smr::{Attr, PeerRegion, Region};
use crate::transfers::cmd::ProtocolError;
use crate::transfers::protocol_selector::RecentSources;

/// This endpoint's memory for a peer.
#[derive(Debug)]
pub(crate) struct Outbox {
    pub(crate) region: Region,
    /// The NUMA node that was requested for this memory.
    pub(crate) node: Option<NodeId>,
    pub(crate) tx: Sender,
    pool: InjectPool,
    /// The position of the inject pool when each command slot was committed, by slot.
    marks: Box<[u64]>,
    pub(crate) resp: RespSender,
    /// The word by which this endpoint returns the peer's command slots.
    pub(crate) credit: Credit,
    pub(crate) ops: Ops,
    pub(crate) bounce: Option<BounceSender>,
    /// Bounce memory that is not announced yet, because the peer's socket had no room.
    pub(crate) unannounced: Option<BounceSender>,
    /// Operations whose bytes are sent through bounce segments, in order.
    pub(crate) streams: VecDeque<u32>,
    /// One bit per class of messages: whether the last message of the class was bounced.
    pub(crate) bounced: u64,
    /// The buffers from which this endpoint sent last.
    pub(crate) recent_sources: RecentSources,
    /// Selects the copy method for payloads.
    pub(crate) copy_selector: CopySelector,
}

/// The peer's memory for this endpoint, mapped read-only.
#[derive(Debug)]
pub(crate) struct Inbox {
    pub(crate) region: PeerRegion,
    pub(crate) rx: Receiver,
    pub(crate) pool_position: PoolPosition,
    pub(crate) pool: Bytes,
    pub(crate) resp: RespReceiver,
    credit: Credit,
    pub(crate) bell: Bell,
    pub(crate) wake_record: WakeRecord,
    /// The queue position from which on the credit is published.
    publish_from: u64,
    /// The pool position from which on the credit is published.
    publish_pool_from: u64,
    /// Whether the payload of the last message was in the pool, as a guess for the next message.
    pub(crate) expects_payload: bool,
}

impl Outbox {
    /// Creates the outbox to the peer called `name`, which has index `addr` in the address vector,
    /// on a NUMA node if one is given and has free pages.
    pub(crate) fn create(
        node: Option<NodeId>,
        name: &Name,
        addr: FiAddr,
        config: &Config,
    ) -> Result<Self, Error> {
        let attr = Attr {
            sizes: config.region,
            peer: name.as_str(),
        };
        let region = Region::create_on(node, &attr)?;
        region.set_peer_index(addr.0);
        let mut tx = region.cmd_sender();
        tx.reserve_slots(config.reserved_slots());
        Ok(Self {
            node,
            tx,
            pool: region.inject_pool(),
            marks: vec![0; config.region.cmd_count].into(),
            resp: region.resp_sender(),
            credit: region.credit(),
            ops: Ops::default(),
            bounce: None,
            unannounced: None,
            streams: VecDeque::new(),
            bounced: 0,
            recent_sources: RecentSources::default(),
            copy_selector: CopySelector::default(),
            region,
        })
    }

    /// Moves the memory to a NUMA node, before the peer maps it.
    pub(crate) fn move_to(&mut self, node: NodeId) {
        if self.node != Some(node) {
            self.region.move_to(node);
            self.node = Some(node);
        }
    }

    /// Whether all bytes of an operation have been copied into segments.
    pub(crate) fn is_filled(&mut self, msg_id: u32) -> bool {
        match self.ops.get_mut(msg_id) {
            Some(op) => match &op.body {
                OpBody::Rts { filled, .. } | OpBody::Reply { filled, .. } => {
                    *filled == op.report.len
                }
                OpBody::Sent | OpBody::Atomic(_) | OpBody::Requested { .. } => true,
            },
            None => true,
        }
    }

    /// Returns the memory of the inject pool.
    #[inline]
    pub(crate) fn payload(&self) -> &Bytes {
        self.pool.bytes()
    }

    /// Copies a part of a payload to `offset` of the pool, which was claimed for the payload.
    #[inline]
    pub(crate) fn store(&mut self, offset: usize, from: &[u8]) {
        self.copy_selector.copy_in(self.pool.bytes(), offset, from);
    }

    /// Reads the peer's credit, and frees the slots and payloads that the credit returns.
    ///
    /// # Errors
    /// [`Errno::Proto`] when the credit is invalid.
    #[cold]
    pub(crate) fn refresh(&mut self, inbox: Option<&Inbox>) -> Result<(), Errno> {
        let Some(inbox) = inbox else { return Ok(()) };
        let consumed = inbox.credit.read();
        if consumed == self.tx.consumed() {
            // The mark of the last consumed slot may be overwritten, because the queue may be full.
            return Ok(());
        }
        self.tx
            .refresh(consumed)
            .map_err(|BadCredit(_)| Errno::Proto)?;
        self.pool.free_to(self.marks[self.slot_of(consumed - 1)]);
        Ok(())
    }

    /// Claims `len` bytes of the inject pool and returns their offset.
    ///
    /// # Errors
    /// [`Errno::Again`] while there is no room; as [`Self::refresh`].
    pub(crate) fn claim_payload(
        &mut self,
        len: usize,
        inbox: Option<&Inbox>,
    ) -> Result<usize, Errno> {
        if let Some(offset) = self.pool.claim(len) {
            return Ok(offset);
        }
        self.refresh(inbox)?;
        self.pool.claim(len).ok_or(Errno::Again)
    }

    /// Prefetches the first cache lines of the next command.
    #[inline(always)]
    pub(crate) fn prefetch_next_command(&self) {
        self.tx.prefetch();
        self.pool.prefetch();
    }

    /// Prefetches the cache lines of the next payload, after a commit.
    #[inline]
    pub(crate) fn prefetch_next_payload(&self) {
        self.pool.prefetch_ahead();
    }

    /// Records the pool's position for the slot that was committed last.
    #[inline(always)]
    pub(crate) fn mark_last(&mut self) {
        self.mark(self.tx.position() - 1);
    }

    /// Records the pool's position for the slot at `position`.
    #[inline(always)]
    pub(crate) fn mark(&mut self, position: u64) {
        let slot = self.slot_of(position);
        self.marks[slot] = self.pool.position();
        self.tx.prefetch_ahead();
    }

    #[inline]
    fn slot_of(&self, position: u64) -> usize {
        position as usize & (self.marks.len() - 1)
    }
}

impl Inbox {
    /// Returns the command that the caller has peeked at before.
    ///
    /// # Errors
    /// [`ProtocolError`] when the slot is not committed any more, because the peer has overwritten
    /// it.
    #[inline]
    pub(crate) fn peeked(&self) -> Result<Received<'_>, ProtocolError> {
        let missing = ProtocolError("a committed command that was overwritten");
        self.rx.peek().ok_or(missing)
    }

    /// Maps the memory that a hello passes.
    pub(crate) fn attach(hello: &Hello, region: OwnedFd, bell: OwnedFd) -> Result<Self, Error> {
        let region = PeerRegion::attach(region, hello.sizes)?;
        Ok(Self {
            rx: region.cmd_receiver(),
            pool_position: PoolPosition::new(hello.sizes.inject_size),
            pool: region.inject_bytes(),
            resp: region.resp_receiver(),
            credit: region.credit(),
            bell: Bell::attach(bell, hello.bell as usize)?,
            wake_record: WakeRecord::default(),
            region,
            publish_from: 0,
            publish_pool_from: 0,
            expects_payload: false,
        })
    }

    /// Prefetches the first cache line of the next payload while the command is polled, so that
    /// command and payload arrive together.
    #[inline(always)]
    pub(crate) fn prefetch_expected_payload(&self) {
        if self.expects_payload {
            self.pool.prefetch_for_read(self.pool_position.offset());
        }
    }

    /// Returns consumed slots and payloads to the peer once a quarter of the queue or of the pool
    /// is consumed. Not more often, because each write costs the peer a cache miss.
    #[inline(always)]
    pub(crate) fn publish(&mut self, credit: &Credit) {
        if self.rx.position() >= self.publish_from
            || self.pool_position.position() >= self.publish_pool_from
        {
            self.publish_now(credit);
        }
    }

    #[inline(never)]
    fn publish_now(&mut self, credit: &Credit) {
        let (position, bytes) = (self.rx.position(), self.pool.len() as u64);
        self.publish_from = position + self.rx.capacity().div_ceil(4);
        self.publish_pool_from = self.pool_position.position() + bytes.div_ceil(4);
        credit.publish(position);
    }
}
