//! Completion queues, fi_cq(3): nothing is lost, and nothing is said that was not asked for.

use std::collections::BTreeSet;

use selvedge::cq::Entry;
use selvedge::{Bindings, Caps, Domain, Errno, FiAddr, OpFlags};

use crate::suite::cx::check::{holds, same};
use crate::suite::cx::timeout::until;
use crate::suite::cx::{Cx, RAW, Result, Rx, Setup, Test, TestEndpoint, Tx};
use crate::suite::flaw::Flaw;

tests! {
    reads_of_many(MSG) catches [CompletesTwice, LosesCompletions] .faces(RAW);
    more_than_fit(MSG) catches [LosesCompletions, CompletesTwice] .faces(RAW);
    selective(MSG) catches [ReportsAll] .faces(RAW);
    odd_reads(MSG) catches [HidesErrors] .faces(RAW);
    fences(FENCE) catches [IgnoresFences] .faces(RAW);
}

const MSG: Caps = Caps::MSG;
const FENCE: Caps = Caps::MSG.union(Caps::FENCE);

/// Reads in batches of all sizes: every completion comes once. Posts that wait for room read some
/// themselves.
fn reads_of_many(cx: &mut Cx) -> Result {
    let port = cx.port()?;
    for most in [1, 2, 7, 64] {
        let count = cx.scale(60, 200);
        let post = |_| match cx.me() {
            0 => port.post(Tx::msg(port.peer(), vec![1; 24])),
            _ => port.post(Rx::msg(24)),
        };
        let posted = (0..count).map(post).collect::<Result<BTreeSet<_>>>()?;
        let mut seen: BTreeSet<u64> = port.take_ready().into_iter().collect();
        until("all completions", || {
            let mut entries = vec![Entry::default(); most];
            let read = port.cq().read(&mut entries);
            for entry in &entries[..read?] {
                let is_new = seen.insert(entry.context.0);
                holds(format!("{entry:?} comes for the first time"), is_new)?;
            }
            Ok((seen.len() >= posted.len()).then_some(()))
        })?;
        same("what has completed", seen, posted)?;
        port.settle()?;
        same(
            "entries behind them",
            port.cq().read(&mut [Entry::default()]),
            Ok(0),
        )?;
        port.forget_outstanding();
        cx.barrier()?;
    }
    Ok(())
}

/// More operations than the queue has room for: posts are refused in time, or all is kept.
fn more_than_fit(cx: &mut Cx) -> Result {
    let setup = Setup {
        size: 4,
        ..Setup::default()
    };
    let port = cx.port_with(&setup)?;
    let count = 100;
    for number in 0..count {
        // Nobody reads here but who finds no room.
        if cx.me() == 0 {
            port.post(Tx::msg(port.peer(), cx.payload(1, number, 32)))?;
        } else {
            port.post(Rx::msg(32))?;
        }
    }
    for number in 0..count {
        let done = port.next()?.expect_success()?;
        if cx.me() == 1 {
            cx.verify(0, number, &done.bytes)?;
        }
    }
    Ok(())
}

/// Under selective completion what was not asked for is not reported, but for errors.
fn selective(cx: &mut Cx) -> Result {
    let bind = |_: &dyn Domain, bind: &mut Bindings| {
        (bind.tx_selective, bind.rx_selective) = (true, true);
        Ok(())
    };
    let setup = Setup {
        bind: Some(&bind),
        ..Setup::default()
    };
    let port = cx.port_with(&setup)?;
    let asked = OpFlags::COMPLETION;
    let count = 12;
    let mut expected = Vec::new();
    for number in 0..count {
        let (flags, is_reported) = match number % 3 {
            0 => (asked, true),
            _ => (OpFlags::empty(), false),
        };
        let context = match cx.me() {
            0 => port.post(Tx::msg(port.peer(), cx.payload(1, number, 64)).flags(flags))?,
            _ => port.post(Rx::msg(64).flags(flags))?,
        };
        if is_reported {
            expected.push(context);
        }
    }
    for context in expected {
        let done = port.next()?.expect_success()?;
        same("what is reported", done.context, context)?;
    }
    port.settle()?;
    holds("nothing else is reported", port.poll()?.is_none())?;
    cx.barrier()?;
    report_of_an_error(cx, &port)?;
    port.forget_outstanding();
    Ok(())
}

