//! A thread that posts: its endpoint, its two counters, and blocking operations over them.

use std::sync::Arc;

use anyhow::Context as _;
use selvedge::atomic::{Datatype, Family, Op, Target};
use selvedge::{Context, Errno, OpFlags};
use selvedge_testkit::domain::{
    Access, AtomicBuffers, AtomicCall, Block, Count, DomainEndpoint, EndpointConfig, Remote,
    Segment,
};

use super::pe::{Pe, Peer};

/// The objects from which one thread posts operations.
pub(super) struct Initiator<'a> {
    pe: &'a Pe,
    endpoint: DomainEndpoint,
    /// Counts writes and atomics without a result.
    puts: Count,
    /// Counts reads and atomics with a result.
    gets: Count,
    posted_puts: u64,
    posted_gets: u64,
    inject_size: usize,
    /// The operand, the comparand and the result of an atomic.
    words: Block,
    /// Number of posted operations.
    pub(super) operations: u64,
}

/// Offsets of the words of an atomic.
const OPERAND: usize = 0;
const COMPARAND: usize = 8;
const RESULT: usize = 16;

impl<'a> Initiator<'a> {
    pub(super) fn open(pe: &'a Pe) -> anyhow::Result<Self> {
        let context = &pe.context;
        let (puts, gets) = (context.count()?, context.count()?);
        let mut config = EndpointConfig {
            av: Some(Arc::clone(&pe.target.av)),
            tx_selective: true,
            ..EndpointConfig::default()
        };
        config.counters.write = Some(Arc::clone(puts.cntr()));
        config.counters.read = Some(Arc::clone(gets.cntr()));
        Ok(Self {
            pe,
            endpoint: context.endpoint(config)?,
            puts,
            gets,
            posted_puts: 0,
            posted_gets: 0,
            inject_size: context.info().tx_attr.inject_size,
            words: context.buffers(24)?,
            operations: 0,
        })
    }

    /// Allocates memory for puts and gets.
    pub(super) fn buffers(&self, len: usize) -> anyhow::Result<Block> {
        self.pe.context.buffers(len)
    }

    /// Puts bytes, by an inject if the inject size permits. [`Self::complete_all`] completes the
    /// put; the bytes must stay unchanged until then.
    pub(super) fn put(
        &mut self,
        dest: usize,
        offset: usize,
        bytes: &Segment<'_>,
    ) -> anyhow::Result<()> {
        if bytes.len <= self.inject_size {
            let small = bytes.memory.get(bytes.at, bytes.len);
            return self.put_small(dest, offset, &small);
        }
        let access = self.access(dest, offset, 0);
        self.post(|it| it.endpoint.write(&[*bytes], &access))?;
        self.posted_puts += 1;
        Ok(())
    }

    /// Puts bytes by an inject: the provider copies the bytes before this call returns.
    pub(super) fn put_small(
        &mut self,
        dest: usize,
        offset: usize,
        bytes: &[u8],
    ) -> anyhow::Result<()> {
        let Access { peer, remote, .. } = self.access(dest, offset, 0);
        let Remote { addr, key } = remote;
        self.post(|it| it.endpoint.ep.inject_write(bytes, peer, addr, key, None))?;
        self.posted_puts += 1;
        Ok(())
    }

    /// Puts bytes, and parks at the queue until they are delivered.
    pub(super) fn put_and_reap(
        &mut self,
        dest: usize,
        offset: usize,
        bytes: &Segment<'_>,
    ) -> anyhow::Result<()> {
        let access = self
            .access(dest, offset, 7)
            .flags(OpFlags::DEFAULT | OpFlags::COMPLETION);
        self.post(|it| it.endpoint.write(&[*bytes], &access))?;
        self.posted_puts += 1;
        let entry = self.endpoint.tx.next();
        let entry =
            entry.with_context(|| format!("a put of {} bytes to process {dest}", bytes.len))?;
        anyhow::ensure!(entry.context == Context(7), "{entry:?}");
        Ok(())
    }

    /// Gets bytes.
    pub(super) fn get(
        &mut self,
        src: usize,
        offset: usize,
        buffer: &Segment<'_>,
    ) -> anyhow::Result<()> {
        let access = self.access(src, offset, 0);
        self.post(|it| it.endpoint.read(&[*buffer], &access))?;
        self.wait_for_get(src, "get")
    }

