//! Remote memory access: bandwidth, round trips, and time until the local completion.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use selvedge::cq::Entry;
use selvedge::info::EpType;
use selvedge::{Caps, CompletionFlags, Mode, OpFlags};
use selvedge_testkit::domain::{Access, Block, Remote, SHARED};
use selvedge_testkit::failure::{unsupported, wrong};

use super::open;
use crate::upstream::channel::{Channel, ChannelConfig};
use crate::upstream::data::payload::Stamp;
use crate::upstream::data::perf::{Row, Table, count};
use crate::upstream::options::Options;

/// The operation of option `-o`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Write,
    Read,
    WriteData,
}

/// Maximum number of bytes of a window.
const MAX_WINDOW_BYTES: usize = 64 << 20;
/// Bytes of an acknowledgement.
const ACK_LEN: usize = 4;

/// `fi_rma_bw`.
pub(in crate::upstream) fn rma_bw(options: &Options) -> anyhow::Result<()> {
    run_all(options, RmaBench::bandwidth)
}

/// `fi_rma_pingpong`.
pub(in crate::upstream) fn rma_pingpong(options: &Options) -> anyhow::Result<()> {
    run_all(options, RmaBench::round_trips)
}

/// `fi_rma_tx_completion`.
pub(in crate::upstream) fn rma_tx_completion(options: &Options) -> anyhow::Result<()> {
    ensure!(
        kind(options)? != Kind::Read,
        "-o read: {} has write, writedata",
        options.program
    );
    run_all(options, RmaBench::completions)
}

fn kind(options: &Options) -> anyhow::Result<Kind> {
    Ok(
        match options.operation_of(&["write", "read", "writedata"])? {
            "read" => Kind::Read,
            "writedata" => Kind::WriteData,
            _ => Kind::Write,
        },
    )
}

/// One side of a benchmark: its channel, local memory, and memory for the peer.
struct RmaBench {
    channel: Channel,
    kind: Kind,
    local: Block,
    shared: Block,
    remote: Remote,
    slots: usize,
    flags: OpFlags,
    posted: u64,
    completed: u64,
    /// Whether only the client posts operations.
    is_one_sided: bool,
    /// Number of operations so far, including the peer's.
    operations: u64,
}

fn run_all(
    options: &Options,
    run: fn(&mut RmaBench, usize) -> anyhow::Result<Row<'static>>,
) -> anyhow::Result<()> {
    let kind = kind(options)?;
    let (mut channel, sizes) = open(
        options,
        Caps::MSG | Caps::RMA,
        EpType::Rdm,
        ChannelConfig::default(),
    )?;
    if kind == Kind::WriteData && channel.domain().info().mode.contains(Mode::RX_CQ_DATA) {
        return Err(unsupported(
            "remote data needs posted receives (FI_RX_CQ_DATA)",
        ));
    }
    let largest = sizes.iter().copied().max().unwrap_or(0).max(8);
    let memory = (options.window * largest).min(MAX_WINDOW_BYTES.max(largest));
    let domain = channel.domain().clone();
    let local = domain.buffers(memory)?;
    let shared = domain.memory(memory, SHARED)?;
    let remote = channel.exchange_keys(&shared.rights)?;
    let mut rma = RmaBench {
        channel,
        kind,
        local,
        shared,
        remote,
        slots: 1,
        flags: if options.verify {
            OpFlags::DEFAULT | OpFlags::DELIVERY_COMPLETE
        } else {
            OpFlags::DEFAULT
        },
        posted: 0,
        completed: 0,
        is_one_sided: false,
        operations: 0,
    };
    let mut table = Table::new(options);
    for size in sizes {
        let row = run(&mut rma, size)?;
        // A server that posts no operations has no measurement.
        if options.is_client() || !rma.is_one_sided {
            table.print(&row);
        }
    }
    rma.channel.finish()
}

impl RmaBench {
    fn is_client(&self) -> bool {
        self.channel.is_client()
    }

    fn verify(&self) -> bool {
        self.channel.options.verify
    }

    fn slot(&self, turn: u64, size: usize) -> usize {
        (turn % self.slots as u64) as usize * size
    }

    /// Posts operation `turn` on its slot.
    fn post(&mut self, turn: u64, size: usize, flags: OpFlags) -> anyhow::Result<()> {
        let offset = self.slot(turn, size);
        if self.verify() && self.kind != Kind::Read {
            Stamp::of_pair(self.is_client(), turn).write(&self.local.memory, offset, size);
        }
        let domain = self.channel.domain();
        let data = (self.kind == Kind::WriteData).then(|| domain.cut_data(turn));
        let remote = Remote {
            addr: self.remote.addr + offset as u64,
            ..self.remote
        };
        let is_injectable = self.kind != Kind::Read && !self.verify() && flags == self.flags;
        if is_injectable && size <= self.channel.inject_size() {
            let (peer, memory) = (self.channel.peer, &self.local.memory);
            return self.channel.endpoint.push("inject_write", |endpoint| {
                memory.with(offset, size, |bytes| {
                    endpoint
                        .ep
                        .inject_write(bytes, peer, remote.addr, remote.key, data)
                })
            });
        }
        let access = Access::new(self.channel.peer, remote, turn)
            .data(data)
            .flags(flags);
        let (segment, kind) = (self.local.segment(offset, size), self.kind);
        self.channel
            .endpoint
            .push("remote access", |endpoint| match kind {
                Kind::Read => endpoint.read(&[segment], &access),
                Kind::Write | Kind::WriteData => endpoint.write(&[segment], &access),
            })?;
        self.posted += 1;
        Ok(())
    }

