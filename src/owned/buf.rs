//! Buffers: memory with one owner at a time.

#![expect(unsafe_code, reason = "a buffer lends its part of the slab as a slice")]

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::slice;
use std::sync::Arc;

use super::pool::Slab;
use crate::{Desc, Errno, Iov, IovMut, Result};

/// One buffer of a [`super::Pool`]; it returns to the pool when it is dropped.
///
/// It dereferences to the bytes of its message: as many as its *length* says, which is 0 after
/// [`super::Pool::take`] and never above its *capacity*. A send sends these bytes. A receive
/// offers the whole capacity and sets the length to what has arrived.
///
/// The messages of a multi-receive ([`super::Endpoint::recv_multi`]) are parts of one buffer, each a
/// `Buf` of its own; it returns to the pool with the last of them.
pub struct Buf {
    slab: Arc<Slab>,
    len: usize,
    index: u32,
    part: Option<Box<Part>>,
}

/// Which part of a buffer this is.
struct Part {
    start: usize,
    capacity: usize,
    /// None for a part of nothing.
    #[expect(
        dead_code,
        reason = "the buffer returns to its pool with the last part"
    )]
    whole: Option<Arc<Buf>>,
}

impl Buf {
    /// The buffer's owner from here on; the pool gives each index out once.
    pub(super) fn new(slab: Arc<Slab>, index: u32) -> Self {
        Self {
            slab,
            len: 0,
            index,
            part: None,
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
        Self {
            slab: Arc::clone(&whole.slab),
            len,
            index: whole.index,
            part: Some(Box::new(Part {
                start,
                capacity: len,
                whole: Some(Arc::clone(whole)),
            })),
        }
    }

    /// A buffer of capacity 0, in the place of this one where an operation may still use it.
    pub(super) fn stand_in(&self) -> Self {
        Self {
            slab: Arc::clone(&self.slab),
            len: 0,
            index: self.index,
            part: Some(Box::new(Part {
                start: 0,
                capacity: 0,
                whole: None,
            })),
        }
    }

    /// Bytes that fit.
    pub fn capacity(&self) -> usize {
        match &self.part {
            None => self.slab.size(),
            Some(part) => part.capacity,
        }
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
    pub fn set_len(&mut self, len: usize) -> Result {
        if len > self.capacity() {
            return Err(Errno::TooSmall);
        }
        self.len = len;
        Ok(())
    }

    /// The message, for a send.
    pub(super) fn message(&self) -> Iov {
        Iov::from_raw(self.base().cast(), self.len)
    }

    /// The whole memory, for a receive.
    pub(super) fn room(&self) -> IovMut {
        IovMut::from_raw(self.base().cast(), self.capacity())
    }

    /// Whether its domain has registered it for local operations.
    pub(super) fn is_registered(&self) -> bool {
        self.slab.is_registered()
    }

    /// The registration that covers it.
    pub(super) fn desc(&self) -> Desc {
        self.slab.desc()
    }

    fn base(&self) -> *mut u8 {
        let start = self.part.as_ref().map_or(0, |part| part.start);
        self.slab.base(self.index).wrapping_add(start)
    }
}

impl Deref for Buf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the slab holds `capacity >= len` initialised bytes from `base` on, and lives as
        // long as `self`. They are this buffer's alone, because the pool gives an index out once and
        // its memory is made without a peer's right to write; a buffer that an operation uses is
        // inside the endpoint, where nobody can borrow it. A part is within its buffer, which lives
        // as long and which nobody can borrow any more, and is made of bytes that no other part has:
        // the endpoint's completions name none twice. A stand-in has no bytes.
        unsafe { slice::from_raw_parts(self.base(), self.len) }
    }
}

impl DerefMut for Buf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`; and `&mut self` is the only borrow of the only owner.
        unsafe { slice::from_raw_parts_mut(self.base(), self.len) }
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buf")
            .field("index", &self.index)
            .field("len", &self.len)
            .field("capacity", &self.capacity())
            .finish()
    }
}

impl Drop for Buf {
    fn drop(&mut self) {
        if self.part.is_none() {
            self.slab.release(self.index);
        }
    }
}

const _: () = assert!(size_of::<Buf>() == 32);
