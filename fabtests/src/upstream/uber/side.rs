//! One side of a configuration: its endpoint, its memory, and its waits for completions.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use selvedge::cq::Entry;
use selvedge::eq::Event;
use selvedge::info::EpType;
use selvedge::{Address, CompletionFlags, FiAddr, Info, OpFlags, wait};
use selvedge_testkit::domain::{
    Block, Count, DomainContext, DomainEndpoint, EndpointConfig, Remote, SHARED, Segment,
};
use selvedge_testkit::failure::wrong;

use super::case::{Case, Class, Form, Operation, Test};
use crate::upstream::data::payload::CANARY;
use crate::upstream::options::{Options, OutOfBand, WaitMethod};
use crate::upstream::setup::connector::Connector;
use crate::upstream::setup::discover::{discover, hints};
use crate::upstream::setup::domain;
use crate::upstream::setup::oob::OutOfBandChannel;

/// The result of discovery: the attributes of an unconnected endpoint, or a connector for connected
/// ones.
pub(super) enum Prepared {
    Unconnected(Box<Info>),
    Connected(Box<Connector>),
}

/// Discovers the endpoint; a server with connected endpoints also listens.
///
/// # Errors
/// The provider does not support the configuration.
pub(super) fn prepare(options: &Options, case: &Case) -> anyhow::Result<(Options, Prepared)> {
    let mut options = options.clone();
    options.ep_type = None;
    if options.provider.is_none() {
        options.provider.clone_from(&case.provider);
    }
    set_address(&mut options, case);
    options.data_progress = case.progress;
    options.threading = case.threading.unwrap_or(options.threading);
    options.waiting = match case.cq_wait {
        wait::Object::Unspec => WaitMethod::Sread,
        wait::Object::Fd => WaitMethod::Fd,
        wait::Object::Yield => WaitMethod::Yield,
        _ => WaitMethod::Spin,
    };
    let mut hints = hints(&options, case.all_caps(), case.ep_type)?.av_type(case.av_type);
    if let Some(mode) = case.mr_mode {
        hints = hints.mr_mode(mode);
    }
    if case.ep_type == EpType::Msg {
        let connector =
            Connector::with_wait_object(&options, discover(&options, &hints)?, case.eq_wait)?;
        return Ok((options, Prepared::Connected(Box::new(connector))));
    }
    // Addresses use the same connection as configurations.
    options.out_of_band = Some(OutOfBand {
        port: 0,
        sync: true,
    });
    let info = discover(&options, &hints)?;
    Ok((options, Prepared::Unconnected(Box::new(info))))
}

/// Sets the addresses. `node` and `service` of the configuration override the options.
fn set_address(options: &mut Options, case: &Case) {
    let (node, service) = (case.node.clone(), case.service.clone());
    let is_client = options.is_client();
    if let Some(node) = node {
        let side = if is_client {
            &mut options.server
        } else {
            &mut options.source
        };
        *side = Some(node);
    }
    if let Some(service) = service {
        let side = if is_client {
            &mut options.port
        } else {
            &mut options.source_port
        };
        *side = Some(service);
    }
}

pub(super) struct Side {
    pub(super) case: Case,
    pub(super) options: Options,
    pub(super) oob: OutOfBandChannel,
    endpoint: DomainEndpoint,
    peer: FiAddr,
    _connector: Option<Box<Connector>>,
    counts: Option<[Count; 2]>,
    pub(super) tx: Block,
    pub(super) rx: Block,
    /// The memory that the peer accesses.
    pub(super) shared: Block,
    pub(super) remote: Remote,
    /// The length of a slot, which holds a message and its canaries.
    slot: usize,
    /// The number of slots.
    slots: usize,
    /// The number of posted operations.
    pub(super) sent: u64,
    /// The operations whose queue entry is outstanding.
    outstanding: BTreeSet<u64>,
    /// The expected value of the counter of operations.
    counted: u64,
    /// The number of posted receives.
    pub(super) posted: u64,
    /// The number of messages and accesses of the peer that have completed.
    pub(super) arrived: u64,
    /// The number of receives that have completed.
    received: u64,
    /// The receives whose queue entry is outstanding.
    receiving: BTreeSet<u64>,
}

