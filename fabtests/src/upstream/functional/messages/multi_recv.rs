//! `fi_multi_recv`: two halves of a multi-receive buffer, each of which takes many messages in
//! succession.

use std::time::Instant;

use anyhow::{Context as _, ensure};
use selvedge::cq::Entry;
use selvedge::{Caps, CompletionFlags, EpOption, OpFlags};
use selvedge_testkit::domain::{Block, LOCAL, Recv, Send};
use selvedge_testkit::failure::wrong;

use crate::upstream::channel::{Channel, ChannelConfig};
use crate::upstream::data::payload::{POISON, Stamp};
use crate::upstream::data::perf::{Row, Table};
use crate::upstream::options::{OptionSet, Options};

/// Messages per half of the buffer.
const HALF: u64 = 64;

/// The options of the program.
pub(in crate::upstream) const OPTIONS: OptionSet = crate::upstream::functional::option_set("M");

/// Runs the program: the client sends.
pub(in crate::upstream) fn multi_recv(options: &Options) -> anyhow::Result<()> {
    let mut options = crate::upstream::functional::with_out_of_band(options, true);
    let size = options.sizes.one().unwrap_or(1024);
    options.sizes = crate::upstream::options::Sizes::Few;
    let caps = Caps::MSG | Caps::TAGGED | Caps::MULTI_RECV;
    // The programs synchronise by tagged messages.
    let config = ChannelConfig {
        tagged: true,
        ..ChannelConfig::default()
    };
    let mut channel = crate::upstream::functional::open(&options, caps, config)?;
    let total = options
        .iterations
        .unwrap_or(10_000)
        .next_multiple_of(2 * HALF as usize);
    let block = channel.domain().buffers(2 * HALF as usize * size)?;
    let mut flow = Flow {
        channel: &mut channel,
        block,
        size,
        released: [0; 2],
        received: [[false; HALF as usize]; 2],
    };
    let start = if options.is_client() {
        flow.channel.sync()?;
        let start = Instant::now();
        flow.send(total as u64)?;
        start
    } else {
        flow.prepare()?;
        flow.channel.sync()?;
        let start = Instant::now();
        flow.receive(total as u64)?;
        start
    };
    let time = start.elapsed();
    channel.sync()?;
    Table::new(&options).print(&Row {
        name: None,
        size,
        iterations: total,
        transfers: 1,
        time,
    });
    Ok(())
}

/// The messages of one side.
struct Flow<'a> {
    channel: &'a mut Channel,
    block: Block,
    size: usize,
    /// Number of releases of each half.
    released: [u64; 2],
    /// Whether each message of a half was received since the half was posted.
    received: [[bool; HALF as usize]; 2],
}

impl Flow<'_> {
    fn send(&mut self, total: u64) -> anyhow::Result<()> {
        let slots = 2 * HALF;
        let mut in_flight = vec![false; slots as usize];
        let (mut posted, mut completed) = (0, 0);
        while completed < total {
            // A slot is written again only after its message is sent.
            while posted < total && !in_flight[(posted % slots) as usize] {
                self.post_send(posted)?;
                in_flight[(posted % slots) as usize] = true;
                posted += 1;
            }
            let mut entries = [Entry::default(); 16];
            let max_count = (posted - completed).min(16) as usize;
            let count = self.channel.endpoint.tx.wait(&mut entries[..max_count])?;
            for entry in &entries[..count] {
                let slot = (entry.context.0 % slots) as usize;
                let was_in_flight = entry.context.0 < posted && in_flight[slot];
                ensure!(
                    was_in_flight,
                    "a completion of a send that is not outstanding: {entry:?}"
                );
                in_flight[slot] = false;
            }
            completed += count as u64;
        }
        Ok(())
    }

    fn post_send(&self, number: u64) -> anyhow::Result<()> {
        let offset = (number % (2 * HALF)) as usize * self.size;
        Stamp::of_pair(true, number).write(&self.block.memory, offset, self.size);
        let send = Send::new(self.channel.peer, number);
        let segment = self.block.segment(offset, self.size);
        let endpoint = &self.channel.endpoint;
        endpoint.push("send", |endpoint| endpoint.send(&[segment], &send))
    }

    /// Posts both halves. A half is released when it has no room for another message.
    fn prepare(&mut self) -> anyhow::Result<()> {
        let option = EpOption::MinMultiRecv(self.size);
        let ep = &self.channel.endpoint.ep;
        ep.set(option).context("FI_OPT_MIN_MULTI_RECV")?;
        // As in upstream's program, the buffer has a registration of its own.
        let domain = self.channel.domain().clone();
        self.block.rights = domain.register(&self.block.memory, LOCAL)?;
        (0..2).try_for_each(|half| self.post(half))
    }

    fn post(&mut self, half: u64) -> anyhow::Result<()> {
        let len = HALF as usize * self.size;
        let offset = half as usize * len;
        self.block.memory.fill(offset, len, POISON);
        let flags = OpFlags::DEFAULT | OpFlags::MULTI_RECV | OpFlags::COMPLETION;
        let recv = Recv::new(half).flags(flags);
        let segment = self.block.segment(offset, len);
        let endpoint = &self.channel.endpoint;
        endpoint.push("multi-receive", |endpoint| endpoint.recv(&[segment], &recv))
    }

    fn receive(&mut self, total: u64) -> anyhow::Result<()> {
        let last = total / (2 * HALF);
        for _ in 0..total {
            let entry = self.channel.endpoint.rx.next()?;
            let half = self.check(&entry)?;
            if self.received[half] == [true; HALF as usize] {
                self.received[half] = [false; HALF as usize];
                self.released[half] += 1;
                if self.released[half] < last {
                    self.post(half as u64)?;
                }
            }
        }
        Ok(())
    }

    /// Checks a completion. Messages are stored in the order of the sends; large messages may
    /// complete in another order.
    fn check(&mut self, entry: &Entry) -> anyhow::Result<usize> {
        let offset = self.block.memory.offset(entry.buf);
        let slot = offset.filter(|offset| offset.is_multiple_of(self.size));
        let slot = slot.map(|offset| offset / self.size).unwrap_or(usize::MAX);
        let half = slot / HALF as usize;
        let is_new = self
            .received
            .get_mut(half)
            .and_then(|received| received.get_mut(slot % HALF as usize))
            .is_some_and(|received| !std::mem::replace(received, true));
        if !is_new || entry.context.0 != half as u64 {
            return Err(wrong(format!(
                "an unexpected message at offset {offset:?} of the buffer: {entry:?}"
            )));
        }
        let mut flags = CompletionFlags::MSG | CompletionFlags::RECV;
        flags.set(
            CompletionFlags::MULTI_RECV,
            self.received[half] == [true; HALF as usize],
        );
        if entry.flags != flags || entry.len != self.size {
            return Err(wrong(format!(
                "expected {flags}, {} bytes instead of {entry:?}",
                self.size
            )));
        }
        if self.channel.options.verify {
            let number = self.released[half] * 2 * HALF + slot as u64;
            let offset = slot * self.size;
            Stamp::of_pair(true, number).check(&self.block.memory, offset, self.size)?;
        }
        Ok(half)
    }
}
