//! Messages: single messages, round trips, and windows.

use anyhow::ensure;
use selvedge::CompletionFlags;
use selvedge::cq::Entry;
use selvedge_testkit::domain::Remote;

use super::call::{self, CallArgs};
use super::case::Class;
use super::side::{Side, flags};
use crate::upstream::data::payload::{Stamp, check_around, poison};

/// The length of an acknowledgement.
const ACK_LEN: usize = 16;

/// Tests one message in each direction, and checks its bytes and all fields of its completion.
pub(super) fn test_one(side: &mut Side, size: usize) -> anyhow::Result<()> {
    for client_sends in [true, false] {
        if side.is_client() == client_sends {
            side.sync()?;
            let stamp = Stamp::of_pair(client_sends, side.sent);
            stamp.write(&side.tx.memory, side.offset(side.sent), size);
            send(side, size)?;
            side.complete()?;
        } else {
            let number = side.posted;
            let offset = side.offset(number);
            let checked_len = side.checked_len(size);
            poison(&side.rx.memory, offset, checked_len);
            post(side)?;
            side.sync()?;
            if let Some(entry) = side.await_message()? {
                check(side, &entry, number, size)?;
            }
            Stamp::of_pair(client_sends, number).check(&side.rx.memory, offset, size)?;
            check_around(&side.rx.memory, offset, size, checked_len)?;
        }
        side.sync()?;
    }
    Ok(())
}

/// Measures round trips.
pub(super) fn latency(side: &mut Side, size: usize, count: usize) -> anyhow::Result<()> {
    for iteration in 0..count {
        if side.is_client() {
            send(side, size)?;
        }
        side.await_message()?;
        if iteration + 1 < count {
            post(side)?;
        }
        if !side.is_client() {
            send(side, size)?;
        }
        side.complete()?;
    }
    Ok(())
}

/// Posts the receive of the first round trip of [`latency`].
pub(super) fn before_latency(side: &mut Side) -> anyhow::Result<()> {
    post(side)
}

/// Measures windows of the client, each of which the server acknowledges.
pub(super) fn bandwidth(side: &mut Side, size: usize, windows: usize) -> anyhow::Result<()> {
    for number in 1..=windows {
        if side.is_client() {
            for _ in 0..side.window() {
                send(side, size)?;
            }
            side.await_message()?;
            if number < windows {
                post(side)?;
            }
        } else {
            for _ in 0..side.window() {
                side.await_message()?;
            }
            if number < windows {
                before_bandwidth(side)?;
            }
            send(side, size.min(ACK_LEN))?;
        }
        side.complete()?;
    }
    Ok(())
}

/// Posts the receives for a window or for its acknowledgement.
pub(super) fn before_bandwidth(side: &mut Side) -> anyhow::Result<()> {
    let count = if side.is_client() { 1 } else { side.window() };
    (0..count).try_for_each(|_| post(side))
}

fn send(side: &mut Side, size: usize) -> anyhow::Result<()> {
    let number = side.sent;
    let segments = side.segments_of(&side.tx, side.offset(number), size, 1);
    let data = side.case.function.data;
    let args = CallArgs {
        form: side.case.function.form,
        segments: &segments,
        peer: side.peer(),
        tag: (side.case.class == Class::Tagged).then(|| tag(number)),
        data: data.then(|| side.endpoint().context.cut_data(number)),
        remote: Remote::default(),
        flags: flags(&side.case),
        context: number,
    };
    side.endpoint()
        .push("send", |endpoint| call::send(endpoint, &args))?;
    side.record_post(number);
    Ok(())
}

fn post(side: &mut Side) -> anyhow::Result<()> {
    let number = side.posted;
    let segments = side.segments_of(&side.rx, side.offset(number), side.slot_len(), 1);
    let args = CallArgs {
        form: side.case.function.form,
        segments: &segments,
        peer: side.peer(),
        tag: (side.case.class == Class::Tagged).then(|| tag(number)),
        data: None,
        remote: Remote::default(),
        flags: side.case.msg_flags,
        context: number,
    };
    side.endpoint()
        .push("receive", |endpoint| call::recv(endpoint, &args))?;
    side.record_receive();
    Ok(())
}

/// Returns the tag of a message: its number in both halves.
fn tag(number: u64) -> u64 {
    number << 32 | number
}

/// Checks all fields of a receive's completion.
fn check(side: &Side, entry: &Entry, number: u64, size: usize) -> anyhow::Result<()> {
    let tagged = side.case.class == Class::Tagged;
    let mut flags = CompletionFlags::RECV;
    flags |= if tagged {
        CompletionFlags::TAGGED
    } else {
        CompletionFlags::MSG
    };
    let mut data = entry.data;
    if side.case.function.data {
        flags |= CompletionFlags::REMOTE_CQ_DATA;
        data = side.endpoint().context.cut_data(number);
    }
    let tag = if tagged { tag(number) } else { entry.tag };
    let is_expected = entry.context.0 == number
        && entry.flags == flags
        && entry.len == size
        && entry.data == data
        && entry.tag == tag;
    ensure!(
        is_expected,
        "message {number} of {size} bytes, {flags}, data {data:#x}, completes with {entry:?}"
    );
    Ok(())
}
