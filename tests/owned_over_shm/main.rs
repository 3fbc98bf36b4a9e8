//! Tests of the safe layer over the shm provider: polled and awaited, with messages of all sizes.

#![expect(clippy::unwrap_used, reason = "a test may fail anywhere")]

mod claims;
mod gathered;

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::task::{Context as TaskContext, Poll, Waker};
use std::thread;
use std::time::Duration;

use futures::executor::block_on;
use selvedge::atomic::{Datatype, Op, Target};
use selvedge::owned::{
    AsyncEndpoint, Buf, Completion, Completions, Endpoint, Pool, RemoteAddr, RemoteRegion,
    SharedRegion,
};
use selvedge::{
    AddressVector, Caps, CompletionFlags, Context, Domain, EpOption, Errno, FiAddr, Hints, Info,
    MrAccess, TagMatch, alloc, av, wait,
};

const SIZES: [usize; 7] = [0, 1, 64, 4096, 16 << 10, 256 << 10, 4 << 20];

/// A domain, and the objects that its endpoints share.
struct Shm {
    info: Info,
    domain: Arc<dyn Domain>,
    av: Arc<dyn AddressVector>,
}

impl Shm {
    fn open() -> Self {
        let caps = Caps::MSG | Caps::TAGGED | Caps::SOURCE | Caps::DIRECTED_RECV;
        let memory = Caps::RMA | Caps::ATOMIC;
        let hints = Hints::new().provider("shm").caps(caps | memory);
        let info = selvedge_providers::builtin()
            .infos(&hints)
            .unwrap()
            .remove(0);
        let domain = info.open().unwrap();
        let av = domain.av(&av::Attr::default()).unwrap();
        Self { info, domain, av }
    }

    fn polled(&self) -> (Endpoint, FiAddr) {
        let ep = Endpoint::open(&*self.domain, &self.info, Arc::clone(&self.av)).unwrap();
        let addr = self.av.insert_one(&ep.address().unwrap()).unwrap();
        (ep, addr)
    }

    fn awaited(&self) -> (AsyncEndpoint, FiAddr) {
        let ep = AsyncEndpoint::open(&*self.domain, &self.info, Arc::clone(&self.av)).unwrap();
        let addr = self.av.insert_one(&ep.address().unwrap()).unwrap();
        (ep, addr)
    }

    fn waiting(&self) -> (AsyncEndpoint, FiAddr) {
        let av = Arc::clone(&self.av);
        let object = wait::Object::Unspec;
        let ep = AsyncEndpoint::open_waiting(&*self.domain, &self.info, av, object).unwrap();
        let addr = self.av.insert_one(&ep.address().unwrap()).unwrap();
        (ep, addr)
    }

    fn pool(&self, size: usize, count: usize) -> Pool {
        Pool::new(&*self.domain, size.max(1), count).unwrap()
    }
}

/// Runs a test with a time limit, so that a hang fails. The limit is far above the expected
/// duration.
fn under_watchdog(test: impl FnOnce() + Send + 'static) {
    let (done, wait) = mpsc::channel();
    let runner = thread::spawn(move || {
        test();
        let _ = done.send(());
    });
    if wait.recv_timeout(Duration::from_secs(120)) == Err(RecvTimeoutError::Timeout) {
        panic!("the test has not ended after two minutes");
    }
    runner.join().unwrap();
}

/// Returns a message of `len` bytes that depends on `seed`.
fn message(pool: &Pool, len: usize, seed: usize) -> Buf {
    let mut buf = pool.take().unwrap();
    buf.set_len(len).unwrap();
    for (index, byte) in buf.iter_mut().enumerate() {
        *byte = pattern(index, seed);
    }
    buf
}

fn pattern(index: usize, seed: usize) -> u8 {
    (index.wrapping_mul(31) ^ (index >> 8) ^ seed) as u8
}

fn assert_message(buf: &Buf, len: usize, seed: usize) {
    assert_eq!(buf.len(), len);
    let wrong = buf
        .iter()
        .enumerate()
        .find(|&(index, &byte)| byte != pattern(index, seed));
    assert_eq!(wrong, None, "message of {len} bytes");
}

#[test]
fn polled_endpoints_exchange_messages_of_every_size() {
    exchange_every_size(Shm::pool);
}

#[test]
fn buffers_in_special_memory_exchange_messages_of_every_size() {
    exchange_every_size(|shm, size, count| {
        let attr = alloc::Attr::default();
        Pool::special(&*shm.domain, size.max(1), count, &attr).unwrap()
    });
}

