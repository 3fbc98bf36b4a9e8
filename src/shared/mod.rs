//! `SharedBytes`: memory that several threads and processes access at the same time.
//!
//! Registered memory with remote rights, the memory of a [`crate::owned::SharedRegion`] and the mapped
//! memory of a peer are accessed through this type alone: by copies and words of the owner, and by
//! writes, reads and atomics that this process carries out for peers. No reference to the bytes is ever
//! made.
//!
//! # Granules
//!
//! Rust has no defined result for two unsynchronized accesses of one byte of which one is a write,
//! unless both are atomic and of the same size. So every byte of a region has one *granule*, the
//! largest aligned block of 8, 4, 2 or 1 bytes around it that lies within the region, and every
//! access is an atomic access of whole granules:
//!
//! - a granule is stored whole or loaded whole where an access covers all of it;
//! - of a granule that is covered in part, the other bytes are kept by a compare-exchange;
//! - an atomic of 1, 2 or 4 bytes is a compare-exchange of the granule around it;
//! - an aligned word of 8 bytes is a granule.
//!
//! All granules have 8 bytes, except at the ends of a region that does not begin and end at multiples
//! of 8. Granules belong to the region, not to the accessed part, so two accesses of one byte have the
//! same size. Atomics of 16 bytes are in `selvedge_kit::atomic`, by instructions
//! that the compiler does not see.
//!
//! # Long copies
//!
//! The compiler emits one instruction for each atomic access, so a copy by granules is slower than
//! `memmove` by a factor of up to 4. On x86-64 the copies here call the C library's `memmove` from
//! inline assembly ([`copy_with`]). The compiler has to assume that inline assembly does anything that
//! Rust code could do in its place. That Rust code is the copy by granules in this module, with each
//! granule accessed any number of times: `memmove` accesses no other bytes, and every value that it can
//! load is a value that loads of granules could return. So the assembly has the same meaning in the
//! memory model as the copy by granules. The aligned words of a copy are passed to `memmove` in a call of
//! their own, apart from the bytes before and behind them, so that it does not split a word.
//!
//! System calls that fill or send such memory have the same meaning: the compiler knows as little about
//! the kernel's accesses as about those of assembly.

#![expect(
    unsafe_code,
    reason = "atomics and copies at addresses that a caller guarantees"
)]

mod copy;
mod granule;

pub use copy::{CHUNK, CopyMethod, copy_with};

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use granule::Granule;

const WORD: usize = size_of::<u64>();

/// A region of memory that threads and processes access at the same time, or a part of a region.
///
/// A write has release semantics, and a read has acquire semantics: a thread that reads a written value
/// also sees the earlier writes of the thread that wrote it. A byte that is written during a copy has its
/// old or its new value; so has an aligned word of eight bytes as a whole.
#[derive(Clone, Copy, Debug)]
pub struct SharedBytes {
    first: *mut u8,
    len: usize,
    margins: Margins,
}

/// The number of bytes of the region before and behind a part, up to 7 each: no granule extends further.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Margins {
    before: u8,
    behind: u8,
}

impl SharedBytes {
    /// The region of `len` bytes from `first` on.
    ///
    /// # Safety
    /// As long as the value and its copies are used,
    /// - the bytes are valid for reads and, if anything is written through the value, for writes;
    /// - no reference to them exists that assumes that they do not change;
    /// - this process accesses them at the same time through such values of the same region alone,
    ///   or by atomics of whole granules.
    #[inline]
    pub const unsafe fn new(first: *mut u8, len: usize) -> Self {
        let margins = Margins {
            before: 0,
            behind: 0,
        };
        // SAFETY: the caller's promise; a region is a part of itself.
        unsafe { Self::within(first, len, margins) }
    }

    /// The part of a region that [`Self::as_ptr`], [`Self::len`] and [`Self::margins`] describe.
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

    /// Length in bytes.
    #[inline]
    pub const fn len(self) -> usize {
        self.len
    }

    /// Whether the length is 0.
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// The address of the first byte, for system calls.
    #[inline]
    pub const fn as_ptr(self) -> *mut u8 {
        self.first
    }

    /// The margins of this part in its region.
    #[inline]
    pub const fn margins(self) -> Margins {
        self.margins
    }

    /// The `len` bytes from `at` on.
    ///
    /// # Panics
    /// When they are not all within this part.
    #[inline]
    pub fn part(self, at: usize, len: usize) -> Self {
        self.get(at, len).expect("the bytes are within the part")
    }

    /// The `len` bytes from `at` on; `None` if they are not all within this part.
    #[inline]
    pub fn get(self, at: usize, len: usize) -> Option<Self> {
        let behind = self.len.checked_sub(at)?.checked_sub(len)?;
        let margin = |bytes: usize, margin: u8| (bytes.min(WORD) as u8 + margin).min(7);
        Some(Self {
            first: self.first.wrapping_add(at),
            len,
            margins: Margins {
                before: margin(at, self.margins.before),
                behind: margin(behind, self.margins.behind),
            },
        })
    }

    /// The word of eight bytes at `at`; `None` if it is not within this part or not aligned.
    #[inline(always)]
    pub fn word(&self, at: usize) -> Option<&AtomicU64> {
        let word: *mut u64 = self.first.wrapping_add(at).cast();
        let is_inside = at <= self.len && WORD <= self.len - at;
        if !is_inside || !word.is_aligned() {
            return None;
        }
        // SAFETY: eight aligned bytes of the region, which the caller of `new` guarantees. They are a
        // granule, so that accesses at the same time are atomic and of this size.
        Some(unsafe { AtomicU64::from_ptr(word) })
    }

