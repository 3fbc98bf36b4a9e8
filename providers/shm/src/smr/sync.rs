//! The atomics of shared memory, behind one shim: the system's, or the model checker's.
//!
//! Everything that two processes race on goes through [`Words`], `bytes` and the orderings named
//! here, so that the same source runs on shared pages and under loom (`--cfg loom`). Under loom a
//! test can take an ordering away (`model::plant`) to see that the models notice.

use std::hint;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering, compiler_fence, fence};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};

pub(crate) use self::words::Words;

/// Words of a cache line.
pub(crate) const LINE_WORDS: usize = 8;

/// A ring of cache lines, as many as a power of two.
#[derive(Clone, Debug)]
pub(crate) struct Lines {
    words: Words,
    mask: u64,
}

impl Lines {
    /// The lines that `words` are.
    ///
    /// # Panics
    /// When their number is no power of two.
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

    /// The line at a position, which counts on from lap to lap.
    #[inline(always)]
    pub(crate) fn at(&self, position: u64) -> &[AtomicU64; LINE_WORDS] {
        self.words.line(self.first_word(position))
    }

    /// Asks for the line at a position, to write to it soon. A hint.
    #[inline(always)]
    pub(crate) fn prepare(&self, position: u64) {
        self.words.prepare(self.first_word(position));
    }

    /// Number of lines.
    #[inline]
    pub(crate) fn count(&self) -> u64 {
        self.mask + 1
    }

    #[inline(always)]
    #[expect(
        unsafe_code,
        reason = "spares the hot path a check of what the mask ensures"
    )]
    fn first_word(&self, position: u64) -> usize {
        let first = (position & self.mask) as usize * LINE_WORDS;
        let len = self.words.len();
        // SAFETY: there are `mask + 1` whole lines by `new`, the only place that sets either.
        unsafe { hint::assert_unchecked(first < len && LINE_WORDS <= len - first) };
        first
    }
}

/// What the protocol needs, or what is left of it where a test has planted a fault.
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

/// The orderings of the protocol, by what they protect.
pub(crate) mod order {
    #[cfg(not(loom))]
    use selvedge_kit::barrier::{Scope, fence_all};

    #[cfg(not(loom))]
    use super::compiler_fence;
    use super::{Ordering, fence};

    /// Makes a slot visible after its content. PAIRS WITH: [`seen`] in `cmd_queue::Receiver`,
    /// `resp_queue::RespReceiver` and `bounce::BounceReceiver`.
    #[inline]
    pub(crate) fn commit() -> Ordering {
        unless_planted!(Commit, Ordering::Release, Ordering::Relaxed)
    }

    /// Reads a slot's content after it was seen to be visible, and reuses what was given back after
    /// it was seen to be.
    #[inline]
    pub(crate) fn seen() -> Ordering {
        Ordering::Acquire
    }

    /// Gives slots back after their content was read. PAIRS WITH: [`seen`] in
    /// `cmd_queue::Credit::read`.
    #[inline]
    pub(crate) fn credit() -> Ordering {
        unless_planted!(Credit, Ordering::Release, Ordering::Relaxed)
    }

    /// Rings after the commit. PAIRS WITH: the swap in `doorbell::Doorbell::drain`.
    #[inline]
    pub(crate) fn ring() -> Ordering {
        unless_planted!(Bell, Ordering::Release, Ordering::Relaxed)
    }

    /// Between a commit and the look whether its reader has to be woken. `SeqCst`, because a store
    /// must not pass a later load, on either side. Only the compiler is told: the processor gets
    /// its fence from [`asleep`] in the reader's process. PAIRS WITH: [`asleep`].
    #[inline(always)]
    pub(crate) fn announced() {
        #[cfg(not(loom))]
        compiler_fence(Ordering::SeqCst);
        #[cfg(loom)]
        unless_planted!(Announce, fence(Ordering::SeqCst), ());
    }

