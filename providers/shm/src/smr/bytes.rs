//! The only place where payload bytes enter and leave shared memory.
//!
//! Plain copies: the protocol lets nobody write bytes that another may read, and a peer that does
//! so all the same garbles its own message. Memory that both sides change at the same time is
//! changed by atomics. No reference to the bytes is ever made.

#![expect(unsafe_code, reason = "copies between private and shared memory")]

use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Arc;

use selvedge_kit::atomic::{Args, Kernel, Single, Unaligned};
use selvedge_kit::copy::Shared;

use super::prefetch;
use super::region::Mapping;
use super::sync::{self, order};

/// A stretch of a mapping that holds payload.
#[derive(Clone, Debug)]
pub struct Bytes {
    mapping: Arc<Mapping>,
    offset: usize,
    len: usize,
}

impl Bytes {
    /// `len` bytes of `mapping` from `offset` on.
    ///
    /// # Panics
    /// When they do not lie inside the mapping; offsets are checked where they come in.
    pub(crate) fn new(mapping: Arc<Mapping>, offset: usize, len: usize) -> Self {
        mapping.at(offset, len);
        Self {
            mapping,
            offset,
            len,
        }
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether this process may write them.
    pub fn is_writable(&self) -> bool {
        self.mapping.is_writable()
    }

    /// The first byte, for an owner who uses the memory as its own.
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.stretch(0, self.len)
    }

    /// Copies private bytes in at `at`.
    ///
    /// # Panics
    /// When they do not fit, or when the mapping is read-only.
    #[inline]
    pub fn copy_in(&self, at: usize, from: &[u8]) {
        self.copy_in_by(Stores::ByString, at, from);
    }

    /// As [`Self::copy_in`], by the stores that are wanted.
    ///
    /// # Panics
    /// As [`Self::copy_in`].
    #[inline]
    pub fn copy_in_by(&self, stores: Stores, at: usize, from: &[u8]) {
        assert!(self.is_writable());
        let to = self.stretch(at, from.len());
        #[cfg(loom)]
        self.mapping.content().wrote(self.offset + at, from.len());
        // SAFETY: `stretch` checked that the target is mapped and long enough, and it is writable;
        // `from` is private memory, so the two do not overlap.
        unsafe { copy_by(stores, from.as_ptr(), to, from.len()) };
    }

    /// Copies bytes out from `at`, filling `to`.
    ///
    /// # Panics
    /// When there are not as many.
    #[inline]
    pub fn copy_out<'a>(&self, at: usize, to: &'a mut [MaybeUninit<u8>]) -> &'a mut [u8] {
        let from = self.stretch(at, to.len());
        #[cfg(loom)]
        self.mapping.content().read(self.offset + at, to.len());
        // SAFETY: `stretch` checked that the source is mapped and long enough; `to` is private
        // memory, so the two do not overlap.
        unsafe { copy(from, to.as_mut_ptr().cast(), to.len()) };
        let filled: *mut [MaybeUninit<u8>] = to;
        // SAFETY: every byte of `to` was just written, and the borrow of `to` is passed on.
        unsafe { &mut *(filled as *mut [u8]) }
    }

    /// Copies bytes out from `at` to memory that others may be looking at, filling it.
    ///
    /// # Panics
    /// When there are not as many.
    #[inline]
    pub fn copy_to(&self, at: usize, to: Shared) {
        let from = self.stretch(at, to.len());
        #[cfg(loom)]
        self.mapping.content().read(self.offset + at, to.len());
        // SAFETY: `stretch` checked that the source is mapped and long enough, and `Shared` vouches
        // for the target. They do not overlap: a peer's memory for us is mapped read-only here.
        unsafe { copy(from, to.as_ptr(), to.len()) };
    }

    /// Copies bytes in at `at` from memory that others may be changing.
    ///
    /// # Panics
    /// When they do not fit, or when the mapping is read-only.
    #[inline]
    pub fn copy_from(&self, at: usize, from: Shared) {
        assert!(self.is_writable());
        let to = self.stretch(at, from.len());
        #[cfg(loom)]
        self.mapping.content().wrote(self.offset + at, from.len());
        // SAFETY: as in `copy_to`, the other way round: our own segments are never registered.
        unsafe { copy(from.as_ptr(), to, from.len()) };
    }

    /// Asks for the cache lines of `len` bytes from `at` on, to write to them soon. A hint: it may
    /// point anywhere.
    #[inline]
    pub fn prepare(&self, at: usize, len: usize) {
        for line in 0..len.div_ceil(64) {
            prefetch::for_writing(self.near(at + line * 64));
        }
    }

    /// Asks for the cache line at `at`, to read it soon. A hint: it may point anywhere.
    #[inline]
    pub fn fetch(&self, at: usize) {
        prefetch::for_reading(self.near(at));
    }

    fn near(&self, at: usize) -> *const u8 {
        let first = self.mapping.at(self.offset, 0).as_ptr();
        first.wrapping_add(at.min(self.len)).cast_const()
    }

    #[inline]
    fn stretch(&self, at: usize, len: usize) -> *mut u8 {
        assert!(
            at <= self.len && len <= self.len - at,
            "bytes outside the stretch"
        );
        self.mapping.at(self.offset + at, len).as_ptr()
    }
}

