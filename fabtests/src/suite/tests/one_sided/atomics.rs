//! Atomics, fi_atomic(3), against an oracle that distinguishes each operation from the others and
//! from a no-op.
//!
//! The oracle computes with the machine's own numbers, so it covers the types that have a machine
//! type. The others are queried, and carried out where a plain store or swap shows the result.

use std::time::Instant;

use selvedge::atomic::{Datatype, Family, Op};
use selvedge::{Caps, Errno, MsgOrder};
use selvedge_testkit::atomics::{Oracle, families, oracle};

use crate::suite::context::check::{bytes as bytes_are, holds, same};
use crate::suite::context::timeout::{limit, until};
use crate::suite::context::{
    Atomic, Maker, Memory, POLLED, Random, RemoteAddr, Result, Test, TestContext, TestEndpoint,
};
use crate::suite::defect::Defect;

tests! {
    every_operation(ATOMIC) catches [
        NoAtomics, OtherAtomics, OtherAtomicsOfOne, FetchesNothing, TwiceAtomics
    ];
    queries(ATOMIC) catches [DeniesAtomics] .apis(POLLED);
    sums_of_many(ATOMIC) catches [TwiceAtomics, NoAtomics] .processes(4);
    fetched_numbers_are_unique(ATOMIC) catches [NoAtomics, FetchesNothing] .processes(4);
    swaps_lose_nothing(ATOMIC) catches [NoAtomics, OtherAtomics] .processes(3);
    violations(ATOMIC) catches [HidesErrors, WidensRegions, GrantsAll];
}

const ATOMIC: Caps = Caps::ATOMIC.union(Caps::MSG);

/// Elements that distinguish operations: small numbers of both signs, zeros, and all bits.
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

/// Registers memory in each process. Returns it, with the address of the last process's memory.
fn target_memory(
    ctx: &mut TestContext,
    endpoint: &TestEndpoint,
    maker: Maker,
    len: usize,
) -> Result<(Memory, RemoteAddr)> {
    let memory = ctx.memory(endpoint, maker, len)?;
    let remote = ctx.exchange_addresses(endpoint, &memory)?[ctx.count() - 1];
    Ok((memory, remote))
}

/// Every operation on every type, on one element and on several.
fn every_operation(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    for maker in [Maker::Test, Maker::Domain] {
        let (memory, remote) = target_memory(ctx, &endpoint, maker, 512)?;
        if ctx.me() == 0 {
            let mut random = ctx.random();
            for &datatype in Datatype::ALL {
                let Some(oracle) = oracle(datatype) else {
                    continue;
                };
                for &op in Op::ALL {
                    for &family in families(op) {
                        check_operation(
                            ctx,
                            &endpoint,
                            remote,
                            &mut random,
                            (datatype, oracle),
                            (op, family),
                        )?;
                    }
                }
            }
        }
        ctx.barrier()?;
        memory.assert_canaries()?;
    }
    Ok(())
}

fn check_operation(
    ctx: &TestContext,
    endpoint: &TestEndpoint,
    remote: RemoteAddr,
    random: &mut Random,
    (datatype, oracle): (Datatype, Oracle),
    (op, family): (Op, Family),
) -> Result {
    let Ok(attr) = endpoint.domain.query_atomic(family, datatype, op) else {
        return Ok(());
    };
    same("size of an element", attr.size, datatype.size())?;
    // Several elements at once, each with its own operands; and one, which providers may carry out
    // on a fast path.
    for count in [attr.count.min(12), 1] {
        for _ in 0..ctx.scale(1, 20) {
            let old = operands(random, datatype, count);
            let operand = operands(random, datatype, count);
            let mut compare = operands(random, datatype, count);
            if random.flip() {
                compare.clone_from(&old);
            }
            let call = format!("{op:?} ({family:?}) on {count} of {datatype:?}");
            store(endpoint, remote, datatype, &old)?;
            let expected = expected_elements(oracle, op, datatype, [&old, &operand, &compare]);
            let atomic = Atomic::new(family, datatype, op, remote, operand, compare);
            let completion = endpoint.post_and_wait(atomic)?.expect_success()?;
            if family != Family::Base {
                bytes_are(
                    format!("the fetched value of {call}"),
                    &completion.bytes,
                    &old,
                )?;
            }
            let found = final_content(endpoint, remote, datatype, old.len(), &expected)?;
            bytes_are(
                format!("the result of {call} with {old:02x?}"),
                &found,
                &expected,
            )?;
        }
    }
    Ok(())
}

