//! Poll sets and wait sets, fi_poll(3), which report the ready members among queues and counters.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use selvedge::poll::{Member, Set};
use selvedge::{Bindings, Caps, Context, Counter, Domain, Errno, cntr, wait};

use crate::suite::context::check::{holds, same};
use crate::suite::context::timeout::{limit, until};
use crate::suite::context::{RAW, Result, Rx, Setup, Skipped, Test, TestContext, TestEndpoint, Tx};
use crate::suite::defect::Defect;

tests! {
    ready_members(Caps::MSG) catches [NeverReady, StaysReady] .apis(RAW);
    waits(Caps::MSG) catches [DeadDescriptor, NeverReady] .apis(RAW);
}

/// Opens an endpoint whose receives are counted.
fn open_counted(
    ctx: &mut TestContext,
    object: wait::Object,
) -> Result<(TestEndpoint, Arc<dyn Counter>)> {
    let receives = RefCell::new(None);
    let bind = |domain: &dyn Domain, bind: &mut Bindings| {
        let mut attr = cntr::Attr::default();
        attr.wait_obj = object;
        let cntr = domain.cntr(&attr)?;
        bind.cntrs.recv = Some(Arc::clone(&cntr));
        *receives.borrow_mut() = Some(cntr);
        Ok(())
    };
    let endpoint = ctx.open_endpoint_with(&Setup {
        wait: object,
        bind: Some(&bind),
        ..Setup::default()
    })?;
    Ok((endpoint, receives.take().expect("the endpoint was bound")))
}

/// A set reports its ready members, up to the capacity of the output, until the members are read.
fn ready_members(ctx: &mut TestContext) -> Result {
    let (endpoint, receives) = open_counted(ctx, wait::Object::None)?;
    if endpoint.cq().is_ready() && receives.is_ready() {
        let reason = "queues and counters that cannot tell whether they are ready";
        return Err(Skipped(reason.to_owned()).into());
    }
    if ctx.me() == 1 {
        for round in 0..ctx.scale(5, 100) {
            ctx.barrier()?;
            endpoint.run(Tx::msg(endpoint.peer(), ctx.payload(0, round, 64)))?;
            ctx.barrier()?;
        }
        return holds("all are sent", true);
    }
    let (queue, counter) = (Member::Cq(endpoint.cq()), Member::Cntr(receives.clone()));
    let set = Set::new();
    same("adding a queue", set.add(queue.clone(), Context(7)), Ok(()))?;
    let result = set.add(queue.clone(), Context(8));
    same("adding the queue again", result, Err(Errno::Inval))?;
    same(
        "adding a counter",
        set.add(counter.clone(), Context(9)),
        Ok(()),
    )?;
    let ready = |capacity: usize| {
        let mut out = vec![Context(0); capacity];
        let count = set.poll(&mut out);
        Vec::from_iter(out[..count].iter().map(|context| context.0))
    };
    for round in 0..ctx.scale(5, 100) {
        let rx = endpoint.post(Rx::msg(64))?;
        same("the ready members before a message", ready(4), Vec::new())?;
        ctx.barrier()?;
        until("two ready members", || {
            Ok((ready(4) == [7, 9]).then_some(()))
        })?;
        same("with room for one", ready(1), vec![7])?;
        ctx.verify(1, round, &endpoint.wait_for(rx)?.expect_success()?.bytes)?;
        same(
            "the ready members after the queue is read",
            ready(4),
            vec![9],
        )?;
        same("the counter", receives.read(), round as u64 + 1)?;
        same(
            "the ready members after the counter is read as well",
            ready(4),
            Vec::new(),
        )?;
        ctx.barrier()?;
    }
    same("removing a queue", set.remove(&queue), Ok(()))?;
    let result = set.remove(&queue);
    same("removing the queue again", result, Err(Errno::Inval))?;
    same("removing a counter", set.remove(&counter), Ok(()))
}

/// A wait for a set ends when any of its members is ready, or with its timeout.
fn waits(ctx: &mut TestContext) -> Result {
    let (endpoint, receives) = open_counted(ctx, wait::Object::Fd)?;
    let rounds = ctx.scale(40, 1000);
    let mut random = ctx.random();
    if ctx.me() == 1 {
        for round in 0..rounds {
            ctx.barrier()?;
            // Some messages arrive while the receiver polls, and some while it is parked.
            let longest_us = if round % 9 == 0 { 10_000 } else { 300 };
            std::thread::sleep(Duration::from_micros(random.below(longest_us)));
            endpoint.run(Tx::msg(endpoint.peer(), ctx.payload(0, round, 64)))?;
        }
        return holds("all are sent", true);
    }
    let queue = Set::new();
    queue.add(Member::Cq(endpoint.cq()), Context(0))?;
    let counter = Set::new();
    counter.add(Member::Cntr(receives.clone()), Context(0))?;
    let time = Duration::from_millis(20);
    for set in [&queue, &counter] {
        let start = Instant::now();
        same(
            "a wait for nothing",
            set.wait(Some(time)),
            Err(Errno::TimedOut),
        )?;
        holds("the wait lasts until its timeout", start.elapsed() >= time)?;
    }
    for round in 0..rounds {
        let rx = endpoint.post(Rx::msg(64))?;
        ctx.barrier()?;
        let (set, start) = ([&queue, &counter][round % 2], Instant::now());
        same("a wait", set.wait(Some(2 * limit())), Ok(()))?;
        holds(
            "the waiting thread was woken in time",
            start.elapsed() < limit(),
        )?;
        ctx.verify(1, round, &endpoint.wait_for(rx)?.expect_success()?.bytes)?;
        same("the counter", receives.read(), round as u64 + 1)?;
    }
    Ok(())
}
