//! Remote memory access, fi_rma(3): bytes go where they should, and nowhere else.

use selvedge::rma::RmaIov;
use selvedge::{Caps, CompletionFlags as Flags, Errno, MrAccess, OpFlags};

use super::messages::{parts, sizes};
use crate::suite::cx::check::{bytes as bytes_are, holds, same};
use crate::suite::cx::memory::background;
use crate::suite::cx::timeout::until;
use crate::suite::cx::{
    Completion, Cx, Face, Maker, Memory, RAW, Read, RemoteAddr, Result, Rx, Test, TestEndpoint, Tx,
    Write,
};
use crate::suite::flaw::Flaw;

tests! {
    writes_of_every_size(RMA) catches [FlipsBit, WrongAddress];
    reads_of_every_size(RMA) catches [WrongAddress];
    random_against_an_array(RMA) catches [WrongAddress, FlipsBit];
    every_field(RMA) catches [NoKind, HalvesData, NoRemoteData] .faces(RAW);
    pieces(RMA) catches [SwapsPieces] .faces(RAW);
    injected_writes(RMA) catches [ForgetsInjects, WrongAddress];
    bounds(RMA) catches [WidensRegions, HidesErrors, WrongErrno];
    rights(RMA) catches [GrantsAll, HidesErrors];
    keys(RMA) catches [KeepsRegions, HidesErrors];
    delivered_writes(RMA) catches [DeliversEarly] .faces(RAW);
    many_writers(RMA) catches [WrongAddress, FlipsBit] .processes(4);
    to_oneself(RMA) catches [WrongAddress, FlipsBit] .processes(1);
}

const RMA: Caps = Caps::RMA.union(Caps::MSG);
/// Whose memory is the target.
const MAKERS: [Maker; 2] = [Maker::Test, Maker::Domain];

/// Both processes' memory of this kind and length, and where the other's is.
fn windows(
    cx: &mut Cx,
    port: &TestEndpoint,
    maker: Maker,
    len: usize,
) -> Result<(Memory, RemoteAddr)> {
    let memory = cx.memory(port, maker, len)?;
    let places = cx.places(port, &memory)?;
    let other = (cx.me() + 1) % cx.count();
    Ok((memory, places[other]))
}

fn writes_of_every_size(cx: &mut Cx) -> Result {
    let port = cx.port()?;
    let sizes = sizes(cx, port.info.tx_attr.inject_size);
    let largest = *sizes.last().expect("there are sizes");
    for maker in MAKERS {
        let (memory, place) = windows(cx, &port, maker, largest + 64)?;
        for (number, &len) in sizes.iter().enumerate() {
            let at = number % 61;
            if cx.me() == 0 {
                port.run(Write::new(place.at(at), cx.payload(1, number, len)))?;
                port.run(Tx::msg(port.peer(), vec![1]))?;
                cx.barrier()?;
            } else {
                port.post_and_wait(Rx::msg(8))?.expect_success()?;
                let is_there = || cx.verify(0, number, &memory.get(at, len));
                arrive(&port, is_there)?;
                cx.barrier()?;
            }
        }
        memory.assert_canaries()?;
        cx.barrier()?;
    }
    Ok(())
}

/// Without a declared order, a write may arrive behind the message that follows it.
fn arrive(port: &TestEndpoint, is_there: impl Fn() -> Result) -> Result {
    let arrived = until("what was written", || {
        port.progress()?;
        Ok(is_there().ok())
    });
    // The second error says what is there instead.
    arrived.or_else(|late| is_there().map_err(|wrong| wrong.context(late)))
}

fn reads_of_every_size(cx: &mut Cx) -> Result {
    let port = cx.port()?;
    let sizes = sizes(cx, port.info.tx_attr.inject_size);
    let largest = *sizes.last().expect("there are sizes");
    for maker in MAKERS {
        let (memory, place) = windows(cx, &port, maker, largest + 64)?;
        if cx.me() == 0 {
            for (number, &len) in sizes.iter().enumerate() {
                let at = number % 61;
                let done = port
                    .post_and_wait(Read::new(place.at(at), len))?
                    .expect_success()?;
                bytes_are(
                    format!("{len} bytes from {at} on"),
                    &done.bytes,
                    &background(at, len),
                )?;
            }
        }
        cx.barrier()?;
        memory.verify("memory that was read", &background(0, largest + 64))?;
    }
    Ok(())
}

