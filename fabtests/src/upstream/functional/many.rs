//! Several endpoints: of one domain, of one after the other, of a domain each.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use selvedge::info::EpType;
use selvedge::{Address, Caps, FiAddr, OpFlags};
use selvedge_testkit::domain::{
    Access, Block, Count, DomainContext, DomainEndpoint, EndpointConfig, Queue, Recv, Remote,
    SHARED, Send,
};
use selvedge_testkit::failure::wrong;

use crate::upstream::channel::{Channel, Manners};
use crate::upstream::connect::Door;
use crate::upstream::discover::{discover, hints};
use crate::upstream::ground;
use crate::upstream::oob::OutOfBandChannel;
use crate::upstream::options::Options;
use crate::upstream::payload::{POISON, Stamp};

/// Bytes of a write.
const WRITTEN: usize = 256;

/// `fi_multi_ep`: endpoints of one domain, which may share their address vector (`-A`) and their
/// queues (`-Q`); keys go over each, then a write, then an empty message.
pub(in crate::upstream) fn multi_ep(options: &Options) -> anyhow::Result<()> {
    let options = super::beside(options, false);
    let count = options.number("c", 3)?;
    let mut oob = OutOfBandChannel::meet(&options)?;
    let mut doors = None;
    let ends = match options.ep_type {
        Some(EpType::Msg) => connected(&options, count, &mut doors)?,
        _ => unconnected(&options, count, &mut oob)?,
    };
    let lines: Result<Vec<_>, _> = ends.into_iter().map(Line::new).collect();
    let mut lines = lines?;
    for round in 0..2 {
        exchange(&mut lines, &options, &mut oob, round)?;
        for line in &mut lines {
            line.renew()?;
        }
    }
    oob.barrier()
}

/// What the endpoints have in common.
fn plan(options: &Options, ground: &DomainContext) -> anyhow::Result<impl Fn() -> EndpointConfig> {
    let av = match options.has("A") {
        true => Some(ground.av()?),
        false => None,
    };
    let (tx, rx) = match options.has("Q") {
        true => (Some(ground.queue(1024)?), Some(ground.queue(1024)?)),
        false => (None, None),
    };
    Ok(move || EndpointConfig {
        tx: tx.clone(),
        rx: rx.clone(),
        av: av.clone(),
        ..EndpointConfig::default()
    })
}

fn unconnected(
    options: &Options,
    count: usize,
    oob: &mut OutOfBandChannel,
) -> anyhow::Result<Vec<(DomainEndpoint, FiAddr)>> {
    let info = discover(
        options,
        &hints(options, Caps::MSG | Caps::RMA, EpType::Rdm)?,
    )?;
    let ground = ground::open(options, info)?;
    let plan = plan(options, &ground)?;
    let ends: Result<Vec<_>, _> = (0..count).map(|_| ground.endpoint(plan())).collect();
    let mut known = Vec::new();
    for end in ends? {
        let theirs = oob.exchange(&end.name()?)?;
        let address = Address::from_bytes(&theirs).context("the peer's address is none")?;
        let peer = end.av.insert_one(&address)?;
        known.push((end, peer));
    }
    Ok(known)
}

fn connected(
    options: &Options,
    count: usize,
    doors: &mut Option<Door>,
) -> anyhow::Result<Vec<(DomainEndpoint, FiAddr)>> {
    let mut options = options.clone();
    // The server is known by its address; the connection beside is for barriers.
    options.out_of_band = None;
    let door = doors.insert(Door::open(&options, Caps::MSG | Caps::RMA)?);
    let mut ends = Vec::new();
    let mut shared: Option<(Arc<DomainContext>, EndpointConfig)> = None;
    for _ in 0..count {
        let info = match door.pep {
            Some(_) => door.request()?.0,
            None => door.info.clone(),
        };
        if shared.is_none() {
            let ground = ground::on(&options, &*info.fabric()?, info.clone())?;
            let plan = plan(&options, &ground)?();
            shared = Some((ground, plan));
        }
        let (ground, plan) = shared.as_ref().context("no domain")?;
        let end = door.patiently(|| {
            let end = ground.endpoint(EndpointConfig {
                tx: plan.tx.clone(),
                rx: plan.rx.clone(),
                ..door.plan(info.clone())
            })?;
            door.connect(&end, &[])?;
            door.connected(&end)?;
            Ok(end)
        })?;
        ends.push((end, FiAddr(0)));
    }
    Ok(ends)
}

/// An endpoint of several.
struct Line {
    end: DomainEndpoint,
    peer: FiAddr,
    /// What is sent and received: the own key, the peer's, the bytes to write.
    local: Block,
    shared: Block,
}

const OWN: usize = 0;
const THEIRS: usize = 64;
const BYTES: usize = 128;

