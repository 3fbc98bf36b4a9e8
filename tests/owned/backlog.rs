//! Awaited operations on a full queue: they wait in order and do not delay other operations.

use std::future::Future;
use std::mem;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use selvedge::atomic::Op;
use selvedge::owned::{AsyncEndpoint, Buf, Pool};
use selvedge::{Errno, FiAddr};

use crate::atomics::{region, target};
use crate::loopback::Net;

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn filled(pool: &Pool, bytes: &[u8]) -> Buf {
    let mut buf = pool.take().unwrap();
    buf.write(bytes).unwrap();
    buf
}

/// Receives the next message at `ep`.
fn received(ep: &AsyncEndpoint, pool: &Pool) -> Vec<u8> {
    let mut receive = pin!(ep.recv(pool.take().unwrap(), FiAddr::UNSPEC));
    for _ in 0..10 {
        if let Poll::Ready(received) = poll(receive.as_mut()) {
            return received.unwrap().0.to_vec();
        }
    }
    panic!("no message arrived");
}

#[test]
fn a_later_send_does_not_overtake_a_waiting_one() {
    let net = Net::new();
    let ((ep, _), (peer, dest)) = (net.awaited(), net.awaited());
    let pool = net.pool(4);
    net.set(|settings| settings.depth = 0);
    let mut first = pin!(ep.send(filled(&pool, b"first"), dest));
    assert!(poll(first.as_mut()).is_pending());
    net.set(|settings| settings.depth = 8);
    let mut second = pin!(ep.send(filled(&pool, b"second"), dest));
    assert!(poll(second.as_mut()).is_pending());
    assert_eq!(received(&peer, &pool), b"first");
    assert_eq!(received(&peer, &pool), b"second");
}

#[test]
fn an_inject_does_not_overtake_a_waiting_send_to_the_same_peer() {
    let net = Net::new();
    let ((ep, _), (peer, dest)) = (net.awaited(), net.awaited());
    let pool = net.pool(2);
    net.set(|settings| settings.depth = 0);
    let mut first = pin!(ep.send(filled(&pool, b"first"), dest));
    assert!(poll(first.as_mut()).is_pending());
    assert_eq!(ep.inject(b"second", dest, None), Err(Errno::Again));
    net.set(|settings| settings.depth = 8);
    assert_eq!(ep.inject(b"second", dest, None), Ok(()));
    assert_eq!(received(&peer, &pool), b"first");
    assert_eq!(received(&peer, &pool), b"second");
}

#[test]
fn a_poll_of_another_future_posts_waiting_operations() {
    let net = Net::new();
    let ((ep, _), (_peer, dest)) = (net.awaited(), net.awaited());
    let pool = net.pool(2);
    net.set(|settings| settings.depth = 0);
    let mut waiting = pin!(ep.send(filled(&pool, b"waiting"), dest));
    assert!(poll(waiting.as_mut()).is_pending());
    net.set(|settings| settings.depth = 8);
    let mut other = pin!(ep.recv(pool.take().unwrap(), FiAddr::UNSPEC));
    assert!(poll(other.as_mut()).is_pending());
    assert_eq!(net.wire().outstanding(), 2);
}

#[test]
fn receives_do_not_wait_for_sends_nor_one_peer_for_another() {
    let net = Net::new();
    let ((ep, own_addr), (_peer, dest)) = (net.awaited(), net.awaited());
    let pool = net.pool(3);
    net.set(|settings| settings.full_peer = Some(dest));
    let mut waiting = pin!(ep.send(filled(&pool, b"waiting"), dest));
    assert!(poll(waiting.as_mut()).is_pending());
    assert_eq!(net.wire().outstanding(), 0);
    let mut receive = pin!(ep.recv(pool.take().unwrap(), FiAddr::UNSPEC));
    assert!(poll(receive.as_mut()).is_pending());
    assert_eq!(net.wire().outstanding(), 1);
    let mut to_self = pin!(ep.send(filled(&pool, b"to self"), own_addr));
    assert!(poll(to_self.as_mut()).is_ready());
    assert!(poll(receive.as_mut()).is_ready());
}

#[test]
fn an_error_after_waiting_returns_the_buffer() {
    let net = Net::new();
    let ((ep, _), (_peer, dest)) = (net.awaited(), net.awaited());
    let pool = net.pool(1);
    net.set(|settings| {
        let post_errors = [Errno::Again, Errno::Again, Errno::HostUnreach];
        settings.post_errors.extend(post_errors);
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
fn dropping_a_waiting_future_returns_its_buffer() {
    let net = Net::new();
    let ((ep, _), (_peer, dest)) = (net.awaited(), net.awaited());
    let pool = net.pool(1);
    net.set(|settings| settings.depth = 0);
    let mut send = Box::pin(ep.send(pool.take().unwrap(), dest));
    assert!(poll(send.as_mut()).is_pending());
    drop(send);
    assert_eq!(pool.available(), 1);
    net.set(|settings| settings.depth = 8);
    ep.progress().unwrap();
    assert_eq!(net.wire().outstanding(), 0);
    ep.inject(b"not blocked", dest, None).unwrap();
}

#[test]
fn closing_returns_the_buffers_of_leaked_waiting_futures() {
    let net = Net::new();
    let ((ep, _), (_peer, dest)) = (net.awaited(), net.awaited());
    let pool = net.pool(1);
    net.set(|settings| settings.depth = 0);
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
    let (ep, own_addr) = net.awaited();
    let pool = net.pool(2);
    let region = region(&net);
    region.store_u64(8, 5).unwrap();
    let target = |op| target(&region, own_addr, op);
    let (operand, compare) = (7_u64.to_ne_bytes(), 5_u64.to_ne_bytes());
    net.set(|settings| settings.post_errors.extend([Errno::Again, Errno::Again]));
    let buf = pool.take().unwrap();
    let mut swap = pin!(ep.compare_atomic(buf, &operand, &compare, target(Op::Cswap)));
    assert!(poll(swap.as_mut()).is_pending());
    let mut add = pin!(ep.fetch_atomic(pool.take().unwrap(), &operand, target(Op::Sum)));
    assert!(poll(add.as_mut()).is_pending());
    let mut previous_values = || {
        let waited = [poll(swap.as_mut()), poll(add.as_mut())];
        waited.map(|done| match done {
            Poll::Ready(buf) => u64::from_ne_bytes(buf.unwrap()[..].try_into().unwrap()),
            Poll::Pending => panic!("not done"),
        })
    };
    assert_eq!((previous_values(), region.load_u64(8)), ([5, 7], Ok(14)));
}

#[test]
fn a_multi_receive_waits_for_a_full_queue() {
    let net = Net::new();
    let (ep, _) = net.awaited();
    let pool = net.pool(1);
    net.set(|settings| {
        let post_errors = [Errno::Again, Errno::Again, Errno::OpNotSupp];
        settings.post_errors.extend(post_errors);
    });
    let mut messages = ep.recv_multi(pool.take().unwrap(), FiAddr::UNSPEC, None);
    assert!(poll(pin!(messages.next())).is_pending());
    let Poll::Ready(Some(Err(failed))) = poll(pin!(messages.next())) else {
        panic!("not refused");
    };
    assert_eq!(failed.entry.errno, Errno::OpNotSupp);
    assert!(matches!(poll(pin!(messages.next())), Poll::Ready(None)));
}
