//! `fi_multi_mr`: regions of one endpoint, each with a counter of its own, by which alone the target
//! of a write learns of it.

use anyhow::ensure;
use selvedge::{Caps, OpFlags};
use selvedge_testkit::domain::{Access, Block, Count, Remote, SHARED};
use selvedge_testkit::failure::wrong;

use crate::upstream::channel::{Channel, Manners};
use crate::upstream::options::Options;
use crate::upstream::payload::{POISON, Stamp};

/// Times that each region is written to, if `-I` does not say.
const ROUNDS: usize = 10;

/// A region of this side's, and the peer's of the same number.
struct Region {
    shared: Block,
    arrivals: Count,
    remote: Remote,
}

/// The program: one write to each of the regions (`-c`), there and back, so many times.
pub(in crate::upstream) fn multi_mr(options: &Options) -> anyhow::Result<()> {
    let count: usize = options.number("c", 2)?;
    ensure!(count > 0, "-c 0: no regions");
    let size = options.sizes.one().unwrap_or(1024);
    let caps = Caps::MSG | Caps::RMA | Caps::RMA_EVENT;
    let mut channel = super::open(options, caps, Manners::default())?;
    let ground = channel.ground().clone();
    let local = ground.buffers(size)?;
    let mut regions = Vec::new();
    for _ in 0..count {
        let (shared, arrivals) = (ground.memory(size, SHARED)?, ground.count()?);
        shared.memory.fill(0, size, POISON);
        shared.rights.count_writes(&arrivals)?;
        let remote = channel.exchange_keys(&shared.rights)?;
        regions.push(Region {
            shared,
            arrivals,
            remote,
        });
    }
    for round in 0..options.iterations.unwrap_or(ROUNDS) as u64 {
        for number in 0..count {
            let turn = Turn {
                round,
                number,
                size,
            };
            match channel.is_client() {
                true => {
                    turn.write(&mut channel, &local, &regions)?;
                    turn.await_write(&channel, &regions)?;
                }
                false => {
                    turn.await_write(&channel, &regions)?;
                    turn.write(&mut channel, &local, &regions)?;
                }
            }
        }
    }
    println!("{count} regions have counted what was written to each");
    channel.finish()
}

/// A write to one region, and one back.
struct Turn {
    round: u64,
    number: usize,
    size: usize,
}

impl Turn {
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
        let end = &channel.end;
        end.push("write", |end| end.write(&[local.whole()], &access))?;
        let entry = end.tx.next()?;
        match entry.context.0 == self.round {
            true => Ok(()),
            false => Err(wrong(format!("a write completes with {entry:?}"))),
        }
    }

    /// Waits for a write to the region, by its counter; the others have counted what came before.
    fn await_write(&self, channel: &Channel, regions: &[Region]) -> anyhow::Result<()> {
        let region = &regions[self.number];
        region.arrivals.wait(self.round + 1)?;
        let stamp = self.stamp(!channel.is_client());
        stamp.check(&region.shared.memory, 0, self.size)?;
        for (number, region) in regions.iter().enumerate() {
            let expected = self.round + u64::from(number <= self.number);
            let counted = region.arrivals.read();
            if counted != expected {
                let what = format!("region {number} has counted {counted} writes of {expected}");
                return Err(wrong(what));
            }
        }
        Ok(())
    }
}
