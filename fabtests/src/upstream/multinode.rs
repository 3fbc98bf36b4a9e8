//! `fi_multinode`: three processes or more, each of which talks to all others in a pattern.
//!
//! All are called alike. The first that takes the port is rank 0, gives the others their ranks, and
//! passes addresses and keys round; everything else goes over the fabric.

use std::net::TcpListener;
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use selvedge::info::EpType;
use selvedge::{Address, Caps, FiAddr, OpFlags, TagMatch};
use selvedge_testkit::domain::{
    Access, Block, DomainEndpoint, EndpointConfig, Recv, Remote, SHARED, Send,
};
use selvedge_testkit::failure::wrong;

use super::discover::{discover, hints};
use super::functional;
use super::ground;
use super::oob::{Listener, OutOfBandChannel};
use super::options::{ADDRESS, FABRIC, INFO, Letters, Options, PAIR};
use super::payload::{POISON, Stamp};

/// Its letters.
pub(super) const LETTERS: Letters = Letters {
    common: &[ADDRESS, FABRIC, INFO, PAIR],
    own: "n:x:z:u:T",
    long: &[],
};

/// The port of the rank 0, if `-E` does not say which.
const CONTROL: u16 = 8228;
const TAG: u64 = 1;

/// The program.
pub(super) fn multinode(options: &Options) -> anyhow::Result<()> {
    let ranks = ranks(options)?;
    ensure!(
        options.text("u").is_none(),
        "-u: ranks come from the port alone"
    );
    let kind = match options.text("x") {
        None | Some("msg") => Kind::Msg,
        Some("rma") => Kind::Rma,
        Some(other) => bail!("-x {other:?} is none of msg, rma"),
    };
    let patterns = patterns(options.text("z"))?;
    let caps = match kind {
        Kind::Msg => Caps::MSG | Caps::TAGGED,
        Kind::Rma => Caps::MSG | Caps::TAGGED | Caps::RMA,
    };
    let alone = alone(options);
    let info = discover(&alone, &hints(&alone, caps, EpType::Rdm)?)?;
    let mut job = Job::gather(&alone, ranks)?;
    let mut node = Node::open(&alone, info, kind, &mut job)?;
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

/// How many processes there are.
pub(super) fn ranks(options: &Options) -> anyhow::Result<usize> {
    let ranks = options.number("n", 2)?;
    ensure!(
        (2..=1024).contains(&ranks),
        "-n {ranks}: 2 to 1024 processes"
    );
    Ok(ranks)
}

/// The options of a process where nobody is the server: each has an address of its own.
pub(super) fn alone(options: &Options) -> Options {
    let mut alone = options.clone();
    alone.out_of_band.get_or_insert(super::options::OutOfBand {
        port: CONTROL,
        sync: false,
    });
    alone
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Msg,
    Rma,
}

/// Who sends to whom.
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

fn patterns(name: Option<&str>) -> anyhow::Result<Vec<Pattern>> {
    let Some(name) = name else {
        return Ok(PATTERNS.to_vec());
    };
    let found = PATTERNS.into_iter().find(|pattern| pattern.name() == name);
    let known = PATTERNS.map(Pattern::name).join(", ");
    Ok(vec![found.with_context(|| {
        format!("-z {name:?} is none of {known}")
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

    /// Whether one rank sends to another.
    fn has(self, from: usize, to: usize, ranks: usize) -> bool {
        match self {
            Self::FullMesh => from != to,
            Self::Ring => (from + 1) % ranks == to,
            Self::Gather => to == 0 && from != 0,
            Self::Broadcast => from == 0 && to != 0,
        }
    }
}

/// The connections beside the fabric: a star around rank 0.
pub(super) struct Job {
    rank: usize,
    ranks: usize,
    lines: Vec<OutOfBandChannel>,
}

impl Job {
    pub(super) fn gather(options: &Options, ranks: usize) -> anyhow::Result<Self> {
        let port = options.out_of_band.map_or(CONTROL, |oob| oob.port);
        let host = options.source.as_deref().unwrap_or("127.0.0.1");
        if let Ok(listener) = TcpListener::bind((host, port)) {
            let listener = Listener::over(listener);
            let mut lines = Vec::new();
            for rank in 1..ranks {
                let mut line = listener.accept_in(ground::timeout(options), ranks - rank)?;
                line.send(&(rank as u64).to_ne_bytes())?;
                lines.push(line);
            }
            return Ok(Self {
                rank: 0,
                ranks,
                lines,
            });
        }
        let mut line = OutOfBandChannel::connect(host, port, ground::timeout(options))?;
        let first = format!("the first process of the job, which listens at {host}:{port}");
        let rank = line.receive_from(&first, 8)?;
        let rank = u64::from_ne_bytes(rank.as_slice().try_into()?) as usize;
        ensure!((1..ranks).contains(&rank), "rank {rank} of {ranks}");
        Ok(Self {
            rank,
            ranks,
            lines: vec![line],
        })
    }

    /// Which one this process is.
    pub(super) fn rank(&self) -> usize {
        self.rank
    }

    /// All ranks' blocks, in their order.
    pub(super) fn exchange(&mut self, own: &[u8]) -> anyhow::Result<Vec<Vec<u8>>> {
        let mut block = vec![0; SLOT];
        ensure!(own.len() <= SLOT, "an address of {} bytes", own.len());
        block[..own.len()].copy_from_slice(own);
        if self.rank > 0 {
            self.lines[0].send(&block)?;
            let all = self.lines[0].receive(self.ranks * SLOT)?;
            return Ok(all.chunks(SLOT).map(<[u8]>::to_vec).collect());
        }
        let mut all = vec![block];
        for line in &mut self.lines {
            all.push(line.receive(SLOT)?);
        }
        for line in &mut self.lines {
            line.send(&all.concat())?;
        }
        Ok(all)
    }

    /// All ranks' endpoints, as this one's knows them.
    pub(super) fn exchange_addresses(
        &mut self,
        end: &DomainEndpoint,
    ) -> anyhow::Result<Vec<FiAddr>> {
        let mut peers = Vec::new();
        for name in self.exchange(&end.name()?)? {
            let text = name.split_inclusive(|&byte| byte == 0).next();
            let address = text.and_then(Address::from_bytes);
            let address = address.context("a peer's address is none")?;
            peers.push(end.av.insert_one(&address)?);
        }
        Ok(peers)
    }
}

/// Bytes of an address.
const SLOT: usize = 256;

/// A process's endpoint, with places for what comes from each rank and goes to it.
struct Node {
    end: DomainEndpoint,
    peers: Vec<FiAddr>,
    remotes: Vec<Remote>,
    tx: Block,
    rx: Block,
    kind: Kind,
    rank: usize,
    size: usize,
    barriers: u64,
}

/// Distinguishes contexts of sends.
const SENDS: u64 = 1 << 32;

impl Node {
    fn open(
        options: &Options,
        info: selvedge::Info,
        kind: Kind,
        job: &mut Job,
    ) -> anyhow::Result<Self> {
        let size = options.sizes.one().unwrap_or(1024);
        let ground = ground::open(options, info)?;
        let end = ground.endpoint(EndpointConfig::default())?;
        let peers = job.exchange_addresses(&end)?;
        let rx = match kind {
            Kind::Msg => ground.buffers(size * job.ranks)?,
            Kind::Rma => ground.memory(size * job.ranks, SHARED)?,
        };
        let own = match kind {
            Kind::Msg => [0; 16],
            Kind::Rma => rx.rights.remote()?.to_bytes(),
        };
        let remotes = job.exchange(&own)?;
        let remotes: Result<Vec<_>, _> =
            remotes.iter().map(|key| Remote::from_bytes(key)).collect();
        Ok(Self {
            tx: ground.buffers(size * job.ranks)?,
            end,
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
        let others = |sends: bool| {
            let is_one = |other: usize| match sends {
                true => pattern.has(self.rank, other, ranks),
                false => pattern.has(other, self.rank, ranks),
            };
            (0..ranks)
                .filter(|&other| is_one(other))
                .collect::<Vec<_>>()
        };
        let (to, from) = (others(true), others(false));
        self.rx.memory.fill(0, self.rx.memory.len(), POISON);
        let mut contexts: Vec<u64> = Vec::new();
        if self.kind == Kind::Msg {
            // Any sender may come into any place: the stamp says who it is.
            for (place, _) in from.iter().enumerate() {
                self.post_recv(place, self.size, TAG, place as u64)?;
                contexts.push(place as u64);
            }
        } else {
            self.barrier()?;
        }
        for &to in &to {
            let at = to * self.size;
            Self::stamp(self.rank, to, round).write(&self.tx.memory, at, self.size);
            self.post_send(to)?;
            contexts.push(SENDS + to as u64);
        }
        functional::gather(&[&self.end.tx, &self.end.rx], contexts)?;
        if self.kind == Kind::Rma {
            self.barrier()?;
        }
        self.check(&from, round)
    }

    fn post_recv(&self, place: usize, len: usize, tag: u64, context: u64) -> anyhow::Result<()> {
        let recv = Recv::new(context).tag(TagMatch::exact(tag));
        let segment = self.rx.segment(place * self.size, len);
        self.end.push("receive", |end| end.recv(&[segment], &recv))
    }

    fn post_send(&self, to: usize) -> anyhow::Result<()> {
        let segment = self.tx.segment(to * self.size, self.size);
        let context = SENDS + to as u64;
        if self.kind == Kind::Msg {
            let send = Send::new(self.peers[to], context).tag(TAG);
            return self.end.push("send", |end| end.send(&[segment], &send));
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
        self.end.push("write", |end| end.write(&[segment], &access))
    }

    /// From each of these ranks there is one message, and from nobody else.
    fn check(&self, from: &[usize], round: u64) -> anyhow::Result<()> {
        let ranks = self.peers.len();
        let mut missing = from.to_vec();
        for place in 0..ranks {
            let at = place * self.size;
            let is_used = match self.kind {
                Kind::Msg => place < from.len(),
                Kind::Rma => from.contains(&place),
            };
            if !is_used {
                self.rx.memory.check_fill(at, self.size, POISON)?;
                continue;
            }
            let stamped = |&sender: &usize| {
                let stamp = Self::stamp(sender, self.rank, round);
                stamp.check(&self.rx.memory, at, self.size).is_ok()
            };
            let sender = missing.iter().position(stamped);
            let sender = sender.filter(|&found| self.kind == Kind::Msg || missing[found] == place);
            let Some(sender) = sender else {
                return Err(wrong(format!(
                    "rank {}, round {round}: what came is of none of {missing:?}",
                    self.rank
                )));
            };
            missing.swap_remove(sender);
        }
        Ok(())
    }

    /// An empty message to everybody and one of everybody. It is tagged: who is fast may be at the
    /// next barrier before another one has come to this one.
    fn barrier(&mut self) -> anyhow::Result<()> {
        self.barriers += 1;
        let tag = TAG + self.barriers;
        let others: Vec<_> = (0..self.peers.len())
            .filter(|&rank| rank != self.rank)
            .collect();
        for &other in &others {
            self.post_recv(0, 0, tag, other as u64)?;
        }
        for &other in &others {
            let send = Send::new(self.peers[other], SENDS + other as u64)
                .tag(tag)
                .flags(OpFlags::DELIVERY_COMPLETE | OpFlags::COMPLETION);
            self.end.push("barrier", |end| end.send(&[], &send))?;
        }
        let contexts = others
            .iter()
            .flat_map(|&other| [other as u64, SENDS + other as u64]);
        functional::gather(&[&self.end.tx, &self.end.rx], contexts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_say_who_sends_to_whom() {
        let pairs = |pattern: Pattern| {
            let all = (0..3).flat_map(|from| (0..3).map(move |to| (from, to)));
            all.filter(|&(from, to)| pattern.has(from, to, 3))
                .collect::<Vec<_>>()
        };
        assert_eq!(pairs(Pattern::FullMesh).len(), 6);
        assert_eq!(pairs(Pattern::Ring), [(0, 1), (1, 2), (2, 0)]);
        assert_eq!(pairs(Pattern::Gather), [(1, 0), (2, 0)]);
        assert_eq!(pairs(Pattern::Broadcast), [(0, 1), (0, 2)]);
    }
}
