//! Counters, fi_cntr(3).

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use selvedge::atomic::{Datatype, Family, Op};
use selvedge::cntr::{self, Events};
use selvedge::{Bindings, Caps, Counter, Domain, Errno, Hints, MrAccess, OpFlags, wait};

use crate::suite::context::check::{holds, same};
use crate::suite::context::timeout::{limit, until};
use crate::suite::context::{
    Atomic, Maker, Memory, Post, RAW, Read, RemoteAddr, Result, Rx, Setup, Test, TestContext,
    TestEndpoint, Tx, Write,
};
use crate::suite::defect::Defect;

tests! {
    each_class(EVENTS) catches [CountsTwice, WrongCounter] .apis(RAW);
    errors_apart(RMA) catches [CountsNoErrors] .apis(RAW);
    bytes(EVENTS) catches [CountsNoBytes, CountsTwice] .apis(RAW);
    regions(EVENTS) catches [CountsTwice, WrongCounter, MixesRegions] .apis(RAW);
    atomics_of_regions(EVENTS.union(Caps::ATOMIC)) catches [
        CountsTwice, WrongCounter, MixesRegions
    ] .apis(RAW);
    without_reports(MSG) catches [ReportsAll, WrongCounter] .apis(RAW);
    arithmetic(MSG) catches [CountsTwice, CountsNoErrors] .apis(RAW).processes(1);
    delivered_injects(EVENTS.union(Caps::ATOMIC)) catches [DeliversEarly] .apis(RAW);
    waits(MSG) catches [NoCounterWait] .apis(RAW);
}

const MSG: Caps = Caps::MSG;
const RMA: Caps = Caps::MSG.union(Caps::RMA);
const EVENTS: Caps = RMA.union(Caps::RMA_EVENT);

/// The counters of an endpoint.
#[derive(Clone)]
struct EndpointCounters {
    send: Arc<dyn Counter>,
    recv: Arc<dyn Counter>,
    read: Arc<dyn Counter>,
    write: Arc<dyn Counter>,
    remote_read: Arc<dyn Counter>,
    remote_write: Arc<dyn Counter>,
}

impl EndpointCounters {
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

    fn values(&self) -> [u64; 6] {
        let counters = [
            &self.send,
            &self.recv,
            &self.read,
            &self.write,
            &self.remote_read,
            &self.remote_write,
        ];
        counters.map(|counter| counter.read())
    }
}

/// If delivery completion is an endpoint's default, an inject is counted when the message has
/// arrived (fi_endpoint(3), "op_flags"), which needs progress of the target.
fn delivered_injects(ctx: &mut TestContext) -> Result {
    let delivered: fn(Hints) -> Hints =
        |hints| hints.edit(|info| info.tx_attr.op_flags = OpFlags::DELIVERY_COMPLETE);
    let attr = cntr::Attr::default();
    let (endpoint, counters) = open_counted_with(ctx, &attr, false, Some(delivered))?;
    let memory = ctx.memory(&endpoint, Maker::Test, 64)?;
    let remote = ctx.exchange_addresses(&endpoint, &memory)?[1 - ctx.me()];
    // The connection exists before the target stops making progress.
    endpoint
        .post_and_wait(Write::new(remote, vec![9; 16]))?
        .expect_success()?;
    ctx.barrier()?;
    match ctx.me() {
        0 => run_injects(ctx, &endpoint, &counters, remote),
        _ => receive_injects(ctx, &endpoint, &memory),
    }
}

/// Process 0's part of [`delivered_injects`].
fn run_injects(
    ctx: &mut TestContext,
    endpoint: &TestEndpoint,
    counters: &EndpointCounters,
    remote: RemoteAddr,
) -> Result {
    let posts: [Post; 3] = [
        Write::new(remote, ctx.payload(1, 1, 16)).injected().into(),
        injected_sum(remote.at(32)).into(),
        Tx::msg(endpoint.peer(), ctx.payload(1, 2, 16))
            .injected()
            .into(),
    ];
    for post in posts {
        ctx.barrier()?;
        let [sends, _, _, writes, ..] = counters.values();
        let counted_since = || {
            let [more_sends, _, _, more_writes, ..] = counters.values();
            more_sends + more_writes - sends - writes
        };
        endpoint.run(post)?;
        endpoint.settle()?;
        let message = "counted after an inject whose target makes no progress";
        same(message, counted_since(), 0)?;
        ctx.barrier()?;
        until("the inject", || Ok((counted_since() > 0).then_some(())))?;
    }
    ctx.barrier()
}