    fn await_posted(&mut self) -> anyhow::Result<()> {
        let mut entries = [Entry::default(); 16];
        while self.completed < self.posted {
            let max_count = (self.posted - self.completed).min(16) as usize;
            self.completed += self.channel.endpoint.tx.wait(&mut entries[..max_count])? as u64;
        }
        Ok(())
    }

    /// Waits for the peer's writes with data, from operation `first` on.
    fn await_data(&mut self, first: u64, count: usize, size: usize) -> anyhow::Result<()> {
        let flags =
            CompletionFlags::RMA | CompletionFlags::REMOTE_WRITE | CompletionFlags::REMOTE_CQ_DATA;
        let mut reported = vec![false; count];
        for _ in 0..count {
            let entry = self.channel.endpoint.rx.next()?;
            let turn = self
                .channel
                .domain()
                .cut_data(entry.data.wrapping_sub(first));
            let slot = reported
                .get_mut(turn as usize)
                .filter(|reported| !**reported);
            match slot {
                Some(reported) if entry.flags == flags && entry.len == size => *reported = true,
                _ => {
                    return Err(wrong(format!(
                        "the completion of a write of {size} bytes with data from {first} on is \
                         {entry:?}"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Prepares the slots and synchronises with the peer. For reads, the slots hold messages that
    /// stay unchanged.
    fn prepare(&mut self, size: usize) -> anyhow::Result<()> {
        let max_count = (self.local.memory.len() / size.max(1)).max(1);
        self.slots = self.channel.options.window.min(max_count);
        if self.verify() && self.kind == Kind::Read {
            for slot in 0..self.slots {
                let stamp = Stamp::of_pair(self.is_client(), slot as u64);
                stamp.write(&self.shared.memory, slot * size, size);
            }
        }
        self.channel.sync()
    }

    /// Checks the last operations: writes in the shared memory, after the peer has reported that
    /// they are complete, and reads in the local memory.
    fn check(&mut self, operations: std::ops::Range<u64>, size: usize) -> anyhow::Result<()> {
        if !self.verify() {
            return Ok(());
        }
        let (kind, peer) = (self.kind, !self.is_client());
        for turn in operations {
            let offset = self.slot(turn, size);
            let (memory, number) = match kind {
                Kind::Read => (&self.local.memory, turn % self.slots as u64),
                _ => (&self.shared.memory, turn),
            };
            Stamp::of_pair(peer, number)
                .check(memory, offset, size)
                .with_context(|| format!("turn {turn}, {kind:?}"))?;
        }
        Ok(())
    }

    /// `fi_rma_bw`: windows of operations. Writes and reads run in both directions at once; writes
    /// with data are sent to the server, which acknowledges each window.
    fn bandwidth(&mut self, size: usize) -> anyhow::Result<Row<'static>> {
        self.prepare(size)?;
        let options = &self.channel.options;
        let (iterations, warmup) = (count(options, size, 2), options.warmup);
        let total = iterations + warmup;
        let (mut done, mut start) = (0, Instant::now());
        while done < total {
            let end = if done < warmup { warmup } else { total };
            if done == warmup {
                start = Instant::now();
            }
            let batch = self.window_len().min(end - done);
            self.run_batch(batch, size)?;
            done += batch;
        }
        let time = start.elapsed();
        self.finish_bandwidth(size, self.slots.min(total))?;
        Ok(Row {
            name: None,
            size,
            iterations,
            transfers: 1,
            time,
        })
    }

    fn window_len(&self) -> usize {
        if self.verify() {
            self.slots
        } else {
            self.channel.options.window
        }
    }

    fn run_batch(&mut self, batch: usize, size: usize) -> anyhow::Result<()> {
        let first = self.operations;
        self.operations += batch as u64;
        if self.kind == Kind::WriteData && !self.is_client() {
            self.await_data(first, batch, size)?;
            self.check(first..self.operations, size)?;
            self.channel
                .post_or_inject(ACK_LEN, self.channel.inject_size())?;
            return self.channel.await_sends();
        }
        for turn in first..self.operations {
            let has_more = self.channel.options.more && turn + 1 < self.operations;
            let more_flag = if has_more {
                OpFlags::MORE
            } else {
                OpFlags::empty()
            };
            self.post(turn, size, self.flags | more_flag)?;
        }
        self.await_posted()?;
        if self.kind == Kind::Read {
            self.check(first..self.operations, size)?;
        }
        if self.kind == Kind::WriteData {
            self.channel.receive()?;
            self.channel.clear_log();
        }
        Ok(())
    }

    /// Synchronises with the peer, and checks the last writes.
    fn finish_bandwidth(&mut self, size: usize, last: usize) -> anyhow::Result<()> {
        self.channel.sync()?;
        if self.kind == Kind::Write {
            self.check(self.operations - last as u64..self.operations, size)?;
        }
        self.channel.sync()
    }

    /// `fi_rma_pingpong`: a write is detected by its last byte, a write with data by its
    /// completion. Reads need no response.
    fn round_trips(&mut self, size: usize) -> anyhow::Result<Row<'static>> {
        self.prepare(size)?;
        self.is_one_sided = self.kind == Kind::Read;
        self.slots = 1;
        let options = &self.channel.options;
        let (iterations, warmup) = (count(options, size, 1), options.warmup);
        let mut start = Instant::now();
        for turn in 0..iterations + warmup {
            if turn == warmup {
                start = Instant::now();
            }
            self.round_trip(turn, size)?;
        }
        let time = start.elapsed();
        self.channel.sync()?;
        Ok(Row {
            name: None,
            size,
            iterations,
            transfers: if self.kind == Kind::Read { 1 } else { 2 },
            time,
        })
    }

    fn round_trip(&mut self, turn: usize, size: usize) -> anyhow::Result<()> {
        let number = self.operations;
        self.operations += 1;
        if self.kind == Kind::Read {
            if self.is_client() {
                self.post(number, size, self.flags)?;
                self.await_posted()?;
                self.check(number..number + 1, size)?;
            }
            return Ok(());
        }
        if self.is_client() {
            self.post_write(turn, number, size)?;
        }
        self.await_write(turn, number, size)?;
        if !self.is_client() {
            self.post_write(turn, number, size)?;
        }
        Ok(())
    }

    fn post_write(&mut self, turn: usize, number: u64, size: usize) -> anyhow::Result<()> {
        if !self.verify() && size > 0 {
            self.local.memory.put(size - 1, &[last_byte(turn)]);
        }
        self.post(number, size, self.flags)?;
        self.await_posted()
    }

    fn await_write(&mut self, turn: usize, number: u64, size: usize) -> anyhow::Result<()> {
        if self.kind == Kind::WriteData {
            self.await_data(number, 1, size)?;
        } else if size > 0 {
            let expected = if self.verify() {
                Stamp::of_pair(!self.is_client(), number).message(size)[size - 1]
            } else {
                last_byte(turn)
            };
            let (memory, endpoint) = (&self.shared.memory, &self.channel.endpoint);
            endpoint
                .context
                .strategy()
                .until("waiting for a write", || {
                    if memory.byte(size - 1) == expected {
                        return Ok(Some(()));
                    }
                    endpoint.rx.progress()?;
                    Ok(None)
                })?;
        }
        self.check_write(number, size)
    }

    /// Checks a write, and repeats a failed check for a few seconds: unless the provider writes in
    /// order, other bytes may arrive after the last byte.
    fn check_write(&mut self, number: u64, size: usize) -> anyhow::Result<()> {
        if !self.verify() || self.check(number..number + 1, size).is_ok() {
            return Ok(());
        }
        let start = Instant::now();
        loop {
            self.channel.endpoint.rx.progress()?;
            match self.check(number..number + 1, size) {
                Ok(()) => return Ok(()),
                Err(error) if start.elapsed() > Duration::from_secs(5) => return Err(error),
                Err(_) => std::thread::yield_now(),
            }
        }
    }

    /// `fi_rma_tx_completion`: the time from the post to the completion, at the client alone.
    fn completions(&mut self, size: usize) -> anyhow::Result<Row<'static>> {
        self.prepare(size)?;
        self.is_one_sided = true;
        let options = &self.channel.options;
        let (iterations, warmup) = (count(options, size, 1), options.warmup);
        let first = self.operations;
        self.operations += (iterations + warmup) as u64;
        let mut start = Instant::now();
        match (self.is_client(), self.kind) {
            (true, _) => {
                for turn in first..self.operations {
                    if turn == first + warmup as u64 {
                        start = Instant::now();
                    }
                    // The flag prevents an inject, which has no completion.
                    self.post(turn, size, self.flags | OpFlags::COMPLETION)?;
                    self.await_posted()?;
                }
            }
            (false, Kind::WriteData) => self.await_data(first, iterations + warmup, size)?,
            (false, _) => {}
        }
        let time = start.elapsed();
        self.finish_completions(size, self.slots.min(iterations + warmup))?;
        Ok(Row {
            name: None,
            size,
            iterations,
            transfers: 1,
            time,
        })
    }

    fn finish_completions(&mut self, size: usize, last: usize) -> anyhow::Result<()> {
        self.channel.sync()?;
        if !self.is_client() {
            self.check(self.operations - last as u64..self.operations, size)?;
        }
        self.channel.sync()
    }
}

/// Returns the last byte of an operation, which differs from the last byte of the operation before.
fn last_byte(turn: usize) -> u8 {
    (turn % 251 + 1) as u8
}
