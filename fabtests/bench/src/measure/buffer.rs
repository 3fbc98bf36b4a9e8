//! Buffers for all contestants: page-aligned, with every page touched.

#![expect(unsafe_code, reason = "memory of a domain as a slice")]

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use anyhow::Context as _;
use memmap2::MmapMut;
use selvedge::{Allocation, Domain, alloc};

/// Page-aligned memory that no peer writes.
#[derive(Debug)]
pub struct Pages(Memory);

#[derive(Debug)]
enum Memory {
    Private(MmapMut),
    Special(Arc<dyn Allocation>),
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
        }
    }
}
