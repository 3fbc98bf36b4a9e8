//! One side of a configuration: its endpoint and memory, and what it waits for.

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

use super::case::{Case, Class, Form, Test, What};
use crate::upstream::connect::Door;
use crate::upstream::discover::{discover, hints};
use crate::upstream::ground;
use crate::upstream::oob::OutOfBandChannel;
use crate::upstream::options::{Options, OutOfBand, WaitMethod};
use crate::upstream::payload::CANARY;

/// What discovery has found: an unconnected endpoint, or a door to connected ones.
pub(super) enum Prepared {
    Alone(Box<Info>),
    Door(Box<Door>),
}

/// Asks discovery, and on the server listens where there are connections.
///
/// # Errors
/// What the provider lacks.
pub(super) fn prepare(options: &Options, case: &Case) -> anyhow::Result<(Options, Prepared)> {
    let mut options = options.clone();
    options.ep_type = None;
    if options.provider.is_none() {
        options.provider.clone_from(&case.provider);
    }
    place(&mut options, case);
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
        let door = Door::waiting(&options, discover(&options, &hints)?, case.eq_wait)?;
        return Ok((options, Prepared::Door(Box::new(door))));
    }
    // Addresses go over the line that the configurations go over.
    options.out_of_band = Some(OutOfBand {
        port: 0,
        sync: true,
    });
    let info = discover(&options, &hints)?;
    Ok((options, Prepared::Alone(Box::new(info))))
}

/// `node` and `service` go before what the options say.
fn place(options: &mut Options, case: &Case) {
    let (node, service) = (case.node.clone(), case.service.clone());
    let is_client = options.is_client();
    if let Some(node) = node {
        let side = match is_client {
            true => &mut options.server,
            false => &mut options.source,
        };
        *side = Some(node);
    }
    if let Some(service) = service {
        let side = match is_client {
            true => &mut options.port,
            false => &mut options.source_port,
        };
        *side = Some(service);
    }
}

pub(super) struct Side {
    pub(super) case: Case,
    pub(super) options: Options,
    pub(super) line: OutOfBandChannel,
    end: DomainEndpoint,
    peer: FiAddr,
    _door: Option<Box<Door>>,
    counts: Option<[Count; 2]>,
    pub(super) tx: Block,
    pub(super) rx: Block,
    /// What the peer reads and writes.
    pub(super) shared: Block,
    pub(super) remote: Remote,
    /// Bytes of a message with its canaries, and how many of them the memory has.
    slot: usize,
    slots: usize,
    /// Operations so far, and those that have yet to show up in the queue and in the counter.
    pub(super) sent: u64,
    outstanding: BTreeSet<u64>,
    counted: u64,
    /// Receives so far, and what has come.
    pub(super) posted: u64,
    pub(super) arrived: u64,
    received: u64,
    /// Receives that have yet to show up in the queue.
    receiving: BTreeSet<u64>,
}

/// Most memory for messages in one direction, if one message is not more.
const MEMORY: usize = 8 << 20;
/// Messages on the way in a test of bandwidth.
const WINDOW: usize = 16;
/// Entries of queues.
const QUEUE: usize = 256;

impl Side {
    /// Opens everything, and meets the peer.
    ///
    /// # Errors
    /// The provider's; that the peer does not answer.
    pub(super) fn open(
        options: Options,
        case: Case,
        prepared: Prepared,
        mut line: OutOfBandChannel,
        largest: usize,
    ) -> anyhow::Result<Self> {
        let (end, counts, door, peer) = match prepared {
            Prepared::Alone(info) => {
                let ground = ground::open(&options, *info)?;
                let (plan, counts) = plan(&case, &ground, None)?;
                let end = ground.endpoint(plan)?;
                let theirs = line.exchange(&end.name()?)?;
                let theirs = Address::from_bytes(&theirs).context("the peer's address is none")?;
                let peer = end.av.insert_one(&theirs)?;
                (end, counts, None, peer)
            }
            Prepared::Door(door) => {
                let (end, counts) = connect(&options, &case, &door)?;
                (end, counts, Some(door), FiAddr(0))
            }
        };
        let slot = largest.max(1024).next_multiple_of(64) + 2 * CANARY;
        let slots = match case.test {
            Test::Bandwidth => (MEMORY / slot).clamp(2, WINDOW + 1),
            _ => 2,
        };
        let ground = Arc::clone(&end.context);
        let shared = match case.class {
            Class::Rma | Class::Atomic => ground.memory(slots * slot, SHARED)?,
            Class::Msg | Class::Tagged => ground.buffers(slot)?,
        };
        let mut side = Self {
            tx: ground.buffers(slots * slot)?,
            rx: ground.buffers(slots * slot)?,
            shared,
            case,
            options,
            line,
            end,
            peer,
            _door: door,
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
            let own = self.shared.rights.remote()?.to_bytes();
            self.line.send(&own)?;
            self.remote = Remote::from_bytes(&self.line.receive(own.len())?)?;
        }
        Ok(())
    }

