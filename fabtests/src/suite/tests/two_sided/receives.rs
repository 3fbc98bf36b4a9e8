//! Special receives: peeks, claims, discards, cancels, and multi-receive buffers.

use anyhow::ensure;
use selvedge::{Caps, CompletionFlags as Flags, EpOption, Errno, OpFlags, TagMatch};

use crate::suite::context::check::{holds, same};
use crate::suite::context::timeout::until;
use crate::suite::context::{POLLED, RAW, Result, Rx, RxKind, Test, TestContext, TestEndpoint, Tx};
use crate::suite::defect::Defect;

tests! {
    peeks(TAGGED) catches [PeekConsumes, WrongTag, HidesErrors] .apis(POLLED);
    discards(TAGGED) catches [DiscardKeeps] .apis(POLLED);
    claims(TAGGED) catches [ClaimsNothing] .apis(RAW);
    cancels(TAGGED) catches [CancelsNothing, DeniesCancel, HidesErrors] .apis(POLLED);
    cancel_races(TAGGED) catches [DeniesCancel, LosesCompletions] .apis(POLLED);
    many_in_a_buffer(MULTI) catches [NeverReleases, WrongBufferAddress, SendsTwice] .apis(POLLED);
    many_tagged_in_a_buffer(TAGGED_MULTI) catches [IgnoresTags, NeverReleases] .apis(POLLED);
    release_threshold(MULTI) catches [IgnoresOptions] .apis(RAW);
}

const TAGGED: Caps = Caps::TAGGED;
const MULTI: Caps = Caps::MSG.union(Caps::MULTI_RECV);
const TAGGED_MULTI: Caps = Caps::TAGGED.union(Caps::TAGGED_MULTI_RECV);

/// Peeks until there is a message with this tag, and returns its length.
fn peek(endpoint: &TestEndpoint, tag: u64) -> Result<usize> {
    until("a peek that finds its message", || {
        let done = endpoint.post_and_wait(Rx::tagged(tag, 64).kind(RxKind::Peek))?;
        match &done.error {
            Some(failure) if failure.errno == Errno::NoMsg => Ok(None),
            _ => {
                let done = done.expect_success()?;
                same("tag", done.tag, tag)?;
                Ok(Some(done.len))
            }
        }
    })
}

/// A peek reports a message and leaves it; a peek without a match reports that.
fn peeks(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    for (number, len) in [0, 8, 500, 20_000].into_iter().enumerate() {
        let tag = 100 + number as u64;
        if ctx.me() == 0 {
            endpoint.run(Tx::tagged(
                endpoint.peer(),
                tag,
                ctx.payload(1, number, len),
            ))?;
        } else {
            let absent = endpoint.post_and_wait(Rx::tagged(tag + 1000, 64).kind(RxKind::Peek))?;
            absent.expect_failure("a peek for an absent message", Errno::NoMsg)?;
            for _ in 0..3 {
                same("length", peek(&endpoint, tag)?, len)?;
            }
            let done = endpoint
                .post_and_wait(Rx::tagged(tag, len))?
                .expect_success()?;
            ctx.verify(0, number, &done.bytes)?;
        }
        ctx.barrier()?;
    }
    Ok(())
}

/// A discarded message cannot be received, and its send completes.
fn discards(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    for (number, len) in [0, 8, 500, 20_000].into_iter().enumerate() {
        let tag = number as u64;
        if ctx.me() == 0 {
            endpoint.run(Tx::tagged(
                endpoint.peer(),
                tag,
                ctx.payload(1, 2 * number, len),
            ))?;
            endpoint.run(Tx::tagged(
                endpoint.peer(),
                tag,
                ctx.payload(1, 2 * number + 1, len),
            ))?;
        } else {
            peek(&endpoint, tag)?;
            let dropped = endpoint
                .post_and_wait(Rx::tagged(tag, 64).kind(RxKind::Discard))?
                .expect_success()?;
            same("length", dropped.len, len)?;
            let done = endpoint
                .post_and_wait(Rx::tagged(tag, len))?
                .expect_success()?;
            ctx.verify(0, 2 * number + 1, &done.bytes)?;
        }
        ctx.barrier()?;
    }
    Ok(())
}

