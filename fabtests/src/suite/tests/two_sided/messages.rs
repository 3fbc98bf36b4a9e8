//! Messages, fi_msg(3): they arrive intact, once and in order, and completions have exact fields.

use std::collections::BTreeSet;
use std::ops::Range;

use anyhow::ensure;
use selvedge::{Caps, CompletionFlags as Flags, Errno, FiAddr, OpFlags};

use crate::suite::context::check::{bytes as bytes_are, holds, same};
use crate::suite::context::{
    Api, CONNECTED, Completion, POLLED, RAW, Result, Rx, Test, TestContext, TestEndpoint, Tx,
};
use crate::suite::defect::Defect;

tests! {
    every_size(MSG) catches [FlipsBitOfLarge, CutsOff] .ep_types(CONNECTED);
    every_field(SOURCE) catches [NoKind, CountsOneLess, HalvesData, NoSource];
    every_call(MSG) catches [DropsInjects, FlipsBit, SwapsSegments] .apis(RAW).ep_types(CONNECTED);
    both_directions_at_once(MSG) catches [SendsTwice, LosesCompletions] .ep_types(CONNECTED);
    order_of_one_sender(MSG) catches [
        SwapsSends, SendsTwice, DropsFirst
    ] .apis(POLLED).ep_types(CONNECTED);
    many_senders(MSG) catches [SendsTwice, SwapsSends, CompletesTwice] .apis(POLLED).processes(4);
    all_to_all(SOURCE) catches [WrongSource, SendsTwice] .apis(POLLED).processes(4);
    directed_receives(DIRECTED) catches [IgnoresSource] .processes(3);
    to_itself(MSG) catches [FlipsBit, LosesCompletions] .processes(1);
    inject_sizes(MSG) catches [InjectsAnySize, DropsInjects] .ep_types(CONNECTED);
    inject_copies_at_once(MSG) catches [ReadsInjectLate] .apis(RAW);
    too_long_for_the_receive(MSG) catches [HidesErrors, NoOlen, WrongErrno] .ep_types(CONNECTED);
    segments(MSG) catches [SwapsSegments] .apis(RAW).ep_types(CONNECTED);
    invalid_flags(MSG) catches [AcceptsAnyFlag] .apis(RAW);
}

const MSG: Caps = Caps::MSG;
const SOURCE: Caps = Caps::MSG.union(Caps::SOURCE);
const DIRECTED: Caps = SOURCE.union(Caps::DIRECTED_RECV);

/// Lengths around every power of two, and around the inject size.
pub(in crate::suite::tests) fn sizes(ctx: &TestContext, inject_size: usize) -> Vec<usize> {
    let largest = ctx.scale(1 << 18, 1 << 22);
    let mut sizes = BTreeSet::from([0, 3, 40, 48, 56, 100, 1000, 10_000, largest]);
    let mut power = 1;
    while power < largest {
        sizes.extend([power - 1, power, power + 1]);
        power *= 2;
    }
    if inject_size < largest {
        sizes.extend([inject_size.saturating_sub(1), inject_size, inject_size + 1]);
    }
    sizes.into_iter().collect()
}

fn every_size(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    let sizes = sizes(ctx, endpoint.info.tx_attr.inject_size);
    for (number, &len) in sizes.iter().enumerate() {
        if ctx.me() == 0 {
            endpoint.run(Tx::msg(endpoint.peer(), ctx.payload(1, number, len)))?;
        } else {
            // Some receives are posted before the message arrives, others after.
            let done = endpoint
                .post_and_wait(Rx::msg(len + number % 3))?
                .expect_success()?;
            same("length", done.len, len)?;
            ctx.verify(0, number, &done.bytes)?;
        }
        if number % 8 == 0 {
            ctx.barrier()?;
        }
    }
    Ok(())
}

