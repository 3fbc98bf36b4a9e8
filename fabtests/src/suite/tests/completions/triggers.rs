//! Deferred work, fi_trigger(3).

use std::sync::Arc;
use std::time::Duration;

use selvedge::atomic::{Datatype, Family, Op as AtomicOp};
use selvedge::trigger::{Action, Work};
use selvedge::{Bindings, Caps, Counter, Domain, Errno, OpFlags, cntr, wait};

use crate::suite::context::check::{holds, same};
use crate::suite::context::timeout::{limit, until};
use crate::suite::context::{
    Atomic, CONNECTED, Maker, Notify, Post, RAW, Read, Result, Rx, Setup, Test, TestContext,
    TestEndpoint, Tx, Write, queue_count,
};
use crate::suite::defect::Defect;

tests! {
    every_kind(ALL) catches [NeverStartsWork, StartsWorkEarly, ReportsWorkToEndpoint] .apis(RAW);
    triggered(MSG) catches [NeverStartsWork, StartsWorkEarly] .apis(RAW);
    thresholds(UNTAGGED) catches [StartsWorkEarly] .apis(RAW).ep_types(CONNECTED);
    counters(MSG) catches [NeverStartsWork, StartsWorkEarly] .apis(RAW).processes(1);
    cancelled(MSG) catches [CancelsNoWork] .apis(RAW).processes(1);
    failures(RMA) catches [ReportsWorkToEndpoint, CountsNoErrors] .apis(RAW);
    refusals(MSG) catches [AcceptsAnyFlag] .apis(RAW).processes(1);
    while_parked(UNTAGGED) catches [NeverStartsWork] .apis(RAW).ep_types(CONNECTED);
}

const UNTAGGED: Caps = Caps::MSG.union(Caps::TRIGGER);
const MSG: Caps = UNTAGGED.union(Caps::TAGGED);
const RMA: Caps = MSG.union(Caps::RMA);
const ALL: Caps = RMA.union(Caps::ATOMIC);
const SIZES: [usize; 2] = [8, 70_000];

fn open_counter(endpoint: &TestEndpoint) -> Result<Arc<dyn Counter>> {
    Ok(endpoint.domain.cntr(&cntr::Attr::default())?)
}

/// Waits until a counter has this value, and checks that the value stays.
fn check_final_value(
    endpoint: &TestEndpoint,
    message: &str,
    cntr: &Arc<dyn Counter>,
    expected: u64,
) -> Result {
    let _ = until(message, || {
        endpoint.progress()?;
        Ok((cntr.read() >= expected).then_some(()))
    });
    endpoint.settle()?;
    same(message, cntr.read(), expected)
}

/// Every kind of operation waits for its threshold. Its completion is reported to its counter, and
/// to the queue on request.
fn every_kind(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    let memory = ctx.memory(&endpoint, Maker::Test, 1 << 17)?;
    let remote = ctx.exchange_addresses(&endpoint, &memory)?[1 - ctx.me()];
    let (trigger, completed) = (open_counter(&endpoint)?, open_counter(&endpoint)?);
    let mut expected = 0;
    for (number, len) in SIZES.into_iter().enumerate() {
        let notify = || Notify::Counter(Some(Arc::clone(&completed)));
        let threshold = trigger.read() + 2;
        let defer = |post: Post| {
            let deferred = endpoint.defer(post, &trigger, threshold, notify());
            deferred.map_err(|errno| anyhow::anyhow!("deferring: {errno:?}"))
        };
        let bytes = || ctx.payload(1 - ctx.me(), number, len);
        // Both processes defer the same operations: each writes to the peer's memory from offset
        // 1000 on.
        let (msg, _) = defer(Tx::msg(endpoint.peer(), bytes()).flags(COMPLETION).into())?;
        let (tagged, _) = defer(
            Tx::tagged(endpoint.peer(), 7, bytes())
                .flags(NO_COMPLETION)
                .into(),
        )?;
        let (rx, _) = defer(Rx::msg(len).flags(COMPLETION).into())?;
        let (trx, _) = defer(Rx::tagged(7, len).flags(COMPLETION).into())?;
        let (write, _) = defer(
            Write::new(remote.at(1000), bytes())
                .flags(COMPLETION)
                .into(),
        )?;
        let add = Atomic::new(
            Family::Base,
            Datatype::Uint64,
            AtomicOp::Sum,
            remote,
            5_u64.to_ne_bytes().to_vec(),
            Vec::new(),
        )
        .flags(NO_COMPLETION);
        memory.put(0, &[0; 16]);
        let (atomic, _) = defer(add.into())?;
        ctx.barrier()?;
        trigger.add(1);
        endpoint.settle()?;
        let has_started = completed.read() > expected || endpoint.poll()?.is_some();
        holds("no work starts before its threshold", !has_started)?;
        ctx.barrier()?;
        trigger.add(1);
        for context in [msg, write] {
            endpoint.wait_for(context)?.expect_success()?;
        }
        for context in [rx, trx] {
            ctx.verify(
                1 - ctx.me(),
                number,
                &endpoint.wait_for(context)?.expect_success()?.bytes,
            )?;
        }
        expected += 6;
        check_final_value(&endpoint, "completed operations", &completed, expected)?;
        for context in [tagged, atomic] {
            endpoint.forget(context);
        }
        ctx.barrier()?;
        let sum = u64::from_ne_bytes(memory.get(0, 8).try_into().expect("eight bytes"));
        same("the sum of the atomics", sum, 5)?;
        ctx.verify(1 - ctx.me(), number, &memory.get(1000, len))?;
        check_reads(ctx, &endpoint, &trigger, &completed, number, len)?;
        expected += 3;
    }
    Ok(())
}