/// A claimed message is reserved for the claiming context.
fn claims(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    for (number, len) in [16, 500, 20_000].into_iter().enumerate() {
        let tag = number as u64;
        if ctx.me() == 0 {
            let send = |number| {
                endpoint.post(Tx::tagged(
                    endpoint.peer(),
                    tag,
                    ctx.payload(1, number, len),
                ))
            };
            for context in [send(2 * number)?, send(2 * number + 1)?] {
                endpoint.wait_for(context)?.expect_success()?;
            }
        } else {
            peek(&endpoint, tag)?;
            let claimed = claim(&endpoint, tag)?;
            same("length", claimed.0, len)?;
            let other = endpoint
                .post_and_wait(Rx::tagged(TagMatch::exact(tag), len))?
                .expect_success()?;
            ctx.verify(0, 2 * number + 1, &other.bytes)?;
            let bytes = receive_claimed(&endpoint, claimed.1, tag, len)?;
            ctx.verify(0, 2 * number, &bytes)?;
        }
        ctx.barrier()?;
    }
    Ok(())
}

/// Claims a message. Returns its length, and the claiming context.
fn claim(endpoint: &TestEndpoint, tag: u64) -> Result<(usize, u64)> {
    let flags = OpFlags::PEEK | OpFlags::CLAIM;
    let rx = Rx::tagged(tag, 0).kind(RxKind::Peek).flags(flags);
    let done = endpoint.post_and_wait(rx)?.expect_success()?;
    Ok((done.len, done.context))
}

fn receive_claimed(endpoint: &TestEndpoint, context: u64, tag: u64, len: usize) -> Result<Vec<u8>> {
    endpoint.post_again(context, Rx::tagged(tag, len).flags(OpFlags::CLAIM))?;
    Ok(endpoint.wait_for(context)?.expect_success()?.bytes)
}

/// A cancelled receive completes once with an error, and its message matches the next receive.
fn cancels(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    for number in 0..ctx.scale(20, 200) {
        let len = 16 + number * 91 % 9000;
        if ctx.me() == 1 {
            let first = endpoint.post(Rx::tagged(7, len))?;
            let second = endpoint.post(Rx::tagged(7, len))?;
            let cancelled = endpoint.cancel(first);
            same("cancelling a receive without a match", cancelled, Ok(()))?;
            let done = endpoint.wait_for(first)?;
            let flags = done.flags;
            done.expect_failure("a cancelled receive", Errno::Canceled)?;
            holds(
                "its entry has the flag of a receive",
                flags.contains(Flags::RECV),
            )?;
            same(
                "cancelling it again",
                endpoint.cancel(first),
                Err(Errno::NoEnt),
            )?;
            ctx.barrier()?;
            let done = endpoint.wait_for(second)?.expect_success()?;
            ctx.verify(0, number, &done.bytes)?;
            same(
                "cancelling a completed receive",
                endpoint.cancel(second),
                Err(Errno::NoEnt),
            )?;
        } else {
            ctx.barrier()?;
            endpoint.run(Tx::tagged(endpoint.peer(), 7, ctx.payload(1, number, len)))?;
        }
    }
    Ok(())
}

/// Receives are cancelled while messages arrive: each completes once, with or without a message,
/// and no message is lost.
fn cancel_races(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    let count = ctx.scale(300, 5000);
    if ctx.me() == 0 {
        for number in 0..count {
            endpoint.run(Tx::tagged(
                endpoint.peer(),
                3,
                ctx.payload(1, number, 16 + number % 400),
            ))?;
        }
        return Ok(());
    }
    let mut next = 0;
    let mut random = ctx.random();
    while next < count {
        let receives = [
            endpoint.post(Rx::tagged(3, 512))?,
            endpoint.post(Rx::tagged(3, 512))?,
        ];
        for _ in 0..random.below(4) {
            endpoint.progress()?;
        }
        let is_cancelled = receives.map(|receive| endpoint.cancel(receive).is_ok());
        for (receive, is_cancelled) in receives.into_iter().zip(is_cancelled) {
            let done = endpoint.wait_for(receive)?;
            if is_cancelled {
                done.expect_failure("a receive that was cancelled", Errno::Canceled)?;
            } else {
                ctx.verify(0, next, &done.expect_success()?.bytes)?;
                next += 1;
            }
        }
    }
    Ok(())
}

