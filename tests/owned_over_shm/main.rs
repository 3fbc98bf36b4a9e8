//! The safe layer over the shm provider: both its faces, at every size.

#![expect(clippy::unwrap_used, reason = "a test may fail anywhere")]

mod claims;

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
    AsyncEndpoint, Buf, Completion, Completions, Endpoint, Pool, RemoteAddr, SharedRegion,
};
use selvedge::{
    AddressVector, Caps, CompletionFlags, Context, Domain, EpOption, Errno, FiAddr, Hints, Info,
    MrAccess, TagMatch, alloc, av, wait,
};

const SIZES: [usize; 7] = [0, 1, 64, 4096, 16 << 10, 256 << 10, 4 << 20];

/// A domain, and what belongs to all of its endpoints.
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

/// Runs a test that would hang where it fails; the time is far above what it takes.
fn under_watchdog(test: impl FnOnce() + Send + 'static) {
    let (done, wait) = mpsc::channel();
    let runner = thread::spawn(move || {
        test();
        let _ = done.send(());
    });
    if wait.recv_timeout(Duration::from_secs(120)) == Err(RecvTimeoutError::Timeout) {
        panic!("still running after two minutes");
    }
    runner.join().unwrap();
}

/// A message of `len` bytes that is another one for each `seed`.
fn message(pool: &Pool, len: usize, seed: usize) -> Buf {
    let mut buf = pool.take().unwrap();
    buf.set_len(len).unwrap();
    for (i, byte) in buf.iter_mut().enumerate() {
        *byte = pattern(i, seed);
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
        .find(|&(i, &byte)| byte != pattern(i, seed));
    assert_eq!(wrong, None, "message of {len} bytes");
}

#[test]
fn polled_endpoints_exchange_messages_of_every_size() {
    exchange_every_size(Shm::pool);
}

#[test]
fn buffers_in_special_memory_are_exchanged_at_every_size() {
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
            let (mut at_a, mut at_b) =
                (Completions::with_capacity(1), Completions::with_capacity(1));
            while a.poll(&mut at_a).unwrap() + b.poll(&mut at_b).unwrap() < 2 {}
            let received = at_b.drain().next().unwrap();
            assert_eq!(received.result.unwrap().src, a_addr);
            assert_message(&received.buf, size, seed);
        }
    });
}

/// Two endpoints, a window of the first one's domain, and where it begins to the second.
fn with_a_window(shm: &Shm, len: usize) -> (Endpoint, Endpoint, SharedRegion, RemoteAddr) {
    let ((a, a_addr), (b, b_addr)) = (shm.polled(), shm.polled());
    let access = MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE;
    let window = SharedRegion::new(&*shm.domain, len, access, 5).unwrap();
    let pool = shm.pool(8, 2);
    a.trecv(pool.take().unwrap(), b_addr, 1, Context(1))
        .unwrap();
    b.tsend(message(&pool, 8, 1), a_addr, 1, Context(2))
        .unwrap();
    let mut done = Completions::with_capacity(2);
    while a.poll(&mut done).unwrap() + b.poll(&mut done).unwrap() < 4 {}
    let place = RemoteAddr {
        peer: a_addr,
        addr: window.addr(0),
        key: window.key(),
    };
    (a, b, window, place)
}

#[test]
fn windows_are_written_and_read_by_peers() {
    under_watchdog(|| {
        let shm = Shm::open();
        let (_a, b, window, place) = with_a_window(&shm, 1 << 20);
        for (seed, size) in [1, 8, 100, 4096, 1 << 20].into_iter().enumerate() {
            let pool = shm.pool(size, 2);
            b.write(message(&pool, size, seed), place, Context(3))
                .unwrap();
            let mut room = pool.take().unwrap();
            room.set_len(size).unwrap();
            b.read(room, place, Context(4)).unwrap();
            let mut done = Completions::with_capacity(2);
            while b.poll(&mut done).unwrap() < 2 {}
            for completion in done.drain() {
                completion.result.unwrap();
                assert_message(&completion.buf, size, seed);
            }
        }
        b.inject_write(&7_u64.to_ne_bytes(), place, None).unwrap();
        assert_eq!(window.load_u64(0), Ok(7));
        window.store_u64(0, 8).unwrap();
        let pool = shm.pool(8, 1);
        let mut room = pool.take().unwrap();
        room.set_len(8).unwrap();
        b.read(room, place, Context(5)).unwrap();
        let mut done = Completions::with_capacity(1);
        while b.poll(&mut done).unwrap() < 1 {}
        assert_eq!(&done.drain().next().unwrap().buf[..], 8_u64.to_ne_bytes());
    });
}

