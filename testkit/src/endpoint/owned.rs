//! Endpoints under test over the safe layer, polled and async.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};

use anyhow::anyhow;
use selvedge::atomic::Family;
use selvedge::owned::{
    self, AsyncEndpoint, Buf, Completions, Handle, OpError, Pool, Received, TryPostError,
};
use selvedge::{
    Address, AddressVector, CompletionFlags, Context, Domain, EpOption, Errno, FiAddr, Info, cq,
};

use super::api::EndpointApi;
use super::post::{Atomic, Completion, Failure, Post, RemoteAddr, Rx, RxKind, Tx};

/// Pools by buffer size. The most recent ones are kept.
#[derive(Debug)]
struct Pools {
    domain: Arc<dyn Domain>,
    pools: VecDeque<(usize, Pool)>,
}

impl Pools {
    fn new(domain: Arc<dyn Domain>) -> Self {
        Self {
            domain,
            pools: VecDeque::new(),
        }
    }

    /// Takes a buffer with the capacity `size`.
    fn take(&mut self, size: usize) -> Result<Buf, Errno> {
        let size = size.max(1);
        if let Some(index) = self
            .pools
            .iter()
            .position(|(pool_size, _)| *pool_size == size)
        {
            return self.pools[index].1.take().ok_or(Errno::Again);
        }
        let count = (POOL_SIZE / size).clamp(4, 128);
        let pool = Pool::new(&*self.domain, size, count).map_err(|error| error.errno())?;
        let buf = pool.take().ok_or(Errno::NoBufs)?;
        self.pools.push_back((size, pool));
        if self.pools.len() > KEPT_POOLS {
            self.pools.pop_front();
        }
        Ok(buf)
    }

    /// Takes a buffer and copies `bytes` into it.
    fn take_filled(&mut self, bytes: &[u8]) -> Result<Buf, Errno> {
        let mut buf = self.take(bytes.len())?;
        buf.write(bytes)?;
        Ok(buf)
    }

    /// Takes a buffer and sets its length.
    fn take_with_len(&mut self, len: usize) -> Result<Buf, Errno> {
        let mut buf = self.take(len)?;
        buf.set_len(len)?;
        Ok(buf)
    }
}

/// The polled endpoint under test.
#[derive(Debug)]
pub struct OwnedEndpoint {
    ep: owned::Endpoint,
    av: Arc<dyn AddressVector>,
    pools: Pools,
    handles: BTreeMap<u64, Handle>,
    done: Completions,
    ready: VecDeque<Completion>,
}

