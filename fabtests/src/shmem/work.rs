//! The work of a process: epochs of random operations, each checked, with a barrier after each
//! epoch.

use std::hint::spin_loop;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use selvedge_testkit::domain::Block;
use selvedge_testkit::process::{next_line, reply_line};
use selvedge_testkit::random::Random;

use super::Config;
use super::heap::{DATA, LENGTHS};
use super::pe::Pe;
use super::thread::Initiator;

/// The process that holds the lock of all processes.
const LOCK_OWNER: usize = 0;

/// Runs process `number`: prints its address, reads those of all processes, and works after the
/// start signal.
///
/// # Errors
/// An operation failed, took too long or had a wrong result.
pub fn run_process(number: usize, config: &Config) -> anyhow::Result<()> {
    let mut pe = Pe::open(config)?;
    reply_line(&pe.name()?)?;
    pe.insert_peers(&next_line()?)?;
    reply_line("ready")?;
    next_line()?;
    let (epochs, operations) =
        run_epochs(number, config, &pe).with_context(|| format!("process {number}"))?;
    reply_line(&format!("{epochs} {operations}"))
}

fn run_epochs(number: usize, config: &Config, pe: &Pe) -> anyhow::Result<(u64, u64)> {
    let deadline = Instant::now() + Duration::from_secs(config.seconds);
    let threads = usize::from(config.threads);
    let mut workers = (0..threads)
        .map(|thread| Worker::open(number, number * threads + thread, config, pe))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let mut epoch = 0;
    loop {
        epoch += 1;
        std::thread::scope(|scope| {
            let running: Vec<_> = workers
                .iter_mut()
                .map(|worker| scope.spawn(|| worker.run_epoch()))
                .collect();
            running.into_iter().try_for_each(|worker| {
                let result = worker.join();
                result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
        })?;
        let (first, others) = workers.split_first_mut().context("no thread")?;
        first.publish(others, epoch, number == 0 && Instant::now() >= deadline)?;
        first.barrier()?;
        first.check_sum()?;
        let is_last = pe.word(pe.heap.last_epoch()) == epoch;
        first.barrier()?;
        if is_last {
            first.initiator.complete_all()?;
            break;
        }
    }
    Ok((
        epoch,
        workers.iter().map(|it| it.initiator.operations).sum(),
    ))
}

/// The state of one thread.
struct Worker<'a> {
    pe: &'a Pe,
    initiator: Initiator<'a>,
    random: Random,
    /// Number of the process.
    number: usize,
    /// Number of the thread among the threads of all processes.
    thread: usize,
    /// Operations of an epoch.
    operations: u32,
    /// The total that this thread has added to the sum of each process.
    added: Vec<u64>,
    /// Number of barriers passed.
    barriers: u64,
    /// The bytes of the current put.
    data: Vec<u8>,
    /// Memory: the first half to put from, the second half to get into.
    local: Block,
}

impl<'a> Worker<'a> {
    fn open(number: usize, thread: usize, config: &Config, pe: &'a Pe) -> anyhow::Result<Self> {
        let initiator = Initiator::open(pe)?;
        Ok(Self {
            pe,
            local: initiator.buffers(2 * DATA)?,
            initiator,
            random: Random::new(config.seed ^ (thread as u64) << 32),
            number,
            thread,
            operations: config.operations,
            added: vec![0; pe.peers.len()],
            barriers: 0,
            data: Vec::new(),
        })
    }

    fn run_epoch(&mut self) -> anyhow::Result<()> {
        for number in 0..self.operations {
            let peer = self.random.below(self.pe.peers.len() as u64) as usize;
            let result = match self.random.below(10) {
                0..4 => self.put_and_check(peer, number),
                4..6 => self.update(peer),
                6 => self.fetch_and_check(peer),
                7 => self.hold_lock(),
                8 => self.put_and_reap(peer, number),
                _ => self.compute(),
            };
            result.with_context(|| format!("operation {number} of thread {}", self.thread))?;
        }
        self.initiator.complete_all()
    }

    /// Puts bytes, waits until they are delivered, and gets them back.
    fn put_and_check(&mut self, peer: usize, number: u32) -> anyhow::Result<()> {
        let offset = self.make_data(number);
        let len = self.data.len();
        self.initiator
            .put(peer, offset, &self.local.segment(0, len))?;
        self.initiator.complete_all()?;
        self.check(peer, offset)
            .with_context(|| format!("a put of {len} bytes to process {peer}"))
    }

    /// As [`Self::put_and_check`], but waits for the put's completion entry.
    fn put_and_reap(&mut self, peer: usize, number: u32) -> anyhow::Result<()> {
        let offset = self.make_data(number);
        let len = self.data.len();
        self.initiator
            .put_and_reap(peer, offset, &self.local.segment(0, len))?;
        self.check(peer, offset)
            .with_context(|| format!("a put of {len} bytes to process {peer}"))
    }

    /// Makes new bytes of a random length for a put. Returns their offset in the target's memory.
    fn make_data(&mut self, number: u32) -> usize {
        let len = *self.random.pick(&LENGTHS);
        let stamp = self.random.word() ^ u64::from(number);
        self.data.clear();
        let words = (0..len.div_ceil(8) as u64).map(|word| stamp.wrapping_add(word));
        self.data.extend(words.flat_map(u64::to_le_bytes));
        self.data.truncate(len);
        self.local.memory.put(0, &self.data);
        self.pe.heap.data(self.thread).start
    }

    fn check(&mut self, peer: usize, offset: usize) -> anyhow::Result<()> {
        if peer == self.number {
            ensure!(
                self.pe.has_bytes(offset, &self.data),
                "a put to the process itself did not change its memory"
            );
        }
        let len = self.data.len();
        self.local.memory.fill(DATA, len, 0);
        self.initiator
            .get(peer, offset, &self.local.segment(DATA, len))?;
        let received = self.local.memory.get(DATA, len);
        ensure!(
            received == self.data,
            "a get returned other bytes than were put"
        );
        Ok(())
    }

    /// Adds to a sum without waiting.
    fn update(&mut self, peer: usize) -> anyhow::Result<()> {
        let value = self.random.below(100);
        self.added[peer] += value;
        self.initiator.add(peer, self.pe.heap.sum(), value)
    }

    /// Adds to a sum, and checks that its earlier value is at least the total of this thread.
    fn fetch_and_check(&mut self, peer: usize) -> anyhow::Result<()> {
        self.initiator.complete_all()?;
        let (before, value) = (self.added[peer], self.random.below(100));
        self.added[peer] += value;
        let earlier = self.initiator.fetch_add(peer, self.pe.heap.sum(), value)?;
        ensure!(
            earlier >= before,
            "the sum at process {peer} was {earlier} after {before} was added"
        );
        Ok(())
    }

    /// Acquires the lock of all processes, changes the guarded number, and releases the lock.
    fn hold_lock(&mut self) -> anyhow::Result<()> {
        let (lock, guarded) = (self.pe.heap.lock(), self.pe.heap.guarded());
        let lock_id = self.thread as u64 + 1;
        while self.initiator.compare_swap(LOCK_OWNER, lock, 0, lock_id)? != 0 {
            self.compute()?;
        }
        let next = self.initiator.get_word(LOCK_OWNER, guarded)? + 1;
        self.put_word(LOCK_OWNER, guarded, next)?;
        self.initiator.complete_all()?;
        let word = self.initiator.get_word(LOCK_OWNER, guarded)?;
        ensure!(
            word == next,
            "another thread changed the guarded number while thread {lock_id} held the lock"
        );
        let holder = self.initiator.swap(LOCK_OWNER, lock, 0)?;
        ensure!(
            holder == lock_id,
            "the lock of thread {lock_id} was held by {holder}"
        );
        Ok(())
    }

    /// Computes for a while without any call.
    fn compute(&mut self) -> anyhow::Result<()> {
        let iterations = if self.random.once_in(20) {
            200_000
        } else {
            self.random.below(5000)
        };
        (0..iterations).for_each(|_| spin_loop());
        Ok(())
    }

    /// Puts to every process the total that was added to its sum, and whether this epoch is the
    /// last one.
    fn publish(&mut self, others: &[Self], epoch: u64, is_last: bool) -> anyhow::Result<()> {
        for peer in 0..self.pe.peers.len() {
            let others = others.iter().map(|other| other.added[peer]).sum::<u64>();
            let total = self.added[peer] + others;
            self.put_word(peer, self.pe.heap.total(self.number), total)?;
            if is_last {
                self.put_word(peer, self.pe.heap.last_epoch(), epoch)?;
            }
        }
        self.initiator.complete_all()
    }

    /// Checks between two barriers that the sum is the total of all processes.
    fn check_sum(&self) -> anyhow::Result<()> {
        let (pe, heap) = (self.pe, self.pe.heap);
        let totals = (0..pe.peers.len()).map(|peer| pe.word(heap.total(peer)));
        let (total, sum) = (totals.sum::<u64>(), pe.word(heap.sum()));
        ensure!(total == sum, "the sum is {sum} after {total} was added");
        Ok(())
    }

    /// Waits until all processes have arrived, by dissemination: in round k, process p notifies
    /// process p + 2^k. Puts that were completed before the barrier are visible to all
    /// processes after it.
    fn barrier(&mut self) -> anyhow::Result<()> {
        self.barriers += 1;
        let (own, count) = (self.number, self.pe.peers.len());
        let barrier = self.barriers;
        for distance in (0..).map(|round| 1 << round).take_while(|&it| it < count) {
            let (to, from) = ((own + distance) % count, (own + count - distance) % count);
            self.put_word(to, self.pe.heap.barrier(own), barrier)?;
            let result = self.pe.wait_until(self.pe.heap.barrier(from), barrier);
            result.with_context(|| format!("barrier {barrier} and process {from}"))?;
        }
        Ok(())
    }

    /// Puts a word. Every provider can inject a word.
    fn put_word(&mut self, peer: usize, offset: usize, word: u64) -> anyhow::Result<()> {
        self.initiator.put_small(peer, offset, &word.to_ne_bytes())
    }
}
