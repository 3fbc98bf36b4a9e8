//! Work that waits for a counter, fi_trigger(3).

use std::sync::Arc;
use std::time::Duration;

use selvedge::atomic::{Datatype, Family, Op as AtomicOp};
use selvedge::trigger::{Action, Work};
use selvedge::{Bindings, Caps, Counter, Domain, Errno, OpFlags, cntr, wait};

use crate::suite::cx::check::{holds, same};
use crate::suite::cx::timeout::{limit, until};
use crate::suite::cx::{
    Atomic, CONNECTED, Cx, Maker, Notify, Post, RAW, Read, Result, Rx, Setup, Test, TestEndpoint,
    Tx, Write, queue_count,
};
use crate::suite::flaw::Flaw;

tests! {
    every_kind(ALL) catches [ForgetsWork, HurriesWork, TellsAll] .faces(RAW);
    triggered(MSG) catches [ForgetsWork, HurriesWork] .faces(RAW);
    thresholds(UNTAGGED) catches [HurriesWork] .faces(RAW).ep_types(CONNECTED);
    counters(MSG) catches [ForgetsWork, HurriesWork] .faces(RAW).processes(1);
    taken_back(MSG) catches [KeepsWork] .faces(RAW).processes(1);
    failures(RMA) catches [TellsAll, CountsNoErrors] .faces(RAW);
    refusals(MSG) catches [TakesAnyFlag] .faces(RAW).processes(1);
    asleep(UNTAGGED) catches [ForgetsWork] .faces(RAW).ep_types(CONNECTED);
}

const UNTAGGED: Caps = Caps::MSG.union(Caps::TRIGGER);
const MSG: Caps = UNTAGGED.union(Caps::TAGGED);
const RMA: Caps = MSG.union(Caps::RMA);
const ALL: Caps = RMA.union(Caps::ATOMIC);
const SIZES: [usize; 2] = [8, 70_000];

fn counter(port: &TestEndpoint) -> Result<Arc<dyn Counter>> {
    Ok(port.domain.cntr(&cntr::Attr::default())?)
}

/// Waits until a counter has this value, and makes sure that it stays.
fn counts(port: &TestEndpoint, what: &str, cntr: &Arc<dyn Counter>, expected: u64) -> Result {
    let _ = until(what, || {
        port.progress()?;
        Ok((cntr.read() >= expected).then_some(()))
    });
    port.settle()?;
    same(what, cntr.read(), expected)
}

/// Every kind of post waits for its number, tells its counter alone, and the queue if that was asked
/// for.
fn every_kind(cx: &mut Cx) -> Result {
    let port = cx.port()?;
    let memory = cx.memory(&port, Maker::Test, 1 << 17)?;
    let place = cx.places(&port, &memory)?[1 - cx.me()];
    let (gate, done) = (counter(&port)?, counter(&port)?);
    let mut expected = 0;
    for (number, len) in SIZES.into_iter().enumerate() {
        let told = || Notify::Counter(Some(Arc::clone(&done)));
        let gate_at = gate.read() + 2;
        let defer = |post: Post| {
            let deferred = port.defer(post, &gate, gate_at, told());
            deferred.map_err(|errno| anyhow::anyhow!("deferring: {errno:?}"))
        };
        let bytes = || cx.payload(1 - cx.me(), number, len);
        // Both do all of it: the second half of the memory is what the peer writes to.
        let (msg, _) = defer(Tx::msg(port.peer(), bytes()).flags(COMPLETION).into())?;
        let (tagged, _) = defer(Tx::tagged(port.peer(), 7, bytes()).flags(QUIET).into())?;
        let (rx, _) = defer(Rx::msg(len).flags(COMPLETION).into())?;
        let (trx, _) = defer(Rx::tagged(7, len).flags(COMPLETION).into())?;
        let (write, _) = defer(Write::new(place.at(1000), bytes()).flags(COMPLETION).into())?;
        let add = Atomic::new(
            Family::Base,
            Datatype::Uint64,
            AtomicOp::Sum,
            place,
            5_u64.to_ne_bytes().to_vec(),
            Vec::new(),
        )
        .flags(QUIET);
        memory.put(0, &[0; 16]);
        let (atomic, _) = defer(add.into())?;
        cx.barrier()?;
        gate.add(1);
        port.settle()?;
        let is_early = done.read() > expected || port.poll()?.is_some();
        holds("nothing happens before its time", !is_early)?;
        cx.barrier()?;
        gate.add(1);
        for context in [msg, write] {
            port.wait_for(context)?.expect_success()?;
        }
        for context in [rx, trx] {
            cx.verify(
                1 - cx.me(),
                number,
                &port.wait_for(context)?.expect_success()?.bytes,
            )?;
        }
        expected += 6;
        counts(&port, "operations that were done", &done, expected)?;
        for context in [tagged, atomic] {
            port.forget(context);
        }
        cx.barrier()?;
        let sum = u64::from_ne_bytes(memory.get(0, 8).try_into().expect("eight bytes"));
        same("what was added", sum, 5)?;
        cx.verify(1 - cx.me(), number, &memory.get(1000, len))?;
        reads(cx, &port, &gate, &done, number, len)?;
        expected += 3;
    }
    Ok(())
}

