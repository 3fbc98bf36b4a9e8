//! Words of memory that others change at the same time: the only place where kernels touch it.

#![expect(unsafe_code, reason = "atomics at addresses that a caller vouched for")]

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use portable_atomic::AtomicU128;

/// Whether the processor has atomics of 16 bytes. What stands in for them otherwise is a lock of
/// this process, which other processes do not know.
pub(super) fn has_16_bytes() -> bool {
    AtomicU128::is_lock_free()
}

/// An unsigned integer that the processor changes atomically.
///
/// A change releases what was written before it and acquires what the word's last change released:
/// pairs with whatever atomics the other side uses, and with nothing of ours.
pub(super) trait Word: Copy + Eq + fmt::Debug + 'static {
    /// The word in shared memory.
    type Cell: 'static;

    /// # Safety
    /// As [`Vector::new`], for the word at `at`.
    unsafe fn cell<'a>(at: *mut u8) -> &'a Self::Cell;
    fn load(cell: &Self::Cell) -> Self;
    /// Stores `new`; the word before.
    fn swap(cell: &Self::Cell, new: Self) -> Self;
    /// Stores `new` if the word is `old`; the word before.
    fn compare_exchange(cell: &Self::Cell, old: Self, new: Self) -> Result<Self, Self>;
    fn fetch_add(cell: &Self::Cell, operand: Self) -> Self;
    fn fetch_sub(cell: &Self::Cell, operand: Self) -> Self;
    fn fetch_or(cell: &Self::Cell, operand: Self) -> Self;
    fn fetch_and(cell: &Self::Cell, operand: Self) -> Self;
    fn fetch_xor(cell: &Self::Cell, operand: Self) -> Self;
    /// The word number `index` of private bytes.
    fn get(bytes: &[u8], index: usize) -> Self;
    fn put(self, bytes: &mut [u8], index: usize);
}

macro_rules! words {
    ($($word:ident $cell:ident,)+) => {$(
        impl Word for $word {
            type Cell = $cell;

            #[inline]
            unsafe fn cell<'a>(at: *mut u8) -> &'a $cell {
                // SAFETY: passed on from the caller.
                unsafe { $cell::from_ptr(at.cast()) }
            }

            #[inline]
            fn load(cell: &$cell) -> Self {
                cell.load(Ordering::Acquire)
            }

            #[inline]
            fn swap(cell: &$cell, new: Self) -> Self {
                cell.swap(new, Ordering::AcqRel)
            }

            #[inline]
            fn compare_exchange(cell: &$cell, old: Self, new: Self) -> Result<Self, Self> {
                cell.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire)
            }

            #[inline]
            fn fetch_add(cell: &$cell, operand: Self) -> Self {
                cell.fetch_add(operand, Ordering::AcqRel)
            }

            #[inline]
            fn fetch_sub(cell: &$cell, operand: Self) -> Self {
                cell.fetch_sub(operand, Ordering::AcqRel)
            }

            #[inline]
            fn fetch_or(cell: &$cell, operand: Self) -> Self {
                cell.fetch_or(operand, Ordering::AcqRel)
            }

            #[inline]
            fn fetch_and(cell: &$cell, operand: Self) -> Self {
                cell.fetch_and(operand, Ordering::AcqRel)
            }

            #[inline]
            fn fetch_xor(cell: &$cell, operand: Self) -> Self {
                cell.fetch_xor(operand, Ordering::AcqRel)
            }

            #[inline]
            fn get(bytes: &[u8], index: usize) -> Self {
                Self::from_ne_bytes(bytes.as_chunks().0[index])
            }

            #[inline]
            fn put(self, bytes: &mut [u8], index: usize) {
                bytes.as_chunks_mut().0[index] = self.to_ne_bytes();
            }
        }
    )+};
}

words! {
    u8 AtomicU8,
    u16 AtomicU16,
    u32 AtomicU32,
    u64 AtomicU64,
    u128 AtomicU128,
}

/// The elements of one call: targets in shared memory, the rest in private memory.
pub(super) struct Vector<'a> {
    target: *mut u8,
    count: usize,
    operand: &'a [u8],
    compare: &'a [u8],
    result: Option<&'a mut [u8]>,
    _memory: PhantomData<&'a u8>,
}

impl<'a> Vector<'a> {
    /// # Safety
    /// As [`super::Kernel::apply`], for `'a`, and `target` is aligned to the size of an element.
    #[inline]
    pub(super) unsafe fn new(
        target: *mut u8,
        count: usize,
        operand: &'a [u8],
        compare: &'a [u8],
        result: Option<&'a mut [u8]>,
    ) -> Self {
        Self {
            target,
            count,
            operand,
            compare,
            result,
            _memory: PhantomData,
        }
    }

    /// Has `change` make a new word of each target, given its cell, operand and comparison, and
    /// keeps what it says was there before. Words that there are not are given as `nothing`.
    #[inline]
    pub(super) fn each<W: Word>(mut self, nothing: W, change: impl Fn(&W::Cell, W, W) -> W) {
        let word = |bytes: &[u8], index| match bytes {
            [] => nothing,
            _ => W::get(bytes, index),
        };
        for index in 0..self.count {
            let at = self.target.wrapping_add(index * size_of::<W>());
            // SAFETY: `new`'s caller promised that all elements are valid and changed by atomics of
            // their size alone; the type of a vector's words is that of its elements.
            let cell = unsafe { W::cell(at) };
            let (operand, compare) = (word(self.operand, index), word(self.compare, index));
            let old = change(cell, operand, compare);
            if let Some(result) = &mut self.result {
                old.put(result, index);
            }
        }
    }
}
