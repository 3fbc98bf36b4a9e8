//! `Granule`: the unit of atomic access to shared memory.

#![expect(unsafe_code, reason = "atomics at addresses that a caller guarantees")]

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// The size of a word, and of the largest granule.
pub(super) const WORD: usize = size_of::<u64>();

/// An aligned block of 8, 4, 2 or 1 bytes. Its value is represented as 8 bytes: the bytes of the
/// block, then zeros.
pub(super) enum Granule<'a> {
    Eight(&'a AtomicU64),
    Four(&'a AtomicU32),
    Two(&'a AtomicU16),
    One(&'a AtomicU8),
}

impl Granule<'_> {
    /// # Safety
    /// - `first` is aligned to `size`, which is 8, 4, 2 or 1;
    /// - the block is valid for reads, and for writes if it is written;
    /// - concurrent accesses to the block are atomic and of this size.
    #[inline]
    pub(super) unsafe fn new(first: *mut u8, size: usize) -> Self {
        match size {
            // SAFETY: passed on from the caller.
            8 => Self::Eight(unsafe { AtomicU64::from_ptr(first.cast()) }),
            // SAFETY: as above.
            4 => Self::Four(unsafe { AtomicU32::from_ptr(first.cast()) }),
            // SAFETY: as above.
            2 => Self::Two(unsafe { AtomicU16::from_ptr(first.cast()) }),
            // SAFETY: as above.
            _ => Self::One(unsafe { AtomicU8::from_ptr(first) }),
        }
    }

    #[cfg(any(test, miri, tsan, not(target_arch = "x86_64")))]
    pub(super) const fn size(&self) -> usize {
        match self {
            Self::Eight(_) => 8,
            Self::Four(_) => 4,
            Self::Two(_) => 2,
            Self::One(_) => 1,
        }
    }

    #[inline]
    pub(super) fn load(&self, order: Ordering) -> [u8; WORD] {
        match self {
            Self::Eight(cell) => widen(cell.load(order).to_ne_bytes()),
            Self::Four(cell) => widen(cell.load(order).to_ne_bytes()),
            Self::Two(cell) => widen(cell.load(order).to_ne_bytes()),
            Self::One(cell) => widen(cell.load(order).to_ne_bytes()),
        }
    }

    #[cfg(any(test, miri, tsan, not(target_arch = "x86_64")))]
    pub(super) fn store(&self, value: [u8; WORD], order: Ordering) {
        match self {
            Self::Eight(cell) => cell.store(u64::from_ne_bytes(value), order),
            Self::Four(cell) => cell.store(u32::from_ne_bytes(narrow(value)), order),
            Self::Two(cell) => cell.store(u16::from_ne_bytes(narrow(value)), order),
            Self::One(cell) => cell.store(u8::from_ne_bytes(narrow(value)), order),
        }
    }

    #[inline]
    pub(super) fn compare_exchange(
        &self,
        old: [u8; WORD],
        new: [u8; WORD],
        success: Ordering,
        failure: Ordering,
    ) -> Result<(), [u8; WORD]> {
        macro_rules! exchange {
            ($cell:expr, $number:ident) => {{
                let [old, new] = [old, new].map(|bytes| $number::from_ne_bytes(narrow(bytes)));
                let done = $cell.compare_exchange(old, new, success, failure);
                done.map(drop).map_err(|now| widen(now.to_ne_bytes()))
            }};
        }
        match self {
            Self::Eight(cell) => exchange!(cell, u64),
            Self::Four(cell) => exchange!(cell, u32),
            Self::Two(cell) => exchange!(cell, u16),
            Self::One(cell) => exchange!(cell, u8),
        }
    }
}

#[inline]
fn widen<const N: usize>(bytes: [u8; N]) -> [u8; WORD] {
    let mut word = [0; WORD];
    word[..N].copy_from_slice(&bytes);
    word
}

#[inline]
fn narrow<const N: usize>(word: [u8; WORD]) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&word[..N]);
    bytes
}
