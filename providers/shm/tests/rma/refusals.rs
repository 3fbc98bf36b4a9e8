//! RMA accesses that are denied: a wrong key, an address out of bounds, missing rights, or a
//! withdrawn region.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use selvedge::rma::RmaIov;
use selvedge::{Context, Desc, Errno, IovMut, MrAccess, MrMode, OpFlags, RmaExt};
use selvedge_testkit::local::LocalEndpoint;
use selvedge_testkit::random::Random;

use crate::common::{KEY, PROTOCOLS, RmaPair, Write, info, read};

const READ_ONLY: u64 = 20;
const WRITE_ONLY: u64 = 21;

#[test]
fn violations_are_error_completions_with_key_and_address() {
    for protocol in PROTOCOLS {
        let pair = RmaPair::new(protocol, 4096);
        let memory = pair.b.memory(4096);
        let _read = pair.b.register(&memory, MrAccess::REMOTE_READ, READ_ONLY);
        let _write = pair.b.register(&memory, MrAccess::REMOTE_WRITE, WRITE_ONLY);
        let table = [
            // key, address, length, error of a write, error of a read
            (KEY, 0, 4096, None, None),
            (KEY, 4096, 0, None, None),
            (KEY, 4090, 7, Some(Errno::Fault), Some(Errno::Fault)),
            (KEY, 4097, 0, Some(Errno::Fault), Some(Errno::Fault)),
            (KEY, u64::MAX, 8, Some(Errno::Fault), Some(Errno::Fault)),
            (KEY, u64::MAX - 7, 8, Some(Errno::Fault), Some(Errno::Fault)),
            (KEY, 1, 100_000, Some(Errno::Fault), Some(Errno::Fault)),
            (READ_ONLY, 0, 8, Some(Errno::Acces), None),
            (WRITE_ONLY, 0, 8, None, Some(Errno::Acces)),
            (8, 0, 8, Some(Errno::KeyRejected), Some(Errno::KeyRejected)),
            (
                u64::MAX,
                0,
                8,
                Some(Errno::KeyRejected),
                Some(Errno::KeyRejected),
            ),
            (
                1 << 40,
                0,
                8,
                Some(Errno::KeyRejected),
                Some(Errno::KeyRejected),
            ),
        ];
        for (key, addr, len, writing, reading) in table {
            let segment = [RmaIov { addr, len, key }];
            let bytes = vec![1; len];
            let write_entry = pair.write(&Write::new(&[&bytes], &segment));
            let was_read = pair.read(&segment, &[len]);
            for (error, expected) in [(write_entry.err(), writing), (was_read.err(), reading)] {
                assert_eq!(error.as_ref().map(|e| e.errno), expected, "{segment:?}");
                let Some(error) = error else { continue };
                assert_eq!(error.src, pair.to_b);
                for named in [format!("{key:#x}"), format!("{addr:#x}"), len.to_string()] {
                    assert!(error.detail.contains(&named), "{}", error.detail);
                }
            }
        }
    }
}

#[test]
fn one_bad_segment_keeps_all_bytes_back() {
    let pair = RmaPair::new("auto", 4096);
    let remote = [pair.segment(0, 4), pair.segment(4094, 4)];
    let error = pair
        .write(&Write::new(&[b"12345678"], &remote))
        .unwrap_err();
    assert_eq!(error.errno, Errno::Fault);
    pair.settle();
    assert!(pair.memory.bytes().iter().all(|&byte| byte == 0));
}

#[test]
fn a_violation_of_an_inject_is_reported_without_a_context() {
    let pair = RmaPair::new("auto", 64);
    pair.a
        .ep
        .inject_write(b"12345678", pair.to_b, 60, KEY, None)
        .unwrap();
    let error = pair.wait_at_a().unwrap_err();
    assert_eq!(
        (error.errno, error.entry.context),
        (Errno::Fault, Context(0))
    );
}

#[test]
fn an_invalid_post_is_refused_at_once() {
    let pair = RmaPair::new("auto", 64);
    let five = [pair.segment(0, 1); 5];
    let post = |local: &[&[u8]], remote: &[RmaIov], flags| {
        let write = Write {
            flags,
            ..Write::new(local, remote)
        };
        write.post(&pair.a.ep, pair.to_b)
    };
    let none = OpFlags::empty();
    assert_eq!(post(&[b"12345"], &five, none), Err(Errno::Inval));
    assert_eq!(post(&[b"12345"], &five[..4], none), Err(Errno::Inval));
    assert_eq!(post(&[b""], &[], none), Err(Errno::Inval));
    assert_eq!(
        post(&[&b"1"[..]; 5], &[pair.segment(0, 5)], none),
        Err(Errno::Inval)
    );
    assert_eq!(
        post(&[b"1"], &five[..1], OpFlags::PEEK),
        Err(Errno::BadFlags)
    );
    assert!(pair.a.poll().is_none());
}

#[test]
fn a_key_ends_with_its_region() {
    for protocol in PROTOCOLS {
        let mut pair = RmaPair::new(protocol, 64);
        let segment = [pair.segment(0, 8)];
        pair.write(&Write::new(&[b"12345678"], &segment)).unwrap();
        pair.settle();
        let spare = pair.b.register(&pair.memory, MrAccess::REMOTE_READ, 1000);
        pair.rights = spare;
        let write = pair.write(&Write::new(&[b"87654321"], &segment));
        assert_eq!(write.unwrap_err().errno, Errno::KeyRejected);
        assert_eq!(
            pair.read(&segment, &[8]).unwrap_err().errno,
            Errno::KeyRejected
        );
        assert_eq!(&pair.memory.bytes()[..8], b"12345678");
    }
}

