//! Random interleavings of everything that can happen to a buffer: it is in one place at any time,
//! and comes back once.

use std::collections::{BTreeMap, HashSet};
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll, Waker};

use proptest::collection::vec;
use proptest::prelude::*;
use selvedge::owned::{AsyncEndpoint, Buf, Completions, Endpoint, Handle, Pool, TryPostError};
use selvedge::{Context, Errno, FiAddr};

use crate::loopback::Net;

const BUFFERS: usize = 24;

#[derive(Clone, Copy, Debug)]
enum Kind {
    Send,
    Recv,
    Tsend(u64),
    Trecv(u64),
}

/// What the provider is told to do.
#[derive(Clone, Copy, Debug)]
enum Mood {
    Refuse(Errno),
    Fail(Errno),
    Hold,
    Allow(usize),
    Depth(usize),
    Seed(usize),
    Cancellable(bool),
}

impl Mood {
    fn apply(self, net: &Net) {
        net.set(|knobs| match self {
            Self::Refuse(errno) => knobs.refusals.push_back(errno),
            Self::Fail(errno) => knobs.failures.push_back(errno),
            Self::Hold => knobs.budget = 0,
            Self::Allow(count) => knobs.budget = count,
            Self::Depth(depth) => knobs.depth = depth,
            Self::Seed(seed) => knobs.seed = seed,
            Self::Cancellable(can) => knobs.uncancellable = !can,
        });
    }
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        Just(Kind::Send),
        Just(Kind::Recv),
        (0..3u64).prop_map(Kind::Tsend),
        (0..3u64).prop_map(Kind::Trecv),
    ]
}

fn mood() -> impl Strategy<Value = Mood> {
    prop_oneof![
        Just(Mood::Refuse(Errno::Again)),
        Just(Mood::Refuse(Errno::NoMem)),
        Just(Mood::Fail(Errno::ConnReset)),
        Just(Mood::Hold),
        (1..4usize).prop_map(Mood::Allow),
        Just(Mood::Allow(usize::MAX)),
        (0..6usize).prop_map(Mood::Depth),
        any::<usize>().prop_map(Mood::Seed),
        any::<bool>().prop_map(Mood::Cancellable),
    ]
}

fn address(buf: &Buf) -> usize {
    buf.as_ptr().addr()
}

/// Every buffer is in the pool, once; those that only a leaked future knows may be missing.
fn assert_back(pool: &Pool, leaked: &HashSet<usize>) {
    let bufs: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
    let places: HashSet<_> = bufs.iter().map(address).collect();
    assert_eq!(places.len(), bufs.len(), "a buffer came back twice");
    let known = places.union(leaked).count();
    assert_eq!(known, BUFFERS, "a buffer is missing");
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Post { ep: usize, peer: usize, kind: Kind },
    Poll { ep: usize, room: usize },
    Cancel { which: usize },
    Close { ep: usize },
    Provider(Mood),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..2usize, 0..2usize, kind()).prop_map(|(ep, peer, kind)| Step::Post { ep, peer, kind }),
        4 => (0..2usize, 1..20usize).prop_map(|(ep, room)| Step::Poll { ep, room }),
        2 => any::<usize>().prop_map(|which| Step::Cancel { which }),
        1 => (0..2usize).prop_map(|ep| Step::Close { ep }),
        3 => mood().prop_map(Step::Provider),
    ]
}

/// Two endpoints, and where every buffer must be.
struct Polled {
    net: Net,
    pool: Pool,
    eps: [Option<Endpoint>; 2],
    addrs: [FiAddr; 2],
    /// By context: the endpoint, the place, and what names the operation.
    outstanding: BTreeMap<u64, (usize, usize, Handle)>,
    posts: u64,
    /// Messages that were received.
    received: HashSet<Vec<u8>>,
}

impl Polled {
    fn new() -> Self {
        let net = Net::new();
        let (a, a_addr) = net.polled();
        let (b, b_addr) = net.polled();
        Self {
            pool: net.pool(BUFFERS),
            net,
            eps: [Some(a), Some(b)],
            addrs: [a_addr, b_addr],
            outstanding: BTreeMap::new(),
            posts: 0,
            received: HashSet::new(),
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Post { ep, peer, kind } => self.post(ep, peer, kind),
            Step::Poll { ep, room } => self.poll(ep, room),
            Step::Cancel { which } => self.cancel(which),
            Step::Close { ep } => {
                self.eps[ep] = None;
                self.outstanding.retain(|_, (owner, ..)| *owner != ep);
            }
            Step::Provider(mood) => mood.apply(&self.net),
        }
        assert_eq!(self.pool.available() + self.outstanding.len(), BUFFERS);
    }

    fn post(&mut self, index: usize, peer: usize, kind: Kind) {
        let (Some(ep), Some(mut buf)) = (&self.eps[index], self.pool.take()) else {
            return;
        };
        self.posts += 1;
        buf.write(&self.posts.to_ne_bytes()).unwrap();
        let place = address(&buf);
        let (peer, context) = (self.addrs[peer], Context(self.posts));
        let posted = match kind {
            Kind::Send => ep.send(buf, peer, context),
            Kind::Recv => ep.recv(buf, peer, context),
            Kind::Tsend(tag) => ep.tsend(buf, peer, tag, context),
            Kind::Trecv(tag) => ep.trecv(buf, peer, tag, context),
        };
        match posted {
            Ok(handle) => {
                self.outstanding.insert(context.0, (index, place, handle));
            }
            Err(TryPostError { buf, .. }) => assert_eq!(address(&buf), place),
        }
    }

