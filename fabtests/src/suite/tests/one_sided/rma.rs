//! Remote memory access, fi_rma(3): accesses change the addressed bytes, and no others.

use selvedge::rma::RmaIov;
use selvedge::{Caps, CompletionFlags as Flags, Errno, MrAccess, OpFlags};

use crate::suite::context::check::{bytes as bytes_are, holds, same};
use crate::suite::context::memory::background;
use crate::suite::context::timeout::until;
use crate::suite::context::{
    Api, Completion, Maker, Memory, RAW, Read, RemoteAddr, Result, Rx, Test, TestContext,
    TestEndpoint, Tx, Write,
};
use crate::suite::defect::Defect;
use crate::suite::tests::two_sided::messages::{parts, sizes};

tests! {
    writes_of_every_size(RMA) catches [FlipsBit, WrongAddress];
    reads_of_every_size(RMA) catches [WrongAddress];
    random_against_an_array(RMA) catches [WrongAddress, FlipsBit];
    every_field(RMA) catches [NoKind, HalvesData, NoRemoteData] .apis(RAW);
    segments(RMA) catches [SwapsSegments] .apis(RAW);
    injected_writes(RMA) catches [DropsInjects, WrongAddress];
    bounds(RMA) catches [WidensRegions, HidesErrors, WrongErrno];
    rights(RMA) catches [GrantsAll, HidesErrors];
    keys(RMA) catches [KeepsRegions, HidesErrors];
    delivered_writes(RMA) catches [DeliversEarly] .apis(RAW);
    many_writers(RMA) catches [WrongAddress, FlipsBit] .processes(4);
    to_itself(RMA) catches [WrongAddress, FlipsBit] .processes(1);
}

const RMA: Caps = Caps::RMA.union(Caps::MSG);
/// The kinds of target memory.
const MAKERS: [Maker; 2] = [Maker::Test, Maker::Domain];

/// Registers memory of this kind and length in both processes. Returns the local memory, and the
/// address of the other process's memory.
fn exchange_regions(
    ctx: &mut TestContext,
    endpoint: &TestEndpoint,
    maker: Maker,
    len: usize,
) -> Result<(Memory, RemoteAddr)> {
    let memory = ctx.memory(endpoint, maker, len)?;
    let addresses = ctx.exchange_addresses(endpoint, &memory)?;
    let other = (ctx.me() + 1) % ctx.count();
    Ok((memory, addresses[other]))
}

fn writes_of_every_size(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    let sizes = sizes(ctx, endpoint.info.tx_attr.inject_size);
    let largest = *sizes.last().expect("there are sizes");
    for maker in MAKERS {
        let (memory, remote) = exchange_regions(ctx, &endpoint, maker, largest + 64)?;
        for (number, &len) in sizes.iter().enumerate() {
            let offset = number % 61;
            if ctx.me() == 0 {
                endpoint.run(Write::new(remote.at(offset), ctx.payload(1, number, len)))?;
                endpoint.run(Tx::msg(endpoint.peer(), vec![1]))?;
                ctx.barrier()?;
            } else {
                endpoint.post_and_wait(Rx::msg(8))?.expect_success()?;
                let check_content = || ctx.verify(0, number, &memory.get(offset, len));
                await_content(&endpoint, check_content)?;
                ctx.barrier()?;
            }
        }
        memory.assert_canaries()?;
        ctx.barrier()?;
    }
    Ok(())
}

/// Waits until the content is as expected. Without a declared order, a write may arrive after the
/// message that follows the write.
fn await_content(endpoint: &TestEndpoint, check_content: impl Fn() -> Result) -> Result {
    let result = until("the written bytes", || {
        endpoint.progress()?;
        Ok(check_content().ok())
    });
    // The error of the last check has the actual content.
    result.or_else(|timeout| check_content().map_err(|error| error.context(timeout)))
}

fn reads_of_every_size(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    let sizes = sizes(ctx, endpoint.info.tx_attr.inject_size);
    let largest = *sizes.last().expect("there are sizes");
    for maker in MAKERS {
        let (memory, remote) = exchange_regions(ctx, &endpoint, maker, largest + 64)?;
        if ctx.me() == 0 {
            for (number, &len) in sizes.iter().enumerate() {
                let offset = number % 61;
                let completion = endpoint
                    .post_and_wait(Read::new(remote.at(offset), len))?
                    .expect_success()?;
                bytes_are(
                    format!("{len} bytes from {offset} on"),
                    &completion.bytes,
                    &background(offset, len),
                )?;
            }
        }
        ctx.barrier()?;
        memory.verify("memory that was read", &background(0, largest + 64))?;
    }
    Ok(())
}

