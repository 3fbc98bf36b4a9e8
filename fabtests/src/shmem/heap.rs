//! The symmetric heap: the layout of the memory that every process registers for its peers.

use std::ops::Range;

use super::Config;

/// Bytes of the area in each process's heap that one thread puts data to.
pub(super) const DATA: usize = 192 << 10;
/// Lengths of puts and gets in bytes. They cover inline and injected operations, and both protocols
/// of large ones.
pub(super) const LENGTHS: [usize; 8] = [8, 4, 64, 1000, 4096, 20_000, 70_000, DATA];

/// The layout of the heap. Offsets are in bytes, and the same in all processes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heap {
    processes: usize,
    threads: usize,
}

impl Heap {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            processes: config.processes.into(),
            threads: config.threads.into(),
        }
    }

    /// Bytes of the whole heap.
    pub(super) fn len(self) -> usize {
        self.data(self.processes * self.threads).start
    }

    /// The word to which `sender` puts the number of its last barrier.
    pub(super) fn barrier(self, sender: usize) -> usize {
        8 * sender
    }

    /// The word to which `sender` puts the total that it has added to [`Self::sum`].
    pub(super) fn total(self, sender: usize) -> usize {
        8 * (self.processes + sender)
    }

    /// The word that all processes add to.
    pub(super) fn sum(self) -> usize {
        8 * 2 * self.processes
    }

    /// The word of a lock: 0 if it is free, or the number of the thread that holds it, from 1 on.
    pub(super) fn lock(self) -> usize {
        self.sum() + 8
    }

    /// A number that only the holder of the lock changes.
    pub(super) fn guarded(self) -> usize {
        self.lock() + 8
    }

    /// The number of the last epoch, once process 0 has decided it.
    pub(super) fn last_epoch(self) -> usize {
        self.guarded() + 8
    }

    /// The range to which thread `sender` puts data. Threads are numbered across all processes.
    pub(super) fn data(self, sender: usize) -> Range<usize> {
        let first = (self.last_epoch() + 8).next_multiple_of(64) + sender * DATA;
        first..first + DATA
    }
}
