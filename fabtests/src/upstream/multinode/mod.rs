//! `fi_multinode`: three or more processes communicate in patterns.
//!
//! All processes have the same command line. The first that binds the port is rank 0, assigns the
//! other ranks, and distributes addresses and keys. All other communication uses the fabric.

mod collectives;

pub(super) use collectives::multinode_coll;

use std::net::TcpListener;
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use selvedge::info::EpType;
use selvedge::{Address, Caps, FiAddr, OpFlags, TagMatch};
use selvedge_testkit::domain::{
    Access, Block, DomainEndpoint, EndpointConfig, Recv, Remote, SHARED, Send,
};
use selvedge_testkit::failure::wrong;

use super::data::payload::{POISON, Stamp};
use super::functional;
use super::options::{ADDRESS, FABRIC, INFO, OptionSet, Options, PAIR};
use super::setup::discover::{discover, hints};
use super::setup::domain;
use super::setup::oob::{Listener, OutOfBandChannel};

/// The options of the program.
pub(super) const OPTIONS: OptionSet = OptionSet {
    common: &[ADDRESS, FABRIC, INFO, PAIR],
    specific: "n:x:z:u:T",
    long: &[],
};

/// The port of rank 0 without `-E`.
const CONTROL_PORT: u16 = 8228;
const TAG: u64 = 1;

/// Runs the program.
pub(super) fn multinode(options: &Options) -> anyhow::Result<()> {
    let ranks = parse_ranks(options)?;
    ensure!(
        options.text("u").is_none(),
        "-u is not supported: the port assigns the ranks"
    );
    let kind = match options.text("x") {
        None | Some("msg") => Kind::Msg,
        Some("rma") => Kind::Rma,
        Some(other) => bail!("-x {other:?}: unknown kind; use msg or rma"),
    };
    let patterns = parse_patterns(options.text("z"))?;
    let caps = match kind {
        Kind::Msg => Caps::MSG | Caps::TAGGED,
        Kind::Rma => Caps::MSG | Caps::TAGGED | Caps::RMA,
    };
    let without_server = without_server(options);
    let info = discover(&without_server, &hints(&without_server, caps, EpType::Rdm)?)?;
    let mut job = Job::gather(&without_server, ranks)?;
    let mut node = Node::open(&without_server, info, kind, &mut job)?;
    for pattern in patterns {
        let start = Instant::now();
        for round in 0..options.iterations.unwrap_or(1) as u64 {
            node.run(pattern, round)?;
            node.barrier()?;
        }
        if job.rank == 0 {
            println!("{:<12} {:?}: {:?}", pattern.name(), kind, start.elapsed());
        }
    }
    node.barrier()?;
    job.exchange(&[]).map(drop)
}

/// Parses the number of processes.
pub(super) fn parse_ranks(options: &Options) -> anyhow::Result<usize> {
    let ranks = options.number("n", 2)?;
    ensure!(
        (2..=1024).contains(&ranks),
        "-n {ranks}: the number of processes must be 2 to 1024"
    );
    Ok(ranks)
}

/// Returns the options of a process in a job without a server: each process has its own address.
pub(super) fn without_server(options: &Options) -> Options {
    let mut without_server = options.clone();
    without_server
        .out_of_band
        .get_or_insert(super::options::OutOfBand {
            port: CONTROL_PORT,
            sync: false,
        });
    without_server
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Msg,
    Rma,
}

/// A pattern of communication, which tells the ranks to which each rank sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pattern {
    FullMesh,
    Ring,
    Gather,
    Broadcast,
}

const PATTERNS: [Pattern; 4] = [
    Pattern::FullMesh,
    Pattern::Ring,
    Pattern::Gather,
    Pattern::Broadcast,
];

fn parse_patterns(name: Option<&str>) -> anyhow::Result<Vec<Pattern>> {
    let Some(name) = name else {
        return Ok(PATTERNS.to_vec());
    };
    let found = PATTERNS.into_iter().find(|pattern| pattern.name() == name);
    let names = PATTERNS.map(Pattern::name).join(", ");
    Ok(vec![found.with_context(|| {
        format!("-z {name:?}: unknown pattern; use one of {names}")
    })?])
}

impl Pattern {
    fn name(self) -> &'static str {
        match self {
            Self::FullMesh => "full_mesh",
            Self::Ring => "ring",
            Self::Gather => "gather",
            Self::Broadcast => "broadcast",
        }
    }

    /// Returns whether one rank sends to another.
    fn sends(self, from: usize, to: usize, ranks: usize) -> bool {
        match self {
            Self::FullMesh => from != to,
            Self::Ring => (from + 1) % ranks == to,
            Self::Gather => to == 0 && from != 0,
            Self::Broadcast => from == 0 && to != 0,
        }
    }
}

/// The out-of-band connections: a star around rank 0.
pub(super) struct Job {
    rank: usize,
    ranks: usize,
    connections: Vec<OutOfBandChannel>,
}

