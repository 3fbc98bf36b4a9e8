//! Registered memory: writes, reads and atomics, and forbidden accesses.

#![expect(unsafe_code, reason = "tests of the raw API")]

use std::sync::Arc;

use selvedge::atomic::{Datatype, Ioc, IocMut, Op, Target};
use selvedge::rma::{ReadMsg, RmaIov, WriteMsg};
use selvedge::{
    AtomicExt, CompletionFlags, Context, Counter, Desc, Errno, FiAddr, Iov, IovMut, MrAccess,
    OpFlags, cntr,
};
use selvedge_testkit::domain::Block;
use selvedge_testkit::local::{open_domain, until};

use crate::endpoint::{CopyingEndpoint, pattern};
use crate::provider::{name_in_errors, pairs};

const BOTH: MrAccess = MrAccess::REMOTE_READ.union(MrAccess::REMOTE_WRITE);

/// Registers memory with these bytes, which the domain of `endpoint` keeps.
fn register(endpoint: &CopyingEndpoint, bytes: &[u8], access: MrAccess, key: u64) -> Block {
    let memory = endpoint.copy(bytes).memory;
    let rights = memory.register_segments(&**endpoint.domain(), access, key, 1);
    let rights = rights.unwrap();
    Block { memory, rights }
}

struct Pair {
    a: CopyingEndpoint,
    b: CopyingEndpoint,
    to_b: FiAddr,
}

/// Runs a test with each pair of endpoints.
fn for_each_pair(test: impl Fn(Pair)) {
    for [a, b] in pairs() {
        let to_b = a.insert_endpoint(&b);
        test(Pair { a, b, to_b });
    }
}

/// Copies bytes to memory that the domain of `endpoint` keeps. Returns their address.
fn keep(endpoint: &CopyingEndpoint, bytes: &[u8]) -> *mut u8 {
    endpoint.copy(bytes).memory.at(0, bytes.len())
}

fn remote(addr: u64, len: usize, key: u64) -> RmaIov {
    RmaIov { addr, len, key }
}

impl Pair {
    fn write(&self, local: &[&[u8]], rma_iov: &[RmaIov], flags: OpFlags, context: u64) {
        let iov: Vec<_> = local
            .iter()
            .map(|segment| Iov::from_raw(keep(&self.a, segment).cast(), segment.len()))
            .collect();
        let msg = WriteMsg {
            iov: &iov,
            desc: &[],
            dest: self.to_b,
            rma_iov,
            context: Context(context),
            data: 0xda7a,
        };
        // SAFETY: the domain keeps the bytes.
        unsafe { self.a.ep.writemsg(&msg, flags) }.unwrap();
    }

    fn read(&self, rma_iov: &[RmaIov], context: u64) -> Block {
        let len = rma_iov.iter().map(|segment| segment.len).sum();
        let region = register(&self.a, &vec![0; len], MrAccess::READ, 0);
        let iov = [IovMut::from_raw(region.memory.at(0, len).cast(), len)];
        let msg = ReadMsg {
            iov: &iov,
            desc: &[],
            src: self.to_b,
            rma_iov,
            context: Context(context),
        };
        // SAFETY: the domain keeps the bytes.
        unsafe { self.a.ep.readmsg(&msg, OpFlags::empty()) }.unwrap();
        region
    }
}

const WRITTEN: CompletionFlags = CompletionFlags::RMA.union(CompletionFlags::WRITE);

#[test]
fn writes_and_reads_of_every_size_are_exact() {
    for_each_pair(|pair| {
        let region = register(&pair.b, &vec![0; 3 << 20], BOTH, 7);
        for len in [0, 1, 8, 2048, 2049, 16_384, 16_385, 100_000, 2 << 20] {
            let bytes = pattern(len, len);
            let segment = remote(5, len, region.rights.key());
            pair.write(&[&bytes], &[segment], OpFlags::empty(), 1);
            assert_eq!(pair.a.wait_for(1, &[&pair.b]).flags, WRITTEN);
            assert_eq!(region.memory.bytes()[5..5 + len], bytes);
            let read = pair.read(&[segment], 2);
            pair.a.wait_for(2, &[&pair.b]);
            assert_eq!(read.memory.bytes(), bytes);
        }
        assert!(pair.b.poll().is_none(), "the target has no completions");
    });
}

