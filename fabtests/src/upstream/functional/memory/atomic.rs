//! `fi_rdm_atomic`: every operation on every type, timed; with `-v`, on operands whose results
//! distinguish each operation from all others and from a no-op.

use anyhow::{Context as _, bail, ensure};
use selvedge::atomic::{Datatype, Family, Op};
use selvedge::info::EpType;
use selvedge::{Caps, Errno, OpFlags};
use selvedge_testkit::atomics::families;
use selvedge_testkit::domain::{Access, AtomicBuffers, AtomicCall, Block, Remote, SHARED};
use selvedge_testkit::failure::{unsupported, wrong};

use crate::upstream::channel::{Channel, ChannelConfig};
use crate::upstream::data::atomics::{self, encode, expected};
use crate::upstream::data::payload::POISON;
use crate::upstream::data::perf::{Row, Table, measure_iterations};
use crate::upstream::options::Options;
use crate::upstream::setup::discover::{discover, hints};

/// Runs the program.
pub(in crate::upstream) fn rdm_atomic(options: &Options) -> anyhow::Result<()> {
    let ops = match options.operation.as_deref() {
        None | Some("all") => Op::ALL.to_vec(),
        Some(name) => vec![atomics::op(name)?],
    };
    let types = match options.text("z") {
        None | Some("all") => Datatype::ALL.to_vec(),
        Some(name) => vec![atomics::datatype(name)?],
    };
    let caps = Caps::MSG | Caps::ATOMIC;
    let info = discover(options, &hints(options, caps, EpType::Rdm)?)?;
    let mut flags = OpFlags::empty();
    flags.set(OpFlags::DELIVERY_COMPLETE, options.has("U"));
    let config = ChannelConfig {
        flags,
        ..ChannelConfig::default()
    };
    let mut channel = Channel::open(options, info, config)?;
    let domain = channel.domain().clone();
    let shared = domain.memory(CAPACITY, SHARED)?;
    let remote = channel.exchange_keys(&shared.rights)?;
    let mut side = Side {
        local: domain.buffers(4 * CAPACITY)?,
        shared,
        remote,
        channel,
        table: Table::new(options),
    };
    let mut call_count = 0;
    for op in ops {
        for &datatype in &types {
            call_count += side.run(op, datatype)?;
        }
    }
    side.channel.finish()?;
    match call_count {
        0 => Err(unsupported("the provider supports none of these atomics")),
        _ => Ok(()),
    }
}

/// Maximum size of the operands of a call.
const CAPACITY: usize = 1024;
/// Offsets of operands, comparands and results in local memory.
const OPERAND: usize = 0;
const COMPARAND: usize = CAPACITY;
const RESULT: usize = 2 * CAPACITY;

/// One side of the program.
struct Side {
    channel: Channel,
    local: Block,
    shared: Block,
    remote: Remote,
    table: Table,
}

impl Side {
    /// Runs an operation on a type in all its families, and returns their number.
    fn run(&mut self, op: Op, datatype: Datatype) -> anyhow::Result<usize> {
        let mut call_count = 0;
        for &family in families(op) {
            let Some(max_count) = self.limit(family, datatype, op)? else {
                continue;
            };
            let call = AtomicCall {
                family,
                datatype,
                op,
            };
            if self.channel.options.verify {
                let context = || format!("{} in {family:?}", atomics::name(call));
                self.verify(call, max_count).with_context(context)?;
            }
            // Upstream measures each operation in its simplest family alone.
            if family == families(op)[0] {
                self.measure(call)?;
            }
            call_count += 1;
        }
        Ok(call_count)
    }

