//! Atomics, fi_atomic(3), against an oracle that tells each operation from the others and from
//! nothing.
//!
//! The oracle computes with the machine's own numbers, so it covers the types that have such; the
//! others are queried, and carried out where a plain store or swap shows what happened.

use std::time::Instant;

use selvedge::atomic::{Datatype, Family, Op};
use selvedge::{Caps, Errno, MsgOrder};

use crate::suite::cx::check::{bytes as bytes_are, holds, same};
use crate::suite::cx::timeout::{limit, until};
use crate::suite::cx::{
    Atomic, Cx, Maker, Memory, POLLED, Random, RemoteAddr, Result, Test, TestEndpoint,
};
use crate::suite::flaw::Flaw;

pub(super) const TESTS: &[Test] = &[
    Test::new(
        "every_operation",
        ATOMIC,
        &[
            Flaw::NoAtomics,
            Flaw::OtherAtomics,
            Flaw::OtherAtomicsOfOne,
            Flaw::FetchesNothing,
            Flaw::TwiceAtomics,
        ],
        every_operation,
    ),
    Test::new("queries", ATOMIC, &[Flaw::DeniesAtomics], queries).faces(POLLED),
    Test::new(
        "sums_of_many",
        ATOMIC,
        &[Flaw::TwiceAtomics, Flaw::NoAtomics],
        sums_of_many,
    )
    .processes(4),
    Test::new(
        "every_fetch_is_another_one",
        ATOMIC,
        &[Flaw::NoAtomics, Flaw::FetchesNothing],
        tickets,
    )
    .processes(4),
    Test::new(
        "swaps_lose_nothing",
        ATOMIC,
        &[Flaw::NoAtomics, Flaw::OtherAtomics],
        locked_sums,
    )
    .processes(3),
    Test::new(
        "violations",
        ATOMIC,
        &[Flaw::HidesErrors, Flaw::WidensRegions, Flaw::GrantsAll],
        violations,
    ),
];

const ATOMIC: Caps = Caps::ATOMIC.union(Caps::MSG);

/// What an operation does to one element: by the old value, the operand and what is compared with.
type Oracle = fn(Op, &[u8], &[u8], &[u8]) -> Option<Vec<u8>>;

macro_rules! integers {
    ($($name:ident $kind:ty),+) => { $(
        fn $name(op: Op, old: &[u8], operand: &[u8], compare: &[u8]) -> Option<Vec<u8>> {
            let read = |bytes: &[u8]| bytes.try_into().map_or(0, <$kind>::from_ne_bytes);
            let (old, operand, compare) = (read(old), read(operand), read(compare));
            let truth = |is_so| <$kind>::from(is_so);
            let new = match op {
                Op::Min => old.min(operand),
                Op::Max => old.max(operand),
                Op::Sum => old.wrapping_add(operand),
                Op::Diff => old.wrapping_sub(operand),
                Op::Prod => old.wrapping_mul(operand),
                Op::Lor => truth(old != 0 || operand != 0),
                Op::Land => truth(old != 0 && operand != 0),
                Op::Lxor => truth((old != 0) != (operand != 0)),
                Op::Bor => old | operand,
                Op::Band => old & operand,
                Op::Bxor => old ^ operand,
                Op::AtomicRead => old,
                Op::AtomicWrite => operand,
                Op::Cswap => if compare == old { operand } else { old },
                Op::CswapNe => if compare != old { operand } else { old },
                Op::CswapLe => if compare <= old { operand } else { old },
                Op::CswapLt => if compare < old { operand } else { old },
                Op::CswapGe => if compare >= old { operand } else { old },
                Op::CswapGt => if compare > old { operand } else { old },
                Op::Mswap => (operand & compare) | (old & !compare),
            };
            Some(new.to_ne_bytes().to_vec())
        }
    )+ };
}

integers!(int8 i8, uint8 u8, int16 i16, uint16 u16, int32 i32, uint32 u32, int64 i64, uint64 u64, int128 i128, uint128 u128);

