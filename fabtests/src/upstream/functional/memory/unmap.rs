//! `fi_unmap_mem`: the pages behind the address of a buffer are replaced for each message, which
//! makes a cached registration stale.

use selvedge::Caps;
use selvedge_testkit::domain::{Block, LOCAL, Send};

use crate::upstream::channel::{Channel, ChannelConfig};
use crate::upstream::data::payload::Stamp;
use crate::upstream::functional::open;
use crate::upstream::options::Options;

/// Runs the program.
pub(in crate::upstream) fn unmap_mem(options: &Options) -> anyhow::Result<()> {
    let sizes = options.sizes.list(usize::MAX);
    let config = ChannelConfig {
        largest: sizes.iter().copied().max().unwrap_or(0),
        ..ChannelConfig::default()
    };
    let mut options = options.clone();
    options.verify = true;
    let mut channel = open(&options, Caps::MSG, config)?;
    for size in sizes {
        channel.lay_out(size);
        channel.sync()?;
        let mut block = channel.domain().buffers(size)?;
        for _ in 0..options.iterations.unwrap_or(10) {
            if channel.is_client() {
                send(&mut channel, &mut block, size)?;
                receive(&mut channel, size)?;
            } else {
                receive(&mut channel, size)?;
                send(&mut channel, &mut block, size)?;
            }
        }
    }
    channel.finish()
}

fn send(channel: &mut Channel, block: &mut Block, size: usize) -> anyhow::Result<()> {
    block.memory.renew()?;
    block.rights = channel.domain().register(&block.memory, LOCAL)?;
    Stamp::of_pair(channel.is_client(), channel.sent).write(&block.memory, 0, size);
    let number = channel.sent;
    let send = Send::new(channel.peer, number);
    channel.endpoint.push("send", |endpoint| {
        endpoint.send(&[block.segment(0, size)], &send)
    })?;
    channel.skip();
    crate::upstream::functional::wait_for_all(&[&channel.endpoint.tx], [number])
}

fn receive(channel: &mut Channel, size: usize) -> anyhow::Result<()> {
    let number = channel.arrived;
    channel.receive()?;
    channel.check_preposted(number..number + 1, size)
}