/// The fields of every completion: flags, length, data, source.
fn every_field(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    let data = [None, Some(0), Some(u64::MAX), Some(0x0123_4567_89ab_cdef)];
    let width = 8 * endpoint.info.domain_attr.cq_data_size.min(8);
    for (number, &len) in [0, 1, 40, 300, 5000, 70_000].iter().enumerate() {
        for data in data {
            let data = data.map(|data| truncate_data(data, width));
            if ctx.me() == 0 {
                let mut tx = Tx::msg(endpoint.peer(), ctx.payload(1, number, len));
                tx.data = data;
                let sent = endpoint.post_and_wait(tx)?.expect_success()?;
                check_sent(ctx, &sent, Flags::MSG)?;
            } else {
                let done = endpoint
                    .post_and_wait(Rx::msg(len + 16))?
                    .expect_success()?;
                same("length", done.len, len)?;
                same("data", done.data, data)?;
                same("source", done.src, endpoint.peer())?;
                same("flags", done.flags, received(Flags::MSG, data))?;
                same("tag of an untagged message", done.tag, 0)?;
                ctx.verify(0, number, &done.bytes)?;
            }
        }
    }
    Ok(())
}

pub(in crate::suite::tests) fn truncate_data(data: u64, width: usize) -> u64 {
    match width {
        64.. => data,
        width => data & ((1 << width) - 1),
    }
}

/// The flags of a receive's completion.
pub(in crate::suite::tests) fn received(kind: Flags, data: Option<u64>) -> Flags {
    let flags = kind | Flags::RECV;
    data.map_or(flags, |_| flags | Flags::REMOTE_CQ_DATA)
}

/// Checks the flags of a send's completion, which the futures of [`Api::Async`] do not report.
pub(in crate::suite::tests) fn check_sent(
    ctx: &TestContext,
    sent: &Completion,
    kind: Flags,
) -> Result {
    match ctx.api {
        Api::Async => Ok(()),
        _ => same("flags of a send", sent.flags, kind | Flags::SEND),
    }
}

/// Every kind of send: short calls, lists, with data, by inject, with explicit flags.
fn every_call(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    let limit = endpoint.info.tx_attr.iov_limit;
    let inject = endpoint.info.tx_attr.inject_size.min(64);
    let calls: [fn(Tx) -> Tx; 7] = [
        |tx| tx,
        |tx| tx.data(7),
        Tx::injected,
        |tx| tx.injected().data(9),
        |tx| tx.flags(OpFlags::COMPLETION),
        |tx| tx.flags(OpFlags::COMPLETION | OpFlags::INJECT),
        |tx| tx.flags(OpFlags::COMPLETION | OpFlags::TRANSMIT_COMPLETE),
    ];
    let mut number = 0;
    for call in calls {
        for len in [0, 1, inject] {
            let tx = call(Tx::msg(endpoint.peer(), ctx.payload(1, number, len)));
            round(ctx, &endpoint, tx, number, len)?;
            number += 1;
        }
    }
    if limit >= 2 {
        let tx = Tx::msg(endpoint.peer(), ctx.payload(1, number, 48)).segments(&[16, 32]);
        round(ctx, &endpoint, tx, number, 48)?;
    }
    Ok(())
}

fn round(ctx: &TestContext, endpoint: &TestEndpoint, tx: Tx, number: usize, len: usize) -> Result {
    let data = tx.data;
    if ctx.me() == 0 {
        return endpoint.run(tx);
    }
    let done = endpoint.post_and_wait(Rx::msg(64))?.expect_success()?;
    same("data", done.data, data)?;
    same("length", done.len, len)?;
    ctx.verify(0, number, &done.bytes)
}

/// Windows of messages in both directions at the same time.
fn both_directions_at_once(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    let other = 1 - ctx.me();
    let (rounds, window) = (ctx.scale(10, 100), 16);
    for round in 0..rounds {
        let len = [8, 600, 9000, 40_000][round % 4];
        let mut receives = Vec::new();
        for _ in 0..window {
            receives.push(endpoint.post(Rx::msg(len))?);
        }
        let mut sends = Vec::new();
        for number in 0..window {
            let number = round * window + number;
            sends.push(endpoint.post(Tx::msg(endpoint.peer(), ctx.payload(other, number, len)))?);
        }
        for (number, context) in receives.into_iter().enumerate() {
            let done = endpoint.wait_for(context)?.expect_success()?;
            same("length", done.len, len)?;
            ctx.verify(other, round * window + number, &done.bytes)?;
        }
        for context in sends {
            endpoint.wait_for(context)?.expect_success()?;
        }
    }
    Ok(())
}

