//! The atomics of shared memory, behind one shim: the system's, or the model checker's.
//!
//! Everything that two processes race on goes through [`Words`] and the orderings named here, so
//! that the same source runs on shared pages and under loom (`--cfg loom`). Under loom an ordering
//! can be weakened by a test ([`order::plant`]) to see that the model notices.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};

pub(crate) use self::words::Words;

/// The orderings of the protocol, by what they protect.
pub(crate) mod order {
    use super::Ordering;

    /// Makes a slot visible after its content. PAIRS WITH: [`seen`] in `cmd_queue::Receiver`.
    #[inline]
    pub(crate) fn commit() -> Ordering {
        weakened(Fault::Commit, Ordering::Release)
    }

    /// Reads a slot's content after it was seen to be visible.
    #[inline]
    pub(crate) fn seen() -> Ordering {
        Ordering::Acquire
    }

    /// Gives slots back after their content was read. PAIRS WITH: [`seen`] in
    /// `cmd_queue::Sender`.
    #[inline]
    pub(crate) fn credit() -> Ordering {
        weakened(Fault::Credit, Ordering::Release)
    }

    /// Says that the owner has closed, after its last change. PAIRS WITH: [`seen`] in
    /// `region::Peer::is_closed`.
    #[inline]
    pub(crate) fn close() -> Ordering {
        weakened(Fault::Close, Ordering::Release)
    }

    /// What a test can weaken.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Fault {
        /// The release of a slot.
        Commit,
        /// The release of credits.
        Credit,
        /// The release of the closed word.
        Close,
    }

    #[cfg(not(loom))]
    #[inline]
    fn weakened(_fault: Fault, ordering: Ordering) -> Ordering {
        ordering
    }

    #[cfg(loom)]
    fn weakened(fault: Fault, ordering: Ordering) -> Ordering {
        if planted::get() == Some(fault) {
            Ordering::Relaxed
        } else {
            ordering
        }
    }

    #[cfg(loom)]
    pub(crate) use planted::plant;

    #[cfg(loom)]
    mod planted {
        use std::sync::Mutex;

        use super::Fault;

        static PLANTED: Mutex<Option<Fault>> = Mutex::new(None);

        /// Weakens one ordering for every model that runs until it is called again.
        pub(crate) fn plant(fault: Option<Fault>) {
            *PLANTED.lock().expect("no model panics while it holds this") = fault;
        }

        pub(super) fn get() -> Option<Fault> {
            *PLANTED.lock().expect("no model panics while it holds this")
        }
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
    use crate::smr::region::Mapping;

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

        /// The `N` words from `first` on.
        #[inline]
        pub(crate) fn line<const N: usize>(&self, first: usize) -> &[AtomicU64; N] {
            assert!(first < self.len && N <= self.len - first);
            // SAFETY: inside the row by the check above.
            let line = unsafe { self.first.add(first) };
            // SAFETY: as in `at`, for each of the words.
            unsafe { line.cast().as_ref() }
        }

        /// Number of words.
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

    /// A row of 64-bit words that the model checker watches.
    #[derive(Clone, Debug)]
    pub(crate) struct Words(Arc<[AtomicU64]>);

    impl Words {
        /// A row of zeroes.
        pub(crate) fn zeroed(len: usize) -> Self {
            Self((0..len).map(|_| AtomicU64::new(0)).collect())
        }

        /// The word at `index`.
        pub(crate) fn at(&self, index: usize) -> &AtomicU64 {
            &self.0[index]
        }

        /// The `N` words from `first` on.
        pub(crate) fn line<const N: usize>(&self, first: usize) -> &[AtomicU64; N] {
            self.0[first..first + N].try_into().expect("N words")
        }

        /// Number of words.
        pub(crate) fn len(&self) -> usize {
            self.0.len()
        }
    }
}
