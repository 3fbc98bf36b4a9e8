//! Remote memory: the memory that the peer accesses, the synchronisation of both sides, and the
//! posts. The loops are round trips ([`trips`]), single accesses ([`turns`]) and windows
//! ([`streams`]).

#![expect(unsafe_code, reason = "posts are promises about memory")]

mod streams;
mod trips;
mod turns;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use anyhow::{Context as _, bail, ensure};
use selvedge::atomic::{Datatype, Ioc, IocMut, Op, Target};
use selvedge::{
    Allocation, AtomicExt, CompletionQueue, Context, Desc, Domain, Endpoint, Errno, FiAddr, Iov,
    IovMut, MrAccess, RmaExt, alloc, cq,
};

use super::endpoint::BenchEndpoint;
use super::{Bench, BenchOrder, posting};
use crate::buffer::Pages;
use crate::clock::Clock;
use crate::cpu::Idle;
use crate::pair::Side;
use crate::timing::Timing;

/// Memory of this process that the peer reads and writes: words for synchronisation, then the data.
#[derive(Debug)]
pub(super) struct TargetRegion {
    memory: Arc<dyn Allocation>,
    /// Number of runs that have begun.
    runs: u64,
}

/// The key of every region.
const KEY: u64 = 7;
/// Offset of the counters of runs that the peer has begun; consecutive runs use the [`RUN_WORDS`]
/// words in turn.
const RUNS: usize = 0;
/// Number of these counters.
const RUN_WORDS: u64 = 8;
/// Offset of the counter of turns that the peer has finished.
const TURNS: usize = 128;
/// Offset of an atomic's result in the local buffer, behind the operand.
const OPERANDS: usize = 32;
/// Offset of the data.
const DATA: usize = 4096;
/// Lines of a turn of small gets: more than a prefetcher guesses, and few enough for the
/// first-level cache of the process that writes them.
pub(crate) const LINES: usize = 256;
/// From one line of a turn to the next; prime to their number.
pub(crate) const STRIDE: usize = 83;

impl TargetRegion {
    /// Allocates a region for accesses of up to `size` bytes in all.
    pub(super) fn new(domain: &dyn Domain, size: usize) -> anyhow::Result<Self> {
        let access = MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE;
        let attr = alloc::Attr::new(access).with_key(KEY);
        let len = DATA + size.max(64 * LINES);
        let memory = domain
            .alloc(len, &attr)
            .context("cannot allocate memory for the peer")?;
        Ok(Self { memory, runs: 0 })
    }