    fn poll(&mut self, index: usize, room: usize) {
        let Some(ep) = &self.eps[index] else {
            return;
        };
        let mut done = Completions::with_capacity(room);
        assert_eq!(ep.poll(&mut done).unwrap(), done.len());
        for completion in done.drain() {
            let expected = self.outstanding.remove(&completion.context.0);
            let (owner, place, _) = expected.expect("completed once, and only if posted");
            assert_eq!((owner, place), (index, address(&completion.buf)));
            let received = completion
                .result
                .is_ok_and(|r| r.flags.contains(selvedge::CompletionFlags::RECV));
            if received {
                assert!(
                    self.received.insert(completion.buf.to_vec()),
                    "received twice"
                );
            }
        }
    }

    fn cancel(&mut self, which: usize) {
        let Some(which) = which.checked_rem(self.outstanding.len()) else {
            return;
        };
        let (owner, _, handle) = self.outstanding.values().nth(which).unwrap();
        let _ = self.eps[*owner].as_ref().unwrap().cancel(*handle);
    }
}

/// Steps on futures; the endpoints are closed at the end.
#[derive(Clone, Copy, Debug)]
enum AsyncStep {
    Start { ep: usize, peer: usize, kind: Kind },
    Poll { which: usize },
    Drop { which: usize },
    Leak { which: usize },
    Progress { ep: usize },
    Provider(Mood),
}

fn async_step() -> impl Strategy<Value = AsyncStep> {
    prop_oneof![
        8 => (0..2usize, 0..2usize, kind())
            .prop_map(|(ep, peer, kind)| AsyncStep::Start { ep, peer, kind }),
        12 => any::<usize>().prop_map(|which| AsyncStep::Poll { which }),
        2 => any::<usize>().prop_map(|which| AsyncStep::Drop { which }),
        1 => any::<usize>().prop_map(|which| AsyncStep::Leak { which }),
        2 => (0..2usize).prop_map(|ep| AsyncStep::Progress { ep }),
        3 => mood().prop_map(AsyncStep::Provider),
    ]
}

/// A future that gives back the place of its buffer.
type Pending<'a> = Pin<Box<dyn Future<Output = usize> + 'a>>;

/// Runs one operation, and gives its buffer back whatever happens.
async fn operate(ep: &AsyncEndpoint, buf: Buf, peer: FiAddr, kind: Kind) -> usize {
    let result = match kind {
        Kind::Send => ep.send(buf, peer).await,
        Kind::Recv => ep.recv(buf, peer).await.map(|(buf, _)| buf),
        Kind::Tsend(tag) => ep.tsend(buf, peer, tag).await,
        Kind::Trecv(tag) => ep.trecv(buf, peer, tag).await.map(|(buf, _)| buf),
    };
    address(&result.unwrap_or_else(|failed| failed.buf))
}

/// Futures on two endpoints.
struct Awaited<'a> {
    net: &'a Net,
    pool: &'a Pool,
    eps: &'a [(AsyncEndpoint, FiAddr); 2],
    /// With the places of their buffers.
    pending: Vec<(usize, Pending<'a>)>,
    /// The places of buffers whose futures were leaked.
    leaked: HashSet<usize>,
}

impl<'a> Awaited<'a> {
    fn take(&mut self, step: AsyncStep) {
        match step {
            AsyncStep::Start { ep, peer, kind } => self.start(ep, peer, kind),
            AsyncStep::Poll { which } => self.poll(which),
            AsyncStep::Drop { which } => drop(self.remove(which)),
            AsyncStep::Leak { which } => {
                let (place, future) = self.remove(which).unzip();
                self.leaked.extend(place);
                mem::forget(future);
            }
            AsyncStep::Progress { ep } => {
                self.eps[ep].0.progress().unwrap();
            }
            AsyncStep::Provider(mood) => mood.apply(self.net),
        }
        assert!(self.pool.available() + self.pending.len() <= BUFFERS);
    }

    fn start(&mut self, ep: usize, peer: usize, kind: Kind) {
        let Some(buf) = self.pool.take() else {
            return;
        };
        let place = address(&buf);
        let future = operate(&self.eps[ep].0, buf, self.eps[peer].1, kind);
        self.pending.push((place, Box::pin(future)));
    }

    fn poll(&mut self, which: usize) {
        let Some((place, mut future)) = self.remove(which) else {
            return;
        };
        let mut cx = TaskContext::from_waker(Waker::noop());
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(back) => assert_eq!(back, place),
            Poll::Pending => self.pending.push((place, future)),
        }
    }

    fn remove(&mut self, which: usize) -> Option<(usize, Pending<'a>)> {
        let which = which.checked_rem(self.pending.len())?;
        Some(self.pending.swap_remove(which))
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn polled_buffers_come_back_once(steps in vec(step(), 0..200)) {
        let mut polled = Polled::new();
        for step in steps {
            polled.take(step);
        }
        polled.eps = [None, None];
        assert_back(&polled.pool, &HashSet::new());
    }

    #[test]
    fn awaited_buffers_come_back_once(steps in vec(async_step(), 0..200)) {
        let net = Net::new();
        let pool = net.pool(BUFFERS);
        let eps = [net.awaited(), net.awaited()];
        let mut awaited = Awaited {
            net: &net,
            pool: &pool,
            eps: &eps,
            pending: Vec::new(),
            leaked: HashSet::new(),
        };
        for step in steps {
            awaited.take(step);
        }
        let leaked = mem::take(&mut awaited.leaked);
        drop(awaited);
        drop(eps);
        assert_back(&pool, &leaked);
    }
}