impl OwnedEndpoint {
    pub fn open(
        domain: &Arc<dyn Domain>,
        info: &Info,
        av: &Arc<dyn AddressVector>,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            ep: owned::Endpoint::open(&**domain, info, Arc::clone(av))?,
            av: Arc::clone(av),
            pools: Pools::new(Arc::clone(domain)),
            handles: BTreeMap::new(),
            done: Completions::with_capacity(16),
            ready: VecDeque::new(),
        })
    }

    /// Posts an operation. Returns its handle; `None` for an injected one, which does not complete.
    fn submit(&mut self, context: u64, post: &Post) -> Result<Option<Handle>, Errno> {
        let ctx = Context(context);
        let handle: Result<Handle, TryPostError> = match post {
            Post::Send(tx) if tx.is_injected => {
                return match tx.tag {
                    None => self.ep.inject(&tx.bytes, tx.to, tx.data),
                    Some(tag) => self.ep.tinject(&tx.bytes, tx.to, tag, tx.data),
                }
                .map(|()| None);
            }
            Post::Write(write) if write.is_injected => {
                let to = remote(write.to);
                let posted = self.ep.inject_write(&write.bytes, to, write.data);
                return posted.map(|()| None);
            }
            Post::Atomic(atomic) if atomic.is_injected => {
                let posted = self.ep.inject_atomic(&atomic.operand, atomic.target());
                return posted.map(|()| None);
            }
            Post::Send(tx) => {
                let buf = self.pools.take_filled(&tx.bytes)?;
                self.send(tx, buf, ctx)
            }
            Post::Recv(rx) => {
                let buf = self.pools.take(rx.room)?;
                self.recv(rx, buf, ctx)
            }
            Post::Write(write) => {
                let (buf, to) = (self.pools.take_filled(&write.bytes)?, remote(write.to));
                match write.data {
                    None => self.ep.write(buf, to, ctx),
                    Some(data) => self.ep.writedata(buf, data, to, ctx),
                }
            }
            Post::Read(read) => {
                let buf = self.pools.take_with_len(read.len)?;
                self.ep.read(buf, remote(read.from), ctx)
            }
            Post::Atomic(atomic) => self.atomic(atomic, ctx)?,
        };
        Ok(Some(handle?))
    }

    fn send(&self, tx: &Tx, buf: Buf, ctx: Context) -> Result<Handle, TryPostError> {
        match (tx.tag, tx.data) {
            (None, None) => self.ep.send(buf, tx.to, ctx),
            (None, Some(data)) => self.ep.senddata(buf, data, tx.to, ctx),
            (Some(tag), None) => self.ep.tsend(buf, tx.to, tag, ctx),
            (Some(tag), Some(data)) => self.ep.tsenddata(buf, data, tx.to, tag, ctx),
        }
    }

    fn recv(&self, rx: &Rx, buf: Buf, ctx: Context) -> Result<Handle, TryPostError> {
        match (rx.kind, rx.tag) {
            (RxKind::Plain, None) => self.ep.recv(buf, rx.from, ctx),
            (RxKind::Plain, Some(tag)) => self.ep.trecv(buf, rx.from, tag, ctx),
            (RxKind::Multi, tag) => self.ep.recv_multi(buf, rx.from, tag, ctx),
            (RxKind::Peek, tag) => self.ep.tpeek(buf, rx.from, tag.unwrap_or_default(), ctx),
            (RxKind::Discard, tag) => self.ep.tdiscard(buf, rx.from, tag.unwrap_or_default(), ctx),
        }
    }

    fn atomic(
        &mut self,
        atomic: &Atomic,
        ctx: Context,
    ) -> Result<Result<Handle, TryPostError>, Errno> {
        let target = atomic.target();
        Ok(match atomic.family {
            Family::Base => {
                let buf = self.pools.take_filled(&atomic.operand)?;
                self.ep.atomic(buf, target, ctx)
            }
            Family::Fetch => {
                let buf = self.pools.take_with_len(atomic.result)?;
                self.ep.fetch_atomic(buf, &atomic.operand, target, ctx)
            }
            Family::Compare => {
                let buf = self.pools.take_with_len(atomic.result)?;
                let (operand, compare) = (&atomic.operand, &atomic.compare);
                self.ep.compare_atomic(buf, operand, compare, target, ctx)
            }
        })
    }
}

impl EndpointApi for OwnedEndpoint {
    fn address(&self) -> Result<Address, Errno> {
        self.ep.address()
    }

    fn insert(&self, peer: &Address) -> Result<FiAddr, Errno> {
        Ok(self.av.insert_one(peer)?)
    }

    fn post(&mut self, context: u64, post: &mut Post) -> Result<(), Errno> {
        if let Some(handle) = self.submit(context, post)? {
            self.handles.insert(context, handle);
        }
        Ok(())
    }

    fn cancel(&mut self, context: u64) -> Result<(), Errno> {
        let handle = self.handles.get(&context).ok_or(Errno::NoEnt)?;
        self.ep.cancel(*handle)
    }

    fn set(&self, option: EpOption) -> Result<(), Errno> {
        self.ep.set(option)
    }

    fn poll(&mut self) -> anyhow::Result<Option<Completion>> {
        if self.ready.is_empty() {
            self.progress()?;
        }
        Ok(self.ready.pop_front())
    }

    fn progress(&mut self) -> anyhow::Result<()> {
        let read = self.ep.poll(&mut self.done);
        for completion in self.done.drain() {
            let (context, buf) = (completion.context.0, completion.buf);
            self.ready.push_back(match completion.result {
                Ok(received) => success(context, &buf, received),
                Err(error) => failure(context, &buf, *error),
            });
        }
        read.map_err(|errno| anyhow!("polling the endpoint: {errno}"))?;
        Ok(())
    }
}

/// The future of an operation.
type Operation = Pin<Box<dyn Future<Output = Completion>>>;

/// The async endpoint under test. It polls the futures itself. A dropped future has no completion,
/// so cancellation is not supported.
pub struct AsyncTestEndpoint {
    ep: Arc<AsyncEndpoint>,
    av: Arc<dyn AddressVector>,
    pools: Pools,
    pending: VecDeque<(u64, Operation)>,
    ready: VecDeque<Completion>,
}