#[test]
fn local_and_remote_segments_may_differ_and_data_follows_them() {
    for_each_pair(|pair| {
        let one = register(&pair.b, &[0; 64], BOTH, 1);
        let two = register(&pair.b, &[0; 64], BOTH, 2);
        let bytes = pattern(1, 50);
        let rma_iov = [
            remote(0, 10, 1),
            remote(8, 35, 2),
            remote(40, 0, 1),
            remote(60, 4, 1),
        ];
        let flags = OpFlags::REMOTE_CQ_DATA | OpFlags::DELIVERY_COMPLETE;
        pair.write(&[&bytes[..1], &bytes[1..49]], &rma_iov, flags, 1);
        pair.a.wait_for(1, &[&pair.b]);
        let entry = pair.b.wait(&[&pair.a]).unwrap();
        let flags =
            CompletionFlags::RMA | CompletionFlags::REMOTE_WRITE | CompletionFlags::REMOTE_CQ_DATA;
        assert_eq!((entry.flags, entry.len, entry.data), (flags, 49, 0xda7a));
        assert_eq!(one.memory.bytes()[..10], bytes[..10]);
        assert_eq!(two.memory.bytes()[8..43], bytes[10..45]);
        assert_eq!(one.memory.bytes()[60..], bytes[45..49]);
        let read = pair.read(&rma_iov, 2);
        pair.a.wait_for(2, &[&pair.b]);
        assert_eq!(read.memory.bytes(), bytes[..49]);
    });
}

#[test]
fn forbidden_accesses_fail_with_the_reason_and_change_nothing() {
    for_each_pair(|pair| {
        let open = register(&pair.b, &[1; 64], BOTH, 1);
        let _read_only = register(&pair.b, &[1; 64], MrAccess::REMOTE_READ, 2);
        let closed = register(&pair.b, &[1; 64], BOTH, 3);
        drop(closed);
        let table = [
            (remote(0, 8, 99), Errno::KeyRejected),
            (remote(0, 8, 3), Errno::KeyRejected),
            (remote(0, 8, 2), Errno::Acces),
            (remote(60, 8, 1), Errno::Fault),
            (remote(u64::MAX, 8, 1), Errno::Fault),
        ];
        for (segment, errno) in table {
            for len in [8, 100_000] {
                let segment = RmaIov { len, ..segment };
                let errno = if segment.key >= 2 {
                    errno
                } else {
                    Errno::Fault
                };
                let both = [remote(0, 4, 1), segment];
                pair.write(&[&vec![2; len + 4]], &both, OpFlags::empty(), 1);
                let error = pair.a.wait(&[&pair.b]).unwrap_err();
                assert_eq!((error.errno, error.entry.context), (errno, Context(1)));
                assert!(
                    error.detail.contains(&name_in_errors(&pair.b)),
                    "{}",
                    error.detail
                );
            }
        }
        let read = pair.read(&[remote(0, 8, 99)], 2);
        assert_eq!(
            pair.a.wait(&[&pair.b]).unwrap_err().errno,
            Errno::KeyRejected
        );
        assert_eq!(read.memory.bytes(), [0; 8]);
        assert_eq!(open.memory.bytes(), [1; 64]);
        // The connection is still usable.
        crate::endpoint::exchange(&pair.a, &pair.b);
    });
}

#[test]
fn a_region_closed_during_a_write_fails_that_write_alone() {
    for_each_pair(|pair| {
        let region = register(&pair.b, &vec![0; 8 << 20], BOTH, 1);
        let bytes = pattern(1, 8 << 20);
        pair.write(&[&bytes], &[remote(0, bytes.len(), 1)], OpFlags::empty(), 1);
        let is_partly_written = |region: &Block| region.memory.byte(1 << 20) == bytes[1 << 20];
        until(|| {
            pair.a.progress();
            pair.b.progress();
            is_partly_written(&region).then_some(())
        });
        drop(region.rights);
        match pair.a.wait(&[&pair.b]) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.errno, Errno::KeyRejected),
        }
        crate::endpoint::exchange(&pair.a, &pair.b);
    });
}

#[test]
fn a_region_closed_during_a_read_fails_that_read_alone() {
    for_each_pair(|pair| {
        let len = 64 << 20;
        let region = register(&pair.b, &vec![1; len], BOTH, 1);
        let _other = register(&pair.b, &pattern(2, 100_000), BOTH, 2);
        let first = pair.read(&[remote(0, len, 1)], 1);
        let second = pair.read(&[remote(0, 100_000, 2)], 2);
        until(|| {
            pair.b.progress();
            pair.a.progress();
            (first.memory.byte(0) == 1).then_some(())
        });
        drop(region.rights);
        match pair.a.wait(&[&pair.b]) {
            // The read was complete before the close.
            Ok(entry) => {
                assert_eq!(entry.context, Context(1));
                assert!(first.memory.bytes().iter().all(|&byte| byte == 1));
            }
            Err(error) => {
                assert_eq!(error.entry.context, Context(1));
                assert_eq!(error.errno, Errno::KeyRejected);
            }
        }
        assert_eq!(pair.a.wait(&[&pair.b]).unwrap().context, Context(2));
        assert_eq!(second.memory.bytes(), pattern(2, 100_000));
        crate::endpoint::exchange(&pair.a, &pair.b);
    });
}

