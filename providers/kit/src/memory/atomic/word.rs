//! Words of shared memory. The kernels access shared memory only by this code.

#![expect(unsafe_code, reason = "atomics at addresses that a caller vouched for")]

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

use portable_atomic::AtomicU128;
use selvedge::shared::SharedBytes;

/// Whether the processor has atomics of 16 bytes. Without them, `portable_atomic` uses a lock of
/// this process, which other processes do not see.
pub(super) fn has_16_bytes() -> bool {
    AtomicU128::is_lock_free()
}

/// An unsigned integer that the processor changes atomically.
///
/// A change releases the writes before it and acquires those that the word's last change has
/// released. It pairs with the atomics that the other side applies to the word, and with no other
/// atomic of this package.
pub(super) trait Word: Copy + Eq + fmt::Debug + 'static {
    /// The word in shared memory.
    type Cell<'a>;

    /// Returns the word at offset `at`, which is within `memory` and aligned.
    fn cell(memory: &SharedBytes, at: usize) -> Self::Cell<'_>;
    fn load(cell: &Self::Cell<'_>) -> Self;
    /// Stores `new`; returns the old word.
    fn swap(cell: &Self::Cell<'_>, new: Self) -> Self;
    /// Stores `new` if the word is `old`; otherwise fails. Both results contain the old word.
    fn compare_exchange(cell: &Self::Cell<'_>, old: Self, new: Self) -> Result<Self, Self>;
    fn fetch_add(cell: &Self::Cell<'_>, operand: Self) -> Self;
    fn fetch_sub(cell: &Self::Cell<'_>, operand: Self) -> Self;
    fn fetch_or(cell: &Self::Cell<'_>, operand: Self) -> Self;
    fn fetch_and(cell: &Self::Cell<'_>, operand: Self) -> Self;
    fn fetch_xor(cell: &Self::Cell<'_>, operand: Self) -> Self;
    /// Returns the word at `index` of private bytes.
    fn get(bytes: &[u8], index: usize) -> Self;
    fn put(self, bytes: &mut [u8], index: usize);
}

/// The methods for words whose cells are atomics of the word's size.
macro_rules! by_instructions {
    ($cell:ident) => {
        #[inline]
        fn load(cell: &&$cell) -> Self {
            cell.load(Ordering::Acquire)
        }

        #[inline]
        fn swap(cell: &&$cell, new: Self) -> Self {
            cell.swap(new, Ordering::AcqRel)
        }

        #[inline]
        fn compare_exchange(cell: &&$cell, old: Self, new: Self) -> Result<Self, Self> {
            cell.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire)
        }

        #[inline]
        fn fetch_add(cell: &&$cell, operand: Self) -> Self {
            cell.fetch_add(operand, Ordering::AcqRel)
        }

        #[inline]
        fn fetch_sub(cell: &&$cell, operand: Self) -> Self {
            cell.fetch_sub(operand, Ordering::AcqRel)
        }

        #[inline]
        fn fetch_or(cell: &&$cell, operand: Self) -> Self {
            cell.fetch_or(operand, Ordering::AcqRel)
        }

        #[inline]
        fn fetch_and(cell: &&$cell, operand: Self) -> Self {
            cell.fetch_and(operand, Ordering::AcqRel)
        }

        #[inline]
        fn fetch_xor(cell: &&$cell, operand: Self) -> Self {
            cell.fetch_xor(operand, Ordering::AcqRel)
        }
    };
}

/// The methods for words in private bytes.
macro_rules! in_bytes {
    () => {
        #[inline]
        fn get(bytes: &[u8], index: usize) -> Self {
            Self::from_ne_bytes(bytes.as_chunks().0[index])
        }

        #[inline]
        fn put(self, bytes: &mut [u8], index: usize) {
            bytes.as_chunks_mut().0[index] = self.to_ne_bytes();
        }
    };
}

impl Word for u64 {
    type Cell<'a> = &'a AtomicU64;

    #[inline]
    fn cell(memory: &SharedBytes, at: usize) -> &AtomicU64 {
        memory.word(at).expect("elements are inside and aligned")
    }

    by_instructions! { AtomicU64 }
    in_bytes! {}
}

/// An access is inline assembly (`portable_atomic`): the compiler sees neither its size nor its
/// instructions. For the compiler, it means accesses to the two granules of the word. That both
/// granules change at once is a property of the processor.
impl Word for u128 {
    type Cell<'a> = &'a AtomicU128;

    #[inline]
    fn cell(memory: &SharedBytes, at: usize) -> &AtomicU128 {
        let word: *mut Self = memory.part(at, size_of::<Self>()).as_ptr().cast();
        assert!(word.is_aligned(), "elements are aligned");
        // SAFETY: aligned bytes of a region, whose creator has promised that they are valid.
        unsafe { AtomicU128::from_ptr(word) }
    }

    by_instructions! { AtomicU128 }
    in_bytes! {}
}

/// A word that is a part of a granule.
pub(super) struct Narrow<'a, W> {
    memory: &'a SharedBytes,
    at: usize,
    word: PhantomData<W>,
}

macro_rules! narrow_words {
    ($($word:ident)+) => {$(
        impl Narrow<'_, $word> {
            /// Replaces the word by the result of `change`; returns the old word.
            #[inline]
            fn update(&self, change: impl Fn($word) -> $word) -> $word {
                let change = |old| Some(change($word::from_ne_bytes(old)).to_ne_bytes());
                $word::from_ne_bytes(self.memory.update(self.at, change))
            }
        }

        impl Word for $word {
            type Cell<'a> = Narrow<'a, Self>;

            #[inline]
            fn cell(memory: &SharedBytes, at: usize) -> Narrow<'_, Self> {
                Narrow {
                    memory,
                    at,
                    word: PhantomData,
                }
            }

            #[inline]
            fn load(cell: &Narrow<'_, Self>) -> Self {
                Self::from_ne_bytes(cell.memory.load(cell.at))
            }

            #[inline]
            fn swap(cell: &Narrow<'_, Self>, new: Self) -> Self {
                cell.update(|_| new)
            }

            #[inline]
            fn compare_exchange(cell: &Narrow<'_, Self>, old: Self, new: Self) -> Result<Self, Self> {
                let (expected, new) = (old.to_ne_bytes(), new.to_ne_bytes());
                let found = cell.memory.update(cell.at, |found| (found == expected).then_some(new));
                match Self::from_ne_bytes(found) {
                    found if found == old => Ok(found),
                    found => Err(found),
                }
            }

            #[inline]
            fn fetch_add(cell: &Narrow<'_, Self>, operand: Self) -> Self {
                cell.update(|old| old.wrapping_add(operand))
            }

            #[inline]
            fn fetch_sub(cell: &Narrow<'_, Self>, operand: Self) -> Self {
                cell.update(|old| old.wrapping_sub(operand))
            }

            #[inline]
            fn fetch_or(cell: &Narrow<'_, Self>, operand: Self) -> Self {
                cell.update(|old| old | operand)
            }

            #[inline]
            fn fetch_and(cell: &Narrow<'_, Self>, operand: Self) -> Self {
                cell.update(|old| old & operand)
            }

            #[inline]
            fn fetch_xor(cell: &Narrow<'_, Self>, operand: Self) -> Self {
                cell.update(|old| old ^ operand)
            }

            in_bytes! {}
        }
    )+};
}

narrow_words! { u8 u16 u32 }

/// The elements of one call: the targets are in shared memory; operands, comparison values and
/// results are in private memory.
pub(super) struct Vector<'a> {
    /// Whole elements, aligned to their size.
    pub(super) target: SharedBytes,
    pub(super) operand: &'a [u8],
    pub(super) compare: &'a [u8],
    pub(super) result: Option<&'a mut [u8]>,
}

impl Vector<'_> {
    /// Calls `change` with the cell, the operand and the comparison value of each target, and
    /// stores the old word, which `change` returns, into the results. `nothing` replaces a missing
    /// operand or comparison value.
    #[inline]
    pub(super) fn each<W: Word>(mut self, nothing: W, change: impl Fn(&W::Cell<'_>, W, W) -> W) {
        let word = |bytes: &[u8], index| match bytes {
            [] => nothing,
            _ => W::get(bytes, index),
        };
        for index in 0..self.target.len() / size_of::<W>() {
            let cell = W::cell(&self.target, index * size_of::<W>());
            let (operand, compare) = (word(self.operand, index), word(self.compare, index));
            let old = change(&cell, operand, compare);
            if let Some(result) = &mut self.result {
                old.put(result, index);
            }
        }
    }
}