    /// Copies `bytes` to the beginning of this part.
    ///
    /// # Panics
    /// When `bytes` is longer than this part.
    #[inline(always)]
    pub fn write(self, bytes: &[u8]) {
        let to = self.part(0, bytes.len());
        if let Ok(bytes) = bytes.try_into()
            && let Some(word) = to.word(0)
        {
            return word.store(u64::from_ne_bytes(bytes), Ordering::Release);
        }
        // SAFETY: a slice is valid for reads.
        unsafe { to.write_from(bytes.as_ptr()) };
    }

    /// Copies `self.len()` bytes from `from` to this part.
    ///
    /// # Safety
    /// `self.len()` bytes from `from` on are valid for reads, and this process does not write them during
    /// the call.
    #[inline(always)]
    pub unsafe fn write_from(self, from: *const u8) {
        fence(Ordering::Release);
        // SAFETY: passed on from the caller.
        unsafe { copy::store(self, from) };
    }

    /// Fills `out` with bytes from the beginning of this part.
    ///
    /// # Panics
    /// When `out` is longer than this part.
    #[inline(always)]
    pub fn read(self, out: &mut [MaybeUninit<u8>]) -> &mut [u8] {
        let from = self.part(0, out.len());
        // SAFETY: a slice is valid for writes.
        unsafe { from.read_to(out.as_mut_ptr().cast()) };
        // SAFETY: every byte was just written.
        unsafe { out.assume_init_mut() }
    }

    /// As [`Self::read`], for an initialized slice.
    ///
    /// # Panics
    /// When `out` is longer than this part.
    #[inline]
    pub fn read_into(self, out: &mut [u8]) {
        let from = self.part(0, out.len());
        // SAFETY: as above.
        unsafe { from.read_to(out.as_mut_ptr()) };
    }

    /// Copies this part to the `self.len()` bytes from `to` on.
    ///
    /// # Safety
    /// `self.len()` bytes from `to` on are valid for writes, and this process does not access them during
    /// the call.
    #[inline(always)]
    pub unsafe fn read_to(self, to: *mut u8) {
        if let (WORD, Some(word)) = (self.len, self.word(0)) {
            let word = word.load(Ordering::Acquire);
            // SAFETY: passed on from the caller.
            return unsafe { to.cast::<u64>().write_unaligned(word) };
        }
        // SAFETY: passed on from the caller.
        unsafe { copy::load(self, to) };
        fence(Ordering::Acquire);
    }

    /// Loads the `N` bytes at `at` atomically. `N` is a power of two up to 8.
    ///
    /// # Panics
    /// When the bytes are not within this part, or not aligned to `N`.
    #[inline]
    pub fn load<const N: usize>(&self, at: usize) -> [u8; N] {
        let (granule, skip) = self.granule_of::<N>(at);
        bytes_of(granule.load(Ordering::Acquire), skip)
    }

    /// Atomically replaces the `N` bytes at `at` by the result of `change`, unless it is `None`. Returns
    /// the previous bytes. `N` is a power of two up to 8. `change` is called again if the bytes have
    /// changed meanwhile.
    ///
    /// # Panics
    /// As [`Self::load`].
    #[inline]
    pub fn update<const N: usize>(
        &self,
        at: usize,
        mut change: impl FnMut([u8; N]) -> Option<[u8; N]>,
    ) -> [u8; N] {
        let (granule, skip) = self.granule_of::<N>(at);
        let mut seen = granule.load(Ordering::Acquire);
        loop {
            let old = bytes_of(seen, skip);
            let Some(new) = change(old) else { return old };
            let mut bytes = seen;
            bytes[skip..skip + N].copy_from_slice(&new);
            match granule.compare_exchange(seen, bytes, Ordering::AcqRel, Ordering::Acquire) {
                Ok(()) => return old,
                Err(now) => seen = now,
            }
        }
    }

    /// The granule of `N` aligned bytes, and the offset of the bytes in it.
    #[inline]
    fn granule_of<const N: usize>(&self, at: usize) -> (Granule<'_>, usize) {
        const { assert!(N.is_power_of_two() && N <= WORD) }
        let is_inside = at <= self.len && N <= self.len - at;
        let addr = self.first.addr().wrapping_add(at);
        assert!(
            is_inside && addr.is_multiple_of(N),
            "{N} bytes at {addr:#x}"
        );
        self.granule(at)
    }

    /// The granule of the byte at `at`, which is within this part, and the offset of the byte in it.
    ///
    /// An aligned block within the region is contained in the granule of its first byte: of two aligned
    /// blocks around a byte, the larger contains the smaller.
    #[inline]
    fn granule(&self, at: usize) -> (Granule<'_>, usize) {
        let at_addr = self.first.addr().wrapping_add(at);
        let before = at + usize::from(self.margins.before);
        let behind = self.len - at + usize::from(self.margins.behind);
        let fits = |size: usize| {
            let skip = at_addr % size;
            skip <= before && size - skip <= behind
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
        let skip = at_addr % size;
        let first = self.first.wrapping_add(at).wrapping_sub(skip);
        // SAFETY: `fits` checked that the block is aligned and within the region, which `new`'s
        // caller guarantees; it is the largest such block, so other accesses have its size.
        (unsafe { Granule::new(first, size) }, skip)
    }
}

/// The `N` bytes of a granule at the offset `skip`.
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

#[cfg(test)]
mod tests;
