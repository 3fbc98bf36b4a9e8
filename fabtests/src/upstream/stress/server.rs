//! The server: threads that share an endpoint and its queue. None of them waits for a client, which
//! may want another answer first: whoever finds an operation complete has the next one posted.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::{Context as _, ensure};
use selvedge::cq::Entry;
use selvedge::{Address, Errno};
use selvedge_testkit::domain::{
    Block, CompletionError, DomainContext, DomainEndpoint, EndpointConfig, Recv,
};

use super::exchange::{Exchange, Peer};
use super::script::MOST;
use super::wire::{Kind, LONGEST, Request};
use crate::upstream::options::Options;

/// Receives for requests.
const RECEIVES: u64 = 64;
/// Contexts of everything else.
const OWN: u64 = 1 << 32;

struct Server {
    end: DomainEndpoint,
    requests: Block,
    /// Buffers that no answer is sent from.
    buffers: Mutex<Vec<Block>>,
    /// Exchanges whose next operation is to be posted.
    ready: Mutex<VecDeque<Exchange>>,
    /// Exchanges with an operation under way, by its context.
    under_way: Mutex<HashMap<u64, Exchange>>,
    clients: Mutex<HashMap<u32, Arc<Peer>>>,
    next: AtomicU64,
    served: AtomicU64,
    is_over: AtomicBool,
    /// A client may end it.
    ends: bool,
}

/// Serves until a client says that it is enough; without `-x` for ever.
pub(super) fn serve(options: &Options, ground: &Arc<DomainContext>) -> anyhow::Result<()> {
    let threads: usize = options.number("threads", 4)?;
    ensure!((1..=64).contains(&threads), "--threads {threads}: 1 to 64");
    let queue = ground.queue(4096)?;
    let plan = EndpointConfig {
        tx: Some(queue.clone()),
        rx: Some(queue),
        ..EndpointConfig::default()
    };
    let server = Server {
        end: ground.endpoint(plan)?,
        requests: ground.buffers(RECEIVES as usize * LONGEST)?,
        buffers: Mutex::default(),
        ready: Mutex::default(),
        under_way: Mutex::default(),
        clients: Mutex::default(),
        next: AtomicU64::new(OWN),
        served: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
        ends: options.has("x"),
    };
    for slot in 0..RECEIVES {
        server.post_receive(slot)?;
    }
    thread::scope(|scope| {
        let work = || scope.spawn(|| server.work());
        let threads: Vec<_> = (0..threads).map(|_| work()).collect();
        let results = threads.into_iter().map(|thread| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        results.collect::<anyhow::Result<()>>()
    })?;
    println!("{} requests", server.served.load(Ordering::Relaxed));
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    fn post_receive(&self, slot: u64) -> anyhow::Result<()> {
        let segment = self.requests.segment(slot as usize * LONGEST, LONGEST);
        let recv = Recv::new(slot);
        self.end.push("receive", |end| end.recv(&[segment], &recv))
    }

    fn work(&self) -> anyhow::Result<()> {
        while !self.is_over.load(Ordering::Acquire) {
            let ready = lock(&self.ready).pop_front();
            let result = match ready {
                Some(exchange) => self.post(exchange),
                None => self.pump(),
            };
            result.inspect_err(|_| self.is_over.store(true, Ordering::Release))?;
        }
        Ok(())
    }

    /// Posts an exchange's operation; while there is no room for it, completions make some.
    fn post(&self, exchange: Exchange) -> anyhow::Result<()> {
        if exchange.peer.is_gone() {
            lock(&self.buffers).push(exchange.buffer);
            return Ok(());
        }
        let context = self.next.fetch_add(1, Ordering::Relaxed);
        // Before it is posted: another thread may find it complete at once.
        lock(&self.under_way).insert(context, exchange.clone());
        let Err(errno) = exchange.post(&self.end, context) else {
            return Ok(());
        };
        lock(&self.under_way).remove(&context);
        if errno == Errno::Again {
            lock(&self.ready).push_back(exchange);
            return self.pump();
        }
        self.lost(exchange, errno)
    }

    /// Takes one completion, if there is one: a request, or an exchange's operation.
    fn pump(&self) -> anyhow::Result<()> {
        let mut entry = [Entry::default()];
        match self.end.rx.poll(&mut entry) {
            Ok(0) => {
                thread::yield_now();
                Ok(())
            }
            Ok(_) if entry[0].context.0 < RECEIVES => self.request(&entry[0]),
            Ok(_) => self.complete(entry[0].context.0),
            Err(error) => self.failed(error),
        }
    }

    fn request(&self, entry: &Entry) -> anyhow::Result<()> {
        let slot = entry.context.0;
        let bytes = self.requests.memory.get(slot as usize * LONGEST, entry.len);
        self.post_receive(slot)?;
        self.begin(Request::from_bytes(&bytes)?)
    }

    fn begin(&self, request: Request) -> anyhow::Result<()> {
        if request.kind == Kind::Hello {
            let address = Address::from_bytes(&request.name).context("a client without address")?;
            let addr = self.end.av.insert_one(&address)?;
            let peer = Peer::new(addr, self.end.av.clone());
            lock(&self.clients).insert(request.client, Arc::new(peer));
        }
        let known = lock(&self.clients).get(&request.client).cloned();
        let Some(peer) = known else {
            // Forgotten because it was gone, and asks from beyond.
            return Ok(());
        };
        if request.kind == Kind::Goodbye {
            // Before the answer: it may be back with the next request. Its address stays.
            lock(&self.clients).remove(&request.client);
        }
        self.served.fetch_add(1, Ordering::Relaxed);
        let free = lock(&self.buffers).pop();
        let buffer = free.map_or_else(|| self.end.context.buffers(MOST), Ok)?;
        lock(&self.ready).push_back(Exchange::new(request, peer, buffer));
        Ok(())
    }

    fn complete(&self, context: u64) -> anyhow::Result<()> {
        let mut exchange = self.take(context)?;
        if exchange.advance()? {
            lock(&self.ready).push_back(exchange);
            return Ok(());
        }
        if exchange.request.kind == Kind::Stop && self.ends {
            self.is_over.store(true, Ordering::Release);
        }
        lock(&self.buffers).push(exchange.buffer);
        Ok(())
    }

    fn failed(&self, error: anyhow::Error) -> anyhow::Result<()> {
        let failed = error.downcast::<CompletionError>()?.0;
        match failed.entry.context.0 {
            slot @ 0..RECEIVES => self.post_receive(slot),
            context => self.lost(self.take(context)?, failed.errno),
        }
    }

    fn take(&self, context: u64) -> anyhow::Result<Exchange> {
        let exchange = lock(&self.under_way).remove(&context);
        exchange.with_context(|| format!("a completion of {context}, which is not under way"))
    }

    /// An exchange failed: its client is gone.
    fn lost(&self, exchange: Exchange, errno: Errno) -> anyhow::Result<()> {
        let Exchange {
            request,
            peer,
            buffer,
            ..
        } = exchange;
        lock(&self.buffers).push(buffer);
        if !peer.gone() {
            return Ok(());
        }
        if !GONE.contains(&errno) {
            return Err(anyhow::Error::from(errno).context(format!("{request:?}")));
        }
        println!("client {} is gone: {errno}", request.client);
        lock(&self.clients).remove(&request.client);
        Ok(())
    }
}

/// What operations with clients that have ended fail with.
const GONE: [Errno; 6] = [
    Errno::ConnReset,
    Errno::ConnRefused,
    Errno::NotConn,
    Errno::Canceled,
    Errno::Shutdown,
    Errno::HostUnreach,
];
