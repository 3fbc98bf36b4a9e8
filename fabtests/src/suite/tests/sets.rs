//! Poll sets and wait sets, fi_poll(3): which of several queues and counters are ready.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use selvedge::poll::{Member, Set};
use selvedge::{Bindings, Caps, Context, Counter, Domain, Errno, cntr, wait};

use crate::suite::cx::check::{holds, same};
use crate::suite::cx::timeout::{limit, until};
use crate::suite::cx::{Cx, RAW, Result, Rx, Setup, Skipped, Test, TestEndpoint, Tx};
use crate::suite::flaw::Flaw;

tests! {
    who_is_ready(Caps::MSG) catches [NeverReady, StaysReady] .faces(RAW);
    sleepers_are_woken(Caps::MSG) catches [DeadDescriptor, NeverReady] .faces(RAW);
}

/// A port whose receives are counted.
fn counted(cx: &mut Cx, object: wait::Object) -> Result<(TestEndpoint, Arc<dyn Counter>)> {
    let arrived = RefCell::new(None);
    let bind = |domain: &dyn Domain, bind: &mut Bindings| {
        let mut attr = cntr::Attr::default();
        attr.wait_obj = object;
        let cntr = domain.cntr(&attr)?;
        bind.cntrs.recv = Some(Arc::clone(&cntr));
        *arrived.borrow_mut() = Some(cntr);
        Ok(())
    };
    let port = cx.port_with(&Setup {
        wait: object,
        bind: Some(&bind),
        ..Setup::default()
    })?;
    Ok((port, arrived.take().expect("the endpoint was bound")))
}

/// A set names what is ready, as many as there is room for, until it was read.
fn who_is_ready(cx: &mut Cx) -> Result {
    let (port, arrived) = counted(cx, wait::Object::None)?;
    if port.cq().is_ready() && arrived.is_ready() {
        let why = "queues and counters that cannot tell whether they are ready";
        return Err(Skipped(why.to_owned()).into());
    }
    if cx.me() == 1 {
        for round in 0..cx.scale(5, 100) {
            cx.barrier()?;
            port.run(Tx::msg(port.peer(), cx.payload(0, round, 64)))?;
            cx.barrier()?;
        }
        return holds("all are sent", true);
    }
    let (queue, number) = (Member::Cq(port.cq()), Member::Cntr(arrived.clone()));
    let set = Set::new();
    same("adding a queue", set.add(queue.clone(), Context(7)), Ok(()))?;
    let again = set.add(queue.clone(), Context(8));
    same("adding it again", again, Err(Errno::Inval))?;
    same(
        "adding a counter",
        set.add(number.clone(), Context(9)),
        Ok(()),
    )?;
    let named = |room: usize| {
        let mut out = vec![Context(0); room];
        let count = set.poll(&mut out);
        Vec::from_iter(out[..count].iter().map(|context| context.0))
    };
    for round in 0..cx.scale(5, 100) {
        let rx = port.post(Rx::msg(64))?;
        same("what is ready before", named(4), Vec::new())?;
        cx.barrier()?;
        until("two that are ready", || {
            Ok((named(4) == [7, 9]).then_some(()))
        })?;
        same("with room for one", named(1), vec![7])?;
        cx.verify(1, round, &port.wait_for(rx)?.expect_success()?.bytes)?;
        same("when the queue is read", named(4), vec![9])?;
        same("the counter", arrived.read(), round as u64 + 1)?;
        same("when the counter is read, too", named(4), Vec::new())?;
        cx.barrier()?;
    }
    same("taking a queue out", set.remove(&queue), Ok(()))?;
    let again = set.remove(&queue);
    same("taking it out again", again, Err(Errno::Inval))?;
    same("taking a counter out", set.remove(&number), Ok(()))
}

/// A wait for a set ends with any of its members, or its time.
fn sleepers_are_woken(cx: &mut Cx) -> Result {
    let (port, arrived) = counted(cx, wait::Object::Fd)?;
    let rounds = cx.scale(40, 1000);
    let mut random = cx.random();
    if cx.me() == 1 {
        for round in 0..rounds {
            cx.barrier()?;
            // Some come while somebody looks, and some to who sleeps.
            let most = if round % 9 == 0 { 10_000 } else { 300 };
            std::thread::sleep(Duration::from_micros(random.below(most)));
            port.run(Tx::msg(port.peer(), cx.payload(0, round, 64)))?;
        }
        return holds("all are sent", true);
    }
    let queue = Set::new();
    queue.add(Member::Cq(port.cq()), Context(0))?;
    let number = Set::new();
    number.add(Member::Cntr(arrived.clone()), Context(0))?;
    let time = Duration::from_millis(20);
    for set in [&queue, &number] {
        let start = Instant::now();
        same(
            "a wait for nothing",
            set.wait(Some(time)),
            Err(Errno::TimedOut),
        )?;
        holds("it has taken its time", start.elapsed() >= time)?;
    }
    for round in 0..rounds {
        let rx = port.post(Rx::msg(64))?;
        cx.barrier()?;
        let (set, start) = ([&queue, &number][round % 2], Instant::now());
        same("a wait", set.wait(Some(2 * limit())), Ok(()))?;
        holds("somebody was woken", start.elapsed() < limit())?;
        cx.verify(1, round, &port.wait_for(rx)?.expect_success()?.bytes)?;
        same("the counter", arrived.read(), round as u64 + 1)?;
    }
    Ok(())
}
