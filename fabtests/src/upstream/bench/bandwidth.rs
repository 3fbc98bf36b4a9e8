//! A window of messages in one direction, and a four-byte acknowledgement.

use std::time::Instant;

use selvedge::info::EpType;
use selvedge::{Caps, OpFlags};

use super::open;
use crate::upstream::channel::{Channel, ChannelConfig};
use crate::upstream::options::Options;
use crate::upstream::perf::{Row, Table, count};

/// Bytes of an acknowledgement.
const ACK: usize = 4;

/// `fi_rdm_bw`.
pub(in crate::upstream) fn rdm_bw(options: &Options) -> anyhow::Result<()> {
    run_all(options, EpType::Rdm, false)
}

/// `fi_msg_bw`: over a connection; tagged with `-o tagged`.
pub(in crate::upstream) fn msg_bw(options: &Options) -> anyhow::Result<()> {
    let tagged = options.operation_of(&["msg", "tagged"])? == "tagged";
    run_all(options, EpType::Msg, tagged)
}

/// `fi_rdm_tagged_bw`.
pub(in crate::upstream) fn rdm_tagged_bw(options: &Options) -> anyhow::Result<()> {
    run_all(options, EpType::Rdm, true)
}

fn run_all(options: &Options, ep_type: EpType, tagged: bool) -> anyhow::Result<()> {
    let caps = if tagged { Caps::TAGGED } else { Caps::MSG };
    let config = ChannelConfig {
        tagged,
        window: options.window,
        ..ChannelConfig::default()
    };
    let (mut channel, sizes) = open(options, caps, ep_type, config)?;
    let mut table = Table::new(options);
    for size in sizes {
        run(&mut channel, &mut table, size)?;
    }
    channel.finish()
}

/// Runs all messages of one size.
pub(super) fn run(channel: &mut Channel, table: &mut Table, size: usize) -> anyhow::Result<()> {
    let window = channel.lay_out(size);
    channel.sync()?;
    let (iterations, warmup) = (count(&channel.options, size, 2), channel.options.warmup);
    let total = iterations + warmup;
    let mut start = Instant::now();
    let (mut done, at_rest) = (0, channel.arrived);
    while done < total {
        // The warm-up is a window of its own.
        let limit = if done < warmup { warmup } else { total };
        if done == warmup {
            start = Instant::now();
        }
        let batch = window.min(limit - done);
        let is_last = done + batch == total;
        match channel.is_client() {
            true => send_window(channel, size, batch)?,
            false => {
                receive_window(channel, batch, is_last)?;
                let arrived = channel.arrived;
                if channel.options.verify {
                    channel.check_window(arrived - batch as u64..arrived, size, at_rest)?;
                }
                channel.post_or_inject(ACK, channel.inject_size())?;
                channel.await_sends()?;
            }
        }
        done += batch;
    }
    table.print(&Row {
        name: None,
        size,
        iterations,
        transfers: 1,
        time: start.elapsed(),
    });
    Ok(())
}

fn send_window(channel: &mut Channel, size: usize, window: usize) -> anyhow::Result<()> {
    let inject_size = channel.inject_size();
    let more = channel.options.more && size > inject_size;
    for number in 1..=window {
        match more && number < window {
            true => channel.post_send(size, OpFlags::DEFAULT | OpFlags::MORE)?,
            false => channel.post_or_inject(size, inject_size)?,
        }
    }
    channel.await_sends()?;
    let number = channel.arrived;
    channel.receive()?;
    if channel.options.verify {
        channel.check_preposted(number..number + 1, ACK)?;
    }
    Ok(())
}

/// The first message is received in the preposted receive, and a preposted receive is posted again
/// after the last message.
fn receive_window(channel: &mut Channel, window: usize, is_last: bool) -> anyhow::Result<()> {
    let last = channel.arrived + window as u64;
    for number in 1..=window {
        match is_last && number == window {
            true => channel.prepost()?,
            false => channel.post_slot()?,
        }
    }
    channel.await_messages(last)
}