    pub(super) fn is_client(&self) -> bool {
        self.options.is_client()
    }

    pub(super) fn end(&self) -> &DomainEndpoint {
        &self.end
    }

    pub(super) fn peer(&self) -> FiAddr {
        self.peer
    }

    /// Where the message of a number lies.
    pub(super) fn place(&self, number: u64) -> usize {
        (number % self.slots as u64) as usize * self.slot + CANARY
    }

    /// How much there is between canaries.
    pub(super) fn room(&self) -> usize {
        self.slot - 2 * CANARY
    }

    /// How much of it a test of messages of `size` bytes looks after: what it fills, as much again
    /// behind it, and a page. All of it, for each size, would take longer than the messages.
    pub(super) fn watched(&self, size: usize) -> usize {
        (2 * size + 4096).min(self.room())
    }

    /// Messages on the way at once: one place is for the acknowledgement.
    pub(super) fn window(&self) -> usize {
        (self.slots - 1).min(WINDOW)
    }

    /// Some memory in as many pieces as the call takes.
    pub(super) fn cut<'a>(
        &self,
        block: &'a Block,
        at: usize,
        len: usize,
        unit: usize,
    ) -> Vec<Segment<'a>> {
        let info = self.end.context.info();
        let most = info.tx_attr.iov_limit.min(info.rx_attr.iov_limit);
        let count = match self.case.function.form {
            Form::List => most.min(len / unit).clamp(1, 4),
            _ => 1,
        };
        let part = len / unit / count * unit;
        let segment = |number: usize| {
            let from = number * part;
            let until = if number + 1 == count {
                len
            } else {
                from + part
            };
            block.segment(at + from, until - from)
        };
        (0..count).map(segment).collect()
    }

    /// An operation was posted: what is to be heard of it?
    pub(super) fn note(&mut self, context: u64) {
        self.sent += 1;
        self.counted += 1;
        let is_silent = self.case.function.form == Form::Inject;
        if self.case.is_reported(self.case.tx) && !is_silent {
            self.outstanding.insert(context);
        }
    }

    /// Waits until every operation so far has been heard of, once.
    ///
    /// # Errors
    /// What is heard of besides, or wrong; that something is missing.
    pub(super) fn complete(&mut self) -> anyhow::Result<()> {
        let kind = kind(&self.case);
        while !self.outstanding.is_empty() {
            let entry = self.end.tx.next()?;
            let is_ours = self.outstanding.remove(&entry.context.0);
            if !is_ours || !entry.flags.contains(kind) {
                return Err(wrong(format!("nobody waits for {entry:?} of {kind}")));
            }
        }
        if let Some([tx, _]) = &self.counts {
            tx.wait(self.counted)?;
        }
        Ok(())
    }

    /// Whether it can be known that an operation is complete.
    pub(super) fn is_certain(&self) -> bool {
        let is_silent = self.case.function.form == Form::Inject;
        self.counts.is_some() || (self.case.is_reported(self.case.tx) && !is_silent)
    }

    /// A receive was posted.
    pub(super) fn note_receive(&mut self) {
        if self.case.is_reported(self.case.rx) {
            self.receiving.insert(self.posted);
        }
        self.posted += 1;
    }

    /// Waits for a receive, whichever is complete first: large messages may be overtaken. Its entry,
    /// if queues tell of it.
    ///
    /// # Errors
    /// That something else completes, or nothing.
    pub(super) fn arrive(&mut self) -> anyhow::Result<Option<Entry>> {
        self.arrived += 1;
        self.received += 1;
        let entry = match self.case.is_reported(self.case.rx) {
            true => Some(self.end.rx.next()?),
            false => None,
        };
        if let Some([_, rx]) = &self.counts {
            rx.wait(self.received)?;
        }
        if let Some(entry) = &entry {
            let is_posted = self.receiving.remove(&entry.context.0);
            ensure!(is_posted, "nobody waits for {entry:?}");
        }
        Ok(entry)
    }

    /// Waits for the data of the next write, which is reported whatever the queue is like.
    ///
    /// # Errors
    /// That something else completes, or nothing.
    pub(super) fn arrive_data(&mut self, data: u64, len: usize) -> anyhow::Result<()> {
        self.arrived += 1;
        let entry = self.end.rx.next()?;
        let flags =
            CompletionFlags::RMA | CompletionFlags::REMOTE_WRITE | CompletionFlags::REMOTE_CQ_DATA;
        let is_right = entry.flags == flags && entry.len == len && entry.data == data;
        ensure!(
            is_right,
            "a write of {len} bytes with data {data:#x}: {entry:?}"
        );
        Ok(())
    }

    /// Waits for the peer, and makes progress meanwhile.
    ///
    /// # Errors
    /// That the peer is gone, or silent.
    pub(super) fn sync(&mut self) -> anyhow::Result<()> {
        let end = &self.end;
        self.line
            .barrier_with(ground::timeout(&self.options), || end.progress())
    }

    /// Looks again and again, making progress, until what a peer does here can be seen.
    ///
    /// # Errors
    /// Those of the last look.
    pub(super) fn settle(
        &self,
        mut look: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let start = Instant::now();
        loop {
            match look() {
                Err(error) if start.elapsed() > SETTLES => return Err(error),
                Err(_) => self.end.rx.progress()?,
                Ok(()) => return Ok(()),
            }
            std::thread::yield_now();
        }
    }
}

