//! `fi_unmap_mem`: the pages behind a buffer's address are others for each message; what a provider
//! has remembered of them is stale.

use selvedge::Caps;
use selvedge_testkit::domain::{Block, LOCAL, Send};

use super::open;
use crate::upstream::channel::{Channel, Manners};
use crate::upstream::options::Options;
use crate::upstream::payload::Stamp;

/// The program.
pub(in crate::upstream) fn unmap_mem(options: &Options) -> anyhow::Result<()> {
    let sizes = options.sizes.list(usize::MAX);
    let manners = Manners {
        largest: sizes.iter().copied().max().unwrap_or(0),
        ..Manners::default()
    };
    let mut options = options.clone();
    options.verify = true;
    let mut channel = open(&options, Caps::MSG, manners)?;
    for size in sizes {
        channel.lay_out(size);
        channel.sync()?;
        let mut block = channel.ground().buffers(size)?;
        for _ in 0..options.iterations.unwrap_or(10) {
            match channel.is_client() {
                true => {
                    send(&mut channel, &mut block, size)?;
                    receive(&mut channel, size)?;
                }
                false => {
                    receive(&mut channel, size)?;
                    send(&mut channel, &mut block, size)?;
                }
            }
        }
    }
    channel.finish()
}

fn send(channel: &mut Channel, block: &mut Block, size: usize) -> anyhow::Result<()> {
    block.memory.renew()?;
    block.rights = channel.ground().register(&block.memory, LOCAL)?;
    Stamp::of_pair(channel.is_client(), channel.sent).write(&block.memory, 0, size);
    let number = channel.sent;
    let send = Send::new(channel.peer, number);
    channel
        .end
        .push("send", |end| end.send(&[block.segment(0, size)], &send))?;
    channel.skip();
    super::gather(&[&channel.end.tx], [number])
}

fn receive(channel: &mut Channel, size: usize) -> anyhow::Result<()> {
    let number = channel.arrived;
    channel.receive()?;
    channel.check_rest(number..number + 1, size)
}
