//! `fi_rdm_rma_trigger` and `fi_rdm_deferred_wq`: operations that wait for the threshold of a
//! counter.

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

use crate::upstream::channel::{Channel, ChannelConfig};
use crate::upstream::data::payload::{POISON, Stamp};
use crate::upstream::functional::{option_set, with_out_of_band};
use crate::upstream::options::{OptionSet, Options};
use crate::upstream::setup::discover::{discover, hints};
use crate::upstream::setup::domain;

/// The options of the program; `-T` names the kind of deferred operation.
pub(in crate::upstream) const DEFERRED: OptionSet = option_set("T:a");

const CAPS: Caps = Caps::MSG
    .union(Caps::TAGGED)
    .union(Caps::RMA)
    .union(Caps::RMA_EVENT)
    .union(Caps::TRIGGER);

/// A channel with counters, local memory, and memory shared with the peer.
struct Setup {
    domain: Arc<DomainContext>,
    channel: Channel,
    /// Counts the local writes.
    writes: Count,
    /// Counts all accesses of the peer.
    remote_accesses: Count,
    local: Block,
    shared: Block,
    remote: Remote,
}

impl Setup {
    fn open(options: &Options, caps: Caps, size: usize) -> anyhow::Result<Self> {
        let info = discover(options, &hints(options, caps, EpType::Rdm)?)?;
        let domain = domain::open(options, info)?;
        let (writes, remote_accesses) = (domain.count()?, domain.count()?);
        let config = ChannelConfig {
            // Control messages are tagged, because untagged messages are deferred.
            tagged: true,
            counters: true,
            ..ChannelConfig::default()
        };
        let bind = |counters: &mut Counters| {
            counters.write = Some(Arc::clone(writes.cntr()));
            counters.remote_write = Some(Arc::clone(remote_accesses.cntr()));
            counters.remote_read = Some(Arc::clone(remote_accesses.cntr()));
        };
        let mut channel = Channel::with_counters(options, &domain, config, bind)?;
        let (local, shared) = (domain.buffers(2 * size)?, domain.memory(2 * size, SHARED)?);
        shared.memory.fill(0, 2 * size, POISON);
        let remote = channel.exchange_keys(&shared.rights)?;
        Ok(Self {
            domain,
            channel,
            writes,
            remote_accesses,
            local,
            shared,
            remote,
        })
    }

    fn access(&self, flags: OpFlags, context: u64) -> Access {
        Access::new(self.channel.peer, self.remote, context).flags(flags)
    }
}

/// Runs the program: the write that is posted first waits for the write that is posted second.
pub(in crate::upstream) fn rdm_rma_trigger(options: &Options) -> anyhow::Result<()> {
    let size = options.sizes.one().unwrap_or(1000);
    let mut setup = Setup::open(&with_out_of_band(options, true), CAPS, size)?;
    let (first, second) = (Stamp::of_pair(true, 0), Stamp::of_pair(true, 1));
    if setup.channel.is_client() {
        first.write(&setup.local.memory, 0, size);
        second.write(&setup.local.memory, size, size);
        println!("Triggered RMA write to server");
        let deferral = Deferred::triggered(&setup.writes, setup.writes.read() + 1);
        let deferred_segment = setup.local.segment(size, size);
        let endpoint = &setup.channel.endpoint;
        endpoint.write_deferred(
            &[deferred_segment],
            &setup.access(OpFlags::DEFAULT, 2),
            &deferral,
        )?;
        println!("RMA write to server");
        let access = setup.access(OpFlags::DEFAULT, 1);
        let trigger_segment = setup.local.segment(0, size);
        endpoint.push("write", |endpoint| {
            endpoint.write(&[trigger_segment], &access)
        })?;
        setup.writes.wait(2)?;
    } else {
        setup.remote_accesses.wait(2)?;
        println!("Received data from Client: both writes");
        second.check(&setup.shared.memory, 0, size)?;
    }
    setup.channel.finish()
}

