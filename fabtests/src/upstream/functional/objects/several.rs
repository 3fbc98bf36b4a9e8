//! Programs with several endpoints: of one domain, opened one after the other, and of several
//! domains.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use selvedge::info::EpType;
use selvedge::{Address, Caps, FiAddr, OpFlags};
use selvedge_testkit::domain::{
    Access, Block, Count, DomainContext, DomainEndpoint, EndpointConfig, Queue, Recv, Remote,
    SHARED, Send,
};
use selvedge_testkit::failure::wrong;

use crate::upstream::channel::{Channel, ChannelConfig};
use crate::upstream::data::payload::{POISON, Stamp};
use crate::upstream::options::Options;
use crate::upstream::setup::connector::Connector;
use crate::upstream::setup::discover::{discover, hints};
use crate::upstream::setup::domain;
use crate::upstream::setup::oob::OutOfBandChannel;

/// Bytes of a write.
const WRITTEN: usize = 256;

/// `fi_multi_ep`: endpoints of one domain, which may share their address vector (`-A`) and their
/// queues (`-Q`). Each endpoint sends its key, writes to the peer's memory, and sends an empty
/// message.
pub(in crate::upstream) fn multi_ep(options: &Options) -> anyhow::Result<()> {
    let options = crate::upstream::functional::with_out_of_band(options, false);
    let count = options.number("c", 3)?;
    let mut oob = OutOfBandChannel::establish(&options)?;
    let mut connectors = None;
    let endpoints = match options.ep_type {
        Some(EpType::Msg) => connected(&options, count, &mut connectors)?,
        _ => unconnected(&options, count, &mut oob)?,
    };
    let pairs: Result<Vec<_>, _> = endpoints.into_iter().map(EndpointPair::new).collect();
    let mut pairs = pairs?;
    for round in 0..2 {
        exchange(&mut pairs, &options, &mut oob, round)?;
        for pair in &mut pairs {
            pair.register_again()?;
        }
    }
    oob.barrier()
}

