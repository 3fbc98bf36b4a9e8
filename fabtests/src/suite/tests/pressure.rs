//! Too much of everything: floods that nobody reads, threads that share, programs that are started.

use std::process::Command;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use selvedge::owned::{Completions, Endpoint, Pool};
use selvedge::{Caps, Context, Errno, FiAddr, av};

use crate::suite::cx::check::{holds, same};
use crate::suite::cx::timeout::until;
use crate::suite::cx::{Cx, RAW, Result, Rx, Test, Tx};
use crate::suite::flaw::Flaw;

tests! {
    a_flood_that_nobody_reads(Caps::MSG) catches [Hoards, SwapsSends] .faces(RAW);
    threads_share_an_endpoint(Caps::TAGGED) catches [LosesCompletions] .faces(RAW).processes(1);
    started_programs_inherit_nothing(Caps::MSG) catches [Inherits] .faces(RAW).processes(1);
}

/// A peer sends far more than anybody has asked for: memory stays within a few times of what is on
/// its way, and when somebody reads, everything comes in order.
fn a_flood_that_nobody_reads(cx: &mut Cx) -> Result {
    let port = cx.port()?;
    let len = port.info.tx_attr.inject_size.min(2048);
    let count = cx.scale(8 << 20, 64 << 20) / len.max(1);
    if cx.me() == 0 {
        cx.barrier()?;
        for number in 0..count {
            port.run(Tx::msg(port.peer(), cx.payload(1, number, len)))?;
        }
        return Ok(());
    }
    let before = resident()?;
    cx.barrier()?;
    for _ in 0..5 {
        port.settle()?;
    }
    for number in 0..count {
        let done = port.post_and_wait(Rx::msg(len))?.expect_success()?;
        cx.verify(0, number, &done.bytes)?;
    }
    let (grown, sent) = (resident()?.saturating_sub(before), count * len);
    let bound = 2 * sent + SLACK;
    holds(
        format!("{grown} bytes grown by a flood of {sent}, at most {bound}"),
        grown <= bound,
    )
}

/// Bytes of memory that this process uses.
fn resident() -> Result<usize> {
    let status = std::fs::read_to_string("/proc/self/statm")?;
    let pages = status.split_whitespace().nth(1);
    let pages: usize = pages.context("no resident set")?.parse()?;
    Ok(pages * 4096)
}

/// Four threads post to one endpoint and read its queue, each for messages with tags of its own.
fn threads_share_an_endpoint(cx: &mut Cx) -> Result {
    let info = cx.info_for(&cx.hints())?;
    let domain = info.open()?;
    let av = domain.av(&av::Attr::default())?;
    let ep = Endpoint::open(&*domain, &info, Arc::clone(&av))?;
    let own = av.insert_one(&ep.address()?)?;
    let pool = Pool::new(&*domain, 256, 256)?;
    let rounds = cx.scale(150, 3000) as u64;
    let results = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (ep, pool, results) = (&ep, &pool, &results);
            scope.spawn(move || {
                let result = talk(ep, pool, own, thread, rounds);
                results
                    .lock()
                    .map(|mut results| results.push(result))
                    .unwrap_or(());
            });
        }
    });
    // Completions are read by whoever comes first: all of them together are counted.
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
    // Every number was received once, and every send is over.
    let sum = rounds * (rounds - 1) / 2;
    same("what each thread's messages say", received, vec![sum; 4])
}

/// Posts `rounds` messages to oneself with a thread's tags; what was received meanwhile.
fn talk(
    ep: &Endpoint,
    pool: &Pool,
    own: FiAddr,
    thread: u64,
    rounds: u64,
) -> Result<Vec<(u64, u64)>> {
    let mut seen = Vec::new();
    let mut done = Completions::with_capacity(8);
    for number in 0..rounds {
        let tag = thread << 32 | number;
        post(ep, pool, &mut done, &mut seen, |buf| {
            ep.trecv(buf, FiAddr::UNSPEC, tag, Context(tag)).map(drop)
        })?;
        post(ep, pool, &mut done, &mut seen, |mut buf| {
            // Eight bytes fit into 256.
            let _ = buf.write(&tag.to_le_bytes());
            ep.tsend(buf, own, tag, Context(u64::MAX)).map(drop)
        })?;
    }
    Ok(seen)
}

/// Posts when there is a buffer and room, and reads completions meanwhile.
fn post(
    ep: &Endpoint,
    pool: &Pool,
    done: &mut Completions,
    seen: &mut Vec<(u64, u64)>,
    post: impl Fn(selvedge::owned::Buf) -> std::result::Result<(), selvedge::owned::TryPostError>,
) -> Result {
    until("room for a post", || {
        ep.poll(done)?;
        take(done, seen)?;
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

/// What completions say: thread and number of a message, or of no message for a send.
fn take(done: &mut Completions, seen: &mut Vec<(u64, u64)>) -> Result {
    for completion in done.drain() {
        let received = completion.result.map_err(|error| anyhow!("{error:?}"))?;
        if completion.context == Context(u64::MAX) {
            seen.push((0, 0));
            continue;
        }
        let tag = completion.context.0;
        same("the tag of a receive", received.tag, tag)?;
        same("its message", &completion.buf[..], &tag.to_le_bytes()[..])?;
        seen.push((tag >> 32, tag & 0xffff_ffff));
    }
    Ok(())
}

fn drain(ep: &Endpoint, count: u64) -> Result<Vec<(u64, u64)>> {
    let (mut seen, mut done) = (Vec::new(), Completions::with_capacity(64));
    until("the last completions", || {
        ep.poll(&mut done)?;
        take(&mut done, &mut seen)?;
        Ok((seen.len() as u64 >= count).then_some(()))
    })?;
    Ok(seen)
}

/// A program that is started while endpoints are open has none of their descriptors.
fn started_programs_inherit_nothing(cx: &mut Cx) -> Result {
    let before = inherited()?;
    let port = cx.port()?;
    let receive = port.post(Rx::msg(100))?;
    port.run(Tx::msg(port.to(0), cx.payload(0, 0, 100)))?;
    cx.verify(0, 0, &port.wait_for(receive)?.expect_success()?.bytes)?;
    same(
        "descriptors of a program that was started",
        inherited()?,
        before,
    )
}

/// How many descriptors a program has that is started now.
fn inherited() -> Result<usize> {
    let listed = Command::new("ls").arg("/proc/self/fd").output();
    let listed = listed.context("cannot start ls")?.stdout;
    Ok(listed.split(|byte| *byte == b'\n').count())
}

/// What a process may grow by, whatever is sent to it.
const SLACK: usize = 48 << 20;
