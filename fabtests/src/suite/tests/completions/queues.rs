//! Completion queues, fi_cq(3): no completion is lost, and none is reported that was not requested.

use std::collections::BTreeSet;

use selvedge::cq::Entry;
use selvedge::{Bindings, Caps, Domain, Errno, FiAddr, OpFlags};

use crate::suite::context::check::{holds, same};
use crate::suite::context::timeout::until;
use crate::suite::context::{RAW, Result, Rx, Setup, Test, TestContext, TestEndpoint, Tx};
use crate::suite::defect::Defect;

tests! {
    reads_of_many(MSG) catches [CompletesTwice, LosesCompletions] .apis(RAW);
    more_than_fit(MSG) catches [LosesCompletions, CompletesTwice] .apis(RAW);
    selective(MSG) catches [ReportsAll] .apis(RAW);
    odd_reads(MSG) catches [HidesErrors] .apis(RAW);
    fences(FENCE) catches [IgnoresFences] .apis(RAW);
}

const MSG: Caps = Caps::MSG;
const FENCE: Caps = Caps::MSG.union(Caps::FENCE);

/// Completions are read in batches of several sizes: each is reported once. A post that waits for
/// room reads some itself.
fn reads_of_many(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    for most in [1, 2, 7, 64] {
        let count = ctx.scale(60, 200);
        let post = |_| match ctx.me() {
            0 => endpoint.post(Tx::msg(endpoint.peer(), vec![1; 24])),
            _ => endpoint.post(Rx::msg(24)),
        };
        let posted = (0..count).map(post).collect::<Result<BTreeSet<_>>>()?;
        let mut completed: BTreeSet<u64> = endpoint.take_ready().into_iter().collect();
        until("all completions", || {
            let mut entries = vec![Entry::default(); most];
            let read = endpoint.cq().read(&mut entries);
            for entry in &entries[..read?] {
                let is_new = completed.insert(entry.context.0);
                holds(format!("{entry:?} is reported for the first time"), is_new)?;
            }
            Ok((completed.len() >= posted.len()).then_some(()))
        })?;
        same("the completed operations", completed, posted)?;
        endpoint.settle()?;
        same(
            "entries after them",
            endpoint.cq().read(&mut [Entry::default()]),
            Ok(0),
        )?;
        endpoint.forget_outstanding();
        ctx.barrier()?;
    }
    Ok(())
}

/// More operations are posted than the queue has room for: the provider refuses posts in time, or
/// keeps all completions.
fn more_than_fit(ctx: &mut TestContext) -> Result {
    let setup = Setup {
        size: 4,
        ..Setup::default()
    };
    let endpoint = ctx.open_endpoint_with(&setup)?;
    let count = 100;
    for number in 0..count {
        // The queue is read only when a post finds no room.
        if ctx.me() == 0 {
            endpoint.post(Tx::msg(endpoint.peer(), ctx.payload(1, number, 32)))?;
        } else {
            endpoint.post(Rx::msg(32))?;
        }
    }
    for number in 0..count {
        let done = endpoint.next()?.expect_success()?;
        if ctx.me() == 1 {
            ctx.verify(0, number, &done.bytes)?;
        }
    }
    Ok(())
}

/// Under selective completion, operations without FI_COMPLETION are not reported unless they fail.
fn selective(ctx: &mut TestContext) -> Result {
    let bind = |_: &dyn Domain, bind: &mut Bindings| {
        (bind.tx_selective, bind.rx_selective) = (true, true);
        Ok(())
    };
    let setup = Setup {
        bind: Some(&bind),
        ..Setup::default()
    };
    let endpoint = ctx.open_endpoint_with(&setup)?;
    let requested = OpFlags::COMPLETION;
    let count = 12;
    let mut expected = Vec::new();
    for number in 0..count {
        let (flags, is_reported) = match number % 3 {
            0 => (requested, true),
            _ => (OpFlags::empty(), false),
        };
        let context = match ctx.me() {
            0 => {
                endpoint.post(Tx::msg(endpoint.peer(), ctx.payload(1, number, 64)).flags(flags))?
            }
            _ => endpoint.post(Rx::msg(64).flags(flags))?,
        };
        if is_reported {
            expected.push(context);
        }
    }
    for context in expected {
        let done = endpoint.next()?.expect_success()?;
        same("the reported completion", done.context, context)?;
    }
    endpoint.settle()?;
    holds("nothing else is reported", endpoint.poll()?.is_none())?;
    ctx.barrier()?;
    report_of_an_error(ctx, &endpoint)?;
    endpoint.forget_outstanding();
    Ok(())
}