#[test]
fn windows_are_changed_by_atomics_that_bring_back_what_was_there() {
    under_watchdog(|| {
        let shm = Shm::open();
        let (a, b, window, place) = with_a_window(&shm, 64);
        let target = |op| Target {
            dest: place.peer,
            addr: place.addr,
            key: place.key,
            datatype: Datatype::Uint64,
            op,
        };
        let pool = shm.pool(8, 1);
        let word = |value: u64| value.to_ne_bytes();
        let room = || {
            let mut buf = pool.take().unwrap();
            buf.write(&word(5)).unwrap();
            buf
        };
        window.store_u64(0, 100).unwrap();
        b.atomic(room(), target(Op::Sum), Context(1)).unwrap();
        assert_eq!(&next(&b, &a).buf[..], word(5));
        assert_eq!(window.load_u64(0), Ok(105));
        let fetched = |buf: &Buf| u64::from_ne_bytes(buf[..].try_into().unwrap());
        b.fetch_atomic(room(), &word(7), target(Op::Sum), Context(2))
            .unwrap();
        assert_eq!(fetched(&next(&b, &a).buf), 105);
        let swap = target(Op::Cswap);
        for (compare, found) in [(1, 112), (112, 112), (112, 9)] {
            b.compare_atomic(room(), &word(9), &word(compare), swap, Context(3))
                .unwrap();
            assert_eq!(fetched(&next(&b, &a).buf), found);
        }
        b.inject_atomic(&word(2), target(Op::Prod)).unwrap();
        b.fetch_atomic(room(), &[], target(Op::AtomicRead), Context(4))
            .unwrap();
        assert_eq!(fetched(&next(&b, &a).buf), 18);
        assert_eq!(window.load_u64(0), Ok(18));
    });
}

/// Counts how often a future is polled.
struct Counted<'a, F>(Pin<&'a mut F>, &'a AtomicUsize);

impl<F: Future> Future for Counted<'_, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<F::Output> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.as_mut().poll(cx)
    }
}

