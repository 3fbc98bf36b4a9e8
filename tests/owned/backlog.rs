//! Awaited operations that find a full queue: they wait in their order, and hold nobody else up.

use std::future::Future;
use std::mem;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use selvedge::atomic::Op;
use selvedge::owned::{AsyncEndpoint, Buf, Pool};
use selvedge::{Errno, FiAddr};

use crate::atomics::{target, window};
use crate::loopback::Net;

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn filled(pool: &Pool, bytes: &[u8]) -> Buf {
    let mut buf = pool.take().unwrap();
    buf.write(bytes).unwrap();
    buf
}

/// The next message that has arrived at `ep`.
fn received(ep: &AsyncEndpoint, pool: &Pool) -> Vec<u8> {
    let mut receive = pin!(ep.recv(pool.take().unwrap(), FiAddr::UNSPEC));
    for _ in 0..10 {
        if let Poll::Ready(received) = poll(receive.as_mut()) {
            return received.unwrap().0.to_vec();
        }
    }
    panic!("nothing has arrived");
}

#[test]
fn a_later_send_does_not_overtake_one_that_waits() {
    let net = Net::new();
    let ((ep, _), (peer, dest)) = (net.awaited(), net.awaited());
    let pool = net.pool(4);
    net.set(|knobs| knobs.depth = 0);
    let mut first = pin!(ep.send(filled(&pool, b"first"), dest));
    assert!(poll(first.as_mut()).is_pending());
    net.set(|knobs| knobs.depth = 8);
    let mut second = pin!(ep.send(filled(&pool, b"second"), dest));
    assert!(poll(second.as_mut()).is_pending());
    assert_eq!(received(&peer, &pool), b"first");
    assert_eq!(received(&peer, &pool), b"second");
}

#[test]
fn a_copy_is_not_sent_before_what_waits_for_the_same_peer() {
    let net = Net::new();
    let ((ep, _), (peer, dest)) = (net.awaited(), net.awaited());
    let pool = net.pool(2);
    net.set(|knobs| knobs.depth = 0);
    let mut first = pin!(ep.send(filled(&pool, b"first"), dest));
    assert!(poll(first.as_mut()).is_pending());
    assert_eq!(ep.inject(b"second", dest, None), Err(Errno::Again));
    net.set(|knobs| knobs.depth = 8);
    assert_eq!(ep.inject(b"second", dest, None), Ok(()));
    assert_eq!(received(&peer, &pool), b"first");
    assert_eq!(received(&peer, &pool), b"second");
}

#[test]
fn another_future_s_poll_posts_what_waits() {
    let net = Net::new();
    let ((ep, _), (_peer, dest)) = (net.awaited(), net.awaited());
    let pool = net.pool(2);
    net.set(|knobs| knobs.depth = 0);
    let mut waits = pin!(ep.send(filled(&pool, b"waits"), dest));
    assert!(poll(waits.as_mut()).is_pending());
    net.set(|knobs| knobs.depth = 8);
    let mut other = pin!(ep.recv(pool.take().unwrap(), FiAddr::UNSPEC));
    assert!(poll(other.as_mut()).is_pending());
    assert_eq!(net.wire().outstanding(), 2);
}

#[test]
fn receives_do_not_wait_for_sends_nor_one_peer_for_another() {
    let net = Net::new();
    let ((ep, me), (_peer, dest)) = (net.awaited(), net.awaited());
    let pool = net.pool(3);
    net.set(|knobs| knobs.crowded = Some(dest));
    let mut waits = pin!(ep.send(filled(&pool, b"waits"), dest));
    assert!(poll(waits.as_mut()).is_pending());
    assert_eq!(net.wire().outstanding(), 0);
    let mut receive = pin!(ep.recv(pool.take().unwrap(), FiAddr::UNSPEC));
    assert!(poll(receive.as_mut()).is_pending());
    assert_eq!(net.wire().outstanding(), 1);
    let mut to_me = pin!(ep.send(filled(&pool, b"to me"), me));
    assert!(poll(to_me.as_mut()).is_ready());
    assert!(poll(receive.as_mut()).is_ready());
}

