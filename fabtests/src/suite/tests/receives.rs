//! Receives that are not plain: looked for, claimed, dropped, cancelled, and many in one buffer.

use anyhow::ensure;
use selvedge::{Caps, CompletionFlags as Flags, EpOption, Errno, OpFlags, TagMatch};

use crate::suite::cx::check::{holds, same};
use crate::suite::cx::timeout::until;
use crate::suite::cx::{Cx, POLLED, RAW, Result, Rx, RxKind, Test, TestEndpoint, Tx};
use crate::suite::flaw::Flaw;

tests! {
    looks(TAGGED) catches [LookTakes, WrongTag, HidesErrors] .faces(POLLED);
    discards(TAGGED) catches [DiscardLeaves] .faces(POLLED);
    claims(TAGGED) catches [ClaimsNothing] .faces(RAW);
    cancels(TAGGED) catches [CancelsNothing, DeniesCancel, HidesErrors] .faces(POLLED);
    cancel_races(TAGGED) catches [DeniesCancel, LosesCompletions] .faces(POLLED);
    many_in_a_buffer(MULTI) catches [NeverReleases, WrongPlace, SendsTwice] .faces(POLLED);
    many_tagged_in_a_buffer(TAGGED_MULTI) catches [IgnoresTags, NeverReleases] .faces(POLLED);
    release_threshold(MULTI) catches [ForgetsOptions] .faces(RAW);
}

const TAGGED: Caps = Caps::TAGGED;
const MULTI: Caps = Caps::MSG.union(Caps::MULTI_RECV);
const TAGGED_MULTI: Caps = Caps::TAGGED.union(Caps::TAGGED_MULTI_RECV);

