//! Atomic operations on the peer's memory.

use anyhow::Context as _;
use selvedge::atomic::Family;
use selvedge::{Errno, OpFlags};
use selvedge_testkit::domain::{AtomicCall, Block, Memory};
use selvedge_testkit::failure::wrong;

use super::call::{self, CallArgs, ExtraBuffers};
use super::case::Operation;
use super::side::Side;
use crate::upstream::data::atomics::{Case, cases, encode, expected, name, significant_bytes};
use crate::upstream::data::payload::{check_around, poison};

/// The slot numbers of the operands and the comparands in local memory.
const OPERANDS: u64 = 0;
const COMPARANDS: u64 = 1;

/// The largest number of elements in a call, or `None` if endpoint and domain agree that the
/// operation is not supported.
///
/// # Errors
/// Endpoint and domain disagree.
pub(super) fn limit(side: &Side) -> anyhow::Result<Option<usize>> {
    let AtomicCall {
        family,
        datatype,
        op,
    } = call(side);
    let endpoint = side.endpoint();
    let valid = endpoint.ep.valid(family, datatype, op);
    match (
        valid,
        endpoint.context.domain().query_atomic(family, datatype, op),
    ) {
        (Ok(valid), Ok(query)) if valid.size == query.size && valid.size == datatype.size() => {
            Ok(Some(valid.count))
        }
        (Err(Errno::OpNotSupp | Errno::NoSys), Err(Errno::OpNotSupp | Errno::NoSys)) => Ok(None),
        (valid, query) => Err(wrong(format!(
            "the endpoint reports {valid:?}, but the domain {query:?}"
        ))),
    }
}

fn call(side: &Side) -> AtomicCall {
    let family = match side.case.function.operation {
        Operation::Atomic(family) => family,
        _ => Family::Base,
    };
    AtomicCall {
        family,
        datatype: side.case.datatype,
        op: side.case.op,
    }
}

/// Tests one call in each direction, with elements whose results distinguish the operation from all
/// others.
pub(super) fn unit(side: &mut Side, max: usize) -> anyhow::Result<()> {
    let all = cases(side.case.datatype);
    let selected = &all[..all.len().min(max)];
    for client_initiates in [true, false] {
        if side.is_client() == client_initiates {
            initiate(side, selected)?
        } else {
            serve_as_target(side, selected)?
        }
        side.sync()?;
    }
    Ok(())
}

fn initiate(side: &mut Side, cases: &[Case]) -> anyhow::Result<()> {
    let size = side.case.datatype.size();
    put(side, &side.tx, OPERANDS, cases, |case| case.operand);
    put(side, &side.tx, COMPARANDS, cases, |case| case.comparand);
    let result = side.offset(OPERANDS);
    poison(&side.rx.memory, result, side.slot_len());
    side.sync()?;
    post(side, cases.len())?;
    side.complete()?;
    if call(side).family != Family::Base {
        let memory = &side.rx.memory;
        let check_results = || check(side, "the result", memory, cases, |case| case.target);
        if side.is_completion_visible() {
            check_results()?
        } else {
            side.check_until_visible(check_results)?
        }
        check_around(memory, result, cases.len() * size, side.slot_len())?;
    }
    Ok(())
}

fn serve_as_target(side: &mut Side, cases: &[Case]) -> anyhow::Result<()> {
    let memory = &side.shared.memory;
    let (at, slot_len) = (side.offset(OPERANDS), side.slot_len());
    poison(memory, at, slot_len);
    put(side, &side.shared, OPERANDS, cases, |case| case.target);
    side.sync()?;
    let (memory, op) = (&side.shared.memory, side.case.op);
    side.check_until_visible(|| {
        check(side, "the target", memory, cases, |case| expected(op, case))
    })?;
    check_around(
        memory,
        at,
        cases.len() * side.case.datatype.size(),
        slot_len,
    )
}

fn put(side: &Side, block: &Block, offset: u64, cases: &[Case], value: fn(&Case) -> i64) {
    let datatype = side.case.datatype;
    for (number, case) in cases.iter().enumerate() {
        let at = side.offset(offset) + number * datatype.size();
        block.memory.put(at, &encode(datatype, value(case)));
    }
}

fn check(
    side: &Side,
    name: &str,
    memory: &Memory,
    cases: &[Case],
    value: impl Fn(Case) -> i64,
) -> anyhow::Result<()> {
    let datatype = side.case.datatype;
    let counts = significant_bytes(datatype);
    for (number, case) in cases.iter().enumerate() {
        let at = side.offset(OPERANDS) + number * datatype.size();
        let found = memory.get(at, datatype.size());
        let expected_value = encode(datatype, value(*case));
        let pairs = found.iter().zip(&expected_value).zip(counts.iter().cycle());
        if pairs
            .into_iter()
            .any(|((found, expected_value), counts)| *counts && found != expected_value)
        {
            return Err(wrong(format!(
                "{name} of {case:?} is {found:02x?}, expected {expected_value:02x?}"
            )));
        }
    }
    Ok(())
}

/// Measures successive calls of the client on one element.
pub(super) fn latency(side: &mut Side, count: usize) -> anyhow::Result<()> {
    windows(side, count, 1)
}

/// Measures windows of calls of the client on one element.
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

/// Initializes the operands with values that every datatype has, before a measurement.
pub(super) fn initialize(side: &Side) {
    let one = [cases(side.case.datatype)[0]];
    put(side, &side.tx, OPERANDS, &one, |case| case.operand);
    put(side, &side.tx, COMPARANDS, &one, |case| case.comparand);
    put(side, &side.shared, OPERANDS, &one, |case| case.target);
}

fn post(side: &mut Side, count: usize) -> anyhow::Result<()> {
    let number = side.sent;
    let call = call(side);
    let (size, at) = (call.datatype.size(), side.offset(OPERANDS));
    let segments = |block, at| side.segments_of(block, at, count * size, size);
    let operands = segments(&side.tx, at);
    let comparands = segments(&side.tx, side.offset(COMPARANDS));
    let results = segments(&side.rx, at);
    let mut remote = side.remote;
    remote.addr = remote.addr.wrapping_add(at as u64);
    let args = CallArgs {
        form: side.case.function.form,
        segments: &operands,
        peer: side.peer(),
        tag: None,
        data: None,
        remote,
        flags: side.case.msg_flags - OpFlags::REMOTE_CQ_DATA,
        context: number,
    };
    let extra = ExtraBuffers {
        comparands: &comparands,
        results: &results,
    };
    side.endpoint()
        .push("atomic", |endpoint| {
            call::atomic(endpoint, call, &args, extra)
        })
        .with_context(|| name(call))?;
    side.record_post(number);
    Ok(())
}
