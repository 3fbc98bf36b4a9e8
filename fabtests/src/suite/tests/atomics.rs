//! Atomics, fi_atomic(3), against an oracle that tells each operation from the others and from
//! nothing.
//!
//! The oracle computes with the machine's own numbers, so it covers the types that have such; the
//! others are queried, and carried out where a plain store or swap shows what happened.

use std::time::Instant;

use selvedge::atomic::{Datatype, Family, Op};
use selvedge::{Caps, Errno, MsgOrder};
use selvedge_testkit::atomics::{Oracle, families, oracle};

use crate::suite::cx::check::{bytes as bytes_are, holds, same};
use crate::suite::cx::timeout::{limit, until};
use crate::suite::cx::{
    Atomic, Cx, Maker, Memory, POLLED, Random, RemoteAddr, Result, Test, TestEndpoint,
};
use crate::suite::flaw::Flaw;

tests! {
    every_operation(ATOMIC) catches [
        NoAtomics, OtherAtomics, OtherAtomicsOfOne, FetchesNothing, TwiceAtomics
    ];
    queries(ATOMIC) catches [DeniesAtomics] .faces(POLLED);
    sums_of_many(ATOMIC) catches [TwiceAtomics, NoAtomics] .processes(4);
    every_fetch_is_another_one(ATOMIC) catches [NoAtomics, FetchesNothing] .processes(4);
    swaps_lose_nothing(ATOMIC) catches [NoAtomics, OtherAtomics] .processes(3);
    violations(ATOMIC) catches [HidesErrors, WidensRegions, GrantsAll];
}

const ATOMIC: Caps = Caps::ATOMIC.union(Caps::MSG);

/// Elements that tell operations apart: small numbers of both signs, zeros, and all bits.
fn operands(random: &mut Random, datatype: Datatype, count: usize) -> Vec<u8> {
    let element = |random: &mut Random| match datatype {
        Datatype::Float => (random.below(7) as f32 - 3.0).to_ne_bytes().to_vec(),
        Datatype::Double => (random.below(7) as f64 - 3.0).to_ne_bytes().to_vec(),
        _ => {
            let wide = i128::from(random.word().cast_signed()) << 32 ^ i128::from(random.word());
            let number = match random.below(3) {
                0 => i128::from(random.below(3)) - 1,
                1 => i128::from(random.below(200)) - 100,
                _ => wide,
            };
            number.to_le_bytes()[..datatype.size()].to_vec()
        }
    };
    (0..count).flat_map(|_| element(random)).collect()
}

/// Memory of the second process, as both know it.
fn target(
    cx: &mut Cx,
    port: &TestEndpoint,
    maker: Maker,
    len: usize,
) -> Result<(Memory, RemoteAddr)> {
    let memory = cx.memory(port, maker, len)?;
    let place = cx.places(port, &memory)?[cx.count() - 1];
    Ok((memory, place))
}

/// Every operation on every type, on one element and on several.
fn every_operation(cx: &mut Cx) -> Result {
    let port = cx.port()?;
    for maker in [Maker::Test, Maker::Domain] {
        let (memory, place) = target(cx, &port, maker, 512)?;
        if cx.me() == 0 {
            let mut random = cx.random();
            for &datatype in Datatype::ALL {
                let Some(oracle) = oracle(datatype) else {
                    continue;
                };
                for &op in Op::ALL {
                    for &family in families(op) {
                        try_out(
                            cx,
                            &port,
                            place,
                            &mut random,
                            (datatype, oracle),
                            (op, family),
                        )?;
                    }
                }
            }
        }
        cx.barrier()?;
        memory.assert_canaries()?;
    }
    Ok(())
}

fn try_out(
    cx: &Cx,
    port: &TestEndpoint,
    place: RemoteAddr,
    random: &mut Random,
    (datatype, oracle): (Datatype, Oracle),
    (op, family): (Op, Family),
) -> Result {
    let Ok(attr) = port.domain.query_atomic(family, datatype, op) else {
        return Ok(());
    };
    same("size of an element", attr.size, datatype.size())?;
    // Several elements at once, each with operands of its own; and one, which providers may carry
    // out in a shorter way.
    for count in [attr.count.min(12), 1] {
        for _ in 0..cx.scale(1, 20) {
            let old = operands(random, datatype, count);
            let operand = operands(random, datatype, count);
            let mut compare = operands(random, datatype, count);
            if random.flip() {
                compare.clone_from(&old);
            }
            let what = format!("{op:?} ({family:?}) on {count} of {datatype:?}");
            store(port, place, datatype, &old)?;
            let expected = each(oracle, op, datatype, [&old, &operand, &compare]);
            let atomic = Atomic::new(family, datatype, op, place, operand, compare);
            let done = port.post_and_wait(atomic)?.expect_success()?;
            if family != Family::Base {
                bytes_are(format!("what {what} fetched"), &done.bytes, &old)?;
            }
            let now = settled(port, place, datatype, old.len(), &expected)?;
            bytes_are(format!("what {what} made of {old:02x?}"), &now, &expected)?;
        }
    }
    Ok(())
}