/// The kind of deferred operation.
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
    fn from_options(options: &Options) -> anyhow::Result<Self> {
        Ok(match options.text("T") {
            None => Self::Counters,
            Some("msg") => Self::Message,
            Some("tagged") => Self::Tagged,
            Some("rma") => Self::Write,
            Some("atomic") => Self::Atomic,
            Some("f_atomic") => Self::Fetch,
            Some("c_atomic") => Self::Compare,
            Some(other) => anyhow::bail!(
                "-T {other}: unknown kind of deferred operation; use msg, tagged, rma, atomic, f_atomic or c_atomic"
            ),
        })
    }

    fn caps(self) -> Caps {
        match self {
            Self::Atomic | Self::Fetch | Self::Compare => CAPS | Caps::ATOMIC,
            _ => CAPS,
        }
    }
}

/// The number of rounds of each kind.
const ROUNDS: u64 = 5;
const TAG: u64 = 0xcafe;

/// Runs the program.
pub(in crate::upstream) fn rdm_deferred_wq(options: &Options) -> anyhow::Result<()> {
    let size = options.sizes.one().unwrap_or(1000).max(32);
    let kind = Kind::from_options(options)?;
    let mut setup = Setup::open(&with_out_of_band(options, true), kind.caps(), size)?;
    let completed = setup.domain.count()?;
    for round in 0..ROUNDS {
        match kind {
            Kind::Counters => defer_counters(&setup, round)?,
            Kind::Message | Kind::Tagged => {
                defer_messages(&mut setup, &completed, kind, size, round)?
            }
            _ => defer_remote_access(&mut setup, &completed, kind, size, round)?,
        }
        setup.channel.sync()?;
    }
    setup.channel.finish()
}

/// Defers a counter operation that sets one counter, and operations that add to another.
fn defer_counters(setup: &Setup, round: u64) -> anyhow::Result<()> {
    let (trigger, set, added) = (
        setup.domain.count()?,
        setup.domain.count()?,
        setup.domain.count()?,
    );
    setup
        .domain
        .count_deferred(&trigger, 1, Action::Set(set.cntr(), 100 + round))?;
    setup
        .domain
        .count_deferred(&trigger, 2, Action::Add(added.cntr(), 10))?;
    setup
        .domain
        .count_deferred(&trigger, 2, Action::Add(added.cntr(), round))?;
    let check_waiting = || {
        let values = [set.read(), added.read()];
        anyhow::ensure!(
            values[1] == 0,
            "a deferred counter operation ran before its threshold: {values:?}"
        );
        Ok(values[0])
    };
    anyhow::ensure!(
        check_waiting()? == 0,
        "a counter was set before the threshold was reached"
    );
    trigger.cntr().add(1);
    set.wait(100 + round)?;
    check_waiting()?;
    trigger.cntr().add(1);
    added.wait(10 + round)?;
    let values = [set.read(), added.read()];
    if values == [100 + round, 10 + round] {
        Ok(())
    } else {
        Err(wrong(format!(
            "the triggered counters are {values:?}, expected {:?}",
            [100 + round, 10 + round]
        )))
    }
}

/// Defers a send and a receive until a local write to the peer completes.
fn defer_messages(
    setup: &mut Setup,
    completed: &Count,
    kind: Kind,
    size: usize,
    round: u64,
) -> anyhow::Result<()> {
    let (local_stamp, peer_stamp) = stamps(setup, round);
    let (endpoint, peer) = (setup.channel.endpoint.clone(), setup.channel.peer);
    local_stamp.write(&setup.local.memory, 0, size);
    setup.local.memory.fill(size, size, POISON);
    let deferral = Deferred::with_counter(&setup.writes, setup.writes.read() + 1, completed);
    let is_tagged = kind == Kind::Tagged;
    let recv = Recv::new(1)
        .tag(is_tagged.then_some(TagMatch::exact(TAG)))
        .flags(OpFlags::empty());
    let send = Send::new(peer, 2)
        .tag(is_tagged.then_some(TAG))
        .flags(OpFlags::empty());
    endpoint.recv_deferred(&[setup.local.segment(size, size)], &recv, &deferral)?;
    endpoint.send_deferred(&[setup.local.segment(0, size)], &send, &deferral)?;
    post_trigger(setup)?;
    completed.wait(2 * (round + 1))?;
    peer_stamp.check(&setup.local.memory, size, size)
}

