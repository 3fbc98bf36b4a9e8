//! Remote memory: the memory that the peer accesses, the synchronisation of both sides, and the
//! posts. The loops are round trips ([`trips`]), single accesses ([`turns`]) and windows
//! ([`streams`]).

#![expect(unsafe_code, reason = "posts are promises about memory")]

mod lines;
mod region;
mod streams;
mod trips;
mod turns;

use std::sync::atomic::Ordering;

use anyhow::{Context as _, bail, ensure};
use selvedge::atomic::{Datatype, Ioc, IocMut, Op, Target};
use selvedge::{
    AtomicExt, CompletionQueue, Context, Desc, Endpoint, Errno, FiAddr, Iov, IovMut, RmaExt, cq,
};

use super::endpoint::BenchEndpoint;
use super::order::{Bench, BenchOrder, stride};
use crate::machine::cpu::Idle;
use crate::measure::buffer::Pages;
use crate::measure::clock::Clock;
use crate::measure::timing::Timing;
use crate::pair::Side;

pub(crate) use lines::{LINES, STRIDE};
pub(super) use region::TargetRegion;
use region::{DATA, KEY};

/// Offset of the [`RUN_WORDS`] counters of runs that the peer has begun. Consecutive runs use the
/// counters in turn.
const RUNS: usize = 0;
/// Number of the counters at [`RUNS`].
const RUN_WORDS: u64 = 8;
/// Offset of the counter of turns that the peer has finished.
const TURNS: usize = 128;
/// Offset of an atomic's result in the local buffer, behind the operand.
const OPERANDS: usize = 32;

pub(super) fn run(
    endpoint: &mut BenchEndpoint,
    side: Side,
    clock: Clock,
    order: BenchOrder,
) -> anyhow::Result<Timing> {
    ensure!(
        !order.verify,
        "{} cannot verify its data: leave out the check",
        order.bench
    );
    let window = if order.bench.is_windowed() {
        order.window
    } else {
        1
    };
    let bytes = window * stride(order.size).max(OPERANDS + 8);
    let inject = order.inject && order.size <= endpoint.inject_size();
    let (idle, resources) = (endpoint.idle(), endpoint.remote_resources(bytes)?);
    let mut run = Run {
        ep: resources.ep,
        cq: resources.cq,
        peer: resources.peer,
        region: resources.region,
        buf: Pages::new(bytes)?,
        size: order.size,
        idle,
    };
    run.synchronise()?;
    let counts = order.counts;
    let timing = match (order.bench, order.size) {
        (Bench::RmaPut, _) => run.puts(side, clock, counts),
        (Bench::RmaWritePingpong, _) => run.writes_with_data(side, clock, counts, inject),
        (Bench::RmaBw, _) => run.put_windows(side, clock, counts, order.window),
        (Bench::RmaReadBw, _) => run.get_windows(side, clock, counts, order.window),
        (Bench::AtomicAdd, _) => run.line_turns(side, clock, counts, Run::add),
        (Bench::AtomicFetchAdd, _) => run.line_turns(side, clock, counts, Run::fetch_add),
        (_, ..=64) => run.line_turns(side, clock, counts, Run::get),
        _ => run.gets(side, clock, counts),
    };
    let timing = timing?;
    run.synchronise()?;
    Ok(timing)
}

struct Run<'a> {
    ep: &'a dyn Endpoint,
    cq: &'a dyn CompletionQueue,
    peer: FiAddr,
    region: &'a mut TargetRegion,
    buf: Pages,
    size: usize,
    idle: Idle,
}

