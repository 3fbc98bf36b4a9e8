//! Counters, fi_cntr(3).

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use selvedge::atomic::{Datatype, Family, Op};
use selvedge::cntr::{self, Events};
use selvedge::{Bindings, Caps, Counter, Domain, Errno, Hints, MrAccess, OpFlags, wait};

use crate::suite::cx::check::{holds, same};
use crate::suite::cx::timeout::{limit, until};
use crate::suite::cx::{
    Atomic, Cx, Maker, Memory, Post, RAW, Read, RemoteAddr, Result, Rx, Setup, Test, TestEndpoint,
    Tx, Write,
};
use crate::suite::flaw::Flaw;

tests! {
    each_class(EVENTS) catches [CountsTwice, WrongCounter] .faces(RAW);
    errors_apart(RMA) catches [CountsNoErrors] .faces(RAW);
    bytes(EVENTS) catches [CountsNoBytes, CountsTwice] .faces(RAW);
    regions(EVENTS) catches [CountsTwice, WrongCounter, MixesRegions] .faces(RAW);
    atomics_of_regions(EVENTS.union(Caps::ATOMIC)) catches [
        CountsTwice, WrongCounter, MixesRegions
    ] .faces(RAW);
    without_reports(MSG) catches [ReportsAll, WrongCounter] .faces(RAW);
    arithmetic(MSG) catches [CountsTwice, CountsNoErrors] .faces(RAW).processes(1);
    delivered_injects(EVENTS.union(Caps::ATOMIC)) catches [DeliversEarly] .faces(RAW);
    waits(MSG) catches [NoCounterWait] .faces(RAW);
}

const MSG: Caps = Caps::MSG;
const RMA: Caps = Caps::MSG.union(Caps::RMA);
const EVENTS: Caps = RMA.union(Caps::RMA_EVENT);

/// The counters of an endpoint.
#[derive(Clone)]
struct All {
    send: Arc<dyn Counter>,
    recv: Arc<dyn Counter>,
    read: Arc<dyn Counter>,
    write: Arc<dyn Counter>,
    remote_read: Arc<dyn Counter>,
    remote_write: Arc<dyn Counter>,
}

impl All {
    fn open(domain: &dyn Domain, attr: &cntr::Attr) -> Result<Self> {
        Ok(Self {
            send: domain.cntr(attr)?,
            recv: domain.cntr(attr)?,
            read: domain.cntr(attr)?,
            write: domain.cntr(attr)?,
            remote_read: domain.cntr(attr)?,
            remote_write: domain.cntr(attr)?,
        })
    }

    fn bind(&self, bind: &mut Bindings, has_remote: bool) {
        bind.cntrs.send = Some(Arc::clone(&self.send));
        bind.cntrs.recv = Some(Arc::clone(&self.recv));
        bind.cntrs.read = Some(Arc::clone(&self.read));
        bind.cntrs.write = Some(Arc::clone(&self.write));
        if has_remote {
            bind.cntrs.remote_read = Some(Arc::clone(&self.remote_read));
            bind.cntrs.remote_write = Some(Arc::clone(&self.remote_write));
        }
    }

    fn numbers(&self) -> [u64; 6] {
        let all = [
            &self.send,
            &self.recv,
            &self.read,
            &self.write,
            &self.remote_read,
            &self.remote_write,
        ];
        all.map(|counter| counter.read())
    }
}

/// Where delivery completion is an endpoint's default, what is injected counts when it has arrived
/// (fi_endpoint(3), "op_flags"): not before its target makes progress.
fn delivered_injects(cx: &mut Cx) -> Result {
    let delivered: fn(Hints) -> Hints =
        |hints| hints.edit(|info| info.tx_attr.op_flags = OpFlags::DELIVERY_COMPLETE);
    let attr = cntr::Attr::default();
    let (port, all) = counted_with(cx, &attr, false, Some(delivered))?;
    let memory = cx.memory(&port, Maker::Test, 64)?;
    let place = cx.places(&port, &memory)?[1 - cx.me()];
    // The connection exists before the target stops making progress.
    port.post_and_wait(Write::new(place, vec![9; 16]))?
        .expect_success()?;
    cx.barrier()?;
    match cx.me() {
        0 => inject_each(cx, &port, &all, place),
        _ => take_each(cx, &port, &memory),
    }
}