fn each(
    oracle: Oracle,
    op: Op,
    datatype: Datatype,
    [old, operand, compare]: [&[u8]; 3],
) -> Vec<u8> {
    let size = datatype.size();
    let elements = (0..old.len() / size).map(|element| {
        let of = |bytes: &[u8]| bytes[element * size..][..size].to_vec();
        oracle(op, &of(old), &of(operand), &of(compare)).unwrap_or_else(|| of(old))
    });
    elements.flatten().collect()
}

/// Puts elements into the target, and waits until they are there.
fn store(port: &TestEndpoint, place: RemoteAddr, datatype: Datatype, bytes: &[u8]) -> Result {
    let write = Atomic::new(
        Family::Base,
        datatype,
        Op::AtomicWrite,
        place,
        bytes.to_vec(),
        Vec::new(),
    );
    port.post_and_wait(write)?.expect_success()?;
    settled(port, place, datatype, bytes.len(), bytes).map(drop)
}

fn fetch(
    port: &TestEndpoint,
    place: RemoteAddr,
    datatype: Datatype,
    len: usize,
) -> Result<Vec<u8>> {
    let read = Atomic::new(
        Family::Fetch,
        datatype,
        Op::AtomicRead,
        place,
        vec![0; len],
        Vec::new(),
    );
    Ok(port.post_and_wait(read)?.expect_success()?.bytes)
}

/// What the target holds: as expected, or something else for good. Without a declared order a read
/// may overtake an atomic that has left.
fn settled(
    port: &TestEndpoint,
    place: RemoteAddr,
    datatype: Datatype,
    len: usize,
    expected: &[u8],
) -> Result<Vec<u8>> {
    let is_ordered = port.info.tx_attr.msg_order.contains(MsgOrder::ATOMIC_RAW);
    if is_ordered {
        return fetch(port, place, datatype, len);
    }
    last_of(port, place, datatype, len, expected)
}

/// What the target holds when everybody's atomics have arrived, or when they have had their time.
fn last_of(
    port: &TestEndpoint,
    place: RemoteAddr,
    datatype: Datatype,
    len: usize,
    expected: &[u8],
) -> Result<Vec<u8>> {
    let start = Instant::now();
    loop {
        let now = fetch(port, place, datatype, len)?;
        if now == expected || start.elapsed() > limit() / 4 {
            return Ok(now);
        }
        port.progress()?;
    }
}

/// What a query says is what a call does, for every operation and type there is.
fn queries(cx: &mut Cx) -> Result {
    let port = cx.port()?;
    let (_memory, place) = target(cx, &port, Maker::Test, 512)?;
    let mut carried = 0;
    if cx.me() == 0 {
        for &datatype in Datatype::ALL {
            for &op in Op::ALL {
                for &family in families(op) {
                    let query = port.domain.query_atomic(family, datatype, op);
                    let what = format!("{op:?} ({family:?}) on {datatype:?}");
                    let bytes = vec![0; datatype.size()];
                    let posted = port.try_post(Atomic::new(
                        family,
                        datatype,
                        op,
                        place,
                        bytes.clone(),
                        bytes,
                    ));
                    same(
                        format!("{what}: query and call agree"),
                        posted.is_ok(),
                        query.is_ok(),
                    )?;
                    if let Ok(context) = posted {
                        port.wait_for(context)?.expect_success()?;
                        carried += 1;
                    } else {
                        same(what, query.err(), Some(Errno::OpNotSupp))?;
                    }
                }
            }
        }
        holds("a provider with FI_ATOMIC carries some", carried > 0)?;
        let sum = port
            .domain
            .query_atomic(Family::Base, Datatype::Uint64, Op::Sum);
        holds("a sum of 64-bit words is carried", sum.is_ok())?;
    }
    Ok(())
}

fn word(family: Family, op: Op, target: RemoteAddr, operand: u64, compare: u64) -> Atomic {
    let bytes = |word: u64| word.to_ne_bytes().to_vec();
    Atomic::new(
        family,
        Datatype::Uint64,
        op,
        target,
        bytes(operand),
        bytes(compare),
    )
}

fn fetched(port: &TestEndpoint, atomic: Atomic) -> Result<u64> {
    let done = port.post_and_wait(atomic)?.expect_success()?;
    Ok(done.bytes.try_into().map_or(u64::MAX, u64::from_ne_bytes))
}