/// Messages of one sender match receives in the order of the sends, whatever their size.
fn order_of_one_sender(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    let mut random = ctx.common_random();
    let count = ctx.scale(300, 5000);
    let lens: Vec<_> = (0..count)
        .map(|_| *random.pick(&[0, 8, 100, 3000, 20_000]))
        .collect();
    let window = 32;
    for (round, lens) in lens.chunks(window).enumerate() {
        let first = round * window;
        if ctx.me() == 0 {
            let sends = lens.iter().enumerate().map(|(index, &len)| {
                let bytes = ctx.payload(1, first + index, len);
                endpoint.post(Tx::msg(endpoint.peer(), bytes))
            });
            let sends = sends.collect::<Result<Vec<_>>>()?;
            for context in sends {
                endpoint.wait_for(context)?.expect_success()?;
            }
        } else {
            let receives = lens.iter().map(|_| endpoint.post(Rx::msg(20_000)));
            let receives = receives.collect::<Result<Vec<_>>>()?;
            for (index, context) in receives.into_iter().enumerate() {
                let done = endpoint.wait_for(context)?.expect_success()?;
                same("length", done.len, lens[index])?;
                ctx.verify(0, first + index, &done.bytes)?;
            }
        }
    }
    Ok(())
}

/// Messages of many senders: each once, and those of one sender in order.
fn many_senders(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    let count = ctx.scale(200, 3000);
    if ctx.me() > 0 {
        return send_all(ctx, &endpoint, 0, count);
    }
    receive_all(ctx, &endpoint, 0..count, |_, _| Ok(()))
}

/// All processes send to all, and every message has the right source.
///
/// The processes send in rounds. Otherwise every process could fill its endpoint with sends while
/// it receives nothing, and all would wait for each other.
fn all_to_all(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    for round in 0..ctx.scale(1, 10) {
        let numbers = round * ROUND..(round + 1) * ROUND;
        let mut sends = Vec::new();
        for number in numbers.clone() {
            for to in ctx.peers() {
                let bytes = ctx.payload(to, number, 16 + number * 37 % 900);
                sends.push(endpoint.post(Tx::msg(endpoint.to(to), bytes))?);
            }
            if number % 8 == 7 {
                endpoint.progress()?;
            }
        }
        receive_all(ctx, &endpoint, numbers, |from, done| {
            same("source", endpoint.process(done.src), Some(from))
        })?;
        for context in sends {
            endpoint.wait_for(context)?.expect_success()?;
        }
        ctx.barrier()?;
    }
    Ok(())
}

/// The number of messages that a process sends to each other process before it receives any.
const ROUND: usize = 60;

fn send_all(ctx: &TestContext, endpoint: &TestEndpoint, to: usize, count: usize) -> Result {
    let mut sends = Vec::new();
    for number in 0..count {
        let bytes = ctx.payload(to, number, 16 + number * 37 % 5000);
        sends.push(endpoint.post(Tx::msg(endpoint.to(to), bytes))?);
        if sends.len() == 16 {
            for context in sends.drain(..) {
                endpoint.wait_for(context)?.expect_success()?;
            }
        }
    }
    for context in sends {
        endpoint.wait_for(context)?.expect_success()?;
    }
    Ok(())
}

/// Receives the messages with these numbers from each other process, and checks that those of one
/// sender arrive in order.
fn receive_all(
    ctx: &TestContext,
    endpoint: &TestEndpoint,
    numbers: Range<usize>,
    check: impl Fn(usize, &Completion) -> Result,
) -> Result {
    let mut next = vec![numbers.start; ctx.count()];
    let total = numbers.len() * (ctx.count() - 1);
    let window = 32.min(total);
    let mut posted = std::collections::VecDeque::new();
    for _ in 0..window {
        posted.push_back(endpoint.post(Rx::msg(6000))?);
    }
    for received in 0..total {
        let context = posted.pop_front().expect("a window is posted");
        let done = endpoint.wait_for(context)?.expect_success()?;
        let (from, number) = ctx.read(&done.bytes)?;
        same(
            format!("the next message of process {from}"),
            number,
            next[from],
        )?;
        next[from] += 1;
        check(from, &done)?;
        if received + posted.len() + 1 < total {
            posted.push_back(endpoint.post(Rx::msg(6000))?);
        }
    }
    Ok(())
}