impl Run<'_> {
    /// Synchronises both processes: announces the run to the peer and waits for the peer's
    /// announcement.
    fn synchronise(&mut self) -> anyhow::Result<()> {
        self.region.runs += 1;
        let runs = self.region.runs;
        // Later writes may overtake a write that was posted before the peer was connected and
        // therefore travels as a command. Consecutive runs use different words for this reason.
        let offset = RUNS + 8 * (runs % RUN_WORDS) as usize;
        self.store_remote_word(offset, runs)?;
        while self.region.word(offset).load(Ordering::Acquire) < runs {
            self.cq.read(&mut [])?;
            self.idle.wait_between_calls();
        }
        Ok(())
    }

    /// Stores a word in the peer's region.
    fn store_remote_word(&self, offset: usize, word: u64) -> anyhow::Result<()> {
        loop {
            let result =
                self.ep
                    .inject_write(&word.to_ne_bytes(), self.peer, offset as u64, KEY, None);
            match result {
                Ok(()) => return Ok(()),
                // The peer's key may not have arrived yet.
                Err(Errno::Again | Errno::NoSys) => drop(self.cq.read(&mut [])?),
                Err(errno) => bail!("cannot write to the peer's memory: {errno}"),
            }
        }
    }

    /// Writes the buffer into the peer's data, with `turn` as its last bytes.
    #[inline]
    fn put(&mut self, turn: u8) -> anyhow::Result<()> {
        let bytes = &mut self.buf[..self.size];
        // The last store is as wide as the put's load. A load that partly overlaps a narrower
        // recent store would wait until that store is in the cache, which is not part of a put.
        match bytes.last_chunk_mut() {
            Some(word) => *word = [turn; 8],
            None => bytes[self.size - 1] = turn,
        }
        let buf = Iov::new(bytes);
        // SAFETY: no code accesses the buffer until the completion, for which this function waits.
        let posted = unsafe {
            self.ep
                .write(buf, Desc::NONE, self.peer, DATA as u64, KEY, Context(1))
        };
        posted.context("cannot post a write")?;
        self.wait_for_completion()
    }

    /// Reads `size` bytes from an offset of the peer's region.
    #[inline]
    fn get(&mut self, offset: usize) -> anyhow::Result<()> {
        let buf = IovMut::new(&mut self.buf[..self.size]);
        // SAFETY: as in `put`.
        let posted = unsafe {
            self.ep
                .read(buf, Desc::NONE, self.peer, offset as u64, KEY, Context(1))
        };
        posted.context("cannot post a read")?;
        self.wait_for_completion()
    }

    /// Posts a write of buffer `number` to the same offset of the peer's data.
    #[inline]
    fn post_put(&self, number: usize) -> anyhow::Result<()> {
        let offset = number * stride(self.size);
        let buf = Iov::new(&self.buf[offset..offset + self.size]);
        loop {
            // SAFETY: no code writes the buffer during a run of windows.
            let posted = unsafe {
                let addr = (DATA + offset) as u64;
                self.ep
                    .write(buf, Desc::NONE, self.peer, addr, KEY, Context(1))
            };
            match posted {
                Ok(()) => return Ok(()),
                Err(errno) => self.make_room(errno)?,
            }
        }
    }

    /// Posts a read into buffer `number` from the same offset of the peer's data.
    #[inline]
    fn post_get(&mut self, number: usize) -> anyhow::Result<()> {
        let offset = number * stride(self.size);
        let buf = IovMut::new(&mut self.buf[offset..offset + self.size]);
        loop {
            // SAFETY: no code accesses the buffers of a window until all its completions have been
            // read.
            let posted = unsafe {
                let addr = (DATA + offset) as u64;
                self.ep
                    .read(buf, Desc::NONE, self.peer, addr, KEY, Context(1))
            };
            match posted {
                Ok(()) => return Ok(()),
                Err(errno) => self.make_room(errno)?,
            }
        }
    }

    /// Posts a write with data of the first `size` bytes of the buffer.
    #[inline]
    fn post_data(&self, inject: bool, turn: u64) -> anyhow::Result<()> {
        let bytes = &self.buf[..self.size];
        let addr = DATA as u64;
        loop {
            let posted = if inject {
                self.ep.inject_writedata(bytes, turn, self.peer, addr, KEY)
            } else {
                // SAFETY: no code accesses the buffer until the completion, for which the caller
                // waits.
                unsafe {
                    let buf = Iov::new(bytes);
                    self.ep
                        .writedata(buf, Desc::NONE, turn, self.peer, addr, KEY, Context(1))
                }
            };
            match posted {
                Ok(()) => return Ok(()),
                Err(errno) => self.make_room(errno)?,
            }
        }
    }

    /// Adds one to the peer's word at `offset` and fetches the previous value.
    #[inline]
    fn fetch_add(&mut self, offset: usize) -> anyhow::Result<()> {
        let (operand, result) = self.buf.split_at_mut(OPERANDS);
        let operand = Ioc::from_raw(operand.as_ptr().cast(), 1);
        let result = IocMut::from_raw(result.as_mut_ptr().cast(), 1);
        let (operand, result) = ((operand, Desc::NONE), (result, Desc::NONE));
        // SAFETY: as in `put`, for both halves of the buffer.
        let posted = unsafe {
            self.ep
                .fetch_atomic(operand, result, &self.sum_target(offset), Context(1))
        };
        posted.context("cannot post an atomic")?;
        self.wait_for_completion()
    }

    /// Adds one to the peer's word at `offset`.
    #[inline]
    fn add(&mut self, offset: usize) -> anyhow::Result<()> {
        let operand = Ioc::from_raw(self.buf.as_ptr().cast(), 1);
        // SAFETY: as in `put`.
        let posted = unsafe {
            self.ep
                .atomic(operand, Desc::NONE, &self.sum_target(offset), Context(1))
        };
        posted.context("cannot post an atomic")?;
        self.wait_for_completion()
    }

    fn sum_target(&self, offset: usize) -> Target {
        Target {
            dest: self.peer,
            addr: offset as u64,
            key: KEY,
            datatype: match self.size {
                4 => Datatype::Uint32,
                _ => Datatype::Uint64,
            },
            op: Op::Sum,
        }
    }

    /// Makes progress after a post that failed because the queue was full. Returns any other error.
    #[cold]
    fn make_room(&self, errno: Errno) -> anyhow::Result<()> {
        if errno != Errno::Again {
            bail!("cannot post: {errno}");
        }
        self.cq.read(&mut [])?;
        self.idle.wait_between_calls();
        Ok(())
    }

    /// Waits for the posted operation's completion.
    #[inline]
    fn wait_for_completion(&self) -> anyhow::Result<()> {
        let mut entry = [cq::Entry::default()];
        while self.read_completions(&mut entry)? == 0 {}
        Ok(())
    }

    /// Reads completions and returns their number.
    #[inline]
    fn read_completions(&self, entries: &mut [cq::Entry]) -> anyhow::Result<usize> {
        match self.cq.read(entries) {
            Ok(count) => Ok(count),
            Err(Errno::Avail) => {
                let error = self.cq.read_err()?;
                bail!("an operation failed: {}: {}", error.errno, error.detail)
            }
            Err(errno) => bail!("cannot read completions: {errno}"),
        }
    }
}
