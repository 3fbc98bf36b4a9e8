//! Counters of regions: each counts what is done to its own, by every way that it can be done.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use selvedge::rma::RmaIov;
use selvedge::{
    Allocation, Bindings, Counter, Domain, Errno, MemoryRegion, MrAccess, MrMode, OpFlags, alloc,
    av, cntr, cq, wait,
};

use crate::common::{BOTH, Memory, Pair, Side, WAYS, Write, info, patiently, read, until};

/// Far above what anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);
const READ: MrAccess = MrAccess::REMOTE_READ;
const WRITTEN: MrAccess = MrAccess::REMOTE_WRITE;

fn counter(domain: &dyn Domain) -> Arc<dyn Counter> {
    domain.cntr(&cntr::Attr::default()).unwrap()
}

/// Two sides, and memory of `b`'s of both kinds: the test's own, and the domain's.
struct Ground {
    a: Side,
    b: Side,
    to_b: selvedge::FiAddr,
    private: Arc<dyn MemoryRegion>,
    special: Arc<dyn Allocation>,
}

const LEN: usize = 100_000;

impl Ground {
    fn new(way: &str) -> Self {
        let info = info(&[("FI_SHM_PROTOCOL", way)], MrMode::empty());
        let (a, b) = (Side::open(&info, |_, _| ()), Side::open(&info, |_, _| ()));
        let to_b = a.knows(&b);
        b.knows(&a);
        let private = b.reg(&Memory::new(LEN), BOTH, 3);
        let attr = alloc::Attr::new(BOTH).with_key(4);
        let special = b.domain.alloc(LEN, &attr).unwrap();
        Self {
            a,
            b,
            to_b,
            private,
            special,
        }
    }

    fn keys(&self) -> [u64; 2] {
        [self.private.key(), self.special.key()]
    }

    /// Writes and reads as much, with the other side's help if it is needed.
    fn act(&self, key: u64, len: usize) {
        let place = [RmaIov { addr: 5, len, key }];
        let bytes = vec![1; len];
        let pieces = [&bytes[..]];
        let write = Write::new(&pieces, &place).flags(OpFlags::DELIVERY_COMPLETE);
        patiently(&self.b, || write.post(&self.a.ep, self.to_b));
        self.a.wait(&self.b).unwrap();
        read(&self.a, &self.b, self.to_b, &place, &[len]).unwrap();
    }

    fn settle(&self) {
        for _ in 0..2000 {
            self.a.drive();
            self.b.drive();
        }
    }
}

#[test]
fn each_region_counts_accesses_by_every_protocol() {
    for way in WAYS {
        let ground = Ground::new(way);
        let [private, special] = [(); 2].map(|()| [(); 2].map(|()| counter(&*ground.b.domain)));
        ground.private.bind_counter(&private[0], READ).unwrap();
        ground.private.bind_counter(&private[1], WRITTEN).unwrap();
        ground.special.bind_counter(&special[0], READ).unwrap();
        ground.special.bind_counter(&special[1], WRITTEN).unwrap();
        let numbers = || [&private, &special].map(|both| both.each_ref().map(|it| it.read()));
        let mut expected = [[0; 2]; 2];
        for (turn, key) in ground.keys().into_iter().enumerate() {
            for len in [0, 1, 8, 40, 49, 4096, 90_000] {
                ground.act(key, len);
                expected[turn] = expected[turn].map(|count| count + 1);
                until(|| (numbers() == expected).then_some(()));
            }
        }
        ground.settle();
        assert_eq!(numbers(), expected, "{way}");
    }
}

#[test]
fn direct_accesses_are_counted_once_the_region_has_a_counter() {
    let ground = Ground::new("cma");
    // The initiator has looked the regions up, and does without the owner.
    ground.keys().into_iter().for_each(|key| ground.act(key, 8));
    let cntr = counter(&*ground.b.domain);
    ground.private.bind_counter(&cntr, READ | WRITTEN).unwrap();
    ground.special.bind_counter(&cntr, READ | WRITTEN).unwrap();
    for (turn, key) in ground.keys().into_iter().enumerate() {
        ground.act(key, 8);
        ground.act(key, 4096);
        let all = 4 * (turn as u64 + 1);
        until(|| (cntr.read() == all).then_some(()));
    }
    ground.settle();
    assert_eq!(cntr.read(), 8);
}

#[test]
fn an_operation_is_one_event_for_each_region_that_it_touches() {
    let pair = Pair::new("cma", 64);
    let other = pair.b.reg(&Memory::new(64), BOTH, 8);
    let mut attr = cntr::Attr::default();
    attr.events = cntr::Events::Bytes;
    let bytes = pair.b.domain.cntr(&attr).unwrap();
    let events = counter(&*pair.b.domain);
    pair.region.bind_counter(&events, WRITTEN).unwrap();
    other.bind_counter(&bytes, WRITTEN).unwrap();
    let place = |addr, len, key| RmaIov { addr, len, key };
    let places = [
        place(0, 3, pair.region.key()),
        place(10, 4, other.key()),
        place(20, 5, pair.region.key()),
        place(30, 6, other.key()),
    ];
    let data = [7; 18];
    pair.write(&Write::new(&[&data], &places)).unwrap();
    pair.settle();
    assert_eq!((events.read(), bytes.read()), (1, 10));
}

