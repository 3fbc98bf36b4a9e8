//! The bandwidth benchmarks: a window of messages from the client, then an acknowledgement of four
//! bytes from the server, repeatedly.

use std::time::Instant;

use selvedge::info::EpType;
use selvedge::{Caps, OpFlags};

use super::open;
use crate::upstream::channel::{Channel, ChannelConfig};
use crate::upstream::data::perf::{Row, Table, count};
use crate::upstream::options::Options;

/// The size of an acknowledgement in bytes.
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

/// Sends and receives all messages of one size, and prints the row of the size.
pub(super) fn run(channel: &mut Channel, table: &mut Table, size: usize) -> anyhow::Result<()> {
    let window = channel.lay_out(size);
    channel.sync()?;
    let (iterations, warmup) = (count(&channel.options, size, 2), channel.options.warmup);
    let total = iterations + warmup;
    let mut start = Instant::now();
    let (mut done, at_rest) = (0, channel.arrived);
    while done < total {
        // No window contains messages of both the warm-up and the measurement.
        let limit = if done < warmup { warmup } else { total };
        if done == warmup {
            start = Instant::now();
        }
        let batch = window.min(limit - done);
        let is_last = done + batch == total;
        if channel.is_client() {
            send_window(channel, size, batch)?
        } else {
            receive_window(channel, batch, is_last)?;
            let arrived = channel.arrived;
            if channel.options.verify {
                channel.check_window(arrived - batch as u64..arrived, size, at_rest)?;
            }
            channel.post_or_inject(ACK, channel.inject_size())?;
            channel.await_sends()?;
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
        if more && number < window {
            channel.post_send(size, OpFlags::DEFAULT | OpFlags::MORE)?
        } else {
            channel.post_or_inject(size, inject_size)?
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

/// Receives a window of messages. One receive is always posted ahead: the preposted receive takes
/// the first message of a size, and the last window of the size posts a preposted receive again.
fn receive_window(channel: &mut Channel, window: usize, is_last: bool) -> anyhow::Result<()> {
    let last = channel.arrived + window as u64;
    for number in 1..=window {
        if is_last && number == window {
            channel.prepost()?
        } else {
            channel.post_slot()?
        }
    }
    channel.await_messages(last)
}
