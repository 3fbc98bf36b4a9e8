//! A counter that is bound to a memory region counts the accesses of peers, by every protocol.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use selvedge::rma::RmaIov;
use selvedge::{
    Allocation, Counter, Domain, Errno, MemoryRegion, MrAccess, MrMode, OpFlags, alloc, cntr, wait,
};
use selvedge_testkit::local::{EndpointPair, until};

use crate::common::{BOTH, KEY, PROTOCOLS, RmaPair, Write, info, read};

/// Far above the duration of any wait in this file.
const TIMEOUT: Duration = Duration::from_secs(60);
const READ: MrAccess = MrAccess::REMOTE_READ;
const WRITTEN: MrAccess = MrAccess::REMOTE_WRITE;

fn counter(domain: &dyn Domain) -> Arc<dyn Counter> {
    domain.cntr(&cntr::Attr::default()).unwrap()
}

/// A pair, and two regions of `b`: private memory of the test, and special memory of the domain.
struct CountedRegions {
    pair: EndpointPair,
    private: Arc<dyn MemoryRegion>,
    special: Arc<dyn Allocation>,
}

const LEN: usize = 100_000;

impl CountedRegions {
    fn new(protocol: &str) -> Self {
        let info = info(&[("FI_SHM_PROTOCOL", protocol)], MrMode::empty());
        let pair = EndpointPair::open(&info);
        let private = pair.b.register(&pair.b.memory(LEN), BOTH, 3);
        let attr = alloc::Attr::new(BOTH).with_key(4);
        let special = pair.b.domain().alloc(LEN, &attr).unwrap();
        Self {
            pair,
            private: Arc::clone(private.region()),
            special,
        }
    }

    fn keys(&self) -> [u64; 2] {
        [self.private.key(), self.special.key()]
    }

    /// Writes and then reads `len` bytes of a region, and progresses the region's side meanwhile.
    fn write_and_read(&self, key: u64, len: usize) {
        let segment = [RmaIov { addr: 5, len, key }];
        let bytes = vec![1; len];
        let local = [&bytes[..]];
        let write = Write::new(&local, &segment).flags(OpFlags::DELIVERY_COMPLETE);
        let EndpointPair { a, b, to_b, .. } = &self.pair;
        a.post_retrying(&[b], || write.post(&a.ep, *to_b));
        self.pair.wait_at_a().unwrap();
        read(a, &[b], *to_b, &segment, &[len]).unwrap();
    }
}

#[test]
fn each_region_counts_accesses_by_every_protocol() {
    for protocol in PROTOCOLS {
        let regions = CountedRegions::new(protocol);
        let [private, special] =
            [(); 2].map(|()| [(); 2].map(|()| counter(&**regions.pair.b.domain())));
        regions.private.bind_counter(&private[0], READ).unwrap();
        regions.private.bind_counter(&private[1], WRITTEN).unwrap();
        regions.special.bind_counter(&special[0], READ).unwrap();
        regions.special.bind_counter(&special[1], WRITTEN).unwrap();
        let numbers = || [&private, &special].map(|both| both.each_ref().map(|it| it.read()));
        let mut expected = [[0; 2]; 2];
        for (turn, key) in regions.keys().into_iter().enumerate() {
            for len in [0, 1, 8, 40, 49, 4096, 90_000] {
                regions.write_and_read(key, len);
                expected[turn] = expected[turn].map(|count| count + 1);
                until(|| (numbers() == expected).then_some(()));
            }
        }
        regions.pair.settle();
        assert_eq!(numbers(), expected, "{protocol}");
    }
}

#[test]
fn direct_accesses_are_counted_once_the_region_has_a_counter() {
    let regions = CountedRegions::new("cma");
    // From these first accesses on, the initiator knows the regions and accesses them directly.
    regions
        .keys()
        .into_iter()
        .for_each(|key| regions.write_and_read(key, 8));
    let cntr = counter(&**regions.pair.b.domain());
    regions.private.bind_counter(&cntr, READ | WRITTEN).unwrap();
    regions.special.bind_counter(&cntr, READ | WRITTEN).unwrap();
    for (turn, key) in regions.keys().into_iter().enumerate() {
        regions.write_and_read(key, 8);
        regions.write_and_read(key, 4096);
        let all = 4 * (turn as u64 + 1);
        until(|| (cntr.read() == all).then_some(()));
    }
    regions.pair.settle();
    assert_eq!(cntr.read(), 8);
}

#[test]
fn an_operation_is_one_event_for_each_region_that_it_touches() {
    let pair = RmaPair::new("cma", 64);
    let other = pair.b.register(&pair.b.memory(64), BOTH, 8);
    let mut attr = cntr::Attr::default();
    attr.events = cntr::Events::Bytes;
    let bytes = pair.b.domain().cntr(&attr).unwrap();
    let events = counter(&**pair.b.domain());
    pair.rights.region().bind_counter(&events, WRITTEN).unwrap();
    other.region().bind_counter(&bytes, WRITTEN).unwrap();
    let segment = |addr, len, key| RmaIov { addr, len, key };
    let remote = [
        segment(0, 3, pair.rights.key()),
        segment(10, 4, other.key()),
        segment(20, 5, pair.rights.key()),
        segment(30, 6, other.key()),
    ];
    let data = [7; 18];
    pair.write(&Write::new(&[&data], &remote)).unwrap();
    pair.settle();
    assert_eq!((events.read(), bytes.read()), (1, 10));
}