impl Job {
    /// Connects all processes. The first process that binds the port is rank 0, and assigns the
    /// other ranks.
    ///
    /// # Errors
    /// A process does not connect in time, or the processes disagree on the number of ranks.
    pub(super) fn gather(options: &Options, ranks: usize) -> anyhow::Result<Self> {
        let port = options.out_of_band.map_or(CONTROL_PORT, |oob| oob.port);
        let host = options.source.as_deref().unwrap_or("127.0.0.1");
        if let Ok(listener) = TcpListener::bind((host, port)) {
            let listener = Listener::wrap(listener);
            let mut connections = Vec::new();
            for rank in 1..ranks {
                let mut oob = listener.accept_within(domain::timeout(options), ranks - rank)?;
                oob.send(&(rank as u64).to_ne_bytes())?;
                connections.push(oob);
            }
            return Ok(Self {
                rank: 0,
                ranks,
                connections,
            });
        }
        let mut oob = OutOfBandChannel::connect(host, port, domain::timeout(options))?;
        let first = format!("the first process of the job, which listens on {host}:{port}");
        let rank = oob.receive_from(&first, 8)?;
        let rank = u64::from_ne_bytes(rank.as_slice().try_into()?) as usize;
        ensure!(
            (1..ranks).contains(&rank),
            "rank 0 assigned rank {rank}, but -n is {ranks}"
        );
        Ok(Self {
            rank,
            ranks,
            connections: vec![oob],
        })
    }

    /// Returns the rank of this process.
    pub(super) fn rank(&self) -> usize {
        self.rank
    }

    /// Sends `local` to all ranks. Returns the blocks of all ranks, in the order of ranks, padded
    /// with zeros.
    pub(super) fn exchange(&mut self, local: &[u8]) -> anyhow::Result<Vec<Vec<u8>>> {
        let mut block = vec![0; BLOCK_LEN];
        ensure!(
            local.len() <= BLOCK_LEN,
            "an address of {} bytes exceeds the limit of {BLOCK_LEN}",
            local.len()
        );
        block[..local.len()].copy_from_slice(local);
        if self.rank > 0 {
            self.connections[0].send(&block)?;
            let blocks = self.connections[0].receive(self.ranks * BLOCK_LEN)?;
            return Ok(blocks.chunks(BLOCK_LEN).map(<[u8]>::to_vec).collect());
        }
        let mut blocks = vec![block];
        for oob in &mut self.connections {
            blocks.push(oob.receive(BLOCK_LEN)?);
        }
        for oob in &mut self.connections {
            oob.send(&blocks.concat())?;
        }
        Ok(blocks)
    }

    /// Returns the addresses of all ranks' endpoints in the endpoint's address vector.
    pub(super) fn exchange_addresses(
        &mut self,
        endpoint: &DomainEndpoint,
    ) -> anyhow::Result<Vec<FiAddr>> {
        let mut peers = Vec::new();
        for name in self.exchange(&endpoint.name()?)? {
            let text = name.split_inclusive(|&byte| byte == 0).next();
            let address = text.and_then(Address::from_bytes);
            let address = address.context("the address of a peer is invalid")?;
            peers.push(endpoint.av.insert_one(&address)?);
        }
        Ok(peers)
    }
}

/// The length of a block with an address.
const BLOCK_LEN: usize = 256;

/// The endpoint of a process, with one buffer slot per rank in each direction.
struct Node {
    endpoint: DomainEndpoint,
    peers: Vec<FiAddr>,
    remotes: Vec<Remote>,
    tx: Block,
    rx: Block,
    kind: Kind,
    rank: usize,
    size: usize,
    barriers: u64,
}

/// The operation contexts of sends are above those of receives.
const SENDS: u64 = 1 << 32;

impl Node {
    fn open(
        options: &Options,
        info: selvedge::Info,
        kind: Kind,
        job: &mut Job,
    ) -> anyhow::Result<Self> {
        let size = options.sizes.one().unwrap_or(1024);
        let domain = domain::open(options, info)?;
        let endpoint = domain.endpoint(EndpointConfig::default())?;
        let peers = job.exchange_addresses(&endpoint)?;
        let rx = match kind {
            Kind::Msg => domain.buffers(size * job.ranks)?,
            Kind::Rma => domain.memory(size * job.ranks, SHARED)?,
        };
        let key = match kind {
            Kind::Msg => [0; 16],
            Kind::Rma => rx.rights.remote()?.to_bytes(),
        };
        let remotes = job.exchange(&key)?;
        let remotes: Result<Vec<_>, _> =
            remotes.iter().map(|key| Remote::from_bytes(key)).collect();
        Ok(Self {
            tx: domain.buffers(size * job.ranks)?,
            endpoint,
            peers,
            remotes: remotes?,
            rx,
            kind,
            rank: job.rank,
            size,
            barriers: 0,
        })
    }

    fn stamp(from: usize, to: usize, round: u64) -> Stamp {
        Stamp {
            from: from as u16,
            to: to as u16,
            number: round,
        }
    }

