//! `SharedBytes`: a region of shared memory, its parts, and atomics of its granules.

#![expect(unsafe_code, reason = "atomics at addresses that a caller guarantees")]

use std::sync::atomic::{AtomicU64, Ordering};

use super::granule::{Granule, WORD};

/// A region of memory that threads and processes access at the same time, or a part of a region.
///
/// A write has release semantics, and a read has acquire semantics: a thread that reads a written
/// value also observes the earlier writes of the writing thread. A byte that is written during a
/// copy has its old or its new value; the same holds for an aligned word of eight bytes as a whole.
#[derive(Clone, Copy, Debug)]
pub struct SharedBytes {
    first: *mut u8,
    len: usize,
    margins: Margins,
}

/// The number of bytes of the region before and after a part, up to 7 each, because no granule
/// extends further.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Margins {
    before: u8,
    after: u8,
}

impl SharedBytes {
    /// Creates the region of `len` bytes that begin at `first`.
    ///
    /// # Safety
    /// As long as the value and its copies are used,
    /// - the bytes are valid for reads and, if they are written through the value, for writes;
    /// - no reference to the bytes exists that assumes that they do not change;
    /// - other accesses of this process at the same time use only values of the same region, or atomics
    ///   of whole granules.
    #[inline]
    pub const unsafe fn new(first: *mut u8, len: usize) -> Self {
        let margins = Margins {
            before: 0,
            after: 0,
        };
        // SAFETY: the caller's promise; a region is a part of itself.
        unsafe { Self::within(first, len, margins) }
    }

    /// Creates the part of a region from its [`Self::as_ptr`], [`Self::len`] and [`Self::margins`].
    ///
    /// # Safety
    /// As [`Self::new`], for the part and its margins.
    #[inline]
    pub const unsafe fn within(first: *mut u8, len: usize, margins: Margins) -> Self {
        Self {
            first,
            len,
            margins,
        }
    }

    /// Returns the length in bytes.
    #[inline]
    pub const fn len(self) -> usize {
        self.len
    }

    /// Returns whether the length is 0.
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Returns the address of the first byte, for system calls.
    #[inline]
    pub const fn as_ptr(self) -> *mut u8 {
        self.first
    }

    /// Returns the margins of this part in its region.
    #[inline]
    pub const fn margins(self) -> Margins {
        self.margins
    }

    /// Returns the `len` bytes that begin at `offset`.
    ///
    /// # Panics
    /// When the bytes are not all within this part.
    #[inline]
    pub fn part(self, offset: usize, len: usize) -> Self {
        self.get(offset, len)
            .expect("the bytes are within the part")
    }

    /// Returns the `len` bytes that begin at `offset`, or `None` if they are not all within this
    /// part.
    #[inline]
    pub fn get(self, offset: usize, len: usize) -> Option<Self> {
        let after = self.len.checked_sub(offset)?.checked_sub(len)?;
        let margin = |bytes: usize, margin: u8| (bytes.min(WORD) as u8 + margin).min(7);
        Some(Self {
            first: self.first.wrapping_add(offset),
            len,
            margins: Margins {
                before: margin(offset, self.margins.before),
                after: margin(after, self.margins.after),
            },
        })
    }

    /// Returns the word of eight bytes at `offset`, or `None` if the word is not within this part
    /// or not aligned.
    #[inline(always)]
    pub fn word(&self, offset: usize) -> Option<&AtomicU64> {
        let word: *mut u64 = self.first.wrapping_add(offset).cast();
        let is_inside = offset <= self.len && WORD <= self.len - offset;
        if !is_inside || !word.is_aligned() {
            return None;
        }
        // SAFETY: eight aligned bytes of the region, which the caller of `new` guarantees. They are
        // a granule, so that accesses at the same time are atomic and of this size.
        Some(unsafe { AtomicU64::from_ptr(word) })
    }

    /// Loads the `N` bytes at `offset` atomically. `N` is a power of two up to 8.
    ///
    /// # Panics
    /// When the bytes are not within this part, or not aligned to `N`.
    #[inline]
    pub fn load<const N: usize>(&self, offset: usize) -> [u8; N] {
        let (granule, skip) = self.granule_of::<N>(offset);
        bytes_of(granule.load(Ordering::Acquire), skip)
    }

    /// Atomically replaces the `N` bytes at `offset` by the result of `change`, unless the result
    /// is
    /// `None`. Returns the previous bytes. `N` is a power of two up to 8. `change` is called again if
    /// the bytes have changed meanwhile.
    ///
    /// # Panics
    /// As [`Self::load`].
    #[inline]
    pub fn update<const N: usize>(
        &self,
        offset: usize,
        mut change: impl FnMut([u8; N]) -> Option<[u8; N]>,
    ) -> [u8; N] {
        let (granule, skip) = self.granule_of::<N>(offset);
        let mut current = granule.load(Ordering::Acquire);
        loop {
            let old = bytes_of(current, skip);
            let Some(new) = change(old) else { return old };
            let mut bytes = current;
            bytes[skip..skip + N].copy_from_slice(&new);
            match granule.compare_exchange(current, bytes, Ordering::AcqRel, Ordering::Acquire) {
                Ok(()) => return old,
                Err(changed) => current = changed,
            }
        }
    }

    /// Returns the granule of `N` aligned bytes, and the offset of the bytes in the granule.
    #[inline]
    fn granule_of<const N: usize>(&self, offset: usize) -> (Granule<'_>, usize) {
        const { assert!(N.is_power_of_two() && N <= WORD) }
        let is_inside = offset <= self.len && N <= self.len - offset;
        let addr = self.first.addr().wrapping_add(offset);
        assert!(
            is_inside && addr.is_multiple_of(N),
            "{N} bytes at {addr:#x}"
        );
        self.granule(offset)
    }

    /// Returns the granule of the byte at `offset`, which must be within this part, and the offset
    /// of the byte in the granule.
    ///
    /// The granule of a block's first byte contains the block if the block is aligned and within
    /// the region: of two aligned blocks around a byte, the larger contains the smaller.
    #[inline]
    pub(super) fn granule(&self, offset: usize) -> (Granule<'_>, usize) {
        let addr = self.first.addr().wrapping_add(offset);
        let before = offset + usize::from(self.margins.before);
        let after = self.len - offset + usize::from(self.margins.after);
        let fits = |size: usize| {
            let skip = addr % size;
            skip <= before && size - skip <= after
        };
        let size = if fits(8) {
            8
        } else if fits(4) {
            4
        } else if fits(2) {
            2
        } else {
            1
        };
        let skip = addr % size;
        let first = self.first.wrapping_add(offset).wrapping_sub(skip);
        // SAFETY: `fits` has checked that the block is within the region, which the caller of `new`
        // guarantees. The block is aligned, and is the largest such block, so other accesses have
        // the same size.
        (unsafe { Granule::new(first, size) }, skip)
    }
}

/// Returns the `N` bytes of a granule at the offset `skip`.
#[inline]
fn bytes_of<const N: usize>(granule: [u8; WORD], skip: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&granule[skip..skip + N]);
    bytes
}

// SAFETY: the promise of `new` is about the memory, not about the thread that uses it.
unsafe impl Send for SharedBytes {}
// SAFETY: as above.
unsafe impl Sync for SharedBytes {}