/// Process 0's part of [`delivered_injects`].
fn inject_each(cx: &mut Cx, port: &TestEndpoint, all: &All, place: RemoteAddr) -> Result {
    let posts: [Post; 3] = [
        Write::new(place, cx.payload(1, 1, 16)).injected().into(),
        injected_sum(place.at(32)).into(),
        Tx::msg(port.peer(), cx.payload(1, 2, 16)).injected().into(),
    ];
    for post in posts {
        cx.barrier()?;
        let [sends, _, _, writes, ..] = all.numbers();
        let counted = || {
            let [more_sends, _, _, more_writes, ..] = all.numbers();
            more_sends + more_writes - sends - writes
        };
        port.run(post)?;
        port.settle()?;
        let what = "counted after an inject whose target makes no progress";
        same(what, counted(), 0)?;
        cx.barrier()?;
        until("the inject", || Ok((counted() > 0).then_some(())))?;
    }
    cx.barrier()
}

/// Process 1's part: it makes progress between every second pair of barriers alone.
fn take_each(cx: &mut Cx, port: &TestEndpoint, memory: &Memory) -> Result {
    let arrived = |what: &'static str, has: &dyn Fn() -> bool| {
        until(what, || {
            port.progress()?;
            Ok(has().then_some(()))
        })
    };
    let word = memory.get(32, 8);
    for number in 0..3 {
        cx.sleep_until_all_are_here()?;
        cx.sleep_until_all_are_here()?;
        match number {
            0 => arrived("the write", &|| memory.get(0, 16) != [9; 16])?,
            1 => arrived("the atomic", &|| memory.get(32, 8) != word)?,
            _ => drop(port.post_and_wait(Rx::msg(16))?.expect_success()?),
        }
        port.settle()?;
    }
    cx.barrier()
}

/// Adds one to a word.
fn injected_sum(target: RemoteAddr) -> Atomic {
    Atomic::new(
        Family::Base,
        Datatype::Uint64,
        Op::Sum,
        target,
        1_u64.to_ne_bytes().to_vec(),
        Vec::new(),
    )
    .injected()
}

/// A port with counters that count this.
fn counted(
    cx: &mut Cx,
    events: Events,
    wait: wait::Object,
    is_selective: bool,
) -> Result<(TestEndpoint, All)> {
    let mut attr = cntr::Attr::default();
    (attr.events, attr.wait_obj) = (events, wait);
    counted_with(cx, &attr, is_selective, None)
}

/// The same, opened with more hints.
fn counted_with(
    cx: &mut Cx,
    attr: &cntr::Attr,
    is_selective: bool,
    hints: Option<fn(Hints) -> Hints>,
) -> Result<(TestEndpoint, All)> {
    let all = RefCell::new(None);
    let has_remote = cx.test.caps.contains(Caps::RMA_EVENT);
    let bind = |domain: &dyn Domain, bind: &mut Bindings| {
        let own = All::open(domain, attr)?;
        own.bind(bind, has_remote);
        (bind.tx_selective, bind.rx_selective) = (is_selective, is_selective);
        *all.borrow_mut() = Some(own);
        Ok(())
    };
    let setup = Setup {
        bind: Some(&bind),
        hints,
        ..Setup::default()
    };
    let port = cx.port_with(&setup)?;
    let all = all.take().expect("the endpoint was bound");
    Ok((port, all))
}

/// Waits for these numbers, and makes sure that they stay.
fn settle(port: &TestEndpoint, all: &All, expected: [u64; 6]) -> Result {
    let _ = until("the numbers", || {
        port.progress()?;
        Ok((all.numbers() == expected).then_some(()))
    });
    port.settle()?;
    same(
        "send, recv, read, write, remote read, remote write",
        all.numbers(),
        expected,
    )
}

/// What both processes do: the first one twice as often.
fn act(cx: &mut Cx, port: &TestEndpoint, place: RemoteAddr, len: usize) -> Result<[u64; 2]> {
    let times = |process: usize| if process == 0 { 6 } else { 3 };
    let (own, others) = (times(cx.me()), times(1 - cx.me()));
    let mut receives = Vec::new();
    for _ in 0..others {
        receives.push(port.post(Rx::msg(len))?);
    }
    cx.barrier()?;
    for _ in 0..own {
        port.run(Tx::msg(port.peer(), vec![1; len]))?;
        port.run(Write::new(place, vec![1; len]))?;
        port.run(Write::new(place, vec![1; len]))?;
        port.post_and_wait(Read::new(place, len))?
            .expect_success()?;
    }
    for context in receives {
        port.wait_for(context)?.expect_success()?;
    }
    Ok([own, others])
}