/// The longest message into a multi-receive buffer.
const LONGEST: usize = 1816;

/// Messages are placed in the buffer one after the other, until too little of it is left.
fn many_in_a_buffer(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    let count = ctx.scale(200, 3000);
    if ctx.me() == 0 {
        for number in 0..count {
            endpoint.run(Tx::msg(
                endpoint.peer(),
                ctx.payload(1, number, length(number)),
            ))?;
        }
        return Ok(());
    }
    receive_in_buffers(ctx, &endpoint, count, || Rx::msg(8192).kind(RxKind::Multi))
}

fn length(number: usize) -> usize {
    16 + number * 173 % (LONGEST - 16)
}

fn receive_in_buffers(
    ctx: &TestContext,
    endpoint: &TestEndpoint,
    count: usize,
    rx: impl Fn() -> Rx,
) -> Result {
    endpoint.set(EpOption::MinMultiRecv(LONGEST))?;
    let mut buffers = vec![endpoint.post(rx())?, endpoint.post(rx())?];
    for number in 0..count {
        let done = endpoint.next()?.expect_success()?;
        ensure!(
            buffers.contains(&done.context),
            "{done:?} belongs to no posted buffer"
        );
        same("length", done.len, length(number))?;
        ctx.verify(0, number, &done.bytes)?;
        if done.flags.contains(Flags::MULTI_RECV) {
            buffers.retain(|buffer| *buffer != done.context);
            buffers.push(endpoint.post(rx())?);
        }
        ensure!(number < 40 || buffers != [1, 2], "no buffer was released");
    }
    cancel_buffers(endpoint, buffers)
}

/// Cancels the buffers that are still posted.
fn cancel_buffers(endpoint: &TestEndpoint, buffers: Vec<u64>) -> Result {
    for buffer in buffers {
        if endpoint.cancel(buffer).is_ok() {
            endpoint
                .wait_for(buffer)?
                .expect_failure("a multi-receive buffer", Errno::Canceled)?;
        }
    }
    Ok(())
}

/// As [`many_in_a_buffer`] with tags; messages with other tags are not taken.
fn many_tagged_in_a_buffer(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    let count = ctx.scale(100, 1000);
    if ctx.me() == 0 {
        endpoint.run(Tx::tagged(endpoint.peer(), 99, ctx.payload(1, 777_777, 64)))?;
        for number in 0..count {
            let tag = 0x100 + number as u64 % 16;
            endpoint.run(Tx::tagged(
                endpoint.peer(),
                tag,
                ctx.payload(1, number, length(number)),
            ))?;
        }
        return Ok(());
    }
    let tag = TagMatch {
        tag: 0x100,
        ignore: 0xf,
    };
    receive_in_buffers(ctx, &endpoint, count, || {
        Rx::tagged(tag, 8192).kind(RxKind::Multi)
    })?;
    let other = endpoint
        .post_and_wait(Rx::tagged(99, 64))?
        .expect_success()?;
    ctx.verify(0, 777_777, &other.bytes)
}

/// A buffer is released when less than FI_OPT_MIN_MULTI_RECV is left of it.
fn release_threshold(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    if ctx.me() == 0 {
        for number in 0..3 {
            ctx.barrier()?;
            endpoint.run(Tx::msg(endpoint.peer(), ctx.payload(1, number, 300)))?;
        }
        return Ok(());
    }
    endpoint.set(EpOption::MinMultiRecv(500))?;
    // 1000 bytes: 700 are left after the first message, 400 after the second.
    let mut buffer = endpoint.post(Rx::msg(1000).kind(RxKind::Multi))?;
    for number in 0..3 {
        ctx.barrier()?;
        let done = endpoint.next()?.expect_success()?;
        same("buffer", done.context, buffer)?;
        ctx.verify(0, number, &done.bytes)?;
        let is_released = done.flags.contains(Flags::MULTI_RECV);
        same(
            format!("release by message {number}"),
            is_released,
            number == 1,
        )?;
        if is_released {
            buffer = endpoint.post(Rx::msg(1000).kind(RxKind::Multi))?;
        }
    }
    cancel_buffers(&endpoint, vec![buffer])
}