/// What comes back waits, too: reads, and atomics with a result.
fn reads(
    cx: &mut Cx,
    port: &TestEndpoint,
    gate: &Arc<dyn Counter>,
    done: &Arc<dyn Counter>,
    number: usize,
    len: usize,
) -> Result {
    let memory = cx.memory(port, Maker::Test, (1 << 17) + 64)?;
    memory.put(64, &cx.payload(1 - cx.me(), 1000 + number, len));
    memory.put(0, &9_u64.to_ne_bytes());
    memory.put(8, &9_u64.to_ne_bytes());
    let place = cx.places(port, &memory)?[1 - cx.me()];
    let (before, told) = (done.read(), Notify::Counter(Some(Arc::clone(done))));
    let at = gate.read() + 1;
    let defer = |post: Post| {
        let deferred = port.defer(post, gate, at, told.clone());
        deferred.map_err(|errno| anyhow::anyhow!("deferring: {errno:?}"))
    };
    let (read, _) = defer(Read::new(place.at(64), len).flags(COMPLETION).into())?;
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
    let (fetch, _) = defer(fetching(Family::Fetch, AtomicOp::Sum, place).into())?;
    let (swap, _) = defer(fetching(Family::Compare, AtomicOp::Cswap, place.at(8)).into())?;
    port.settle()?;
    same("reads before their time", done.read(), before)?;
    gate.add(1);
    cx.verify(
        1 - cx.me(),
        1000 + number,
        &port.wait_for(read)?.expect_success()?.bytes,
    )?;
    for context in [fetch, swap] {
        let earlier = port.wait_for(context)?.expect_success()?.bytes;
        same("the earlier value", earlier, 9_u64.to_ne_bytes().to_vec())?;
    }
    counts(port, "reads that were done", done, before + 3)?;
    cx.barrier()?;
    let words = [memory.get(0, 8), memory.get(8, 8)];
    let words = words.map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes")));
    same("what atomics left", words, [13, 4])?;
    cx.barrier()?;
    cx.close(memory);
    Ok(())
}

const COMPLETION: OpFlags = OpFlags::COMPLETION;
const QUIET: OpFlags = OpFlags::empty();

/// A triggered operation ends like any other.
fn triggered(cx: &mut Cx) -> Result {
    let port = cx.port()?;
    let gate = counter(&port)?;
    for (number, len) in SIZES.into_iter().enumerate() {
        if cx.me() == 0 {
            let post = Tx::msg(port.peer(), cx.payload(1, number, len));
            let at = gate.read() + 3;
            let (context, _) = port.defer(post, &gate, at, Notify::Endpoint)?;
            gate.add(2);
            port.settle()?;
            holds("it waits", !port.is_done(context)?)?;
            cx.barrier()?;
            gate.add(1);
            port.wait_for(context)?.expect_success()?;
            // A number that was reached before is no reason to wait.
            let post = Tx::tagged(port.peer(), 1, cx.payload(1, 100 + number, len));
            let (context, _) = port.defer(post, &gate, 1, Notify::Endpoint)?;
            port.wait_for(context)?.expect_success()?;
        } else {
            let context = port.post(Rx::msg(len))?;
            port.settle()?;
            holds("nothing comes too early", !port.is_done(context)?)?;
            cx.barrier()?;
            cx.verify(0, number, &port.wait_for(context)?.expect_success()?.bytes)?;
            let done = port.post_and_wait(Rx::tagged(1, len))?.expect_success()?;
            cx.verify(0, 100 + number, &done.bytes)?;
        }
    }
    Ok(())
}