/// Each class of operations has its counter, also of operations of the peer.
fn each_class(cx: &mut Cx) -> Result {
    let (port, all) = counted(cx, Events::Comp, wait::Object::None, false)?;
    let memory = cx.memory(&port, Maker::Test, 4096)?;
    let place = cx.places(&port, &memory)?[1 - cx.me()];
    let [own, others] = act(cx, &port, place, 100)?;
    settle(&port, &all, [own, others, own, 2 * own, others, 2 * others])
}

/// A counter of bytes counts bytes.
fn bytes(cx: &mut Cx) -> Result {
    let (port, all) = counted(cx, Events::Bytes, wait::Object::None, false)?;
    let memory = cx.memory(&port, Maker::Test, 70_000)?;
    let place = cx.places(&port, &memory)?[1 - cx.me()];
    let mut sums = [0, 0];
    for len in [1, 300, 9000, 65_000] {
        let counts = act(cx, &port, place, len)?;
        for (sum, count) in sums.iter_mut().zip(counts) {
            *sum += count * len as u64;
        }
        cx.barrier()?;
    }
    let [own, others] = sums;
    settle(&port, &all, [own, others, own, 2 * own, others, 2 * others])
}

/// Memory of this process with counters of its own, and where the other's is.
struct Watched {
    read: Arc<dyn Counter>,
    written: Arc<dyn Counter>,
    place: RemoteAddr,
}

impl Watched {
    fn numbers(&self) -> [u64; 2] {
        [self.read.read(), self.written.read()]
    }
}

/// Two regions of either kind, each with its counters.
fn watched(cx: &mut Cx, port: &TestEndpoint) -> Result<Vec<Watched>> {
    let mut all = Vec::new();
    for maker in [Maker::Test, Maker::Domain, Maker::Test, Maker::Domain] {
        let memory = cx.memory(port, maker, 20_000)?;
        let open = || port.domain.cntr(&cntr::Attr::default());
        let (read, written) = (open()?, open()?);
        let place = cx.places(port, &memory)?[1 - cx.me()];
        all.push((
            memory,
            Watched {
                read,
                written,
                place,
            },
        ));
    }
    for (memory, own) in &all {
        memory.bind_counter(&own.read, MrAccess::REMOTE_READ)?;
        memory.bind_counter(&own.written, MrAccess::REMOTE_WRITE)?;
    }
    cx.barrier()?;
    Ok(all.into_iter().map(|(_, own)| own).collect())
}

/// Waits for these numbers of reads and writes of each region, and makes sure that they stay. Nothing
/// is read meanwhile but counters of regions.
fn settle_watched(port: &TestEndpoint, all: &[Watched], expected: &[[u64; 2]]) -> Result {
    let numbers = || -> Vec<_> { all.iter().map(Watched::numbers).collect() };
    let _ = until("the numbers of all regions", || {
        Ok((numbers() == expected).then_some(()))
    });
    port.settle()?;
    same("reads and writes of each region", &numbers()[..], expected)
}

/// Each region counts what the peer does to it, and nothing else.
fn regions(cx: &mut Cx) -> Result {
    let port = cx.port()?;
    let all = watched(cx, &port)?;
    let factor = |process: usize| process as u64 + 1;
    for (turn, own) in (1..).zip(&all) {
        for len in [1, 100, 9000] {
            for _ in 0..turn * factor(cx.me()) {
                port.run(Write::new(own.place.at(5), vec![1; len]))?;
            }
            port.run(Write::new(own.place, vec![1; 8]).data(7))?;
            for _ in 0..factor(cx.me()) {
                port.post_and_wait(Read::new(own.place.at(3), len))?
                    .expect_success()?;
            }
        }
    }
    let others = factor(1 - cx.me());
    let expected = (1..=4).map(|turn| [3 * others, 3 * (turn * others + 1)]);
    let expected: Vec<_> = expected.collect();
    settle_watched(&port, &all, &expected)?;
    cx.barrier()?;
    while port.poll()?.is_some() {}
    Ok(())
}