impl Line {
    fn new((end, peer): (DomainEndpoint, FiAddr)) -> anyhow::Result<Self> {
        let ground = end.context.clone();
        Ok(Self {
            local: ground.buffers(BYTES + WRITTEN)?,
            shared: ground.memory(WRITTEN, SHARED)?,
            end,
            peer,
        })
    }

    fn renew(&mut self) -> anyhow::Result<()> {
        let ground = &self.end.context;
        self.shared.rights = ground.register(&self.shared.memory, SHARED)?;
        Ok(())
    }

    fn post_recv(&self, len: usize, context: u64) -> anyhow::Result<()> {
        let recv = Recv::new(context);
        let segment = self.local.segment(THEIRS, len);
        self.end.push("receive", |end| end.recv(&[segment], &recv))
    }

    fn post_send(&self, len: usize, context: u64) -> anyhow::Result<()> {
        let send = Send::new(self.peer, context);
        let segment = self.local.segment(OWN, len);
        self.end.push("send", |end| end.send(&[segment], &send))
    }
}

/// Distinguishes the kinds of operations of a line.
const SENDS: u64 = 1000;
const WRITES: u64 = 2000;

fn exchange(
    lines: &mut [Line],
    options: &Options,
    oob: &mut OutOfBandChannel,
    round: u64,
) -> anyhow::Result<()> {
    let count = lines.len() as u64;
    let queues = |lines: &[Line]| -> Vec<Queue> {
        let all = lines
            .iter()
            .flat_map(|line| [line.end.tx.clone(), line.end.rx.clone()]);
        all.collect()
    };
    let gather = |lines: &[Line], contexts: Vec<u64>| {
        let queues = queues(lines);
        super::gather(&queues.iter().collect::<Vec<_>>(), contexts)
    };
    for (line, at) in lines.iter().zip(0..) {
        line.shared.memory.fill(0, WRITTEN, POISON);
        line.local
            .memory
            .put(OWN, &line.shared.rights.remote()?.to_bytes());
        line.post_recv(16, at)?;
    }
    oob.barrier()?;
    for (line, at) in lines.iter().zip(0..) {
        line.post_send(16, SENDS + at)?;
    }
    gather(lines, (0..count).chain(SENDS..SENDS + count).collect())?;
    let remotes: Result<Vec<Remote>, _> = lines
        .iter()
        .map(|line| Remote::from_bytes(&line.local.memory.get(THEIRS, 16)))
        .collect();

    for (line, at) in lines.iter().zip(0..) {
        line.post_recv(0, at)?;
    }
    oob.barrier()?;
    for ((line, remote), at) in lines.iter().zip(remotes?).zip(0..) {
        let stamp = Stamp::of_pair(options.is_client(), round * count + at);
        stamp.write(&line.local.memory, BYTES, WRITTEN);
        let access = Access::new(line.peer, remote, WRITES + at);
        let segment = line.local.segment(BYTES, WRITTEN);
        line.end
            .push("write", |end| end.write(&[segment], &access))?;
        line.post_send(0, SENDS + at)?;
    }
    let contexts = (0..count).chain(SENDS..SENDS + count);
    gather(lines, contexts.chain(WRITES..WRITES + count).collect())?;
    for (line, at) in lines.iter().zip(0..) {
        let stamp = Stamp::of_pair(!options.is_client(), round * count + at);
        stamp.check(&line.shared.memory, 0, WRITTEN)?;
    }
    oob.barrier()
}

/// `fi_rdm_multi_client`: a server whose address vector grows with the clients that come, one after
/// the other; with `-R` they all have the first one's address.
pub(in crate::upstream) fn rdm_multi_client(options: &Options) -> anyhow::Result<()> {
    let mut flags = OpFlags::empty();
    flags.set(OpFlags::DELIVERY_COMPLETE, options.has("U"));
    let manners = Manners {
        flags,
        ..Manners::default()
    };
    let rounds = options.iterations.unwrap_or(1000) as u64;
    let size = options.sizes.one().unwrap_or(64).min(1024);
    let info = discover(options, &hints(options, Caps::MSG, EpType::Rdm)?)?;
    if !options.is_client() {
        let mut channel = Channel::open(options, info, manners)?;
        for client in 0..options.connections {
            if client > 0 {
                channel.meet()?;
            }
            talk(&mut channel, client as u16, rounds, size)?;
        }
        return Ok(());
    }
    let mut first = None;
    for client in 0..options.connections {
        println!("Starting client: {client}");
        let mut info = info.clone();
        if let (true, Some(first)) = (options.has("R"), &first) {
            info.src_addr = Some(Address::clone(first));
        }
        let mut channel = Channel::open(options, info, manners)?;
        first.get_or_insert(channel.end.ep.address()?);
        talk(&mut channel, client as u16, rounds, size)?;
    }
    Ok(())
}