/// Operations with a result also wait for their threshold: reads, and fetching atomics.
fn check_reads(
    ctx: &mut TestContext,
    endpoint: &TestEndpoint,
    trigger: &Arc<dyn Counter>,
    completed: &Arc<dyn Counter>,
    number: usize,
    len: usize,
) -> Result {
    let memory = ctx.memory(endpoint, Maker::Test, (1 << 17) + 64)?;
    memory.put(64, &ctx.payload(1 - ctx.me(), 1000 + number, len));
    memory.put(0, &9_u64.to_ne_bytes());
    memory.put(8, &9_u64.to_ne_bytes());
    let remote = ctx.exchange_addresses(endpoint, &memory)?[1 - ctx.me()];
    let (before, notify) = (
        completed.read(),
        Notify::Counter(Some(Arc::clone(completed))),
    );
    let threshold = trigger.read() + 1;
    let defer = |post: Post| {
        let deferred = endpoint.defer(post, trigger, threshold, notify.clone());
        deferred.map_err(|errno| anyhow::anyhow!("deferring: {errno:?}"))
    };
    let (read, _) = defer(Read::new(remote.at(64), len).flags(COMPLETION).into())?;
    let fetching = |family, op, target| {
        Atomic::new(
            family,
            Datatype::Uint64,
            op,
            target,
            4_u64.to_ne_bytes().to_vec(),
            9_u64.to_ne_bytes().to_vec(),
        )
        .flags(COMPLETION)
    };
    let (fetch, _) = defer(fetching(Family::Fetch, AtomicOp::Sum, remote).into())?;
    let (swap, _) = defer(fetching(Family::Compare, AtomicOp::Cswap, remote.at(8)).into())?;
    endpoint.settle()?;
    same("reads before their threshold", completed.read(), before)?;
    trigger.add(1);
    ctx.verify(
        1 - ctx.me(),
        1000 + number,
        &endpoint.wait_for(read)?.expect_success()?.bytes,
    )?;
    for context in [fetch, swap] {
        let earlier = endpoint.wait_for(context)?.expect_success()?.bytes;
        same("the earlier value", earlier, 9_u64.to_ne_bytes().to_vec())?;
    }
    check_final_value(endpoint, "completed reads", completed, before + 3)?;
    ctx.barrier()?;
    let words = [memory.get(0, 8), memory.get(8, 8)];
    let words = words.map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes")));
    same("the words after the atomics", words, [13, 4])?;
    ctx.barrier()?;
    ctx.close(memory);
    Ok(())
}

const COMPLETION: OpFlags = OpFlags::COMPLETION;
const NO_COMPLETION: OpFlags = OpFlags::empty();

/// A triggered operation completes like any other.
fn triggered(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    let trigger = open_counter(&endpoint)?;
    for (number, len) in SIZES.into_iter().enumerate() {
        if ctx.me() == 0 {
            let post = Tx::msg(endpoint.peer(), ctx.payload(1, number, len));
            let threshold = trigger.read() + 3;
            let (context, _) = endpoint.defer(post, &trigger, threshold, Notify::Endpoint)?;
            trigger.add(2);
            endpoint.settle()?;
            holds(
                "the operation waits for its threshold",
                !endpoint.is_done(context)?,
            )?;
            ctx.barrier()?;
            trigger.add(1);
            endpoint.wait_for(context)?.expect_success()?;
            // A threshold that was reached before does not delay the operation.
            let post = Tx::tagged(endpoint.peer(), 1, ctx.payload(1, 100 + number, len));
            let (context, _) = endpoint.defer(post, &trigger, 1, Notify::Endpoint)?;
            endpoint.wait_for(context)?.expect_success()?;
        } else {
            let context = endpoint.post(Rx::msg(len))?;
            endpoint.settle()?;
            holds(
                "no message arrives before the threshold",
                !endpoint.is_done(context)?,
            )?;
            ctx.barrier()?;
            ctx.verify(
                0,
                number,
                &endpoint.wait_for(context)?.expect_success()?.bytes,
            )?;
            let completion = endpoint
                .post_and_wait(Rx::tagged(1, len))?
                .expect_success()?;
            ctx.verify(0, 100 + number, &completion.bytes)?;
        }
    }
    Ok(())
}

