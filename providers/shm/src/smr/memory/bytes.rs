//! `Bytes` and `Span`: the only types that copy payload bytes into and out of shared memory.
//!
//! A process that keeps to the protocol never writes bytes that another process may be reading. A
//! peer that does not garbles its own message and nothing else: the copies are opaque to the
//! compiler, so the compiler cannot load a byte twice. Memory that both sides change at the same
//! time is a [`Span`]. No reference to the bytes is ever created.

#![expect(unsafe_code, reason = "copies between private and shared memory")]

use std::mem::MaybeUninit;
use std::sync::Arc;

pub use selvedge::shared::{CHUNK, CopyMethod};
use selvedge::shared::{SharedBytes, copy_with};
use selvedge_kit::atomic::{Args, Kernel, Single};

use super::mapping::Mapping;
use super::prefetch;
use crate::smr::sync::Ordering;

/// A range of a mapping that holds payload.
#[derive(Clone, Debug)]
pub struct Bytes {
    mapping: Arc<Mapping>,
    /// Offset of the first byte in the mapping.
    start: usize,
    len: usize,
}

impl Bytes {
    /// Creates the range of `len` bytes of `mapping` from offset `start` on.
    ///
    /// # Panics
    /// If the range is not inside the mapping. Callers check offsets from peers before.
    pub(crate) fn new(mapping: Arc<Mapping>, start: usize, len: usize) -> Self {
        mapping.address_of(start, len);
        Self {
            mapping,
            start,
            len,
        }
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the range is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether this process may write the bytes.
    pub fn is_writable(&self) -> bool {
        self.mapping.is_writable()
    }

    /// Returns the address of the first byte, for an owner whose application uses the memory.
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.range(0, self.len)
    }

    /// Returns the address of the `len` bytes from `offset` on, for a caller that keeps the mapping.
    ///
    /// # Panics
    /// If the range has fewer bytes from `offset` on.
    pub(crate) fn address(&self, offset: usize, len: usize) -> *const u8 {
        self.range(offset, len)
    }

    /// Copies private bytes to `offset` of the range.
    ///
    /// # Panics
    /// If the bytes do not fit, or if the mapping is read-only.
    #[inline]
    pub fn copy_in(&self, offset: usize, from: &[u8]) {
        self.copy_in_by(CopyMethod::StringInstruction, offset, from);
    }

    /// As [`Self::copy_in`], by the given copy method.
    ///
    /// # Panics
    /// As [`Self::copy_in`].
    #[inline]
    pub fn copy_in_by(&self, method: CopyMethod, offset: usize, from: &[u8]) {
        assert!(self.is_writable());
        let to = self.range(offset, from.len());
        #[cfg(loom)]
        self.mapping
            .content()
            .record_write(self.start + offset, from.len());
        // SAFETY: `range` checked that the target is mapped and long enough, and it is writable;
        // `from` is private memory.
        unsafe { copy_with(method, from.as_ptr(), to, from.len()) };
    }

    /// Fills `to` with the bytes from `offset` on. Returns the filled slice.
    ///
    /// # Panics
    /// If the range has fewer bytes from `offset` on.
    #[inline]
    pub fn copy_out<'a>(&self, offset: usize, to: &'a mut [MaybeUninit<u8>]) -> &'a mut [u8] {
        let from = self.range(offset, to.len());
        #[cfg(loom)]
        self.mapping
            .content()
            .record_read(self.start + offset, to.len());
        // SAFETY: `range` checked that the source is mapped and long enough; `to` is private
        // memory.
        unsafe {
            copy_with(
                CopyMethod::StringInstruction,
                from,
                to.as_mut_ptr().cast(),
                to.len(),
            )
        };
        let filled: *mut [MaybeUninit<u8>] = to;
        // SAFETY: every byte of `to` was just written, and the borrow of `to` is passed on.
        unsafe { &mut *(filled as *mut [u8]) }
    }

    /// Fills memory that other threads may be reading with the bytes from `offset` on.
    ///
    /// # Panics
    /// If the range has fewer bytes from `offset` on.
    #[inline]
    pub fn copy_to(&self, offset: usize, to: SharedBytes) {
        let from = self.range(offset, to.len());
        #[cfg(loom)]
        self.mapping
            .content()
            .record_read(self.start + offset, to.len());
        // SAFETY: `range` checked that the source is mapped and long enough.
        unsafe { to.write_from(from) };
    }

    /// Copies memory that other threads may be changing to `offset` of the range.
    ///
    /// # Panics
    /// If the bytes do not fit, or if the mapping is read-only.
    #[inline]
    pub fn copy_from(&self, offset: usize, from: SharedBytes) {
        assert!(self.is_writable());
        let to = self.range(offset, from.len());
        #[cfg(loom)]
        self.mapping
            .content()
            .record_write(self.start + offset, from.len());
        // SAFETY: `range` checked that the target is mapped and long enough, and it is writable.
        // This process's segments are never registered, so no other thread accesses them.
        unsafe { from.read_to(to) };
    }

    /// Prefetches the cache lines of `len` bytes from `offset` on for writing. This is a hint, and
    /// `offset` may have any value.
    #[inline]
    pub fn prefetch_for_write(&self, offset: usize, len: usize) {
        for line in 0..len.div_ceil(64) {
            prefetch::for_writing(self.hint_address(offset + line * 64));
        }
    }

    /// Prefetches the cache line at `offset` for reading. This is a hint, and `offset` may have any
    /// value.
    #[inline]
    pub fn prefetch_for_read(&self, offset: usize) {
        prefetch::for_reading(self.hint_address(offset));
    }

    fn hint_address(&self, offset: usize) -> *const u8 {
        let first = self.mapping.address_of(self.start, 0).as_ptr();
        first.wrapping_add(offset.min(self.len)).cast_const()
    }

    #[inline]
    fn range(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(
            offset <= self.len && len <= self.len - offset,
            "bytes outside the range"
        );
        self.mapping.address_of(self.start + offset, len).as_ptr()
    }
}

