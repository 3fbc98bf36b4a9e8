//! A shim for the atomics in shared memory: those of the standard library, or those of the model
//! checker.
//!
//! All accesses on which two processes race use [`Words`], `bytes` and the orderings of this file,
//! so the same source runs on shared pages and under loom (`--cfg loom`). Under loom a test can
//! weaken an ordering (`model::plant`) to check that the models detect it.

use std::hint;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering, compiler_fence, fence};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};

pub(crate) use self::words::Words;

/// The number of words of a cache line.
pub(crate) const LINE_WORDS: usize = 8;

/// A ring of cache lines. The number of lines is a power of two.
#[derive(Clone, Debug)]
pub(crate) struct Lines {
    words: Words,
    mask: u64,
}

impl Lines {
    /// Divides `words` into lines.
    ///
    /// # Panics
    /// If the number of lines is not a power of two.
    pub(crate) fn new(words: Words) -> Self {
        let count = words.len() / LINE_WORDS;
        assert!(
            count.is_power_of_two() && words.len() == count * LINE_WORDS,
            "{} words are not a power of two of lines",
            words.len()
        );
        Self {
            words,
            mask: count as u64 - 1,
        }
    }

    /// Returns the line at a position. Positions increase from lap to lap.
    #[inline(always)]
    pub(crate) fn line(&self, position: u64) -> &[AtomicU64; LINE_WORDS] {
        self.words.line(self.first_word(position))
    }

    /// Prefetches the line at a position for writing. This is a hint.
    #[inline(always)]
    pub(crate) fn prefetch(&self, position: u64) {
        self.words.prefetch(self.first_word(position));
    }

    /// Returns the number of lines.
    #[inline]
    pub(crate) fn count(&self) -> u64 {
        self.mask + 1
    }

    #[inline(always)]
    #[expect(
        unsafe_code,
        reason = "the hot path needs no bounds check: the mask keeps the line inside"
    )]
    fn first_word(&self, position: u64) -> usize {
        let first = (position & self.mask) as usize * LINE_WORDS;
        let len = self.words.len();
        // SAFETY: `new` alone sets `words` and `mask`, and ensures that there are `mask + 1` whole
        // lines.
        unsafe { hint::assert_unchecked(first < len && LINE_WORDS <= len - first) };
        first
    }
}

/// Selects the sound expression, or the faulty expression where a test has planted the fault.
#[cfg(not(loom))]
macro_rules! unless_planted {
    ($fault:ident, $sound:expr, $faulty:expr) => {
        $sound
    };
}

#[cfg(loom)]
macro_rules! unless_planted {
    ($fault:ident, $sound:expr, $faulty:expr) => {
        if crate::smr::model::is_planted(crate::smr::model::Fault::$fault) {
            $faulty
        } else {
            $sound
        }
    };
}

/// The memory orderings of the protocol, named after the access that they order.
pub(crate) mod order {
    #[cfg(not(loom))]
    use selvedge_kit::barrier::{Scope, fence_all};

    #[cfg(not(loom))]
    use super::compiler_fence;
    use super::{Ordering, fence};

    /// Makes a slot visible after its content. PAIRS WITH: [`observe`] in `cmd_queue::Receiver`,
    /// `resp_queue::RespReceiver` and `bounce::BounceReceiver`.
    #[inline]
    pub(crate) fn commit() -> Ordering {
        unless_planted!(Commit, Ordering::Release, Ordering::Relaxed)
    }

    /// Orders the reads of a slot's content after the load by which a reader found the slot
    /// committed, and the reuse of slots after the load by which a writer found them returned.
    #[inline]
    pub(crate) fn observe() -> Ordering {
        Ordering::Acquire
    }

    /// Returns slots after their content was read. PAIRS WITH: [`observe`] in
    /// `cmd_queue::Credit::read`.
    #[inline]
    pub(crate) fn credit() -> Ordering {
        unless_planted!(Credit, Ordering::Release, Ordering::Relaxed)
    }

    /// Sets the doorbell bit after the commit. PAIRS WITH: the swap in `doorbell::Doorbell::drain`.
    #[inline]
    pub(crate) fn ring() -> Ordering {
        unless_planted!(Ring, Ordering::Release, Ordering::Relaxed)
    }

    /// Fence between a commit and the load of the reader's poll state. `SeqCst`, because a store
    /// must not pass a later load, on either side. This is only a compiler fence: [`after_arm`] in
    /// the reader's process also fences this processor. PAIRS WITH: [`after_arm`].
    #[inline(always)]
    pub(crate) fn after_commit() {
        #[cfg(not(loom))]
        compiler_fence(Ordering::SeqCst);
        #[cfg(loom)]
        unless_planted!(Announce, fence(Ordering::SeqCst), ());
    }

    /// Fence between publishing the parked state and the last poll for commands. `SeqCst` for the
    /// same reason, on this processor and on every processor that may be running a writer. Returns
    /// `false` if the other processors could not be fenced. PAIRS WITH: [`after_commit`].
    pub(crate) fn after_arm() -> bool {
        #[cfg(not(loom))]
        return {
            fence(Ordering::SeqCst);
            fence_all(Scope::Machine)
        };
        #[cfg(loom)]
        {
            unless_planted!(Arm, fence(Ordering::SeqCst), ());
            true
        }
    }