fn exchange_every_size(pool: fn(&Shm, usize, usize) -> Pool) {
    under_watchdog(move || {
        let shm = Shm::open();
        let ((a, a_addr), (b, b_addr)) = (shm.polled(), shm.polled());
        for (seed, size) in SIZES.into_iter().enumerate() {
            let pool = pool(&shm, size, 2);
            let tag = seed as u64;
            b.trecv(pool.take().unwrap(), a_addr, tag, Context(1))
                .unwrap();
            a.tsend(message(&pool, size, seed), b_addr, tag, Context(2))
                .unwrap();
            let (mut done_a, mut done_b) =
                (Completions::with_capacity(1), Completions::with_capacity(1));
            while a.poll(&mut done_a).unwrap() + b.poll(&mut done_b).unwrap() < 2 {}
            let received = done_b.drain().next().unwrap();
            assert_eq!(received.result.unwrap().src, a_addr);
            assert_message(&received.buf, size, seed);
        }
    });
}

/// Opens two endpoints and a shared region of the first one. Returns the endpoints, the region and
/// its remote address.
fn open_region(shm: &Shm, len: usize) -> (Endpoint, Endpoint, SharedRegion, RemoteAddr) {
    let ((a, a_addr), (b, b_addr)) = (shm.polled(), shm.polled());
    let access = MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE;
    let region = SharedRegion::new(&*shm.domain, len, access, 5).unwrap();
    let pool = shm.pool(8, 2);
    a.trecv(pool.take().unwrap(), b_addr, 1, Context(1))
        .unwrap();
    b.tsend(message(&pool, 8, 1), a_addr, 1, Context(2))
        .unwrap();
    let mut done = Completions::with_capacity(2);
    while a.poll(&mut done).unwrap() + b.poll(&mut done).unwrap() < 4 {}
    let encoded = region.remote().to_bytes();
    let remote = RemoteRegion::try_from(&encoded[..]).unwrap();
    assert_eq!(remote.len(), len as u64);
    let remote = remote.at(a_addr, 0, remote.len()).unwrap();
    (a, b, region, remote)
}

#[test]
fn shared_regions_are_written_and_read_by_peers() {
    under_watchdog(|| {
        let shm = Shm::open();
        let (_a, b, region, remote) = open_region(&shm, 1 << 20);
        for (seed, size) in [1, 8, 100, 4096, 1 << 20].into_iter().enumerate() {
            let pool = shm.pool(size, 2);
            b.write(message(&pool, size, seed), remote, Context(3))
                .unwrap();
            let mut buf = pool.take().unwrap();
            buf.set_len(size).unwrap();
            b.read(buf, remote, Context(4)).unwrap();
            let mut done = Completions::with_capacity(2);
            while b.poll(&mut done).unwrap() < 2 {}
            for completion in done.drain() {
                completion.result.unwrap();
                assert_message(&completion.buf, size, seed);
            }
        }
        b.inject_write(&7_u64.to_ne_bytes(), remote, None).unwrap();
        assert_eq!(region.load_u64(0), Ok(7));
        region.store_u64(0, 8).unwrap();
        let pool = shm.pool(8, 1);
        let mut buf = pool.take().unwrap();
        buf.set_len(8).unwrap();
        b.read(buf, remote, Context(5)).unwrap();
        let mut done = Completions::with_capacity(1);
        while b.poll(&mut done).unwrap() < 1 {}
        assert_eq!(&done.drain().next().unwrap().buf[..], 8_u64.to_ne_bytes());
    });
}

#[test]
fn atomics_change_shared_regions_and_return_the_previous_values() {
    under_watchdog(|| {
        let shm = Shm::open();
        let (a, b, region, remote) = open_region(&shm, 64);
        let target = |op| Target {
            dest: remote.peer,
            addr: remote.addr,
            key: remote.key,
            datatype: Datatype::Uint64,
            op,
        };
        let pool = shm.pool(8, 1);
        let word = |value: u64| value.to_ne_bytes();
        let buf = || {
            let mut buf = pool.take().unwrap();
            buf.write(&word(5)).unwrap();
            buf
        };
        region.store_u64(0, 100).unwrap();
        b.atomic(buf(), target(Op::Sum), Context(1)).unwrap();
        assert_eq!(&next_completion(&b, &a).buf[..], word(5));
        assert_eq!(region.load_u64(0), Ok(105));
        let parse = |buf: &Buf| u64::from_ne_bytes(buf[..].try_into().unwrap());
        b.fetch_atomic(buf(), &word(7), target(Op::Sum), Context(2))
            .unwrap();
        assert_eq!(parse(&next_completion(&b, &a).buf), 105);
        let swap = target(Op::Cswap);
        for (compare, previous) in [(1, 112), (112, 112), (112, 9)] {
            b.compare_atomic(buf(), &word(9), &word(compare), swap, Context(3))
                .unwrap();
            assert_eq!(parse(&next_completion(&b, &a).buf), previous);
        }
        b.inject_atomic(&word(2), target(Op::Prod)).unwrap();
        b.fetch_atomic(buf(), &[], target(Op::AtomicRead), Context(4))
            .unwrap();
        assert_eq!(parse(&next_completion(&b, &a).buf), 18);
        assert_eq!(region.load_u64(0), Ok(18));
    });
}

