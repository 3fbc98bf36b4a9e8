//! The two halves of a connection to a peer. The [`Outbox`] is memory of ours: commands and payloads
//! to the peer, and our answers to its commands. The [`Inbox`] is the peer's outbox to us, mapped
//! read-only. We can send as soon as the first half exists; answers and credits need the second.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use selvedge::{Errno, Error, FiAddr};

use crate::connect::packet::Hello;
use crate::peers::name::Name;
use crate::peers::ops::{OpBody, Ops};
use crate::peers::stores::Storing;
use crate::provider::config::Config;
use crate::smr::attention::Caller;
use crate::smr::bounce::BounceSender;
use crate::smr::bytes::Bytes;
use crate::smr::cmd_queue::{BadCredit, Credit, Received, Receiver, Sender};
use crate::smr::doorbell::Bell;
use crate::smr::inject_pool::{InjectPool, Walk};
use crate::smr::resp_queue::{RespReceiver, RespSender};
use crate::smr::{Attr, PeerRegion, Region};
use crate::transfers::cmd::ProtocolError;

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
    /// Segments of which the peer was not told yet, because its socket had no room.
    pub(crate) unannounced: Option<BounceSender>,
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
            unannounced: None,
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

    /// Reads how much the peer has consumed.
    ///
    /// # Errors
    /// [`Errno::Proto`] when the peer lies about it.
    #[cold]
    pub(crate) fn refresh(&mut self, inbox: Option<&Inbox>) -> Result<(), Errno> {
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

    /// Asks for the cache lines that the next command begins with.
    #[inline(always)]
    pub(crate) fn prepare(&self) {
        self.tx.prepare();
        self.pool.prepare();
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

    /// Remembers how far the pool is used for the slot at a position.
    #[inline(always)]
    pub(crate) fn mark(&mut self, position: u64) {
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
    pub(crate) fn seen(&self) -> Result<Received<'_>, ProtocolError> {
        let gone = ProtocolError("a command that was taken back");
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
