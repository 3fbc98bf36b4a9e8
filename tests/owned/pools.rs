//! Pools and their buffers.

use std::sync::Arc;
use std::thread;

use selvedge::owned::{Endpoint, Pool, PoolSet};
use selvedge::{Context, Domain as _, Errno, FiAddr, MrAccess, MrMode, alloc};

use crate::loopback::{self, Net};

#[test]
fn buffers_are_distinct_and_page_aligned_at_the_front() {
    let pool = Pool::new(&*Net::new().domain, 100, 3).unwrap();
    let mut bufs: Vec<_> = (0..3).map(|_| pool.take().unwrap()).collect();
    assert!(pool.take().is_none());
    assert_eq!(bufs[0].as_ptr().addr() % 4096, 0);
    for (buf, byte) in bufs.iter_mut().zip(1..) {
        buf.write(&[byte; 100]).unwrap();
    }
    for (buf, byte) in bufs.iter().zip(1u8..) {
        assert_eq!(&buf[..], [byte; 100]);
    }
}

#[test]
fn a_dropped_buffer_is_reused_and_empty() {
    let pool = Net::new().pool(1);
    let mut buf = pool.take().unwrap();
    buf.write(b"hello").unwrap();
    drop(buf);
    assert!(pool.take().unwrap().is_empty());
}

#[test]
fn a_message_that_does_not_fit_leaves_the_buffer_unchanged() {
    let pool = Net::new().pool(1);
    let mut buf = pool.take().unwrap();
    buf.write(b"hello").unwrap();
    assert_eq!(buf.write(&[0; 65]), Err(Errno::TooSmall));
    assert_eq!(buf.set_len(65), Err(Errno::TooSmall));
    assert_eq!(&buf[..], b"hello");
}

#[test]
fn a_lengthened_message_is_writable_to_its_end() {
    let pool = Net::new().pool(1);
    let mut buf = pool.take().unwrap();
    buf.set_len(64).unwrap();
    assert_eq!(&buf[..], [0; 64]);
    buf[63] = 1;
    assert_eq!(buf.last(), Some(&1));
}

#[test]
fn a_buffer_outlives_its_pool_and_domain() {
    let net = Net::new();
    let pool = net.pool(1);
    let mut buf = pool.take().unwrap();
    drop((pool, net));
    buf.write(b"hello").unwrap();
    assert_eq!(&buf[..], b"hello");
}

#[test]
fn a_buffer_returns_from_another_thread() {
    let pool = Net::new().pool(1);
    let buf = pool.take().unwrap();
    thread::spawn(move || drop(buf)).join().unwrap();
    assert_eq!(pool.available(), 1);
}

#[test]
fn a_pool_is_registered_if_the_domain_requires_registration() {
    let net = Net::new();
    let pool = net.pool(1);
    assert_eq!(net.wire().regions(), 0);
    drop(pool);

    let domain = net.domain.with_mr_mode(MrMode::LOCAL);
    let pool = Pool::new(&domain, 64, 1).unwrap();
    assert_eq!(net.wire().regions(), 1);
    let buf = pool.take().unwrap();
    drop(pool);
    assert_eq!(net.wire().regions(), 1);
    drop(buf);
    assert_eq!(net.wire().regions(), 0);
}

#[test]
fn an_unregistered_buffer_fails_on_a_domain_that_requires_registration() {
    let net = Net::new();
    let domain = net.domain.with_mr_mode(MrMode::LOCAL);
    let ep = Endpoint::open(&domain, &loopback::info(), Arc::clone(&net.av)).unwrap();
    let dest = net.av.insert_one(&ep.address().unwrap()).unwrap();
    let unregistered = net.pool(1).take().unwrap();
    let rejected = ep.send(unregistered, dest, Context(1)).unwrap_err();
    assert_eq!(
        (rejected.errno, rejected.buf.capacity()),
        (Errno::Inval, 64)
    );
    let rejected = ep
        .recv(rejected.buf, FiAddr::UNSPEC, Context(1))
        .unwrap_err();
    assert_eq!(rejected.errno, Errno::Inval);
    let registered = Pool::new(&domain, 64, 1).unwrap().take().unwrap();
    ep.send(registered, dest, Context(1)).unwrap();
}

