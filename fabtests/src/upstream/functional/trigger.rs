//! `fi_rdm_rma_trigger` and `fi_rdm_deferred_wq`: operations that wait for a counter.

use std::sync::Arc;

use selvedge::atomic::{Datatype, Family, Op as AtomicOp};
use selvedge::info::EpType;
use selvedge::trigger::Action;
use selvedge::{Caps, Counters, OpFlags, TagMatch};
use selvedge_testkit::domain::{
    Access, AtomicBuffers, AtomicCall, Block, Count, Deferred, DomainContext, Recv, Remote, SHARED,
    Send,
};
use selvedge_testkit::failure::wrong;

use super::{beside, letters};
use crate::upstream::channel::{Channel, Manners};
use crate::upstream::discover::{discover, hints};
use crate::upstream::ground;
use crate::upstream::options::{Letters, Options};
use crate::upstream::payload::{POISON, Stamp};

/// `-T` is a word here: what is deferred.
pub(in crate::upstream) const DEFERRED: Letters = letters("T:a");

const CAPS: Caps = Caps::MSG
    .union(Caps::TAGGED)
    .union(Caps::RMA)
    .union(Caps::RMA_EVENT)
    .union(Caps::TRIGGER);

/// Two sides that count, and memory of the peer.
struct Stage {
    ground: Arc<DomainContext>,
    channel: Channel,
    /// Own writes, and all accesses of the peer.
    writes: Count,
    arrivals: Count,
    local: Block,
    shared: Block,
    remote: Remote,
}

impl Stage {
    fn open(options: &Options, caps: Caps, size: usize) -> anyhow::Result<Self> {
        let info = discover(options, &hints(options, caps, EpType::Rdm)?)?;
        let ground = ground::open(options, info)?;
        let (writes, arrivals) = (ground.count()?, ground.count()?);
        let manners = Manners {
            // Untagged messages are what is deferred.
            tagged: true,
            counters: true,
            ..Manners::default()
        };
        let bind = |counters: &mut Counters| {
            counters.write = Some(Arc::clone(writes.cntr()));
            counters.remote_write = Some(Arc::clone(arrivals.cntr()));
            counters.remote_read = Some(Arc::clone(arrivals.cntr()));
        };
        let mut channel = Channel::counting(options, &ground, manners, bind)?;
        let (local, shared) = (ground.buffers(2 * size)?, ground.memory(2 * size, SHARED)?);
        shared.memory.fill(0, 2 * size, POISON);
        let remote = channel.exchange_keys(&shared.rights)?;
        Ok(Self {
            ground,
            channel,
            writes,
            arrivals,
            local,
            shared,
            remote,
        })
    }

    fn write(&self, flags: OpFlags, context: u64) -> Access {
        Access::new(self.channel.peer, self.remote, context).flags(flags)
    }
}

/// The program: a write that is posted first, and waits for the one that is posted second.
pub(in crate::upstream) fn rdm_rma_trigger(options: &Options) -> anyhow::Result<()> {
    let size = options.sizes.one().unwrap_or(1000);
    let mut stage = Stage::open(&beside(options, true), CAPS, size)?;
    let (first, second) = (Stamp::of_pair(true, 0), Stamp::of_pair(true, 1));
    if stage.channel.is_client() {
        first.write(&stage.local.memory, 0, size);
        second.write(&stage.local.memory, size, size);
        println!("Triggered RMA write to server");
        let later = Deferred::triggered(&stage.writes, stage.writes.read() + 1);
        let late = stage.local.segment(size, size);
        let end = &stage.channel.end;
        end.write_deferred(&[late], &stage.write(OpFlags::DEFAULT, 2), &later)?;
        println!("RMA write to server");
        let access = stage.write(OpFlags::DEFAULT, 1);
        let now = stage.local.segment(0, size);
        end.push("write", |end| end.write(&[now], &access))?;
        stage.writes.wait(2)?;
    } else {
        stage.arrivals.wait(2)?;
        println!("Received data from Client: both writes");
        second.check(&stage.shared.memory, 0, size)?;
    }
    stage.channel.finish()
}

/// What is deferred.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counters,
    Message,
    Tagged,
    Write,
    Atomic,
    Fetch,
    Compare,
}

impl Kind {
    fn of(options: &Options) -> anyhow::Result<Self> {
        Ok(match options.text("T") {
            None => Self::Counters,
            Some("msg") => Self::Message,
            Some("tagged") => Self::Tagged,
            Some("rma") => Self::Write,
            Some("atomic") => Self::Atomic,
            Some("f_atomic") => Self::Fetch,
            Some("c_atomic") => Self::Compare,
            Some(other) => anyhow::bail!("-T {other} is no kind of deferred work"),
        })
    }

    fn caps(self) -> Caps {
        match self {
            Self::Atomic | Self::Fetch | Self::Compare => CAPS | Caps::ATOMIC,
            _ => CAPS,
        }
    }
}

/// Rounds of each kind.
const ROUNDS: u64 = 5;
const TAG: u64 = 0xcafe;

/// The program.
pub(in crate::upstream) fn rdm_deferred_wq(options: &Options) -> anyhow::Result<()> {
    let size = options.sizes.one().unwrap_or(1000).max(32);
    let kind = Kind::of(options)?;
    let mut stage = Stage::open(&beside(options, true), kind.caps(), size)?;
    let done = stage.ground.count()?;
    for round in 0..ROUNDS {
        match kind {
            Kind::Counters => counters(&stage, round)?,
            Kind::Message | Kind::Tagged => messages(&mut stage, &done, kind, size, round)?,
            _ => remote(&mut stage, &done, kind, size, round)?,
        }
        stage.channel.sync()?;
    }
    stage.channel.finish()
}

