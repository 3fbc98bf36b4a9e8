//! `fi_multi_mr`: memory regions of one endpoint, each with its own counter, which is the only
//! notification of a write at the target.

use anyhow::ensure;
use selvedge::{Caps, OpFlags};
use selvedge_testkit::domain::{Access, Block, Count, Remote, SHARED};
use selvedge_testkit::failure::wrong;

use crate::upstream::channel::{Channel, ChannelConfig};
use crate::upstream::options::Options;
use crate::upstream::payload::{POISON, Stamp};

/// The number of writes to each region without `-I`.
const ROUNDS: usize = 10;

/// A local region and the peer's region with the same number.
struct Region {
    shared: Block,
    remote_accesses: Count,
    remote: Remote,
}

/// Runs the program: one write to each of the regions (`-c`) in each direction, per iteration.
pub(in crate::upstream) fn multi_mr(options: &Options) -> anyhow::Result<()> {
    let count: usize = options.number("c", 2)?;
    ensure!(count > 0, "-c 0: the number of regions must be at least 1");
    let size = options.sizes.one().unwrap_or(1024);
    let caps = Caps::MSG | Caps::RMA | Caps::RMA_EVENT;
    let mut channel = super::open(options, caps, ChannelConfig::default())?;
    let domain = channel.domain().clone();
    let local = domain.buffers(size)?;
    let mut regions = Vec::new();
    for _ in 0..count {
        let (shared, remote_accesses) = (domain.memory(size, SHARED)?, domain.count()?);
        shared.memory.fill(0, size, POISON);
        shared.rights.count_writes(&remote_accesses)?;
        let remote = channel.exchange_keys(&shared.rights)?;
        regions.push(Region {
            shared,
            remote_accesses,
            remote,
        });
    }
    for round in 0..options.iterations.unwrap_or(ROUNDS) as u64 {
        for number in 0..count {
            let round_trip = RoundTrip {
                round,
                number,
                size,
            };
            match channel.is_client() {
                true => {
                    round_trip.write(&mut channel, &local, &regions)?;
                    round_trip.await_write(&channel, &regions)?;
                }
                false => {
                    round_trip.await_write(&channel, &regions)?;
                    round_trip.write(&mut channel, &local, &regions)?;
                }
            }
        }
    }
    println!("The counters of {count} regions have counted the writes to each region");
    channel.finish()
}

/// A write to one region, and the write in the other direction.
struct RoundTrip {
    round: u64,
    number: usize,
    size: usize,
}

impl RoundTrip {
    fn stamp(&self, is_client: bool) -> Stamp {
        Stamp::of_pair(is_client, self.round << 16 | self.number as u64)
    }

    fn write(
        &self,
        channel: &mut Channel,
        local: &Block,
        regions: &[Region],
    ) -> anyhow::Result<()> {
        let stamp = self.stamp(channel.is_client());
        stamp.write(&local.memory, 0, self.size);
        let access = Access::new(channel.peer, regions[self.number].remote, self.round)
            .flags(OpFlags::COMPLETION);
        let endpoint = &channel.endpoint;
        endpoint.push("write", |endpoint| {
            endpoint.write(&[local.whole()], &access)
        })?;
        let entry = endpoint.tx.next()?;
        match entry.context.0 == self.round {
            true => Ok(()),
            false => Err(wrong(format!(
                "the write has completion {entry:?}, expected context {}",
                self.round
            ))),
        }
    }

    /// Waits for a write to the region by its counter, and checks that the counters of the other
    /// regions are unchanged.
    fn await_write(&self, channel: &Channel, regions: &[Region]) -> anyhow::Result<()> {
        let region = &regions[self.number];
        region.remote_accesses.wait(self.round + 1)?;
        let stamp = self.stamp(!channel.is_client());
        stamp.check(&region.shared.memory, 0, self.size)?;
        for (number, region) in regions.iter().enumerate() {
            let expected = self.round + u64::from(number <= self.number);
            let counted = region.remote_accesses.read();
            if counted != expected {
                let message =
                    format!("the counter of region {number} is {counted}, expected {expected}");
                return Err(wrong(message));
            }
        }
        Ok(())
    }
}