#[test]
fn a_registration_that_fails_is_reported() {
    let net = Net::new();
    let domain = net.domain.with_mr_mode(MrMode::LOCAL);
    let _first = Pool::new(&domain, 64, 1).unwrap();
    // The loopback provider requires a different key for each region.
    assert_eq!(Pool::new(&domain, 64, 1).unwrap_err().errno(), Errno::NoKey);
}

#[test]
fn invalid_sizes_are_rejected_with_a_message() {
    let domain = Net::new().domain;
    let open = |size, count| Pool::new(&*domain, size, count).unwrap_err();
    assert_eq!(open(0, 1).errno(), Errno::Inval);
    assert_eq!(open(1, 0).errno(), Errno::Inval);
    assert_eq!(open(1, usize::MAX).errno(), Errno::Inval);
    assert_eq!(open(usize::MAX, 1).errno(), Errno::NoMem);
    assert_eq!(open(usize::MAX / 2 - 4096, 1).errno(), Errno::NoMem);
    assert!(open(0, 3).to_string().contains("3 buffers of 0 bytes"));
}

#[test]
fn pools_do_not_keep_the_domain_open() {
    let net = Net::new();
    let domain = Arc::new(net.domain.with_mr_mode(MrMode::LOCAL));
    let pool = Pool::new(&*domain, 64, 1).unwrap();
    assert_eq!(domain.mr_mode(), MrMode::LOCAL);
    assert_eq!(Arc::strong_count(&domain), 1);
    drop(domain);
    assert!(pool.take().is_some());
}

#[test]
fn a_pool_can_use_memory_of_the_domain() {
    let net = Net::new();
    let attr = alloc::Attr::default().with_huge_pages();
    let pool = Pool::special(&*net.domain, 100, 2, &attr).unwrap();
    let mut buf = pool.take().unwrap();
    buf.write(b"hello").unwrap();
    drop(pool);
    assert_eq!(&buf[..], b"hello");
    let memory = net.domain.alloc(100, &attr).unwrap();
    assert_eq!((memory.len(), memory.key()), (100, alloc::NO_KEY));
    assert!(!memory.is_special());
}

#[test]
fn a_pool_with_remote_access_is_rejected() {
    let domain = Net::new().domain;
    for access in [MrAccess::REMOTE_READ, MrAccess::REMOTE_WRITE] {
        let attr = alloc::Attr::new(access);
        let error = Pool::special(&*domain, 64, 1, &attr).unwrap_err();
        assert_eq!(error.errno(), Errno::Inval);
        assert!(error.to_string().contains("REMOTE"), "{error}");
    }
}

#[test]
fn a_set_of_pools_hands_out_the_smallest_free_buffer_that_fits() {
    let net = Net::new();
    let [small, large, medium] =
        [10, 1000, 100].map(|size| Pool::new(&*net.domain, size, 1).unwrap());
    let set = PoolSet::of(vec![small, large, medium]).unwrap();
    assert_eq!(set.max_buffer_size(), 1000);
    let sizes: Vec<_> = set.pools().iter().map(Pool::buffer_size).collect();
    assert_eq!(sizes, [10, 100, 1000]);
    let capacity = |len| set.take(len).map(|buf| buf.capacity());
    for (len, expected) in [(0, 10), (10, 10), (11, 100), (100, 100), (101, 1000)] {
        assert_eq!(capacity(len), Ok(expected));
    }
    assert_eq!(capacity(1001), Err(Errno::TooSmall));
}

#[test]
fn a_set_of_pools_takes_a_larger_buffer_when_those_that_fit_best_are_in_use() {
    let set = PoolSet::new(&*Net::new().domain, &[(10, 1), (100, 1)]).unwrap();
    let first = set.take(5).unwrap();
    let second = set.clone().take(5).unwrap();
    assert_eq!([first.capacity(), second.capacity()], [10, 100]);
    assert_eq!(set.take(5).unwrap_err(), Errno::NoBufs);
    drop(first);
    assert_eq!(set.take(50).unwrap_err(), Errno::NoBufs);
    assert_eq!(set.take(5).unwrap().capacity(), 10);
}

#[test]
fn a_set_of_no_pools_is_refused() {
    let error = PoolSet::new(&*Net::new().domain, &[]).unwrap_err();
    assert_eq!(error.errno(), Errno::Inval);
    let error = PoolSet::new(&*Net::new().domain, &[(10, 0)]).unwrap_err();
    assert_eq!(error.errno(), Errno::Inval);
}
