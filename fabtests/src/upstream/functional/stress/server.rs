//! The server: threads that share an endpoint and its completion queue. No thread waits for a
//! particular client, because that client may need another response first. Instead, the thread that
//! reads a completion queues the next operation of the same exchange.

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
use super::script::MAX_SIZE;
use super::wire::{Kind, LONGEST, Request};
use crate::upstream::options::Options;

/// The number of receives for requests. Their operation contexts are the numbers below it.
const RECEIVES: u64 = 64;
/// The lowest operation context of all other operations.
const FIRST_CONTEXT: u64 = 1 << 32;

struct Server {
    endpoint: DomainEndpoint,
    requests: Block,
    /// The free buffers.
    buffers: Mutex<Vec<Block>>,
    /// The exchanges whose next operation has to be posted.
    ready: Mutex<VecDeque<Exchange>>,
    /// The exchanges with an operation in flight, by operation context.
    in_flight: Mutex<HashMap<u64, Exchange>>,
    clients: Mutex<HashMap<u32, Arc<Peer>>>,
    next: AtomicU64,
    served: AtomicU64,
    is_stopped: AtomicBool,
    /// Whether a client may stop the server (`-x`).
    may_stop: bool,
}

/// Serves until a client stops the server; without `-x`, without end.
pub(super) fn serve(options: &Options, domain: &Arc<DomainContext>) -> anyhow::Result<()> {
    let threads: usize = options.number("threads", 4)?;
    ensure!(
        (1..=64).contains(&threads),
        "--threads {threads}: the number of threads must be 1 to 64"
    );
    let queue = domain.queue(4096)?;
    let endpoint_config = EndpointConfig {
        tx: Some(queue.clone()),
        rx: Some(queue),
        ..EndpointConfig::default()
    };
    let server = Server {
        endpoint: domain.endpoint(endpoint_config)?,
        requests: domain.buffers(RECEIVES as usize * LONGEST)?,
        buffers: Mutex::default(),
        ready: Mutex::default(),
        in_flight: Mutex::default(),
        clients: Mutex::default(),
        next: AtomicU64::new(FIRST_CONTEXT),
        served: AtomicU64::new(0),
        is_stopped: AtomicBool::new(false),
        may_stop: options.has("x"),
    };
    for slot in 0..RECEIVES {
        server.post_receive(slot)?;
    }
    thread::scope(|scope| {
        let run_thread = || scope.spawn(|| server.run_thread());
        let threads: Vec<_> = (0..threads).map(|_| run_thread()).collect();
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
        self.endpoint
            .push("receive", |endpoint| endpoint.recv(&[segment], &recv))
    }

    fn run_thread(&self) -> anyhow::Result<()> {
        while !self.is_stopped.load(Ordering::Acquire) {
            let ready = lock(&self.ready).pop_front();
            let result = match ready {
                Some(exchange) => self.post(exchange),
                None => self.take_completion(),
            };
            result.inspect_err(|_| self.is_stopped.store(true, Ordering::Release))?;
        }
        Ok(())
    }

    /// Posts the operation of an exchange. If the queue is full, reads a completion instead.
    fn post(&self, exchange: Exchange) -> anyhow::Result<()> {
        if exchange.peer.is_disconnected() {
            lock(&self.buffers).push(exchange.buffer);
            return Ok(());
        }
        let context = self.next.fetch_add(1, Ordering::Relaxed);
        // Inserted before posting: another thread may read the completion immediately.
        lock(&self.in_flight).insert(context, exchange.clone());
        let Err(errno) = exchange.post(&self.endpoint, context) else {
            return Ok(());
        };
        lock(&self.in_flight).remove(&context);
        if errno == Errno::Again {
            lock(&self.ready).push_back(exchange);
            return self.take_completion();
        }
        self.handle_failure(exchange, errno)
    }

    /// Reads one completion if there is one: of a request, or of an exchange's operation.
    fn take_completion(&self) -> anyhow::Result<()> {
        let mut entry = [Entry::default()];
        match self.endpoint.rx.poll(&mut entry) {
            Ok(0) => {
                thread::yield_now();
                Ok(())
            }
            Ok(_) if entry[0].context.0 < RECEIVES => self.request(&entry[0]),
            Ok(_) => self.complete(entry[0].context.0),
            Err(error) => self.handle_error(error),
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
            let address = Address::from_bytes(&request.name)
                .context("the address in the client's first request is invalid")?;
            let addr = self.endpoint.av.insert_one(&address)?;
            let peer = Peer::new(addr, self.endpoint.av.clone());
            lock(&self.clients).insert(request.client, Arc::new(peer));
        }
        let peer = lock(&self.clients).get(&request.client).cloned();
        let Some(peer) = peer else {
            // The client has disconnected and was removed; this is a late request.
            return Ok(());
        };
        if request.kind == Kind::Leave {
            // The client is removed before the response is sent, because its next request may
            // directly follow the response. Its address stays in the address vector.
            lock(&self.clients).remove(&request.client);
        }
        self.served.fetch_add(1, Ordering::Relaxed);
        let free = lock(&self.buffers).pop();
        let buffer = free.map_or_else(|| self.endpoint.context.buffers(MAX_SIZE), Ok)?;
        lock(&self.ready).push_back(Exchange::new(request, peer, buffer));
        Ok(())
    }

    fn complete(&self, context: u64) -> anyhow::Result<()> {
        let mut exchange = self.take(context)?;
        if exchange.advance()? {
            lock(&self.ready).push_back(exchange);
            return Ok(());
        }
        if exchange.request.kind == Kind::Stop && self.may_stop {
            self.is_stopped.store(true, Ordering::Release);
        }
        lock(&self.buffers).push(exchange.buffer);
        Ok(())
    }

    fn handle_error(&self, error: anyhow::Error) -> anyhow::Result<()> {
        let error = error.downcast::<CompletionError>()?.0;
        match error.entry.context.0 {
            slot @ 0..RECEIVES => self.post_receive(slot),
            context => self.handle_failure(self.take(context)?, error.errno),
        }
    }

    fn take(&self, context: u64) -> anyhow::Result<Exchange> {
        let exchange = lock(&self.in_flight).remove(&context);
        exchange.with_context(|| {
            format!(
                "a completion has the context {context}, which belongs to no operation in flight"
            )
        })
    }

    /// Handles a failed exchange: its client has disconnected.
    fn handle_failure(&self, exchange: Exchange, errno: Errno) -> anyhow::Result<()> {
        let Exchange {
            request,
            peer,
            buffer,
            ..
        } = exchange;
        lock(&self.buffers).push(buffer);
        if !peer.mark_disconnected() {
            return Ok(());
        }
        if !DISCONNECT_ERRORS.contains(&errno) {
            return Err(anyhow::Error::from(errno).context(format!("{request:?}")));
        }
        println!("client {} has disconnected: {errno}", request.client);
        lock(&self.clients).remove(&request.client);
        Ok(())
    }
}

/// The errors of operations with clients that have exited.
const DISCONNECT_ERRORS: [Errno; 6] = [
    Errno::ConnReset,
    Errno::ConnRefused,
    Errno::NotConn,
    Errno::Canceled,
    Errno::Shutdown,
    Errno::HostUnreach,
];