    /// Whether there is room for accesses of `size` bytes.
    pub(super) fn fits(&self, size: usize) -> bool {
        DATA + size <= self.memory.len()
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.memory.len());
        let word = self.memory.base().wrapping_add(at).cast();
        // SAFETY: inside of memory that lives as long as `self`, aligned, and used by atomics alone.
        unsafe { AtomicU64::from_ptr(word) }
    }

    fn byte(&self, at: usize) -> &AtomicU8 {
        assert!(at < self.memory.len());
        let byte = self.memory.base().wrapping_add(at);
        // SAFETY: as in `word`.
        unsafe { AtomicU8::from_ptr(byte) }
    }
}

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
    let bytes = window * posting::stride(order.size).max(OPERANDS + 8);
    let inject = order.inject && order.size <= endpoint.inject_size();
    let (idle, parts) = (endpoint.idle(), endpoint.remote(bytes)?);
    let mut run = Run {
        ep: parts.ep,
        cq: parts.cq,
        peer: parts.peer,
        region: parts.region,
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
    /// Synchronises both processes: announces this one and waits for the peer.
    fn synchronise(&mut self) -> anyhow::Result<()> {
        self.region.runs += 1;
        let runs = self.region.runs;
        // A write that was posted before the peer was connected travels as a command, and later
        // writes overtake it. Each run therefore has its own word until that can no longer happen.
        let at = RUNS + 8 * (runs % RUN_WORDS) as usize;
        self.store_remote_word(at, runs)?;
        while self.region.word(at).load(Ordering::Acquire) < runs {
            self.cq.read(&mut [])?;
            self.idle.rest();
        }
        Ok(())
    }

    /// Stores a word in the peer's region.
    fn store_remote_word(&self, at: usize, word: u64) -> anyhow::Result<()> {
        loop {
            let result = self
                .ep
                .inject_write(&word.to_ne_bytes(), self.peer, at as u64, KEY, None);
            match result {
                Ok(()) => return Ok(()),
                // The peer's key may not have arrived yet.
                Err(Errno::Again | Errno::NoSys) => drop(self.cq.read(&mut [])?),
                Err(errno) => bail!("cannot write to the peer's memory: {errno}"),
            }
        }
    }

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
        self.complete()
    }

    #[inline]
    fn get(&mut self, at: usize) -> anyhow::Result<()> {
        let buf = IovMut::new(&mut self.buf[..self.size]);
        // SAFETY: as in `put`.
        let posted = unsafe {
            self.ep
                .read(buf, Desc::NONE, self.peer, at as u64, KEY, Context(1))
        };
        posted.context("cannot post a read")?;
        self.complete()
    }

    /// Posts a write of buffer `number` to the same offset of the peer's data.
    #[inline]
    fn post_put(&self, number: usize) -> anyhow::Result<()> {
        let at = number * posting::stride(self.size);
        let buf = Iov::new(&self.buf[at..at + self.size]);
        loop {
            // SAFETY: no code writes the buffer during a run of windows.
            let posted = unsafe {
                let addr = (DATA + at) as u64;
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
        let at = number * posting::stride(self.size);
        let buf = IovMut::new(&mut self.buf[at..at + self.size]);
        loop {
            // SAFETY: no code accesses the buffers of a window until all its completions have been
            // read.
            let posted = unsafe {
                let addr = (DATA + at) as u64;
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
            let posted = match inject {
                true => self.ep.inject_writedata(bytes, turn, self.peer, addr, KEY),
                // SAFETY: no code accesses the buffer until the completion, for which the caller
                // waits.
                false => unsafe {
                    let buf = Iov::new(bytes);
                    self.ep
                        .writedata(buf, Desc::NONE, turn, self.peer, addr, KEY, Context(1))
                },
            };
            match posted {
                Ok(()) => return Ok(()),
                Err(errno) => self.make_room(errno)?,
            }
        }
    }

    /// Adds one to the word at an offset and fetches its previous value.
    #[inline]
    fn fetch_add(&mut self, at: usize) -> anyhow::Result<()> {
        let (operand, result) = self.buf.split_at_mut(OPERANDS);
        let operand = Ioc::from_raw(operand.as_ptr().cast(), 1);
        let result = IocMut::from_raw(result.as_mut_ptr().cast(), 1);
        let (operand, result) = ((operand, Desc::NONE), (result, Desc::NONE));
        // SAFETY: as in `put`, for both halves of the buffer.
        let posted = unsafe {
            self.ep
                .fetch_atomic(operand, result, &self.sum(at), Context(1))
        };
        posted.context("cannot post an atomic")?;
        self.complete()
    }

    /// Adds one to the word at an offset.
    #[inline]
    fn add(&mut self, at: usize) -> anyhow::Result<()> {
        let operand = Ioc::from_raw(self.buf.as_ptr().cast(), 1);
        // SAFETY: as in `put`.
        let posted = unsafe {
            self.ep
                .atomic(operand, Desc::NONE, &self.sum(at), Context(1))
        };
        posted.context("cannot post an atomic")?;
        self.complete()
    }

    fn sum(&self, at: usize) -> Target {
        Target {
            dest: self.peer,
            addr: at as u64,
            key: KEY,
            datatype: match self.size {
                4 => Datatype::Uint32,
                _ => Datatype::Uint64,
            },
            op: Op::Sum,
        }
    }

    /// Makes progress after a post found the queue full; passes any other error on.
    #[cold]
    fn make_room(&self, errno: Errno) -> anyhow::Result<()> {
        if errno != Errno::Again {
            bail!("cannot post: {errno}");
        }
        self.cq.read(&mut [])?;
        self.idle.rest();
        Ok(())
    }

    /// Waits for the posted operation's completion.
    #[inline]
    fn complete(&self) -> anyhow::Result<()> {
        let mut entry = [cq::Entry::default()];
        while self.completed(&mut entry)? == 0 {}
        Ok(())
    }

    /// Reads completions and returns their number.
    #[inline]
    fn completed(&self, entries: &mut [cq::Entry]) -> anyhow::Result<usize> {
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