    /// Gets a word.
    pub(super) fn get_word(&mut self, src: usize, offset: usize) -> anyhow::Result<u64> {
        let words = self.words.clone();
        self.get(src, offset, &words.segment(RESULT, 8))?;
        Ok(words.memory.word(RESULT))
    }

    /// Adds to a word; [`Self::complete_all`] completes the addition.
    pub(super) fn add(&mut self, dest: usize, offset: usize, value: u64) -> anyhow::Result<()> {
        let Access { peer, remote, .. } = self.access(dest, offset, 0);
        let target = Target {
            dest: peer,
            addr: remote.addr,
            key: remote.key,
            datatype: Datatype::Uint64,
            op: Op::Sum,
        };
        self.post(|it| it.endpoint.ep.inject_atomic(&value.to_ne_bytes(), &target))?;
        self.posted_puts += 1;
        Ok(())
    }

    /// Adds to a word and returns its earlier value.
    pub(super) fn fetch_add(
        &mut self,
        dest: usize,
        offset: usize,
        value: u64,
    ) -> anyhow::Result<u64> {
        self.fetch((dest, offset), (Family::Fetch, Op::Sum), value, 0)
    }

    /// Replaces a word and returns its earlier value.
    pub(super) fn swap(&mut self, dest: usize, offset: usize, value: u64) -> anyhow::Result<u64> {
        self.fetch((dest, offset), (Family::Fetch, Op::AtomicWrite), value, 0)
    }

    /// Replaces a word if it is `expected`, and returns its earlier value.
    pub(super) fn compare_swap(
        &mut self,
        dest: usize,
        offset: usize,
        expected: u64,
        value: u64,
    ) -> anyhow::Result<u64> {
        self.fetch(
            (dest, offset),
            (Family::Compare, Op::Cswap),
            value,
            expected,
        )
    }

    /// Parks until all puts are in the targets' memory.
    pub(super) fn complete_all(&mut self) -> anyhow::Result<()> {
        let operation = || format!("quiet after {} puts", self.posted_puts);
        self.pe
            .wait_for(&self.puts, self.posted_puts)
            .with_context(operation)
    }

    fn fetch(
        &mut self,
        (dest, offset): (usize, usize),
        (family, op): (Family, Op),
        value: u64,
        expected: u64,
    ) -> anyhow::Result<u64> {
        let words = self.words.clone();
        words.memory.put(OPERAND, &value.to_ne_bytes());
        words.memory.put(COMPARAND, &expected.to_ne_bytes());
        let buffers = AtomicBuffers {
            operand: words.segment(OPERAND, 8),
            comparand: words.segment(COMPARAND, 8),
            result: words.segment(RESULT, 8),
        };
        let call = AtomicCall {
            family,
            datatype: Datatype::Uint64,
            op,
        };
        let access = self.access(dest, offset, 0);
        self.post(|it| it.endpoint.atomic(call, &buffers, 1, &access))?;
        self.wait_for_get(dest, "atomic")?;
        Ok(words.memory.word(RESULT))
    }

    fn wait_for_get(&mut self, peer: usize, operation: &str) -> anyhow::Result<()> {
        self.posted_gets += 1;
        let result = self.pe.wait_for(&self.gets, self.posted_gets);
        result.with_context(|| format!("{operation} {} of process {peer}", self.posted_gets))
    }

    /// Makes an access to an offset in a process's memory.
    fn access(&self, process: usize, offset: usize, context: u64) -> Access {
        let Peer { addr, mut remote } = self.pe.peers[process];
        remote.addr += offset as u64;
        Access::new(addr, remote, context)
    }

    /// Posts an operation, and makes progress while queues are full.
    fn post(&mut self, mut post: impl FnMut(&mut Self) -> Result<(), Errno>) -> anyhow::Result<()> {
        let deadline = std::time::Instant::now() + self.pe.timeout();
        loop {
            match post(self) {
                Ok(()) => break,
                Err(Errno::Again) => {
                    self.puts.read();
                    let is_over = std::time::Instant::now() > deadline;
                    anyhow::ensure!(!is_over, "a post was refused for {:?}", self.pe.timeout());
                    std::thread::yield_now();
                }
                Err(errno) => anyhow::bail!("posting: {errno}"),
            }
        }
        self.operations += 1;
        Ok(())
    }
}