/// Returns the elements that the oracle expects.
fn expected_elements(
    oracle: Oracle,
    op: Op,
    datatype: Datatype,
    [old, operand, compare]: [&[u8]; 3],
) -> Vec<u8> {
    let size = datatype.size();
    let elements = (0..old.len() / size).map(|element| {
        let element_of = |bytes: &[u8]| bytes[element * size..][..size].to_vec();
        oracle(
            op,
            &element_of(old),
            &element_of(operand),
            &element_of(compare),
        )
        .unwrap_or_else(|| element_of(old))
    });
    elements.flatten().collect()
}

/// Stores elements in the target's memory, and waits until the memory has them.
fn store(endpoint: &TestEndpoint, remote: RemoteAddr, datatype: Datatype, bytes: &[u8]) -> Result {
    let write = Atomic::new(
        Family::Base,
        datatype,
        Op::AtomicWrite,
        remote,
        bytes.to_vec(),
        Vec::new(),
    );
    endpoint.post_and_wait(write)?.expect_success()?;
    final_content(endpoint, remote, datatype, bytes.len(), bytes).map(drop)
}

fn fetch(
    endpoint: &TestEndpoint,
    remote: RemoteAddr,
    datatype: Datatype,
    len: usize,
) -> Result<Vec<u8>> {
    let read = Atomic::new(
        Family::Fetch,
        datatype,
        Op::AtomicRead,
        remote,
        vec![0; len],
        Vec::new(),
    );
    Ok(endpoint.post_and_wait(read)?.expect_success()?.bytes)
}

/// Fetches the content of the target's memory after all atomics. Without a declared order, a fetch
/// may overtake an earlier atomic, so it is repeated until the content is as expected.
fn final_content(
    endpoint: &TestEndpoint,
    remote: RemoteAddr,
    datatype: Datatype,
    len: usize,
    expected: &[u8],
) -> Result<Vec<u8>> {
    let is_ordered = endpoint
        .info
        .tx_attr
        .msg_order
        .contains(MsgOrder::ATOMIC_RAW);
    if is_ordered {
        return fetch(endpoint, remote, datatype, len);
    }
    content_after_all_atomics(endpoint, remote, datatype, len, expected)
}

/// Fetches the content of the target's memory until it is as expected, or a time limit has passed.
fn content_after_all_atomics(
    endpoint: &TestEndpoint,
    remote: RemoteAddr,
    datatype: Datatype,
    len: usize,
    expected: &[u8],
) -> Result<Vec<u8>> {
    let start = Instant::now();
    loop {
        let found = fetch(endpoint, remote, datatype, len)?;
        if found == expected || start.elapsed() > limit() / 4 {
            return Ok(found);
        }
        endpoint.progress()?;
    }
}

/// A query reports an operation as supported if and only if a call succeeds, for every operation
/// and type.
fn queries(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    let (_memory, remote) = target_memory(ctx, &endpoint, Maker::Test, 512)?;
    let mut supported = 0;
    if ctx.me() == 0 {
        for &datatype in Datatype::ALL {
            for &op in Op::ALL {
                for &family in families(op) {
                    let query = endpoint.domain.query_atomic(family, datatype, op);
                    let call = format!("{op:?} ({family:?}) on {datatype:?}");
                    let bytes = vec![0; datatype.size()];
                    let posted = endpoint.try_post(Atomic::new(
                        family,
                        datatype,
                        op,
                        remote,
                        bytes.clone(),
                        bytes,
                    ));
                    same(
                        format!("{call}: query and call agree"),
                        posted.is_ok(),
                        query.is_ok(),
                    )?;
                    if let Ok(context) = posted {
                        endpoint.wait_for(context)?.expect_success()?;
                        supported += 1;
                    } else {
                        same(call, query.err(), Some(Errno::OpNotSupp))?;
                    }
                }
            }
        }
        holds(
            "a provider with FI_ATOMIC supports an operation",
            supported > 0,
        )?;
        let sum = endpoint
            .domain
            .query_atomic(Family::Base, Datatype::Uint64, Op::Sum);
        holds("a sum of 64-bit words is supported", sum.is_ok())?;
    }
    Ok(())
}

