//! One message there and one back.

use std::time::Duration;

use anyhow::ensure;
use selvedge::info::EpType;
use selvedge::{Caps, Errno};
use selvedge_testkit::failure::{errno, unsupported};

use super::open;
use crate::upstream::channel::{Channel, Manners};
use crate::upstream::options::{Letters, Options};
use crate::upstream::perf::{Row, Table, count, timed};

/// `fi_rdm_pingpong`.
pub(in crate::upstream) fn rdm_pingpong(options: &Options) -> anyhow::Result<()> {
    all(options, Caps::MSG, EpType::Rdm, Manners::default())
}

/// `fi_rdm_tagged_pingpong`.
pub(in crate::upstream) fn rdm_tagged_pingpong(options: &Options) -> anyhow::Result<()> {
    let manners = Manners {
        tagged: true,
        ..Manners::default()
    };
    all(options, Caps::TAGGED, EpType::Rdm, manners)
}

/// `fi_msg_pingpong`: over a connection; tagged with `-o tagged`.
pub(in crate::upstream) fn msg_pingpong(options: &Options) -> anyhow::Result<()> {
    let tagged = options.choice(&["msg", "tagged"])? == "tagged";
    let manners = Manners {
        tagged,
        ..Manners::default()
    };
    let caps = if tagged { Caps::TAGGED } else { Caps::MSG };
    all(options, caps, EpType::Msg, manners)
}

/// `fi_rdm_cntr_pingpong`: counters, which are slept for, and no entries of queues.
pub(in crate::upstream) fn rdm_cntr_pingpong(options: &Options) -> anyhow::Result<()> {
    let manners = Manners {
        counters: true,
        ..Manners::default()
    };
    let mut options = options.clone();
    options.waiting = crate::upstream::options::WaitMethod::Sread;
    all(&options, Caps::MSG, EpType::Rdm, manners)
}

/// `fi_dgram_pingpong`: agreed upon beside the fabric, because datagrams may be lost.
pub(in crate::upstream) fn dgram_pingpong(options: &Options) -> anyhow::Result<()> {
    let mut options = options.clone();
    let oob = options
        .out_of_band
        .get_or_insert(crate::upstream::options::OutOfBand {
            port: crate::upstream::options::OUT_OF_BAND_PORT,
            sync: true,
        });
    oob.sync = true;
    let patience = Duration::from_secs(options.number("T", 30)?);
    options.timeout.get_or_insert(patience);
    let result = all(&options, Caps::MSG, EpType::Dgram, Manners::default());
    result.map_err(|error| match errno(&error) {
        Errno::TimedOut => unsupported(format!("a datagram was lost: {error:#}")),
        _ => error,
    })
}

/// The letters of `fi_dgram_pingpong`.
pub(in crate::upstream) const DATAGRAMS: Letters = Letters {
    own: "rT:",
    ..super::LETTERS
};

fn all(options: &Options, caps: Caps, ep_type: EpType, manners: Manners) -> anyhow::Result<()> {
    let (mut channel, sizes) = open(options, caps, ep_type, manners)?;
    let mut table = Table::new(options);
    for size in sizes {
        run(&mut channel, &mut table, size)?;
    }
    channel.finish()
}

/// All messages of one size.
pub(super) fn run(channel: &mut Channel, table: &mut Table, size: usize) -> anyhow::Result<()> {
    channel.lay_out(size);
    channel.sync()?;
    let options = channel.options.clone();
    let iterations = count(&options, size, 1);
    let inject_size = channel.inject_size();
    let (before, verify) = (channel.bytes(), options.verify);
    let is_client = options.is_client();
    let mut turn = |channel: &mut Channel| {
        if is_client {
            channel.pass(size, inject_size)?;
            channel.await_sends()?;
        }
        let number = channel.arrived;
        channel.receive()?;
        if verify {
            channel.check_rest(number..number + 1, size)?;
        }
        if !is_client {
            channel.pass(size, inject_size)?;
            channel.await_sends()?;
        }
        Ok(())
    };
    let time = timed(channel, options.warmup, iterations, &mut turn)?;
    let expected = (size * (options.warmup + iterations)) as u64;
    let arrived = channel.bytes() - before;
    ensure!(
        channel.counts() || arrived == expected,
        "{arrived} bytes have arrived, expected {expected}"
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
