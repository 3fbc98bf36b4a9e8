//! `fi_multi_mr`: several memory regions, each with its own counter of remote writes. The counter
//! is the only way in which the target learns of a write.

use anyhow::ensure;
use selvedge::{Caps, OpFlags};
use selvedge_testkit::domain::{Access, Block, Count, Remote, SHARED};
use selvedge_testkit::failure::wrong;

use crate::upstream::channel::{Channel, ChannelConfig};
use crate::upstream::data::payload::{POISON, Stamp};
use crate::upstream::options::Options;

/// The default number of iterations (`-I`).
const DEFAULT_ITERATIONS: usize = 10;

/// A local region, and access to the peer's region with the same number.
struct Region {
    shared: Block,
    /// The counter of the peer's writes to `shared`.
    remote_writes: Count,
    /// The peer's region.
    remote: Remote,
}

/// Runs the program: in each iteration, each side writes once to each of the peer's regions (`-c`).
pub(in crate::upstream) fn multi_mr(options: &Options) -> anyhow::Result<()> {
    let count: usize = options.number("c", 2)?;
    ensure!(count > 0, "-c 0: the number of regions must be at least 1");
    let size = options.sizes.one().unwrap_or(1024);
    let caps = Caps::MSG | Caps::RMA | Caps::RMA_EVENT;
    let mut channel = crate::upstream::functional::open(options, caps, ChannelConfig::default())?;
    let domain = channel.domain().clone();
    let local = domain.buffers(size)?;
    let mut regions = Vec::new();
    for _ in 0..count {
        let (shared, remote_writes) = (domain.memory(size, SHARED)?, domain.count()?);
        shared.memory.fill(0, size, POISON);
        shared.rights.count_writes(&remote_writes)?;
        let remote = channel.exchange_keys(&shared.rights)?;
        regions.push(Region {
            shared,
            remote_writes,
            remote,
        });
    }
    for round in 0..options.iterations.unwrap_or(DEFAULT_ITERATIONS) as u64 {
        for number in 0..count {
            let round_trip = RoundTrip {
                round,
                number,
                size,
            };
            if channel.is_client() {
                round_trip.write(&mut channel, &local, &regions)?;
                round_trip.await_write(&channel, &regions)?;
            } else {
                round_trip.await_write(&channel, &regions)?;
                round_trip.write(&mut channel, &local, &regions)?;
            }
        }
    }
    println!("The counters of {count} regions have counted all writes to their regions");
    channel.finish()
}

/// The client's write to one region of the server, followed by the server's write to the client's
/// region with the same number.
struct RoundTrip {
    round: u64,
    number: usize,
    size: usize,
}

impl RoundTrip {
    /// The contents that the client or the server writes.
    fn stamp(&self, is_client: bool) -> Stamp {
        Stamp::of_pair(is_client, self.round << 16 | self.number as u64)
    }

    /// Writes to the peer's region and waits for the completion.
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
        if entry.context.0 == self.round {
            Ok(())
        } else {
            Err(wrong(format!(
                "expected a completion of the write with context {} instead of {entry:?}",
                self.round
            )))
        }
    }

    /// Waits until the region's counter shows the peer's write, and checks that the write has
    /// changed the counter of no other region.
    fn await_write(&self, channel: &Channel, regions: &[Region]) -> anyhow::Result<()> {
        let region = &regions[self.number];
        region.remote_writes.wait(self.round + 1)?;
        let stamp = self.stamp(!channel.is_client());
        stamp.check(&region.shared.memory, 0, self.size)?;
        for (number, region) in regions.iter().enumerate() {
            let expected = self.round + u64::from(number <= self.number);
            let counted = region.remote_writes.read();
            if counted != expected {
                let message =
                    format!("the counter of region {number} is {counted}, expected {expected}");
                return Err(wrong(message));
            }
        }
        Ok(())
    }
}
