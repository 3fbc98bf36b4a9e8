//! Accesses to the peer's memory.

use selvedge_testkit::domain::Remote;

use super::call::{self, Order};
use super::case::What;
use super::side::{Side, flags};
use crate::upstream::payload::{Stamp, check_around, poison};

/// One access each way, of which everything is checked.
pub(super) fn unit(side: &mut Side, size: usize) -> anyhow::Result<()> {
    for client_acts in [true, false] {
        let acts = side.is_client() == client_acts;
        match side.case.function.what {
            What::Read => read(side, acts, client_acts, size)?,
            _ => write(side, acts, client_acts, size)?,
        }
        side.sync()?;
    }
    Ok(())
}

/// The target's memory is what the initiator had.
fn write(side: &mut Side, acts: bool, client_acts: bool, size: usize) -> anyhow::Result<()> {
    if acts {
        side.sync()?;
        let stamp = Stamp::of_pair(client_acts, side.sent);
        stamp.write(&side.tx.memory, side.place(side.sent), size);
        post(side, size)?;
        return side.complete();
    }
    let (number, room) = (side.arrived, side.watched(size));
    let at = side.place(number);
    poison(&side.shared.memory, at, room);
    side.sync()?;
    if side.case.function.data {
        side.arrive_data(side.end().context.cut_data(number), size)?;
    } else {
        side.arrived += 1;
    }
    let memory = &side.shared.memory;
    let stamp = Stamp::of_pair(client_acts, number);
    side.settle(|| stamp.check(memory, at, size))?;
    check_around(memory, at, size, room)
}

/// What the initiator has is what the target's memory was.
fn read(side: &mut Side, acts: bool, client_acts: bool, size: usize) -> anyhow::Result<()> {
    if !acts {
        let number = side.arrived;
        side.arrived += 1;
        let stamp = Stamp::of_pair(!client_acts, number);
        stamp.write(&side.shared.memory, side.place(number), size);
        return side.sync();
    }
    let (number, room) = (side.sent, side.watched(size));
    let at = side.place(number);
    poison(&side.rx.memory, at, room);
    side.sync()?;
    post(side, size)?;
    side.complete()?;
    let memory = &side.rx.memory;
    let stamp = Stamp::of_pair(!client_acts, number);
    match side.is_certain() {
        true => stamp.check(memory, at, size)?,
        false => side.settle(|| stamp.check(memory, at, size))?,
    }
    check_around(memory, at, size, room)
}

/// Accesses of the client, one after the other.
pub(super) fn latency(side: &mut Side, size: usize, count: usize) -> anyhow::Result<()> {
    windows(side, size, count, 1)
}

/// Accesses of the client, in windows.
pub(super) fn bandwidth(side: &mut Side, size: usize, count: usize) -> anyhow::Result<()> {
    windows(side, size, count, side.window())
}

fn windows(side: &mut Side, size: usize, count: usize, window: usize) -> anyhow::Result<()> {
    for _ in 0..count {
        for _ in 0..window {
            match side.is_client() {
                true => post(side, size)?,
                false if side.case.function.data => {
                    let data = side.end().context.cut_data(side.arrived);
                    side.arrive_data(data, size)?;
                }
                false => side.arrived += 1,
            }
        }
        side.complete()?;
    }
    Ok(())
}

fn post(side: &mut Side, size: usize) -> anyhow::Result<()> {
    let number = side.sent;
    let at = side.place(number);
    let is_read = side.case.function.what == What::Read;
    let block = if is_read { &side.rx } else { &side.tx };
    let segments = side.cut(block, at, size, 1);
    let order = Order {
        form: side.case.function.form,
        segments: &segments,
        peer: side.peer(),
        tag: None,
        data: side
            .case
            .function
            .data
            .then(|| side.end().context.cut_data(number)),
        remote: Remote {
            addr: side.remote.addr.wrapping_add(at as u64),
            ..side.remote
        },
        flags: flags(&side.case),
        context: number,
    };
    side.end().push("remote access", |end| match is_read {
        true => call::read(end, &order),
        false => call::write(end, &order),
    })?;
    side.note(number);
    Ok(())
}