/// The limit of the memory for messages in one direction, unless one message is larger.
const MAX_MEMORY: usize = 8 << 20;
/// The number of messages in flight in a bandwidth test.
const WINDOW: usize = 16;
/// The size of completion queues.
const QUEUE_SIZE: usize = 256;

impl Side {
    /// Opens all objects and connects to the peer.
    ///
    /// # Errors
    /// The provider's error, or the peer does not respond.
    pub(super) fn open(
        options: Options,
        case: Case,
        prepared: Prepared,
        mut oob: OutOfBandChannel,
        largest: usize,
    ) -> anyhow::Result<Self> {
        let (endpoint, counts, connector, peer) = match prepared {
            Prepared::Unconnected(info) => {
                let domain = domain::open(&options, *info)?;
                let (config, counts) = endpoint_config(&case, &domain, None)?;
                let endpoint = domain.endpoint(config)?;
                let from_peer = oob.exchange(&endpoint.name()?)?;
                let address =
                    Address::from_bytes(&from_peer).context("the peer's address is invalid")?;
                let peer = endpoint.av.insert_one(&address)?;
                (endpoint, counts, None, peer)
            }
            Prepared::Connected(connector) => {
                let (endpoint, counts) = connect(&options, &case, &connector)?;
                (endpoint, counts, Some(connector), FiAddr(0))
            }
        };
        let slot = largest.max(1024).next_multiple_of(64) + 2 * CANARY;
        let slots = match case.test {
            Test::Bandwidth => (MAX_MEMORY / slot).clamp(2, WINDOW + 1),
            _ => 2,
        };
        let domain = Arc::clone(&endpoint.context);
        let shared = match case.class {
            Class::Rma | Class::Atomic => domain.memory(slots * slot, SHARED)?,
            Class::Msg | Class::Tagged => domain.buffers(slot)?,
        };
        let mut side = Self {
            tx: domain.buffers(slots * slot)?,
            rx: domain.buffers(slots * slot)?,
            shared,
            case,
            options,
            oob,
            endpoint,
            peer,
            _connector: connector,
            counts,
            remote: Remote::default(),
            slot,
            slots,
            sent: 0,
            outstanding: BTreeSet::new(),
            counted: 0,
            posted: 0,
            arrived: 0,
            received: 0,
            receiving: BTreeSet::new(),
        };
        side.exchange_keys()?;
        Ok(side)
    }

    fn exchange_keys(&mut self) -> anyhow::Result<()> {
        if matches!(self.case.class, Class::Rma | Class::Atomic) {
            let key = self.shared.rights.remote()?.to_bytes();
            self.oob.send(&key)?;
            self.remote = Remote::from_bytes(&self.oob.receive(key.len())?)?;
        }
        Ok(())
    }

    pub(super) fn is_client(&self) -> bool {
        self.options.is_client()
    }

    pub(super) fn endpoint(&self) -> &DomainEndpoint {
        &self.endpoint
    }

    pub(super) fn peer(&self) -> FiAddr {
        self.peer
    }

    /// Returns the offset of a message's slot.
    pub(super) fn offset(&self, number: u64) -> usize {
        (number % self.slots as u64) as usize * self.slot + CANARY
    }

    /// Returns the length of a slot without its canaries.
    pub(super) fn slot_len(&self) -> usize {
        self.slot - 2 * CANARY
    }

    /// Returns the length of the part of a slot that a test of messages of `size` bytes poisons and
    /// checks: the message, as many bytes after it, and a page. Checking the entire slot for each
    /// size would take longer than the messages.
    pub(super) fn checked_len(&self, size: usize) -> usize {
        (2 * size + 4096).min(self.slot_len())
    }

    /// Returns the number of messages in flight; one slot is for the acknowledgement.
    pub(super) fn window(&self) -> usize {
        (self.slots - 1).min(WINDOW)
    }