fn report_of_an_error(cx: &Cx, port: &TestEndpoint) -> Result {
    if cx.me() == 0 {
        port.post(Tx::msg(port.peer(), vec![1; 64]).flags(OpFlags::empty()))?;
        return Ok(());
    }
    let context = port.post(Rx::msg(8).flags(OpFlags::empty()))?;
    port.wait_for(context)?
        .expect_failure("a receive that is too short", Errno::Trunc)?;
    Ok(())
}

/// Reads that do not fit what there is.
fn odd_reads(cx: &mut Cx) -> Result {
    let port = cx.port()?;
    same(
        "reading an error that is not there",
        port.cq().read_err().err(),
        Some(Errno::Again),
    )?;
    let short = port
        .cq()
        .read_from(&mut [Entry::default(); 2], &mut [FiAddr::UNSPEC]);
    holds(
        "room for fewer sources than entries is refused, or not used",
        !matches!(short, Ok(1..)),
    )?;
    if cx.me() == 0 {
        port.run(Tx::msg(port.peer(), vec![1; 32]))?;
        port.run(Tx::msg(port.peer(), cx.payload(1, 1, 32)))?;
        return Ok(());
    }
    let bad = port.post(Rx::msg(8))?;
    let good = port.post(Rx::msg(32))?;
    // An error stands in front of the queue until it is taken.
    until("the error", || {
        match port.cq().read(&mut [Entry::default()]) {
            Err(Errno::Avail) => Ok(Some(())),
            Ok(0) => Ok(None),
            other => holds(format!("{other:?} before the error"), false).map(|()| None),
        }
    })?;
    let again = port.cq().read(&mut [Entry::default()]);
    same("reading once more", again, Err(Errno::Avail))?;
    port.wait_for(bad)?
        .expect_failure("a receive that is too short", Errno::Trunc)?;
    let done = port.wait_for(good)?.expect_success()?;
    cx.verify(0, 1, &done.bytes)
}

/// A fenced message is not on its way before what was sent before is complete.
fn fences(cx: &mut Cx) -> Result {
    let port = cx.port()?;
    let delivered = OpFlags::DELIVERY_COMPLETE | OpFlags::COMPLETION;
    let fenced = OpFlags::FENCE | OpFlags::COMPLETION;
    for number in 0..cx.scale(10, 100) {
        if cx.me() == 1 {
            cx.barrier()?;
            for number in [2 * number, 2 * number + 1] {
                let done = port.post_and_wait(Rx::msg(16))?.expect_success()?;
                cx.verify(0, number, &done.bytes)?;
            }
            cx.barrier()?;
            continue;
        }
        let first = Tx::msg(port.peer(), cx.payload(1, 2 * number, 16)).flags(delivered);
        let second = Tx::msg(port.peer(), cx.payload(1, 2 * number + 1, 16)).flags(fenced);
        let first = port.post(first)?;
        // It is refused as long as it has to wait, or it is kept.
        let early = port.try_post(second.clone());
        port.settle()?;
        holds(
            "the first one is not complete before it is received",
            !port.is_done(first)?,
        )?;
        if let Ok(second) = early {
            holds("nor the fenced one", !port.is_done(second)?)?;
        }
        cx.barrier()?;
        let second = match early {
            Ok(context) => context,
            Err(Errno::Again) => port.post(second)?,
            Err(errno) => return Err(errno.into()),
        };
        port.wait_for(second)?.expect_success()?;
        holds(
            "the first one is complete when the fenced one is",
            port.is_done(first)?,
        )?;
        port.wait_for(first)?.expect_success()?;
        cx.barrier()?;
    }
    Ok(())
}
