//! Buffers for all contestants: page-aligned, with every page touched.

#![expect(unsafe_code, reason = "memory of a domain as a slice")]

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use anyhow::Context as _;
use memmap2::MmapMut;
use selvedge::{Allocation, Domain, alloc};
use selvedge_heap::heap;

/// Page-aligned memory that no peer writes.
#[derive(Debug)]
pub struct Pages(Memory);

#[derive(Debug)]
enum Memory {
    Private(MmapMut),
    Special(Arc<dyn Allocation>),
    Heap(HeapMemory),
}

/// An allocation of the shared heap.
#[derive(Debug)]
struct HeapMemory {
    first: NonNull<u8>,
    len: usize,
}

// SAFETY: the value owns the memory, which no other code accesses.
unsafe impl Send for HeapMemory {}

impl Drop for HeapMemory {
    fn drop(&mut self) {
        // SAFETY: allocated by `Pages::heap`; this value alone lends the bytes, and it ends.
        unsafe { heap::free(self.first.as_ptr()) };
    }
}

impl Pages {
    /// Allocates `len` bytes and writes each once.
    ///
    /// # Errors
    /// The system's error and the size, when memory cannot be allocated.
    pub fn new(len: usize) -> anyhow::Result<Self> {
        let mut map = MmapMut::map_anon(len.max(1))
            .with_context(|| format!("cannot allocate a buffer of {len} bytes"))?;
        map.fill(0x5a);
        Ok(Self(Memory::Private(map)))
    }

    /// Allocates `len` bytes from the domain and writes each once.
    ///
    /// # Errors
    /// The domain's error, when memory cannot be allocated.
    pub fn special(domain: &dyn Domain, len: usize) -> anyhow::Result<Self> {
        let memory = domain.alloc(len.max(1), &alloc::Attr::default())?;
        let mut pages = Self(Memory::Special(memory));
        pages.fill(0x5a);
        Ok(pages)
    }

    /// Allocates `len` bytes from the shared heap and writes each once.
    ///
    /// # Errors
    /// When the heap has no room.
    pub fn heap(len: usize) -> anyhow::Result<Self> {
        let len = len.max(heap::threshold());
        let allocated = heap::allocate(len, 1);
        let first = allocated
            .with_context(|| format!("the shared heap has no room for {len} bytes"))?
            .ptr;
        let mut pages = Self(Memory::Heap(HeapMemory { first, len }));
        pages.fill(0x5a);
        Ok(pages)
    }
}

impl Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Memory::Private(map) => map,
            // SAFETY: the bytes are valid and initialised while the handle lives. Only this value
            // lends them, and no other code writes them: the allocation grants peers no access.
            Memory::Special(memory) => unsafe {
                std::slice::from_raw_parts(memory.base(), memory.len())
            },
            // SAFETY: the allocation has `len` bytes, which are initialised: they come from a
            // memory file. Only this value lends them.
            Memory::Heap(HeapMemory { first, len }) => unsafe {
                std::slice::from_raw_parts(first.as_ptr(), *len)
            },
        }
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Memory::Private(map) => map,
            // SAFETY: as above, and `&mut self` is the only borrow.
            Memory::Special(memory) => unsafe {
                std::slice::from_raw_parts_mut(memory.base(), memory.len())
            },
            // SAFETY: as above, and `&mut self` is the only borrow.
            Memory::Heap(HeapMemory { first, len }) => unsafe {
                std::slice::from_raw_parts_mut(first.as_ptr(), *len)
            },
        }
    }
}