#[test]
fn reading_a_region_counter_progresses_the_endpoints_that_serve_the_region() {
    let regions = CountedRegions::new("bounce");
    let cntr = counter(&**regions.pair.b.domain());
    regions.private.bind_counter(&cntr, WRITTEN).unwrap();
    // The endpoint `later` is opened after the counter was bound, and receives the write.
    let later = regions.pair.b.open_sibling(|_, _| ());
    let to_later = regions.pair.a.insert_endpoint(&later);
    let bytes = vec![3; 50_000];
    let segment = RmaIov {
        addr: 0,
        len: bytes.len(),
        key: regions.private.key(),
    };
    let (local, segment) = ([&bytes[..]], [segment]);
    let write = Write::new(&local, &segment).flags(OpFlags::DELIVERY_COMPLETE);
    until(|| match write.post(&regions.pair.a.ep, to_later) {
        Ok(()) => Some(()),
        Err(Errno::Again) => (cntr.read() == u64::MAX).then_some(()),
        Err(errno) => panic!("{errno}"),
    });
    until(|| {
        assert!(cntr.read() <= 1);
        regions.pair.a.poll()
    })
    .unwrap();
    assert_eq!(cntr.read(), 1);
    drop(later);
    assert_eq!(cntr.read(), 1);
}

#[test]
fn a_reused_key_does_not_count_for_the_old_counter() {
    let mut pair = RmaPair::new("cma", 64);
    let cntr = counter(&**pair.b.domain());
    pair.rights.region().bind_counter(&cntr, WRITTEN).unwrap();
    drop(pair.rights);
    pair.rights = pair.pair.b.register(&pair.memory, BOTH, KEY);
    pair.write(&Write::new(&[b"12345678"], &[pair.segment(0, 8)]))
        .unwrap();
    pair.settle();
    assert_eq!(
        (&pair.memory.bytes()[..8], cntr.read()),
        (&b"12345678"[..], 0)
    );
}

#[test]
fn counters_that_cannot_be_bound_are_refused_by_name() {
    let regions = CountedRegions::new("cma");
    let cntr = counter(&**regions.pair.b.domain());
    let refused = |region: &dyn MemoryRegion, cntr, events, named: &str| {
        let error = region.bind_counter(cntr, events).unwrap_err();
        assert_eq!(error.errno(), Errno::Inval);
        assert!(error.message().contains(named), "{error}");
    };
    refused(&*regions.private, &cntr, MrAccess::empty(), "key 0x3");
    refused(&*regions.private, &cntr, MrAccess::SEND, "SEND");
    refused(
        &*regions.special,
        &cntr,
        WRITTEN | MrAccess::READ,
        "key 0x4",
    );
    regions.special.bind_counter(&cntr, WRITTEN).unwrap();
    refused(&*regions.special, &cntr, WRITTEN | READ, "has one");
    regions.special.bind_counter(&cntr, READ).unwrap();
    let domain = &**regions.pair.b.domain();
    let memory = regions.pair.b.memory(8);
    let local = memory.register_segments(domain, MrAccess::READ, 0, 1);
    let local = local.unwrap();
    refused(&**local.region(), &cntr, READ, "without remote rights");
}

#[test]
fn a_thread_parked_at_a_region_counter_is_woken_by_writes_and_reads() {
    let regions = CountedRegions::new("cma");
    let mut attr = cntr::Attr::default();
    attr.wait_obj = wait::Object::Unspec;
    let cntr = regions.pair.b.domain().cntr(&attr).unwrap();
    regions.private.bind_counter(&cntr, READ | WRITTEN).unwrap();
    regions.special.bind_counter(&cntr, READ | WRITTEN).unwrap();
    let waiter = Arc::clone(&cntr);
    let waiter =
        thread::spawn(move || (1..=8).try_for_each(|number| waiter.wait(number, Some(TIMEOUT))));
    let write_and_read_alone = |key, len| {
        let segment = [RmaIov { addr: 0, len, key }];
        let bytes = vec![1; len];
        let local = [&bytes[..]];
        let write = Write::new(&local, &segment).flags(OpFlags::DELIVERY_COMPLETE);
        // Only the waiting thread progresses side `b`.
        regions
            .pair
            .a
            .post_retrying(&[], || write.post(&regions.pair.a.ep, regions.pair.to_b));
        regions.pair.a.wait(&[]).unwrap();
        read(&regions.pair.a, &[], regions.pair.to_b, &segment, &[len]).unwrap();
    };
    for key in regions.keys() {
        write_and_read_alone(key, 8);
        write_and_read_alone(key, 50_000);
    }
    assert_eq!(waiter.join().unwrap(), Ok(()));
    assert_eq!(cntr.read(), 8);
}
