//! Accesses to the peer's memory.

use selvedge_testkit::domain::Remote;

use super::call::{self, CallArgs};
use super::case::Operation;
use super::side::{Side, flags};
use crate::upstream::data::payload::{Stamp, check_around, poison};

/// Tests one access in each direction, and checks its bytes and completions.
pub(super) fn test_one(side: &mut Side, size: usize) -> anyhow::Result<()> {
    for client_initiates in [true, false] {
        let initiates = side.is_client() == client_initiates;
        match side.case.function.operation {
            Operation::Read => read(side, initiates, client_initiates, size)?,
            _ => write(side, initiates, client_initiates, size)?,
        }
        side.sync()?;
    }
    Ok(())
}

/// Tests a write: the target's memory must hold the initiator's data.
fn write(
    side: &mut Side,
    initiates: bool,
    client_initiates: bool,
    size: usize,
) -> anyhow::Result<()> {
    if initiates {
        side.sync()?;
        let stamp = Stamp::of_pair(client_initiates, side.sent);
        stamp.write(&side.tx.memory, side.offset(side.sent), size);
        post(side, size)?;
        return side.complete();
    }
    let (number, len) = (side.arrived, side.checked_len(size));
    let offset = side.offset(number);
    poison(&side.shared.memory, offset, len);
    side.sync()?;
    if side.case.function.data {
        side.await_data(side.endpoint().context.cut_data(number), size)?;
    } else {
        side.arrived += 1;
    }
    let memory = &side.shared.memory;
    let stamp = Stamp::of_pair(client_initiates, number);
    side.check_until_visible(|| stamp.check(memory, offset, size))?;
    check_around(memory, offset, size, len)
}

/// Tests a read: the initiator must receive the data of the target's memory.
fn read(
    side: &mut Side,
    initiates: bool,
    client_initiates: bool,
    size: usize,
) -> anyhow::Result<()> {
    if !initiates {
        let number = side.arrived;
        side.arrived += 1;
        let stamp = Stamp::of_pair(!client_initiates, number);
        stamp.write(&side.shared.memory, side.offset(number), size);
        return side.sync();
    }
    let (number, len) = (side.sent, side.checked_len(size));
    let offset = side.offset(number);
    poison(&side.rx.memory, offset, len);
    side.sync()?;
    post(side, size)?;
    side.complete()?;
    let memory = &side.rx.memory;
    let stamp = Stamp::of_pair(!client_initiates, number);
    if side.is_completion_visible() {
        stamp.check(memory, offset, size)?
    } else {
        side.check_until_visible(|| stamp.check(memory, offset, size))?
    }
    check_around(memory, offset, size, len)
}

/// Measures successive accesses of the client.
pub(super) fn latency(side: &mut Side, size: usize, count: usize) -> anyhow::Result<()> {
    windows(side, size, count, 1)
}

/// Measures windows of accesses of the client.
pub(super) fn bandwidth(side: &mut Side, size: usize, count: usize) -> anyhow::Result<()> {
    windows(side, size, count, side.window())
}

fn windows(side: &mut Side, size: usize, count: usize, window: usize) -> anyhow::Result<()> {
    for _ in 0..count {
        for _ in 0..window {
            if side.is_client() {
                post(side, size)?;
            } else if side.case.function.data {
                let data = side.endpoint().context.cut_data(side.arrived);
                side.await_data(data, size)?;
            } else {
                side.arrived += 1;
            }
        }
        side.complete()?;
    }
    Ok(())
}

fn post(side: &mut Side, size: usize) -> anyhow::Result<()> {
    let number = side.sent;
    let offset = side.offset(number);
    let is_read = side.case.function.operation == Operation::Read;
    let block = if is_read { &side.rx } else { &side.tx };
    let segments = side.segments_of(block, offset, size, 1);
    let args = CallArgs {
        form: side.case.function.form,
        segments: &segments,
        peer: side.peer(),
        tag: None,
        data: side
            .case
            .function
            .data
            .then(|| side.endpoint().context.cut_data(number)),
        remote: Remote {
            addr: side.remote.addr.wrapping_add(offset as u64),
            ..side.remote
        },
        flags: flags(&side.case),
        context: number,
    };
    side.endpoint().push("remote access", |endpoint| {
        if is_read {
            call::read(endpoint, &args)
        } else {
            call::write(endpoint, &args)
        }
    })?;
    side.record_post(number);
    Ok(())
}
