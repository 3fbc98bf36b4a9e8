//! `AsyncEndpoint`, with futures that the tests poll without an executor.

use std::future::Future;
use std::mem;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use selvedge::owned::{AsyncEndpoint, Buf, Pool};
use selvedge::{Errno, FiAddr};

use crate::loopback::Net;
use crate::under_watchdog;

const TAG: u64 = 7;

/// A waker that counts its wake-ups.
#[derive(Default)]
struct CountingWaker(AtomicUsize);

impl CountingWaker {
    fn wakes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn poll<F: Future>(future: Pin<&mut F>, waker: &Arc<CountingWaker>) -> Poll<F::Output> {
    let waker = Waker::from(Arc::clone(waker));
    future.poll(&mut Context::from_waker(&waker))
}

fn filled(pool: &Pool, bytes: &[u8]) -> Buf {
    let mut buf = pool.take().unwrap();
    buf.write(bytes).unwrap();
    buf
}

#[test]
fn the_first_polls_transfer_a_message() {
    let net = Net::new();
    let (ep, own_addr) = net.awaited();
    let pool = net.pool(2);
    let waker = Arc::default();
    let mut receive = pin!(ep.trecv(pool.take().unwrap(), FiAddr::UNSPEC, TAG));
    assert!(poll(receive.as_mut(), &waker).is_pending());
    let mut send = pin!(ep.tsenddata(filled(&pool, b"hello"), 3, own_addr, TAG));
    let Poll::Ready(Ok(sent)) = poll(send.as_mut(), &waker) else {
        panic!("the send is not complete");
    };
    assert_eq!(&sent[..], b"hello");
    let Poll::Ready(Ok((buf, received))) = poll(receive.as_mut(), &waker) else {
        panic!("the receive is not complete");
    };
    assert_eq!(&buf[..], b"hello");
    assert_eq!(
        (received.src, received.tag, received.data),
        (own_addr, TAG, Some(3))
    );
}

#[test]
fn an_operation_is_posted_at_the_first_poll() {
    let net = Net::new();
    let (ep, own_addr) = net.awaited();
    let pool = net.pool(1);
    let send = ep.send(pool.take().unwrap(), own_addr);
    assert_eq!(net.wire().outstanding(), 0);
    drop(send);
    assert_eq!(pool.available(), 1);
}

#[test]
fn a_pending_future_wakes_itself() {
    let net = Net::new();
    let (ep, own_addr) = net.awaited();
    let pool = net.pool(1);
    let waker = Arc::default();
    let mut receive = pin!(ep.recv(pool.take().unwrap(), own_addr));
    for polls in 1..4 {
        assert!(poll(receive.as_mut(), &waker).is_pending());
        assert_eq!(waker.wakes(), polls);
    }
}

#[test]
fn a_future_that_waits_for_a_full_queue_wakes_itself() {
    let net = Net::new();
    let (ep, own_addr) = net.awaited();
    let pool = net.pool(1);
    let waker = Arc::default();
    net.set(|settings| settings.depth = 0);
    let mut receive = pin!(ep.recv(pool.take().unwrap(), own_addr));
    assert!(poll(receive.as_mut(), &waker).is_pending());
    assert_eq!((waker.wakes(), net.wire().outstanding()), (1, 0));
    net.set(|settings| settings.depth = 1);
    assert!(poll(receive.as_mut(), &waker).is_pending());
    assert_eq!((waker.wakes(), net.wire().outstanding()), (2, 1));
}

#[test]
fn a_poll_that_reads_a_completion_wakes_its_future() {
    let net = Net::new();
    let (ep, own_addr) = net.awaited();
    let pool = net.pool(2);
    let [first, last, other] = [Arc::default(), Arc::default(), Arc::default()];
    let mut receive = pin!(ep.recv(pool.take().unwrap(), own_addr));
    assert!(poll(receive.as_mut(), &first).is_pending());
    assert!(poll(receive.as_mut(), &last).is_pending());
    assert_eq!((first.wakes(), last.wakes()), (1, 1));
    let mut send = pin!(ep.send(pool.take().unwrap(), own_addr));
    assert!(poll(send.as_mut(), &other).is_ready());
    assert_eq!(
        (first.wakes(), last.wakes()),
        (1, 2),
        "the completion wakes the last waker"
    );
    assert!(poll(receive.as_mut(), &last).is_ready());
}

#[test]
fn progress_wakes_without_a_future() {
    let net = Net::new();
    let (ep, own_addr) = net.awaited();
    let pool = net.pool(1);
    let waker = Arc::default();
    let mut receive = pin!(ep.recv(pool.take().unwrap(), own_addr));
    assert!(poll(receive.as_mut(), &waker).is_pending());
    ep.inject(b"", own_addr, None).unwrap();
    assert_eq!(ep.progress(), Ok(1));
    assert_eq!(waker.wakes(), 2);
}

#[test]
fn a_failed_completion_returns_the_buffer_with_the_error() {
    let net = Net::new();
    let (ep, own_addr) = net.awaited();
    let pool = net.pool(2);
    let waker = Arc::default();
    net.set(|settings| settings.completion_errors.extend([Errno::ConnReset]));
    let mut receive = pin!(ep.recv(pool.take().unwrap(), own_addr));
    assert!(poll(receive.as_mut(), &waker).is_pending());
    let mut send = pin!(ep.send(filled(&pool, b"hello"), own_addr));
    let Poll::Ready(Err(failed)) = poll(send.as_mut(), &waker) else {
        panic!("the send has not failed");
    };
    assert_eq!(failed.entry.errno, Errno::ConnReset);
    assert_eq!(&failed.buf[..], b"hello");
}

#[test]
fn a_failed_post_returns_the_buffer_with_the_error() {
    let net = Net::new();
    let (ep, own_addr) = net.awaited();
    let pool = net.pool(1);
    net.set(|settings| settings.post_errors.extend([Errno::MsgSize]));
    let mut send = pin!(ep.send(filled(&pool, b"hello"), own_addr));
    let Poll::Ready(Err(failed)) = poll(send.as_mut(), &Arc::default()) else {
        panic!("the post has not failed");
    };
    assert_eq!(failed.entry.errno, Errno::MsgSize);
    assert_eq!(&failed.buf[..], b"hello");
}

#[test]
fn a_failed_send_ends_a_joined_pair_of_send_and_receive() {
    under_watchdog(|| {
        let net = Net::new();
        let (ep, own_addr) = net.awaited();
        let pool = net.pool(2);
        net.set(|settings| settings.completion_errors.extend([Errno::ConnRefused]));
        let pair = async {
            let send = ep.tsend(filled(&pool, b"hello"), own_addr, TAG);
            let receive = ep.trecv(pool.take().unwrap(), FiAddr::UNSPEC, TAG);
            futures::try_join!(send, receive)
        };
        let failed = futures::executor::block_on(pair).unwrap_err();
        assert_eq!(failed.entry.errno, Errno::ConnRefused);
        drop(failed);
        assert_eq!((net.wire().outstanding(), pool.available()), (0, 2));
    });
}

#[test]
fn completions_that_cannot_be_read_end_every_pending_operation() {
    let net = Net::new();
    let (ep, own_addr) = net.awaited();
    let pool = net.pool(4);
    let wakers = [const { None }; 3].map(|_: Option<()>| Arc::default());
    net.set(|settings| settings.uncancellable = true);
    let mut receive = Box::pin(ep.trecv(pool.take().unwrap(), FiAddr::UNSPEC, TAG));
    let mut messages = ep.recv_multi(pool.take().unwrap(), own_addr, None);
    let mut next = Box::pin(messages.next());
    assert!(poll(receive.as_mut(), &wakers[0]).is_pending());
    assert!(poll(next.as_mut(), &wakers[1]).is_pending());
    net.set(|settings| settings.depth = 0);
    let mut waiting = Box::pin(ep.send(filled(&pool, b"hello"), own_addr));
    assert!(poll(waiting.as_mut(), &wakers[2]).is_pending());

    net.set(|settings| settings.read_error = Some(Errno::Overrun));
    let wakes_before = wakers
        .each_ref()
        .map(|waker: &Arc<CountingWaker>| waker.wakes());
    assert_eq!(ep.progress(), Err(Errno::Overrun));
    assert_eq!(
        (wakers[0].wakes(), wakers[1].wakes()),
        (wakes_before[0] + 1, wakes_before[1] + 1)
    );
    let Poll::Ready(Err(failed)) = poll(receive.as_mut(), &wakers[0]) else {
        panic!("the receive waits for ever");
    };
    assert_eq!(failed.entry.errno, Errno::Overrun);
    assert!(failed.to_string().contains("cannot be read"), "{failed}");
    assert_eq!(
        failed.buf.capacity(),
        0,
        "the endpoint keeps the buffer, which the operation may still use"
    );
    let Poll::Ready(Some(Err(failed))) = poll(next.as_mut(), &wakers[1]) else {
        panic!("the messages wait for ever");
    };
    assert_eq!(failed.entry.errno, Errno::Overrun);
    drop(next);
    let end = poll(pin!(messages.next()), &wakers[1]);
    assert!(matches!(end, Poll::Ready(None)));
    let Poll::Ready(Err(failed)) = poll(waiting.as_mut(), &wakers[2]) else {
        panic!("the send waits for ever");
    };
    assert_eq!(&failed.buf[..], b"hello", "the send was never posted");
    drop((failed, receive, messages, waiting));
    assert_eq!(pool.available(), 2);
    drop(ep);
    assert_eq!(pool.available(), 4);
}

#[test]
fn dropping_a_posted_future_cancels_and_returns_the_buffer() {
    let net = Net::new();
    let (ep, own_addr) = net.awaited();
    let pool = net.pool(1);
    let mut receive = Box::pin(ep.recv(pool.take().unwrap(), own_addr));
    assert!(poll(receive.as_mut(), &Arc::default()).is_pending());
    drop(receive);
    assert_eq!((net.wire().outstanding(), pool.available()), (0, 1));
}

#[test]
fn a_dropped_future_that_cannot_be_cancelled_keeps_its_buffer_until_completion() {
    let net = Net::new();
    let (ep, own_addr) = net.awaited();
    let pool = net.pool(1);
    net.set(|settings| settings.uncancellable = true);
    let mut receive = Box::pin(ep.recv(pool.take().unwrap(), own_addr));
    assert!(poll(receive.as_mut(), &Arc::default()).is_pending());
    drop(receive);
    assert_eq!((net.wire().outstanding(), pool.available()), (1, 0));
    ep.inject(b"late", own_addr, None).unwrap();
    assert_eq!(ep.progress(), Ok(1));
    assert_eq!((net.wire().outstanding(), pool.available()), (0, 1));
}

#[test]
fn dropping_a_completed_future_returns_the_buffer() {
    let net = Net::new();
    let (ep, own_addr) = net.awaited();
    let pool = net.pool(1);
    let mut receive = Box::pin(ep.recv(pool.take().unwrap(), own_addr));
    assert!(poll(receive.as_mut(), &Arc::default()).is_pending());
    ep.inject(b"", own_addr, None).unwrap();
    ep.progress().unwrap();
    assert_eq!(pool.available(), 0);
    drop(receive);
    assert_eq!(pool.available(), 1);
}

#[test]
fn dropped_futures_free_their_slots() {
    let net = Net::new();
    let (ep, own_addr) = net.awaited();
    let pool = net.pool(1);
    for _ in 0..100 {
        let mut receive = pin!(ep.recv(pool.take().unwrap(), own_addr));
        assert!(poll(receive.as_mut(), &Arc::default()).is_pending());
        assert_eq!(net.wire().outstanding(), 1);
    }
}

#[test]
fn closing_returns_the_buffers_of_leaked_futures() {
    let net = Net::new();
    let (ep, own_addr) = net.awaited();
    let pool = net.pool(2);
    for is_completed in [false, true] {
        let mut receive = Box::pin(ep.recv(pool.take().unwrap(), own_addr));
        assert!(poll(receive.as_mut(), &Arc::default()).is_pending());
        mem::forget(receive);
        if is_completed {
            ep.inject(b"", own_addr, None).unwrap();
            ep.progress().unwrap();
        }
    }
    assert_eq!(pool.available(), 0);
    drop(ep);
    assert_eq!(pool.available(), 2);
}

/// A task that only its own waker keeps alive.
struct Task(Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>);

impl Wake for Task {
    fn wake(self: Arc<Self>) {}
}

/// Starts a receive on `ep` inside a task that only its waker keeps alive.
fn orphan_receive(ep: &Arc<AsyncEndpoint>, buf: Buf, own_addr: FiAddr) {
    let ep = Arc::clone(ep);
    let future = async move {
        let _ = ep.recv(buf, own_addr).await;
    };
    let task = Arc::new(Task(Mutex::new(Some(Box::pin(future)))));
    let waker = Waker::from(Arc::clone(&task));
    let mut slot = task.0.lock().unwrap();
    let pending = slot.as_mut().unwrap().as_mut();
    assert!(pending.poll(&mut Context::from_waker(&waker)).is_pending());
}

#[test]
fn dropping_the_last_waker_may_drop_its_future() {
    under_watchdog(|| {
        let net = Net::new();
        let (ep, own_addr) = net.awaited();
        let ep = Arc::new(ep);
        let pool = net.pool(1);
        orphan_receive(&ep, pool.take().unwrap(), own_addr);
        ep.inject(b"", own_addr, None).unwrap();
        assert_eq!(ep.progress(), Ok(1));
        assert_eq!(pool.available(), 1);
        assert_eq!(Arc::strong_count(&ep), 1);
    });
}
