//! `Pages`: zeroed, page-aligned memory without references into it.

use std::fmt;
use std::sync::atomic::AtomicU64;

use crate::{Errno, Error};

/// The size of a page in bytes, and the alignment of the memory.
const PAGE: usize = 4096;
const WORDS_PER_PAGE: usize = PAGE / size_of::<AtomicU64>();

/// Memory in whole pages.
///
/// The memory consists of atomics, so that threads may share it and write it through pointers while
/// handles to the memory exist. The owner decides which bytes are accessed by plain reads and
/// writes.
pub(crate) struct Pages(Vec<Page>);

impl Pages {
    /// Allocates memory for `len` bytes.
    pub(crate) fn new(len: usize) -> Result<Self, Error> {
        let count = len.div_ceil(PAGE);
        let mut pages = Vec::new();
        pages.try_reserve_exact(count).map_err(|error| {
            Error::new(
                Errno::NoMem,
                format!("cannot allocate {len} bytes of memory"),
            )
            .because(error)
        })?;
        pages.resize_with(count, Page::default);
        Ok(Self(pages))
    }

    /// Returns a pointer to the first byte. The pointer permits writes, and stays valid when `self`
    /// moves.
    pub(crate) fn base(&self) -> *mut u8 {
        self.0.as_ptr().cast::<u8>().cast_mut()
    }
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pages at {:p}", self.0.len(), self.base())
    }
}

#[repr(C, align(4096))]
struct Page([AtomicU64; WORDS_PER_PAGE]);

impl Default for Page {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; WORDS_PER_PAGE])
    }
}

const _: () = assert!(size_of::<Page>() == PAGE && align_of::<Page>() == PAGE);