/// Random writes and reads do what they do to an array.
fn random_against_an_array(cx: &mut Cx) -> Result {
    let port = cx.port()?;
    let len = 20_000;
    for maker in MAKERS {
        let (memory, place) = windows(cx, &port, maker, len)?;
        let mut expected = background(0, len);
        let mut random = cx.common_random();
        for number in 0..cx.scale(150, 2000) {
            let size = *random.pick(&[1, 7, 64, 700, 5000, 9000]);
            let at = random.below((len - size) as u64 + 1) as usize;
            let is_write = random.flip();
            let bytes = cx.payload_of(0, 1, number, size);
            if cx.me() == 0 && is_write {
                let write = Write::new(place.at(at), bytes.clone());
                run_delivered(cx, &port, write)?;
            } else if cx.me() == 0 {
                let done = port
                    .post_and_wait(Read::new(place.at(at), size))?
                    .expect_success()?;
                bytes_are(
                    "bytes that were read",
                    &done.bytes,
                    &expected[at..at + size],
                )?;
            }
            if is_write {
                expected[at..at + size].copy_from_slice(&bytes);
            }
        }
        cx.barrier()?;
        if cx.me() == 1 {
            arrive(&port, || memory.verify("memory at the end", &expected))?;
        }
        cx.barrier()?;
    }
    Ok(())
}

/// Writes, and waits until it is there. The safe layer has no flag for that; a read of the bytes
/// until they are there serves as well.
fn run_delivered(cx: &Cx, port: &TestEndpoint, write: Write) -> Result {
    let (place, bytes) = (write.to, write.bytes.clone());
    if cx.face == Face::Raw {
        return port.run(write.flags(OpFlags::DELIVERY_COMPLETE | OpFlags::COMPLETION));
    }
    port.run(write)?;
    until("what was written", || {
        // A queue that always has an entry need not move anything on.
        port.progress()?;
        let done = port
            .post_and_wait(Read::new(place, bytes.len()))?
            .expect_success()?;
        Ok((done.bytes == bytes).then_some(()))
    })
}

/// What the completions of both sides say, exactly.
fn every_field(cx: &mut Cx) -> Result {
    let port = cx.port()?;
    let width = 8 * port.info.domain_attr.cq_data_size.min(8);
    let data = super::messages::cut(0x0123_4567_89ab_cdef, width);
    for maker in MAKERS {
        let (memory, place) = windows(cx, &port, maker, 100_000)?;
        for len in [0, 1, 64, 4000, 90_000] {
            if cx.me() == 0 {
                let write = Write::new(place, cx.payload(1, len, len));
                let done = port.post_and_wait(write.clone())?.expect_success()?;
                same("flags of a write", done.flags, Flags::RMA | Flags::WRITE)?;
                let done = port.post_and_wait(write.data(data))?.expect_success()?;
                same(
                    "flags of a write with data",
                    done.flags,
                    Flags::RMA | Flags::WRITE,
                )?;
                let done = port
                    .post_and_wait(Read::new(place, len))?
                    .expect_success()?;
                same("flags of a read", done.flags, Flags::RMA | Flags::READ)?;
            } else {
                let done = port.next()?.expect_success()?;
                let flags = Flags::RMA | Flags::REMOTE_WRITE | Flags::REMOTE_CQ_DATA;
                same("flags at the target", done.flags, flags)?;
                same("data at the target", done.data, Some(data))?;
                same("length at the target", done.len, len)?;
                cx.verify(0, len, &memory.get(0, len))?;
            }
            cx.barrier()?;
        }
    }
    Ok(())
}

/// Lists on both sides that are cut at different places.
fn pieces(cx: &mut Cx) -> Result {
    let port = cx.port()?;
    let local = port.info.tx_attr.iov_limit;
    let remote = port.info.tx_attr.rma_iov_limit;
    let len = 5000;
    for maker in MAKERS {
        let (memory, place) = windows(cx, &port, maker, 2 * len)?;
        for (here, there) in [(local, 1), (1, remote), (local, remote)] {
            let places = scattered(place, len, there);
            if cx.me() == 0 {
                let mut write = Write::new(place, cx.payload(1, here, len));
                (write.segments, write.rma_iov) = (parts(len, here), places.clone());
                run_delivered(cx, &port, write)?;
                let mut read = Read::new(place, len);
                (read.segments, read.rma_iov) = (parts(len, here), places);
                let done = port.post_and_wait(read)?.expect_success()?;
                bytes_are("what was written", &done.bytes, &cx.payload(1, here, len))?;
                cx.barrier()?;
            } else {
                cx.barrier()?;
                let own = cx.own_place(&port, &memory);
                let written: Vec<_> = scattered(own, len, there)
                    .iter()
                    .flat_map(|piece| memory.get((piece.addr - own.addr) as usize, piece.len))
                    .collect();
                cx.verify(0, here, &written)?;
            }
            cx.barrier()?;
        }
        memory.assert_canaries()?;
        cx.barrier()?;
    }
    Ok(())
}