/// Random writes and reads have the same effect as on an array.
fn random_against_an_array(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    let len = 20_000;
    for maker in MAKERS {
        let (memory, remote) = exchange_regions(ctx, &endpoint, maker, len)?;
        let mut expected = background(0, len);
        let mut random = ctx.common_random();
        for number in 0..ctx.scale(150, 2000) {
            let size = *random.pick(&[1, 7, 64, 700, 5000, 9000]);
            let offset = random.below((len - size) as u64 + 1) as usize;
            let is_write = random.flip();
            let bytes = ctx.payload_of(0, 1, number, size);
            if ctx.me() == 0 && is_write {
                let write = Write::new(remote.at(offset), bytes.clone());
                run_delivered(ctx, &endpoint, write)?;
            } else if ctx.me() == 0 {
                let completion = endpoint
                    .post_and_wait(Read::new(remote.at(offset), size))?
                    .expect_success()?;
                bytes_are(
                    "bytes that were read",
                    &completion.bytes,
                    &expected[offset..offset + size],
                )?;
            }
            if is_write {
                expected[offset..offset + size].copy_from_slice(&bytes);
            }
        }
        ctx.barrier()?;
        if ctx.me() == 1 {
            await_content(&endpoint, || memory.verify("memory at the end", &expected))?;
        }
        ctx.barrier()?;
    }
    Ok(())
}

/// Writes and waits for delivery. The safe layer has no flag for delivery completion; there, the
/// test reads the bytes until they are as written.
fn run_delivered(ctx: &TestContext, endpoint: &TestEndpoint, write: Write) -> Result {
    let (remote, bytes) = (write.to, write.bytes.clone());
    if ctx.api == Api::Raw {
        return endpoint.run(write.flags(OpFlags::DELIVERY_COMPLETE | OpFlags::COMPLETION));
    }
    endpoint.run(write)?;
    until("the written bytes", || {
        // A queue that always has an entry need not make progress.
        endpoint.progress()?;
        let completion = endpoint
            .post_and_wait(Read::new(remote, bytes.len()))?
            .expect_success()?;
        Ok((completion.bytes == bytes).then_some(()))
    })
}

/// Each field of both sides' completions has the expected value.
fn every_field(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    let width = 8 * endpoint.info.domain_attr.cq_data_size.min(8);
    let data =
        crate::suite::tests::two_sided::messages::truncate_data(0x0123_4567_89ab_cdef, width);
    for maker in MAKERS {
        let (memory, remote) = exchange_regions(ctx, &endpoint, maker, 100_000)?;
        for len in [0, 1, 64, 4000, 90_000] {
            if ctx.me() == 0 {
                let write = Write::new(remote, ctx.payload(1, len, len));
                let completion = endpoint.post_and_wait(write.clone())?.expect_success()?;
                same(
                    "flags of a write",
                    completion.flags,
                    Flags::RMA | Flags::WRITE,
                )?;
                let completion = endpoint.post_and_wait(write.data(data))?.expect_success()?;
                same(
                    "flags of a write with data",
                    completion.flags,
                    Flags::RMA | Flags::WRITE,
                )?;
                let completion = endpoint
                    .post_and_wait(Read::new(remote, len))?
                    .expect_success()?;
                same(
                    "flags of a read",
                    completion.flags,
                    Flags::RMA | Flags::READ,
                )?;
            } else {
                let completion = endpoint.next()?.expect_success()?;
                let flags = Flags::RMA | Flags::REMOTE_WRITE | Flags::REMOTE_CQ_DATA;
                same("flags at the target", completion.flags, flags)?;
                same("data at the target", completion.data, Some(data))?;
                same("length at the target", completion.len, len)?;
                ctx.verify(0, len, &memory.get(0, len))?;
            }
            ctx.barrier()?;
        }
    }
    Ok(())
}

/// Local and remote segments are divided at different offsets.
fn segments(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    let local_limit = endpoint.info.tx_attr.iov_limit;
    let remote_limit = endpoint.info.tx_attr.rma_iov_limit;
    let len = 5000;
    for maker in MAKERS {
        let (memory, remote) = exchange_regions(ctx, &endpoint, maker, 2 * len)?;
        for (local_count, remote_count) in [
            (local_limit, 1),
            (1, remote_limit),
            (local_limit, remote_limit),
        ] {
            let rma_iov = scattered_segments(remote, len, remote_count);
            if ctx.me() == 0 {
                let mut write = Write::new(remote, ctx.payload(1, local_count, len));
                (write.segments, write.rma_iov) = (parts(len, local_count), rma_iov.clone());
                run_delivered(ctx, &endpoint, write)?;
                let mut read = Read::new(remote, len);
                (read.segments, read.rma_iov) = (parts(len, local_count), rma_iov);
                let completion = endpoint.post_and_wait(read)?.expect_success()?;
                bytes_are(
                    "the written bytes",
                    &completion.bytes,
                    &ctx.payload(1, local_count, len),
                )?;
                ctx.barrier()?;
            } else {
                ctx.barrier()?;
                let local = ctx.local_address(&endpoint, &memory);
                let written: Vec<_> = scattered_segments(local, len, remote_count)
                    .iter()
                    .flat_map(|segment| {
                        memory.get((segment.addr - local.addr) as usize, segment.len)
                    })
                    .collect();
                ctx.verify(0, local_count, &written)?;
            }
            ctx.barrier()?;
        }
        memory.assert_canaries()?;
        ctx.barrier()?;
    }
    Ok(())
}

