//! Remote memory: puts that the other side sees by looking at its memory, and gets of memory that
//! the other side has just written. The target makes no call meanwhile.

#![expect(unsafe_code, reason = "posts are promises about memory")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use anyhow::{Context as _, bail, ensure};
use selvedge::{
    Allocation, CompletionQueue, Context, Desc, Domain, Endpoint, Errno, FiAddr, Iov, IovMut,
    MrAccess, RmaExt, alloc, cq,
};

use super::station::Station;
use super::{Bench, BenchOrder};
use crate::buffer::Pages;
use crate::clock::{Clock, ticks};
use crate::cpu::Idle;
use crate::pair::Side;
use crate::timing::{Counts, Timing, round_trips};

/// Memory of this process that the peer reads and writes: words to agree by, then the data.
#[derive(Debug)]
pub(super) struct Window {
    memory: Arc<dyn Allocation>,
    /// Runs that have begun.
    runs: u64,
}

/// The key of every window.
const KEY: u64 = 7;
/// Where a process finds how many runs its peer has begun, and how many turns it has finished.
const RUNS: usize = 0;
const TURNS: usize = 128;
/// Where the data begins.
const DATA: usize = 4096;
/// Lines of a turn of small gets: more than a prefetcher guesses, and all in the first-level cache of
/// whoever writes them.
pub(crate) const LINES: usize = 256;
/// From one line of a turn to the next; prime to their number.
pub(crate) const STRIDE: usize = 83;

impl Window {
    /// A window for accesses of up to `size` bytes.
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
    let (idle, parts) = (station.idle(), station.remote(order.size)?);
    let mut run = Run {
        ep: parts.ep,
        cq: parts.cq,
        peer: parts.peer,
        window: parts.window,
        buf: Pages::new(order.size.max(8))?,
        size: order.size,
        idle,
    };
    run.agree()?;
    let timing = match (order.bench, order.size) {
        (Bench::RmaPut, _) => run.puts(side, clock, order.counts),
        (_, ..=64) => run.line_gets(side, clock, order.counts),
        _ => run.gets(side, clock, order.counts),
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
        self.tell(RUNS, runs)?;
        while self.window.word(RUNS).load(Ordering::Acquire) < runs {
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

    /// Puts there and back: each side waits until it sees the last byte of the other's.
    fn puts(&mut self, side: Side, clock: Clock, counts: Counts) -> anyhow::Result<Timing> {
        let mut turn = 0_u8;
        self.window
            .byte(DATA + self.size - 1)
            .store(0, Ordering::Relaxed);
        self.agree()?;
        round_trips(clock, counts, || {
            turn = turn % 251 + 1;
            if side == Side::Passive {
                self.see(turn);
            }
            self.put(turn)?;
            if side == Side::Active {
                self.see(turn);
            }
            Ok(())
        })
    }

    #[inline]
    fn see(&self, turn: u8) {
        let last = self.window.byte(DATA + self.size - 1);
        while last.load(Ordering::Acquire) != turn {
            self.idle.rest();
        }
    }

    #[inline]
    fn put(&mut self, turn: u8) -> anyhow::Result<()> {
        self.buf[self.size - 1] = turn;
        let buf = Iov::new(&self.buf[..self.size]);
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

    /// Waits for the operation that was posted.
    #[inline]
    fn complete(&self) -> anyhow::Result<()> {
        let mut entry = [cq::Entry::default()];
        loop {
            match self.cq.read(&mut entry) {
                Ok(0) => {}
                Ok(_) => return Ok(()),
                Err(Errno::Avail) => {
                    let error = self.cq.read_err()?;
                    bail!("an operation failed: {}: {}", error.errno, error.detail)
                }
                Err(errno) => bail!("cannot read completions: {errno}"),
            }
        }
    }

    /// Gets of a size, one after the other.
    fn gets(&mut self, side: Side, clock: Clock, counts: Counts) -> anyhow::Result<Timing> {
        match side {
            Side::Active => round_trips(clock, counts, || self.get(DATA)),
            Side::Passive => Ok(Timing::default()),
        }
    }

    /// Gets from lines that the other side has just written, each line once in a turn.
    fn line_gets(&mut self, side: Side, clock: Clock, counts: Counts) -> anyhow::Result<Timing> {
        let turns = (counts.total() / LINES).max(8) as u64;
        let first = self.window.word(TURNS).load(Ordering::Acquire);
        self.agree()?;
        let mut taken = Vec::new();
        for turn in first + 1..=first + turns {
            match side {
                Side::Active => {
                    self.wait_for(turn);
                    let start = ticks();
                    for line in 0..LINES {
                        self.get(DATA + line * STRIDE % LINES * 64)?;
                    }
                    taken.push(clock.ns(ticks() - start) / LINES as f64);
                    self.tell(TURNS, turn)?;
                }
                Side::Passive => {
                    for line in 0..LINES {
                        self.window
                            .word(DATA + line * 64)
                            .store(turn, Ordering::Release);
                    }
                    self.tell(TURNS, turn)?;
                    self.wait_for(turn);
                }
            }
        }
        Ok(Timing::of(&taken))
    }

    fn wait_for(&self, turn: u64) {
        while self.window.word(TURNS).load(Ordering::Acquire) < turn {
            self.idle.rest();
        }
    }
}
