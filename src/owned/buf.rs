//! Buffers: memory with one owner at a time.

#![expect(unsafe_code, reason = "a buffer lends its part of the slab as a slice")]

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::slice;
use std::sync::Arc;

use super::pool::{Base, Slab};
use crate::{Desc, Errno, Iov, IovMut, Result};

/// One buffer of a [`super::Pool`]; it returns to the pool when it is dropped.
///
/// It dereferences to the bytes of its message: as many as its *length* says, which is 0 after
/// [`super::Pool::take`] and never above its *capacity*. A send sends these bytes. A receive
/// offers the whole capacity and sets the length to what has arrived.
///
/// The messages of a multi-receive ([`super::Endpoint::recv_multi`]) are parts of one buffer, each a
/// `Buf` of its own; it returns to the pool with the last of them.
// Two words, so that it is moved in registers: it is moved several times for an operation.
pub struct Buf {
    memory: ManuallyDrop<Box<Memory>>,
    len: usize,
}

/// The memory of a buffer. That of a pool's buffer goes to and fro between the buffer and the pool.
pub(super) struct Memory {
    base: Base,
    capacity: usize,
    desc: Desc,
    index: u32,
    /// Whether the domain has registered it for local operations.
    is_registered: bool,
    /// What it goes back to; `None` in the pool, and for a part.
    slab: Option<Arc<Slab>>,
    /// The buffer that it is a part of, which returns to its pool with the last part.
    #[expect(
        dead_code,
        reason = "the buffer returns to its pool with the last part"
    )]
    whole: Option<Arc<Buf>>,
}

impl Memory {
    /// The memory of a buffer that nobody has; its pool makes one of each index.
    pub(super) fn new(slab: &Slab, index: u32) -> Box<Self> {
        Box::new(Self {
            base: slab.base(index),
            capacity: slab.size(),
            desc: slab.desc(),
            index,
            is_registered: slab.is_registered(),
            slab: None,
            whole: None,
        })
    }
}

impl Buf {
    /// The memory's owner from here on, which goes back to `slab`.
    #[inline]
    pub(super) fn new(mut memory: Box<Memory>, slab: Arc<Slab>) -> Self {
        memory.slab = Some(slab);
        Self {
            memory: ManuallyDrop::new(memory),
            len: 0,
        }
    }

    /// The part of `whole` that begins at the address `start`, `len` bytes, all of them message, or
    /// as many as there are.
    ///
    /// Nobody has these bytes: no other part was made of them, and no operation uses them any more.
    pub(super) fn part(whole: &Arc<Self>, start: usize, len: usize) -> Self {
        let start = start.saturating_sub(whole.base().addr());
        let start = start.min(whole.capacity());
        let len = len.min(whole.capacity() - start);
        whole.piece(start, len, Some(Arc::clone(whole)))
    }

    /// A buffer of capacity 0, in the place of this one where an operation may still use it.
    pub(super) fn stand_in(&self) -> Self {
        self.piece(0, 0, None)
    }

    fn piece(&self, start: usize, len: usize, whole: Option<Arc<Self>>) -> Self {
        let memory = Memory {
            base: self.memory.base.at(start),
            capacity: len,
            slab: None,
            whole,
            ..**self.memory
        };
        Self {
            memory: ManuallyDrop::new(Box::new(memory)),
            len,
        }
    }

    /// Bytes that fit.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.memory.capacity
    }

    /// Replaces the message by a copy of `bytes`.
    ///
    /// # Errors
    /// [`Errno::TooSmall`] when they do not fit; the message is what it was.
    pub fn write(&mut self, bytes: &[u8]) -> Result {
        self.set_len(bytes.len())?;
        self.copy_from_slice(bytes);
        Ok(())
    }

    /// Changes the length of the message. Bytes that come in by this are what the memory last
    /// held: zeros, or parts of earlier messages.
    ///
    /// # Errors
    /// [`Errno::TooSmall`] above the capacity.
    #[inline]
    pub fn set_len(&mut self, len: usize) -> Result {
        if len > self.capacity() {
            return Err(Errno::TooSmall);
        }
        self.len = len;
        Ok(())
    }

    /// The message, for a send.
    #[inline]
    pub(super) fn message(&self) -> Iov {
        Iov::from_raw(self.base().cast(), self.len)
    }

    /// The whole memory, for a receive.
    #[inline]
    pub(super) fn room(&self) -> IovMut {
        IovMut::from_raw(self.base().cast(), self.capacity())
    }

    /// Whether its domain has registered it for local operations.
    #[inline]
    pub(super) fn is_registered(&self) -> bool {
        self.memory.is_registered
    }

    /// The registration that covers it.
    #[inline]
    pub(super) fn desc(&self) -> Desc {
        self.memory.desc
    }

    #[inline]
    fn base(&self) -> *mut u8 {
        self.memory.base.as_ptr()
    }
}

impl Deref for Buf {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the slab holds `capacity >= len` initialised bytes from `base` on, and lives as
        // long as `self`. They are this buffer's alone, because the pool makes one `Memory` of each
        // index and hands it to one buffer at a time, and its memory is made without a peer's right to
        // write; a buffer that an operation uses is inside the endpoint, where nobody can borrow it. A
        // part is within its buffer, which lives as long and which nobody can borrow any more, and is
        // made of bytes that no other part has: the endpoint's completions name none twice. A stand-in
        // has no bytes.
        unsafe { slice::from_raw_parts(self.base(), self.len) }
    }
}

impl DerefMut for Buf {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`; and `&mut self` is the only borrow of the only owner.
        unsafe { slice::from_raw_parts_mut(self.base(), self.len) }
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buf")
            .field("index", &self.memory.index)
            .field("len", &self.len)
            .field("capacity", &self.capacity())
            .finish()
    }
}

impl Drop for Buf {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: it is taken here and nowhere else, and never used afterwards.
        let mut memory = unsafe { ManuallyDrop::take(&mut self.memory) };
        if let Some(slab) = memory.slab.take() {
            slab.release(memory);
        }
    }
}

const _: () = assert!(size_of::<Buf>() == 16);