impl fmt::Debug for AsyncTestEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncTestEndpoint")
            .field("ep", &self.ep)
            .finish_non_exhaustive()
    }
}

impl AsyncTestEndpoint {
    pub fn open(
        domain: &Arc<dyn Domain>,
        info: &Info,
        av: &Arc<dyn AddressVector>,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            ep: Arc::new(AsyncEndpoint::open(&**domain, info, Arc::clone(av))?),
            av: Arc::clone(av),
            pools: Pools::new(Arc::clone(domain)),
            pending: VecDeque::new(),
            ready: VecDeque::new(),
        })
    }

    /// The future of an operation; `None` for an injected one, which does not complete.
    fn operation(&mut self, context: u64, post: &Post) -> Result<Option<Operation>, Errno> {
        let ep = Arc::clone(&self.ep);
        Ok(Some(match post.clone() {
            Post::Send(tx) if tx.is_injected => {
                match tx.tag {
                    None => ep.inject(&tx.bytes, tx.to, tx.data)?,
                    Some(tag) => ep.tinject(&tx.bytes, tx.to, tag, tx.data)?,
                }
                return Ok(None);
            }
            Post::Write(write) if write.is_injected => {
                ep.inject_write(&write.bytes, remote(write.to), write.data)?;
                return Ok(None);
            }
            Post::Atomic(atomic) if atomic.is_injected => {
                ep.inject_atomic(&atomic.operand, atomic.target())?;
                return Ok(None);
            }
            Post::Send(tx) => {
                let buf = self.pools.take_filled(&tx.bytes)?;
                Box::pin(async move { without_result(context, send(&ep, &tx, buf).await) })
            }
            Post::Recv(rx) => {
                let buf = self.pools.take(rx.room)?;
                Box::pin(async move { received(context, recv(&ep, &rx, buf).await) })
            }
            Post::Write(write) => {
                let (buf, to) = (self.pools.take_filled(&write.bytes)?, remote(write.to));
                Box::pin(async move {
                    without_result(
                        context,
                        match write.data {
                            None => ep.write(buf, to).await,
                            Some(data) => ep.writedata(buf, data, to).await,
                        },
                    )
                })
            }
            Post::Read(read) => {
                let (buf, from) = (self.pools.take_with_len(read.len)?, remote(read.from));
                Box::pin(async move { with_result(context, ep.read(buf, from).await) })
            }
            Post::Atomic(atomic) => {
                let buf = match atomic.family {
                    Family::Base => self.pools.take_filled(&atomic.operand)?,
                    _ => self.pools.take_with_len(atomic.result)?,
                };
                Box::pin(async move { run_atomic(context, &ep, &atomic, buf).await })
            }
        }))
    }

    /// Polls the futures in order, and stores the completions.
    fn poll_futures(&mut self) -> anyhow::Result<()> {
        let mut task = TaskContext::from_waker(Waker::noop());
        for _ in 0..self.pending.len() {
            let Some((context, mut future)) = self.pending.pop_front() else {
                break;
            };
            match future.as_mut().poll(&mut task) {
                Poll::Ready(done) => self.ready.push_back(done),
                Poll::Pending => self.pending.push_back((context, future)),
            }
        }
        let progress = self.ep.progress();
        progress.map_err(|errno| anyhow!("progress of the endpoint: {errno}"))?;
        Ok(())
    }
}

impl EndpointApi for AsyncTestEndpoint {
    fn address(&self) -> Result<Address, Errno> {
        self.ep.address()
    }

    fn insert(&self, peer: &Address) -> Result<FiAddr, Errno> {
        Ok(self.av.insert_one(peer)?)
    }

    fn post(&mut self, context: u64, post: &mut Post) -> Result<(), Errno> {
        let Some(mut future) = self.operation(context, post)? else {
            return Ok(());
        };
        // The first poll posts the operation.
        let mut task = TaskContext::from_waker(Waker::noop());
        match future.as_mut().poll(&mut task) {
            Poll::Ready(done) => self.ready.push_back(done),
            Poll::Pending => self.pending.push_back((context, future)),
        }
        Ok(())
    }

    fn cancel(&mut self, _: u64) -> Result<(), Errno> {
        Err(Errno::OpNotSupp)
    }