/// Makes `count` segments with gaps between them, in reverse order.
fn scattered_segments(remote: RemoteAddr, len: usize, count: usize) -> Vec<RmaIov> {
    let mut offset = 0;
    let mut rma_iov: Vec<_> = parts(len, count)
        .into_iter()
        .map(|part| {
            let segment = remote.at(offset).iov(part);
            offset += part + 32;
            segment
        })
        .collect();
    rma_iov.reverse();
    rma_iov
}

fn injected_writes(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    let inject_size = endpoint.info.tx_attr.inject_size;
    for maker in MAKERS {
        let (memory, remote) = exchange_regions(ctx, &endpoint, maker, inject_size + 64)?;
        for (number, len) in [1, 8, 100.min(inject_size), inject_size]
            .into_iter()
            .enumerate()
        {
            if ctx.me() == 0 {
                endpoint.run(Write::new(remote.at(7), ctx.payload(1, number, len)).injected())?;
                ctx.barrier()?;
            } else {
                await_content(&endpoint, || ctx.verify(0, number, &memory.get(7, len)))?;
                ctx.barrier()?;
            }
        }
        if ctx.me() == 0 {
            let write = Write::new(remote, vec![0; inject_size + 1]).injected();
            let error = endpoint.try_post(write).err();
            same(
                "an inject of one byte more than inject_size",
                error,
                Some(Errno::MsgSize),
            )?;
        }
        ctx.barrier()?;
    }
    Ok(())
}

/// An access outside of the region is an error at the initiator, and changes no byte.
fn bounds(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    let len = 256;
    for maker in MAKERS {
        let (memory, remote) = exchange_regions(ctx, &endpoint, maker, len)?;
        if ctx.me() == 0 {
            for (offset, size) in [
                (0, len + 1),
                (len - 7, 8),
                (len, 1),
                (len + 100, 8),
                (usize::MAX - 3, 8),
            ] {
                let operation = format!("a write of {size} bytes at {offset} of {len}");
                let write = Write::new(remote.at(offset), vec![0xaa; size]);
                check_refusal(&operation, endpoint.post_and_wait(write)?, &[Errno::Fault])?;
                let operation = format!("a read of {size} bytes at {offset} of {len}");
                check_refusal(
                    &operation,
                    endpoint.post_and_wait(Read::new(remote.at(offset), size))?,
                    &[Errno::Fault],
                )?;
            }
        }
        ctx.barrier()?;
        memory.verify("memory after refused accesses", &background(0, len))?;
    }
    Ok(())
}

/// Checks that an operation failed with one of these errors.
fn check_refusal(operation: &str, completion: Completion, errnos: &[Errno]) -> Result {
    let errno = completion.error.map(|failure| failure.errno);
    let is_expected = errno.is_some_and(|errno| errnos.contains(&errno));
    holds(
        format!("{operation} fails with one of {errnos:?}, not {errno:?}"),
        is_expected,
    )
}

/// A region refuses an access without the right, and no byte changes.
fn rights(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    let (len, read, write) = (512, MrAccess::REMOTE_READ, MrAccess::REMOTE_WRITE);
    for maker in MAKERS {
        for access in [read, write] {
            let memory = ctx.memory_with(&endpoint, maker, len, access)?;
            let remote = ctx.exchange_addresses(&endpoint, &memory)?[(ctx.me() + 1) % 2];
            if ctx.me() == 0 {
                let written = endpoint.post_and_wait(Write::new(remote, vec![0xaa; 8]))?;
                let fetched = endpoint.post_and_wait(Read::new(remote, 8))?;
                let (denied, permitted) = if access == read {
                    (written, fetched)
                } else {
                    (fetched, written)
                };
                check_refusal(
                    &format!("an access that {access} does not permit"),
                    denied,
                    &[Errno::Acces],
                )?;
                permitted.expect_success()?;
            }
            ctx.barrier()?;
            let start = if access == read { 0 } else { 8 };
            let rest = memory.get(start, len - start);
            bytes_are(
                "memory without the right",
                &rest,
                &background(start, len - start),
            )?;
        }
    }
    Ok(())
}

