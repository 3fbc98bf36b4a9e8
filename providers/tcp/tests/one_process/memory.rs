//! Registered memory: writes, reads and atomics, and forbidden accesses.

#![expect(unsafe_code, reason = "tests of the raw API")]

use std::sync::Arc;

use selvedge::atomic::{Datatype, Ioc, IocMut, Op, Target};
use selvedge::rma::{ReadMsg, RmaIov, WriteMsg};
use selvedge::{
    AtomicExt, CompletionFlags, Context, Counter, Desc, Errno, FiAddr, Iov, IovMut, MemoryRegion,
    MrAccess, OpFlags, cntr, mr,
};

use crate::provider::{name_in_errors, pairs};
use crate::side::{Side, pattern};

const BOTH: MrAccess = MrAccess::REMOTE_READ.union(MrAccess::REMOTE_WRITE);

/// A registered region of a side; the memory lives as long as the side.
struct Region {
    first: *mut u8,
    len: usize,
    handle: Arc<dyn MemoryRegion>,
}

impl Region {
    fn new(side: &Side, bytes: &[u8], access: MrAccess, key: u64) -> Self {
        let first = side.keep(bytes);
        let len = bytes.len();
        let mut attr = mr::Attr::default();
        attr.access = access;
        attr.requested_key = key;
        let iov = IovMut::from_raw(first.cast(), len);
        // SAFETY: the side keeps the bytes, and the tests read them when no operation is in
        // progress.
        let handle = unsafe { side.domain.reg(&[iov], &attr) }.unwrap();
        Self { first, len, handle }
    }

    fn bytes(&self) -> Vec<u8> {
        // SAFETY: memory of a side that still exists, while no peer writes.
        unsafe { std::slice::from_raw_parts(self.first, self.len) }.to_vec()
    }

    /// Reads one byte, for tests that poll: a copy of the region takes longer than a turn of
    /// progress.
    fn byte(&self, offset: usize) -> u8 {
        assert!(offset < self.len);
        // SAFETY: the offset is within the memory that the side keeps.
        let byte = unsafe { self.first.add(offset) };
        // SAFETY: memory of a side that still exists; the provider writes whole bytes.
        unsafe { byte.read_volatile() }
    }
}

struct Pair {
    a: Side,
    b: Side,
    to_b: FiAddr,
}

/// Runs a test with each pair of sides.
fn for_each_pair(test: impl Fn(Pair)) {
    for [a, b] in pairs() {
        let to_b = a.insert_peer(&b);
        test(Pair { a, b, to_b });
    }
}

fn remote(addr: u64, len: usize, key: u64) -> RmaIov {
    RmaIov { addr, len, key }
}

impl Pair {
    fn write(&self, local: &[&[u8]], rma_iov: &[RmaIov], flags: OpFlags, context: u64) {
        let iov: Vec<_> = local
            .iter()
            .map(|segment| Iov::from_raw(self.a.keep(segment).cast(), segment.len()))
            .collect();
        let msg = WriteMsg {
            iov: &iov,
            desc: &[],
            dest: self.to_b,
            rma_iov,
            context: Context(context),
            data: 0xda7a,
        };
        // SAFETY: the side keeps the bytes.
        unsafe { self.a.ep.writemsg(&msg, flags) }.unwrap();
    }

    fn read(&self, rma_iov: &[RmaIov], context: u64) -> Region {
        let len = rma_iov.iter().map(|segment| segment.len).sum();
        let region = Region::new(&self.a, &vec![0; len], MrAccess::READ, 0);
        let iov = [IovMut::from_raw(region.first.cast(), len)];
        let msg = ReadMsg {
            iov: &iov,
            desc: &[],
            src: self.to_b,
            rma_iov,
            context: Context(context),
        };
        // SAFETY: the side keeps the bytes.
        unsafe { self.a.ep.readmsg(&msg, OpFlags::empty()) }.unwrap();
        region
    }
}

const WRITTEN: CompletionFlags = CompletionFlags::RMA.union(CompletionFlags::WRITE);

#[test]
fn writes_and_reads_of_every_size_are_exact() {
    for_each_pair(|pair| {
        let region = Region::new(&pair.b, &vec![0; 3 << 20], BOTH, 7);
        for len in [0, 1, 8, 2048, 2049, 16_384, 16_385, 100_000, 2 << 20] {
            let bytes = pattern(len, len);
            let segment = remote(5, len, region.handle.key());
            pair.write(&[&bytes], &[segment], OpFlags::empty(), 1);
            assert_eq!(pair.a.wait_for(1, &[&pair.b]).flags, WRITTEN);
            assert_eq!(region.bytes()[5..5 + len], bytes);
            let read = pair.read(&[segment], 2);
            pair.a.wait_for(2, &[&pair.b]);
            assert_eq!(read.bytes(), bytes);
        }
        assert!(pair.b.poll().is_none(), "the target has no completions");
    });
}