/// To fetch is to read for a region's counters, and to change is to write: some atomics do both.
fn atomics_of_regions(cx: &mut Cx) -> Result {
    let port = cx.port()?;
    let all = watched(cx, &port)?;
    for (turn, own) in (1..).zip(&all) {
        let atomic = |family, op| {
            Atomic::new(
                family,
                Datatype::Uint64,
                op,
                own.place,
                vec![1; 8],
                Vec::new(),
            )
        };
        for _ in 0..turn {
            port.run(atomic(Family::Base, Op::Sum))?;
        }
        port.run(atomic(Family::Fetch, Op::Sum))?;
        port.run(atomic(Family::Fetch, Op::AtomicRead))?;
        port.run(atomic(Family::Fetch, Op::AtomicRead))?;
    }
    let expected: Vec<_> = (1..=4).map(|turn| [3, turn + 1]).collect();
    settle_watched(&port, &all, &expected)?;
    cx.barrier()
}

/// What fails is counted apart, one by one.
fn errors_apart(cx: &mut Cx) -> Result {
    let (port, all) = counted(cx, Events::Comp, wait::Object::None, false)?;
    let memory = cx.memory(&port, Maker::Test, 64)?;
    let place = cx.places(&port, &memory)?[1 - cx.me()];
    if cx.me() == 0 {
        port.run(Tx::msg(port.peer(), vec![1; 64]))?;
        port.run(Tx::msg(port.peer(), vec![1; 64]))?;
        for _ in 0..3 {
            let done = port.post_and_wait(Write::new(place.at(64), vec![1; 8]))?;
            done.expect_failure("a write behind the region", Errno::Fault)?;
        }
        let errors = || (all.write.read_err(), all.send.read_err(), all.write.read());
        let _ = until("the errors", || Ok((errors().0 == 3).then_some(())));
        same("failed writes, failed sends, writes", errors(), (3, 0, 0))
    } else {
        port.post_and_wait(Rx::msg(10))?
            .expect_failure("a receive that is too short", Errno::Trunc)?;
        port.post_and_wait(Rx::msg(64))?.expect_success()?;
        let errors = || (all.recv.read_err(), all.recv.read(), all.send.read_err());
        let _ = until("the error", || Ok((errors().0 == 1).then_some(())));
        same(
            "failed receives, receives, failed sends",
            errors(),
            (1, 1, 0),
        )
    }
}

/// Counters count what no queue reports, and reading them is all that it takes.
fn without_reports(cx: &mut Cx) -> Result {
    let (port, all) = counted(cx, Events::Comp, wait::Object::None, true)?;
    let count = cx.scale(50, 1000);
    if cx.me() == 0 {
        cx.barrier()?;
        for _ in 0..count {
            port.post(Tx::msg(port.peer(), vec![1; 32]))?;
        }
        until("all sends", || {
            Ok((all.send.read() == count as u64).then_some(()))
        })?;
    } else {
        for _ in 0..count {
            port.post(Rx::msg(32))?;
        }
        cx.barrier()?;
        until("all receives", || {
            Ok((all.recv.read() == count as u64).then_some(()))
        })?;
    }
    port.settle()?;
    holds("no completion is reported", port.poll()?.is_none())?;
    port.forget_outstanding();
    Ok(())
}

/// Both numbers are set and added to.
fn arithmetic(cx: &mut Cx) -> Result {
    let port = cx.port()?;
    let counter = port.domain.cntr(&cntr::Attr::default())?;
    let numbers = || (counter.read(), counter.read_err());
    same("a new counter", numbers(), (0, 0))?;
    counter.add(5);
    counter.add_err(2);
    same("after additions", numbers(), (5, 2))?;
    counter.set(100);
    counter.set_err(50);
    same("after they were set", numbers(), (100, 50))?;
    counter.set(u64::MAX / 2);
    counter.add(1);
    same("large numbers", counter.read(), u64::MAX / 2 + 1)
}

/// A wait ends with the number, with an error, or with the time.
fn waits(cx: &mut Cx) -> Result {
    let (port, all) = counted(cx, Events::Comp, wait::Object::Unspec, false)?;
    let time = Duration::from_millis(30);
    let early = all.recv.wait(1_000_000, Some(time));
    same("a wait for what does not come", early, Err(Errno::TimedOut))?;
    for round in 1..=cx.scale(20, 200) as u64 {
        if cx.me() == 0 {
            port.run(Tx::msg(port.peer(), vec![1; 16]))?;
            let waited = all.send.wait(round, Some(limit()));
            same("a wait for a send", waited, Ok(()))?;
        } else {
            let receive = port.post(Rx::msg(16))?;
            let waited = all.recv.wait(round, Some(limit()));
            same("a wait for a receive", waited, Ok(()))?;
            holds("the number is there", all.recv.read() >= round)?;
            port.wait_for(receive)?.expect_success()?;
        }
    }
    all.recv.add_err(1);
    Ok(())
}