/// A directed receive takes messages of its source alone, and leaves other messages for other
/// receives.
fn directed_receives(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    let count = ctx.scale(30, 60);
    // The messages of process 1 arrive before those of process 2, and before any receive is posted.
    for from in [1, 2] {
        if ctx.me() == from {
            for number in 0..count {
                endpoint.run(Tx::msg(endpoint.to(0), ctx.payload(0, number, 64)))?;
            }
        }
        ctx.barrier()?;
        endpoint.settle()?;
        ctx.barrier()?;
    }
    if ctx.me() > 0 {
        return Ok(());
    }
    for from in [2, 1] {
        let receives = (0..count).map(|_| endpoint.post(Rx::msg(64).from(endpoint.to(from))));
        let receives = receives.collect::<Result<Vec<_>>>()?;
        for (number, context) in receives.into_iter().enumerate() {
            let done = endpoint.wait_for(context)?.expect_success()?;
            same("source", endpoint.process(done.src), Some(from))?;
            ctx.verify(from, number, &done.bytes)?;
        }
    }
    Ok(())
}

/// An endpoint may send to itself.
fn to_itself(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    for (number, len) in sizes(ctx, endpoint.info.tx_attr.inject_size)
        .into_iter()
        .enumerate()
    {
        let receive = endpoint.post(Rx::msg(len))?;
        endpoint.run(Tx::msg(endpoint.to(0), ctx.payload(0, number, len)))?;
        let done = endpoint.wait_for(receive)?.expect_success()?;
        same("length", done.len, len)?;
        ctx.verify(0, number, &done.bytes)?;
    }
    Ok(())
}

/// An inject accepts up to `inject_size` bytes and no more.
fn inject_sizes(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    let most = endpoint.info.tx_attr.inject_size;
    for (number, len) in [0, 1, most / 2, most.saturating_sub(1), most]
        .into_iter()
        .enumerate()
    {
        if ctx.me() == 0 {
            let mut bytes = ctx.payload(1, number, len);
            endpoint.run(Tx::msg(endpoint.peer(), bytes.clone()).injected())?;
            bytes.fill(0xdd);
        } else {
            let done = endpoint.post_and_wait(Rx::msg(most))?.expect_success()?;
            same("length", done.len, len)?;
            ctx.verify(0, number, &done.bytes)?;
        }
    }
    if ctx.me() == 0 {
        let tx = Tx::msg(endpoint.peer(), vec![0; most + 1]).injected();
        same(
            "an inject of one byte more than inject_size",
            endpoint.try_post(tx).err(),
            Some(Errno::MsgSize),
        )?;
    }
    Ok(())
}

/// With FI_INJECT, the caller may reuse the buffer when the call returns.
fn inject_copies_at_once(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    let count = 20;
    for number in 0..count {
        let len = endpoint.info.tx_attr.inject_size.min(16 + number * 8);
        if ctx.me() == 0 {
            inject_and_overwrite(ctx, &endpoint, number, len)?;
        } else {
            let done = endpoint.post_and_wait(Rx::msg(len))?.expect_success()?;
            ctx.verify(0, number, &done.bytes)?;
        }
    }
    Ok(())
}

fn inject_and_overwrite(
    ctx: &TestContext,
    endpoint: &TestEndpoint,
    number: usize,
    len: usize,
) -> Result {
    let bytes = ctx.payload(1, number, len);
    let tx = Tx::msg(endpoint.peer(), bytes).flags(OpFlags::INJECT | OpFlags::COMPLETION);
    let context = endpoint.post(tx)?;
    endpoint.overwrite(context);
    endpoint.wait_for(context)?.expect_success()?;
    Ok(())
}