/// A write that is on its way is there by then.
const SETTLES: std::time::Duration = std::time::Duration::from_secs(10);

/// Queues, counters and flags of an endpoint.
fn plan(
    case: &Case,
    ground: &DomainContext,
    door: Option<&Door>,
) -> anyhow::Result<(EndpointConfig, Option<[Count; 2]>)> {
    let mut info = ground.info().clone();
    info.tx_attr.op_flags |= case.tx.op_flags;
    info.rx_attr.op_flags |= case.rx.op_flags;
    let mut plan = match door {
        Some(door) => door.plan(info),
        None => EndpointConfig {
            info: Some(info),
            ..EndpointConfig::default()
        },
    };
    plan.tx = Some(ground.queue(QUEUE)?);
    plan.rx = Some(ground.queue(QUEUE)?);
    plan.tx_selective = case.tx.selective || !case.queues;
    plan.rx_selective = case.rx.selective || !case.queues;
    if !case.counters {
        return Ok((plan, None));
    }
    let counts = [ground.count()?, ground.count()?];
    let tx = || Some(Arc::clone(counts[0].cntr()));
    plan.counters.send = tx();
    plan.counters.read = tx();
    plan.counters.write = tx();
    plan.counters.recv = Some(Arc::clone(counts[1].cntr()));
    Ok((plan, Some(counts)))
}

fn connect(
    options: &Options,
    case: &Case,
    door: &Door,
) -> anyhow::Result<(DomainEndpoint, Option<[Count; 2]>)> {
    let info = match &door.pep {
        None => door.info.clone(),
        Some(_) => match door.event()? {
            Event::ConnReq { info, .. } => *info,
            other => bail!("no request for a connection, but {other:?}"),
        },
    };
    let ground = ground::open(options, info)?;
    let (plan, counts) = plan(case, &ground, Some(door))?;
    let end = ground.endpoint(plan)?;
    door.connect(&end, &[])?;
    door.connected(&end)?;
    Ok((end, counts))
}

/// What the entries of own operations say that they are.
fn kind(case: &Case) -> CompletionFlags {
    match (case.class, case.function.what) {
        (Class::Tagged, _) => CompletionFlags::TAGGED | CompletionFlags::SEND,
        (Class::Msg, _) => CompletionFlags::MSG | CompletionFlags::SEND,
        (Class::Rma, What::Read) => CompletionFlags::RMA | CompletionFlags::READ,
        (Class::Rma, _) => CompletionFlags::RMA | CompletionFlags::WRITE,
        (Class::Atomic, _) => CompletionFlags::ATOMIC,
    }
}

/// The flags of a call.
pub(super) fn flags(case: &Case) -> OpFlags {
    match case.function.form {
        Form::Message if case.function.data => case.msg_flags | OpFlags::REMOTE_CQ_DATA,
        _ => case.msg_flags,
    }
}

impl Side {
    /// Both sides are done: closes everything, and gives the line back.
    ///
    /// # Errors
    /// That the other side is not done.
    pub(super) fn close(mut self) -> anyhow::Result<OutOfBandChannel> {
        self.sync()?;
        Ok(self.line)
    }
}