/// Opens the objects that the endpoints share. Returns a function that makes the configuration of
/// an endpoint with these objects.
fn endpoint_config(
    options: &Options,
    domain: &DomainContext,
) -> anyhow::Result<impl Fn() -> EndpointConfig> {
    let av = if options.has("A") {
        Some(domain.av()?)
    } else {
        None
    };
    let (tx, rx) = if options.has("Q") {
        (Some(domain.queue(1024)?), Some(domain.queue(1024)?))
    } else {
        (None, None)
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
    let domain = domain::open(options, info)?;
    let endpoint_config = endpoint_config(options, &domain)?;
    let endpoints: Result<Vec<_>, _> = (0..count)
        .map(|_| domain.endpoint(endpoint_config()))
        .collect();
    let mut pairs_of_addrs = Vec::new();
    for endpoint in endpoints? {
        let from_peer = oob.exchange(&endpoint.name()?)?;
        let address =
            Address::from_bytes(&from_peer).context("the peer sent an invalid address")?;
        let peer = endpoint.av.insert_one(&address)?;
        pairs_of_addrs.push((endpoint, peer));
    }
    Ok(pairs_of_addrs)
}

fn connected(
    options: &Options,
    count: usize,
    connectors: &mut Option<Connector>,
) -> anyhow::Result<Vec<(DomainEndpoint, FiAddr)>> {
    let mut options = options.clone();
    // Clients find the server by its address; the out-of-band connection only serves barriers.
    options.out_of_band = None;
    let connector = connectors.insert(Connector::open(&options, Caps::MSG | Caps::RMA)?);
    let mut endpoints = Vec::new();
    let mut shared: Option<(Arc<DomainContext>, EndpointConfig)> = None;
    for _ in 0..count {
        let info = match connector.pep {
            Some(_) => connector.wait_for_request()?.0,
            None => connector.info.clone(),
        };
        if shared.is_none() {
            let domain = domain::open_on(&options, &*info.fabric()?, info.clone())?;
            let endpoint_config = endpoint_config(&options, &domain)?();
            shared = Some((domain, endpoint_config));
        }
        let (domain, endpoint_config) = shared.as_ref().context("no domain")?;
        let endpoint = connector.retry_until_listening(|| {
            let endpoint = domain.endpoint(EndpointConfig {
                tx: endpoint_config.tx.clone(),
                rx: endpoint_config.rx.clone(),
                ..connector.endpoint_config(info.clone())
            })?;
            connector.connect(&endpoint, &[])?;
            connector.wait_for_connection(&endpoint)?;
            Ok(endpoint)
        })?;
        endpoints.push((endpoint, FiAddr(0)));
    }
    Ok(endpoints)
}

/// An endpoint, its peer endpoint, and the memory of this side.
struct EndpointPair {
    endpoint: DomainEndpoint,
    peer: FiAddr,
    /// Local memory: the key of `shared`, the peer's key, and the bytes to write.
    local: Block,
    shared: Block,
}

const LOCAL_KEY: usize = 0;
const REMOTE_KEY: usize = 64;
const BYTES: usize = 128;

impl EndpointPair {
    fn new((endpoint, peer): (DomainEndpoint, FiAddr)) -> anyhow::Result<Self> {
        let domain = endpoint.context.clone();
        Ok(Self {
            local: domain.buffers(BYTES + WRITTEN)?,
            shared: domain.memory(WRITTEN, SHARED)?,
            endpoint,
            peer,
        })
    }

    fn register_again(&mut self) -> anyhow::Result<()> {
        let domain = &self.endpoint.context;
        self.shared.rights = domain.register(&self.shared.memory, SHARED)?;
        Ok(())
    }

    fn post_recv(&self, len: usize, context: u64) -> anyhow::Result<()> {
        let recv = Recv::new(context);
        let segment = self.local.segment(REMOTE_KEY, len);
        self.endpoint
            .push("receive", |endpoint| endpoint.recv(&[segment], &recv))
    }

    fn post_send(&self, len: usize, context: u64) -> anyhow::Result<()> {
        let send = Send::new(self.peer, context);
        let segment = self.local.segment(LOCAL_KEY, len);
        self.endpoint
            .push("send", |endpoint| endpoint.send(&[segment], &send))
    }
}

/// Contexts of sends begin here; those of receives begin at 0.
const SENDS: u64 = 1000;
/// Contexts of writes begin here.
const WRITES: u64 = 2000;

fn exchange(
    pairs: &mut [EndpointPair],
    options: &Options,
    oob: &mut OutOfBandChannel,
    round: u64,
) -> anyhow::Result<()> {
    let count = pairs.len() as u64;
    let queues = |pairs: &[EndpointPair]| -> Vec<Queue> {
        let all = pairs
            .iter()
            .flat_map(|pair| [pair.endpoint.tx.clone(), pair.endpoint.rx.clone()]);
        all.collect()
    };
    let wait_for_all = |pairs: &[EndpointPair], contexts: Vec<u64>| {
        let queues = queues(pairs);
        crate::upstream::functional::wait_for_all(&queues.iter().collect::<Vec<_>>(), contexts)
    };
    for (pair, at) in pairs.iter().zip(0..) {
        pair.shared.memory.fill(0, WRITTEN, POISON);
        pair.local
            .memory
            .put(LOCAL_KEY, &pair.shared.rights.remote()?.to_bytes());
        pair.post_recv(16, at)?;
    }
    oob.barrier()?;
    for (pair, at) in pairs.iter().zip(0..) {
        pair.post_send(16, SENDS + at)?;
    }
    wait_for_all(pairs, (0..count).chain(SENDS..SENDS + count).collect())?;
    let remotes: Result<Vec<Remote>, _> = pairs
        .iter()
        .map(|pair| Remote::from_bytes(&pair.local.memory.get(REMOTE_KEY, 16)))
        .collect();

    for (pair, at) in pairs.iter().zip(0..) {
        pair.post_recv(0, at)?;
    }
    oob.barrier()?;
    for ((pair, remote), at) in pairs.iter().zip(remotes?).zip(0..) {
        let stamp = Stamp::of_pair(options.is_client(), round * count + at);
        stamp.write(&pair.local.memory, BYTES, WRITTEN);
        let access = Access::new(pair.peer, remote, WRITES + at);
        let segment = pair.local.segment(BYTES, WRITTEN);
        pair.endpoint
            .push("write", |endpoint| endpoint.write(&[segment], &access))?;
        pair.post_send(0, SENDS + at)?;
    }
    let contexts = (0..count).chain(SENDS..SENDS + count);
    wait_for_all(pairs, contexts.chain(WRITES..WRITES + count).collect())?;
    for (pair, at) in pairs.iter().zip(0..) {
        let stamp = Stamp::of_pair(!options.is_client(), round * count + at);
        stamp.check(&pair.shared.memory, 0, WRITTEN)?;
    }
    oob.barrier()
}

/// `fi_rdm_multi_client`: a server that answers one client after the other, and whose address
/// vector grows with the clients. With `-R`, all clients have the address of the first.
pub(in crate::upstream) fn rdm_multi_client(options: &Options) -> anyhow::Result<()> {
    let mut flags = OpFlags::empty();
    flags.set(OpFlags::DELIVERY_COMPLETE, options.has("U"));
    let config = ChannelConfig {
        flags,
        ..ChannelConfig::default()
    };
    let rounds = options.iterations.unwrap_or(1000) as u64;
    let size = options.sizes.one().unwrap_or(64).min(1024);
    let info = discover(options, &hints(options, Caps::MSG, EpType::Rdm)?)?;
    if !options.is_client() {
        let mut channel = Channel::open(options, info, config)?;
        for client in 0..options.connections {
            if client > 0 {
                channel.handshake()?;
            }
            exchange_requests(&mut channel, client as u16, rounds, size)?;
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
        let mut channel = Channel::open(options, info, config)?;
        first.get_or_insert(channel.endpoint.ep.address()?);
        exchange_requests(&mut channel, client as u16, rounds, size)?;
    }
    Ok(())
}

fn exchange_requests(
    channel: &mut Channel,
    client: u16,
    rounds: u64,
    size: usize,
) -> anyhow::Result<()> {
    for number in 0..rounds {
        let request = Stamp {
            from: client + 1,
            to: 0,
            number,
        };
        let response = Stamp {
            from: 0,
            to: client + 1,
            number,
        };
        if channel.is_client() {
            channel.send_bytes(&request.message(size))?;
            receive(channel, response, size)?;
        } else {
            receive(channel, request, size)?;
            channel.send_bytes(&response.message(size))?;
        }
    }
    Ok(())
}

fn receive(channel: &mut Channel, stamp: Stamp, size: usize) -> anyhow::Result<()> {
    let message = channel.receive_whole()?;
    if message.len() == size {
        stamp.check_bytes(&message)
    } else {
        Err(wrong(format!(
            "{stamp} has {} bytes instead of {size}",
            message.len()
        )))
    }
}

/// `fi_rdm_multi_domain`: several domains of one process, each with its own endpoint, counters and
/// memory. Each domain writes to every domain of the peer.
pub(in crate::upstream) fn rdm_multi_domain(options: &Options) -> anyhow::Result<()> {
    let options = crate::upstream::functional::with_out_of_band(options, true);
    let count: usize = options.number("c", 2)?;
    ensure!(count > 0, "-c 0: no domains");
    let size = options.sizes.one().unwrap_or(4096);
    let caps = Caps::MSG | Caps::RMA | Caps::RMA_EVENT;
    let info = discover(&options, &hints(&options, caps, EpType::Rdm)?)?;
    let mut oob = OutOfBandChannel::establish(&options)?;
    let regions: Result<Vec<_>, _> = (0..count)
        .map(|_| Region::open(&options, info.clone(), size, count))
        .collect();
    let regions = regions?;
    let mut from_peer = Vec::new();
    for region in &regions {
        let name = oob.exchange(&region.endpoint.name()?)?;
        let address = Address::from_bytes(&name).context("the peer sent an invalid address")?;
        oob.send(&region.shared.rights.remote()?.to_bytes())?;
        from_peer.push((address, Remote::from_bytes(&oob.receive(16)?)?));
    }
    for (from, region) in regions.iter().enumerate() {
        for (to, (address, remote)) in from_peer.iter().enumerate() {
            region.write(&options, (from, to), (address, *remote), size)?;
        }
    }
    // Each domain makes its own progress, and its own counters show that it is done.
    let strategy = regions[0].endpoint.context.strategy();
    strategy.until("waiting for all domains", || {
        let mut missing = 0;
        for region in &regions {
            let done = region.writes.read().min(region.remote_accesses.read());
            missing += usize::from(done < count as u64);
            region.endpoint.tx.progress()?;
        }
        Ok((missing == 0).then_some(()))
    })?;
    for (to, region) in regions.iter().enumerate() {
        for from in 0..count {
            let stamp = stamp(!options.is_client(), from, to);
            stamp.check(&region.shared.memory, from * size, size)?;
        }
        let counted = region.remote_accesses.read();
        ensure!(
            counted == count as u64,
            "{counted} writes were counted instead of {count}"
        );
    }
    oob.barrier()
}

/// Returns the stamp of the write from domain `from` to the peer's domain `to`.
fn stamp(from_client: bool, from: usize, to: usize) -> Stamp {
    Stamp::of_pair(from_client, (from << 8 | to) as u64)
}

/// One domain: its endpoint, its counters and its memory.
struct Region {
    endpoint: DomainEndpoint,
    writes: Count,
    remote_accesses: Count,
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
        let domain = domain::open(options, info)?;
        let (writes, remote_accesses) = (domain.count()?, domain.count()?);
        let mut endpoint_config = EndpointConfig {
            tx_selective: true,
            rx_selective: true,
            ..EndpointConfig::default()
        };
        endpoint_config.counters.write = Some(Arc::clone(writes.cntr()));
        endpoint_config.counters.remote_write = Some(Arc::clone(remote_accesses.cntr()));
        let shared = domain.memory(size * count, SHARED)?;
        shared.memory.fill(0, size * count, POISON);
        Ok(Self {
            endpoint: domain.endpoint(endpoint_config)?,
            writes,
            remote_accesses,
            local: domain.buffers(size * count)?,
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
        let peer = self.endpoint.av.insert_one(address)?;
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
        self.endpoint
            .push("write", |endpoint| endpoint.write(&[segment], &access))
    }
}
