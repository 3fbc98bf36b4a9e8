//! The pingpong programs: round trips with one message in flight.

use std::time::Duration;

use anyhow::ensure;
use selvedge::info::EpType;
use selvedge::{Caps, Errno};
use selvedge_testkit::failure::{errno, unsupported};

use super::open;
use crate::upstream::channel::{Channel, ChannelConfig};
use crate::upstream::data::perf::{Row, Table, count, measure_iterations};
use crate::upstream::options::{OptionSet, Options};

/// `fi_rdm_pingpong`: untagged messages.
pub(in crate::upstream) fn rdm_pingpong(options: &Options) -> anyhow::Result<()> {
    run_all(options, Caps::MSG, EpType::Rdm, ChannelConfig::default())
}

/// `fi_rdm_tagged_pingpong`: tagged messages.
pub(in crate::upstream) fn rdm_tagged_pingpong(options: &Options) -> anyhow::Result<()> {
    let config = ChannelConfig {
        tagged: true,
        ..ChannelConfig::default()
    };
    run_all(options, Caps::TAGGED, EpType::Rdm, config)
}

/// `fi_msg_pingpong`: messages over a connection, which are tagged with `-o tagged`.
pub(in crate::upstream) fn msg_pingpong(options: &Options) -> anyhow::Result<()> {
    let tagged = options.operation_of(&["msg", "tagged"])? == "tagged";
    let config = ChannelConfig {
        tagged,
        ..ChannelConfig::default()
    };
    let caps = if tagged { Caps::TAGGED } else { Caps::MSG };
    run_all(options, caps, EpType::Msg, config)
}

/// `fi_rdm_cntr_pingpong`: waits for counters instead of reading completion queues.
pub(in crate::upstream) fn rdm_cntr_pingpong(options: &Options) -> anyhow::Result<()> {
    let config = ChannelConfig {
        counters: true,
        ..ChannelConfig::default()
    };
    let mut options = options.clone();
    options.waiting = crate::upstream::options::WaitMethod::Sread;
    run_all(&options, Caps::MSG, EpType::Rdm, config)
}

/// `fi_dgram_pingpong`: datagrams. They may be lost, so the processes synchronise over a TCP
/// connection.
pub(in crate::upstream) fn dgram_pingpong(options: &Options) -> anyhow::Result<()> {
    let mut options = options.clone();
    let oob = options
        .out_of_band
        .get_or_insert(crate::upstream::options::OutOfBand {
            port: crate::upstream::options::OUT_OF_BAND_PORT,
            sync: true,
        });
    oob.sync = true;
    let timeout = Duration::from_secs(options.number("T", 30)?);
    options.timeout.get_or_insert(timeout);
    let result = run_all(&options, Caps::MSG, EpType::Dgram, ChannelConfig::default());
    result.map_err(|error| match errno(&error) {
        Errno::TimedOut => unsupported(format!("a datagram was lost: {error:#}")),
        _ => error,
    })
}

/// The options of `fi_dgram_pingpong`.
pub(in crate::upstream) const DGRAM_PINGPONG_OPTIONS: OptionSet = OptionSet {
    specific: "rT:",
    ..super::OPTIONS
};

fn run_all(
    options: &Options,
    caps: Caps,
    ep_type: EpType,
    config: ChannelConfig,
) -> anyhow::Result<()> {
    let (mut channel, sizes) = open(options, caps, ep_type, config)?;
    let mut table = Table::new(options);
    for size in sizes {
        run(&mut channel, &mut table, size)?;
    }
    channel.finish()
}

/// Exchanges all messages of one size, and prints a row of the table.
pub(super) fn run(channel: &mut Channel, table: &mut Table, size: usize) -> anyhow::Result<()> {
    channel.lay_out(size);
    channel.sync()?;
    let options = channel.options.clone();
    let iterations = count(&options, size, 1);
    let inject_size = channel.inject_size();
    let (bytes_before, verify) = (channel.bytes(), options.verify);
    let is_client = options.is_client();
    let mut round_trip = |channel: &mut Channel| {
        if is_client {
            channel.post_or_inject(size, inject_size)?;
            channel.await_sends()?;
        }
        let number = channel.arrived;
        channel.receive()?;
        if verify {
            channel.check_preposted(number..number + 1, size)?;
        }
        if !is_client {
            channel.post_or_inject(size, inject_size)?;
            channel.await_sends()?;
        }
        Ok(())
    };
    let time = measure_iterations(channel, options.warmup, iterations, &mut round_trip)?;
    let expected = (size * (options.warmup + iterations)) as u64;
    let arrived = channel.bytes() - bytes_before;
    // Counters do not tell the lengths of messages.
    ensure!(
        channel.counts() || arrived == expected,
        "{arrived} bytes arrived instead of {expected}"
    );
    table.print(&Row {
        name: None,
        size,
        iterations,
        transfers: 2,
        time,
    });
    Ok(())
}
