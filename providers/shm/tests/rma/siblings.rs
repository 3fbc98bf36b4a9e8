//! One-sided operations between two endpoints of one domain, and from an endpoint to itself. The
//! post executes the operation; the target need not make progress.

use std::sync::Arc;

use selvedge::atomic::{Datatype, Ioc, IocMut, Op, Target};
use selvedge::rma::RmaIov;
use selvedge::{
    AtomicExt, Context, Counter, Desc, Errno, FiAddr, Hints, IovMut, MrMode, OpFlags, RmaExt, cntr,
};
use selvedge_testkit::domain::{Memory, Rights};
use selvedge_testkit::local::{self, LocalEndpoint, until};

use crate::common::{BOTH, KEY, Write, info, remote_write_entry, write_entry};

const LEN: usize = 100_000;
/// Transfer lengths that together cover every protocol of operations between processes.
const LENGTHS: [usize; 5] = [8, 5, 1000, 20_000, LEN];

/// Two endpoints of one domain, which use one address vector, and memory that the domain has
/// registered.
struct Siblings {
    side: LocalEndpoint,
    other: LocalEndpoint,
    /// Counts the writes that `other` receives. Bound to `other` only on request.
    incoming: Arc<dyn Counter>,
    /// The addresses of `side` and `other` in the address vector.
    addrs: [FiAddr; 2],
    memory: Memory,
    _rights: Rights,
}

impl Siblings {
    fn open(counts: bool) -> Self {
        let info = info(&[], MrMode::empty());
        let side = LocalEndpoint::open(&info);
        let incoming = side.domain().cntr(&cntr::Attr::default()).unwrap();
        let other = side.open_sibling(|_, config| {
            config.av = Some(Arc::clone(&side.av));
            config.counters.remote_write = counts.then(|| Arc::clone(&incoming));
        });
        let memory = side.memory(LEN);
        let rights = side.register(&memory, BOTH, KEY);
        let addrs = [&side, &other].map(|endpoint| side.insert_endpoint(endpoint));
        Self {
            side,
            other,
            incoming,
            addrs,
            memory,
            _rights: rights,
        }
    }

    fn segment(len: usize) -> [RmaIov; 1] {
        [RmaIov {
            addr: 0,
            len,
            key: KEY,
        }]
    }
}

fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + seed) as u8 | 1).collect()
}

#[test]
fn bytes_are_stored_when_the_post_returns() {
    let it = Siblings::open(false);
    for (number, dest) in it.addrs.into_iter().enumerate() {
        for len in LENGTHS {
            let bytes = pattern(len + number, len);
            let (segment, local) = (Siblings::segment(len), [&bytes[..]]);
            for flags in [OpFlags::DEFAULT, OpFlags::DELIVERY_COMPLETE] {
                it.memory.put(0, &vec![0; len]);
                let write = Write::new(&local, &segment).flags(flags | OpFlags::COMPLETION);
                write.post(&it.side.ep, dest).unwrap();
                assert!(it.memory.bytes()[..len] == bytes, "{len} bytes, {flags:?}");
                assert_eq!(until(|| it.side.poll()).unwrap(), write_entry(9));
            }
            let mut back = vec![0; len];
            let buf = IovMut::new(&mut back);
            // SAFETY: the buffer lives until the completion, which is waited for.
            let read = unsafe { it.side.ep.read(buf, Desc::NONE, dest, 0, KEY, Context(3)) };
            read.unwrap();
            assert_eq!(until(|| it.side.poll()).unwrap().context, Context(3));
            assert!(back == bytes, "{len} bytes back");
        }
        it.side
            .ep
            .inject_write(&[42; 100], dest, 0, KEY, None)
            .unwrap();
        assert_eq!(it.memory.bytes()[..100], [42; 100]);
    }
}

