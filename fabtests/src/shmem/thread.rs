//! A thread that posts: its endpoint, its two counters, and blocking operations over them.

#![expect(unsafe_code, reason = "posts of the raw layer")]

use std::sync::Arc;

use anyhow::Context as _;
use selvedge::atomic::{Datatype, Ioc, IocMut, Op, Target};
use selvedge::cq::Entry;
use selvedge::rma::{RmaIov, WriteMsg};
use selvedge::{
    AtomicExt, Bindings, CompletionQueue, Context, Counter, Desc, Endpoint, Errno, FiAddr, Iov,
    IovMut, OpFlags, RmaExt, cq, wait,
};

use super::pe::Pe;

/// The objects that one thread posts with. A call that returns `Ok` has given its memory back.
pub(super) struct Initiator<'a> {
    pe: &'a Pe,
    ep: Arc<dyn Endpoint>,
    cq: Arc<dyn CompletionQueue>,
    /// Counts writes and atomics without a result.
    puts: Arc<dyn Counter>,
    /// Counts reads and atomics with a result.
    gets: Arc<dyn Counter>,
    posted_puts: u64,
    posted_gets: u64,
    inject_size: usize,
    pub(super) operations: u64,
}

impl<'a> Initiator<'a> {
    pub(super) fn open(pe: &'a Pe) -> anyhow::Result<Self> {
        let mut attr = cq::Attr::default();
        attr.wait_obj = wait::Object::Unspec;
        let cq = pe.domain.cq(&attr)?;
        let (puts, gets) = (pe.counter()?, pe.counter()?);
        let mut bind = Bindings::new(Arc::clone(&cq), Arc::clone(&pe.av));
        bind.tx_selective = true;
        bind.cntrs.write = Some(Arc::clone(&puts));
        bind.cntrs.read = Some(Arc::clone(&gets));
        Ok(Self {
            pe,
            ep: pe.domain.endpoint(&pe.info, bind)?,
            cq,
            puts,
            gets,
            posted_puts: 0,
            posted_gets: 0,
            inject_size: pe.info.tx_attr.inject_size,
            operations: 0,
        })
    }

    /// Puts bytes; what is small enough is injected. It is done after [`Self::quiet`], until when
    /// large `bytes` must stay.
    ///
    /// # Safety
    /// `bytes` stay as they are until [`Self::quiet`] has returned.
    pub(super) unsafe fn put(
        &mut self,
        dest: usize,
        at: usize,
        bytes: &[u8],
    ) -> anyhow::Result<()> {
        let (peer, addr, key) = self.remote(dest, at);
        let is_small = bytes.len() <= self.inject_size;
        self.post(|it| match is_small {
            true => it.ep.inject_write(bytes, peer, addr, key, None),
            // SAFETY: passed on from the caller.
            false => unsafe {
                let buf = Iov::new(bytes);
                it.ep.write(buf, Desc::NONE, peer, addr, key, Context(0))
            },
        })?;
        self.posted_puts += 1;
        Ok(())
    }

    /// Puts bytes, and sleeps at the queue until they are there.
    pub(super) fn put_and_reap(
        &mut self,
        dest: usize,
        at: usize,
        bytes: &[u8],
    ) -> anyhow::Result<()> {
        let ((peer, addr, key), len) = (self.remote(dest, at), bytes.len());
        let msg = WriteMsg {
            iov: &[Iov::new(bytes)],
            desc: &[],
            dest: peer,
            rma_iov: &[RmaIov { addr, len, key }],
            context: Context(7),
            data: 0,
        };
        let flags = OpFlags::DEFAULT | OpFlags::COMPLETION;
        // SAFETY: the completion is waited for below; where that fails the process ends.
        self.post(|it| unsafe { it.ep.writemsg(&msg, flags) })?;
        self.posted_puts += 1;
        let mut entry = [Entry::default()];
        let count = self.cq.wait(&mut entry, Some(self.pe.timeout()));
        let count = count.with_context(|| format!("a put of {len} bytes to process {dest}"))?;
        anyhow::ensure!(count == 1 && entry[0].context == Context(7), "{entry:?}");
        Ok(())
    }