    /// Returns the maximum number of elements of a call. The endpoint and the domain must agree on
    /// it.
    fn limit(&self, family: Family, datatype: Datatype, op: Op) -> anyhow::Result<Option<usize>> {
        let endpoint = &self.channel.endpoint;
        let valid = endpoint.ep.valid(family, datatype, op);
        let query = endpoint.context.domain().query_atomic(family, datatype, op);
        match (valid, query) {
            (Ok(valid), Ok(query)) => {
                let size = datatype.size();
                ensure!(
                    valid.size == size && query.size == size && valid.count > 0,
                    "{datatype:?} has {size} bytes; the endpoint reports {valid:?}, the domain {query:?}"
                );
                Ok(Some(valid.count))
            }
            (Err(Errno::OpNotSupp | Errno::NoSys), Err(Errno::OpNotSupp | Errno::NoSys)) => {
                Ok(None)
            }
            (valid, query) => bail!("the endpoint reports {valid:?}, the domain {query:?}"),
        }
    }

    fn post(&self, call: AtomicCall, count: usize, flags: OpFlags) -> anyhow::Result<()> {
        let len = count * call.datatype.size();
        let endpoint = &self.channel.endpoint;
        let buffers = AtomicBuffers {
            operand: self.local.segment(OPERAND, len),
            comparand: self.local.segment(COMPARAND, len),
            result: self.local.segment(RESULT, len),
        };
        let access = Access::new(self.channel.peer, self.remote, 0).flags(flags);
        endpoint.push("atomic", |endpoint| {
            endpoint.atomic(call, &buffers, count, &access)
        })?;
        endpoint.tx.next().map(drop)
    }

    fn measure(&mut self, call: AtomicCall) -> anyhow::Result<()> {
        for offset in [OPERAND, COMPARAND] {
            let operand = encode(call.datatype, 2);
            self.local.memory.put(offset, &operand);
        }
        let start = encode(call.datatype, 1);
        self.shared.memory.put(0, &start);
        self.channel.sync()?;
        let options = &self.channel.options;
        let (warmup, count) = (options.warmup, options.iterations.unwrap_or(1000));
        let time = measure_iterations(self, warmup, count, |side| {
            side.post(call, 1, OpFlags::DEFAULT)
        })?;
        self.channel.sync()?;
        let (name, size) = (atomics::name(call), call.datatype.size());
        self.table.print(&Row {
            name: Some(&name),
            size,
            iterations: count,
            transfers: 1,
            time,
        });
        Ok(())
    }

    /// Each side changes the other side's elements, one for each case, and checks its own elements.
    fn verify(&mut self, call: AtomicCall, max_count: usize) -> anyhow::Result<()> {
        let cases = atomics::cases(call.datatype);
        let count = cases.len().min(max_count);
        let size = call.datatype.size();
        let cases = &cases[..count];
        for (index, case) in cases.iter().enumerate() {
            let put = |block: &Block, offset: usize, value: i64| {
                block
                    .memory
                    .put(offset + index * size, &encode(call.datatype, value));
            };
            put(&self.shared, 0, case.target);
            put(&self.local, OPERAND, case.operand);
            put(&self.local, COMPARAND, case.comparand);
        }
        self.local.memory.fill(RESULT, count * size, POISON);
        self.shared.memory.fill(count * size, size, POISON);
        self.channel.sync()?;
        self.post(call, count, OpFlags::DEFAULT | OpFlags::DELIVERY_COMPLETE)?;
        self.channel.sync()?;
        for (index, case) in cases.iter().enumerate() {
            let offset = index * size;
            let found = self.shared.memory.get(offset, size);
            check(call, "the target", &found, expected(call.op, *case))?;
            if call.family != Family::Base {
                let before = self.local.memory.get(RESULT + offset, size);
                check(call, "the result", &before, case.target)?;
            }
        }
        self.shared.memory.check_fill(count * size, size, POISON)?;
        self.channel.sync()
    }
}

fn check(call: AtomicCall, name: &str, found: &[u8], value: i64) -> anyhow::Result<()> {
    let expected_bytes = encode(call.datatype, value);
    let significant = atomics::significant_bytes(call.datatype);
    let bytes = found
        .iter()
        .zip(&expected_bytes)
        .zip(significant.iter().cycle());
    if bytes
        .filter(|(_, significant)| **significant)
        .all(|((found, expected_bytes), _)| found == expected_bytes)
    {
        Ok(())
    } else {
        Err(wrong(format!(
            "{name} is {found:02x?}, expected {value}: {expected_bytes:02x?}"
        )))
    }
}
