//! A client and a server that talk: numbered messages in both directions over one endpoint each.
//!
//! At rest each side has one receive posted, into one of two *rest* buffers. Benchmarks with
//! windows post more, into *slots* whose size fits the messages.

mod agree;
mod buffers;
mod receive;
mod send;

use std::sync::Arc;

use selvedge::cq::Entry;
use selvedge::{Counters, EventQueue, FiAddr, Info, OpFlags};
use selvedge_testkit::domain::{Count, DomainContext, DomainEndpoint, EndpointConfig};

use self::buffers::Buffers;
use super::connect::Door;
use super::oob::OutOfBandChannel;
use super::options::Options;
use super::payload::CANARY;
use crate::upstream::ground;

/// Room for what the programs say to each other besides.
pub(super) const CONTROL: usize = 1024;

/// How a program uses its channel.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Manners {
    /// Tagged messages: a message's number is its tag.
    pub(super) tagged: bool,
    /// The largest message.
    pub(super) largest: usize,
    /// Messages at once, at most; 0 for one after the other.
    pub(super) window: usize,
    /// Entries of the queues of sends and of receives; 0 for enough.
    pub(super) queues: [usize; 2],
    /// Counters in place of queues.
    pub(super) counters: bool,
    /// Default flags of sends (`tx_attr.op_flags`), besides.
    pub(super) flags: OpFlags,
}

/// One side.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) end: DomainEndpoint,
    pub(super) peer: FiAddr,
    pub(super) options: Options,
    pub(super) oob: Option<OutOfBandChannel>,
    /// What the connection was made with, if there is one.
    pub(super) door: Option<Door>,
    manners: Manners,
    counts: Option<[Count; 2]>,
    rx: Buffers,
    tx: Buffers,
    /// Receives posted and messages arrived.
    pub(super) posted: u64,
    pub(super) arrived: u64,
    /// Sends posted, those of them that complete, and those that have.
    pub(super) sent: u64,
    completing: u64,
    completed: u64,
    /// The last entries of arrived messages.
    log: Vec<Entry>,
    /// Bytes that have arrived.
    bytes: u64,
    /// What the client was first heard by, over datagrams.
    pub(super) greeting: Option<Vec<u8>>,
}

impl Channel {
    /// Opens an endpoint and meets the peer.
    ///
    /// # Errors
    /// When something does not open, or the peer does not answer.
    pub(super) fn open(options: &Options, info: Info, manners: Manners) -> anyhow::Result<Self> {
        let oob = match options.out_of_band {
            Some(_) => Some(OutOfBandChannel::meet(options)?),
            None => None,
        };
        let ground = ground::open(options, info)?;
        Self::over(options, &ground, manners, oob)
    }

    /// The same in a domain that is open, with a connection beside it.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub(super) fn over(
        options: &Options,
        ground: &Arc<DomainContext>,
        manners: Manners,
        oob: Option<OutOfBandChannel>,
    ) -> anyhow::Result<Self> {
        let mut channel = Self::deaf(options, ground, manners, oob, None)?;
        channel.post_rest()?;
        channel.meet()?;
        Ok(channel)
    }

    /// The same with more counters.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub(super) fn counting(
        options: &Options,
        ground: &Arc<DomainContext>,
        manners: Manners,
        bind: impl FnOnce(&mut Counters),
    ) -> anyhow::Result<Self> {
        let mut plan = EndpointConfig::default();
        bind(&mut plan.counters);
        let mut channel = Self::planned(options, ground, manners, plan)?;
        if options.out_of_band.is_some() {
            channel.oob = Some(OutOfBandChannel::meet(options)?);
        }
        channel.post_rest()?;
        channel.meet()?;
        Ok(channel)
    }

    /// The same without a receive, and before the peer is known.
    ///
    /// # Errors
    /// When something does not open.
    pub(super) fn deaf(
        options: &Options,
        ground: &Arc<DomainContext>,
        manners: Manners,
        oob: Option<OutOfBandChannel>,
        eq: Option<Arc<dyn EventQueue>>,
    ) -> anyhow::Result<Self> {
        let plan = EndpointConfig {
            eq,
            ..EndpointConfig::default()
        };
        let mut channel = Self::planned(options, ground, manners, plan)?;
        channel.oob = oob;
        Ok(channel)
    }

    fn planned(
        options: &Options,
        ground: &Arc<DomainContext>,
        manners: Manners,
        mut plan: EndpointConfig,
    ) -> anyhow::Result<Self> {
        let enough = (2 * manners.window).max(1024);
        let [tx, rx] = manners.queues.map(|size| match size {
            0 => enough,
            size => size,
        });
        plan.tx = Some(ground.queue(tx)?);
        plan.rx = Some(ground.queue(rx)?);
        let counts = match manners.counters {
            true => Some([ground.count()?, ground.count()?]),
            false => None,
        };
        if let Some([tx, rx]) = &counts {
            plan.tx_selective = true;
            plan.rx_selective = true;
            plan.counters.send = Some(Arc::clone(tx.cntr()));
            plan.counters.recv = Some(Arc::clone(rx.cntr()));
        }
        let mut info = ground.info().clone();
        info.tx_attr.op_flags |= manners.flags;
        plan.info = Some(info);
        Ok(Self {
            end: ground.endpoint(plan)?,
            peer: FiAddr::UNSPEC,
            options: options.clone(),
            oob: None,
            door: None,
            manners,
            counts,
            rx: Buffers::new(ground, &manners)?,
            tx: Buffers::new(ground, &manners)?,
            posted: 0,
            arrived: 0,
            sent: 0,
            completing: 0,
            completed: 0,
            log: Vec::new(),
            bytes: 0,
            greeting: None,
        })
    }

    pub(super) fn is_client(&self) -> bool {
        self.options.is_client()
    }

    /// Whether counters stand in for queues.
    pub(super) fn counts(&self) -> bool {
        self.counts.is_some()
    }

    /// The domain.
    pub(super) fn ground(&self) -> &Arc<DomainContext> {
        &self.end.context
    }

    /// The largest message that is injected.
    pub(super) fn inject_size(&self) -> usize {
        let most = self.ground().info().tx_attr.inject_size;
        self.options.inject.map_or(most, |size| size.min(most))
    }

    /// Whether barriers go beside the fabric.
    fn syncs_beside(&self) -> bool {
        self.options.out_of_band.is_some_and(|oob| oob.sync)
    }

    /// Prepares for messages of a size, and says how many of them may be on the way.
    pub(super) fn lay_out(&mut self, size: usize) -> usize {
        let window = self.manners.window;
        self.rx.lay_out(size, window);
        self.tx.lay_out(size, window);
        if self.syncs_beside() {
            // The receive at rest is not used up by a barrier: it has to do for the next size.
            self.rx.size = self.rx.rest - 2 * CANARY;
        }
        match self.options.verify {
            // Each message has a buffer of its own.
            true => window.min(self.rx.slots.saturating_sub(1)).max(1),
            false => window,
        }
    }

    /// The bytes that have arrived.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}