    /// Divides memory into as many segments as the call takes.
    pub(super) fn segments_of<'a>(
        &self,
        block: &'a Block,
        offset: usize,
        len: usize,
        unit: usize,
    ) -> Vec<Segment<'a>> {
        let info = self.endpoint.context.info();
        let max = info.tx_attr.iov_limit.min(info.rx_attr.iov_limit);
        let count = match self.case.function.form {
            Form::List => max.min(len / unit).clamp(1, 4),
            _ => 1,
        };
        let len_each = len / unit / count * unit;
        let segment = |number: usize| {
            let start = number * len_each;
            let end = if number + 1 == count {
                len
            } else {
                start + len_each
            };
            block.segment(offset + start, end - start)
        };
        (0..count).map(segment).collect()
    }

    /// Records a posted operation and the completion that it will have.
    pub(super) fn record_post(&mut self, context: u64) {
        self.sent += 1;
        self.counted += 1;
        let is_injected = self.case.function.form == Form::Inject;
        if self.case.is_reported(self.case.tx) && !is_injected {
            self.outstanding.insert(context);
        }
    }

    /// Waits until every operation has completed exactly once.
    ///
    /// # Errors
    /// A completion is unexpected, wrong or missing.
    pub(super) fn complete(&mut self) -> anyhow::Result<()> {
        let kind = completion_kind(&self.case);
        while !self.outstanding.is_empty() {
            let entry = self.endpoint.tx.next()?;
            let is_outstanding = self.outstanding.remove(&entry.context.0);
            if !is_outstanding || !entry.flags.contains(kind) {
                return Err(wrong(format!(
                    "unexpected completion {entry:?}; the operations in flight are of kind {kind}"
                )));
            }
        }
        if let Some([tx, _]) = &self.counts {
            tx.wait(self.counted)?;
        }
        Ok(())
    }

    /// Returns whether the completion of an operation is reported.
    pub(super) fn is_completion_visible(&self) -> bool {
        let is_injected = self.case.function.form == Form::Inject;
        self.counts.is_some() || (self.case.is_reported(self.case.tx) && !is_injected)
    }

    /// Records a posted receive.
    pub(super) fn record_receive(&mut self) {
        if self.case.is_reported(self.case.rx) {
            self.receiving.insert(self.posted);
        }
        self.posted += 1;
    }

    /// Waits for the next receive that completes; small messages may overtake large messages.
    /// Returns its entry if queues report receives.
    ///
    /// # Errors
    /// Another operation completes, or no operation.
    pub(super) fn await_message(&mut self) -> anyhow::Result<Option<Entry>> {
        self.arrived += 1;
        self.received += 1;
        let entry = if self.case.is_reported(self.case.rx) {
            Some(self.endpoint.rx.next()?)
        } else {
            None
        };
        if let Some([_, rx]) = &self.counts {
            rx.wait(self.received)?;
        }
        if let Some(entry) = &entry {
            let is_posted = self.receiving.remove(&entry.context.0);
            ensure!(is_posted, "unexpected completion {entry:?} of a receive");
        }
        Ok(entry)
    }

    /// Waits for the completion data of the next write, which every queue reports.
    ///
    /// # Errors
    /// Another operation completes, or no operation.
    pub(super) fn await_data(&mut self, data: u64, len: usize) -> anyhow::Result<()> {
        self.arrived += 1;
        let entry = self.endpoint.rx.next()?;
        let flags =
            CompletionFlags::RMA | CompletionFlags::REMOTE_WRITE | CompletionFlags::REMOTE_CQ_DATA;
        let is_expected = entry.flags == flags && entry.len == len && entry.data == data;
        ensure!(
            is_expected,
            "a remote write of {len} bytes with data {data:#x} completes with {entry:?}"
        );
        Ok(())
    }

    /// Waits for the peer at a barrier. The endpoint makes progress during the wait.
    ///
    /// # Errors
    /// The peer has exited or does not reach the barrier.
    pub(super) fn sync(&mut self) -> anyhow::Result<()> {
        let endpoint = &self.endpoint;
        self.oob
            .barrier_with(domain::timeout(&self.options), || endpoint.progress())
    }

    /// Repeats a check and makes progress until the peer's operation is visible.
    ///
    /// # Errors
    /// The error of the last check.
    pub(super) fn check_until_visible(
        &self,
        mut check: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let start = Instant::now();
        loop {
            match check() {
                Err(error) if start.elapsed() > VISIBLE_WITHIN => return Err(error),
                Err(_) => self.endpoint.rx.progress()?,
                Ok(()) => return Ok(()),
            }
            std::thread::yield_now();
        }
    }
}