/// Work is done in the order of its numbers, and of one number in the order in which it was queued.
fn thresholds(cx: &mut Cx) -> Result {
    const COUNT: u64 = 12;
    let port = cx.port()?;
    if cx.me() == 0 {
        let (gate, done) = (counter(&port)?, counter(&port)?);
        for tag in (0..COUNT).rev() {
            for half in 0..2 {
                let number = (2 * tag + half) as usize;
                let post = Tx::msg(port.peer(), cx.payload(1, number, 100)).flags(QUIET);
                let told = Notify::Counter(Some(Arc::clone(&done)));
                let (context, _) = port.defer(post, &gate, tag + 1, told)?;
                port.forget(context);
            }
        }
        for tag in 0..COUNT {
            gate.add(1);
            until("messages that went", || {
                port.progress()?;
                Ok((done.read() >= 2 * (tag + 1)).then_some(()))
            })?;
        }
        counts(&port, "all messages", &done, 2 * COUNT)?;
    } else {
        for number in 0..2 * COUNT as usize {
            let done = port.post_and_wait(Rx::msg(100))?.expect_success()?;
            cx.verify(0, number, &done.bytes)?;
        }
    }
    Ok(())
}

/// Counters set off counters, and errors count as much as successes.
fn counters(cx: &mut Cx) -> Result {
    let port = cx.port()?;
    let all: Vec<_> = (0..4).map(|_| counter(&port)).collect::<Result<_>>()?;
    let queue = |at: usize, threshold, action| {
        let cntr = &all[at];
        let work = Work {
            cntr,
            threshold,
            action,
        };
        queue_count(&*port.domain, &work)
    };
    queue(0, 3, Action::Add(&all[1], 10))?;
    queue(1, 10, Action::Set(&all[2], 77))?;
    queue(2, 77, Action::Add(&all[3], 1))?;
    queue(2, 78, Action::Add(&all[3], 100))?;
    all[0].add(2);
    port.settle()?;
    same("before the number", all[1].read(), 0)?;
    all[0].add_err(1);
    counts(&port, "the end of a chain", &all[3], 1)?;
    let numbers = [&all[0], &all[1], &all[2]].map(|cntr| cntr.read());
    same("the links of the chain", numbers, [2, 10, 77])?;
    all[2].set(1000);
    counts(&port, "what waited for more", &all[3], 101)
}

/// What was taken back is not done.
fn taken_back(cx: &mut Cx) -> Result {
    let port = cx.port()?;
    let (gate, other, done) = (counter(&port)?, counter(&port)?, counter(&port)?);
    let queue = |cntr, value| {
        let action = Action::Add(&done, value);
        let work = Work {
            cntr,
            threshold: 1,
            action,
        };
        queue_count(&*port.domain, &work)
    };
    let first = queue(&gate, 1)?;
    queue(&gate, 10)?;
    queue(&other, 100)?;
    same("taking it back", port.domain.cancel_work(first), Ok(()))?;
    let again = port.domain.cancel_work(first);
    same("taking it back again", again, Err(Errno::NoEnt))?;
    gate.add(1);
    counts(&port, "what was left at the counter", &done, 10)?;
    queue(&gate, 1000)?;
    counts(&port, "what need not wait", &done, 1010)?;
    gate.set(0);
    queue(&gate, 1)?;
    port.domain.flush_work(Some(&gate))?;
    gate.add(1);
    counts(&port, "after a flush of one counter", &done, 1010)?;
    port.domain.flush_work(None)?;
    other.add(1);
    counts(&port, "after a flush of all", &done, 1010)
}

