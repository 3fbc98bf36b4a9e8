//! `fi_rdm_atomic`: every operation on every type, timed; with `-v` on operands whose results tell
//! each operation from all others and from none.

use anyhow::{Context as _, bail, ensure};
use selvedge::atomic::{Datatype, Family, Op};
use selvedge::info::EpType;
use selvedge::{Caps, Errno, OpFlags};
use selvedge_testkit::atomics::families;
use selvedge_testkit::domain::{Access, AtomicBuffers, AtomicCall, Block, Remote, SHARED};
use selvedge_testkit::failure::{unsupported, wrong};

use crate::upstream::atomics::{self, encode, expected};
use crate::upstream::channel::{Channel, Manners};
use crate::upstream::discover::{discover, hints};
use crate::upstream::options::Options;
use crate::upstream::payload::POISON;
use crate::upstream::perf::{Row, Table, timed};

/// The program.
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
    let manners = Manners {
        flags,
        ..Manners::default()
    };
    let mut channel = Channel::open(options, info, manners)?;
    let ground = channel.ground().clone();
    let shared = ground.memory(ROOM, SHARED)?;
    let remote = channel.exchange_keys(&shared.rights)?;
    let mut side = Side {
        local: ground.buffers(4 * ROOM)?,
        shared,
        remote,
        channel,
        table: Table::new(options),
    };
    let mut done = 0;
    for op in ops {
        for &datatype in &types {
            done += side.run(op, datatype)?;
        }
    }
    side.channel.finish()?;
    match done {
        0 => Err(unsupported("the provider has none of these atomics")),
        _ => Ok(()),
    }
}

/// Room for the operands of a call.
const ROOM: usize = 1024;
/// Where operands, comparands and results lie.
const OPERAND: usize = 0;
const COMPARAND: usize = ROOM;
const RESULT: usize = 2 * ROOM;

struct Side {
    channel: Channel,
    local: Block,
    shared: Block,
    remote: Remote,
    table: Table,
}

impl Side {
    /// Runs an operation on a type in the families that it is in; says in how many.
    fn run(&mut self, op: Op, datatype: Datatype) -> anyhow::Result<usize> {
        let mut done = 0;
        for &family in families(op) {
            let Some(most) = self.limit(family, datatype, op)? else {
                continue;
            };
            let call = AtomicCall {
                family,
                datatype,
                op,
            };
            if self.channel.options.verify {
                let what = || format!("{} in {family:?}", atomics::name(call));
                self.verify(call, most).with_context(what)?;
            }
            // Upstream measures each operation in its simplest family alone.
            if family == families(op)[0] {
                self.measure(call)?;
            }
            done += 1;
        }
        Ok(done)
    }

    /// The most elements of a call; endpoint and domain have to agree.
    fn limit(&self, family: Family, datatype: Datatype, op: Op) -> anyhow::Result<Option<usize>> {
        let end = &self.channel.end;
        let valid = end.ep.valid(family, datatype, op);
        let query = end.context.domain().query_atomic(family, datatype, op);
        match (valid, query) {
            (Ok(valid), Ok(query)) => {
                let size = datatype.size();
                ensure!(
                    valid.size == size && query.size == size && valid.count > 0,
                    "{datatype:?} has {size} bytes, but {valid:?} and {query:?}"
                );
                Ok(Some(valid.count))
            }
            (Err(Errno::OpNotSupp | Errno::NoSys), Err(Errno::OpNotSupp | Errno::NoSys)) => {
                Ok(None)
            }
            (valid, query) => bail!("the endpoint says {valid:?}, the domain {query:?}"),
        }
    }

    fn post(&self, call: AtomicCall, count: usize, flags: OpFlags) -> anyhow::Result<()> {
        let len = count * call.datatype.size();
        let end = &self.channel.end;
        let parts = AtomicBuffers {
            operand: self.local.segment(OPERAND, len),
            comparand: self.local.segment(COMPARAND, len),
            result: self.local.segment(RESULT, len),
        };
        let access = Access::new(self.channel.peer, self.remote, 0).flags(flags);
        end.push("atomic", |end| end.atomic(call, &parts, count, &access))?;
        end.tx.next().map(drop)
    }

    fn measure(&mut self, call: AtomicCall) -> anyhow::Result<()> {
        for at in [OPERAND, COMPARAND] {
            let operand = encode(call.datatype, 2);
            self.local.memory.put(at, &operand);
        }
        let start = encode(call.datatype, 1);
        self.shared.memory.put(0, &start);
        self.channel.sync()?;
        let options = &self.channel.options;
        let (warmup, count) = (options.warmup, options.iterations.unwrap_or(1000));
        let time = timed(self, warmup, count, |side| {
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

    /// Both sides change the other's elements, one for each case, and look at what became of theirs.
    fn verify(&mut self, call: AtomicCall, most: usize) -> anyhow::Result<()> {
        let cases = atomics::cases(call.datatype);
        let count = cases.len().min(most);
        let size = call.datatype.size();
        let cases = &cases[..count];
        for (at, case) in cases.iter().enumerate() {
            let put = |block: &Block, place: usize, value: i64| {
                block
                    .memory
                    .put(place + at * size, &encode(call.datatype, value));
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
        for (at, case) in cases.iter().enumerate() {
            let place = at * size;
            let now = self.shared.memory.get(place, size);
            check(call, "the target", &now, expected(call.op, *case))?;
            if call.family != Family::Base {
                let before = self.local.memory.get(RESULT + place, size);
                check(call, "the result", &before, case.target)?;
            }
        }
        self.shared.memory.check_fill(count * size, size, POISON)?;
        self.channel.sync()
    }
}

fn check(call: AtomicCall, what: &str, has: &[u8], value: i64) -> anyhow::Result<()> {
    let wants = encode(call.datatype, value);
    let counts = atomics::bytes_that_count(call.datatype);
    let same = has.iter().zip(&wants).zip(counts.iter().cycle());
    match same
        .filter(|(_, counts)| **counts)
        .all(|((has, wants), _)| has == wants)
    {
        true => Ok(()),
        false => Err(wrong(format!(
            "{what} is {has:02x?}, expected {value}: {wants:02x?}"
        ))),
    }
}