/// The time in which a write in flight must become visible.
const VISIBLE_WITHIN: std::time::Duration = std::time::Duration::from_secs(10);

/// Returns the queues, counters and flags of an endpoint.
fn endpoint_config(
    case: &Case,
    domain: &DomainContext,
    connector: Option<&Connector>,
) -> anyhow::Result<(EndpointConfig, Option<[Count; 2]>)> {
    let mut info = domain.info().clone();
    info.tx_attr.op_flags |= case.tx.op_flags;
    info.rx_attr.op_flags |= case.rx.op_flags;
    let mut config = match connector {
        Some(connector) => connector.endpoint_config(info),
        None => EndpointConfig {
            info: Some(info),
            ..EndpointConfig::default()
        },
    };
    config.tx = Some(domain.queue(QUEUE_SIZE)?);
    config.rx = Some(domain.queue(QUEUE_SIZE)?);
    config.tx_selective = case.tx.selective || !case.queues;
    config.rx_selective = case.rx.selective || !case.queues;
    if !case.counters {
        return Ok((config, None));
    }
    let counts = [domain.count()?, domain.count()?];
    let tx = || Some(Arc::clone(counts[0].cntr()));
    config.counters.send = tx();
    config.counters.read = tx();
    config.counters.write = tx();
    config.counters.recv = Some(Arc::clone(counts[1].cntr()));
    Ok((config, Some(counts)))
}

fn connect(
    options: &Options,
    case: &Case,
    connector: &Connector,
) -> anyhow::Result<(DomainEndpoint, Option<[Count; 2]>)> {
    let info = match &connector.pep {
        None => connector.info.clone(),
        Some(_) => match connector.next_event()? {
            Event::ConnReq { info, .. } => *info,
            other => bail!("expected a connection request, got the event {other:?}"),
        },
    };
    let domain = domain::open(options, info)?;
    let (config, counts) = endpoint_config(case, &domain, Some(connector))?;
    let endpoint = domain.endpoint(config)?;
    connector.connect(&endpoint, &[])?;
    connector.wait_for_connection(&endpoint)?;
    Ok((endpoint, counts))
}

/// Returns the completion flags of local operations.
fn completion_kind(case: &Case) -> CompletionFlags {
    match (case.class, case.function.operation) {
        (Class::Tagged, _) => CompletionFlags::TAGGED | CompletionFlags::SEND,
        (Class::Msg, _) => CompletionFlags::MSG | CompletionFlags::SEND,
        (Class::Rma, Operation::Read) => CompletionFlags::RMA | CompletionFlags::READ,
        (Class::Rma, _) => CompletionFlags::RMA | CompletionFlags::WRITE,
        (Class::Atomic, _) => CompletionFlags::ATOMIC,
    }
}

/// Returns the flags of a call.
pub(super) fn flags(case: &Case) -> OpFlags {
    match case.function.form {
        Form::Message if case.function.data => case.msg_flags | OpFlags::REMOTE_CQ_DATA,
        _ => case.msg_flags,
    }
}

impl Side {
    /// Waits for the peer, closes all objects, and returns the out-of-band connection.
    ///
    /// # Errors
    /// The peer does not finish.
    pub(super) fn close(mut self) -> anyhow::Result<OutOfBandChannel> {
        self.sync()?;
        Ok(self.oob)
    }
}