/// Looks until there is a message with this tag; its length.
fn look(port: &TestEndpoint, tag: u64) -> Result<usize> {
    until("the message that is looked for", || {
        let done = port.post_and_wait(Rx::tagged(tag, 64).kind(RxKind::Peek))?;
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

/// A look tells of a message and leaves it; one for a message that is not there says so.
fn looks(cx: &mut Cx) -> Result {
    let port = cx.port()?;
    for (number, len) in [0, 8, 500, 20_000].into_iter().enumerate() {
        let tag = 100 + number as u64;
        if cx.me() == 0 {
            port.run(Tx::tagged(port.peer(), tag, cx.payload(1, number, len)))?;
        } else {
            let absent = port.post_and_wait(Rx::tagged(tag + 1000, 64).kind(RxKind::Peek))?;
            absent.expect_failure("a look for what is not there", Errno::NoMsg)?;
            for _ in 0..3 {
                same("length", look(&port, tag)?, len)?;
            }
            let done = port.post_and_wait(Rx::tagged(tag, len))?.expect_success()?;
            cx.verify(0, number, &done.bytes)?;
        }
        cx.barrier()?;
    }
    Ok(())
}

/// What is dropped is gone, and its send completes.
fn discards(cx: &mut Cx) -> Result {
    let port = cx.port()?;
    for (number, len) in [0, 8, 500, 20_000].into_iter().enumerate() {
        let tag = number as u64;
        if cx.me() == 0 {
            port.run(Tx::tagged(port.peer(), tag, cx.payload(1, 2 * number, len)))?;
            port.run(Tx::tagged(
                port.peer(),
                tag,
                cx.payload(1, 2 * number + 1, len),
            ))?;
        } else {
            look(&port, tag)?;
            let dropped = port
                .post_and_wait(Rx::tagged(tag, 64).kind(RxKind::Discard))?
                .expect_success()?;
            same("length", dropped.len, len)?;
            let done = port.post_and_wait(Rx::tagged(tag, len))?.expect_success()?;
            cx.verify(0, 2 * number + 1, &done.bytes)?;
        }
        cx.barrier()?;
    }
    Ok(())
}

/// A claimed message is for whoever claimed it.
fn claims(cx: &mut Cx) -> Result {
    let port = cx.port()?;
    for (number, len) in [16, 500, 20_000].into_iter().enumerate() {
        let tag = number as u64;
        if cx.me() == 0 {
            let send = |number| port.post(Tx::tagged(port.peer(), tag, cx.payload(1, number, len)));
            for context in [send(2 * number)?, send(2 * number + 1)?] {
                port.wait_for(context)?.expect_success()?;
            }
        } else {
            look(&port, tag)?;
            let claimed = claim(&port, tag)?;
            same("length", claimed.0, len)?;
            let other = port
                .post_and_wait(Rx::tagged(TagMatch::exact(tag), len))?
                .expect_success()?;
            cx.verify(0, 2 * number + 1, &other.bytes)?;
            let bytes = take_claimed(&port, claimed.1, tag, len)?;
            cx.verify(0, 2 * number, &bytes)?;
        }
        cx.barrier()?;
    }
    Ok(())
}

/// Claims a message: its length, and the context that it is claimed under.
fn claim(port: &TestEndpoint, tag: u64) -> Result<(usize, u64)> {
    let flags = OpFlags::PEEK | OpFlags::CLAIM;
    let rx = Rx::tagged(tag, 0).kind(RxKind::Peek).flags(flags);
    let done = port.post_and_wait(rx)?.expect_success()?;
    Ok((done.len, done.context))
}

fn take_claimed(port: &TestEndpoint, context: u64, tag: u64, len: usize) -> Result<Vec<u8>> {
    port.post_again(context, Rx::tagged(tag, len).flags(OpFlags::CLAIM))?;
    Ok(port.wait_for(context)?.expect_success()?.bytes)
}

/// What is cancelled completes so, once, and its message goes to the next receive.
fn cancels(cx: &mut Cx) -> Result {
    let port = cx.port()?;
    for number in 0..cx.scale(20, 200) {
        let len = 16 + number * 91 % 9000;
        if cx.me() == 1 {
            let first = port.post(Rx::tagged(7, len))?;
            let second = port.post(Rx::tagged(7, len))?;
            let cancelled = port.cancel(first);
            same(
                "cancelling a receive that nothing has met",
                cancelled,
                Ok(()),
            )?;
            let done = port.wait_for(first)?;
            let flags = done.flags;
            done.expect_failure("a cancelled receive", Errno::Canceled)?;
            holds(
                "its entry says that it was a receive",
                flags.contains(Flags::RECV),
            )?;
            same("cancelling it again", port.cancel(first), Err(Errno::NoEnt))?;
            cx.barrier()?;
            let done = port.wait_for(second)?.expect_success()?;
            cx.verify(0, number, &done.bytes)?;
            same(
                "cancelling what is over",
                port.cancel(second),
                Err(Errno::NoEnt),
            )?;
        } else {
            cx.barrier()?;
            port.run(Tx::tagged(port.peer(), 7, cx.payload(1, number, len)))?;
        }
    }
    Ok(())
}

/// Receives that are cancelled while messages come: each completes once, with a message or without,
/// and no message is lost.
fn cancel_races(cx: &mut Cx) -> Result {
    let port = cx.port()?;
    let count = cx.scale(300, 5000);
    if cx.me() == 0 {
        for number in 0..count {
            port.run(Tx::tagged(
                port.peer(),
                3,
                cx.payload(1, number, 16 + number % 400),
            ))?;
        }
        return Ok(());
    }
    let mut next = 0;
    let mut random = cx.random();
    while next < count {
        let receives = [
            port.post(Rx::tagged(3, 512))?,
            port.post(Rx::tagged(3, 512))?,
        ];
        for _ in 0..random.below(4) {
            port.progress()?;
        }
        let is_cancelled = receives.map(|receive| port.cancel(receive).is_ok());
        for (receive, is_cancelled) in receives.into_iter().zip(is_cancelled) {
            let done = port.wait_for(receive)?;
            if is_cancelled {
                done.expect_failure("a receive that was cancelled", Errno::Canceled)?;
            } else {
                cx.verify(0, next, &done.expect_success()?.bytes)?;
                next += 1;
            }
        }
    }
    Ok(())
}

/// The longest message into a buffer of many.
const LONGEST: usize = 1816;

/// Messages lie in the buffer one behind the other, until too little is left.
fn many_in_a_buffer(cx: &mut Cx) -> Result {
    let port = cx.port()?;
    let count = cx.scale(200, 3000);
    if cx.me() == 0 {
        for number in 0..count {
            port.run(Tx::msg(port.peer(), cx.payload(1, number, length(number))))?;
        }
        return Ok(());
    }
    take_multi(cx, &port, count, || Rx::msg(8192).kind(RxKind::Multi))
}

fn length(number: usize) -> usize {
    16 + number * 173 % (LONGEST - 16)
}

fn take_multi(cx: &Cx, port: &TestEndpoint, count: usize, rx: impl Fn() -> Rx) -> Result {
    port.set(EpOption::MinMultiRecv(LONGEST))?;
    let mut buffers = vec![port.post(rx())?, port.post(rx())?];
    for number in 0..count {
        let done = port.next()?.expect_success()?;
        ensure!(buffers.contains(&done.context), "{done:?} is of no buffer");
        same("length", done.len, length(number))?;
        cx.verify(0, number, &done.bytes)?;
        if done.flags.contains(Flags::MULTI_RECV) {
            buffers.retain(|buffer| *buffer != done.context);
            buffers.push(port.post(rx())?);
        }
        ensure!(
            number < 40 || buffers != [1, 2],
            "no buffer is ever released"
        );
    }
    give_back(port, buffers)
}

/// Takes the buffers back that are still posted.
fn give_back(port: &TestEndpoint, buffers: Vec<u64>) -> Result {
    for buffer in buffers {
        if port.cancel(buffer).is_ok() {
            port.wait_for(buffer)?
                .expect_failure("a multi-receive buffer", Errno::Canceled)?;
        }
    }
    Ok(())
}

/// The same with tags; others are left alone.
fn many_tagged_in_a_buffer(cx: &mut Cx) -> Result {
    let port = cx.port()?;
    let count = cx.scale(100, 1000);
    if cx.me() == 0 {
        port.run(Tx::tagged(port.peer(), 99, cx.payload(1, 777_777, 64)))?;
        for number in 0..count {
            let tag = 0x100 + number as u64 % 16;
            port.run(Tx::tagged(
                port.peer(),
                tag,
                cx.payload(1, number, length(number)),
            ))?;
        }
        return Ok(());
    }
    let tag = TagMatch {
        tag: 0x100,
        ignore: 0xf,
    };
    take_multi(cx, &port, count, || {
        Rx::tagged(tag, 8192).kind(RxKind::Multi)
    })?;
    let other = port.post_and_wait(Rx::tagged(99, 64))?.expect_success()?;
    cx.verify(0, 777_777, &other.bytes)
}

/// A buffer is released when less than FI_OPT_MIN_MULTI_RECV is left of it.
fn release_threshold(cx: &mut Cx) -> Result {
    let port = cx.port()?;
    if cx.me() == 0 {
        for number in 0..3 {
            cx.barrier()?;
            port.run(Tx::msg(port.peer(), cx.payload(1, number, 300)))?;
        }
        return Ok(());
    }
    port.set(EpOption::MinMultiRecv(500))?;
    // 1000 bytes: 700 are left after the first message, 400 after the second.
    let mut buffer = port.post(Rx::msg(1000).kind(RxKind::Multi))?;
    for number in 0..3 {
        cx.barrier()?;
        let done = port.next()?.expect_success()?;
        same("buffer", done.context, buffer)?;
        cx.verify(0, number, &done.bytes)?;
        let is_released = done.flags.contains(Flags::MULTI_RECV);
        same(
            format!("release by message {number}"),
            is_released,
            number == 1,
        )?;
        if is_released {
            buffer = port.post(Rx::msg(1000).kind(RxKind::Multi))?;
        }
    }
    give_back(&port, vec![buffer])
}