    fn run(&mut self, pattern: Pattern, round: u64) -> anyhow::Result<()> {
        let ranks = self.peers.len();
        let partners = |sends: bool| {
            let is_partner = |other: usize| {
                if sends {
                    pattern.sends(self.rank, other, ranks)
                } else {
                    pattern.sends(other, self.rank, ranks)
                }
            };
            (0..ranks)
                .filter(|&other| is_partner(other))
                .collect::<Vec<_>>()
        };
        let (receivers, senders) = (partners(true), partners(false));
        self.rx.memory.fill(0, self.rx.memory.len(), POISON);
        let mut contexts: Vec<u64> = Vec::new();
        if self.kind == Kind::Msg {
            // A message of any sender may match any receive: the stamp identifies the sender.
            for (slot, _) in senders.iter().enumerate() {
                self.post_recv(slot, self.size, TAG, slot as u64)?;
                contexts.push(slot as u64);
            }
        } else {
            self.barrier()?;
        }
        for &to in &receivers {
            let offset = to * self.size;
            Self::stamp(self.rank, to, round).write(&self.tx.memory, offset, self.size);
            self.post_send(to)?;
            contexts.push(SENDS + to as u64);
        }
        functional::wait_for_all(&[&self.endpoint.tx, &self.endpoint.rx], contexts)?;
        if self.kind == Kind::Rma {
            self.barrier()?;
        }
        self.check(&senders, round)
    }

    fn post_recv(&self, slot: usize, len: usize, tag: u64, context: u64) -> anyhow::Result<()> {
        let recv = Recv::new(context).tag(TagMatch::exact(tag));
        let segment = self.rx.segment(slot * self.size, len);
        self.endpoint
            .push("receive", |endpoint| endpoint.recv(&[segment], &recv))
    }

    fn post_send(&self, to: usize) -> anyhow::Result<()> {
        let segment = self.tx.segment(to * self.size, self.size);
        let context = SENDS + to as u64;
        if self.kind == Kind::Msg {
            let send = Send::new(self.peers[to], context).tag(TAG);
            return self
                .endpoint
                .push("send", |endpoint| endpoint.send(&[segment], &send));
        }
        let remote = self.remotes[to];
        let access = Access::new(
            self.peers[to],
            Remote {
                addr: remote.addr + (self.rank * self.size) as u64,
                ..remote
            },
            context,
        )
        .flags(OpFlags::DELIVERY_COMPLETE | OpFlags::COMPLETION);
        self.endpoint
            .push("write", |endpoint| endpoint.write(&[segment], &access))
    }

    /// Checks that one message of each sender was received, and no other message.
    fn check(&self, senders: &[usize], round: u64) -> anyhow::Result<()> {
        let ranks = self.peers.len();
        let mut missing = senders.to_vec();
        for slot in 0..ranks {
            let offset = slot * self.size;
            let is_used = match self.kind {
                Kind::Msg => slot < senders.len(),
                Kind::Rma => senders.contains(&slot),
            };
            if !is_used {
                self.rx.memory.check_fill(offset, self.size, POISON)?;
                continue;
            }
            let is_from = |&sender: &usize| {
                let stamp = Self::stamp(sender, self.rank, round);
                stamp.check(&self.rx.memory, offset, self.size).is_ok()
            };
            let sender = missing.iter().position(is_from);
            let sender = sender.filter(|&found| self.kind == Kind::Msg || missing[found] == slot);
            let Some(sender) = sender else {
                return Err(wrong(format!(
                    "rank {}, round {round}: the message in slot {slot} is from none of the ranks {missing:?}",
                    self.rank
                )));
            };
            missing.swap_remove(sender);
        }
        Ok(())
    }

    /// Sends an empty message to every rank and receives one from every rank. The messages are
    /// tagged, because a fast rank may enter the next barrier before the messages of a slow rank
    /// arrive.
    fn barrier(&mut self) -> anyhow::Result<()> {
        self.barriers += 1;
        let tag = TAG + self.barriers;
        let partners: Vec<_> = (0..self.peers.len())
            .filter(|&rank| rank != self.rank)
            .collect();
        for &other in &partners {
            self.post_recv(0, 0, tag, other as u64)?;
        }
        for &other in &partners {
            let send = Send::new(self.peers[other], SENDS + other as u64)
                .tag(tag)
                .flags(OpFlags::DELIVERY_COMPLETE | OpFlags::COMPLETION);
            self.endpoint
                .push("barrier", |endpoint| endpoint.send(&[], &send))?;
        }
        let contexts = partners
            .iter()
            .flat_map(|&other| [other as u64, SENDS + other as u64]);
        functional::wait_for_all(&[&self.endpoint.tx, &self.endpoint.rx], contexts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_select_senders_and_receivers() {
        let pairs = |pattern: Pattern| {
            let pairs = (0..3).flat_map(|from| (0..3).map(move |to| (from, to)));
            pairs
                .filter(|&(from, to)| pattern.sends(from, to, 3))
                .collect::<Vec<_>>()
        };
        assert_eq!(pairs(Pattern::FullMesh).len(), 6);
        assert_eq!(pairs(Pattern::Ring), [(0, 1), (1, 2), (2, 0)]);
        assert_eq!(pairs(Pattern::Gather), [(1, 0), (2, 0)]);
        assert_eq!(pairs(Pattern::Broadcast), [(0, 1), (0, 2)]);
    }
}