/// An access fails with a key that was never assigned, and with the key of a closed region.
fn keys(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    let errnos = [Errno::KeyRejected, Errno::NoKey];
    for maker in MAKERS {
        let (memory, remote) = exchange_regions(ctx, &endpoint, maker, 128)?;
        if ctx.me() == 0 {
            endpoint.run(Write::new(remote, vec![0xaa; 8]))?;
            let wrong = RemoteAddr {
                key: remote.key ^ 0xffff,
                ..remote
            };
            check_refusal(
                "a write with a wrong key",
                endpoint.post_and_wait(Write::new(wrong, vec![1; 8]))?,
                &errnos,
            )?;
            check_refusal(
                "a read with a wrong key",
                endpoint.post_and_wait(Read::new(wrong, 8))?,
                &errnos,
            )?;
        }
        ctx.barrier()?;
        ctx.close(memory);
        ctx.barrier()?;
        if ctx.me() == 0 {
            check_refusal(
                "a read of a closed region",
                endpoint.post_and_wait(Read::new(remote, 8))?,
                &errnos,
            )?;
            check_refusal(
                "a write to a closed region",
                endpoint.post_and_wait(Write::new(remote, vec![1; 8]))?,
                &errnos,
            )?;
        }
        ctx.barrier()?;
    }
    Ok(())
}

/// A write with delivery completion is in memory when it completes, without a call of the target.
fn delivered_writes(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    for maker in MAKERS {
        let (memory, remote) = exchange_regions(ctx, &endpoint, maker, 60_000)?;
        for (number, len) in [8, 500, 50_000].into_iter().enumerate() {
            if ctx.me() == 0 {
                run_delivered(
                    ctx,
                    &endpoint,
                    Write::new(remote, ctx.payload(1, number, len)),
                )?;
                // The barrier does not use the fabric, so no other progress can have delivered the
                // bytes.
                ctx.barrier()?;
            } else {
                ctx.barrier()?;
                ctx.verify(0, number, &memory.get(0, len))?;
            }
            ctx.barrier()?;
        }
    }
    if ctx.me() == 0 {
        let context = endpoint.post(delivered_message(&endpoint))?;
        endpoint.settle()?;
        holds(
            "a delivery is not complete before its receive is posted",
            !endpoint.is_done(context)?,
        )?;
        ctx.barrier()?;
        endpoint.wait_for(context)?.expect_success()?;
    } else {
        ctx.barrier()?;
        endpoint.post_and_wait(Rx::msg(16))?.expect_success()?;
    }
    Ok(())
}

fn delivered_message(endpoint: &TestEndpoint) -> Tx {
    let flags = OpFlags::DELIVERY_COMPLETE | OpFlags::COMPLETION;
    Tx::msg(endpoint.peer(), vec![5; 16]).flags(flags)
}

/// Three processes write to the memory of one process at the same time, each to its own part.
fn many_writers(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    let part = 4096;
    let memory = ctx.memory(&endpoint, Maker::Test, part * ctx.count())?;
    let target = ctx.exchange_addresses(&endpoint, &memory)?[0];
    let rounds = ctx.scale(50, 1000);
    if ctx.me() > 0 {
        let slice = target.at(part * ctx.me());
        for round in 0..rounds {
            let len = 16 + round * 331 % (part - 16);
            run_delivered(
                ctx,
                &endpoint,
                Write::new(slice, ctx.payload(0, round, len)),
            )?;
        }
    }
    ctx.barrier()?;
    if ctx.me() == 0 {
        let last = rounds - 1;
        for from in 1..ctx.count() {
            let len = 16 + last * 331 % (part - 16);
            ctx.verify(from, last, &memory.get(part * from, len))?;
        }
        memory.assert_canaries()?;
    }
    Ok(())
}

fn to_itself(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    for maker in MAKERS {
        let memory = ctx.memory(&endpoint, maker, 70_000)?;
        let remote = ctx.exchange_addresses(&endpoint, &memory)?[0];
        for (number, len) in [1, 64, 5000, 65_000].into_iter().enumerate() {
            let bytes = ctx.payload(0, number, len);
            run_delivered(ctx, &endpoint, Write::new(remote.at(3), bytes.clone()))?;
            bytes_are("the written bytes", &memory.get(3, len), &bytes)?;
            let completion = endpoint
                .post_and_wait(Read::new(remote.at(3), len))?
                .expect_success()?;
            bytes_are("the read bytes", &completion.bytes, &bytes)?;
        }
    }
    Ok(())
}