#[test]
fn atomics_are_done_when_the_post_returns() {
    let it = Siblings::open(false);
    for dest in it.addrs {
        it.memory.put(0, &5_u64.to_ne_bytes());
        let target = Target {
            dest,
            addr: 0,
            key: KEY,
            datatype: Datatype::Uint64,
            op: Op::Sum,
        };
        it.side
            .ep
            .inject_atomic(&2_u64.to_ne_bytes(), &target)
            .unwrap();
        assert_eq!(it.memory.bytes()[..8], 7_u64.to_ne_bytes());
        let (operand, mut earlier) = (3_u64, 0_u64);
        let buf = (Ioc::from_raw((&raw const operand).cast(), 1), Desc::NONE);
        let result = (IocMut::from_raw((&raw mut earlier).cast(), 1), Desc::NONE);
        // SAFETY: the operands live until the completion, which is waited for.
        let fetched = unsafe { it.side.ep.fetch_atomic(buf, result, &target, Context(4)) };
        fetched.unwrap();
        assert_eq!(it.memory.bytes()[..8], 10_u64.to_ne_bytes());
        assert_eq!(until(|| it.side.poll()).unwrap().context, Context(4));
        assert_eq!(earlier, 7);
    }
}

#[test]
fn a_sibling_that_counts_is_notified_once_and_gets_the_data() {
    let it = Siblings::open(true);
    let [_, dest] = it.addrs;
    let bytes = pattern(1, 64);
    let (segment, local) = (Siblings::segment(64), [&bytes[..]]);
    for round in 1..=3 {
        Write::new(&local, &segment)
            .data(7)
            .post(&it.side.ep, dest)
            .unwrap();
        let entry = until(|| {
            it.side.progress();
            it.other.poll()
        });
        assert_eq!(entry.unwrap(), remote_write_entry(7, 64));
        assert_eq!(until(|| it.side.poll()).unwrap(), write_entry(9));
        assert_eq!(it.incoming.read(), round);
    }
}

#[test]
fn an_access_beyond_the_key_s_rights_is_an_error_completion() {
    let it = Siblings::open(false);
    for dest in it.addrs {
        let (bytes, mut segment) = ([1; 16], Siblings::segment(16));
        segment[0].addr = LEN as u64 - 8;
        Write::new(&[&bytes], &segment)
            .post(&it.side.ep, dest)
            .unwrap();
        let error = until(|| it.side.poll()).unwrap_err();
        assert_eq!(error.errno, Errno::Fault, "{error:?}");
        segment[0] = RmaIov {
            addr: 0,
            len: 16,
            key: KEY + 1,
        };
        Write::new(&[&bytes], &segment)
            .post(&it.side.ep, dest)
            .unwrap();
        let error = until(|| it.side.poll()).unwrap_err();
        assert_eq!(error.errno, Errno::KeyRejected, "{error:?}");
    }
}

#[test]
fn a_closed_sibling_is_a_disconnected_peer() {
    let it = Siblings::open(false);
    let [_, dest] = it.addrs;
    let (bytes, segment) = ([1; 16], Siblings::segment(16));
    let local = [&bytes[..]];
    let write = Write::new(&local, &segment);
    write.post(&it.side.ep, dest).unwrap();
    assert_eq!(until(|| it.side.poll()).unwrap(), write_entry(9));
    drop(it.other);
    it.memory.put(0, &[0; 16]);
    let _ = write.post(&it.side.ep, dest);
    assert_eq!(it.memory.bytes()[..16], [0; 16]);
}

#[test]
fn endpoints_of_two_domains_are_no_siblings() {
    let hints = Hints::new().caps(info(&[], MrMode::empty()).caps);
    let info = || local::info(&selvedge_shm::PROVIDER, &[], &hints);
    let [a, b] = [(); 2].map(|()| LocalEndpoint::open(&info()));
    let (local_memory, remote_memory) = (a.memory(64), b.memory(64));
    let _rights = [
        a.register(&local_memory, BOTH, KEY),
        b.register(&remote_memory, BOTH, KEY),
    ];
    let to_b = a.insert_endpoint(&b);
    b.insert_endpoint(&a);
    Write::new(&[&[3; 64]], &Siblings::segment(64))
        .flags(OpFlags::DELIVERY_COMPLETE | OpFlags::COMPLETION)
        .post(&a.ep, to_b)
        .unwrap();
    assert_eq!(a.wait(&[&b]).unwrap(), write_entry(9));
    assert_eq!(
        (local_memory.bytes(), remote_memory.bytes()),
        (vec![0; 64], vec![3; 64])
    );
}