/// A message that is too long fills its receive, which reports the number of lost bytes.
fn too_long_for_the_receive(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    for (number, (len, receive_len)) in [(20, 10), (64, 1), (5000, 4999), (70_000, 8), (16, 16)]
        .into_iter()
        .enumerate()
    {
        if ctx.me() == 0 {
            endpoint.run(Tx::msg(endpoint.peer(), ctx.payload(1, number, len)))?;
            continue;
        }
        let done = endpoint.post_and_wait(Rx::msg(receive_len))?;
        let message = ctx.payload_of(0, 1, number, len);
        if len == receive_len {
            bytes_are(
                "the bytes that fit",
                &done.expect_success()?.bytes,
                &message,
            )?;
            continue;
        }
        let bytes = done.bytes.clone();
        let failure = done.expect_failure("a message that is too long", Errno::Trunc)?;
        same("bytes that were lost", failure.olen, len - receive_len)?;
        bytes_are("the bytes that fit", &bytes, &message[..receive_len])?;
    }
    Ok(())
}

/// Lists of segments on both sides, divided at different offsets; one segment more than the limit
/// is refused.
fn segments(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    let most = endpoint
        .info
        .tx_attr
        .iov_limit
        .min(endpoint.info.rx_attr.iov_limit);
    ensure!(most >= 1, "an iov_limit of 0");
    for count in 1..=most {
        for (number, len) in [64, 3000, 50_000].into_iter().enumerate() {
            if ctx.me() == 0 {
                let tx = Tx::msg(endpoint.peer(), ctx.payload(1, number, len));
                endpoint.run(tx.segments(&parts(len, count)))?;
            } else {
                let mut lengths = parts(len, count);
                lengths.reverse();
                let done = endpoint
                    .post_and_wait(Rx::msg(len).segments(&lengths))?
                    .expect_success()?;
                same("length", done.len, len)?;
                ctx.verify(0, number, &done.bytes)?;
            }
        }
    }
    let most = endpoint.info.tx_attr.iov_limit;
    let tx = Tx::msg(endpoint.peer(), vec![0; 64]).segments(&parts(64, most + 1));
    let refused = endpoint.try_post(tx);
    holds("more segments than iov_limit are refused", refused.is_err())?;
    let rx = Rx::msg(64).segments(&parts(64, endpoint.info.rx_attr.iov_limit + 1));
    holds(
        "more segments of a receive than iov_limit are refused",
        endpoint.try_post(rx).is_err(),
    )
}

/// Divides a length into `count` parts, no two of which are equal.
pub(in crate::suite::tests) fn parts(len: usize, count: usize) -> Vec<usize> {
    let mut parts: Vec<_> = (1..count)
        .map(|part| len * part / (count * count))
        .collect();
    parts.push(len - parts.iter().sum::<usize>());
    parts
}

/// Flags that do not belong to an operation are refused, and nothing is sent.
fn invalid_flags(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    if ctx.me() == 0 {
        for flags in [
            OpFlags::DISCARD,
            OpFlags::CLAIM,
            OpFlags::MULTI_RECV,
            OpFlags::from_bits_retain(1 << 60),
        ] {
            let tx = Tx::msg(endpoint.peer(), ctx.payload(1, 0, 16)).flags(flags);
            holds(
                format!("a send with {flags} is refused"),
                endpoint.try_post(tx).is_err(),
            )?;
        }
        endpoint.run(Tx::msg(endpoint.peer(), ctx.payload(1, 7, 16)))?;
    } else {
        for flags in [
            OpFlags::INJECT,
            OpFlags::FENCE,
            OpFlags::from_bits_retain(1 << 60),
        ] {
            let rx = Rx::msg(16).from(FiAddr::UNSPEC).flags(flags);
            holds(
                format!("a receive with {flags} is refused"),
                endpoint.try_post(rx).is_err(),
            )?;
        }
        let done = endpoint.post_and_wait(Rx::msg(16))?.expect_success()?;
        ctx.verify(0, 7, &done.bytes)?;
    }
    Ok(())
}