/// Process 1's part of [`delivered_injects`]: the process makes progress only after every second
/// barrier.
fn receive_injects(ctx: &mut TestContext, endpoint: &TestEndpoint, memory: &Memory) -> Result {
    let await_change = |operation: &'static str, has_changed: &dyn Fn() -> bool| {
        until(operation, || {
            endpoint.progress()?;
            Ok(has_changed().then_some(()))
        })
    };
    let word = memory.get(32, 8);
    for number in 0..3 {
        ctx.blocking_barrier()?;
        ctx.blocking_barrier()?;
        match number {
            0 => await_change("the write", &|| memory.get(0, 16) != [9; 16])?,
            1 => await_change("the atomic", &|| memory.get(32, 8) != word)?,
            _ => drop(endpoint.post_and_wait(Rx::msg(16))?.expect_success()?),
        }
        endpoint.settle()?;
    }
    ctx.barrier()
}

/// Makes an injected atomic that adds one to a word.
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

/// Opens an endpoint with counters of these events.
fn open_counted(
    ctx: &mut TestContext,
    events: Events,
    wait: wait::Object,
    is_selective: bool,
) -> Result<(TestEndpoint, EndpointCounters)> {
    let mut attr = cntr::Attr::default();
    (attr.events, attr.wait_obj) = (events, wait);
    open_counted_with(ctx, &attr, is_selective, None)
}

/// As [`open_counted`], with additional hints.
fn open_counted_with(
    ctx: &mut TestContext,
    attr: &cntr::Attr,
    is_selective: bool,
    hints: Option<fn(Hints) -> Hints>,
) -> Result<(TestEndpoint, EndpointCounters)> {
    let counters = RefCell::new(None);
    let has_remote = ctx.test.caps.contains(Caps::RMA_EVENT);
    let bind = |domain: &dyn Domain, bind: &mut Bindings| {
        let opened = EndpointCounters::open(domain, attr)?;
        opened.bind(bind, has_remote);
        (bind.tx_selective, bind.rx_selective) = (is_selective, is_selective);
        *counters.borrow_mut() = Some(opened);
        Ok(())
    };
    let setup = Setup {
        bind: Some(&bind),
        hints,
        ..Setup::default()
    };
    let endpoint = ctx.open_endpoint_with(&setup)?;
    let counters = counters.take().expect("the endpoint was bound");
    Ok((endpoint, counters))
}

/// Waits until the counters have these values, and checks that they keep them.
fn settle(endpoint: &TestEndpoint, counters: &EndpointCounters, expected: [u64; 6]) -> Result {
    let _ = until("the numbers", || {
        endpoint.progress()?;
        Ok((counters.values() == expected).then_some(()))
    });
    endpoint.settle()?;
    same(
        "send, recv, read, write, remote read, remote write",
        counters.values(),
        expected,
    )
}

/// Runs operations in both processes, twice as many in the first process. Returns the numbers of
/// repetitions of this process and of its peer.
fn run_operations(
    ctx: &mut TestContext,
    endpoint: &TestEndpoint,
    remote: RemoteAddr,
    len: usize,
) -> Result<[u64; 2]> {
    let repetitions = |process: usize| if process == 0 { 6 } else { 3 };
    let (local, peer) = (repetitions(ctx.me()), repetitions(1 - ctx.me()));
    let mut receives = Vec::new();
    for _ in 0..peer {
        receives.push(endpoint.post(Rx::msg(len))?);
    }
    ctx.barrier()?;
    for _ in 0..local {
        endpoint.run(Tx::msg(endpoint.peer(), vec![1; len]))?;
        endpoint.run(Write::new(remote, vec![1; len]))?;
        endpoint.run(Write::new(remote, vec![1; len]))?;
        endpoint
            .post_and_wait(Read::new(remote, len))?
            .expect_success()?;
    }
    for context in receives {
        endpoint.wait_for(context)?.expect_success()?;
    }
    Ok([local, peer])
}

/// Each class of operations has its counter, including the peer's operations.
fn each_class(ctx: &mut TestContext) -> Result {
    let (endpoint, counters) = open_counted(ctx, Events::Comp, wait::Object::None, false)?;
    let memory = ctx.memory(&endpoint, Maker::Test, 4096)?;
    let remote = ctx.exchange_addresses(&endpoint, &memory)?[1 - ctx.me()];
    let [local, peer] = run_operations(ctx, &endpoint, remote, 100)?;
    settle(
        &endpoint,
        &counters,
        [local, peer, local, 2 * local, peer, 2 * peer],
    )
}