#[test]
fn atomics_update_memory_and_fetch_the_previous_values() {
    for_each_pair(|pair| {
        let mut bytes = Vec::new();
        for number in [10_u64, 20, 30, 40] {
            bytes.extend(number.to_ne_bytes());
        }
        let region = register(&pair.b, &bytes, BOTH, 5);
        let words = || -> Vec<u64> {
            let bytes = region.memory.bytes();
            bytes
                .chunks(8)
                .map(|word| u64::from_ne_bytes(word.try_into().unwrap()))
                .collect()
        };
        let target = |op| Target {
            dest: pair.to_b,
            addr: 8,
            key: region.rights.key(),
            datatype: Datatype::Uint64,
            op,
        };
        let operand = keep(&pair.a, &[1_u64, 2].map(u64::to_ne_bytes).concat());
        let operand = Ioc::from_raw(operand.cast(), 2);
        let result = keep(&pair.a, &[0; 16]);
        let (desc, context) = (Desc::NONE, Context(3));
        // SAFETY: the domain keeps the bytes, here and below.
        unsafe { pair.a.ep.atomic(operand, desc, &target(Op::Sum), context) }.unwrap();
        let flags = CompletionFlags::ATOMIC | CompletionFlags::WRITE;
        assert_eq!(pair.a.wait_for(3, &[&pair.b]).flags, flags);
        assert_eq!(words(), [10, 21, 32, 40]);
        let fetched = IocMut::from_raw(result.cast(), 2);
        let product = Target {
            addr: 16,
            ..target(Op::Prod)
        };
        // SAFETY: as above.
        let posted = unsafe {
            pair.a
                .ep
                .fetch_atomic((operand, desc), (fetched, desc), &product, context)
        };
        posted.unwrap();
        pair.a.wait_for(3, &[&pair.b]);
        assert_eq!(words(), [10, 21, 32, 80]);
        // SAFETY: no operation writes there any more.
        let previous = unsafe { result.cast::<[u64; 2]>().read_unaligned() };
        assert_eq!(previous, [32, 40]);
        let misaligned = Target {
            addr: 4,
            ..target(Op::Sum)
        };
        // SAFETY: as above.
        unsafe { pair.a.ep.atomic(operand, desc, &misaligned, context) }.unwrap();
        assert_eq!(pair.a.wait(&[&pair.b]).unwrap_err().errno, Errno::Inval);
        assert_eq!(words(), [10, 21, 32, 80]);
    });
}

#[test]
fn concurrent_large_reads_between_many_endpoints_all_complete() {
    for_each_pair(|pair| {
        let Pair { a, b, to_b } = pair;
        let to_a = b.insert_endpoint(&a);
        let region_b = register(&b, &vec![3; 1 << 20], BOTH, 1);
        let region_a = register(&a, &vec![4; 1 << 20], BOTH, 1);
        let pair = Pair { a, b, to_b };
        let mut reads = Vec::new();
        for n in 0..40 {
            reads.push(pair.read(&[remote(0, 1 << 20, 1)], n));
            let buf = keep(&pair.b, &vec![0; 1 << 20]);
            let iov = [IovMut::from_raw(buf.cast(), 1 << 20)];
            let msg = ReadMsg {
                iov: &iov,
                desc: &[],
                src: to_a,
                rma_iov: &[remote(0, 1 << 20, 1)],
                context: Context(n),
            };
            // SAFETY: the domain keeps the bytes.
            unsafe { pair.b.ep.readmsg(&msg, OpFlags::empty()) }.unwrap();
        }
        for n in 0..40 {
            pair.a.wait_for(n, &[&pair.b]);
            pair.b.wait_for(n, &[&pair.a]);
        }
        assert!(
            reads
                .iter()
                .all(|read| read.memory.bytes() == region_b.memory.bytes())
        );
        assert_eq!(region_a.memory.bytes(), vec![4; 1 << 20]);
    });
}

