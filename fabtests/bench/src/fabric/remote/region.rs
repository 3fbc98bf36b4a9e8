//! The memory that the peer reads and writes.

#![expect(unsafe_code, reason = "atomics in memory that a peer accesses")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64};

use anyhow::Context as _;
use selvedge::{Allocation, Domain, MrAccess, alloc};

use super::lines::LINES;

/// Memory of this process that the peer reads and writes: words for synchronisation, then the data.
#[derive(Debug)]
pub(in crate::fabric) struct TargetRegion {
    memory: Arc<dyn Allocation>,
    /// Number of runs that have begun.
    pub(super) runs: u64,
}

/// The key of every region.
pub(super) const KEY: u64 = 7;
/// Offset of the data.
pub(super) const DATA: usize = 4096;

impl TargetRegion {
    /// Allocates a region for a window of accesses that take up to `size` bytes together.
    pub(in crate::fabric) fn new(domain: &dyn Domain, size: usize) -> anyhow::Result<Self> {
        let access = MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE;
        let attr = alloc::Attr::new(access).with_key(KEY);
        let len = DATA + size.max(64 * LINES);
        let memory = domain
            .alloc(len, &attr)
            .context("cannot allocate memory for the peer")?;
        Ok(Self { memory, runs: 0 })
    }

    /// Whether there is room for accesses of `size` bytes.
    pub(in crate::fabric) fn fits(&self, size: usize) -> bool {
        DATA + size <= self.memory.len()
    }

    pub(super) fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.memory.len());
        let word = self.memory.base().wrapping_add(offset).cast();
        // SAFETY: the word lies within memory that lives as long as `self`, is aligned, and is
        // accessed only by atomics.
        unsafe { AtomicU64::from_ptr(word) }
    }

    pub(super) fn byte(&self, offset: usize) -> &AtomicU8 {
        assert!(offset < self.memory.len());
        let byte = self.memory.base().wrapping_add(offset);
        // SAFETY: as in `word`.
        unsafe { AtomicU8::from_ptr(byte) }
    }
}