/// A counter of bytes counts bytes.
fn bytes(ctx: &mut TestContext) -> Result {
    let (endpoint, counters) = open_counted(ctx, Events::Bytes, wait::Object::None, false)?;
    let memory = ctx.memory(&endpoint, Maker::Test, 70_000)?;
    let remote = ctx.exchange_addresses(&endpoint, &memory)?[1 - ctx.me()];
    let mut sums = [0, 0];
    for len in [1, 300, 9000, 65_000] {
        let counts = run_operations(ctx, &endpoint, remote, len)?;
        for (sum, count) in sums.iter_mut().zip(counts) {
            *sum += count * len as u64;
        }
        ctx.barrier()?;
    }
    let [local, peer] = sums;
    settle(
        &endpoint,
        &counters,
        [local, peer, local, 2 * local, peer, 2 * peer],
    )
}

/// Memory of this process with its own counters, and the address of the other process's memory.
struct CountedRegion {
    read: Arc<dyn Counter>,
    written: Arc<dyn Counter>,
    remote: RemoteAddr,
}

impl CountedRegion {
    fn values(&self) -> [u64; 2] {
        [self.read.read(), self.written.read()]
    }
}

/// Registers two regions of either kind, each with its own counters.
fn counted_regions(ctx: &mut TestContext, endpoint: &TestEndpoint) -> Result<Vec<CountedRegion>> {
    let mut counters = Vec::new();
    for maker in [Maker::Test, Maker::Domain, Maker::Test, Maker::Domain] {
        let memory = ctx.memory(endpoint, maker, 20_000)?;
        let open = || endpoint.domain.cntr(&cntr::Attr::default());
        let (read, written) = (open()?, open()?);
        let remote = ctx.exchange_addresses(endpoint, &memory)?[1 - ctx.me()];
        counters.push((
            memory,
            CountedRegion {
                read,
                written,
                remote,
            },
        ));
    }
    for (memory, region) in &counters {
        memory.bind_counter(&region.read, MrAccess::REMOTE_READ)?;
        memory.bind_counter(&region.written, MrAccess::REMOTE_WRITE)?;
    }
    ctx.barrier()?;
    Ok(counters.into_iter().map(|(_, region)| region).collect())
}

/// Waits until each region has these counts of reads and writes, and checks that they stay. Until
/// then, only the regions' counters are read.
fn settle_regions(
    endpoint: &TestEndpoint,
    counters: &[CountedRegion],
    expected: &[[u64; 2]],
) -> Result {
    let values = || -> Vec<_> { counters.iter().map(CountedRegion::values).collect() };
    let _ = until("the numbers of all regions", || {
        Ok((values() == expected).then_some(()))
    });
    endpoint.settle()?;
    same("reads and writes of each region", &values()[..], expected)
}

/// The counters of a region count the peer's accesses to that region, and no other operations.
fn regions(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    let counters = counted_regions(ctx, &endpoint)?;
    let factor = |process: usize| process as u64 + 1;
    for (turn, region) in (1..).zip(&counters) {
        for len in [1, 100, 9000] {
            for _ in 0..turn * factor(ctx.me()) {
                endpoint.run(Write::new(region.remote.at(5), vec![1; len]))?;
            }
            endpoint.run(Write::new(region.remote, vec![1; 8]).data(7))?;
            for _ in 0..factor(ctx.me()) {
                endpoint
                    .post_and_wait(Read::new(region.remote.at(3), len))?
                    .expect_success()?;
            }
        }
    }
    let peer_factor = factor(1 - ctx.me());
    let expected = (1..=4).map(|turn| [3 * peer_factor, 3 * (turn * peer_factor + 1)]);
    let expected: Vec<_> = expected.collect();
    settle_regions(&endpoint, &counters, &expected)?;
    ctx.barrier()?;
    while endpoint.poll()?.is_some() {}
    Ok(())
}

/// For a region's counters, fetching is reading and changing is writing; some atomics do both.
fn atomics_of_regions(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    let counters = counted_regions(ctx, &endpoint)?;
    for (turn, region) in (1..).zip(&counters) {
        let atomic = |family, op| {
            Atomic::new(
                family,
                Datatype::Uint64,
                op,
                region.remote,
                vec![1; 8],
                Vec::new(),
            )
        };
        for _ in 0..turn {
            endpoint.run(atomic(Family::Base, Op::Sum))?;
        }
        endpoint.run(atomic(Family::Fetch, Op::Sum))?;
        endpoint.run(atomic(Family::Fetch, Op::AtomicRead))?;
        endpoint.run(atomic(Family::Fetch, Op::AtomicRead))?;
    }
    let expected: Vec<_> = (1..=4).map(|turn| [3, turn + 1]).collect();
    settle_regions(&endpoint, &counters, &expected)?;
    ctx.barrier()
}

