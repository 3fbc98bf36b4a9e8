//! The server: threads that share an endpoint and its queue. Whoever finds a completion that another
//! thread waits for leaves it for that one.
//!
//! An answer may wait until its client has received another one. Whoever waits for it serves others
//! meanwhile, so that every request is begun, however few threads there are.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::{Context as _, ensure};
use selvedge::cq::Entry;
use selvedge::{Address, Errno, FiAddr, OpFlags};

use super::script::MOST;
use super::wire::{ANSWER, Kind, LONGEST, Request};
use crate::upstream::failure::errno;
use crate::upstream::ground::{Block, End, Ground, Plan};
use crate::upstream::memory::Remote;
use crate::upstream::options::Options;
use crate::upstream::payload::{POISON, Stamp};
use crate::upstream::post::{Access, Recv, Send};
use crate::upstream::wait::Failed;

/// Receives for requests.
const RECEIVES: u64 = 64;
/// Contexts of everything else.
const OWN: u64 = 1 << 32;

struct Server {
    end: End,
    requests: Block,
    /// Buffers that no answer is sent from.
    buffers: Mutex<Vec<Block>>,
    jobs: Mutex<VecDeque<Request>>,
    /// What has completed, and nobody has asked for yet; with its error if it failed.
    done: Mutex<HashMap<u64, Option<Errno>>>,
    clients: Mutex<HashMap<u32, FiAddr>>,
    next: AtomicU64,
    served: AtomicU64,
    is_over: AtomicBool,
    /// A client may end it.
    ends: bool,
}

/// Serves until a client says that it is enough; without `-x` for ever.
pub(super) fn serve(options: &Options, ground: &Arc<Ground>) -> anyhow::Result<()> {
    let threads: usize = options.number("threads", 4)?;
    ensure!((1..=64).contains(&threads), "--threads {threads}: 1 to 64");
    let queue = ground.queue(4096)?;
    let plan = Plan {
        tx: Some(queue.clone()),
        rx: Some(queue),
        ..Plan::default()
    };
    let server = Server {
        end: ground.end(plan)?,
        requests: ground.buffers(RECEIVES as usize * LONGEST)?,
        buffers: Mutex::default(),
        jobs: Mutex::default(),
        done: Mutex::default(),
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
        let piece = self.requests.piece(slot as usize * LONGEST, LONGEST);
        let recv = Recv {
            src: FiAddr::UNSPEC,
            tag: None,
            flags: OpFlags::DEFAULT,
            context: slot,
        };
        self.end.push("receive", |end| end.recv(&[piece], &recv))
    }

    /// Takes one completion, if there is one: a request, or what a thread waits for.
    fn pump(&self) -> anyhow::Result<()> {
        let mut entry = [Entry::default()];
        match self.end.rx.poll(&mut entry) {
            Ok(0) => {
                thread::yield_now();
                Ok(())
            }
            Ok(_) if entry[0].context.0 >= OWN => {
                lock(&self.done).insert(entry[0].context.0, None);
                Ok(())
            }
            Ok(_) => self.request(&entry[0]),
            Err(error) => self.failed(error),
        }
    }

    fn request(&self, entry: &Entry) -> anyhow::Result<()> {
        let slot = entry.context.0;
        let bytes = self.requests.memory.get(slot as usize * LONGEST, entry.len);
        self.post_receive(slot)?;
        lock(&self.jobs).push_back(Request::from_bytes(&bytes)?);
        Ok(())
    }

    /// An operation with a client that is gone.
    fn failed(&self, error: anyhow::Error) -> anyhow::Result<()> {
        let failed = error.downcast::<Failed>()?.0;
        match failed.entry.context.0 {
            slot @ 0..RECEIVES => self.post_receive(slot),
            context => {
                lock(&self.done).insert(context, Some(failed.errno));
                Ok(())
            }
        }
    }

    fn client(&self, number: u32) -> anyhow::Result<FiAddr> {
        let known = lock(&self.clients).get(&number).copied();
        known.with_context(|| format!("client {number} has not said hello"))
    }

    fn forget(&self, number: u32) -> anyhow::Result<()> {
        if let Some(addr) = lock(&self.clients).remove(&number) {
            self.end.av.remove(&[addr])?;
        }
        Ok(())
    }
}

/// Somebody who answers, with a buffer to do so.
struct Worker<'a>(&'a Server, Block);

