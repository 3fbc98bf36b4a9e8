//! Messages: one, one there and one back, and windows of them.

use anyhow::ensure;
use selvedge::CompletionFlags;
use selvedge::cq::Entry;
use selvedge_testkit::domain::Remote;

use super::call::{self, Order};
use super::case::Class;
use super::side::{Side, flags};
use crate::upstream::payload::{Stamp, check_around, poison};

/// Bytes of an acknowledgement.
const ACK: usize = 16;

/// One message each way, of which everything is checked.
pub(super) fn unit(side: &mut Side, size: usize) -> anyhow::Result<()> {
    for client_sends in [true, false] {
        if side.is_client() == client_sends {
            side.sync()?;
            let stamp = Stamp::of_pair(client_sends, side.sent);
            stamp.write(&side.tx.memory, side.place(side.sent), size);
            send(side, size)?;
            side.complete()?;
        } else {
            let number = side.posted;
            let at = side.place(number);
            let watched = side.watched(size);
            poison(&side.rx.memory, at, watched);
            post(side)?;
            side.sync()?;
            if let Some(entry) = side.arrive()? {
                check(side, &entry, number, size)?;
            }
            Stamp::of_pair(client_sends, number).check(&side.rx.memory, at, size)?;
            check_around(&side.rx.memory, at, size, watched)?;
        }
        side.sync()?;
    }
    Ok(())
}

/// Messages that wait for each other.
pub(super) fn latency(side: &mut Side, size: usize, count: usize) -> anyhow::Result<()> {
    for turn in 0..count {
        if side.is_client() {
            send(side, size)?;
        }
        side.arrive()?;
        if turn + 1 < count {
            post(side)?;
        }
        if !side.is_client() {
            send(side, size)?;
        }
        side.complete()?;
    }
    Ok(())
}

/// What has to be posted before the first turn of [`latency`].
pub(super) fn before_latency(side: &mut Side) -> anyhow::Result<()> {
    post(side)
}

/// Windows of the client, each of which the server acknowledges.
pub(super) fn bandwidth(side: &mut Side, size: usize, windows: usize) -> anyhow::Result<()> {
    for number in 1..=windows {
        if side.is_client() {
            for _ in 0..side.window() {
                send(side, size)?;
            }
            side.arrive()?;
            if number < windows {
                post(side)?;
            }
        } else {
            for _ in 0..side.window() {
                side.arrive()?;
            }
            if number < windows {
                before_bandwidth(side)?;
            }
            send(side, size.min(ACK))?;
        }
        side.complete()?;
    }
    Ok(())
}

/// What has to be posted before a window: room for it, or for its acknowledgement.
pub(super) fn before_bandwidth(side: &mut Side) -> anyhow::Result<()> {
    let count = if side.is_client() { 1 } else { side.window() };
    (0..count).try_for_each(|_| post(side))
}

fn send(side: &mut Side, size: usize) -> anyhow::Result<()> {
    let number = side.sent;
    let segments = side.cut(&side.tx, side.place(number), size, 1);
    let data = side.case.function.data;
    let order = Order {
        form: side.case.function.form,
        segments: &segments,
        peer: side.peer(),
        tag: (side.case.class == Class::Tagged).then(|| tag(number)),
        data: data.then(|| side.end().context.cut_data(number)),
        remote: Remote::default(),
        flags: flags(&side.case),
        context: number,
    };
    side.end().push("send", |end| call::send(end, &order))?;
    side.note(number);
    Ok(())
}

fn post(side: &mut Side) -> anyhow::Result<()> {
    let number = side.posted;
    let segments = side.cut(&side.rx, side.place(number), side.room(), 1);
    let order = Order {
        form: side.case.function.form,
        segments: &segments,
        peer: side.peer(),
        tag: (side.case.class == Class::Tagged).then(|| tag(number)),
        data: None,
        remote: Remote::default(),
        flags: side.case.msg_flags,
        context: number,
    };
    side.end().push("receive", |end| call::recv(end, &order))?;
    side.note_receive();
    Ok(())
}

/// The tag of a message: its number in both halves.
fn tag(number: u64) -> u64 {
    number << 32 | number
}

/// Everything that the completion of a receive says.
fn check(side: &Side, entry: &Entry, number: u64, size: usize) -> anyhow::Result<()> {
    let tagged = side.case.class == Class::Tagged;
    let mut flags = CompletionFlags::RECV;
    flags |= match tagged {
        true => CompletionFlags::TAGGED,
        false => CompletionFlags::MSG,
    };
    let mut data = entry.data;
    if side.case.function.data {
        flags |= CompletionFlags::REMOTE_CQ_DATA;
        data = side.end().context.cut_data(number);
    }
    let tag = if tagged { tag(number) } else { entry.tag };
    let is_right = entry.context.0 == number
        && entry.flags == flags
        && entry.len == size
        && entry.data == data
        && entry.tag == tag;
    ensure!(
        is_right,
        "message {number} of {size} bytes, {flags}, data {data:#x}: {entry:?}"
    );
    Ok(())
}