/// So many stretches with gaps between them, the later ones first.
fn scattered(place: RemoteAddr, len: usize, count: usize) -> Vec<RmaIov> {
    let mut at = 0;
    let mut places: Vec<_> = parts(len, count)
        .into_iter()
        .map(|part| {
            let piece = place.at(at).iov(part);
            at += part + 32;
            piece
        })
        .collect();
    places.reverse();
    places
}

fn injected_writes(cx: &mut Cx) -> Result {
    let port = cx.port()?;
    let most = port.info.tx_attr.inject_size;
    for maker in MAKERS {
        let (memory, place) = windows(cx, &port, maker, most + 64)?;
        for (number, len) in [1, 8, 100.min(most), most].into_iter().enumerate() {
            if cx.me() == 0 {
                port.run(Write::new(place.at(7), cx.payload(1, number, len)).injected())?;
                cx.barrier()?;
            } else {
                arrive(&port, || cx.verify(0, number, &memory.get(7, len)))?;
                cx.barrier()?;
            }
        }
        if cx.me() == 0 {
            let write = Write::new(place, vec![0; most + 1]).injected();
            let refused = port.try_post(write).err();
            same(
                "an inject of one byte too much",
                refused,
                Some(Errno::MsgSize),
            )?;
        }
        cx.barrier()?;
    }
    Ok(())
}

/// A byte outside of the region is an error at the initiator, and no byte is changed.
fn bounds(cx: &mut Cx) -> Result {
    let port = cx.port()?;
    let len = 256;
    for maker in MAKERS {
        let (memory, place) = windows(cx, &port, maker, len)?;
        if cx.me() == 0 {
            for (at, size) in [
                (0, len + 1),
                (len - 7, 8),
                (len, 1),
                (len + 100, 8),
                (usize::MAX - 3, 8),
            ] {
                let what = format!("a write of {size} bytes at {at} of {len}");
                let write = Write::new(place.at(at), vec![0xaa; size]);
                refused(&what, port.post_and_wait(write)?, &[Errno::Fault])?;
                let what = format!("a read of {size} bytes at {at} of {len}");
                refused(
                    &what,
                    port.post_and_wait(Read::new(place.at(at), size))?,
                    &[Errno::Fault],
                )?;
            }
        }
        cx.barrier()?;
        memory.verify("memory that nobody may reach", &background(0, len))?;
    }
    Ok(())
}

/// It failed, with one of these errors.
fn refused(what: &str, done: Completion, errnos: &[Errno]) -> Result {
    let errno = done.error.map(|failure| failure.errno);
    let is_so = errno.is_some_and(|errno| errnos.contains(&errno));
    holds(
        format!("{what} fails with one of {errnos:?}, not {errno:?}"),
        is_so,
    )
}

/// Without the right to it nothing is read and nothing written.
fn rights(cx: &mut Cx) -> Result {
    let port = cx.port()?;
    let (len, read, write) = (512, MrAccess::REMOTE_READ, MrAccess::REMOTE_WRITE);
    for maker in MAKERS {
        for access in [read, write] {
            let memory = cx.memory_with(&port, maker, len, access)?;
            let place = cx.places(&port, &memory)?[(cx.me() + 1) % 2];
            if cx.me() == 0 {
                let written = port.post_and_wait(Write::new(place, vec![0xaa; 8]))?;
                let fetched = port.post_and_wait(Read::new(place, 8))?;
                let (bad, good) = if access == read {
                    (written, fetched)
                } else {
                    (fetched, written)
                };
                refused(
                    &format!("what {access} does not allow"),
                    bad,
                    &[Errno::Acces],
                )?;
                good.expect_success()?;
            }
            cx.barrier()?;
            let from = if access == read { 0 } else { 8 };
            let rest = memory.get(from, len - from);
            bytes_are(
                "memory without the right",
                &rest,
                &background(from, len - from),
            )?;
        }
    }
    Ok(())
}

