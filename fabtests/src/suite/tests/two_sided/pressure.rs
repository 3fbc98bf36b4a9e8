//! Load: messages without receives, threads that share an endpoint, programs that are started.

use std::process::Command;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use selvedge::owned::{Completions, Endpoint, Pool};
use selvedge::{Caps, Context, Errno, FiAddr, av};

use crate::suite::context::check::{holds, same};
use crate::suite::context::timeout::until;
use crate::suite::context::{RAW, Result, Rx, Test, TestContext, Tx};
use crate::suite::defect::Defect;

tests! {
    flood_without_receives(Caps::MSG) catches [LeaksMemory, SwapsSends] .apis(RAW);
    threads_share_an_endpoint(Caps::TAGGED) catches [LosesCompletions] .apis(RAW).processes(1);
    started_programs_inherit_no_descriptors(Caps::MSG) catches [InheritsDescriptors] .apis(RAW).processes(1);
}

/// A peer sends far more messages than receives are posted. Memory stays within a small multiple of
/// the bytes in transit, and later receives match all messages in order.
fn flood_without_receives(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    let len = endpoint.info.tx_attr.inject_size.min(2048);
    let count = ctx.scale(8 << 20, 64 << 20) / len.max(1);
    if ctx.me() == 0 {
        ctx.barrier()?;
        for number in 0..count {
            endpoint.run(Tx::msg(endpoint.peer(), ctx.payload(1, number, len)))?;
        }
        return Ok(());
    }
    let before = resident_bytes()?;
    ctx.barrier()?;
    for _ in 0..5 {
        endpoint.settle()?;
    }
    for number in 0..count {
        let completion = endpoint.post_and_wait(Rx::msg(len))?.expect_success()?;
        ctx.verify(0, number, &completion.bytes)?;
    }
    let (grown, sent) = (resident_bytes()?.saturating_sub(before), count * len);
    let limit = 2 * sent + SLACK;
    holds(
        format!("{grown} bytes grown by a flood of {sent}, at most {limit}"),
        grown <= limit,
    )
}

/// Returns the bytes of memory that this process uses.
fn resident_bytes() -> Result<usize> {
    let status = std::fs::read_to_string("/proc/self/statm")?;
    let pages = status.split_whitespace().nth(1);
    let pages: usize = pages.context("no resident set")?.parse()?;
    Ok(pages * 4096)
}

/// Four threads post to one endpoint and read its queue, each for messages with its own tags.
fn threads_share_an_endpoint(ctx: &mut TestContext) -> Result {
    let info = ctx.info_for(&ctx.hints())?;
    let domain = info.open()?;
    let av = domain.av(&av::Attr::default())?;
    let ep = Endpoint::open(&*domain, &info, Arc::clone(&av))?;
    let self_addr = av.insert_one(&ep.address()?)?;
    let pool = Pool::new(&*domain, 256, 256)?;
    let rounds = ctx.scale(150, 3000) as u64;
    let results = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (ep, pool, results) = (&ep, &pool, &results);
            scope.spawn(move || {
                let result = exchange(ep, pool, self_addr, thread, rounds);
                results
                    .lock()
                    .map(|mut results| results.push(result))
                    .unwrap_or(());
            });
        }
    });
    // Any thread may read a completion, so the completions of all threads are counted together.
    let results = results
        .into_inner()
        .map_err(|_| anyhow!("a thread has panicked"))?;
    let mut received = vec![0; 4];
    let mut total = 0;
    for result in results {
        for (thread, number) in result? {
            received[thread as usize] += number;
            total += 1;
        }
    }
    let tail = drain(&ep, 8 * rounds - total)?;
    for (thread, number) in tail {
        received[thread as usize] += number;
    }
    // Every number was received once, and every send is complete.
    let sum = rounds * (rounds - 1) / 2;
    same("the sum of each thread's messages", received, vec![sum; 4])
}

/// Posts `rounds` messages to this endpoint with a thread's tags. Returns the messages that were
/// received meanwhile.
fn exchange(
    ep: &Endpoint,
    pool: &Pool,
    self_addr: FiAddr,
    thread: u64,
    rounds: u64,
) -> Result<Vec<(u64, u64)>> {
    let mut received = Vec::new();
    let mut completions = Completions::with_capacity(8);
    for number in 0..rounds {
        let tag = thread << 32 | number;
        post(ep, pool, &mut completions, &mut received, |buf| {
            ep.trecv(buf, FiAddr::UNSPEC, tag, Context(tag)).map(drop)
        })?;
        post(ep, pool, &mut completions, &mut received, |mut buf| {
            // Eight bytes fit into 256.
            let _ = buf.write(&tag.to_le_bytes());
            ep.tsend(buf, self_addr, tag, Context(u64::MAX)).map(drop)
        })?;
    }
    Ok(received)
}

/// Posts an operation when a buffer and room are available, and reads completions until then.
fn post(
    ep: &Endpoint,
    pool: &Pool,
    completions: &mut Completions,
    received: &mut Vec<(u64, u64)>,
    post: impl Fn(selvedge::owned::Buf) -> std::result::Result<(), selvedge::owned::TryPostError>,
) -> Result {
    until("room for a post", || {
        ep.poll(completions)?;
        record(completions, received)?;
        let Some(buf) = pool.take() else {
            return Ok(None);
        };
        match post(buf) {
            Ok(()) => Ok(Some(())),
            Err(refused) if refused.errno == Errno::Again => Ok(None),
            Err(refused) => Err(refused.errno.into()),
        }
    })
}

/// Records thread and number of each received message, and zeros for each send.
fn record(completions: &mut Completions, received: &mut Vec<(u64, u64)>) -> Result {
    for completion in completions.drain() {
        let outcome = completion.result.map_err(|error| anyhow!("{error:?}"))?;
        if completion.context == Context(u64::MAX) {
            received.push((0, 0));
            continue;
        }
        let tag = completion.context.0;
        same("the tag of a receive", outcome.tag, tag)?;
        same(
            "the message of a receive",
            &completion.buf[..],
            &tag.to_le_bytes()[..],
        )?;
        received.push((tag >> 32, tag & 0xffff_ffff));
    }
    Ok(())
}

/// Reads completions until `count` operations are recorded.
fn drain(ep: &Endpoint, count: u64) -> Result<Vec<(u64, u64)>> {
    let (mut received, mut completions) = (Vec::new(), Completions::with_capacity(64));
    until("the last completions", || {
        ep.poll(&mut completions)?;
        record(&mut completions, &mut received)?;
        Ok((received.len() as u64 >= count).then_some(()))
    })?;
    Ok(received)
}

/// A program that is started while endpoints are open has none of their descriptors.
fn started_programs_inherit_no_descriptors(ctx: &mut TestContext) -> Result {
    let before = count_inherited_descriptors()?;
    let endpoint = ctx.open_endpoint()?;
    let receive = endpoint.post(Rx::msg(100))?;
    endpoint.run(Tx::msg(endpoint.to(0), ctx.payload(0, 0, 100)))?;
    ctx.verify(0, 0, &endpoint.wait_for(receive)?.expect_success()?.bytes)?;
    same(
        "descriptors of a program that was started",
        count_inherited_descriptors()?,
        before,
    )
}

/// Returns the number of descriptors of a program that this process starts.
fn count_inherited_descriptors() -> Result<usize> {
    let output = Command::new("ls").arg("/proc/self/fd").output();
    let output = output.context("cannot start ls")?.stdout;
    Ok(output.split(|byte| *byte == b'\n').count())
}

/// Growth of the process's memory that the test permits in addition to the bytes sent.
const SLACK: usize = 48 << 20;
