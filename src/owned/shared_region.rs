//! `SharedRegion`: local memory that peers read and write.

#![expect(unsafe_code, reason = "atomic access to memory that peers may write")]

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::RemoteRegion;
use crate::objects::handle::sole;
use crate::shared::SharedBytes;
use crate::{Allocation, Counter, Domain, Errno, Error, MrAccess, Result, alloc};

/// Registered memory that peers may read or write at any time (a target of fi_rma(3) and
/// fi_atomic(3)).
///
/// It cannot be borrowed as `&[u8]`, because a reference promises that the bytes do not change. Its
/// bytes are copied in and out, or its words are loaded and stored, by atomic accesses
/// ([`crate::shared`]). A copy is atomic for each aligned word, but not as a whole: it may contain
/// some words from before and some from after a peer's write.
///
/// The domain allocates the memory ([`Domain::alloc`]). If it is special memory, peers on the same
/// machine access it by loads and stores, without the help of this process. Dropping the region
/// revokes the rights of peers, then frees the memory.
#[derive(Debug)]
pub struct SharedRegion {
    memory: Arc<dyn Allocation>,
    len: usize,
}

impl SharedRegion {
    /// Allocates a region of `len` zero bytes with the access rights `access`. `key` is the
    /// requested key, for domains where the application chooses keys.
    ///
    /// # Errors
    /// [`Errno::Inval`] for a length of zero; [`Errno::NoMem`] when the memory cannot be
    /// allocated; those of [`Domain::reg`].
    pub fn new(domain: &dyn Domain, len: usize, access: MrAccess, key: u64) -> Result<Self, Error> {
        Self::with(domain, len, &alloc::Attr::new(access).with_key(key))
    }

    /// Allocates a region of `len` zero bytes with the attributes `attr`.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with(domain: &dyn Domain, len: usize, attr: &alloc::Attr) -> Result<Self, Error> {
        let memory = sole(domain.alloc(len, attr)?, "allocation")?;
        Ok(Self { memory, len })
    }

    /// Returns the length in bytes, which is never 0.
    #[expect(clippy::len_without_is_empty, reason = "a region is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the key that peers access the region with.
    pub fn key(&self) -> u64 {
        self.memory.key()
    }

    /// Binds a counter that counts accesses by peers ([`crate::MemoryRegion::bind_counter`]).
    ///
    /// # Errors
    /// Those of [`crate::MemoryRegion::bind_counter`].
    pub fn bind_counter(&self, cntr: &Arc<dyn Counter>, events: MrAccess) -> Result<(), Error> {
        self.memory.bind_counter(cntr, events)
    }

    /// Returns a pointer to the first byte, for code in other languages. Peers may write the bytes
    /// at any time.
    pub fn base(&self) -> *mut u8 {
        self.memory.base()
    }

    /// Returns the remote address of the byte at `offset` ([`crate::rma::RmaIov::addr`]).
    pub fn addr(&self, offset: usize) -> u64 {
        self.memory.remote_addr() + offset as u64
    }

    /// Returns the description of the region for peers. It has no effect after the region is
    /// dropped: accesses complete with an error.
    pub fn remote(&self) -> RemoteRegion {
        RemoteRegion::new(self.addr(0), self.len as u64, self.key())
    }

    /// Copies `bytes` into the region at `offset`.
    ///
    /// # Errors
    /// [`Errno::Inval`] when the bytes are not within the region. Nothing is copied then.
    pub fn copy_from(&self, offset: usize, bytes: &[u8]) -> Result {
        self.part(offset, bytes.len())?.write(bytes);
        Ok(())
    }

    /// Copies bytes of the region from `offset` on into `bytes`.
    ///
    /// # Errors
    /// [`Errno::Inval`] when the bytes are not within the region. Nothing is copied then.
    pub fn copy_to(&self, offset: usize, bytes: &mut [u8]) -> Result {
        self.part(offset, bytes.len())?.read_into(bytes);
        Ok(())
    }

    /// Loads the word at `offset`, in native byte order, with acquire ordering: later reads see the
    /// writes that a peer made before it wrote this word.
    ///
    /// # Errors
    /// [`Errno::Inval`] when `offset` is not a multiple of 8, or the word is not within the region.
    pub fn load_u64(&self, offset: usize) -> Result<u64> {
        let bytes = self.bytes();
        let word = bytes.word(offset).ok_or(Errno::Inval)?;
        Ok(word.load(Ordering::Acquire))
    }

    /// Stores the word at `offset`, in native byte order, with release ordering: a reader that sees
    /// this word also sees the earlier writes of this thread.
    ///
    /// # Errors
    /// [`Errno::Inval`] when `offset` is not a multiple of 8, or the word is not within the region.
    pub fn store_u64(&self, offset: usize, value: u64) -> Result {
        let bytes = self.bytes();
        let word = bytes.word(offset).ok_or(Errno::Inval)?;
        word.store(value, Ordering::Release);
        Ok(())
    }

    fn part(&self, offset: usize, len: usize) -> Result<SharedBytes> {
        self.bytes().get(offset, len).ok_or(Errno::Inval)
    }

    /// The bytes, as one region that begins at a page.
    fn bytes(&self) -> SharedBytes {
        // SAFETY: the bytes are valid until the allocation is dropped, and no value or reference
        // made from them leaves a method. `Allocation` promises that the other accesses are those
        // of peers alone. Where providers carry them out in this process, they use granules of the
        // region, as `Domain::reg` requires.
        unsafe { SharedBytes::new(self.memory.base(), self.len) }
    }
}
