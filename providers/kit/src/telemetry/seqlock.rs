//! What many words say together: a writer that is alone numbers its versions, and a reader that has
//! seen the number change while it copied has copied nothing.

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Words that one thread writes and others read. The model checker has its own.
pub trait Words {
    /// Loads a word.
    fn load(&self, at: usize, order: Ordering) -> u64;
    /// Stores a word.
    fn store(&self, at: usize, value: u64, order: Ordering);
    /// Orders what comes before and after.
    fn fence(&self, order: Ordering);
}

impl Words for [AtomicU64] {
    #[inline]
    fn load(&self, at: usize, order: Ordering) -> u64 {
        self[at].load(order)
    }

    #[inline]
    fn store(&self, at: usize, value: u64, order: Ordering) {
        self[at].store(value, order);
    }

    fn fence(&self, order: Ordering) {
        fence(order);
    }
}

/// Begins a version; its number.
pub fn begin_write<W: Words + ?Sized>(words: &W, seqlock: usize) -> u64 {
    let odd = words.load(seqlock, Ordering::Relaxed).wrapping_add(1) | 1;
    words.store(seqlock, odd, Ordering::Relaxed);
    // Pairs with the fence of `is_same`: whoever sees a word of this version sees its odd number.
    words.fence(Ordering::Release);
    odd
}

/// Ends the version that [`begin`] began.
pub fn end_write<W: Words + ?Sized>(words: &W, seqlock: usize, odd: u64) {
    // Pairs with `version`: whoever sees this number sees all words of the version.
    words.store(seqlock, odd.wrapping_add(1), Ordering::Release);
}

/// The number of the version that can be copied now, if none is being written.
pub fn begin_read<W: Words + ?Sized>(words: &W, seqlock: usize) -> Option<u64> {
    let number = words.load(seqlock, Ordering::Acquire);
    number.is_multiple_of(2).then_some(number)
}

/// Whether what was copied since [`version`] is of one version.
pub fn validate_read<W: Words + ?Sized>(words: &W, seqlock: usize, number: u64) -> bool {
    words.fence(Ordering::Acquire);
    words.load(seqlock, Ordering::Relaxed) == number
}