/// A stretch of a mapping that is a peer's memory as much as ours: its bytes may change at any time.
///
/// Eight aligned bytes are stored and loaded at once. What this thread wrote before is seen by
/// whoever sees what is put here, and what is got here comes before whatever this thread reads
/// afterwards.
#[derive(Clone, Debug)]
pub struct Span {
    first: NonNull<u8>,
    len: usize,
    writable: bool,
    /// Keeps the bytes mapped.
    _mapping: Arc<Mapping>,
}

// SAFETY: the bytes are copied without references to them, and `_mapping` keeps them mapped.
unsafe impl Send for Span {}
// SAFETY: as above; that others write them at the same time is expected.
unsafe impl Sync for Span {}

impl Bytes {
    /// The `len` bytes from `at` on, if they are inside.
    pub fn span(&self, at: usize, len: usize) -> Option<Span> {
        (at <= self.len && len <= self.len - at).then(|| Span {
            first: self.mapping.at(self.offset + at, len),
            len,
            writable: self.is_writable(),
            _mapping: Arc::clone(&self.mapping),
        })
    }
}

impl Span {
    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether they may be written.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// The address of the byte at `at`: to talk about, and not to use.
    #[inline(always)]
    pub fn address(&self, at: usize) -> usize {
        self.first.as_ptr().addr().wrapping_add(at)
    }

    /// Whether elements at `at` lie as their kernel wants them. Where a span begins is the peer's
    /// word, so that need not be at a multiple of anything.
    #[inline]
    pub fn is_aligned(&self, at: usize, kernel: &Kernel) -> bool {
        kernel.check(self.stretch(at, 0).addr() as u64).is_ok()
    }

    /// Stores a word at `at`. `false`, and nothing has happened, when it does not fit, or the bytes
    /// are read-only.
    #[inline(always)]
    #[must_use]
    pub fn put_word(&self, at: usize, word: u64) -> bool {
        let Some(to) = self.reach(at, 8).filter(|_| self.writable) else {
            return false;
        };
        // SAFETY: `reach` checked that eight bytes there are mapped, and they are writable; nobody
        // reaches them through references.
        unsafe { sync::store_word(to.cast(), word) };
        true
    }

    /// Loads the word at `at`, if it is inside.
    #[inline(always)]
    pub fn word(&self, at: usize) -> Option<u64> {
        let from = self.reach(at, 8)?;
        // SAFETY: `reach` checked that eight bytes there are mapped; nobody reaches them through
        // references.
        Some(unsafe { sync::load_word(from.cast()) })
    }

    /// Copies private bytes in at `at`.
    ///
    /// # Panics
    /// When they do not fit, or the bytes are read-only.
    #[inline]
    pub fn put(&self, at: usize, from: &[u8]) {
        if let Ok(word) = from.try_into()
            && self.put_word(at, u64::from_ne_bytes(word))
        {
            return;
        }
        let to = self.target(at, from.len());
        order::before_put();
        // SAFETY: `target` checked that the bytes are mapped, enough and writable; `from` is at
        // addresses of its own.
        unsafe { copy(from.as_ptr(), to, from.len()) };
    }

    /// Copies bytes out from `at` on, filling `to`.
    ///
    /// # Panics
    /// When there are not as many.
    #[inline]
    pub fn get(&self, at: usize, to: &mut [MaybeUninit<u8>]) {
        if to.len() == 8
            && let Some(word) = self.word(at)
        {
            to.write_copy_of_slice(&word.to_ne_bytes());
            return;
        }
        let from = self.stretch(at, to.len());
        // SAFETY: `stretch` checked that the bytes are mapped and enough; `to` is private memory.
        unsafe { copy(from, to.as_mut_ptr().cast(), to.len()) };
        order::after_get();
    }