    fn set(&self, option: EpOption) -> Result<(), Errno> {
        self.ep.set(option)
    }

    fn poll(&mut self) -> anyhow::Result<Option<Completion>> {
        if self.ready.is_empty() {
            self.poll_futures()?;
        }
        Ok(self.ready.pop_front())
    }

    fn progress(&mut self) -> anyhow::Result<()> {
        self.poll_futures()
    }
}

async fn send(ep: &AsyncEndpoint, tx: &Tx, buf: Buf) -> Result<Buf, OpError> {
    match (tx.tag, tx.data) {
        (None, None) => ep.send(buf, tx.to).await,
        (None, Some(data)) => ep.senddata(buf, data, tx.to).await,
        (Some(tag), None) => ep.tsend(buf, tx.to, tag).await,
        (Some(tag), Some(data)) => ep.tsenddata(buf, data, tx.to, tag).await,
    }
}

async fn recv(ep: &AsyncEndpoint, rx: &Rx, buf: Buf) -> Result<(Buf, Received), OpError> {
    assert_eq!(
        rx.kind,
        RxKind::Plain,
        "this endpoint supports plain receives only"
    );
    match rx.tag {
        None => ep.recv(buf, rx.from).await,
        Some(tag) => ep.trecv(buf, rx.from, tag).await,
    }
}

async fn run_atomic(context: u64, ep: &AsyncEndpoint, atomic: &Atomic, buf: Buf) -> Completion {
    let (operand, compare, target) = (&atomic.operand, &atomic.compare, atomic.target());
    match atomic.family {
        Family::Base => without_result(context, ep.atomic(buf, target).await),
        Family::Fetch => with_result(context, ep.fetch_atomic(buf, operand, target).await),
        Family::Compare => with_result(
            context,
            ep.compare_atomic(buf, operand, compare, target).await,
        ),
    }
}

/// The completion of an operation that returns its buffer and has no result.
fn without_result(context: u64, result: Result<Buf, OpError>) -> Completion {
    with_result(
        context,
        result.map(|mut buf| {
            // The operation received no bytes.
            buf.set_len(0).expect("zero bytes fit");
            buf
        }),
    )
}

fn with_result(context: u64, result: Result<Buf, OpError>) -> Completion {
    match result {
        Ok(buf) => Completion {
            context,
            flags: CompletionFlags::empty(),
            len: 0,
            tag: 0,
            data: None,
            src: FiAddr::UNSPEC,
            bytes: buf.to_vec(),
            error: None,
        },
        Err(failed) => failure(context, &failed.buf, *failed.entry),
    }
}

fn received(context: u64, result: Result<(Buf, Received), OpError>) -> Completion {
    match result {
        Ok((buf, received)) => success(context, &buf, received),
        Err(failed) => failure(context, &failed.buf, *failed.entry),
    }
}

fn success(context: u64, buf: &Buf, received: Received) -> Completion {
    let with_data = CompletionFlags::RECV | CompletionFlags::READ;
    let is_sent =
        !received.flags.intersects(with_data) && !received.flags.contains(CompletionFlags::ATOMIC);
    Completion {
        context,
        flags: received.flags,
        len: received.len,
        tag: received.tag,
        data: received.data,
        src: received.src,
        bytes: if is_sent { Vec::new() } else { buf.to_vec() },
        error: None,
    }
}

fn failure(context: u64, buf: &Buf, error: cq::ErrEntry) -> Completion {
    let entry = error.entry;
    Completion {
        context,
        flags: entry.flags,
        len: entry.len,
        tag: entry.tag,
        data: entry
            .flags
            .contains(CompletionFlags::REMOTE_CQ_DATA)
            .then_some(entry.data),
        src: error.src,
        bytes: match error.errno {
            Errno::Trunc => buf.to_vec(),
            _ => Vec::new(),
        },
        error: Some(Failure {
            sender: error.sender(),
            errno: error.errno,
            olen: error.olen,
            detail: error.detail,
        }),
    }
}

fn remote(addr: RemoteAddr) -> owned::RemoteAddr {
    let RemoteAddr { peer, addr, key } = addr;
    owned::RemoteAddr { peer, addr, key }
}

/// The size of a pool, in bytes.
const POOL_SIZE: usize = 4 << 20;
/// The maximum number of kept pools.
const KEPT_POOLS: usize = 4;