    /// Fence between publishing that memory is withdrawn and changing the memory. A release store
    /// would order only the accesses before the store. PAIRS WITH: [`after_copy`].
    #[inline]
    pub(crate) fn after_withdraw() {
        unless_planted!(Close, fence(Ordering::Release), ());
    }

    /// Fence between copying memory and checking whether the memory was withdrawn: a process that
    /// has copied a changed byte then also loads the withdrawal. PAIRS WITH: [`after_withdraw`].
    #[inline]
    pub(crate) fn after_copy() {
        unless_planted!(Check, fence(Ordering::Acquire), ());
    }
}

#[cfg(not(loom))]
#[expect(
    unsafe_code,
    reason = "atomics on memory that another process maps, too"
)]
mod words {
    use std::fmt;
    use std::ptr::NonNull;
    use std::sync::Arc;

    use super::AtomicU64;
    use crate::smr::memory::mapping::Mapping;
    use crate::smr::memory::prefetch;

    /// An array of 64-bit words in a mapping.
    #[derive(Clone)]
    pub(crate) struct Words {
        first: NonNull<AtomicU64>,
        len: usize,
        mapping: Arc<Mapping>,
    }

    // SAFETY: the words are atomics, and `mapping` keeps them mapped.
    unsafe impl Send for Words {}
    // SAFETY: as above.
    unsafe impl Sync for Words {}

    impl Words {
        /// Creates the array of `len` words of `mapping` from byte `offset` on.
        ///
        /// # Panics
        /// If the words are not inside the mapping, or not aligned. Callers check offsets from
        /// peers before.
        pub(crate) fn new(mapping: Arc<Mapping>, offset: usize, len: usize) -> Self {
            let first = mapping.address_of(offset, len * 8).cast();
            assert!(
                first.is_aligned(),
                "words at offset {offset} are not aligned"
            );
            Self {
                first,
                len,
                mapping,
            }
        }

        /// Returns the word at `index`.
        ///
        /// # Panics
        /// If there is no such word.
        #[inline]
        pub(crate) fn word(&self, index: usize) -> &AtomicU64 {
            assert!(index < self.len);
            // SAFETY: the word is inside the array by the check above.
            let word = unsafe { self.first.add(index) };
            // SAFETY: `new` has checked that the word is mapped and aligned, and `self.mapping`
            // keeps it mapped. Other processes access the word only through atomics; a process that
            // does not garbles its own traffic.
            unsafe { word.as_ref() }
        }

        /// Returns the word at `index`, if there is one.
        #[inline(always)]
        pub(crate) fn get(&self, index: usize) -> Option<&AtomicU64> {
            (index < self.len).then(|| self.word(index))
        }

        /// Returns the `len` words from `first` on as an array of their own.
        ///
        /// # Panics
        /// If the words are not all inside.
        pub(crate) fn part(&self, first: usize, len: usize) -> Self {
            assert!(first <= self.len && len <= self.len - first);
            Self {
                // SAFETY: the words are inside the array by the check above.
                first: unsafe { self.first.add(first) },
                len,
                mapping: Arc::clone(&self.mapping),
            }
        }

        /// Returns the `N` words from `first` on.
        ///
        /// # Panics
        /// If the words are not all inside.
        #[inline(always)]
        pub(crate) fn line<const N: usize>(&self, first: usize) -> &[AtomicU64; N] {
            assert!(first < self.len && N <= self.len - first);
            // SAFETY: the line is inside the array by the check above.
            let line = unsafe { self.first.add(first) };
            // SAFETY: as in `word`, for each word of the line.
            unsafe { line.cast().as_ref() }
        }

        /// Prefetches the cache line of the word at `index` for writing. This is a hint.
        #[inline(always)]
        pub(crate) fn prefetch(&self, index: usize) {
            prefetch::for_writing(self.word(index).as_ptr().cast());
        }

        /// Returns the number of words.
        #[inline(always)]
        pub(crate) fn len(&self) -> usize {
            self.len
        }
    }

    impl fmt::Debug for Words {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "Words({} in {:?})", self.len, self.mapping)
        }
    }
}

#[cfg(loom)]
mod words {
    use std::sync::Arc;

    use super::AtomicU64;
    use crate::smr::memory::mapping::Mapping;

    /// An array of 64-bit words under the model checker.
    #[derive(Clone, Debug)]
    pub(crate) struct Words {
        first: usize,
        len: usize,
        mapping: Arc<Mapping>,
    }

    impl Words {
        pub(crate) fn new(mapping: Arc<Mapping>, offset: usize, len: usize) -> Self {
            Self {
                first: offset / 8,
                len,
                mapping,
            }
        }

        pub(crate) fn word(&self, index: usize) -> &AtomicU64 {
            assert!(index < self.len);
            self.mapping.content().word(self.first + index)
        }

        pub(crate) fn get(&self, index: usize) -> Option<&AtomicU64> {
            (index < self.len).then(|| self.word(index))
        }

        pub(crate) fn part(&self, first: usize, len: usize) -> Self {
            assert!(first <= self.len && len <= self.len - first);
            Self {
                first: self.first + first,
                len,
                mapping: Arc::clone(&self.mapping),
            }
        }

        pub(crate) fn line<const N: usize>(&self, first: usize) -> &[AtomicU64; N] {
            assert!(first < self.len && N <= self.len - first);
            self.mapping.content().words(self.first + first)
        }

        /// Does nothing: the model has no caches.
        pub(crate) fn prefetch(&self, _index: usize) {}

        pub(crate) fn len(&self) -> usize {
            self.len
        }
    }
}
