//! `fi_multinode_coll`: the collectives of three processes and more, each compared with what it has
//! to give.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::Context as _;
use selvedge::atomic::{self, Datatype};
use selvedge::collective::{CollectiveMsg, Op};
use selvedge::eq::{self, Event};
use selvedge::info::EpType;
use selvedge::{Caps, Context, Errno, EventQueue, FiAddr, Membership, av};
use selvedge_testkit::collectives::Collective;
use selvedge_testkit::domain::{DomainEndpoint, EndpointConfig};
use selvedge_testkit::failure::{failure, wrong};

use super::discover::{discover, hints};
use super::ground;
use super::multinode::Job;
use super::options::{Options, WaitMethod};

const JOINED: Context = Context(77);

/// The program.
pub(super) fn multinode_coll(options: &Options) -> anyhow::Result<()> {
    let ranks = super::multinode::ranks(options)?;
    let mut alone = super::multinode::alone(options);
    if options.has("T") && is_crowd(ranks)? && alone.waiting == WaitMethod::Spin {
        // Each would keep the processor from the one that it waits for.
        alone.waiting = WaitMethod::Yield;
    }
    let caps = Caps::MSG | Caps::COLLECTIVE;
    let info = discover(&alone, &hints(&alone, caps, EpType::Rdm)?)?;
    let mut job = Job::gather(&alone, ranks)?;
    let crew = Crew::open(&alone, info, &mut job)?;
    let all: Vec<_> = (0..ranks).collect();
    let group = crew.join(&all)?.context("this rank is in no group")?;
    for round in 0..options.iterations.unwrap_or(1) as u64 {
        crew.run(&group, round)?;
        // Every other rank alone.
        let even: Vec<_> = all.iter().copied().step_by(2).collect();
        if let Some(group) = crew.join(&even)? {
            crew.run(&group, round)?;
        }
    }
    if options.has("T") {
        crew.time(&alone, &group, &mut job)?;
    }
    job.exchange(&[]).map(drop)
}

/// An endpoint and the other ranks.
struct Crew {
    end: DomainEndpoint,
    eq: Arc<dyn EventQueue>,
    peers: Vec<FiAddr>,
    rank: usize,
}

/// A group with this rank in it.
struct Group {
    member: Arc<dyn Membership>,
    ranks: Vec<usize>,
    own: usize,
}

/// How often each is timed.
const ROUNDS: usize = 15;
/// How many are timed together; fewer where processes wait for a processor, too.
const TURNS: usize = 20_000;
const TURNS_OF_A_CROWD: usize = 500;

/// The elements of each member.
const COUNT: usize = 5;

impl Crew {
    fn open(options: &Options, info: selvedge::Info, job: &mut Job) -> anyhow::Result<Self> {
        let eq = info.fabric()?.eq(&eq::Attr::default())?;
        let ground = ground::open(options, info)?;
        let end = ground.endpoint(EndpointConfig {
            eq: Some(Arc::clone(&eq)),
            ..EndpointConfig::default()
        })?;
        Ok(Self {
            peers: job.exchange_addresses(&end)?,
            end,
            eq,
            rank: job.rank(),
        })
    }

    /// Joins some ranks, if this one is among them.
    fn join(&self, ranks: &[usize]) -> anyhow::Result<Option<Group>> {
        let Some(own) = ranks.iter().position(|&rank| rank == self.rank) else {
            return Ok(None);
        };
        let mut set = av::Set::open(&*self.end.av, &av::SetAttr::default())?;
        for &rank in ranks {
            set.insert(self.peers[rank])?;
        }
        let coll = self.end.ep.collective();
        let coll = coll.context("the endpoint has no collectives")?;
        let member = coll.join(&set, JOINED).context("cannot join")?;
        let joined = || match self.eq.read() {
            Ok(event) => Ok(Some(event)),
            Err(Errno::Again) => Ok(None),
            Err(errno) => Err(failure(errno, format!("joining: {:?}", self.eq.read_err()))),
        };
        match self.end.context.strategy().until("the group", joined)? {
            Event::JoinComplete { context: JOINED } => Ok(Some(Group {
                member,
                ranks: ranks.to_vec(),
                own,
            })),
            other => Err(wrong(format!("joining is answered with {other:?}"))),
        }
    }