/// Work is started in the order of its thresholds, and with equal thresholds in the order of its
/// posts.
fn thresholds(ctx: &mut TestContext) -> Result {
    const COUNT: u64 = 12;
    let endpoint = ctx.open_endpoint()?;
    if ctx.me() == 0 {
        let (trigger, completed) = (open_counter(&endpoint)?, open_counter(&endpoint)?);
        for tag in (0..COUNT).rev() {
            for half in 0..2 {
                let number = (2 * tag + half) as usize;
                let post =
                    Tx::msg(endpoint.peer(), ctx.payload(1, number, 100)).flags(NO_COMPLETION);
                let notify = Notify::Counter(Some(Arc::clone(&completed)));
                let (context, _) = endpoint.defer(post, &trigger, tag + 1, notify)?;
                endpoint.forget(context);
            }
        }
        for tag in 0..COUNT {
            trigger.add(1);
            until("messages that were sent", || {
                endpoint.progress()?;
                Ok((completed.read() >= 2 * (tag + 1)).then_some(()))
            })?;
        }
        check_final_value(&endpoint, "all messages", &completed, 2 * COUNT)?;
    } else {
        for number in 0..2 * COUNT as usize {
            let completion = endpoint.post_and_wait(Rx::msg(100))?.expect_success()?;
            ctx.verify(0, number, &completion.bytes)?;
        }
    }
    Ok(())
}

/// Counters trigger counters, and an error counts as a success does.
fn counters(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    let counters: Vec<_> = (0..4)
        .map(|_| open_counter(&endpoint))
        .collect::<Result<_>>()?;
    let queue = |index: usize, threshold, action| {
        let cntr = &counters[index];
        let work = Work {
            cntr,
            threshold,
            action,
        };
        queue_count(&*endpoint.domain, &work)
    };
    queue(0, 3, Action::Add(&counters[1], 10))?;
    queue(1, 10, Action::Set(&counters[2], 77))?;
    queue(2, 77, Action::Add(&counters[3], 1))?;
    queue(2, 78, Action::Add(&counters[3], 100))?;
    counters[0].add(2);
    endpoint.settle()?;
    same("before the threshold", counters[1].read(), 0)?;
    counters[0].add_err(1);
    check_final_value(&endpoint, "the end of a chain", &counters[3], 1)?;
    let numbers = [&counters[0], &counters[1], &counters[2]].map(|cntr| cntr.read());
    same("the counters of the chain", numbers, [2, 10, 77])?;
    counters[2].set(1000);
    check_final_value(&endpoint, "work with a higher threshold", &counters[3], 101)
}

/// Cancelled work is not carried out.
fn cancelled(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    let (trigger, other, completed) = (
        open_counter(&endpoint)?,
        open_counter(&endpoint)?,
        open_counter(&endpoint)?,
    );
    let queue = |cntr, value| {
        let action = Action::Add(&completed, value);
        let work = Work {
            cntr,
            threshold: 1,
            action,
        };
        queue_count(&*endpoint.domain, &work)
    };
    let first = queue(&trigger, 1)?;
    queue(&trigger, 10)?;
    queue(&other, 100)?;
    same(
        "cancelling work",
        endpoint.domain.cancel_work(first),
        Ok(()),
    )?;
    let result = endpoint.domain.cancel_work(first);
    same("cancelling work again", result, Err(Errno::NoEnt))?;
    trigger.add(1);
    check_final_value(
        &endpoint,
        "the remaining work of the counter",
        &completed,
        10,
    )?;
    queue(&trigger, 1000)?;
    check_final_value(
        &endpoint,
        "work whose threshold was reached before",
        &completed,
        1010,
    )?;
    trigger.set(0);
    queue(&trigger, 1)?;
    endpoint.domain.flush_work(Some(&trigger))?;
    trigger.add(1);
    check_final_value(&endpoint, "after a flush of one counter", &completed, 1010)?;
    endpoint.domain.flush_work(None)?;
    other.add(1);
    check_final_value(&endpoint, "after a flush of all", &completed, 1010)
}