fn word_atomic(family: Family, op: Op, target: RemoteAddr, operand: u64, compare: u64) -> Atomic {
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

fn fetch_word(endpoint: &TestEndpoint, atomic: Atomic) -> Result<u64> {
    let completion = endpoint.post_and_wait(atomic)?.expect_success()?;
    Ok(completion
        .bytes
        .try_into()
        .map_or(u64::MAX, u64::from_ne_bytes))
}

/// Several processes add to one word at the same time, with every kind of call.
fn sums_of_many(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    for maker in [Maker::Test, Maker::Domain] {
        let (memory, remote) = target_memory(ctx, &endpoint, maker, 64)?;
        memory.put(0, &[0; 64]);
        ctx.barrier()?;
        let rounds = ctx.scale(200, 5000) as u64;
        for round in 0..rounds {
            let mut add = word_atomic(Family::Base, Op::Sum, remote, 1, 0);
            add.is_injected = round % 3 == 0;
            if round % 3 == 1 {
                add = word_atomic(Family::Fetch, Op::Sum, remote, 1, 0);
            }
            endpoint.run(add)?;
        }
        ctx.barrier()?;
        let expected = (rounds * ctx.count() as u64).to_ne_bytes();
        let found = content_after_all_atomics(&endpoint, remote, Datatype::Uint64, 8, &expected)?;
        bytes_are("the sum", &found, &expected)?;
        ctx.barrier()?;
        let rest = memory.get(8, 56);
        bytes_are("the words next to the sum", &rest, &[0; 56])?;
    }
    Ok(())
}

/// Every fetched number is unique.
fn fetched_numbers_are_unique(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    for maker in [Maker::Test, Maker::Domain] {
        let (memory, remote) = target_memory(ctx, &endpoint, maker, 8)?;
        memory.put(0, &[0; 8]);
        ctx.barrier()?;
        let rounds = ctx.scale(150, 3000);
        let fetch_next =
            |_| fetch_word(&endpoint, word_atomic(Family::Fetch, Op::Sum, remote, 1, 0));
        let numbers = (0..rounds).map(fetch_next).collect::<Result<Vec<_>>>()?;
        let is_increasing = numbers.is_sorted_by(|a, b| a < b);
        holds("the numbers of one process rise", is_increasing)?;
        let all: Vec<Vec<u64>> = ctx.exchange(&numbers)?;
        let mut all = all.concat();
        all.sort_unstable();
        let expected = (0..(rounds * ctx.count()) as u64).collect::<Vec<_>>();
        holds("every number is taken once", all == expected)?;
        ctx.barrier()?;
    }
    Ok(())
}

/// A lock of compare-and-swap protects additions that are not atomic.
fn swaps_lose_nothing(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    let (memory, remote) = target_memory(ctx, &endpoint, Maker::Test, 16)?;
    memory.put(0, &[0; 16]);
    ctx.barrier()?;
    let rounds = ctx.scale(40, 500);
    let lock_id = ctx.me() as u64 + 1;
    for _ in 0..rounds {
        until("the lock", || {
            let value = fetch_word(
                &endpoint,
                word_atomic(Family::Compare, Op::Cswap, remote, lock_id, 0),
            )?;
            Ok((value == 0).then_some(()))
        })?;
        let sum = remote.at(8);
        let value = fetch_word(
            &endpoint,
            word_atomic(Family::Fetch, Op::AtomicRead, sum, 0, 0),
        )?;
        let next = (value + 1).to_ne_bytes();
        store(&endpoint, sum, Datatype::Uint64, &next)?;
        let holder = fetch_word(
            &endpoint,
            word_atomic(Family::Compare, Op::Cswap, remote, 0, lock_id),
        )?;
        same("the holder of the lock", holder, lock_id)?;
    }
    ctx.barrier()?;
    let total = fetch_word(
        &endpoint,
        word_atomic(Family::Fetch, Op::AtomicRead, remote.at(8), 0, 0),
    )?;
    same("the sum", total, (rounds * ctx.count()) as u64)
}

/// Addresses and keys are checked as for any access.
fn violations(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    let (memory, remote) = target_memory(ctx, &endpoint, Maker::Test, 64)?;
    let closed = ctx.memory_with(&endpoint, Maker::Test, 64, selvedge::MrAccess::REMOTE_READ)?;
    let closed_remote = ctx.exchange_addresses(&endpoint, &closed)?[ctx.count() - 1];
    if ctx.me() == 0 {
        let wrong_key = RemoteAddr {
            key: remote.key ^ 0xffff,
            ..remote
        };
        for (call, remote) in [
            ("an atomic after the end of the region", remote.at(64)),
            ("an atomic across the end of the region", remote.at(60)),
            ("an atomic with a wrong key", wrong_key),
            ("an atomic without the right to write", closed_remote),
        ] {
            for family in [Family::Base, Family::Fetch] {
                let completion =
                    endpoint.post_and_wait(word_atomic(family, Op::Sum, remote, 1, 0))?;
                holds(format!("{call} fails"), completion.error.is_some())?;
            }
        }
    }
    ctx.barrier()?;
    let background = crate::suite::context::memory::background(0, 64);
    memory.verify("memory after violations", &background)?;
    closed.verify("memory without the right", &background)
}