/// A future that counts the polls of another future.
struct CountPolls<'a, F>(Pin<&'a mut F>, &'a AtomicUsize);

impl<F: Future> Future for CountPolls<'_, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<F::Output> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.as_mut().poll(cx)
    }
}

#[test]
fn futures_with_a_wait_object_are_polled_only_after_completion() {
    under_watchdog(|| {
        let shm = Shm::open();
        let ((a, _), (b, b_addr)) = (shm.waiting(), shm.waiting());
        let pool = shm.pool(100_000, 3);
        let polls = AtomicUsize::new(0);
        for len in [8, 4000, 100_000] {
            polls.store(0, Ordering::Relaxed);
            thread::scope(|scope| {
                let buf = pool.take().unwrap();
                let (b, polls) = (&b, &polls);
                let receiver = scope.spawn(move || {
                    let receive = pin!(b.recv(buf, FiAddr::UNSPEC));
                    b.run(CountPolls(receive, polls)).unwrap().unwrap()
                });
                // The receiver has found no completion, and has parked or is about to park.
                while polls.load(Ordering::Relaxed) == 0 {
                    thread::yield_now();
                }
                a.run(a.send(message(&pool, len, 1), b_addr))
                    .unwrap()
                    .unwrap();
                assert_message(&receiver.join().unwrap().0, len, 1);
            });
            assert!(polls.load(Ordering::Relaxed) <= 2, "{polls:?} for {len}");
        }
    });
}

#[test]
fn many_threads_block_on_futures_of_one_endpoint() {
    const MESSAGES: usize = 200;
    const THREADS: u64 = 4;
    under_watchdog(|| {
        let shm = Shm::open();
        let ((a, a_addr), (b, b_addr)) = (shm.waiting(), shm.waiting());
        let pool = shm.pool(64, 4 * THREADS as usize);
        let exchange = |ep: &AsyncEndpoint, peer, tag| {
            for seed in 0..MESSAGES {
                let send = ep.tsend(message(&pool, 64, seed), peer, tag);
                let receive = ep.trecv(pool.take().unwrap(), peer, tag);
                let both = async { futures::join!(send, receive) };
                let (sent, received) = ep.run(both).unwrap();
                sent.unwrap();
                assert_message(&received.unwrap().0, 64, seed);
            }
        };
        let (a, b, exchange) = (&a, &b, &exchange);
        thread::scope(|scope| {
            for tag in 0..THREADS {
                scope.spawn(move || exchange(a, b_addr, tag));
                scope.spawn(move || exchange(b, a_addr, tag));
            }
        });
    });
}

#[test]
fn waiting_on_an_endpoint_without_a_wait_object_fails() {
    let shm = Shm::open();
    let (a, _) = shm.awaited();
    assert_eq!(a.wait(Some(Duration::ZERO)), Err(Errno::NoSys));
    let (b, _) = shm.waiting();
    assert_eq!(b.wait(Some(Duration::ZERO)), Ok(0));
}