    /// Gets bytes.
    pub(super) fn get(&mut self, src: usize, at: usize, bytes: &mut [u8]) -> anyhow::Result<()> {
        let (peer, addr, key) = self.remote(src, at);
        let buf = IovMut::new(bytes);
        // SAFETY: the counter is waited for below; where that fails the process ends.
        self.post(|it| unsafe { it.ep.read(buf, Desc::NONE, peer, addr, key, Context(0)) })?;
        self.got(src, "get")
    }

    /// Adds to a word; done after [`Self::quiet`].
    pub(super) fn add(&mut self, dest: usize, at: usize, value: u64) -> anyhow::Result<()> {
        let target = self.target(dest, at, Op::Sum);
        self.post(|it| it.ep.inject_atomic(&value.to_ne_bytes(), &target))?;
        self.posted_puts += 1;
        Ok(())
    }

    /// Adds to a word; its earlier value.
    pub(super) fn fetch_add(&mut self, dest: usize, at: usize, value: u64) -> anyhow::Result<u64> {
        self.fetch(self.target(dest, at, Op::Sum), value, None)
    }

    /// Replaces a word; its earlier value.
    pub(super) fn swap(&mut self, dest: usize, at: usize, value: u64) -> anyhow::Result<u64> {
        self.fetch(self.target(dest, at, Op::AtomicWrite), value, None)
    }

    /// Replaces a word if it is `expected`; its earlier value.
    pub(super) fn compare_swap(
        &mut self,
        dest: usize,
        at: usize,
        expected: u64,
        value: u64,
    ) -> anyhow::Result<u64> {
        self.fetch(self.target(dest, at, Op::Cswap), value, Some(expected))
    }

    /// Sleeps until everything that was put is in its target's memory.
    pub(super) fn quiet(&mut self) -> anyhow::Result<()> {
        let what = || format!("quiet after {} puts", self.posted_puts);
        self.pe
            .wait_for(&*self.puts, self.posted_puts)
            .with_context(what)
    }

    fn fetch(&mut self, target: Target, value: u64, expected: Option<u64>) -> anyhow::Result<u64> {
        let mut earlier = 0_u64;
        let ioc = |value: &u64| Ioc::from_raw(std::ptr::from_ref(value).cast(), 1);
        let buf = (ioc(&value), Desc::NONE);
        let result = (IocMut::from_raw((&raw mut earlier).cast(), 1), Desc::NONE);
        self.post(|it| match &expected {
            // SAFETY: the counter is waited for below; where that fails the process ends.
            None => unsafe { it.ep.fetch_atomic(buf, result, &target, Context(0)) },
            // SAFETY: as above.
            Some(expected) => unsafe {
                let compare = (ioc(expected), Desc::NONE);
                it.ep
                    .compare_atomic(buf, compare, result, &target, Context(0))
            },
        })?;
        self.got(target.dest.0 as usize, "atomic")?;
        // SAFETY: a local variable, written by the operation that is over.
        Ok(unsafe { (&raw const earlier).read_volatile() })
    }

    fn got(&mut self, peer: usize, what: &str) -> anyhow::Result<()> {
        self.posted_gets += 1;
        let done = self.pe.wait_for(&*self.gets, self.posted_gets);
        done.with_context(|| format!("{what} {} of process {peer}", self.posted_gets))
    }

    fn target(&self, process: usize, at: usize, op: Op) -> Target {
        let (dest, addr, key) = self.remote(process, at);
        Target {
            dest,
            addr,
            key,
            datatype: Datatype::Uint64,
            op,
        }
    }

    /// The peer, address and key of an offset in a process's memory.
    fn remote(&self, process: usize, at: usize) -> (FiAddr, u64, u64) {
        let peer = self.pe.peers[process];
        (peer.addr, peer.base + at as u64, peer.key)
    }

    /// Posts, and makes room while queues are full.
    fn post(&mut self, mut post: impl FnMut(&mut Self) -> Result<(), Errno>) -> anyhow::Result<()> {
        let deadline = std::time::Instant::now() + self.pe.timeout();
        loop {
            match post(self) {
                Ok(()) => break,
                Err(Errno::Again) => {
                    self.puts.read();
                    let is_over = std::time::Instant::now() > deadline;
                    anyhow::ensure!(!is_over, "no room to post in {:?}", self.pe.timeout());
                    std::thread::yield_now();
                }
                Err(errno) => anyhow::bail!("posting: {errno}"),
            }
        }
        self.operations += 1;
        Ok(())
    }
}
