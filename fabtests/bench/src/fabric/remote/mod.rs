//! Remote memory: what both sides agree by, and the posts. The loops are beside: there and back
//! ([`trips`]), one after the other ([`turns`]), and windows ([`streams`]).

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

use super::station::Station;
use super::{Bench, BenchOrder, wire};
use crate::buffer::Pages;
use crate::clock::Clock;
use crate::cpu::Idle;
use crate::pair::Side;
use crate::timing::Timing;

/// Memory of this process that the peer reads and writes: words to agree by, then the data.
#[derive(Debug)]
pub(super) struct Window {
    memory: Arc<dyn Allocation>,
    /// Runs that have begun.
    runs: u64,
}

/// The key of every window.
const KEY: u64 = 7;
/// Where a process finds how many runs its peer has begun, by turns in so many words, and how many
/// turns it has finished.
const RUNS: usize = 0;
const RUN_WORDS: u64 = 8;
const TURNS: usize = 128;
/// Where the result of an atomic lies in the own buffer, behind the operand.
const OPERANDS: usize = 32;
/// Where the data begins.
const DATA: usize = 4096;
/// Lines of a turn of small gets: more than a prefetcher guesses, and all in the first-level cache of
/// whoever writes them.
pub(crate) const LINES: usize = 256;
/// From one line of a turn to the next; prime to their number.
pub(crate) const STRIDE: usize = 83;

impl Window {
    /// A window for accesses of up to `size` bytes in all.
    pub(super) fn new(domain: &dyn Domain, size: usize) -> anyhow::Result<Self> {
        let access = MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE;
        let attr = alloc::Attr::new(access).with_key(KEY);
        let len = DATA + size.max(64 * LINES);
        let memory = domain.alloc(len, &attr).context("no memory for peers")?;
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
    station: &mut Station,
    side: Side,
    clock: Clock,
    order: BenchOrder,
) -> anyhow::Result<Timing> {
    ensure!(
        !order.verify,
        "{} does not check what it moves",
        order.bench
    );
    let window = if order.bench.is_windowed() {
        order.window
    } else {
        1
    };
    let bytes = window * wire::stride(order.size).max(OPERANDS + 8);
    let inject = order.inject && order.size <= station.inject_size();
    let (idle, parts) = (station.idle(), station.remote(bytes)?);
    let mut run = Run {
        ep: parts.ep,
        cq: parts.cq,
        peer: parts.peer,
        window: parts.window,
        buf: Pages::new(bytes)?,
        size: order.size,
        idle,
    };
    run.agree()?;
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
    run.agree()?;
    Ok(timing)
}

struct Run<'a> {
    ep: &'a dyn Endpoint,
    cq: &'a dyn CompletionQueue,
    peer: FiAddr,
    window: &'a mut Window,
    buf: Pages,
    size: usize,
    idle: Idle,
}

impl Run<'_> {
    /// Tells the peer that this process is here, and waits until it is, too.
    fn agree(&mut self) -> anyhow::Result<()> {
        self.window.runs += 1;
        let runs = self.window.runs;
        // What was posted before the peer was known goes as a command, and later writes overtake
        // it: each has a word of its own for as long as that may last.
        let at = RUNS + 8 * (runs % RUN_WORDS) as usize;
        self.tell(at, runs)?;
        while self.window.word(at).load(Ordering::Acquire) < runs {
            self.cq.read(&mut [])?;
            self.idle.rest();
        }
        Ok(())
    }

    /// Stores a word in the peer's window.
    fn tell(&self, at: usize, word: u64) -> anyhow::Result<()> {
        loop {
            let told = self
                .ep
                .inject_write(&word.to_ne_bytes(), self.peer, at as u64, KEY, None);
            match told {
                Ok(()) => return Ok(()),
                // The peer may not have said yet what memory it has.
                Err(Errno::Again | Errno::NoSys) => drop(self.cq.read(&mut [])?),
                Err(errno) => bail!("cannot write to the peer's memory: {errno}"),
            }
        }
    }

    #[inline]
    fn put(&mut self, turn: u8) -> anyhow::Result<()> {
        let bytes = &mut self.buf[..self.size];
        // As wide as small puts read it: a load that a narrower store has just changed a part of waits
        // until that is in the cache, which is nothing that a put does.
        match bytes.last_chunk_mut() {
            Some(word) => *word = [turn; 8],
            None => bytes[self.size - 1] = turn,
        }
        let buf = Iov::new(bytes);
        // SAFETY: the buffer is left alone until the completion, which this function waits for.
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

    /// Posts a write of buffer `number` to the place of the same number.
    #[inline]
    fn post_put(&self, number: usize) -> anyhow::Result<()> {
        let at = number * wire::stride(self.size);
        let buf = Iov::new(&self.buf[at..at + self.size]);
        loop {
            // SAFETY: nobody writes the buffer: a run of windows only reads it.
            let posted = unsafe {
                let addr = (DATA + at) as u64;
                self.ep
                    .write(buf, Desc::NONE, self.peer, addr, KEY, Context(1))
            };
            match posted {
                Ok(()) => return Ok(()),
                Err(errno) => self.ease(errno)?,
            }
        }
    }

    /// Posts a read into buffer `number` from the place of the same number.
    #[inline]
    fn post_get(&mut self, number: usize) -> anyhow::Result<()> {
        let at = number * wire::stride(self.size);
        let buf = IovMut::new(&mut self.buf[at..at + self.size]);
        loop {
            // SAFETY: the buffers of a window are left alone until all its completions were read.
            let posted = unsafe {
                let addr = (DATA + at) as u64;
                self.ep
                    .read(buf, Desc::NONE, self.peer, addr, KEY, Context(1))
            };
            match posted {
                Ok(()) => return Ok(()),
                Err(errno) => self.ease(errno)?,
            }
        }
    }

    /// Posts a write with data, of the first bytes of the buffer.
    #[inline]
    fn post_data(&self, inject: bool, turn: u64) -> anyhow::Result<()> {
        let bytes = &self.buf[..self.size];
        let addr = DATA as u64;
        loop {
            let posted = match inject {
                true => self.ep.inject_writedata(bytes, turn, self.peer, addr, KEY),
                // SAFETY: the buffer is left alone until the completion, which is waited for.
                false => unsafe {
                    let buf = Iov::new(bytes);
                    self.ep
                        .writedata(buf, Desc::NONE, turn, self.peer, addr, KEY, Context(1))
                },
            };
            match posted {
                Ok(()) => return Ok(()),
                Err(errno) => self.ease(errno)?,
            }
        }
    }

    /// Adds one to the word at a place, and gets what it was.
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

    /// Adds one to the word at a place.
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

    /// Makes room after a post that found none; any other error stands.
    #[cold]
    fn ease(&self, errno: Errno) -> anyhow::Result<()> {
        if errno != Errno::Again {
            bail!("cannot post: {errno}");
        }
        self.cq.read(&mut [])?;
        self.idle.rest();
        Ok(())
    }

    /// Waits for the operation that was posted.
    #[inline]
    fn complete(&self) -> anyhow::Result<()> {
        let mut entry = [cq::Entry::default()];
        while self.completed(&mut entry)? == 0 {}
        Ok(())
    }

    /// Reads what is complete.
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