/// Failed work counts as an error of its counter.
fn failures(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    let memory = ctx.memory(&endpoint, Maker::Test, 64)?;
    let remote = ctx.exchange_addresses(&endpoint, &memory)?[1 - ctx.me()];
    let (trigger, completed) = (open_counter(&endpoint)?, open_counter(&endpoint)?);
    let defer = |post: Write| {
        let notify = Notify::Counter(Some(Arc::clone(&completed)));
        endpoint.defer(post, &trigger, 1, notify)
    };
    let out_of_bounds = Write::new(remote.at(64), vec![1; 8]);
    let (unreported, _) = defer(out_of_bounds.clone().flags(NO_COMPLETION))?;
    let (reported, _) = defer(out_of_bounds.flags(COMPLETION))?;
    let notify = Notify::Counter(Some(Arc::clone(&completed)));
    let (rx, _) = endpoint.defer(Rx::msg(10).flags(NO_COMPLETION), &trigger, 1, notify)?;
    ctx.barrier()?;
    trigger.add(1);
    endpoint
        .wait_for(reported)?
        .expect_failure("a write after the end of the region", Errno::Fault)?;
    ctx.barrier()?;
    endpoint.run(Tx::msg(endpoint.peer(), vec![1; 20]))?;
    let numbers = || (completed.read_err(), completed.read());
    let _ = until("the errors", || {
        endpoint.progress()?;
        Ok((numbers().0 == 3).then_some(()))
    });
    endpoint.settle()?;
    same("errors and successes", numbers(), (3, 0))?;
    holds("no completion is reported", endpoint.poll()?.is_none())?;
    endpoint.forget(unreported);
    endpoint.forget(rx);
    ctx.barrier()
}

/// Operations that cannot be deferred are refused.
fn refusals(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    let trigger = open_counter(&endpoint)?;
    let dest = endpoint.to(0);
    let inject = Tx::msg(dest, vec![1; 8]).flags(OpFlags::INJECT);
    let no_counter = || Notify::Counter(None);
    let refused = endpoint.defer(inject.clone(), &trigger, 1, no_counter());
    same("deferred FI_INJECT", refused, Err(Errno::NoSys))?;
    for (operation, inject) in [
        ("inject", Tx::msg(dest, vec![1; 8])),
        ("tagged inject", Tx::tagged(dest, 1, vec![1; 8])),
    ] {
        let refused = endpoint.defer(inject.injected(), &trigger, 1, no_counter());
        same(format!("deferred {operation}"), refused, Err(Errno::NoSys))?;
    }
    let multi_recv = Rx::msg(64).flags(OpFlags::MULTI_RECV);
    let refused = endpoint.defer(multi_recv, &trigger, 1, no_counter());
    same("deferred FI_MULTI_RECV", refused, Err(Errno::NoSys))?;
    // Work ends with its endpoint and its counter, without an effect.
    let (dropped, _) = endpoint.defer(
        Tx::msg(dest, vec![1; 8]).flags(NO_COMPLETION),
        &trigger,
        1,
        no_counter(),
    )?;
    endpoint.forget(dropped);
    drop(trigger);
    endpoint.settle()?;
    holds("no completion is reported", endpoint.poll()?.is_none())
}

/// Work starts while its process is parked: an arriving message increments a counter, and the
/// counter triggers a send.
fn while_parked(ctx: &mut TestContext) -> Result {
    let receives = std::cell::RefCell::new(None);
    let attr = || {
        let mut attr = cntr::Attr::default();
        attr.wait_obj = wait::Object::Unspec;
        attr
    };
    let bind = |domain: &dyn Domain, bind: &mut Bindings| {
        let cntr = domain.cntr(&attr())?;
        bind.cntrs.recv = Some(Arc::clone(&cntr));
        *receives.borrow_mut() = Some(cntr);
        Ok(())
    };
    let setup = Setup {
        bind: Some(&bind),
        ..Setup::default()
    };
    let endpoint = ctx.open_endpoint_with(&setup)?;
    let receives = receives.take().expect("the endpoint was bound");
    let completed = endpoint.domain.cntr(&attr())?;
    let rounds = ctx.scale(20, 200);
    for round in 0..rounds {
        let number = round + 1;
        let rx = endpoint.post(Rx::msg(100))?;
        if ctx.me() == 1 {
            let post = Tx::msg(endpoint.peer(), ctx.payload(0, round, 100)).flags(NO_COMPLETION);
            let notify = Notify::Counter(Some(Arc::clone(&completed)));
            let (tx, _) = endpoint.defer(post, &receives, number as u64, notify)?;
            endpoint.forget(tx);
            ctx.barrier()?;
            completed.wait(number as u64, Some(limit()))?;
            ctx.verify(0, round, &endpoint.wait_for(rx)?.expect_success()?.bytes)?;
        } else {
            ctx.barrier()?;
            std::thread::sleep(Duration::from_micros(50 * round as u64));
            endpoint.run(Tx::msg(endpoint.peer(), ctx.payload(1, round, 100)))?;
            ctx.verify(1, round, &endpoint.wait_for(rx)?.expect_success()?.bytes)?;
        }
        ctx.barrier()?;
    }
    Ok(())
}