impl Server {
    fn work(&self) -> anyhow::Result<()> {
        while !self.is_over.load(Ordering::Acquire) {
            self.go_on()?;
        }
        Ok(())
    }

    /// Serves a request, or takes a completion.
    fn go_on(&self) -> anyhow::Result<()> {
        let job = lock(&self.jobs).pop_front();
        let Some(request) = job else {
            return self.pump();
        };
        self.served.fetch_add(1, Ordering::Relaxed);
        let free = lock(&self.buffers).pop();
        let buffer = free.map_or_else(|| self.end.ground.buffers(MOST), Ok)?;
        let worker = Worker(self, buffer);
        let answered = worker.serve(&request);
        lock(&self.buffers).push(worker.1);
        let Err(error) = answered else {
            return Ok(());
        };
        // Another thread may have noticed it first.
        let is_known = lock(&self.clients).contains_key(&request.client);
        if is_known && !GONE.contains(&errno(&error)) {
            self.is_over.store(true, Ordering::Release);
            return Err(error.context(format!("{request:?}")));
        }
        println!("client {} is gone: {error:#}", request.client);
        self.forget(request.client)
    }
}

impl Worker<'_> {
    fn serve(&self, request: &Request) -> anyhow::Result<()> {
        let server = self.0;
        let &Request {
            client,
            number,
            size,
            remote,
            ..
        } = request;
        if request.kind == Kind::Hello {
            let address = Address::from_bytes(&request.name).context("a client without address")?;
            let addr = server.end.av.insert_one(&address)?;
            lock(&server.clients).insert(client, addr);
        }
        let known = lock(&server.clients).contains_key(&client);
        if !known {
            // Forgotten because it was gone, and asks from beyond.
            return Ok(());
        }
        let peer = server.client(client)?;
        let stamp = Stamp::of_pair(false, number);
        match request.kind {
            Kind::Msg => {
                stamp.write(&self.1.memory, 0, size);
                return self.send(peer, None, size);
            }
            Kind::Tag => {
                stamp.write(&self.1.memory, 0, size);
                return self.send(peer, Some(number), size);
            }
            Kind::Write => {
                stamp.write(&self.1.memory, 0, size);
                self.access(peer, remote, size, false)?;
            }
            Kind::Read => {
                self.1.memory.fill(0, size, POISON);
                self.access(peer, remote, size, true)?;
                Stamp::of_pair(true, number).check(&self.1.memory, 0, size)?;
            }
            // Before the answer: it may be back with the next request. Its address stays.
            Kind::Goodbye => drop(lock(&server.clients).remove(&client)),
            Kind::Hello | Kind::Stop => {}
        }
        self.send(peer, Some(number), ANSWER)?;
        if request.kind == Kind::Stop && server.ends {
            server.is_over.store(true, Ordering::Release);
        }
        Ok(())
    }

    fn send(&self, dest: FiAddr, tag: Option<u64>, size: usize) -> anyhow::Result<()> {
        let context = self.context();
        let piece = self.1.piece(0, size);
        let send = Send {
            dest,
            tag,
            data: None,
            flags: OpFlags::DEFAULT | OpFlags::DELIVERY_COMPLETE,
            context,
        };
        self.post(context, |end| end.send(&[piece], &send))
    }

    fn access(&self, peer: FiAddr, remote: Remote, size: usize, reads: bool) -> anyhow::Result<()> {
        let context = self.context();
        let piece = self.1.piece(0, size);
        let mut access = Access {
            peer,
            remote,
            data: None,
            flags: OpFlags::DEFAULT,
            context,
        };
        if reads {
            return self.post(context, |end| end.read(&[piece], &access));
        }
        access.flags |= OpFlags::DELIVERY_COMPLETE;
        self.post(context, |end| end.write(&[piece], &access))
    }

    fn context(&self) -> u64 {
        self.0.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Posts, and waits until it is complete, serving others meanwhile.
    fn post(
        &self,
        context: u64,
        mut post: impl FnMut(&End) -> Result<(), Errno>,
    ) -> anyhow::Result<()> {
        let server = self.0;
        loop {
            match post(&server.end) {
                Ok(()) => break,
                Err(Errno::Again) => server.pump()?,
                Err(errno) => return Err(errno.into()),
            }
        }
        loop {
            let done = lock(&server.done).remove(&context);
            match done {
                Some(None) => return Ok(()),
                Some(Some(errno)) => return Err(errno.into()),
                None => server.go_on()?,
            }
        }
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