#[test]
fn messages_of_a_multi_receive_are_awaited_in_order() {
    under_watchdog(|| {
        let shm = Shm::open();
        for (ep, addr) in [shm.awaited(), shm.waiting()] {
            let (a, _) = shm.awaited();
            let (pool, lens) = (shm.pool(10_000, 1), [8, 4000, 4000, 1992]);
            ep.set(EpOption::MinMultiRecv(1)).unwrap();
            let outgoing = shm.pool(5000, 4);
            let mut messages = ep.recv_multi(pool.take().unwrap(), FiAddr::UNSPEC, None);
            let sends = lens.into_iter().enumerate();
            let sends = sends.map(|(seed, len)| a.send(message(&outgoing, len, seed), addr));
            let sends = futures::future::join_all(sends.collect::<Vec<_>>());
            let receive = async {
                let mut bufs = Vec::new();
                while let Some(message) = messages.next().await {
                    bufs.push(message.unwrap().0);
                }
                bufs
            };
            let (_, bufs) = ep.run(async { futures::join!(sends, receive) }).unwrap();
            assert_eq!(bufs.len(), lens.len());
            for (seed, buf) in bufs.iter().enumerate() {
                assert_message(buf, lens[seed], seed);
            }
            assert_eq!(pool.available(), 0);
            drop(bufs);
            assert_eq!(pool.available(), 1);
            // A dropped `Messages` with unread messages also returns its buffer.
            let mut messages = ep.recv_multi(pool.take().unwrap(), FiAddr::UNSPEC, None);
            let send = a.send(message(&outgoing, 8, 0), addr);
            let both = async { futures::join!(send, messages.next()) };
            let (_, first) = ep.run(both).unwrap();
            drop((first, messages));
            while pool.available() == 0 {
                ep.progress().unwrap();
            }
        }
    });
}

#[test]
fn awaited_endpoints_exchange_messages_of_every_size() {
    under_watchdog(|| {
        let shm = Shm::open();
        let ((a, a_addr), (b, b_addr)) = (shm.awaited(), shm.awaited());
        for (seed, size) in SIZES.into_iter().enumerate() {
            let pool = shm.pool(size, 4);
            let ping = a.send(message(&pool, size, seed), b_addr);
            let pong = a.recv(pool.take().unwrap(), b_addr);
            let echo = async {
                let buf = pool.take().unwrap();
                let (buf, received) = b.recv(buf, FiAddr::UNSPEC).await.unwrap();
                assert_eq!(received.src, a_addr);
                b.send(buf, received.src).await.unwrap();
            };
            let (sent, received, ()) = block_on(async { futures::join!(ping, pong, echo) });
            assert_message(&sent.unwrap(), size, seed);
            assert_message(&received.unwrap().0, size, seed);
        }
    });
}

/// Polls both endpoints. Returns the next completion of `ep`; `other` must have no completion.
fn next_completion(ep: &Endpoint, other: &Endpoint) -> Completion {
    let (mut done, mut unexpected) = (Completions::with_capacity(1), Completions::with_capacity(1));
    while ep.poll(&mut done).unwrap() == 0 {
        other.poll(&mut unexpected).unwrap();
        assert!(unexpected.is_empty(), "the other endpoint has a completion");
    }
    done.drain().next().unwrap()
}

fn is_last(done: &Completion) -> bool {
    let flags = match &done.result {
        Ok(received) => received.flags,
        Err(error) => error.entry.flags,
    };
    flags.contains(CompletionFlags::MULTI_RECV)
}

#[test]
fn messages_of_a_multi_receive_are_separate_buffers() {
    under_watchdog(|| {
        let shm = Shm::open();
        let ((a, _), (b, b_addr)) = (shm.polled(), shm.polled());
        for tag in [None, Some(TagMatch::ANY)] {
            let (pool, lens) = (shm.pool(300_000, 1), [8, 4000, 200_000, 0, 95_992]);
            b.set(EpOption::MinMultiRecv(1)).unwrap();
            let buf = pool.take().unwrap();
            b.recv_multi(buf, FiAddr::UNSPEC, tag, Context(7)).unwrap();
            let mut bufs = Vec::new();
            for (seed, len) in lens.into_iter().enumerate() {
                let outgoing = shm.pool(len, 1);
                let (message, context) = (message(&outgoing, len, seed), Context(1));
                match tag {
                    None => a.send(message, b_addr, context).unwrap(),
                    Some(_) => a.tsend(message, b_addr, 5, context).unwrap(),
                };
                let (mut done_a, mut done_b) =
                    (Completions::with_capacity(1), Completions::with_capacity(1));
                while a.poll(&mut done_a).unwrap() + b.poll(&mut done_b).unwrap() < 2 {}
                let done = done_b.drain().next().unwrap();
                assert_eq!(is_last(&done), seed == lens.len() - 1);
                assert_eq!(done.result.as_ref().unwrap().len, len);
                // A write to one message does not change the others.
                let mut received = done.buf;
                assert_message(&received, len, seed);
                assert_eq!(received.set_len(len + 1), Err(Errno::TooSmall));
                received.iter_mut().for_each(|byte| *byte = !*byte);
                bufs.push(received);
            }
            for (seed, buf) in bufs.iter_mut().enumerate() {
                buf.iter_mut().for_each(|byte| *byte = !*byte);
                assert_message(buf, lens[seed], seed);
            }
            while bufs.pop().is_some() {
                assert_eq!(pool.available(), usize::from(bufs.is_empty()));
            }
        }
    });
}

