//! Memory for messages: any that the application has, and such as the method likes best.

#![expect(unsafe_code, reason = "memory that somebody else has made, as a slice")]

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use crossbeam_queue::SegQueue;
use selvedge::{Allocation, Iov, IovMut};

use crate::support::heap;

/// Memory that BMI made ([`crate::Bmi::memalloc`]): zeroed at first, and at the begin of a page.
///
/// It may be dropped by any thread at any time, also after its instance.
pub struct Memory {
    base: NonNull<u8>,
    len: usize,
    source: Source,
}

enum Source {
    /// The C library's.
    Heap,
    /// A method's; it goes back by the chute.
    Method {
        allocation: Option<Arc<dyn Allocation>>,
        chute: Arc<Chute>,
    },
}

/// Where memory of a method is left when it is dropped, because its objects are for whoever holds
/// the method's lock.
#[derive(Debug, Default)]
pub(crate) struct Chute(SegQueue<Arc<dyn Allocation>>);

impl Chute {
    /// Lets go of what was left. Called under the method's lock, and when that method is gone and
    /// so is all its memory.
    pub(crate) fn empty(&self) {
        while let Some(allocation) = self.0.pop() {
            drop(allocation);
        }
    }

    fn leave(&self, allocation: Arc<dyn Allocation>) {
        self.0.push(allocation);
    }
}

impl Memory {
    pub(crate) fn special(allocation: Arc<dyn Allocation>, chute: &Arc<Chute>) -> Self {
        Self {
            base: NonNull::new(allocation.base()).expect("memory is never at address zero"),
            len: allocation.len(),
            source: Source::Method {
                allocation: Some(allocation),
                chute: Arc::clone(chute),
            },
        }
    }

    pub(crate) fn ordinary(len: usize) -> Option<Self> {
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

    /// Whether peers of the machine reach it without a detour.
    pub fn is_special(&self) -> bool {
        match &self.source {
            Source::Heap => false,
            Source::Method { allocation, .. } => allocation
                .as_ref()
                .is_some_and(|memory| memory.is_special()),
        }
    }

    /// Gives memory of the C library away: whoever has it frees it with free(3).
    ///
    /// # Errors
    /// The memory, if it is a method's.
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
            // SAFETY: the block came from the C library, and this value alone has it.
            Source::Heap => unsafe { heap::free(self.base.as_ptr()) },
            Source::Method { allocation, chute } => {
                if let Some(allocation) = allocation.take() {
                    chute.leave(allocation);
                }
            }
        }
    }
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len` bytes from `base` on are valid and initialised as long as this value has
        // them: by `heap::pages`, or by the promise of `Allocation`, and without remote rights
        // nobody else changes them.
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

// SAFETY: an address of memory that this value owns.
unsafe impl Send for Memory {}
// SAFETY: shared references only read it.
unsafe impl Sync for Memory {}

/// Memory that moves into an operation and comes back with its completion.
#[derive(Debug)]
pub enum Buffer {
    /// A vector; its length is what is sent or what there is room for.
    Bytes(Vec<u8>),
    /// Memory that BMI made.
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