fn report_of_an_error(ctx: &TestContext, endpoint: &TestEndpoint) -> Result {
    if ctx.me() == 0 {
        endpoint.post(Tx::msg(endpoint.peer(), vec![1; 64]).flags(OpFlags::empty()))?;
        return Ok(());
    }
    let context = endpoint.post(Rx::msg(8).flags(OpFlags::empty()))?;
    endpoint
        .wait_for(context)?
        .expect_failure("a receive that is too short", Errno::Trunc)?;
    Ok(())
}

/// Reads of an empty queue, with fewer sources than entries, and while an error is in the queue.
fn odd_reads(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    same(
        "reading an error of an empty queue",
        endpoint.cq().read_err().err(),
        Some(Errno::Again),
    )?;
    let short_read = endpoint
        .cq()
        .read_from(&mut [Entry::default(); 2], &mut [FiAddr::UNSPEC]);
    holds(
        "a read with fewer sources than entries is refused, or reads none",
        !matches!(short_read, Ok(1..)),
    )?;
    if ctx.me() == 0 {
        endpoint.run(Tx::msg(endpoint.peer(), vec![1; 32]))?;
        endpoint.run(Tx::msg(endpoint.peer(), ctx.payload(1, 1, 32)))?;
        return Ok(());
    }
    let bad = endpoint.post(Rx::msg(8))?;
    let good = endpoint.post(Rx::msg(32))?;
    // An error blocks the queue until it is read.
    until("the error", || {
        match endpoint.cq().read(&mut [Entry::default()]) {
            Err(Errno::Avail) => Ok(Some(())),
            Ok(0) => Ok(None),
            other => holds(format!("{other:?} before the error"), false).map(|()| None),
        }
    })?;
    let again = endpoint.cq().read(&mut [Entry::default()]);
    same("reading once more", again, Err(Errno::Avail))?;
    endpoint
        .wait_for(bad)?
        .expect_failure("a receive that is too short", Errno::Trunc)?;
    let done = endpoint.wait_for(good)?.expect_success()?;
    ctx.verify(0, 1, &done.bytes)
}

/// A fenced message is not sent before earlier operations are complete.
fn fences(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    let delivered = OpFlags::DELIVERY_COMPLETE | OpFlags::COMPLETION;
    let fenced = OpFlags::FENCE | OpFlags::COMPLETION;
    for number in 0..ctx.scale(10, 100) {
        if ctx.me() == 1 {
            ctx.barrier()?;
            for number in [2 * number, 2 * number + 1] {
                let done = endpoint.post_and_wait(Rx::msg(16))?.expect_success()?;
                ctx.verify(0, number, &done.bytes)?;
            }
            ctx.barrier()?;
            continue;
        }
        let first = Tx::msg(endpoint.peer(), ctx.payload(1, 2 * number, 16)).flags(delivered);
        let second = Tx::msg(endpoint.peer(), ctx.payload(1, 2 * number + 1, 16)).flags(fenced);
        let first = endpoint.post(first)?;
        // The provider refuses the fenced post while the first one is pending, or keeps it.
        let early_post = endpoint.try_post(second.clone());
        endpoint.settle()?;
        holds(
            "the first one is not complete before it is received",
            !endpoint.is_done(first)?,
        )?;
        if let Ok(second) = early_post {
            holds(
                "the fenced one is not complete either",
                !endpoint.is_done(second)?,
            )?;
        }
        ctx.barrier()?;
        let second = match early_post {
            Ok(context) => context,
            Err(Errno::Again) => endpoint.post(second)?,
            Err(errno) => return Err(errno.into()),
        };
        endpoint.wait_for(second)?.expect_success()?;
        holds(
            "the first one is complete when the fenced one is",
            endpoint.is_done(first)?,
        )?;
        endpoint.wait_for(first)?.expect_success()?;
        ctx.barrier()?;
    }
    Ok(())
}