/// The initiator checks the key before the region is withdrawn, and the target checks it again
/// afterwards.
#[test]
fn an_outstanding_write_to_a_withdrawn_region_is_refused_by_the_target() {
    for (protocol, len) in [
        ("cma", 8),
        ("cma", 1000),
        ("cma", 100_000),
        ("bounce", 100_000),
    ] {
        let mut pair = RmaPair::new(protocol, 100_000);
        pair.read(&[pair.segment(0, 8)], &[8]).unwrap();
        let bytes = vec![1; len];
        let (local, segment) = ([&bytes[..]], [pair.segment(0, len)]);
        let write =
            Write::new(&local, &segment).flags(OpFlags::DELIVERY_COMPLETE | OpFlags::COMPLETION);
        pair.post(&write);
        pair.rights = pair.b.register(&pair.memory, MrAccess::REMOTE_READ, 1000);
        let error = pair.wait_at_a().unwrap_err();
        assert_eq!(error.errno, Errno::KeyRejected, "{protocol} {len}");
        assert!(pair.memory.bytes().iter().all(|&byte| byte == 0));
        // No state of the write remains.
        let segment = [RmaIov {
            addr: 0,
            len: 8,
            key: 1000,
        }];
        assert_eq!(pair.read(&segment, &[8]).unwrap(), [0; 8]);
    }
}

/// In a loop, the owner fills memory with ones, registers it, withdraws the region, and fills the
/// memory with twos: a read must return ones only. In every second round, the region outlasts a
/// whole read, so that reads succeed on a loaded machine, too. In the other rounds, the owner
/// withdraws the region at some moment after a read has begun.
#[test]
fn reads_never_see_bytes_that_reuse_a_region_s_memory() {
    for protocol in PROTOCOLS {
        let pair = RmaPair::new(protocol, 64);
        let memory = pair.b.memory(200_000);
        let (done, begun) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let (stop, reads, domain) = (Arc::clone(&done), Arc::clone(&begun), &pair.b.domain());
        let domain = Arc::clone(domain);
        let owner = std::thread::spawn(move || {
            let (memory, mut random) = (memory, Random::new(1));
            for round in 0_u64.. {
                memory.put(0, &vec![1; 200_000]);
                let region = memory.register(&*domain, MrAccess::REMOTE_READ, 50);
                let region = region.unwrap();
                // In an odd round, the second read from now on begins and ends while the region is
                // registered.
                let enough = reads.load(Ordering::Relaxed) + 1 + round % 2 * 2;
                while reads.load(Ordering::Relaxed) < enough && !stop.load(Ordering::Relaxed) {
                    (0..100).for_each(|_| std::hint::spin_loop());
                }
                (0..random.index(1000)).for_each(|_| std::hint::spin_loop());
                drop(region);
                memory.put(0, &vec![2; 200_000]);
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let (mut good, mut bad) = (0, 0);
        while good < 50 || bad < 20 {
            let segment = [RmaIov {
                addr: 0,
                len: 200_000,
                key: 50,
            }];
            begun.fetch_add(1, Ordering::Relaxed);
            match read(&pair.a, &[&pair.b], pair.to_b, &segment, &[200_000]) {
                Ok(bytes) => {
                    assert!(bytes.iter().all(|&byte| byte == 1), "{protocol}");
                    good += 1;
                }
                Err(error) => {
                    assert_eq!(error.errno, Errno::KeyRejected, "{protocol}");
                    bad += 1;
                }
            }
        }
        done.store(true, Ordering::Relaxed);
        owner.join().unwrap();
    }
}

#[test]
fn a_key_that_is_taken_is_refused_by_name() {
    let side = LocalEndpoint::open(&info(&[], MrMode::empty()));
    let memory = side.memory(64);
    let _first = side.register(&memory, MrAccess::REMOTE_READ, 77);
    let refused = memory.register(&**side.domain(), MrAccess::REMOTE_READ, 77);
    let refused: selvedge::Error = refused.unwrap_err().downcast().unwrap();
    assert_eq!(refused.errno(), Errno::NoKey);
    assert!(refused.message().contains("0x4d"), "{refused}");
}

#[test]
fn keys_that_are_announced_later_are_found() {
    let pair = RmaPair::new("cma", 64);
    pair.read(&[pair.segment(0, 8)], &[8]).unwrap();
    let memory = pair.b.memory(512);
    memory.fill(0, 512, 9);
    // The regions fill more than the first chunks of the key table, and no key equals the number
    // of a row.
    let regions: Vec<_> = (0..300)
        .map(|n| {
            pair.b
                .register(&memory, MrAccess::REMOTE_READ, (1 << 30) + 7 * n)
        })
        .collect();
    let mut bytes = [0; 8];
    for region in regions {
        let room = IovMut::new(&mut bytes);
        // SAFETY: the buffer outlives the completion.
        let posted = unsafe {
            pair.a
                .ep
                .read(room, Desc::NONE, pair.to_b, 5, region.key(), Context(1))
        };
        posted.unwrap();
        pair.a
            .poll()
            .expect("the read needs no progress of the target")
            .unwrap();
        assert_eq!(bytes, [9; 8]);
    }
}