/// A counter that sets one and adds to another.
fn counters(stage: &Stage, round: u64) -> anyhow::Result<()> {
    let (gate, set, added) = (
        stage.ground.count()?,
        stage.ground.count()?,
        stage.ground.count()?,
    );
    stage
        .ground
        .count_deferred(&gate, 1, Action::Set(set.cntr(), 100 + round))?;
    stage
        .ground
        .count_deferred(&gate, 2, Action::Add(added.cntr(), 10))?;
    stage
        .ground
        .count_deferred(&gate, 2, Action::Add(added.cntr(), round))?;
    let early = || {
        let all = [set.read(), added.read()];
        anyhow::ensure!(all[1] == 0, "counters that were to wait: {all:?}");
        Ok(all[0])
    };
    anyhow::ensure!(early()? == 0, "a counter was set before its time");
    gate.cntr().add(1);
    set.wait(100 + round)?;
    early()?;
    gate.cntr().add(1);
    added.wait(10 + round)?;
    let all = [set.read(), added.read()];
    match all == [100 + round, 10 + round] {
        true => Ok(()),
        false => Err(wrong(format!("counters that were set off: {all:?}"))),
    }
}

/// A message whose send and receive both wait for a write of ours to the peer.
fn messages(
    stage: &mut Stage,
    done: &Count,
    kind: Kind,
    size: usize,
    round: u64,
) -> anyhow::Result<()> {
    let (mine, theirs) = stamps(stage, round);
    let (end, peer) = (stage.channel.end.clone(), stage.channel.peer);
    mine.write(&stage.local.memory, 0, size);
    stage.local.memory.fill(size, size, POISON);
    let later = Deferred::with_counter(&stage.writes, stage.writes.read() + 1, done);
    let is_tagged = kind == Kind::Tagged;
    let recv = Recv::new(1)
        .tag(is_tagged.then_some(TagMatch::exact(TAG)))
        .flags(OpFlags::empty());
    let send = Send::new(peer, 2)
        .tag(is_tagged.then_some(TAG))
        .flags(OpFlags::empty());
    end.recv_deferred(&[stage.local.segment(size, size)], &recv, &later)?;
    end.send_deferred(&[stage.local.segment(0, size)], &send, &later)?;
    set_off(stage)?;
    done.wait(2 * (round + 1))?;
    theirs.check(&stage.local.memory, size, size)
}

/// A write or an atomic that waits for another write of ours.
fn remote(
    stage: &mut Stage,
    done: &Count,
    kind: Kind,
    size: usize,
    round: u64,
) -> anyhow::Result<()> {
    let (mine, theirs) = stamps(stage, round);
    let end = stage.channel.end.clone();
    mine.write(&stage.local.memory, 0, size);
    stage.shared.memory.put(0, &7_u64.to_ne_bytes());
    stage.channel.sync()?;
    let later = Deferred::with_counter(&stage.writes, stage.writes.read() + 1, done);
    let access = stage.write(OpFlags::DELIVERY_COMPLETE, 3);
    if kind == Kind::Write {
        end.write_deferred(&[stage.local.segment(0, size)], &access, &later)?;
    } else {
        let (family, op) = match kind {
            Kind::Atomic => (Family::Base, AtomicOp::Sum),
            Kind::Fetch => (Family::Fetch, AtomicOp::Sum),
            _ => (Family::Compare, AtomicOp::Cswap),
        };
        let numbers = &stage.local.memory;
        numbers.put(0, &5_u64.to_ne_bytes());
        numbers.put(8, &7_u64.to_ne_bytes());
        let [operand, comparand, result] = [0, 8, 16].map(|at| stage.local.segment(at, 8));
        let call = AtomicCall {
            family,
            datatype: Datatype::Uint64,
            op,
        };
        let parts = AtomicBuffers {
            operand,
            comparand,
            result,
        };
        end.atomic_deferred(call, &parts, &access, &later)?;
    }
    set_off(stage)?;
    done.wait(round + 1)?;
    // The peer's operations need this side's progress, which a barrier beside the fabric is none.
    stage.arrivals.wait(2 * (round + 1))?;
    stage.channel.sync()?;
    if kind == Kind::Write {
        return theirs.check(&stage.shared.memory, 0, size);
    }
    let word = |block: &Block, at| {
        let bytes = block.memory.get(at, 8);
        u64::from_ne_bytes(bytes.try_into().unwrap_or_default())
    };
    let expected = if kind == Kind::Compare { 5 } else { 12 };
    let has = word(&stage.shared, 0);
    anyhow::ensure!(
        has == expected,
        "the peer's atomic left {has}, not {expected}"
    );
    if kind != Kind::Atomic {
        let earlier = word(&stage.local, 16);
        anyhow::ensure!(earlier == 7, "an atomic brought {earlier}, not 7");
    }
    Ok(())
}

/// The write that sets the work off: it goes behind what the work writes to.
fn set_off(stage: &mut Stage) -> anyhow::Result<()> {
    let mut access = stage.write(OpFlags::DEFAULT, 9);
    access.remote.addr += stage.shared.memory.len() as u64 - 8;
    let segment = stage.local.segment(24, 8);
    let end = &stage.channel.end;
    end.push("write", |end| end.write(&[segment], &access))
}

/// What this side sends in a round, and what comes.
fn stamps(stage: &Stage, round: u64) -> (Stamp, Stamp) {
    let of = |is_client| Stamp::of_pair(is_client, round);
    let is_client = stage.channel.is_client();
    (of(is_client), of(!is_client))
}