/// A key that was never given out, and one whose region is closed.
fn keys(cx: &mut Cx) -> Result {
    let port = cx.port()?;
    let errnos = [Errno::KeyRejected, Errno::NoKey];
    for maker in MAKERS {
        let (memory, place) = windows(cx, &port, maker, 128)?;
        if cx.me() == 0 {
            port.run(Write::new(place, vec![0xaa; 8]))?;
            let wrong = RemoteAddr {
                key: place.key ^ 0xffff,
                ..place
            };
            refused(
                "a write by a wrong key",
                port.post_and_wait(Write::new(wrong, vec![1; 8]))?,
                &errnos,
            )?;
            refused(
                "a read by a wrong key",
                port.post_and_wait(Read::new(wrong, 8))?,
                &errnos,
            )?;
        }
        cx.barrier()?;
        cx.close(memory);
        cx.barrier()?;
        if cx.me() == 0 {
            refused(
                "a read of a closed region",
                port.post_and_wait(Read::new(place, 8))?,
                &errnos,
            )?;
            refused(
                "a write to a closed region",
                port.post_and_wait(Write::new(place, vec![1; 8]))?,
                &errnos,
            )?;
        }
        cx.barrier()?;
    }
    Ok(())
}

/// What is complete with delivery is there, although the target does not look before.
fn delivered_writes(cx: &mut Cx) -> Result {
    let port = cx.port()?;
    for maker in MAKERS {
        let (memory, place) = windows(cx, &port, maker, 60_000)?;
        for (number, len) in [8, 500, 50_000].into_iter().enumerate() {
            if cx.me() == 0 {
                run_delivered(cx, &port, Write::new(place, cx.payload(1, number, len)))?;
                // The word goes past the fabric, so nothing else can have brought the bytes.
                cx.barrier()?;
            } else {
                cx.barrier()?;
                cx.verify(0, number, &memory.get(0, len))?;
            }
            cx.barrier()?;
        }
    }
    if cx.me() == 0 {
        let context = port.post(delivered_message(&port))?;
        port.settle()?;
        holds(
            "a delivery is not complete before its receive is posted",
            !port.is_done(context)?,
        )?;
        cx.barrier()?;
        port.wait_for(context)?.expect_success()?;
    } else {
        cx.barrier()?;
        port.post_and_wait(Rx::msg(16))?.expect_success()?;
    }
    Ok(())
}

fn delivered_message(port: &TestEndpoint) -> Tx {
    let flags = OpFlags::DELIVERY_COMPLETE | OpFlags::COMPLETION;
    Tx::msg(port.peer(), vec![5; 16]).flags(flags)
}

/// Three write to one at the same time, each into a part of its own.
fn many_writers(cx: &mut Cx) -> Result {
    let port = cx.port()?;
    let part = 4096;
    let memory = cx.memory(&port, Maker::Test, part * cx.count())?;
    let target = cx.places(&port, &memory)?[0];
    let rounds = cx.scale(50, 1000);
    if cx.me() > 0 {
        let own = target.at(part * cx.me());
        for round in 0..rounds {
            let len = 16 + round * 331 % (part - 16);
            run_delivered(cx, &port, Write::new(own, cx.payload(0, round, len)))?;
        }
    }
    cx.barrier()?;
    if cx.me() == 0 {
        let last = rounds - 1;
        for from in 1..cx.count() {
            let len = 16 + last * 331 % (part - 16);
            cx.verify(from, last, &memory.get(part * from, len))?;
        }
        memory.assert_canaries()?;
    }
    Ok(())
}

fn to_oneself(cx: &mut Cx) -> Result {
    let port = cx.port()?;
    for maker in MAKERS {
        let memory = cx.memory(&port, maker, 70_000)?;
        let place = cx.places(&port, &memory)?[0];
        for (number, len) in [1, 64, 5000, 65_000].into_iter().enumerate() {
            let bytes = cx.payload(0, number, len);
            run_delivered(cx, &port, Write::new(place.at(3), bytes.clone()))?;
            bytes_are("what was written", &memory.get(3, len), &bytes)?;
            let done = port
                .post_and_wait(Read::new(place.at(3), len))?
                .expect_success()?;
            bytes_are("what was read", &done.bytes, &bytes)?;
        }
    }
    Ok(())
}