#[test]
fn futures_that_are_run_with_a_wait_object_are_polled_when_they_are_done_and_not_before() {
    under_watchdog(|| {
        let shm = Shm::open();
        let ((a, _), (b, b_addr)) = (shm.waiting(), shm.waiting());
        let pool = shm.pool(100_000, 3);
        let polls = AtomicUsize::new(0);
        for len in [8, 4000, 100_000] {
            polls.store(0, Ordering::Relaxed);
            thread::scope(|scope| {
                let room = pool.take().unwrap();
                let (b, polls) = (&b, &polls);
                let receiver = scope.spawn(move || {
                    let receive = pin!(b.recv(room, FiAddr::UNSPEC));
                    b.run(Counted(receive, polls)).unwrap().unwrap()
                });
                // It has found nothing and sleeps, or is about to.
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
fn many_threads_run_futures_of_one_endpoint_asleep() {
    const MESSAGES: usize = 200;
    const THREADS: u64 = 4;
    under_watchdog(|| {
        let shm = Shm::open();
        let ((a, a_addr), (b, b_addr)) = (shm.waiting(), shm.waiting());
        let pool = shm.pool(64, 4 * THREADS as usize);
        let play = |ep: &AsyncEndpoint, peer, tag| {
            for seed in 0..MESSAGES {
                let send = ep.tsend(message(&pool, 64, seed), peer, tag);
                let receive = ep.trecv(pool.take().unwrap(), peer, tag);
                let both = async { futures::join!(send, receive) };
                let (sent, received) = ep.run(both).unwrap();
                sent.unwrap();
                assert_message(&received.unwrap().0, 64, seed);
            }
        };
        let (a, b, play) = (&a, &b, &play);
        thread::scope(|scope| {
            for tag in 0..THREADS {
                scope.spawn(move || play(a, b_addr, tag));
                scope.spawn(move || play(b, a_addr, tag));
            }
        });
    });
}

#[test]
fn an_endpoint_without_a_wait_object_cannot_be_waited_at() {
    let shm = Shm::open();
    let (a, _) = shm.awaited();
    assert_eq!(a.wait(Some(Duration::ZERO)), Err(Errno::NoSys));
    let (b, _) = shm.waiting();
    assert_eq!(b.wait(Some(Duration::ZERO)), Ok(0));
}

#[test]
fn messages_of_one_buffer_are_awaited_one_after_the_other() {
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
                let mut parts = Vec::new();
                while let Some(message) = messages.next().await {
                    parts.push(message.unwrap().0);
                }
                parts
            };
            let (_, parts) = ep.run(async { futures::join!(sends, receive) }).unwrap();
            assert_eq!(parts.len(), lens.len());
            for (seed, part) in parts.iter().enumerate() {
                assert_message(part, lens[seed], seed);
            }
            assert_eq!(pool.available(), 0);
            drop(parts);
            assert_eq!(pool.available(), 1);
            // One that is dropped with messages unread gives its buffer back, too.
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
                let room = pool.take().unwrap();
                let (buf, received) = b.recv(room, FiAddr::UNSPEC).await.unwrap();
                assert_eq!(received.src, a_addr);
                b.send(buf, received.src).await.unwrap();
            };
            let (sent, received, ()) = block_on(async { futures::join!(ping, pong, echo) });
            assert_message(&sent.unwrap(), size, seed);
            assert_message(&received.unwrap().0, size, seed);
        }
    });
}

/// The next completion of `at`, while `other` goes on.
fn next(at: &Endpoint, other: &Endpoint) -> Completion {
    let (mut done, mut none) = (Completions::with_capacity(1), Completions::with_capacity(1));
    while at.poll(&mut done).unwrap() == 0 {
        other.poll(&mut none).unwrap();
        assert!(none.is_empty(), "a completion at the other side");
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
fn messages_of_one_buffer_are_buffers_of_their_own_that_keep_it() {
    under_watchdog(|| {
        let shm = Shm::open();
        let ((a, _), (b, b_addr)) = (shm.polled(), shm.polled());
        for tag in [None, Some(TagMatch::ANY)] {
            let (pool, lens) = (shm.pool(300_000, 1), [8, 4000, 200_000, 0, 95_992]);
            b.set(EpOption::MinMultiRecv(1)).unwrap();
            let buf = pool.take().unwrap();
            b.recv_multi(buf, FiAddr::UNSPEC, tag, Context(7)).unwrap();
            let mut parts = Vec::new();
            for (seed, len) in lens.into_iter().enumerate() {
                let outgoing = shm.pool(len, 1);
                let (message, word) = (message(&outgoing, len, seed), Context(1));
                match tag {
                    None => a.send(message, b_addr, word).unwrap(),
                    Some(_) => a.tsend(message, b_addr, 5, word).unwrap(),
                };
                let (mut at_a, mut at_b) =
                    (Completions::with_capacity(1), Completions::with_capacity(1));
                while a.poll(&mut at_a).unwrap() + b.poll(&mut at_b).unwrap() < 2 {}
                let done = at_b.drain().next().unwrap();
                assert_eq!(is_last(&done), seed == lens.len() - 1);
                assert_eq!(done.result.as_ref().unwrap().len, len);
                // What is written to one part is in no other.
                let mut part = done.buf;
                assert_message(&part, len, seed);
                assert_eq!(part.set_len(len + 1), Err(Errno::TooSmall));
                part.iter_mut().for_each(|byte| *byte = !*byte);
                parts.push(part);
            }
            for (seed, part) in parts.iter_mut().enumerate() {
                part.iter_mut().for_each(|byte| *byte = !*byte);
                assert_message(part, lens[seed], seed);
            }
            while parts.pop().is_some() {
                assert_eq!(pool.available(), usize::from(parts.is_empty()));
            }
        }
    });
}

#[test]
fn a_buffer_for_many_messages_comes_back_when_it_is_cancelled_or_its_endpoint_is_dropped() {
    under_watchdog(|| {
        let shm = Shm::open();
        let ((a, _), (b, b_addr)) = (shm.polled(), shm.polled());
        let pool = shm.pool(100_000, 1);
        for is_cancelled in [true, false] {
            let (buf, any) = (pool.take().unwrap(), FiAddr::UNSPEC);
            let posted = b.recv_multi(buf, any, None, Context(7)).unwrap();
            a.inject(b"hello", b_addr, None).unwrap();
            let part = next(&b, &a).buf;
            assert_eq!(pool.available(), 0);
            if is_cancelled {
                b.cancel(posted).unwrap();
                let done = next(&b, &a);
                assert!(is_last(&done) && done.buf.is_empty());
                assert_eq!(done.result.unwrap_err().errno, Errno::Canceled);
                assert_eq!(pool.available(), 0);
                drop(done.buf);
            } else {
                drop((a, b));
                assert_eq!(&part[..], b"hello");
                drop(part);
                assert_eq!(pool.available(), 1);
                return;
            }
            assert_eq!(&part[..], b"hello");
            drop(part);
            assert_eq!(pool.available(), 1);
        }
    });
}

#[test]
fn safe_code_looks_at_messages_and_drops_them() {
    under_watchdog(|| {
        let shm = Shm::open();
        let ((a, a_addr), (b, b_addr)) = (shm.polled(), shm.polled());
        let pool = shm.pool(100_000, 3);
        let looked = |discards: bool| {
            let mut buf = pool.take().unwrap();
            buf.write(b"kept").unwrap();
            match discards {
                true => b.tdiscard(buf, a_addr, 5, Context(3)).unwrap(),
                false => b.tpeek(buf, a_addr, 5, Context(3)).unwrap(),
            };
            let mut done = Completions::with_capacity(1);
            while b.poll(&mut done).unwrap() == 0 {}
            let done = done.drain().next().unwrap();
            assert_eq!((done.context, &done.buf[..]), (Context(3), &b"kept"[..]));
            done.result
                .map(|received| (received.tag, received.len, received.data))
        };
        for len in [8, 100_000] {
            assert_eq!(looked(false).unwrap_err().errno, Errno::NoMsg);
            let message = message(&pool, len, 1);
            a.tsenddata(message, 9, b_addr, 5, Context(1)).unwrap();
            while looked(false).is_err() {}
            for discards in [false, true] {
                assert_eq!(looked(discards).unwrap(), (5, len, Some(9)));
            }
            assert_eq!(looked(true).unwrap_err().errno, Errno::NoMsg);
            next(&a, &b).result.unwrap();
        }
    });
}

#[test]
fn more_messages_than_the_queues_hold_all_arrive() {
    const MESSAGES: usize = 3000;
    under_watchdog(|| {
        let shm = Shm::open();
        let ((a, _), (b, b_addr)) = (shm.awaited(), shm.awaited());
        let pool = shm.pool(64, MESSAGES + 1);
        let sends = (0..MESSAGES).map(|i| a.send(message(&pool, 64, i), b_addr));
        let sends = futures::future::join_all(sends.collect::<Vec<_>>());
        let receive = async {
            let mut room = pool.take().unwrap();
            let mut seen = vec![0; 256];
            for _ in 0..MESSAGES {
                let (buf, _) = b.recv(room, FiAddr::UNSPEC).await.unwrap();
                seen[usize::from(buf[0])] += 1;
                room = buf;
            }
            seen
        };
        let (sent, seen) = block_on(async { futures::join!(sends, receive) });
        assert!(sent.into_iter().all(|sent| sent.is_ok()));
        let expected = (0..256).map(|first| (0..MESSAGES).filter(|i| i % 256 == first).count());
        assert_eq!(seen, expected.collect::<Vec<_>>());
    });
}

#[test]
fn closing_in_the_middle_of_everything_returns_the_buffers() {
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
                    Err(refused) => assert_eq!(refused.errno, Errno::Again),
                }
                let _ = b.poll(&mut Completions::with_capacity(1));
            }
            drop(a);
            assert_eq!(pool.available(), 8, "{size} bytes");
        }
    });
}

