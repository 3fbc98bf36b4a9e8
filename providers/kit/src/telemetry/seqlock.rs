//! A sequence lock over words of shared memory. A single writer numbers the versions; a reader that
//! sees the number change during its copy discards the copy.

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Words that one thread writes and others read. The model checker has its own implementation.
pub trait Words {
    /// Loads a word.
    fn load(&self, index: usize, order: Ordering) -> u64;
    /// Stores a word.
    fn store(&self, index: usize, value: u64, order: Ordering);
    /// Orders the accesses before and after the fence.
    fn fence(&self, order: Ordering);
}

impl Words for [AtomicU64] {
    #[inline]
    fn load(&self, index: usize, order: Ordering) -> u64 {
        self[index].load(order)
    }

    #[inline]
    fn store(&self, index: usize, value: u64, order: Ordering) {
        self[index].store(value, order);
    }

    fn fence(&self, order: Ordering) {
        fence(order);
    }
}

/// Begins a version and returns its odd number, for [`end_write`].
pub fn begin_write<W: Words + ?Sized>(words: &W, seqlock: usize) -> u64 {
    let odd = words.load(seqlock, Ordering::Relaxed).wrapping_add(1) | 1;
    words.store(seqlock, odd, Ordering::Relaxed);
    // Pairs with the fence of `validate_read`: a reader that sees a word of this version sees its
    // odd number.
    words.fence(Ordering::Release);
    odd
}

/// Ends the version that [`begin_write`] began.
pub fn end_write<W: Words + ?Sized>(words: &W, seqlock: usize, odd: u64) {
    // Pairs with `begin_read`: a reader that sees this number sees all words of the version.
    words.store(seqlock, odd.wrapping_add(1), Ordering::Release);
}

/// The number of the present version; `None` while the writer changes the words.
pub fn begin_read<W: Words + ?Sized>(words: &W, seqlock: usize) -> Option<u64> {
    let number = words.load(seqlock, Ordering::Acquire);
    number.is_multiple_of(2).then_some(number)
}

/// Whether a copy that was made since [`begin_read`] is of one version.
pub fn validate_read<W: Words + ?Sized>(words: &W, seqlock: usize, number: u64) -> bool {
    words.fence(Ordering::Acquire);
    words.load(seqlock, Ordering::Relaxed) == number
}