/// A range of a mapping that a peer may change at any time.
#[derive(Clone, Debug)]
pub struct Span {
    bytes: SharedBytes,
    writable: bool,
    /// Keeps the bytes mapped.
    _mapping: Arc<Mapping>,
}

impl Bytes {
    /// Returns the first `len` bytes as a span.
    ///
    /// # Panics
    /// If the range has fewer bytes.
    #[expect(clippy::expect_used, reason = "callers know the length")]
    pub(crate) fn first(&self, len: usize) -> Span {
        self.span(0, len).expect("the range has the bytes")
    }

    /// Returns the `len` bytes from `offset` on as a span; `None` if they are not all inside.
    pub fn span(&self, offset: usize, len: usize) -> Option<Span> {
        if offset > self.len || len > self.len - offset {
            return None;
        }
        let first = self.mapping.address_of(self.start + offset, len).as_ptr();
        Some(Span {
            // SAFETY: `address_of` checked that the bytes are mapped, and the span keeps them
            // mapped. `Span` writes the bytes only if they are writable. This process accesses
            // mapped memory of a peer through spans; accesses of other processes are outside
            // of its memory model.
            bytes: unsafe { SharedBytes::new(first, len) },
            writable: self.is_writable(),
            _mapping: Arc::clone(&self.mapping),
        })
    }
}

impl Span {
    /// Returns the length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether the span is empty.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether the bytes may be written.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Returns the address of the byte at `offset`, for error texts and alignment checks. Not for
    /// access.
    #[inline(always)]
    pub fn address(&self, offset: usize) -> usize {
        self.bytes.as_ptr().addr().wrapping_add(offset)
    }

    /// Whether elements at `offset` have the alignment that `kernel` needs. The peer determines
    /// where a span begins, so the start may have any alignment.
    #[inline]
    pub fn is_aligned(&self, offset: usize, kernel: &Kernel) -> bool {
        kernel.check(self.address(offset) as u64).is_ok()
    }

    /// Stores a word at `offset`, atomically if the address is aligned. Returns `false` without
    /// effect if the word does not fit or the bytes are read-only.
    #[inline(always)]
    #[must_use]
    pub fn put_word(&self, offset: usize, word: u64) -> bool {
        if !self.writable {
            return false;
        }
        let Some(to) = self.bytes.word(offset) else {
            return self.put_unaligned_word(offset, word);
        };
        to.store(word, Ordering::Release);
        true
    }

    #[cold]
    #[inline(never)]
    fn put_unaligned_word(&self, offset: usize, word: u64) -> bool {
        let to = self.bytes.get(offset, WORD);
        to.inspect(|to| to.write(&word.to_ne_bytes())).is_some()
    }

    /// Loads the word at `offset`, atomically if the address is aligned. Returns `None` if the word
    /// is not inside.
    #[inline(always)]
    pub fn word(&self, offset: usize) -> Option<u64> {
        match self.bytes.word(offset) {
            Some(from) => Some(from.load(Ordering::Acquire)),
            None => self.load_unaligned_word(offset),
        }
    }

    #[cold]
    #[inline(never)]
    fn load_unaligned_word(&self, offset: usize) -> Option<u64> {
        let mut word = [0; WORD];
        self.bytes.get(offset, WORD)?.read_into(&mut word);
        Some(u64::from_ne_bytes(word))
    }

    /// Copies private bytes to `offset`. Returns `false` without effect if they do not fit or the
    /// span is read-only.
    #[inline]
    #[must_use]
    pub fn put(&self, offset: usize, from: &[u8]) -> bool {
        let to = self.bytes.get(offset, from.len()).filter(|_| self.writable);
        to.inspect(|to| to.write(from)).is_some()
    }

    /// Fills `to` with the bytes from `offset` on. Returns `false`, with `to` unchanged, if there
    /// are fewer bytes.
    #[inline]
    #[must_use]
    pub fn get(&self, offset: usize, to: &mut [MaybeUninit<u8>]) -> bool {
        let from = self.bytes.get(offset, to.len());
        from.map(|from| from.read(to)).is_some()
    }

    /// Applies a kernel to `count` elements from `offset` on by atomic instructions, concurrently
    /// with any other access. Returns `false` without effect if the elements are not aligned or not
    /// all inside, or if the kernel writes and the mapping is read-only.
    #[inline]
    #[must_use]
    pub fn apply(&self, offset: usize, kernel: &Kernel, count: usize, args: Args<'_>) -> bool {
        if !self.writable && kernel.writes() {
            return false;
        }
        let len = count.checked_mul(kernel.size());
        let Some(target) = len.and_then(|len| self.bytes.get(offset, len)) else {
            return false;
        };
        kernel.apply(target, args).is_ok()
    }

    /// Applies one atomic instruction to the integer of eight bytes at `offset`, and returns the
    /// previous value. Returns `None` without effect if the integer is not aligned or not inside,
    /// or if the operation writes and the mapping is read-only.
    #[inline(always)]
    pub fn apply_single(&self, offset: usize, single: Single, words: [u64; 2]) -> Option<u64> {
        if !self.writable && single.writes() {
            return None;
        }
        let [operand, compare] = words;
        let target = self.bytes.word(offset)?;
        Some(single.apply(target, operand, compare))
    }
}

const WORD: usize = size_of::<u64>();
