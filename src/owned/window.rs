//! Windows: memory that peers read and write.

#![expect(
    unsafe_code,
    reason = "registration is a promise about the window's lifetime"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::pages::Pages;
use super::sole;
use crate::{Domain, Errno, Error, IovMut, MemoryRegion, MrAccess, MrMode, Result, mr};

const WORD: usize = size_of::<u64>();

/// Memory that peers may read or write at any time (the target of fi_rma(3) and fi_atomic(3)).
///
/// It is never lent as `&[u8]`, because a reference promises that the bytes stand still. It is
/// copied in and out instead, or its words are loaded and stored one by one. A copy is made of
/// single aligned words: it may see some words before and some after a peer's write.
///
/// Dropping it takes the rights away first and the memory after.
#[derive(Debug)]
pub struct Window {
    // Before the memory, so that no peer has rights over it when it goes.
    region: Arc<dyn MemoryRegion>,
    pages: Pages,
    len: usize,
    first_addr: u64,
}

impl Window {
    /// Makes a window of `len` zeros with the rights of `access`. `key` is the wanted key, where
    /// the application chooses keys.
    ///
    /// # Errors
    /// [`Errno::Inval`] for a length of zero; [`Errno::NoMem`] when there is no such memory;
    /// those of [`Domain::reg`].
    pub fn new(domain: &dyn Domain, len: usize, access: MrAccess, key: u64) -> Result<Self, Error> {
        if len == 0 {
            return Err(Error::new(Errno::Inval, "a window of 0 bytes"));
        }
        let pages = Pages::new(len, "a window")?;
        let attr = mr::Attr {
            access,
            requested_key: key,
            ..mr::Attr::default()
        };
        let memory = [IovMut::from_raw(pages.base().cast(), len)];
        // SAFETY: the window drops the only handle of the region before the pages, and touches the
        // bytes through atomics alone.
        let region = sole(unsafe { domain.reg(&memory, &attr) }?, "memory region")?;
        let by_address = domain.mr_mode().contains(MrMode::VIRT_ADDR);
        let first_addr = if by_address {
            pages.base().addr() as u64
        } else {
            0
        };
        Ok(Self {
            region,
            pages,
            len,
            first_addr,
        })
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
        self.region.key()
    }

    /// What peers name the byte at `offset` by: [`crate::rma::RmaIov::addr`].
    pub fn addr(&self, offset: usize) -> u64 {
        self.first_addr + offset as u64
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
        Ok(self.pages.word(offset / WORD))
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
                word: (done < len).then(|| self.pages.word(at / WORD))?,
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
