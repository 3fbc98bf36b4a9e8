//! `fi_multinode_coll`: the collectives of three or more processes, each compared with its expected
//! result.

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

use super::Job;
use crate::upstream::options::{Options, WaitMethod};
use crate::upstream::setup::discover::{discover, hints};
use crate::upstream::setup::domain;

const JOIN_CONTEXT: Context = Context(77);

/// Runs the program.
pub(in crate::upstream) fn multinode_coll(options: &Options) -> anyhow::Result<()> {
    let ranks = super::parse_ranks(options)?;
    let mut without_server = super::without_server(options);
    if options.has("T") && is_oversubscribed(ranks)? && without_server.waiting == WaitMethod::Spin {
        // A spinning rank would keep the processor from the rank that it waits for.
        without_server.waiting = WaitMethod::Yield;
    }
    let caps = Caps::MSG | Caps::COLLECTIVE;
    let info = discover(&without_server, &hints(&without_server, caps, EpType::Rdm)?)?;
    let mut job = Job::gather(&without_server, ranks)?;
    let rank_context = RankContext::open(&without_server, info, &mut job)?;
    let all: Vec<_> = (0..ranks).collect();
    let group = rank_context
        .join(&all)?
        .context("this rank is not in the group of all ranks")?;
    for round in 0..options.iterations.unwrap_or(1) as u64 {
        rank_context.run(&group, round)?;
        // A group of every second rank.
        let even: Vec<_> = all.iter().copied().step_by(2).collect();
        if let Some(group) = rank_context.join(&even)? {
            rank_context.run(&group, round)?;
        }
    }
    if options.has("T") {
        rank_context.measure(&without_server, &group, &mut job)?;
    }
    job.exchange(&[]).map(drop)
}

/// The endpoint of this rank and the addresses of the other ranks.
struct RankContext {
    endpoint: DomainEndpoint,
    eq: Arc<dyn EventQueue>,
    peers: Vec<FiAddr>,
    rank: usize,
}

/// A collective group that includes this rank.
struct Group {
    membership: Arc<dyn Membership>,
    ranks: Vec<usize>,
    /// The index of this rank in the group.
    member: usize,
}

/// The number of measurements of each operation.
const ROUNDS: usize = 15;
/// The number of operations in a measurement.
const OPERATIONS: usize = 20_000;
/// The number of operations in a measurement if there are more processes than processors.
const OPERATIONS_OVERSUBSCRIBED: usize = 500;

/// The number of elements of each member.
const COUNT: usize = 5;

impl RankContext {
    fn open(options: &Options, info: selvedge::Info, job: &mut Job) -> anyhow::Result<Self> {
        let eq = info.fabric()?.eq(&eq::Attr::default())?;
        let domain = domain::open(options, info)?;
        let endpoint = domain.endpoint(EndpointConfig {
            eq: Some(Arc::clone(&eq)),
            ..EndpointConfig::default()
        })?;
        Ok(Self {
            peers: job.exchange_addresses(&endpoint)?,
            endpoint,
            eq,
            rank: job.rank(),
        })
    }

    /// Joins a group of ranks if this rank belongs to it.
    fn join(&self, ranks: &[usize]) -> anyhow::Result<Option<Group>> {
        let Some(member) = ranks.iter().position(|&rank| rank == self.rank) else {
            return Ok(None);
        };
        let mut set = av::Set::open(&*self.endpoint.av, &av::SetAttr::default())?;
        for &rank in ranks {
            set.insert(self.peers[rank])?;
        }
        let coll = self.endpoint.ep.collective();
        let coll = coll.context("the endpoint does not support collectives")?;
        let membership = coll
            .join(&set, JOIN_CONTEXT)
            .context("cannot join the collective group")?;
        let poll_join = || match self.eq.read() {
            Ok(event) => Ok(Some(event)),
            Err(Errno::Again) => Ok(None),
            Err(errno) => Err(failure(
                errno,
                format!(
                    "joining the collective group failed: {:?}",
                    self.eq.read_err()
                ),
            )),
        };
        match self
            .endpoint
            .context
            .strategy()
            .until("joining the collective group", poll_join)?
        {
            Event::JoinComplete {
                context: JOIN_CONTEXT,
            } => Ok(Some(Group {
                membership,
                ranks: ranks.to_vec(),
                member,
            })),
            event => Err(wrong(format!(
                "joining the collective group gave the event {event:?}, expected FI_JOIN_COMPLETE"
            ))),
        }
    }

