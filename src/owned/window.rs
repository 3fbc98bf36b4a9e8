//! Windows: memory that peers read and write.

#![expect(unsafe_code, reason = "words of memory that peers may write")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::sole;
use crate::{Allocation, Counter, Domain, Errno, Error, MrAccess, Result, alloc};

const WORD: usize = size_of::<u64>();

/// Memory that peers may read or write at any time (the target of fi_rma(3) and fi_atomic(3)).
///
/// It is never lent as `&[u8]`, because a reference promises that the bytes stand still. It is
/// copied in and out instead, or its words are loaded and stored one by one. A copy is made of
/// single aligned words: it may see some words before and some after a peer's write.
///
/// It lies in memory of the domain's ([`Domain::alloc`]); where that is special, peers of the machine
/// reach it by loads and stores, without this process's help. Dropping it takes the rights away
/// first and the memory after.
#[derive(Debug)]
pub struct Window {
    memory: Arc<dyn Allocation>,
    len: usize,
}

impl Window {
    /// Makes a window of `len` zeros with the rights of `access`. `key` is the wanted key, where
    /// the application chooses keys.
    ///
    /// # Errors
    /// [`Errno::Inval`] for a length of zero; [`Errno::NoMem`] when there is no such memory;
    /// those of [`Domain::reg`].
    pub fn new(domain: &dyn Domain, len: usize, access: MrAccess, key: u64) -> Result<Self, Error> {
        Self::with(domain, len, &alloc::Attr::new(access).with_key(key))
    }

    /// Makes a window of `len` zeros as `attr` says.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with(domain: &dyn Domain, len: usize, attr: &alloc::Attr) -> Result<Self, Error> {
        let memory = sole(domain.alloc(len, attr)?, "allocation")?;
        Ok(Self { memory, len })
    }

    /// Length in bytes; never 0.
    #[expect(
        clippy::len_without_is_empty,
        reason = "there are no empty windows to ask for"
    )]
    pub fn len(&self) -> usize {
        self.len
    }

    /// What peers name the window by.
    pub fn key(&self) -> u64 {
        self.memory.key()
    }

    /// Has a counter count what peers do with the window ([`crate::MemoryRegion::bind_counter`]).
    ///
    /// # Errors
    /// As there.
    pub fn bind_counter(&self, cntr: &Arc<dyn Counter>, what: MrAccess) -> Result<(), Error> {
        self.memory.bind_counter(cntr, what)
    }

    /// The first byte, for programs in other languages. Peers may write it at any time.
    pub fn base(&self) -> *mut u8 {
        self.memory.base()
    }

    /// What peers name the byte at `offset` by: [`crate::rma::RmaIov::addr`].
    pub fn addr(&self, offset: usize) -> u64 {
        self.memory.remote_addr() + offset as u64
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Errors
    /// [`Errno::Inval`] when they do not lie within the window; nothing was copied then.
    pub fn copy_from(&self, offset: usize, bytes: &[u8]) -> Result {
        for piece in self.pieces(offset, bytes.len())? {
            piece.store(&bytes[piece.done..][..piece.len]);
        }
        Ok(())
    }

    /// Fills `bytes` from `offset` on.
    ///
    /// # Errors
    /// [`Errno::Inval`] when they do not lie within the window; nothing was copied then.
    pub fn copy_to(&self, offset: usize, bytes: &mut [u8]) -> Result {
        for piece in self.pieces(offset, bytes.len())? {
            piece.load(&mut bytes[piece.done..][..piece.len]);
        }
        Ok(())
    }

    /// Reads the aligned word at `offset`, in native byte order. What a peer wrote before it wrote
    /// this word is seen by later reads (acquire).
    ///
    /// # Errors
    /// [`Errno::Inval`] when `offset` is no multiple of 8 or not within the window.
    pub fn load_u64(&self, offset: usize) -> Result<u64> {
        Ok(self.word(offset)?.load(Ordering::Acquire))
    }

    /// Writes the aligned word at `offset`, in native byte order, after everything this thread
    /// wrote before (release).
    ///
    /// # Errors
    /// [`Errno::Inval`] when `offset` is no multiple of 8 or not within the window.
    pub fn store_u64(&self, offset: usize, value: u64) -> Result {
        self.word(offset)?.store(value, Ordering::Release);
        Ok(())
    }

    fn word(&self, offset: usize) -> Result<&AtomicU64> {
        if !offset.is_multiple_of(WORD) {
            return Err(Errno::Inval);
        }
        self.check(offset, WORD)?;
        Ok(self.word_at(offset / WORD))
    }

    /// The `index`th eight bytes, of which the first is within the window.
    fn word_at(&self, index: usize) -> &AtomicU64 {
        assert!(index * WORD < self.len);
        let word = self.memory.base().wrapping_add(index * WORD);
        // SAFETY: the memory is in whole pages from a page's beginning on, so the word that its
        // `len` bytes reach into is all there, and aligned. It lives as long as `self`. This process
        // touches it through atomics alone; what peers do is outside of its memory model.
        unsafe { AtomicU64::from_ptr(word.cast()) }
    }

    fn check(&self, offset: usize, len: usize) -> Result {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(Errno::Inval),
        }
    }

    /// Cuts a stretch at the words' boundaries.
    fn pieces(&self, offset: usize, len: usize) -> Result<impl Iterator<Item = Piece<'_>>> {
        self.check(offset, len)?;
        let mut done = 0;
        Ok(std::iter::from_fn(move || {
            let at = offset + done;
            let piece = Piece {
                word: (done < len).then(|| self.word_at(at / WORD))?,
                start: at % WORD,
                len: (WORD - at % WORD).min(len - done),
                done,
            };
            done += piece.len;
            Some(piece)
        }))
    }
}

/// The part of a copy that concerns one word.
struct Piece<'a> {
    word: &'a AtomicU64,
    /// First byte within the word.
    start: usize,
    /// Bytes within the word.
    len: usize,
    /// Bytes of the copy before this piece.
    done: usize,
}

impl Piece<'_> {
    fn load(&self, bytes: &mut [u8]) {
        let word = self.word.load(Ordering::Relaxed).to_ne_bytes();
        bytes.copy_from_slice(&word[self.start..][..self.len]);
    }

    fn store(&self, bytes: &[u8]) {
        match bytes.try_into() {
            Ok(word) => self.word.store(u64::from_ne_bytes(word), Ordering::Relaxed),
            Err(_) => self.merge(bytes),
        }
    }

    /// Changes some bytes of the word; a peer's write to the others in between is kept.
    fn merge(&self, bytes: &[u8]) {
        let mut seen = self.word.load(Ordering::Relaxed);
        loop {
            let mut word = seen.to_ne_bytes();
            word[self.start..][..self.len].copy_from_slice(bytes);
            match self.word.compare_exchange_weak(
                seen,
                u64::from_ne_bytes(word),
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }
}