#[test]
fn futures_dropped_in_the_middle_of_a_transfer_return_their_buffers() {
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
            // A message that is under way and met no receive is the sender's until it does.
            let rooms = shm.pool(size, 1);
            let mut drain = Box::pin(b.recv(rooms.take().unwrap(), FiAddr::UNSPEC));
            while pool.available() < 2 {
                if let Poll::Ready(received) = poll(drain.as_mut()) {
                    let (room, _) = received.unwrap();
                    drain.set(b.recv(room, FiAddr::UNSPEC));
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
fn buffers_go_from_context_to_context() {
    const BITS: u32 = 2;
    under_watchdog(|| {
        let shm = Shm::open();
        let mut info = shm.info.clone();
        (info.ep_attr.tx_ctx_cnt, info.ep_attr.rx_ctx_cnt) = (2, 2);
        let mut attr = av::Attr::default();
        attr.rx_ctx_bits = BITS;
        let av = shm.domain.av(&attr).unwrap();
        let sep = shm.domain.scalable_endpoint(&info).unwrap();
        let own = av.insert_one(&sep.address().unwrap()).unwrap();
        let context = |index| {
            let av = Arc::clone(&av);
            Endpoint::open_context(&*shm.domain, (&*sep, index), &info, av)
        };
        let (first, second) = (context(0).unwrap(), context(1).unwrap());
        assert_eq!(context(1).unwrap_err().errno(), Errno::Busy);
        let (pool, to) = (shm.pool(64, 2), own.rx_addr(1, BITS));
        let mut hello = pool.take().unwrap();
        hello.write(b"hello").unwrap();
        second.recv(pool.take().unwrap(), own, Context(2)).unwrap();
        first.send(hello, to, Context(1)).unwrap();
        let mut done = Completions::with_capacity(2);
        while second.poll(&mut done).unwrap() == 0 {
            first.poll(&mut Completions::with_capacity(1)).unwrap();
        }
        let received = done.drain().next().unwrap();
        assert_eq!(
            (received.context, &*received.buf),
            (Context(2), &b"hello"[..])
        );
        assert_eq!(received.result.unwrap().src, own);
        drop(second);
        let object = wait::Object::Unspec;
        let again = AsyncEndpoint::open_context(&*shm.domain, (&*sep, 1), &info, av, object);
        assert!(again.is_ok(), "a context that was closed");
    });
}