/// Work that fails counts as an error of its counter.
fn failures(cx: &mut Cx) -> Result {
    let port = cx.port()?;
    let memory = cx.memory(&port, Maker::Test, 64)?;
    let place = cx.places(&port, &memory)?[1 - cx.me()];
    let (gate, done) = (counter(&port)?, counter(&port)?);
    let defer = |post: Write| {
        let told = Notify::Counter(Some(Arc::clone(&done)));
        port.defer(post, &gate, 1, told)
    };
    let beyond = Write::new(place.at(64), vec![1; 8]);
    let (quiet, _) = defer(beyond.clone().flags(QUIET))?;
    let (loud, _) = defer(beyond.flags(COMPLETION))?;
    let short = Notify::Counter(Some(Arc::clone(&done)));
    let (rx, _) = port.defer(Rx::msg(10).flags(QUIET), &gate, 1, short)?;
    cx.barrier()?;
    gate.add(1);
    port.wait_for(loud)?
        .expect_failure("a write behind the region", Errno::Fault)?;
    cx.barrier()?;
    port.run(Tx::msg(port.peer(), vec![1; 20]))?;
    let numbers = || (done.read_err(), done.read());
    let _ = until("the errors", || {
        port.progress()?;
        Ok((numbers().0 == 3).then_some(()))
    });
    port.settle()?;
    same("errors and successes", numbers(), (3, 0))?;
    holds("nobody else is told", port.poll()?.is_none())?;
    port.forget(quiet);
    port.forget(rx);
    cx.barrier()
}

/// What cannot wait is refused at once.
fn refusals(cx: &mut Cx) -> Result {
    let port = cx.port()?;
    let gate = counter(&port)?;
    let to = port.to(0);
    let inject = Tx::msg(to, vec![1; 8]).flags(OpFlags::INJECT);
    let quietly = || Notify::Counter(None);
    let refused = port.defer(inject.clone(), &gate, 1, quietly());
    same("FI_INJECT that waits", refused, Err(Errno::NoSys))?;
    for (what, inject) in [
        ("an inject", Tx::msg(to, vec![1; 8])),
        ("a tagged inject", Tx::tagged(to, 1, vec![1; 8])),
    ] {
        let refused = port.defer(inject.injected(), &gate, 1, quietly());
        same(format!("{what} that waits"), refused, Err(Errno::NoSys))?;
    }
    let many = Rx::msg(64).flags(OpFlags::MULTI_RECV);
    let refused = port.defer(many, &gate, 1, quietly());
    same("FI_MULTI_RECV that waits", refused, Err(Errno::NoSys))?;
    // Work goes with its endpoint and with its counter, and harms nobody.
    let (lost, _) = port.defer(Tx::msg(to, vec![1; 8]).flags(QUIET), &gate, 1, quietly())?;
    port.forget(lost);
    drop(gate);
    port.settle()?;
    holds("nobody is told", port.poll()?.is_none())
}

/// Work goes out while its process sleeps: what arrives counts, and what counts sends.
fn asleep(cx: &mut Cx) -> Result {
    let arrived = std::cell::RefCell::new(None);
    let attr = || {
        let mut attr = cntr::Attr::default();
        attr.wait_obj = wait::Object::Unspec;
        attr
    };
    let bind = |domain: &dyn Domain, bind: &mut Bindings| {
        let cntr = domain.cntr(&attr())?;
        bind.cntrs.recv = Some(Arc::clone(&cntr));
        *arrived.borrow_mut() = Some(cntr);
        Ok(())
    };
    let setup = Setup {
        bind: Some(&bind),
        ..Setup::default()
    };
    let port = cx.port_with(&setup)?;
    let arrived = arrived.take().expect("the endpoint was bound");
    let done = port.domain.cntr(&attr())?;
    let rounds = cx.scale(20, 200);
    for round in 0..rounds {
        let number = round + 1;
        let rx = port.post(Rx::msg(100))?;
        if cx.me() == 1 {
            let post = Tx::msg(port.peer(), cx.payload(0, round, 100)).flags(QUIET);
            let told = Notify::Counter(Some(Arc::clone(&done)));
            let (tx, _) = port.defer(post, &arrived, number as u64, told)?;
            port.forget(tx);
            cx.barrier()?;
            done.wait(number as u64, Some(limit()))?;
            cx.verify(0, round, &port.wait_for(rx)?.expect_success()?.bytes)?;
        } else {
            cx.barrier()?;
            std::thread::sleep(Duration::from_micros(50 * round as u64));
            port.run(Tx::msg(port.peer(), cx.payload(1, round, 100)))?;
            cx.verify(1, round, &port.wait_for(rx)?.expect_success()?.bytes)?;
        }
        cx.barrier()?;
    }
    Ok(())
}