macro_rules! floats {
    ($($name:ident $kind:ty),+) => { $(
        fn $name(op: Op, old: &[u8], operand: &[u8], compare: &[u8]) -> Option<Vec<u8>> {
            let read = |bytes: &[u8]| bytes.try_into().map_or(0.0, <$kind>::from_ne_bytes);
            let (old, operand, compare) = (read(old), read(operand), read(compare));
            let truth = |is_so: bool| if is_so { 1.0 } else { 0.0 };
            let new: $kind = match op {
                Op::Min => if operand < old { operand } else { old },
                Op::Max => if operand > old { operand } else { old },
                Op::Sum => old + operand,
                Op::Diff => old - operand,
                Op::Prod => old * operand,
                Op::Lor => truth(old != 0.0 || operand != 0.0),
                Op::Land => truth(old != 0.0 && operand != 0.0),
                Op::Lxor => truth((old != 0.0) != (operand != 0.0)),
                Op::AtomicRead => old,
                Op::AtomicWrite => operand,
                Op::Cswap => if compare == old { operand } else { old },
                Op::CswapNe => if compare != old { operand } else { old },
                Op::CswapLe => if compare <= old { operand } else { old },
                Op::CswapLt => if compare < old { operand } else { old },
                Op::CswapGe => if compare >= old { operand } else { old },
                Op::CswapGt => if compare > old { operand } else { old },
                Op::Bor | Op::Band | Op::Bxor | Op::Mswap => return None,
            };
            Some(new.to_ne_bytes().to_vec())
        }
    )+ };
}

floats!(float f32, double f64);

/// What the operations do to elements of this type, where the machine has such.
fn oracle(datatype: Datatype) -> Option<Oracle> {
    Some(match datatype {
        Datatype::Int8 => int8,
        Datatype::Uint8 => uint8,
        Datatype::Int16 => int16,
        Datatype::Uint16 => uint16,
        Datatype::Int32 => int32,
        Datatype::Uint32 => uint32,
        Datatype::Int64 => int64,
        Datatype::Uint64 => uint64,
        Datatype::Int128 => int128,
        Datatype::Uint128 => uint128,
        Datatype::Float => float,
        Datatype::Double => double,
        _ => return None,
    })
}

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

/// The families that an operation belongs to.
fn families(op: Op) -> &'static [Family] {
    match op {
        Op::AtomicRead => &[Family::Fetch],
        Op::Cswap
        | Op::CswapNe
        | Op::CswapLe
        | Op::CswapLt
        | Op::CswapGe
        | Op::CswapGt
        | Op::Mswap => &[Family::Compare],
        _ => &[Family::Base, Family::Fetch],
    }
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
            let atomic = Atomic {
                family,
                datatype,
                op,
                target: place,
                operand: if op == Op::AtomicRead {
                    Vec::new()
                } else {
                    operand
                },
                compare: if family == Family::Compare {
                    compare
                } else {
                    Vec::new()
                },
                result: if family == Family::Base { 0 } else { old.len() },
                flags: None,
                is_injected: false,
            };
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
    let write = Atomic {
        family: Family::Base,
        datatype,
        op: Op::AtomicWrite,
        target: place,
        operand: bytes.to_vec(),
        compare: Vec::new(),
        result: 0,
        flags: None,
        is_injected: false,
    };
    port.post_and_wait(write)?.expect_success()?;
    settled(port, place, datatype, bytes.len(), bytes).map(drop)
}

fn fetch(
    port: &TestEndpoint,
    place: RemoteAddr,
    datatype: Datatype,
    len: usize,
) -> Result<Vec<u8>> {
    let read = Atomic {
        family: Family::Fetch,
        datatype,
        op: Op::AtomicRead,
        target: place,
        operand: Vec::new(),
        compare: Vec::new(),
        result: len,
        flags: None,
        is_injected: false,
    };
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
        port.drive()?;
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
                    let posted = port.try_post(Atomic {
                        family,
                        datatype,
                        op,
                        target: place,
                        operand: if op == Op::AtomicRead {
                            Vec::new()
                        } else {
                            bytes.clone()
                        },
                        compare: if family == Family::Compare {
                            bytes.clone()
                        } else {
                            Vec::new()
                        },
                        result: if family == Family::Base {
                            0
                        } else {
                            bytes.len()
                        },
                        flags: None,
                        is_injected: false,
                    });
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
    Atomic {
        family,
        datatype: Datatype::Uint64,
        op,
        target,
        operand: if op == Op::AtomicRead {
            Vec::new()
        } else {
            bytes(operand)
        },
        compare: if family == Family::Compare {
            bytes(compare)
        } else {
            Vec::new()
        },
        result: if family == Family::Base { 0 } else { 8 },
        flags: None,
        is_injected: false,
    }
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
fn tickets(cx: &mut Cx) -> Result {
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
fn locked_sums(cx: &mut Cx) -> Result {
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
