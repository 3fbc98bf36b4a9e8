//! `fi_rdm_bw_mt`: one stream for each thread, each with its own endpoint.

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use selvedge::info::{EpType, Threading};
use selvedge::{Caps, Info, OpFlags};
use selvedge_testkit::domain::DomainContext;

use crate::upstream::channel::{Channel, ChannelConfig};
use crate::upstream::data::perf::{Row, Table, count};
use crate::upstream::options::{
    ADDRESS, BENCHMARK, FABRIC, INFO, OUT_OF_BAND_PORT, OptionSet, Options, OutOfBand, PAIR,
    WaitMethod,
};
use crate::upstream::setup::discover::{discover, hints};
use crate::upstream::setup::domain;
use crate::upstream::setup::oob::OutOfBandChannel;

/// The options of the program.
pub(in crate::upstream) const THREADS: OptionSet = OptionSet {
    common: &[ADDRESS, FABRIC, INFO, PAIR, BENCHMARK],
    specific: "n:gUr",
    long: &[],
};

/// Runs the program. The client's threads send to the server's threads; with `-g`, the threads of
/// both sides send at the same time.
pub(in crate::upstream) fn rdm_bw_mt(options: &Options) -> anyhow::Result<()> {
    let threads: usize = options.number("n", 1)?;
    ensure!(
        (1..=256).contains(&threads),
        "-n {threads}: 1 to 256 threads"
    );
    let mut options = options.clone();
    options.out_of_band.get_or_insert(OutOfBand {
        port: OUT_OF_BAND_PORT,
        sync: true,
    });
    if options.waiting == WaitMethod::Spin {
        // There may be more threads than cores.
        options.waiting = WaitMethod::Yield;
    }
    let info = discover(&options, &hints(&options, Caps::MSG, EpType::Rdm)?)?;
    let sizes = options.sizes.list(info.ep_attr.max_msg_size);
    let mut oob = OutOfBandChannel::establish(&options)?;
    let largest = sizes.iter().copied().max().unwrap_or(0);
    let mut channels = open(&options, &info, &mut oob, threads, largest)?;
    let mut table = Table::new(&options);
    for size in sizes {
        let iterations = count(&options, size, 1);
        channels.iter_mut().for_each(|channel| {
            channel.lay_out(size);
        });
        run_in_threads(&mut channels, Channel::sync)?;
        let start = Instant::now();
        run_in_threads(&mut channels, |channel| {
            stream(channel, size, iterations)?;
            // The barrier is over the fabric, because injected messages leave only while progress
            // is made.
            channel.sync()
        })?;
        let time = start.elapsed();
        table.print(&Row {
            name: None,
            size,
            iterations,
            transfers: threads * if options.has("g") { 2 } else { 1 },
            time,
        });
    }
    run_in_threads(&mut channels, Channel::finish)?;
    oob.barrier()
}

/// Opens the channels. Each channel has its own domain; with `--threading completion`, all share
/// one domain.
fn open(
    options: &Options,
    info: &Info,
    oob: &mut OutOfBandChannel,
    threads: usize,
    largest: usize,
) -> anyhow::Result<Vec<Channel>> {
    let mut config = ChannelConfig {
        largest,
        ..ChannelConfig::default()
    };
    let is_delivered = options.has("U");
    config.flags.set(OpFlags::DELIVERY_COMPLETE, is_delivered);
    let is_shared = options.threading == Threading::Completion;
    let mut shared: Option<Arc<DomainContext>> = None;
    let mut channels = Vec::new();
    for _ in 0..threads {
        let domain = match &shared {
            Some(domain) => Arc::clone(domain),
            None => domain::open(options, info.clone())?,
        };
        if is_shared {
            shared.get_or_insert_with(|| Arc::clone(&domain));
        }
        let mut channel = Channel::without_receive(options, &domain, config, None, None)?;
        channel.prepost()?;
        let from_peer = oob.exchange(&channel.endpoint.name()?)?;
        channel.insert_peer(&from_peer)?;
        channels.push(channel);
    }
    Ok(channels)
}

/// Runs `work` for every channel, each in its own thread.
fn run_in_threads(
    channels: &mut [Channel],
    work: impl Fn(&mut Channel) -> anyhow::Result<()> + Sync,
) -> anyhow::Result<()> {
    let work = &work;
    thread::scope(|scope| {
        let numbered = channels.iter_mut().enumerate();
        let threads: Vec<_> = numbered
            .map(|(number, channel)| {
                scope.spawn(move || work(channel).with_context(|| format!("thread {number}")))
            })
            .collect();
        let results = threads.into_iter().map(|thread| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        results.collect()
    })
}

fn stream(channel: &mut Channel, size: usize, iterations: usize) -> anyhow::Result<()> {
    let (is_client, is_bidirectional) = (channel.is_client(), channel.options.has("g"));
    let verify = channel.options.verify;
    for _ in 0..iterations {
        if is_client || is_bidirectional {
            channel.post_or_inject(size, channel.inject_size())?;
            channel.await_sends()?;
        }
        if !is_client || is_bidirectional {
            let number = channel.arrived;
            channel.receive()?;
            if verify {
                channel.check_preposted(number..number + 1, size)?;
            }
        }
    }
    Ok(())
}