#[test]
fn a_multi_receive_buffer_is_returned_after_cancellation_or_close() {
    under_watchdog(|| {
        let shm = Shm::open();
        let ((a, _), (b, b_addr)) = (shm.polled(), shm.polled());
        let pool = shm.pool(100_000, 1);
        for is_cancelled in [true, false] {
            let (buf, any) = (pool.take().unwrap(), FiAddr::UNSPEC);
            let posted = b.recv_multi(buf, any, None, Context(7)).unwrap();
            a.inject(b"hello", b_addr, None).unwrap();
            let received = next_completion(&b, &a).buf;
            assert_eq!(pool.available(), 0);
            if is_cancelled {
                b.cancel(posted).unwrap();
                let done = next_completion(&b, &a);
                assert!(is_last(&done) && done.buf.is_empty());
                assert_eq!(done.result.unwrap_err().errno, Errno::Canceled);
                assert_eq!(pool.available(), 0);
                drop(done.buf);
            } else {
                drop((a, b));
                assert_eq!(&received[..], b"hello");
                drop(received);
                assert_eq!(pool.available(), 1);
                return;
            }
            assert_eq!(&received[..], b"hello");
            drop(received);
            assert_eq!(pool.available(), 1);
        }
    });
}

#[test]
fn messages_are_peeked_and_discarded() {
    under_watchdog(|| {
        let shm = Shm::open();
        let ((a, a_addr), (b, b_addr)) = (shm.polled(), shm.polled());
        let pool = shm.pool(100_000, 3);
        let peeked = |discards: bool| {
            let mut buf = pool.take().unwrap();
            buf.write(b"kept").unwrap();
            if discards {
                b.tdiscard(buf, a_addr, 5, Context(3)).unwrap()
            } else {
                b.tpeek(buf, a_addr, 5, Context(3)).unwrap()
            };
            let mut done = Completions::with_capacity(1);
            while b.poll(&mut done).unwrap() == 0 {}
            let done = done.drain().next().unwrap();
            assert_eq!((done.context, &done.buf[..]), (Context(3), &b"kept"[..]));
            done.result
                .map(|received| (received.tag, received.len, received.data))
        };
        for len in [8, 100_000] {
            assert_eq!(peeked(false).unwrap_err().errno, Errno::NoMsg);
            let message = message(&pool, len, 1);
            a.tsenddata(message, 9, b_addr, 5, Context(1)).unwrap();
            while peeked(false).is_err() {}
            for discards in [false, true] {
                assert_eq!(peeked(discards).unwrap(), (5, len, Some(9)));
            }
            assert_eq!(peeked(true).unwrap_err().errno, Errno::NoMsg);
            next_completion(&a, &b).result.unwrap();
        }
    });
}

#[test]
fn all_messages_arrive_when_the_queues_are_full() {
    const MESSAGES: usize = 3000;
    under_watchdog(|| {
        let shm = Shm::open();
        let ((a, _), (b, b_addr)) = (shm.awaited(), shm.awaited());
        let pool = shm.pool(64, MESSAGES + 1);
        let sends = (0..MESSAGES).map(|i| a.send(message(&pool, 64, i), b_addr));
        let sends = futures::future::join_all(sends.collect::<Vec<_>>());
        let receive = async {
            let mut next_buf = pool.take().unwrap();
            let mut counts = vec![0; 256];
            for _ in 0..MESSAGES {
                let (buf, _) = b.recv(next_buf, FiAddr::UNSPEC).await.unwrap();
                counts[usize::from(buf[0])] += 1;
                next_buf = buf;
            }
            counts
        };
        let (sent, counts) = block_on(async { futures::join!(sends, receive) });
        assert!(sent.into_iter().all(|sent| sent.is_ok()));
        let expected = (0..256).map(|first| (0..MESSAGES).filter(|i| i % 256 == first).count());
        assert_eq!(counts, expected.collect::<Vec<_>>());
    });
}