    /// Every collective once, with each member as the root of one of them.
    fn run(&self, group: &Group, round: u64) -> anyhow::Result<()> {
        for (number, &coll) in Op::ALL.iter().enumerate() {
            let root = (number + round as usize) % group.ranks.len();
            self.collective(group, coll, root, round)?;
        }
        Ok(())
    }

    /// The time of a barrier and an all-reduce of 8 bytes beside that of the messages that a barrier
    /// is made of, by an endpoint that has no collectives, in turns; the best of each.
    fn time(&self, options: &Options, group: &Group, job: &mut Job) -> anyhow::Result<()> {
        let plain = discover(
            options,
            &hints(options, Caps::MSG | Caps::TAGGED, EpType::Rdm)?,
        )?;
        let other = Self::open(options, plain, job)?;
        let rounds = other.rounds();
        let turns = match is_crowd(self.peers.len())? {
            true => TURNS_OF_A_CROWD,
            false => TURNS,
        };
        let words: &'static [AtomicU64; 2] = Box::leak(Box::default());
        let msg = |coll| {
            let mut msg =
                CollectiveMsg::new(coll, group.member.addr(), Datatype::Uint64, Context(0));
            msg.count = 1;
            msg
        };
        let mut best = [Duration::MAX; 3];
        for _ in 0..ROUNDS {
            let times = [
                other.end.exchanges(&rounds, words, turns)?,
                self.end.collectives(msg(Op::Barrier), words, turns)?,
                self.end.collectives(msg(Op::Allreduce), words, turns)?,
            ];
            best = std::array::from_fn(|at| best[at].min(times[at]));
            job.exchange(&[])?;
        }
        if self.rank == 0 {
            let ns = best.map(|time| time.as_secs_f64() * 1e9 / turns as f64);
            println!("messages of 8 B  {:8.0} ns", ns[0]);
            println!("barrier          {:8.0} ns  {:.2}", ns[1], ns[1] / ns[0]);
            println!("allreduce of 8 B {:8.0} ns  {:.2}", ns[2], ns[2] / ns[0]);
        }
        Ok(())
    }

    /// Whom a barrier by messages sends to in each of its rounds: those that are 1, 2, 4 .. ranks on.
    fn rounds(&self) -> Vec<FiAddr> {
        let ranks = self.peers.len();
        let distances = std::iter::successors(Some(1), |distance| Some(distance * 2));
        let distances = distances.take_while(|&distance| distance < ranks);
        distances
            .map(|distance| self.peers[(self.rank + distance) % ranks])
            .collect()
    }

    fn collective(&self, group: &Group, coll: Op, root: usize, round: u64) -> anyhow::Result<()> {
        let members = group.ranks.len();
        let mut msg = CollectiveMsg::new(coll, group.member.addr(), Datatype::Uint64, Context(0));
        msg.root = self.peers[group.ranks[root]];
        (msg.op, msg.count) = (atomic::Op::Sum, COUNT);
        let input = (0..COUNT * members).map(|at| word(group.own, at, round));
        let collective = Collective {
            coll,
            members,
            root,
            count: COUNT,
        };
        let input_of = |of, at| word(of, at, round);
        let selection = collective.expected(group.own, input_of, |left, right| left + right);
        let mut result = vec![POISON; selection.len()];
        if coll == Op::Broadcast && group.own == root {
            result.clone_from(&selection);
        }
        let result = self.end.collective(msg, input.collect(), result);
        let result = result.with_context(|| format!("{coll:?} of {members}"))?;
        if result != selection {
            return Err(wrong(format!(
                "{coll:?} of {members}, root {root}: rank {} has {result:x?}, not {selection:x?}",
                group.own
            )));
        }
        Ok(())
    }
}

/// Whether there are more processes than processors.
fn is_crowd(ranks: usize) -> anyhow::Result<bool> {
    let processors = std::thread::available_parallelism();
    Ok(ranks > processors.context("cannot count processors")?.get())
}

const POISON: u64 = 0xdead_beef_dead_beef;

/// What a member puts in.
fn word(member: usize, at: usize, round: u64) -> u64 {
    (round << 32) + ((member as u64) << 16) + at as u64 + 1
}
