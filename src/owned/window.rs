//! Windows: memory that peers read and write.

#![expect(unsafe_code, reason = "words of memory that peers may write")]

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::handle::sole;
use crate::shared::SharedBytes;
use crate::{Allocation, Counter, Domain, Errno, Error, MrAccess, Result, alloc};

/// Memory that peers may read or write at any time (the target of fi_rma(3) and fi_atomic(3)).
///
/// It is never lent as `&[u8]`, because a reference promises that the bytes stand still. It is
/// copied in and out instead, or its words are loaded and stored one by one, by atomic accesses
/// ([`crate::shared`]). A copy is made of single aligned words: it may see some words before and some
/// after a peer's write.
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
        self.part(offset, bytes.len())?.write(bytes);
        Ok(())
    }

    /// Fills `bytes` from `offset` on.
    ///
    /// # Errors
    /// [`Errno::Inval`] when they do not lie within the window; nothing was copied then.
    pub fn copy_to(&self, offset: usize, bytes: &mut [u8]) -> Result {
        self.part(offset, bytes.len())?.read_into(bytes);
        Ok(())
    }

    /// Reads the aligned word at `offset`, in native byte order. What a peer wrote before it wrote
    /// this word is seen by later reads (acquire).
    ///
    /// # Errors
    /// [`Errno::Inval`] when `offset` is no multiple of 8 or not within the window.
    pub fn load_u64(&self, offset: usize) -> Result<u64> {
        let bytes = self.bytes();
        let word = bytes.word(offset).ok_or(Errno::Inval)?;
        Ok(word.load(Ordering::Acquire))
    }

    /// Writes the aligned word at `offset`, in native byte order, after everything this thread
    /// wrote before (release).
    ///
    /// # Errors
    /// [`Errno::Inval`] when `offset` is no multiple of 8 or not within the window.
    pub fn store_u64(&self, offset: usize, value: u64) -> Result {
        let bytes = self.bytes();
        let word = bytes.word(offset).ok_or(Errno::Inval)?;
        word.store(value, Ordering::Release);
        Ok(())
    }

    fn part(&self, offset: usize, len: usize) -> Result<SharedBytes> {
        self.bytes().get(offset, len).ok_or(Errno::Inval)
    }

    /// The region, which is registered as it is here. It begins with a page.
    fn bytes(&self) -> SharedBytes {
        // SAFETY: the bytes are valid until the allocation is dropped, and no value or reference made
        // here leaves a method. Whatever accesses them in this process does so by granules of the
        // region: `Allocation` promises that only peers do, whose operations providers carry out as
        // `Domain::reg` has it.
        unsafe { SharedBytes::new(self.memory.base(), self.len) }
    }
}
