//! `fi_rdm_bw_mt`: as many streams as there are threads, each over an endpoint of its own.

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use selvedge::info::{EpType, Threading};
use selvedge::{Caps, Info, OpFlags};
use selvedge_testkit::domain::DomainContext;

use crate::upstream::channel::{Channel, Manners};
use crate::upstream::discover::{discover, hints};
use crate::upstream::ground;
use crate::upstream::oob::OutOfBandChannel;
use crate::upstream::options::{
    ADDRESS, BENCHMARK, FABRIC, INFO, Letters, OUT_OF_BAND_PORT, Options, OutOfBand, PAIR,
    WaitMethod,
};
use crate::upstream::perf::{Row, Table, count};

/// Its letters.
pub(in crate::upstream) const THREADS: Letters = Letters {
    common: &[ADDRESS, FABRIC, INFO, PAIR, BENCHMARK],
    own: "n:gUr",
    long: &[],
};

/// The program. The server's threads receive what the client's send, and with `-g` the other way
/// round at the same time.
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
    let mut oob = OutOfBandChannel::meet(&options)?;
    let largest = sizes.iter().copied().max().unwrap_or(0);
    let mut channels = open(&options, &info, &mut oob, threads, largest)?;
    let mut table = Table::new(&options);
    for size in sizes {
        let iterations = count(&options, size, 1);
        channels.iter_mut().for_each(|channel| {
            channel.lay_out(size);
        });
        together(&mut channels, Channel::sync)?;
        let start = Instant::now();
        together(&mut channels, |channel| {
            stream(channel, size, iterations)?;
            // Over the fabric: what was injected leaves while somebody makes progress.
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
    together(&mut channels, Channel::finish)?;
    oob.barrier()
}

/// The channels: each has a domain of its own, or all have one if threads promise no more than not
/// to share a queue.
fn open(
    options: &Options,
    info: &Info,
    oob: &mut OutOfBandChannel,
    threads: usize,
    largest: usize,
) -> anyhow::Result<Vec<Channel>> {
    let mut manners = Manners {
        largest,
        ..Manners::default()
    };
    let is_delivered = options.has("U");
    manners.flags.set(OpFlags::DELIVERY_COMPLETE, is_delivered);
    let is_shared = options.threading == Threading::Completion;
    let mut shared: Option<Arc<DomainContext>> = None;
    let mut channels = Vec::new();
    for _ in 0..threads {
        let ground = match &shared {
            Some(ground) => Arc::clone(ground),
            None => ground::open(options, info.clone())?,
        };
        if is_shared {
            shared.get_or_insert_with(|| Arc::clone(&ground));
        }
        let mut channel = Channel::deaf(options, &ground, manners, None, None)?;
        channel.post_rest()?;
        let theirs = oob.exchange(&channel.end.name()?)?;
        channel.know(&theirs)?;
        channels.push(channel);
    }
    Ok(channels)
}

/// Has every channel's thread do the same.
fn together(
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
    let (is_client, both) = (channel.is_client(), channel.options.has("g"));
    let verify = channel.options.verify;
    for _ in 0..iterations {
        if is_client || both {
            channel.pass(size, channel.inject_size())?;
            channel.await_sends()?;
        }
        if !is_client || both {
            let number = channel.arrived;
            channel.receive()?;
            if verify {
                channel.check_rest(number..number + 1, size)?;
            }
        }
    }
    Ok(())
}
