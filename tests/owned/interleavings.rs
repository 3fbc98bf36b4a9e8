//! Random interleavings of operations on buffers: each buffer has one owner at any time and is
//! returned once.

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

/// A change of the provider's settings.
#[derive(Clone, Copy, Debug)]
enum ProviderSetting {
    Refuse(Errno),
    Fail(Errno),
    Hold,
    Allow(usize),
    Depth(usize),
    Seed(usize),
    Cancellable(bool),
}

impl ProviderSetting {
    fn apply(self, net: &Net) {
        net.set(|settings| match self {
            Self::Refuse(errno) => settings.post_errors.push_back(errno),
            Self::Fail(errno) => settings.completion_errors.push_back(errno),
            Self::Hold => settings.budget = 0,
            Self::Allow(count) => settings.budget = count,
            Self::Depth(depth) => settings.depth = depth,
            Self::Seed(seed) => settings.seed = seed,
            Self::Cancellable(is_cancellable) => settings.uncancellable = !is_cancellable,
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

fn setting() -> impl Strategy<Value = ProviderSetting> {
    prop_oneof![
        Just(ProviderSetting::Refuse(Errno::Again)),
        Just(ProviderSetting::Refuse(Errno::NoMem)),
        Just(ProviderSetting::Fail(Errno::ConnReset)),
        Just(ProviderSetting::Hold),
        (1..4usize).prop_map(ProviderSetting::Allow),
        Just(ProviderSetting::Allow(usize::MAX)),
        (0..6usize).prop_map(ProviderSetting::Depth),
        any::<usize>().prop_map(ProviderSetting::Seed),
        any::<bool>().prop_map(ProviderSetting::Cancellable),
    ]
}

fn addr_of(buf: &Buf) -> usize {
    buf.as_ptr().addr()
}

/// Checks that each buffer is in the pool once. Buffers of leaked futures may be missing.
fn assert_all_returned(pool: &Pool, leaked: &HashSet<usize>) {
    let bufs: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
    let addresses: HashSet<_> = bufs.iter().map(addr_of).collect();
    assert_eq!(addresses.len(), bufs.len(), "a buffer was returned twice");
    let count = addresses.union(leaked).count();
    assert_eq!(count, BUFFERS, "a buffer is missing");
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Post { ep: usize, peer: usize, kind: Kind },
    Poll { ep: usize, capacity: usize },
    Cancel { index: usize },
    Close { ep: usize },
    Provider(ProviderSetting),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..2usize, 0..2usize, kind()).prop_map(|(ep, peer, kind)| Step::Post { ep, peer, kind }),
        4 => (0..2usize, 1..20usize).prop_map(|(ep, capacity)| Step::Poll { ep, capacity }),
        2 => any::<usize>().prop_map(|index| Step::Cancel { index }),
        1 => (0..2usize).prop_map(|ep| Step::Close { ep }),
        3 => setting().prop_map(Step::Provider),
    ]
}

/// Two endpoints, and the owner of every buffer.
struct Polled {
    net: Net,
    pool: Pool,
    eps: [Option<Endpoint>; 2],
    addrs: [FiAddr; 2],
    /// By context: the endpoint, the address of the buffer, and the handle of the operation.
    outstanding: BTreeMap<u64, (usize, usize, Handle)>,
    posts: u64,
    /// Received messages.
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

    fn apply(&mut self, step: Step) {
        match step {
            Step::Post { ep, peer, kind } => self.post(ep, peer, kind),
            Step::Poll { ep, capacity } => self.poll(ep, capacity),
            Step::Cancel { index } => self.cancel(index),
            Step::Close { ep } => {
                self.eps[ep] = None;
                self.outstanding.retain(|_, (owner, ..)| *owner != ep);
            }
            Step::Provider(setting) => setting.apply(&self.net),
        }
        assert_eq!(self.pool.available() + self.outstanding.len(), BUFFERS);
    }

    fn post(&mut self, index: usize, peer: usize, kind: Kind) {
        let (Some(ep), Some(mut buf)) = (&self.eps[index], self.pool.take()) else {
            return;
        };
        self.posts += 1;
        buf.write(&self.posts.to_ne_bytes()).unwrap();
        let address = addr_of(&buf);
        let (peer, context) = (self.addrs[peer], Context(self.posts));
        let posted = match kind {
            Kind::Send => ep.send(buf, peer, context),
            Kind::Recv => ep.recv(buf, peer, context),
            Kind::Tsend(tag) => ep.tsend(buf, peer, tag, context),
            Kind::Trecv(tag) => ep.trecv(buf, peer, tag, context),
        };
        match posted {
            Ok(handle) => {
                self.outstanding.insert(context.0, (index, address, handle));
            }
            Err(TryPostError { buf, .. }) => assert_eq!(addr_of(&buf), address),
        }
    }

    fn poll(&mut self, index: usize, capacity: usize) {
        let Some(ep) = &self.eps[index] else {
            return;
        };
        let mut done = Completions::with_capacity(capacity);
        assert_eq!(ep.poll(&mut done).unwrap(), done.len());
        for completion in done.drain() {
            let expected = self.outstanding.remove(&completion.context.0);
            let (owner, address, _) = expected.expect("the operation is outstanding");
            assert_eq!((owner, address), (index, addr_of(&completion.buf)));
            let received = completion
                .result
                .is_ok_and(|done| done.flags.contains(selvedge::CompletionFlags::RECV));
            if received {
                assert!(
                    self.received.insert(completion.buf.to_vec()),
                    "a message is received twice"
                );
            }
        }
    }

    fn cancel(&mut self, index: usize) {
        let Some(index) = index.checked_rem(self.outstanding.len()) else {
            return;
        };
        let (owner, _, handle) = self.outstanding.values().nth(index).unwrap();
        let _ = self.eps[*owner].as_ref().unwrap().cancel(*handle);
    }
}

/// A step on futures. The endpoints are closed after the last step.
#[derive(Clone, Copy, Debug)]
enum AsyncStep {
    Start { ep: usize, peer: usize, kind: Kind },
    Poll { index: usize },
    Drop { index: usize },
    Leak { index: usize },
    Progress { ep: usize },
    Provider(ProviderSetting),
}

fn async_step() -> impl Strategy<Value = AsyncStep> {
    prop_oneof![
        8 => (0..2usize, 0..2usize, kind())
            .prop_map(|(ep, peer, kind)| AsyncStep::Start { ep, peer, kind }),
        12 => any::<usize>().prop_map(|index| AsyncStep::Poll { index }),
        2 => any::<usize>().prop_map(|index| AsyncStep::Drop { index }),
        1 => any::<usize>().prop_map(|index| AsyncStep::Leak { index }),
        2 => (0..2usize).prop_map(|ep| AsyncStep::Progress { ep }),
        3 => setting().prop_map(AsyncStep::Provider),
    ]
}

/// A future that returns the address of its buffer.
type Pending<'a> = Pin<Box<dyn Future<Output = usize> + 'a>>;

/// Runs one operation. Returns the address of its buffer, also after a failure.
async fn operate(ep: &AsyncEndpoint, buf: Buf, peer: FiAddr, kind: Kind) -> usize {
    let result = match kind {
        Kind::Send => ep.send(buf, peer).await,
        Kind::Recv => ep.recv(buf, peer).await.map(|(buf, _)| buf),
        Kind::Tsend(tag) => ep.tsend(buf, peer, tag).await,
        Kind::Trecv(tag) => ep.trecv(buf, peer, tag).await.map(|(buf, _)| buf),
    };
    addr_of(&result.unwrap_or_else(|failed| failed.buf))
}

/// Futures on two endpoints.
struct Awaited<'a> {
    net: &'a Net,
    pool: &'a Pool,
    eps: &'a [(AsyncEndpoint, FiAddr); 2],
    /// The futures, each with the address of its buffer.
    pending: Vec<(usize, Pending<'a>)>,
    /// The addresses of the buffers of leaked futures.
    leaked: HashSet<usize>,
}

impl<'a> Awaited<'a> {
    fn apply(&mut self, step: AsyncStep) {
        match step {
            AsyncStep::Start { ep, peer, kind } => self.start(ep, peer, kind),
            AsyncStep::Poll { index } => self.poll(index),
            AsyncStep::Drop { index } => drop(self.remove(index)),
            AsyncStep::Leak { index } => {
                let (address, future) = self.remove(index).unzip();
                self.leaked.extend(address);
                mem::forget(future);
            }
            AsyncStep::Progress { ep } => {
                self.eps[ep].0.progress().unwrap();
            }
            AsyncStep::Provider(setting) => setting.apply(self.net),
        }
        assert!(self.pool.available() + self.pending.len() <= BUFFERS);
    }

    fn start(&mut self, ep: usize, peer: usize, kind: Kind) {
        let Some(buf) = self.pool.take() else {
            return;
        };
        let address = addr_of(&buf);
        let future = operate(&self.eps[ep].0, buf, self.eps[peer].1, kind);
        self.pending.push((address, Box::pin(future)));
    }

    fn poll(&mut self, index: usize) {
        let Some((address, mut future)) = self.remove(index) else {
            return;
        };
        let mut cx = TaskContext::from_waker(Waker::noop());
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(returned) => assert_eq!(returned, address),
            Poll::Pending => self.pending.push((address, future)),
        }
    }

    fn remove(&mut self, index: usize) -> Option<(usize, Pending<'a>)> {
        let index = index.checked_rem(self.pending.len())?;
        Some(self.pending.swap_remove(index))
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn polled_buffers_are_returned_once(steps in vec(step(), 0..200)) {
        let mut polled = Polled::new();
        for step in steps {
            polled.apply(step);
        }
        polled.eps = [None, None];
        assert_all_returned(&polled.pool, &HashSet::new());
    }

    #[test]
    fn awaited_buffers_are_returned_once(steps in vec(async_step(), 0..200)) {
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
            awaited.apply(step);
        }
        let leaked = mem::take(&mut awaited.leaked);
        drop(awaited);
        drop(eps);
        assert_all_returned(&pool, &leaked);
    }
}