#[test]
fn each_region_counts_its_accesses() {
    const SIZES: [usize; 5] = [0, 1, 2048, 16_385, 200_000];
    for_each_pair(|pair| {
        let counter = || pair.b.domain().cntr(&cntr::Attr::default()).unwrap();
        let counters: [[Arc<dyn Counter>; 2]; 2] = [(); 2].map(|()| [(); 2].map(|()| counter()));
        let counts = || {
            let read_both = |both: &[Arc<dyn Counter>; 2]| both.each_ref().map(|cntr| cntr.read());
            counters.each_ref().map(read_both)
        };
        let one = register(&pair.b, &vec![0; 200_000], BOTH, 1);
        let two = register(&pair.b, &vec![0; 200_000], BOTH, 2);
        for (region, [reads, writes]) in [&one, &two].into_iter().zip(&counters) {
            let handle = region.rights.region();
            handle.bind_counter(reads, MrAccess::REMOTE_READ).unwrap();
            handle.bind_counter(writes, MrAccess::REMOTE_WRITE).unwrap();
            let error = handle.bind_counter(writes, BOTH).unwrap_err();
            assert_eq!(error.errno(), Errno::Inval);
        }
        for (count, len) in (1..).zip(SIZES) {
            let flags = OpFlags::DELIVERY_COMPLETE;
            // Two segments in the first region count once.
            let rma_iov = [remote(0, len / 2, 1), remote(100_000, len - len / 2, 1)];
            pair.write(&[&pattern(len, len)], &rma_iov, flags, 1);
            pair.a.wait_for(1, &[&pair.b]);
            let _read = pair.read(&[remote(0, len, 2), remote(0, 0, 1)], 2);
            pair.a.wait_for(2, &[&pair.b]);
            let expected = [[count, count], [count, 0]];
            until(|| (counts() == expected).then_some(()));
        }
        let count = SIZES.len() as u64;
        fetch_and_add(&pair.a, pair.to_b);
        pair.a.wait_for(3, &[&pair.b]);
        let after_fetch = [[count + 1, count + 1], [count, 0]];
        until(|| (counts() == after_fetch).then_some(()));
        let operand = Ioc::from_raw(keep(&pair.a, &[1; 8]).cast(), 1);
        let target = Target {
            dest: pair.to_b,
            addr: 0,
            key: 2,
            datatype: Datatype::Uint64,
            op: Op::Sum,
        };
        // SAFETY: the domain keeps the bytes.
        unsafe { pair.a.ep.atomic(operand, Desc::NONE, &target, Context(3)) }.unwrap();
        pair.a.wait_for(3, &[&pair.b]);
        let after_sum = [[count + 1, count + 1], [count, 1]];
        until(|| (counts() == after_sum).then_some(()));
    });
}

#[test]
fn a_counter_bound_to_reads_and_writes_counts_a_fetching_atomic_once() {
    for_each_pair(|pair| {
        let counter = pair.b.domain().cntr(&cntr::Attr::default()).unwrap();
        let region = register(&pair.b, &[0; 8], BOTH, 1);
        region.rights.region().bind_counter(&counter, BOTH).unwrap();
        fetch_and_add(&pair.a, pair.to_b);
        pair.a.wait_for(3, &[&pair.b]);
        assert_eq!(counter.read(), 1);
        pair.write(
            &[&[1; 8]],
            &[remote(0, 8, 1)],
            OpFlags::DELIVERY_COMPLETE,
            1,
        );
        pair.a.wait_for(1, &[&pair.b]);
        let _read = pair.read(&[remote(0, 8, 1)], 2);
        pair.a.wait_for(2, &[&pair.b]);
        assert_eq!(counter.read(), 3);
    });
}

/// Adds to the first word of the region with key 1, and fetches the previous value.
fn fetch_and_add(side: &CopyingEndpoint, dest: FiAddr) {
    let operand = Ioc::from_raw(keep(side, &[1; 8]).cast(), 1);
    let result = IocMut::from_raw(keep(side, &[0; 8]).cast(), 1);
    let target = Target {
        dest,
        addr: 0,
        key: 1,
        datatype: Datatype::Uint64,
        op: Op::Sum,
    };
    let (operand, result) = ((operand, Desc::NONE), (result, Desc::NONE));
    // SAFETY: the domain keeps the bytes.
    let posted = unsafe { side.ep.fetch_atomic(operand, result, &target, Context(3)) };
    posted.unwrap();
}

#[test]
fn a_fetching_atomic_counts_as_a_read_at_the_target() {
    let info = crate::endpoint::info(selvedge::info::EpType::Rdm, &[]);
    let domain = open_domain(&info).unwrap();
    let [remote_reads, remote_writes] = [(); 2].map(|()| domain.count().unwrap());
    let b = CopyingEndpoint::open_in(&domain, |_, config| {
        config.counters.remote_read = Some(Arc::clone(remote_reads.cntr()));
        config.counters.remote_write = Some(Arc::clone(remote_writes.cntr()));
    });
    let a = CopyingEndpoint::new();
    let dest = a.insert_endpoint(&b);
    let _region = register(&b, &[0; 8], BOTH, 1);
    fetch_and_add(&a, dest);
    a.wait_for(3, &[&b]);
    assert_eq!((remote_reads.read(), remote_writes.read()), (1, 0));
}