/// Failures are counted separately, one by one.
fn errors_apart(ctx: &mut TestContext) -> Result {
    let (endpoint, counters) = open_counted(ctx, Events::Comp, wait::Object::None, false)?;
    let memory = ctx.memory(&endpoint, Maker::Test, 64)?;
    let remote = ctx.exchange_addresses(&endpoint, &memory)?[1 - ctx.me()];
    if ctx.me() == 0 {
        endpoint.run(Tx::msg(endpoint.peer(), vec![1; 64]))?;
        endpoint.run(Tx::msg(endpoint.peer(), vec![1; 64]))?;
        for _ in 0..3 {
            let completion = endpoint.post_and_wait(Write::new(remote.at(64), vec![1; 8]))?;
            completion.expect_failure("a write after the end of the region", Errno::Fault)?;
        }
        let errors = || {
            (
                counters.write.read_err(),
                counters.send.read_err(),
                counters.write.read(),
            )
        };
        let _ = until("the errors", || Ok((errors().0 == 3).then_some(())));
        same("failed writes, failed sends, writes", errors(), (3, 0, 0))
    } else {
        endpoint
            .post_and_wait(Rx::msg(10))?
            .expect_failure("a receive that is too short", Errno::Trunc)?;
        endpoint.post_and_wait(Rx::msg(64))?.expect_success()?;
        let errors = || {
            (
                counters.recv.read_err(),
                counters.recv.read(),
                counters.send.read_err(),
            )
        };
        let _ = until("the error", || Ok((errors().0 == 1).then_some(())));
        same(
            "failed receives, receives, failed sends",
            errors(),
            (1, 1, 0),
        )
    }
}

/// Counters count operations without a completion, and reading the counters makes progress.
fn without_reports(ctx: &mut TestContext) -> Result {
    let (endpoint, counters) = open_counted(ctx, Events::Comp, wait::Object::None, true)?;
    let count = ctx.scale(50, 1000);
    if ctx.me() == 0 {
        ctx.barrier()?;
        for _ in 0..count {
            endpoint.post(Tx::msg(endpoint.peer(), vec![1; 32]))?;
        }
        until("all sends", || {
            Ok((counters.send.read() == count as u64).then_some(()))
        })?;
    } else {
        for _ in 0..count {
            endpoint.post(Rx::msg(32))?;
        }
        ctx.barrier()?;
        until("all receives", || {
            Ok((counters.recv.read() == count as u64).then_some(()))
        })?;
    }
    endpoint.settle()?;
    holds("no completion is reported", endpoint.poll()?.is_none())?;
    endpoint.forget_outstanding();
    Ok(())
}

/// The value and the error value of a counter can be set and increased.
fn arithmetic(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    let counter = endpoint.domain.cntr(&cntr::Attr::default())?;
    let values = || (counter.read(), counter.read_err());
    same("a new counter", values(), (0, 0))?;
    counter.add(5);
    counter.add_err(2);
    same("after additions", values(), (5, 2))?;
    counter.set(100);
    counter.set_err(50);
    same("after they were set", values(), (100, 50))?;
    counter.set(u64::MAX / 2);
    counter.add(1);
    same("large numbers", counter.read(), u64::MAX / 2 + 1)
}

/// A wait ends with the threshold, with an error, or with its timeout.
fn waits(ctx: &mut TestContext) -> Result {
    let (endpoint, counters) = open_counted(ctx, Events::Comp, wait::Object::Unspec, false)?;
    let time = Duration::from_millis(30);
    let result = counters.recv.wait(1_000_000, Some(time));
    same(
        "a wait for an unreachable threshold",
        result,
        Err(Errno::TimedOut),
    )?;
    for round in 1..=ctx.scale(20, 200) as u64 {
        if ctx.me() == 0 {
            endpoint.run(Tx::msg(endpoint.peer(), vec![1; 16]))?;
            let result = counters.send.wait(round, Some(limit()));
            same("a wait for a send", result, Ok(()))?;
        } else {
            let receive = endpoint.post(Rx::msg(16))?;
            let result = counters.recv.wait(round, Some(limit()));
            same("a wait for a receive", result, Ok(()))?;
            holds("the threshold is reached", counters.recv.read() >= round)?;
            endpoint.wait_for(receive)?.expect_success()?;
        }
    }
    counters.recv.add_err(1);
    Ok(())
}
