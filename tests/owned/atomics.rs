//! Atomics on a peer's shared region, polled and awaited.

use futures::executor::block_on;
use selvedge::atomic::{Datatype, Op, Target};
use selvedge::owned::{Completions, SharedRegion};
use selvedge::{Context, Errno, FiAddr, MrAccess};

use crate::loopback::Net;
use crate::under_watchdog;

const KEY: u64 = 42;

pub(crate) fn region(net: &Net) -> SharedRegion {
    let access = MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE;
    SharedRegion::new(&*net.domain, 64, access, KEY).unwrap()
}

pub(crate) fn target(region: &SharedRegion, dest: FiAddr, op: Op) -> Target {
    Target {
        dest,
        addr: region.addr(8),
        key: region.key(),
        datatype: Datatype::Uint64,
        op,
    }
}

#[test]
fn previous_values_are_returned_in_the_buffer() {
    let net = Net::new();
    let ((ep, addr), pool, region) = (net.polled(), net.pool(1), region(&net));
    let mut done = Completions::with_capacity(1);
    region.store_u64(8, 5).unwrap();

    let add = target(&region, addr, Op::Sum);
    ep.fetch_atomic(pool.take().unwrap(), &3_u64.to_ne_bytes(), add, Context(1))
        .unwrap();
    assert_eq!(ep.poll(&mut done), Ok(1));
    let completion = done.drain().next().unwrap();
    assert_eq!(completion.context, Context(1));
    assert_eq!(completion.buf[..], 5_u64.to_ne_bytes());
    assert_eq!(region.load_u64(8), Ok(8));

    let swap = target(&region, addr, Op::Cswap);
    let (operand, compare) = (9_u64.to_ne_bytes(), 8_u64.to_ne_bytes());
    ep.compare_atomic(completion.buf, &operand, &compare, swap, Context(2))
        .unwrap();
    assert_eq!(ep.poll(&mut done), Ok(1));
    let mut buf = done.drain().next().unwrap().buf;
    assert_eq!((&buf[..], region.load_u64(8)), (&compare[..], Ok(9)));

    buf.set_len(8).unwrap();
    ep.fetch_atomic(buf, &[], target(&region, addr, Op::AtomicRead), Context(3))
        .unwrap();
    assert_eq!(ep.poll(&mut done), Ok(1));
    assert_eq!(done.drain().next().unwrap().buf[..], operand);
}

#[test]
fn a_failed_post_of_an_atomic_returns_the_buffer_unchanged() {
    let net = Net::new();
    let ((ep, addr), pool, region) = (net.polled(), net.pool(1), region(&net));
    let add = target(&region, addr, Op::Sum);
    let mut buf = pool.take().unwrap();
    buf.write(b"kept").unwrap();
    let rejected = ep.fetch_atomic(buf, &[0; 9], add, Context(1)).unwrap_err();
    assert_eq!(
        (rejected.errno, &rejected.buf[..]),
        (Errno::Inval, &b"kept"[..])
    );
    let rejected = ep
        .fetch_atomic(rejected.buf, &[0; 128], add, Context(1))
        .unwrap_err();
    assert_eq!(
        (rejected.errno, &rejected.buf[..]),
        (Errno::TooSmall, &b"kept"[..])
    );
    net.set(|settings| settings.post_errors.push_back(Errno::Again));
    let rejected = ep
        .fetch_atomic(rejected.buf, &[0; 8], add, Context(1))
        .unwrap_err();
    assert_eq!(
        (rejected.errno, &rejected.buf[..]),
        (Errno::Again, &b"kept"[..])
    );
    assert_eq!(region.load_u64(8), Ok(0));
}

#[test]
fn concurrent_awaited_atomics_add_up() {
    under_watchdog(|| {
        let net = Net::new();
        let ((ep, addr), pool, region) = (net.awaited(), net.pool(4), region(&net));
        let add = target(&region, addr, Op::Sum);
        let one = 1_u64.to_ne_bytes();
        let fetch = || ep.fetch_atomic(pool.take().unwrap(), &one, add);
        let mut operands = pool.take().unwrap();
        operands.write(&one).unwrap();
        let (a, b, c) =
            block_on(async { futures::join!(fetch(), fetch(), ep.atomic(operands, add)) });
        let mut previous =
            [a, b].map(|buf| u64::from_ne_bytes(buf.unwrap()[..].try_into().unwrap()));
        previous.sort_unstable();
        assert_eq!((previous, region.load_u64(8)), ([0, 1], Ok(3)));
        assert_eq!(c.unwrap()[..], one);
    });
}