#[test]
fn what_is_refused_after_its_wait_comes_back() {
    let net = Net::new();
    let ((ep, _), (_peer, dest)) = (net.awaited(), net.awaited());
    let pool = net.pool(1);
    net.set(|knobs| {
        let refusals = [Errno::Again, Errno::Again, Errno::HostUnreach];
        knobs.refusals.extend(refusals);
    });
    let mut send = pin!(ep.send(filled(&pool, b"mine"), dest));
    assert!(poll(send.as_mut()).is_pending());
    let Poll::Ready(Err(failed)) = poll(send.as_mut()) else {
        panic!("not refused");
    };
    assert_eq!(failed.entry.errno, Errno::HostUnreach);
    assert_eq!(&failed.buf[..], b"mine");
}

#[test]
fn whoever_leaves_while_it_waits_gets_its_buffer_back_at_once() {
    let net = Net::new();
    let ((ep, _), (_peer, dest)) = (net.awaited(), net.awaited());
    let pool = net.pool(1);
    net.set(|knobs| knobs.depth = 0);
    let mut send = Box::pin(ep.send(pool.take().unwrap(), dest));
    assert!(poll(send.as_mut()).is_pending());
    drop(send);
    assert_eq!(pool.available(), 1);
    net.set(|knobs| knobs.depth = 8);
    ep.progress().unwrap();
    assert_eq!(net.wire().outstanding(), 0);
    ep.inject(b"nothing is in the way", dest, None).unwrap();
}

#[test]
fn closing_frees_what_leaked_futures_left_waiting() {
    let net = Net::new();
    let ((ep, _), (_peer, dest)) = (net.awaited(), net.awaited());
    let pool = net.pool(1);
    net.set(|knobs| knobs.depth = 0);
    let mut send = Box::pin(ep.send(pool.take().unwrap(), dest));
    assert!(poll(send.as_mut()).is_pending());
    mem::forget(send);
    assert_eq!(pool.available(), 0);
    drop(ep);
    assert_eq!(pool.available(), 1);
}

#[test]
fn an_atomic_keeps_its_operands_while_it_waits() {
    let net = Net::new();
    let (ep, me) = net.awaited();
    let pool = net.pool(2);
    let window = window(&net);
    window.store_u64(8, 5).unwrap();
    let target = |op| target(&window, me, op);
    let (ours, theirs) = (7_u64.to_ne_bytes(), 5_u64.to_ne_bytes());
    net.set(|knobs| knobs.refusals.extend([Errno::Again, Errno::Again]));
    let buf = pool.take().unwrap();
    let mut swap = pin!(ep.compare_atomic(buf, &ours, &theirs, target(Op::Cswap)));
    assert!(poll(swap.as_mut()).is_pending());
    let mut add = pin!(ep.fetch_atomic(pool.take().unwrap(), &ours, target(Op::Sum)));
    assert!(poll(add.as_mut()).is_pending());
    let mut earlier = || {
        let waited = [poll(swap.as_mut()), poll(add.as_mut())];
        waited.map(|done| match done {
            Poll::Ready(buf) => u64::from_ne_bytes(buf.unwrap()[..].try_into().unwrap()),
            Poll::Pending => panic!("not done"),
        })
    };
    assert_eq!((earlier(), window.load_u64(8)), ([5, 7], Ok(14)));
}

#[test]
fn a_buffer_for_many_messages_waits_as_others_do() {
    let net = Net::new();
    let (ep, _) = net.awaited();
    let pool = net.pool(1);
    net.set(|knobs| {
        let refusals = [Errno::Again, Errno::Again, Errno::OpNotSupp];
        knobs.refusals.extend(refusals);
    });
    let mut messages = ep.recv_multi(pool.take().unwrap(), FiAddr::UNSPEC, None);
    assert!(poll(pin!(messages.next())).is_pending());
    let Poll::Ready(Some(Err(failed))) = poll(pin!(messages.next())) else {
        panic!("not refused");
    };
    assert_eq!(failed.entry.errno, Errno::OpNotSupp);
    assert!(matches!(poll(pin!(messages.next())), Poll::Ready(None)));
}