fn talk(channel: &mut Channel, client: u16, rounds: u64, size: usize) -> anyhow::Result<()> {
    for number in 0..rounds {
        let question = Stamp {
            from: client + 1,
            to: 0,
            number,
        };
        let answer = Stamp {
            from: 0,
            to: client + 1,
            number,
        };
        match channel.is_client() {
            true => {
                channel.say(&question.message(size))?;
                hear(channel, answer, size)?;
            }
            false => {
                hear(channel, question, size)?;
                channel.say(&answer.message(size))?;
            }
        }
    }
    Ok(())
}

fn hear(channel: &mut Channel, stamp: Stamp, size: usize) -> anyhow::Result<()> {
    let heard = channel.take_whole()?;
    match heard.len() == size {
        true => stamp.check_bytes(&heard),
        false => Err(wrong(format!(
            "{stamp} has {} bytes, not {size}",
            heard.len()
        ))),
    }
}

/// `fi_rdm_multi_domain`: domains of one process, each with all that it needs; each writes to all
/// of the peer's.
pub(in crate::upstream) fn rdm_multi_domain(options: &Options) -> anyhow::Result<()> {
    let options = super::beside(options, true);
    let count: usize = options.number("c", 2)?;
    ensure!(count > 0, "-c 0: no domains");
    let size = options.sizes.one().unwrap_or(4096);
    let caps = Caps::MSG | Caps::RMA | Caps::RMA_EVENT;
    let info = discover(&options, &hints(&options, caps, EpType::Rdm)?)?;
    let mut oob = OutOfBandChannel::meet(&options)?;
    let regions: Result<Vec<_>, _> = (0..count)
        .map(|_| Region::open(&options, info.clone(), size, count))
        .collect();
    let regions = regions?;
    let mut theirs = Vec::new();
    for region in &regions {
        let name = oob.exchange(&region.end.name()?)?;
        let address = Address::from_bytes(&name).context("the peer's address is none")?;
        oob.send(&region.shared.rights.remote()?.to_bytes())?;
        theirs.push((address, Remote::from_bytes(&oob.receive(16)?)?));
    }
    for (from, region) in regions.iter().enumerate() {
        for (to, (address, remote)) in theirs.iter().enumerate() {
            region.write(&options, (from, to), (address, *remote), size)?;
        }
    }
    // Every domain makes progress by its own counters alone.
    let manner = regions[0].end.context.strategy();
    manner.until("waiting for all domains", || {
        let mut missing = 0;
        for region in &regions {
            let done = region.writes.read().min(region.arrivals.read());
            missing += usize::from(done < count as u64);
            region.end.tx.progress()?;
        }
        Ok((missing == 0).then_some(()))
    })?;
    for (to, region) in regions.iter().enumerate() {
        for from in 0..count {
            let stamp = stamp(!options.is_client(), from, to);
            stamp.check(&region.shared.memory, from * size, size)?;
        }
        let counted = region.arrivals.read();
        ensure!(counted == count as u64, "{counted} writes were counted");
    }
    oob.barrier()
}

/// Who writes where.
fn stamp(from_client: bool, from: usize, to: usize) -> Stamp {
    Stamp::of_pair(from_client, (from << 8 | to) as u64)
}

/// A domain with its endpoint.
struct Region {
    end: DomainEndpoint,
    writes: Count,
    arrivals: Count,
    local: Block,
    shared: Block,
}

impl Region {
    fn open(
        options: &Options,
        info: selvedge::Info,
        size: usize,
        count: usize,
    ) -> anyhow::Result<Self> {
        let ground = ground::open(options, info)?;
        let (writes, arrivals) = (ground.count()?, ground.count()?);
        let mut plan = EndpointConfig {
            tx_selective: true,
            rx_selective: true,
            ..EndpointConfig::default()
        };
        plan.counters.write = Some(Arc::clone(writes.cntr()));
        plan.counters.remote_write = Some(Arc::clone(arrivals.cntr()));
        let shared = ground.memory(size * count, SHARED)?;
        shared.memory.fill(0, size * count, POISON);
        Ok(Self {
            end: ground.endpoint(plan)?,
            writes,
            arrivals,
            local: ground.buffers(size * count)?,
            shared,
        })
    }

    fn write(
        &self,
        options: &Options,
        (from, to): (usize, usize),
        (address, remote): (&Address, Remote),
        size: usize,
    ) -> anyhow::Result<()> {
        let peer = self.end.av.insert_one(address)?;
        stamp(options.is_client(), from, to).write(&self.local.memory, to * size, size);
        let access = Access::new(
            peer,
            Remote {
                addr: remote.addr + (from * size) as u64,
                ..remote
            },
            to as u64,
        )
        .flags(OpFlags::empty());
        let segment = self.local.segment(to * size, size);
        self.end.push("write", |end| end.write(&[segment], &access))
    }
}