    /// Changes `count` elements from `at` on by atomics of the processor, whoever else does so at
    /// the same time.
    ///
    /// # Errors
    /// [`Unaligned`], with an address of this process's, before anything is touched.
    ///
    /// # Panics
    /// When they do not fit, or are to be written and the mapping is read-only.
    #[inline]
    pub fn apply(
        &self,
        at: usize,
        kernel: &Kernel,
        count: usize,
        args: Args<'_>,
    ) -> Result<(), Unaligned> {
        assert!(self.writable || !kernel.writes(), "read-only");
        let len = count.checked_mul(kernel.size());
        let target = self.stretch(at, len.expect("elements outside the stretch"));
        // SAFETY: `stretch` checked that the elements are mapped, and they are writable where that
        // is needed. No reference to the bytes exists; this process reaches mapped memory of a peer
        // by copies and such atomics alone, and what other processes do at the same time is outside
        // of its memory model: each element is one access of the processor.
        unsafe { kernel.apply(target, count, args) }
    }

    /// Changes the integer of eight bytes at `at` by one atomic of the processor; what was there
    /// before. Nothing, and nothing has happened, where it is not aligned or not inside, or is to be
    /// written and the mapping is read-only.
    #[inline(always)]
    pub fn apply_single(&self, at: usize, single: Single, words: [u64; 2]) -> Option<u64> {
        if !self.writable && single.writes() {
            return None;
        }
        let target: *mut u64 = self.reach(at, 8)?.cast();
        let [operand, compare] = words;
        // SAFETY: as in `apply`, for one element whose alignment is looked at here.
        (target.is_aligned()).then(|| unsafe { single.apply(target, operand, compare) })
    }

    #[inline(always)]
    fn target(&self, at: usize, len: usize) -> *mut u8 {
        assert!(self.writable, "read-only");
        self.stretch(at, len)
    }

    #[inline(always)]
    fn stretch(&self, at: usize, len: usize) -> *mut u8 {
        assert!(
            at <= self.len && len <= self.len - at,
            "bytes outside the stretch"
        );
        self.first.as_ptr().wrapping_add(at)
    }

    /// Where the `len` bytes from `at` on are, if they are inside.
    #[inline(always)]
    fn reach(&self, at: usize, len: usize) -> Option<*mut u8> {
        let is_inside = at <= self.len && len <= self.len - at;
        is_inside.then(|| self.first.as_ptr().wrapping_add(at))
    }
}

/// Copies `len` bytes that do not overlap.
///
/// The C library leaves copies of more than about 2 KiB to a string instruction of the processor,
/// which on some is 16 times slower (measured on AMD Zen 3: 5.4 instead of 0.33 microseconds for
/// 16 KiB) where the target lies 1 to 31 bytes behind the source within their pages. That is usual
/// here: our memory begins with pages, and large buffers from `malloc` 16 bytes behind.
///
/// # Safety
/// As [`std::ptr::copy_nonoverlapping`].
#[inline]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: passed on from the caller.
    unsafe { copy_by(Stores::ByString, from, to, len) };
}

/// As [`copy`], by the stores that are wanted.
///
/// # Safety
/// As [`copy`].
#[inline]
unsafe fn copy_by(stores: Stores, from: *const u8, to: *mut u8, len: usize) {
    let behind = to.addr().wrapping_sub(from.addr()) % 4096;
    let step = match (stores, behind) {
        (Stores::InPieces, _) | (_, 1..32) => PIECE,
        _ => len,
    };
    let mut done = 0;
    while done < len {
        let now = step.min(len - done);
        let (from, to) = (from.wrapping_add(done), to.wrapping_add(done));
        // SAFETY: `done + now` is at most `len`, so both stretches are inside those that the caller
        // vouched for.
        unsafe { std::ptr::copy_nonoverlapping(from, to, now) };
        done += now;
    }
}

/// By which instructions a long copy stores. Short ones are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stores {
    /// As the C library has it: the string instruction.
    ByString,
    /// In pieces of [`PIECE`] bytes, which the C library copies by vectors.
    InPieces,
}

/// Bytes that are copied without the string instruction.
pub const PIECE: usize = 2048;