#[test]
fn reading_a_region_counter_progresses_the_endpoints_that_serve_the_region() {
    let ground = Ground::new("bounce");
    let cntr = counter(&*ground.b.domain);
    ground.private.bind_counter(&cntr, WRITTEN).unwrap();
    // An endpoint that is opened when the counter is there, by which the write comes.
    let cq = ground.b.domain.cq(&cq::Attr::default()).unwrap();
    let av = ground.b.domain.av(&av::Attr::default()).unwrap();
    let bind = Bindings::new(cq, av);
    let later = info(&[("FI_SHM_PROTOCOL", "bounce")], MrMode::empty());
    let later = ground.b.domain.endpoint(&later, bind).unwrap();
    let to_later = ground.a.insert(&later.address().unwrap().to_string());
    let bytes = vec![3; 50_000];
    let place = RmaIov {
        addr: 0,
        len: bytes.len(),
        key: ground.private.key(),
    };
    let (pieces, place) = ([&bytes[..]], [place]);
    let write = Write::new(&pieces, &place).flags(OpFlags::DELIVERY_COMPLETE);
    until(|| match write.post(&ground.a.ep, to_later) {
        Ok(()) => Some(()),
        Err(Errno::Again) => (cntr.read() == u64::MAX).then_some(()),
        Err(errno) => panic!("{errno}"),
    });
    until(|| {
        assert!(cntr.read() <= 1);
        ground.a.poll()
    })
    .unwrap();
    assert_eq!(cntr.read(), 1);
    drop(later);
    assert_eq!(cntr.read(), 1);
}

#[test]
fn a_reused_key_does_not_count_for_the_old_counter() {
    let pair = Pair::new("cma", 64);
    let cntr = counter(&*pair.b.domain);
    pair.region.bind_counter(&cntr, WRITTEN).unwrap();
    let Pair {
        a,
        b,
        to_b,
        memory,
        region,
    } = pair;
    drop(region);
    let region = b.reg(&memory, BOTH, crate::common::KEY);
    let pair = Pair {
        a,
        b,
        to_b,
        memory,
        region,
    };
    pair.write(&Write::new(&[b"12345678"], &[pair.place(0, 8)]))
        .unwrap();
    pair.settle();
    assert_eq!(
        (&pair.memory.get()[..8], cntr.read()),
        (&b"12345678"[..], 0)
    );
}

#[test]
fn counters_that_cannot_be_bound_are_refused_by_name() {
    let ground = Ground::new("cma");
    let cntr = counter(&*ground.b.domain);
    let refused = |region: &dyn MemoryRegion, cntr, what, named: &str| {
        let error = region.bind_counter(cntr, what).unwrap_err();
        assert_eq!(error.errno(), Errno::Inval);
        assert!(error.message().contains(named), "{error}");
    };
    refused(&*ground.private, &cntr, MrAccess::empty(), "key 0x3");
    refused(&*ground.private, &cntr, MrAccess::SEND, "SEND");
    refused(&*ground.special, &cntr, WRITTEN | MrAccess::READ, "key 0x4");
    ground.special.bind_counter(&cntr, WRITTEN).unwrap();
    refused(&*ground.special, &cntr, WRITTEN | READ, "has one");
    ground.special.bind_counter(&cntr, READ).unwrap();
    let local = ground.b.reg(&Memory::new(8), MrAccess::READ, 0);
    refused(&*local, &cntr, READ, "may not use");
}

#[test]
fn a_thread_parked_at_a_region_counter_is_woken_by_writes_and_reads() {
    let ground = Ground::new("cma");
    let mut attr = cntr::Attr::default();
    attr.wait_obj = wait::Object::Unspec;
    let cntr = ground.b.domain.cntr(&attr).unwrap();
    ground.private.bind_counter(&cntr, READ | WRITTEN).unwrap();
    ground.special.bind_counter(&cntr, READ | WRITTEN).unwrap();
    let sleeper = Arc::clone(&cntr);
    let sleeper =
        thread::spawn(move || (1..=8).try_for_each(|number| sleeper.wait(number, Some(PATIENCE))));
    let alone = |key, len| {
        let place = [RmaIov { addr: 0, len, key }];
        let bytes = vec![1; len];
        let pieces = [&bytes[..]];
        let write = Write::new(&pieces, &place).flags(OpFlags::DELIVERY_COMPLETE);
        // The sleeper is all that drives the other side.
        patiently(&ground.a, || write.post(&ground.a.ep, ground.to_b));
        ground.a.wait(&ground.a).unwrap();
        read(&ground.a, &ground.a, ground.to_b, &place, &[len]).unwrap();
    };
    for key in ground.keys() {
        alone(key, 8);
        alone(key, 50_000);
    }
    assert_eq!(sleeper.join().unwrap(), Ok(()));
    assert_eq!(cntr.read(), 8);
}