/// Defers a write or an atomic until another local write completes.
fn defer_remote_access(
    setup: &mut Setup,
    completed: &Count,
    kind: Kind,
    size: usize,
    round: u64,
) -> anyhow::Result<()> {
    let (local_stamp, peer_stamp) = stamps(setup, round);
    let endpoint = setup.channel.endpoint.clone();
    local_stamp.write(&setup.local.memory, 0, size);
    setup.shared.memory.put(0, &7_u64.to_ne_bytes());
    setup.channel.sync()?;
    let deferral = Deferred::with_counter(&setup.writes, setup.writes.read() + 1, completed);
    let access = setup.access(OpFlags::DELIVERY_COMPLETE, 3);
    if kind == Kind::Write {
        endpoint.write_deferred(&[setup.local.segment(0, size)], &access, &deferral)?;
    } else {
        let (family, op) = match kind {
            Kind::Atomic => (Family::Base, AtomicOp::Sum),
            Kind::Fetch => (Family::Fetch, AtomicOp::Sum),
            _ => (Family::Compare, AtomicOp::Cswap),
        };
        let operands = &setup.local.memory;
        operands.put(0, &5_u64.to_ne_bytes());
        operands.put(8, &7_u64.to_ne_bytes());
        let [operand, comparand, result] = [0, 8, 16].map(|offset| setup.local.segment(offset, 8));
        let call = AtomicCall {
            family,
            datatype: Datatype::Uint64,
            op,
        };
        let buffers = AtomicBuffers {
            operand,
            comparand,
            result,
        };
        endpoint.atomic_deferred(call, &buffers, &access, &deferral)?;
    }
    post_trigger(setup)?;
    completed.wait(round + 1)?;
    // The peer's operations need progress in this process, which an out-of-band barrier does not
    // make.
    setup.remote_accesses.wait(2 * (round + 1))?;
    setup.channel.sync()?;
    if kind == Kind::Write {
        return peer_stamp.check(&setup.shared.memory, 0, size);
    }
    let word_at = |block: &Block, offset| {
        let bytes = block.memory.get(offset, 8);
        u64::from_ne_bytes(bytes.try_into().unwrap_or_default())
    };
    let expected = if kind == Kind::Compare { 5 } else { 12 };
    let value = word_at(&setup.shared, 0);
    anyhow::ensure!(
        value == expected,
        "the target of the peer's atomic holds {value}, expected {expected}"
    );
    if kind != Kind::Atomic {
        let earlier = word_at(&setup.local, 16);
        anyhow::ensure!(
            earlier == 7,
            "the fetching atomic returned {earlier}, expected 7"
        );
    }
    Ok(())
}

/// Posts the write that triggers the deferred operations. The target of the write follows the
/// memory that the deferred operations use.
fn post_trigger(setup: &mut Setup) -> anyhow::Result<()> {
    let mut access = setup.access(OpFlags::DEFAULT, 9);
    access.remote.addr += setup.shared.memory.len() as u64 - 8;
    let segment = setup.local.segment(24, 8);
    let endpoint = &setup.channel.endpoint;
    endpoint.push("write", |endpoint| endpoint.write(&[segment], &access))
}

/// Returns the stamps of the messages that this side and the peer send in a round.
fn stamps(setup: &Setup, round: u64) -> (Stamp, Stamp) {
    let stamp = |is_client| Stamp::of_pair(is_client, round);
    let is_client = setup.channel.is_client();
    (stamp(is_client), stamp(!is_client))
}
