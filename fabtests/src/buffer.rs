//! Buffers by the rules that hold for every contestant: page-aligned, and every page touched.

use std::ops::{Deref, DerefMut};

use anyhow::Context as _;
use memmap2::MmapMut;

/// Private memory that starts at a page.
#[derive(Debug)]
pub struct Pages(MmapMut);

impl Pages {
    /// `len` bytes, written once.
    ///
    /// # Errors
    /// The system's, with the size, when there is no memory.
    pub fn new(len: usize) -> anyhow::Result<Self> {
        let mut map = MmapMut::map_anon(len.max(1))
            .with_context(|| format!("cannot get a buffer of {len} bytes"))?;
        map.fill(0x5a);
        Ok(Self(map))
    }
}

impl Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}
