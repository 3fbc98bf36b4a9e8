//! Atomics on the peer's elements.

use anyhow::Context as _;
use selvedge::atomic::Family;
use selvedge::{Errno, OpFlags};
use selvedge_testkit::domain::{AtomicCall, Block, Memory};
use selvedge_testkit::failure::wrong;

use super::call::{self, Beside, Order};
use super::case::What;
use super::side::Side;
use crate::upstream::atomics::{Case, bytes_that_count, cases, encode, expected, name};
use crate::upstream::payload::{check_around, poison};

/// Numbers of the two places of local memory.
const OPERANDS: u64 = 0;
const COMPARANDS: u64 = 1;

/// The most elements of a call; none where endpoint and domain agree that there is no such atomic.
///
/// # Errors
/// That they do not agree.
pub(super) fn limit(side: &Side) -> anyhow::Result<Option<usize>> {
    let AtomicCall {
        family,
        datatype,
        op,
    } = call(side);
    let end = side.end();
    let valid = end.ep.valid(family, datatype, op);
    match (
        valid,
        end.context.domain().query_atomic(family, datatype, op),
    ) {
        (Ok(valid), Ok(query)) if valid.size == query.size && valid.size == datatype.size() => {
            Ok(Some(valid.count))
        }
        (Err(Errno::OpNotSupp | Errno::NoSys), Err(Errno::OpNotSupp | Errno::NoSys)) => Ok(None),
        (valid, query) => Err(wrong(format!(
            "the endpoint says {valid:?}, the domain {query:?}"
        ))),
    }
}

fn call(side: &Side) -> AtomicCall {
    let family = match side.case.function.what {
        What::Atomic(family) => family,
        _ => Family::Base,
    };
    AtomicCall {
        family,
        datatype: side.case.datatype,
        op: side.case.op,
    }
}

/// One call each way, on elements that tell the operation from all others and from none.
pub(super) fn unit(side: &mut Side, most: usize) -> anyhow::Result<()> {
    let all = cases(side.case.datatype);
    let few = &all[..all.len().min(most)];
    for client_acts in [true, false] {
        match side.is_client() == client_acts {
            true => act(side, few)?,
            false => suffer(side, few)?,
        }
        side.sync()?;
    }
    Ok(())
}

fn act(side: &mut Side, cases: &[Case]) -> anyhow::Result<()> {
    let size = side.case.datatype.size();
    put(side, &side.tx, OPERANDS, cases, |case| case.operand);
    put(side, &side.tx, COMPARANDS, cases, |case| case.comparand);
    let result = side.place(OPERANDS);
    poison(&side.rx.memory, result, side.room());
    side.sync()?;
    post(side, cases.len())?;
    side.complete()?;
    if call(side).family != Family::Base {
        let memory = &side.rx.memory;
        let look = || check(side, "the result", memory, cases, |case| case.target);
        match side.is_certain() {
            true => look()?,
            false => side.settle(look)?,
        }
        check_around(memory, result, cases.len() * size, side.room())?;
    }
    Ok(())
}

fn suffer(side: &mut Side, cases: &[Case]) -> anyhow::Result<()> {
    let memory = &side.shared.memory;
    let (at, room) = (side.place(OPERANDS), side.room());
    poison(memory, at, room);
    put(side, &side.shared, OPERANDS, cases, |case| case.target);
    side.sync()?;
    let (memory, op) = (&side.shared.memory, side.case.op);
    side.settle(|| check(side, "the target", memory, cases, |case| expected(op, case)))?;
    check_around(memory, at, cases.len() * side.case.datatype.size(), room)
}

fn put(side: &Side, block: &Block, place: u64, cases: &[Case], value: fn(&Case) -> i64) {
    let datatype = side.case.datatype;
    for (number, case) in cases.iter().enumerate() {
        let at = side.place(place) + number * datatype.size();
        block.memory.put(at, &encode(datatype, value(case)));
    }
}

fn check(
    side: &Side,
    what: &str,
    memory: &Memory,
    cases: &[Case],
    value: impl Fn(Case) -> i64,
) -> anyhow::Result<()> {
    let datatype = side.case.datatype;
    let counts = bytes_that_count(datatype);
    for (number, case) in cases.iter().enumerate() {
        let at = side.place(OPERANDS) + number * datatype.size();
        let has = memory.get(at, datatype.size());
        let wants = encode(datatype, value(*case));
        let both = has.iter().zip(&wants).zip(counts.iter().cycle());
        if both
            .into_iter()
            .any(|((has, wants), counts)| *counts && has != wants)
        {
            return Err(wrong(format!(
                "{what} of {case:?} is {has:02x?}, expected {wants:02x?}"
            )));
        }
    }
    Ok(())
}

/// Calls of the client on one element, one after the other.
pub(super) fn latency(side: &mut Side, count: usize) -> anyhow::Result<()> {
    windows(side, count, 1)
}

/// Calls of the client on one element, in windows.
pub(super) fn bandwidth(side: &mut Side, count: usize) -> anyhow::Result<()> {
    windows(side, count, side.window())
}

fn windows(side: &mut Side, count: usize, window: usize) -> anyhow::Result<()> {
    if !side.is_client() {
        return Ok(());
    }
    for _ in 0..count {
        for _ in 0..window {
            post(side, 1)?;
        }
        side.complete()?;
    }
    Ok(())
}

/// Operands that every type has, before anything is timed.
pub(super) fn before(side: &Side) {
    let one = [cases(side.case.datatype)[0]];
    put(side, &side.tx, OPERANDS, &one, |case| case.operand);
    put(side, &side.tx, COMPARANDS, &one, |case| case.comparand);
    put(side, &side.shared, OPERANDS, &one, |case| case.target);
}

fn post(side: &mut Side, count: usize) -> anyhow::Result<()> {
    let number = side.sent;
    let call = call(side);
    let (size, at) = (call.datatype.size(), side.place(OPERANDS));
    let segments = |block, at| side.cut(block, at, count * size, size);
    let operands = segments(&side.tx, at);
    let comparands = segments(&side.tx, side.place(COMPARANDS));
    let results = segments(&side.rx, at);
    let mut remote = side.remote;
    remote.addr = remote.addr.wrapping_add(at as u64);
    let order = Order {
        form: side.case.function.form,
        segments: &operands,
        peer: side.peer(),
        tag: None,
        data: None,
        remote,
        flags: side.case.msg_flags - OpFlags::REMOTE_CQ_DATA,
        context: number,
    };
    let beside = Beside {
        comparands: &comparands,
        results: &results,
    };
    side.end()
        .push("atomic", |end| call::atomic(end, call, &order, beside))
        .with_context(|| name(call))?;
    side.note(number);
    Ok(())
}