#[test]
fn local_and_remote_segments_may_differ_and_data_follows_them() {
    for_each_pair(|pair| {
        let one = Region::new(&pair.b, &[0; 64], BOTH, 1);
        let two = Region::new(&pair.b, &[0; 64], BOTH, 2);
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
        assert_eq!(one.bytes()[..10], bytes[..10]);
        assert_eq!(two.bytes()[8..43], bytes[10..45]);
        assert_eq!(one.bytes()[60..], bytes[45..49]);
        let read = pair.read(&rma_iov, 2);
        pair.a.wait_for(2, &[&pair.b]);
        assert_eq!(read.bytes(), bytes[..49]);
    });
}

#[test]
fn forbidden_accesses_fail_with_the_reason_and_change_nothing() {
    for_each_pair(|pair| {
        let open = Region::new(&pair.b, &[1; 64], BOTH, 1);
        let _read_only = Region::new(&pair.b, &[1; 64], MrAccess::REMOTE_READ, 2);
        let closed = Region::new(&pair.b, &[1; 64], BOTH, 3);
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
        assert_eq!(read.bytes(), [0; 8]);
        assert_eq!(open.bytes(), [1; 64]);
        // The connection is still usable.
        crate::side::exchange(&pair.a, &pair.b);
    });
}

#[test]
fn a_region_closed_during_a_write_fails_that_write_alone() {
    for_each_pair(|pair| {
        let region = Region::new(&pair.b, &vec![0; 8 << 20], BOTH, 1);
        let bytes = pattern(1, 8 << 20);
        pair.write(&[&bytes], &[remote(0, bytes.len(), 1)], OpFlags::empty(), 1);
        let is_partly_written = |region: &Region| region.byte(1 << 20) == bytes[1 << 20];
        crate::side::until(|| {
            pair.a.drive();
            pair.b.drive();
            is_partly_written(&region).then_some(())
        });
        let Region { handle, .. } = region;
        drop(handle);
        match pair.a.wait(&[&pair.b]) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.errno, Errno::KeyRejected),
        }
        crate::side::exchange(&pair.a, &pair.b);
    });
}

#[test]
fn a_region_closed_during_a_read_fails_that_read_alone() {
    for_each_pair(|pair| {
        let len = 64 << 20;
        let region = Region::new(&pair.b, &vec![1; len], BOTH, 1);
        let _other = Region::new(&pair.b, &pattern(2, 100_000), BOTH, 2);
        let first = pair.read(&[remote(0, len, 1)], 1);
        let second = pair.read(&[remote(0, 100_000, 2)], 2);
        crate::side::until(|| {
            pair.b.drive();
            pair.a.drive();
            (first.byte(0) == 1).then_some(())
        });
        let Region { handle, .. } = region;
        drop(handle);
        match pair.a.wait(&[&pair.b]) {
            // The read was complete before the close.
            Ok(entry) => {
                assert_eq!(entry.context, Context(1));
                assert!(first.bytes().iter().all(|&byte| byte == 1));
            }
            Err(error) => {
                assert_eq!(error.entry.context, Context(1));
                assert_eq!(error.errno, Errno::KeyRejected);
            }
        }
        assert_eq!(pair.a.wait(&[&pair.b]).unwrap().context, Context(2));
        assert_eq!(second.bytes(), pattern(2, 100_000));
        crate::side::exchange(&pair.a, &pair.b);
    });
}

#[test]
fn atomics_update_memory_and_fetch_the_previous_values() {
    for_each_pair(|pair| {
        let mut bytes = Vec::new();
        for number in [10_u64, 20, 30, 40] {
            bytes.extend(number.to_ne_bytes());
        }
        let region = Region::new(&pair.b, &bytes, BOTH, 5);
        let words = || -> Vec<u64> {
            let bytes = region.bytes();
            bytes
                .chunks(8)
                .map(|word| u64::from_ne_bytes(word.try_into().unwrap()))
                .collect()
        };
        let target = |op| Target {
            dest: pair.to_b,
            addr: 8,
            key: region.handle.key(),
            datatype: Datatype::Uint64,
            op,
        };
        let operand = pair.a.keep(&[1_u64, 2].map(u64::to_ne_bytes).concat());
        let operand = Ioc::from_raw(operand.cast(), 2);
        let result = pair.a.keep(&[0; 16]);
        let (desc, context) = (Desc::NONE, Context(3));
        // SAFETY: the side keeps the bytes, here and below.
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
        let to_a = b.insert_peer(&a);
        let region_b = Region::new(&b, &vec![3; 1 << 20], BOTH, 1);
        let region_a = Region::new(&a, &vec![4; 1 << 20], BOTH, 1);
        let pair = Pair { a, b, to_b };
        let mut reads = Vec::new();
        for n in 0..40 {
            reads.push(pair.read(&[remote(0, 1 << 20, 1)], n));
            let buf = pair.b.keep(&vec![0; 1 << 20]);
            let iov = [IovMut::from_raw(buf.cast(), 1 << 20)];
            let msg = ReadMsg {
                iov: &iov,
                desc: &[],
                src: to_a,
                rma_iov: &[remote(0, 1 << 20, 1)],
                context: Context(n),
            };
            // SAFETY: the side keeps the bytes.
            unsafe { pair.b.ep.readmsg(&msg, OpFlags::empty()) }.unwrap();
        }
        for n in 0..40 {
            pair.a.wait_for(n, &[&pair.b]);
            pair.b.wait_for(n, &[&pair.a]);
        }
        assert!(reads.iter().all(|read| read.bytes() == region_b.bytes()));
        assert_eq!(region_a.bytes(), vec![4; 1 << 20]);
    });
}