/// Several processes add to one word at the same time, in every way.
fn sums_of_many(cx: &mut Cx) -> Result {
    let port = cx.port()?;
    for maker in [Maker::Test, Maker::Domain] {
        let (memory, place) = target(cx, &port, maker, 64)?;
        memory.put(0, &[0; 64]);
        cx.barrier()?;
        let rounds = cx.scale(200, 5000) as u64;
        for round in 0..rounds {
            let mut add = word(Family::Base, Op::Sum, place, 1, 0);
            add.is_injected = round % 3 == 0;
            if round % 3 == 1 {
                add = word(Family::Fetch, Op::Sum, place, 1, 0);
            }
            port.run(add)?;
        }
        cx.barrier()?;
        let expected = (rounds * cx.count() as u64).to_ne_bytes();
        let now = last_of(&port, place, Datatype::Uint64, 8, &expected)?;
        bytes_are("the sum", &now, &expected)?;
        cx.barrier()?;
        let rest = memory.get(8, 56);
        bytes_are("the words beside it", &rest, &[0; 56])?;
    }
    Ok(())
}

/// Everybody who takes a number gets one that nobody else has.
fn every_fetch_is_another_one(cx: &mut Cx) -> Result {
    let port = cx.port()?;
    for maker in [Maker::Test, Maker::Domain] {
        let (memory, place) = target(cx, &port, maker, 8)?;
        memory.put(0, &[0; 8]);
        cx.barrier()?;
        let rounds = cx.scale(150, 3000);
        let take = |_| fetched(&port, word(Family::Fetch, Op::Sum, place, 1, 0));
        let own = (0..rounds).map(take).collect::<Result<Vec<_>>>()?;
        let is_rising = own.is_sorted_by(|a, b| a < b);
        holds("the numbers of one process rise", is_rising)?;
        let all: Vec<Vec<u64>> = cx.tell(&own)?;
        let mut all = all.concat();
        all.sort_unstable();
        let expected = (0..(rounds * cx.count()) as u64).collect::<Vec<_>>();
        holds("every number is taken once", all == expected)?;
        cx.barrier()?;
    }
    Ok(())
}

/// A lock of compare-and-swap keeps additions apart that are no atomics.
fn swaps_lose_nothing(cx: &mut Cx) -> Result {
    let port = cx.port()?;
    let (memory, place) = target(cx, &port, Maker::Test, 16)?;
    memory.put(0, &[0; 16]);
    cx.barrier()?;
    let rounds = cx.scale(40, 500);
    let own = cx.me() as u64 + 1;
    for _ in 0..rounds {
        until("the lock", || {
            let seen = fetched(&port, word(Family::Compare, Op::Cswap, place, own, 0))?;
            Ok((seen == 0).then_some(()))
        })?;
        let sum = place.at(8);
        let seen = fetched(&port, word(Family::Fetch, Op::AtomicRead, sum, 0, 0))?;
        let next = (seen + 1).to_ne_bytes();
        store(&port, sum, Datatype::Uint64, &next)?;
        let held = fetched(&port, word(Family::Compare, Op::Cswap, place, 0, own))?;
        same("who has the lock", held, own)?;
    }
    cx.barrier()?;
    let total = fetched(
        &port,
        word(Family::Fetch, Op::AtomicRead, place.at(8), 0, 0),
    )?;
    same("the sum", total, (rounds * cx.count()) as u64)
}

/// Places and keys are looked at as for any access.
fn violations(cx: &mut Cx) -> Result {
    let port = cx.port()?;
    let (memory, place) = target(cx, &port, Maker::Test, 64)?;
    let closed = cx.memory_with(&port, Maker::Test, 64, selvedge::MrAccess::REMOTE_READ)?;
    let closed_place = cx.places(&port, &closed)?[cx.count() - 1];
    if cx.me() == 0 {
        let wrong = RemoteAddr {
            key: place.key ^ 0xffff,
            ..place
        };
        for (what, place) in [
            ("an atomic behind the region", place.at(64)),
            ("an atomic that is half outside", place.at(60)),
            ("an atomic by a wrong key", wrong),
            ("an atomic without the right to write", closed_place),
        ] {
            for family in [Family::Base, Family::Fetch] {
                let done = port.post_and_wait(word(family, Op::Sum, place, 1, 0))?;
                holds(format!("{what} fails"), done.error.is_some())?;
            }
        }
    }
    cx.barrier()?;
    let background = crate::suite::cx::memory::background(0, 64);
    memory.verify("memory after violations", &background)?;
    closed.verify("memory without the right", &background)
}