    /// Runs every collective once, with changing roots.
    fn run(&self, group: &Group, round: u64) -> anyhow::Result<()> {
        for (number, &coll) in Op::ALL.iter().enumerate() {
            let root = (number + round as usize) % group.ranks.len();
            self.collective(group, coll, root, round)?;
        }
        Ok(())
    }

    /// Measures three operations alternately, and prints the shortest time of each: a barrier, an
    /// allreduce of 8 bytes, and the messages of a barrier on an endpoint without collectives.
    fn measure(&self, options: &Options, group: &Group, job: &mut Job) -> anyhow::Result<()> {
        let info = discover(
            options,
            &hints(options, Caps::MSG | Caps::TAGGED, EpType::Rdm)?,
        )?;
        let messages = Self::open(options, info, job)?;
        let rounds = messages.rounds();
        let operations = if is_oversubscribed(self.peers.len())? {
            OPERATIONS_OVERSUBSCRIBED
        } else {
            OPERATIONS
        };
        let numbers: &'static [AtomicU64; 2] = Box::leak(Box::default());
        let msg = |coll| {
            let mut msg =
                CollectiveMsg::new(coll, group.membership.addr(), Datatype::Uint64, Context(0));
            msg.count = 1;
            msg
        };
        let mut best = [Duration::MAX; 3];
        for _ in 0..ROUNDS {
            let times = [
                messages.endpoint.exchanges(&rounds, numbers, operations)?,
                self.endpoint
                    .collectives(msg(Op::Barrier), numbers, operations)?,
                self.endpoint
                    .collectives(msg(Op::Allreduce), numbers, operations)?,
            ];
            best = std::array::from_fn(|index| best[index].min(times[index]));
            job.exchange(&[])?;
        }
        if self.rank == 0 {
            let ns = best.map(|time| time.as_secs_f64() * 1e9 / operations as f64);
            println!("messages of 8 B  {:8.0} ns", ns[0]);
            println!("barrier          {:8.0} ns  {:.2}", ns[1], ns[1] / ns[0]);
            println!("allreduce of 8 B {:8.0} ns  {:.2}", ns[2], ns[2] / ns[0]);
        }
        Ok(())
    }

    /// Returns the peer to which a barrier made of messages sends in each round: the ranks at the
    /// distances 1, 2, 4 …
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
        let mut msg =
            CollectiveMsg::new(coll, group.membership.addr(), Datatype::Uint64, Context(0));
        msg.root = self.peers[group.ranks[root]];
        (msg.op, msg.count) = (atomic::Op::Sum, COUNT);
        let input = (0..COUNT * members).map(|index| element(group.member, index, round));
        let collective = Collective {
            coll,
            members,
            root,
            count: COUNT,
        };
        let input_of = |member, index| element(member, index, round);
        let expected = collective.expected(group.member, input_of, |left, right| left + right);
        let mut result = vec![POISON; expected.len()];
        if coll == Op::Broadcast && group.member == root {
            result.clone_from(&expected);
        }
        let result = self.endpoint.collective(msg, input.collect(), result);
        let result = result.with_context(|| format!("{coll:?} of {members} members"))?;
        if result != expected {
            return Err(wrong(format!(
                "{coll:?} of {members} members, root {root}: member {} has {result:x?}, expected {expected:x?}",
                group.member
            )));
        }
        Ok(())
    }
}

/// Returns whether there are more processes than processors.
fn is_oversubscribed(ranks: usize) -> anyhow::Result<bool> {
    let processors = std::thread::available_parallelism();
    Ok(ranks
        > processors
            .context("cannot determine the number of processors")?
            .get())
}

const POISON: u64 = 0xdead_beef_dead_beef;

/// Returns element `index` of a member's input.
fn element(member: usize, index: usize, round: u64) -> u64 {
    (round << 32) + ((member as u64) << 16) + index as u64 + 1
}
