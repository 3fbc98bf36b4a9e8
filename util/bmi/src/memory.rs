//! Memory for messages: the application's own, or memory allocated by a method.

#![expect(unsafe_code, reason = "memory of other allocators, as a slice")]

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use crossbeam_queue::SegQueue;
use selvedge::{Allocation, Iov, IovMut};

use crate::support::heap;

/// Memory that BMI allocated ([`crate::Bmi::memalloc`]): zeroed at first, and page-aligned.
///
/// Any thread may drop the memory at any time, even after the instance.
pub struct Memory {
    base: NonNull<u8>,
    len: usize,
    source: Source,
}

enum Source {
    /// Allocated by the C library.
    Heap,
    /// Allocated by a method; dropped through the deferred free list.
    Method {
        allocation: Option<Arc<dyn Allocation>>,
        deferred: Arc<DeferredFrees>,
    },
}

/// Deferred free list of a method's memory. Memory is dropped by any thread, but objects of the
/// method may be used under the method's lock only.
#[derive(Debug, Default)]
pub(crate) struct DeferredFrees(SegQueue<Arc<dyn Allocation>>);

impl DeferredFrees {
    /// Drops the queued allocations. Called under the method's lock. Allocations that are queued
    /// later are dropped with the list, after the method and its last memory.
    pub(crate) fn drain(&self) {
        while let Some(allocation) = self.0.pop() {
            drop(allocation);
        }
    }

    fn push(&self, allocation: Arc<dyn Allocation>) {
        self.0.push(allocation);
    }
}

impl Memory {
    pub(crate) fn from_allocation(
        allocation: Arc<dyn Allocation>,
        deferred: &Arc<DeferredFrees>,
    ) -> Self {
        Self {
            base: NonNull::new(allocation.base()).expect("memory is never at address zero"),
            len: allocation.len(),
            source: Source::Method {
                allocation: Some(allocation),
                deferred: Arc::clone(deferred),
            },
        }
    }

    pub(crate) fn allocate(len: usize) -> Option<Self> {
        Some(Self {
            base: heap::pages(len)?,
            len,
            source: Source::Heap,
        })
    }

    /// The first byte.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns whether peers on this machine access the memory without a copy through the provider.
    pub fn is_special(&self) -> bool {
        match &self.source {
            Source::Heap => false,
            Source::Method { allocation, .. } => allocation
                .as_ref()
                .is_some_and(|memory| memory.is_special()),
        }
    }

    /// Releases memory of the C library; the caller frees it with free(3).
    ///
    /// # Errors
    /// The memory, if a method allocated it.
    pub fn into_heap(self) -> Result<NonNull<u8>, Self> {
        match self.source {
            Source::Heap => {
                let base = self.base;
                std::mem::forget(self);
                Ok(base)
            }
            Source::Method { .. } => Err(self),
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        match &mut self.source {
            // SAFETY: the block came from the C library, and this value is its only owner.
            Source::Heap => unsafe { heap::free(self.base.as_ptr()) },
            Source::Method {
                allocation,
                deferred,
            } => {
                if let Some(allocation) = allocation.take() {
                    deferred.push(allocation);
                }
            }
        }
    }
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len` bytes from `base` on are valid and initialised as long as this value owns
        // them: by `heap::pages`, or by the contract of `Allocation`. Without remote access rights
        // no other code changes them.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and this value is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory")
            .field("len", &self.len)
            .field("is_special", &self.is_special())
            .finish_non_exhaustive()
    }
}

// SAFETY: the value is the address of memory that it owns, which is bound to no thread.
unsafe impl Send for Memory {}
// SAFETY: shared references only read the memory.
unsafe impl Sync for Memory {}

/// Memory that moves into an operation and comes back with its completion.
#[derive(Debug)]
pub enum Buffer {
    /// A vector; its length is the size of the send or receive.
    Bytes(Vec<u8>),
    /// Memory that BMI allocated.
    Memory(Memory),
}

impl Buffer {
    pub(crate) fn iov(&self) -> Iov {
        Iov::new(self)
    }

    pub(crate) fn iov_mut(&mut self) -> IovMut {
        IovMut::new(self)
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Memory(memory) => memory,
        }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Memory(memory) => memory,
        }
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<Memory> for Buffer {
    fn from(memory: Memory) -> Self {
        Self::Memory(memory)
    }
}