    /// Between falling asleep and the last look for what was committed: `SeqCst` for the same
    /// reason, for this processor and all that may be running a writer. `false` when they could not
    /// be reached. PAIRS WITH: [`announced`].
    pub(crate) fn asleep() -> bool {
        #[cfg(not(loom))]
        return {
            fence(Ordering::SeqCst);
            fence_all(Scope::Machine)
        };
        #[cfg(loom)]
        {
            unless_planted!(Sleep, fence(Ordering::SeqCst), ());
            true
        }
    }

    /// Between saying that memory is withdrawn and changing it: a fence, because a release store
    /// would hold back only what comes before it. PAIRS WITH: [`copied`].
    #[inline]
    pub(crate) fn withdrawn() {
        unless_planted!(Close, fence(Ordering::Release), ());
    }

    /// Between copying memory and asking whether it was withdrawn: who has copied a changed byte
    /// then also sees why. PAIRS WITH: [`withdrawn`].
    #[inline]
    pub(crate) fn copied() {
        unless_planted!(Check, fence(Ordering::Acquire), ());
    }
}

#[cfg(not(loom))]
#[expect(
    unsafe_code,
    reason = "atomics on memory that another process maps too"
)]
mod words {
    use std::fmt;
    use std::ptr::NonNull;
    use std::sync::Arc;

    use super::AtomicU64;
    use crate::smr::memory::mapping::Mapping;
    use crate::smr::memory::prefetch;

    /// A row of 64-bit words in a mapping.
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
        /// The words of `mapping` from byte `offset` on.
        ///
        /// # Panics
        /// When they do not lie inside the mapping; offsets are checked where they come in.
        pub(crate) fn new(mapping: Arc<Mapping>, offset: usize, len: usize) -> Self {
            let first = mapping.at(offset, len * 8).cast();
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

        /// The word at `index`.
        #[inline]
        pub(crate) fn at(&self, index: usize) -> &AtomicU64 {
            assert!(index < self.len);
            // SAFETY: inside the row by the check above.
            let word = unsafe { self.first.add(index) };
            // SAFETY: mapped and aligned by `new`, and kept mapped by `self.mapping`; other
            // processes access it through atomics only, or it is their own loss.
            unsafe { word.as_ref() }
        }

        /// The word at `index`, if there is one.
        #[inline(always)]
        pub(crate) fn get(&self, index: usize) -> Option<&AtomicU64> {
            (index < self.len).then(|| self.at(index))
        }

        /// The `len` words from `first` on, as a row of their own.
        ///
        /// # Panics
        /// When they are not all inside.
        pub(crate) fn part(&self, first: usize, len: usize) -> Self {
            assert!(first <= self.len && len <= self.len - first);
            Self {
                // SAFETY: inside the row by the check above.
                first: unsafe { self.first.add(first) },
                len,
                mapping: Arc::clone(&self.mapping),
            }
        }

        /// The `N` words from `first` on.
        #[inline(always)]
        pub(crate) fn line<const N: usize>(&self, first: usize) -> &[AtomicU64; N] {
            assert!(first < self.len && N <= self.len - first);
            // SAFETY: inside the row by the check above.
            let line = unsafe { self.first.add(first) };
            // SAFETY: as in `at`, for each of the words.
            unsafe { line.cast().as_ref() }
        }

        /// Asks for the cache line of the word at `index`, to write to it soon. A hint.
        #[inline(always)]
        pub(crate) fn prepare(&self, index: usize) {
            prefetch::for_writing(self.at(index).as_ptr().cast());
        }

        /// Number of words.
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

    /// A row of 64-bit words that the model checker watches.
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

        pub(crate) fn at(&self, index: usize) -> &AtomicU64 {
            assert!(index < self.len);
            self.mapping.content().word(self.first + index)
        }

        pub(crate) fn get(&self, index: usize) -> Option<&AtomicU64> {
            (index < self.len).then(|| self.at(index))
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

        /// Nothing to the model.
        pub(crate) fn prepare(&self, _index: usize) {}

        pub(crate) fn len(&self) -> usize {
            self.len
        }
    }
}