#[test]
fn closing_during_transfers_returns_the_buffers() {
    under_watchdog(|| {
        let shm = Shm::open();
        let (b, b_addr) = shm.polled();
        for size in SIZES {
            let pool = shm.pool(size, 8);
            let (a, _) = shm.polled();
            let unmatched = u64::MAX;
            a.trecv(pool.take().unwrap(), b_addr, unmatched, Context(0))
                .unwrap();
            for i in 0..4 {
                match a.tsend(message(&pool, size, 0), b_addr, i, Context(i)) {
                    Ok(_) => {}
                    Err(error) => assert_eq!(error.errno, Errno::Again),
                }
                let _ = b.poll(&mut Completions::with_capacity(1));
            }
            drop(a);
            assert_eq!(pool.available(), 8, "{size} bytes");
        }
    });
}

#[test]
fn futures_dropped_during_a_transfer_return_their_buffers() {
    under_watchdog(|| {
        let shm = Shm::open();
        let ((a, _), (b, b_addr)) = (shm.awaited(), shm.awaited());
        for (seed, size) in SIZES.into_iter().enumerate() {
            let pool = shm.pool(size, 2);
            {
                let mut receive = pin!(b.recv(pool.take().unwrap(), FiAddr::UNSPEC));
                let mut send = pin!(a.send(message(&pool, size, seed), b_addr));
                let _ = poll(receive.as_mut());
                let _ = poll(send.as_mut());
            }
            // The sender owns the buffer of a started message until a receive matches it.
            let drain_pool = shm.pool(size, 1);
            let mut drain = Box::pin(b.recv(drain_pool.take().unwrap(), FiAddr::UNSPEC));
            while pool.available() < 2 {
                if let Poll::Ready(received) = poll(drain.as_mut()) {
                    let (buf, _) = received.unwrap();
                    drain.set(b.recv(buf, FiAddr::UNSPEC));
                }
                a.progress().unwrap();
            }
        }
    });
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut TaskContext::from_waker(Waker::noop()))
}

#[test]
fn threads_exchange_messages() {
    const MESSAGES: usize = 500;
    under_watchdog(|| {
        let shm = Shm::open();
        let (a, a_addr) = shm.awaited();
        let (b, b_addr) = shm.awaited();
        let pool = shm.pool(4096, 4);
        let run = |ep: &AsyncEndpoint, peer| {
            for i in 0..MESSAGES {
                let len = i * 8 % 4096;
                let send = ep.send(message(&pool, len, i), peer);
                let receive = ep.recv(pool.take().unwrap(), peer);
                let (sent, received) = block_on(async { futures::join!(send, receive) });
                sent.unwrap();
                assert_message(&received.unwrap().0, len, i);
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| run(&a, b_addr));
            scope.spawn(|| run(&b, a_addr));
        });
        assert_eq!(pool.available(), 4);
    });
}

#[test]
fn contexts_exchange_messages() {
    const BITS: u32 = 2;
    under_watchdog(|| {
        let shm = Shm::open();
        let mut info = shm.info.clone();
        (info.ep_attr.tx_ctx_cnt, info.ep_attr.rx_ctx_cnt) = (2, 2);
        let mut attr = av::Attr::default();
        attr.rx_ctx_bits = BITS;
        let av = shm.domain.av(&attr).unwrap();
        let sep = shm.domain.scalable_endpoint(&info).unwrap();
        let sep_addr = av.insert_one(&sep.address().unwrap()).unwrap();
        let context = |index| {
            let av = Arc::clone(&av);
            Endpoint::open_context(&*shm.domain, (&*sep, index), &info, av, wait::Object::None)
        };
        let (first, second) = (context(0).unwrap(), context(1).unwrap());
        assert_eq!(context(1).unwrap_err().errno(), Errno::Busy);
        let (pool, dest) = (shm.pool(64, 2), sep_addr.rx_addr(1, BITS));
        let mut hello = pool.take().unwrap();
        hello.write(b"hello").unwrap();
        second
            .recv(pool.take().unwrap(), sep_addr, Context(2))
            .unwrap();
        first.send(hello, dest, Context(1)).unwrap();
        let mut done = Completions::with_capacity(2);
        while second.poll(&mut done).unwrap() == 0 {
            first.poll(&mut Completions::with_capacity(1)).unwrap();
        }
        let received = done.drain().next().unwrap();
        assert_eq!(
            (received.context, &*received.buf),
            (Context(2), &b"hello"[..])
        );
        assert_eq!(received.result.unwrap().src, sep_addr);
        drop(second);
        let object = wait::Object::Unspec;
        let reopened = AsyncEndpoint::open_context(&*shm.domain, (&*sep, 1), &info, av, object);
        assert!(reopened.is_ok(), "a closed context opens again");
    });
}