#[test]
fn each_region_counts_its_accesses() {
    const SIZES: [usize; 5] = [0, 1, 2048, 16_385, 200_000];
    for_each_pair(|pair| {
        let counter = || pair.b.domain.cntr(&cntr::Attr::default()).unwrap();
        let counters: [[Arc<dyn Counter>; 2]; 2] = [(); 2].map(|()| [(); 2].map(|()| counter()));
        let counts = || {
            let read_both = |both: &[Arc<dyn Counter>; 2]| both.each_ref().map(|cntr| cntr.read());
            counters.each_ref().map(read_both)
        };
        let one = Region::new(&pair.b, &vec![0; 200_000], BOTH, 1);
        let two = Region::new(&pair.b, &vec![0; 200_000], BOTH, 2);
        for (region, [reads, writes]) in [&one, &two].into_iter().zip(&counters) {
            let handle = &region.handle;
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
            crate::side::until(|| (counts() == expected).then_some(()));
        }
        let count = SIZES.len() as u64;
        fetch_and_add(&pair.a, pair.to_b);
        pair.a.wait_for(3, &[&pair.b]);
        let after_fetch = [[count + 1, count + 1], [count, 0]];
        crate::side::until(|| (counts() == after_fetch).then_some(()));
        let operand = Ioc::from_raw(pair.a.keep(&[1; 8]).cast(), 1);
        let target = Target {
            dest: pair.to_b,
            addr: 0,
            key: 2,
            datatype: Datatype::Uint64,
            op: Op::Sum,
        };
        // SAFETY: the side keeps the bytes.
        unsafe { pair.a.ep.atomic(operand, Desc::NONE, &target, Context(3)) }.unwrap();
        pair.a.wait_for(3, &[&pair.b]);
        let after_sum = [[count + 1, count + 1], [count, 1]];
        crate::side::until(|| (counts() == after_sum).then_some(()));
    });
}

#[test]
fn a_counter_bound_to_reads_and_writes_counts_a_fetching_atomic_once() {
    for_each_pair(|pair| {
        let counter = pair.b.domain.cntr(&cntr::Attr::default()).unwrap();
        let region = Region::new(&pair.b, &[0; 8], BOTH, 1);
        region.handle.bind_counter(&counter, BOTH).unwrap();
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
fn fetch_and_add(side: &Side, dest: FiAddr) {
    let operand = Ioc::from_raw(side.keep(&[1; 8]).cast(), 1);
    let result = IocMut::from_raw(side.keep(&[0; 8]).cast(), 1);
    let target = Target {
        dest,
        addr: 0,
        key: 1,
        datatype: Datatype::Uint64,
        op: Op::Sum,
    };
    let (operand, result) = ((operand, Desc::NONE), (result, Desc::NONE));
    // SAFETY: the side keeps the bytes.
    let posted = unsafe { side.ep.fetch_atomic(operand, result, &target, Context(3)) };
    posted.unwrap();
}

#[test]
fn a_fetching_atomic_counts_as_a_read_at_the_target() {
    let info = crate::side::info(selvedge::info::EpType::Rdm, &[]);
    let domain = info.open().unwrap();
    let cq = domain.cq(&selvedge::cq::Attr::default()).unwrap();
    let av = domain.av(&selvedge::av::Attr::default()).unwrap();
    let counter = || domain.cntr(&cntr::Attr::default()).unwrap();
    let (remote_reads, remote_writes) = (counter(), counter());
    let mut bind = selvedge::Bindings::new(Arc::clone(&cq), Arc::clone(&av));
    bind.cntrs.remote_read = Some(Arc::clone(&remote_reads));
    bind.cntrs.remote_write = Some(Arc::clone(&remote_writes));
    let ep = domain.endpoint(&info, bind).unwrap();
    let b = Side::from_parts(ep, cq, av, domain);
    let a = Side::new();
    let dest = a.insert_peer(&b);
    let _region = Region::new(&b, &[0; 8], BOTH, 1);
    fetch_and_add(&a, dest);
    a.wait_for(3, &[&b]);
    assert_eq!((remote_reads.read(), remote_writes.read()), (1, 0));
}
