//! `Buf`: a buffer of a pool, with one owner at a time, and `Slab`: the memory of a pool's buffers.

#![expect(
    unsafe_code,
    reason = "a buffer borrows its part of the slab as a slice, and is sent to other threads"
)]

use std::fmt;
use std::mem::{self, ManuallyDrop};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use super::free_list::{Free, FreeList};
use crate::{Allocation, Desc, Domain, Errno, Iov, IovMut, LentMemory, MrMode, Result};

/// A buffer of a [`super::Pool`]. It returns to the pool when it is dropped.
///
/// A `Buf` dereferences to the bytes of its message. Their number is its *length*, which is 0 after
/// [`super::Pool::take`] and at most its *capacity*. A send sends the message. A receive may fill the
/// whole capacity, and sets the length to that of the received message.
///
/// The messages of a multi-receive ([`super::Endpoint::recv_multi`]) are parts of one buffer. Each
/// part is a `Buf`, and the buffer returns to the pool when the last part is dropped.
// Two words, so that moves use registers: a buffer is moved several times for each operation.
pub struct Buf {
    memory: ManuallyDrop<Box<Memory>>,
    len: usize,
}

impl Buf {
    /// A buffer that owns `memory` and returns it to `slab`.
    #[inline]
    fn new(mut memory: Box<Memory>, slab: Arc<Slab>) -> Self {
        memory.slab = Some(slab);
        Self {
            memory: ManuallyDrop::new(memory),
            len: 0,
        }
    }

    /// The part of `whole` that begins at the address `start`, with a message of `len` bytes, cut
    /// at the end of `whole`.
    ///
    /// No other part was made of these bytes, and no operation uses them any more.
    pub(super) fn part(whole: &Arc<Self>, start: usize, len: usize) -> Self {
        let start = start.saturating_sub(whole.base().addr());
        let start = start.min(whole.capacity());
        let len = len.min(whole.capacity() - start);
        whole.slice_of(start, len, Attached::Whole(Arc::clone(whole)))
    }

    /// A buffer of capacity 0, to return in place of a buffer that an operation may still use.
    pub(super) fn placeholder(&self) -> Self {
        self.slice_of(0, 0, Attached::None)
    }

    /// A buffer of capacity 0 that a lending send takes in place of the bytes of `shared`, which the
    /// caller and other operations read at the same time.
    pub(super) fn lendable(shared: &Arc<Self>) -> Self {
        shared.slice_of(0, 0, Attached::Lendable(Arc::clone(shared)))
    }

    /// A buffer of capacity 0 that holds a lent message, and the unused buffer of its receive.
    pub(super) fn with_lent(self, message: Box<dyn LentMemory>) -> Self {
        let mut holder = self.placeholder();
        holder.memory.attached = Attached::Lent(message, self);
        holder
    }

    /// Takes out the lent message that the buffer holds; returns the buffer if it holds none.
    pub(super) fn into_lent(mut self) -> Result<Box<dyn LentMemory>, Self> {
        match mem::replace(&mut self.memory.attached, Attached::None) {
            Attached::Lent(message, _receive_buf) => Ok(message),
            attached => {
                self.memory.attached = attached;
                Err(self)
            }
        }
    }

    /// A buffer of capacity 0 that holds the buffers of a gathered message.
    pub(super) fn gathered(self, rest: Vec<Self>) -> Self {
        let mut holder = self.placeholder();
        let mut segments = rest;
        segments.insert(0, self);
        holder.memory.attached = Attached::Segments(segments);
        holder
    }

    /// The buffers of a gathered message, in the order of their bytes.
    pub(super) fn segments(&self) -> &[Self] {
        match &self.memory.attached {
            Attached::Segments(segments) => segments,
            _ => &[],
        }
    }

    /// Returns the buffers of a message that was gathered from several
    /// ([`super::Endpoint::sendv`]), in the order of their bytes. Returns any other buffer itself.
    pub fn into_segments(mut self) -> Vec<Self> {
        match mem::replace(&mut self.memory.attached, Attached::None) {
            Attached::Segments(segments) => segments,
            attached => {
                self.memory.attached = attached;
                vec![self]
            }
        }
    }

    fn slice_of(&self, start: usize, len: usize, attached: Attached) -> Self {
        let memory = Memory {
            base: self.memory.base.at(start),
            capacity: len,
            desc: self.memory.desc,
            index: self.memory.index,
            is_registered: self.memory.is_registered,
            slab: None,
            attached,
        };
        Self {
            memory: ManuallyDrop::new(Box::new(memory)),
            len,
        }
    }

    /// The capacity, in bytes.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.memory.capacity
    }

    /// Replaces the message by a copy of `bytes`.
    ///
    /// # Errors
    /// [`Errno::TooSmall`] when `bytes` exceeds the capacity. The message is unchanged then.
    pub fn write(&mut self, bytes: &[u8]) -> Result {
        self.set_len(bytes.len())?;
        self.copy_from_slice(bytes);
        Ok(())
    }

    /// Sets the length of the message. Bytes that this adds have their last content: zeros, or
    /// bytes of earlier messages.
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

    /// Sets the length to that of the message after an operation, cut at the capacity.
    #[inline]
    pub(super) fn set_completed_len(&mut self, len: usize) {
        // An unchanged length needs no access to the memory's description.
        if len != self.len {
            self.len = len.min(self.capacity());
        }
    }

    /// The message, as the segment of a send.
    #[inline]
    pub(super) fn send_iov(&self) -> Iov {
        Iov::from_raw(self.base().cast(), self.len)
    }

    /// The message, as the segment of a lending send.
    pub(super) fn lent_iov(&self) -> Iov {
        match &self.memory.attached {
            Attached::Lendable(shared) => shared.send_iov(),
            _ => self.send_iov(),
        }
    }

    /// The whole capacity, as the segment of a receive.
    #[inline]
    pub(super) fn receive_iov(&self) -> IovMut {
        IovMut::from_raw(self.base().cast(), self.capacity())
    }

    /// Whether the domain has registered the memory for local operations.
    #[inline]
    pub(super) fn is_registered(&self) -> bool {
        self.memory.is_registered
    }

    /// The registration descriptor of the memory.
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
        // SAFETY: the slab holds `capacity >= len` initialized bytes from `base` on, and lives as
        // long as `self`. No other value accesses them: the slab makes one `Memory` for each index,
        // a `Memory` belongs to one buffer at a time, and peers have no right to write to the slab.
        // A buffer that an operation uses is inside the endpoint and cannot be borrowed. A part is
        // within its buffer, which lives as long and can no longer be borrowed, and shares no bytes
        // with other parts: the completions of the endpoint name no byte twice. A placeholder has
        // no bytes, nor has a buffer that holds a lent or gathered message or names bytes to lend.
        unsafe { slice::from_raw_parts(self.base(), self.len) }
    }
}

impl DerefMut for Buf {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`; `&mut self` is the only borrow of the only owner.
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
        // SAFETY: the memory is taken here alone, and not used afterwards.
        let mut memory = unsafe { ManuallyDrop::take(&mut self.memory) };
        if let Some(slab) = memory.slab.take() {
            slab.free.release(memory);
        }
    }
}

/// The memory of a buffer. It is owned by the buffer, or by the pool's free list.
struct Memory {
    base: Base,
    capacity: usize,
    desc: Desc,
    index: u32,
    /// Whether the domain has registered the memory for local operations.
    is_registered: bool,
    /// The slab that the memory returns to; `None` in the free list, and for a part.
    slab: Option<Arc<Slab>>,
    /// Other memory that this buffer keeps or holds; [`Attached::None`] for a buffer of a pool.
    attached: Attached,
}

/// Memory that a buffer without a pool keeps alive or holds.
enum Attached {
    None,
    /// The buffer that this one is a part of. It returns to its pool with the last part.
    #[expect(
        dead_code,
        reason = "the buffer returns to its pool with the last part"
    )]
    Whole(Arc<Buf>),
    /// The bytes that a lending send of this empty buffer names.
    Lendable(Arc<Buf>),
    /// A lent message that was received instead of this empty buffer, and the buffer of the
    /// receive.
    Lent(Box<dyn LentMemory>, Buf),
    /// The buffers of a gathered message, which this empty buffer holds.
    Segments(Vec<Buf>),
}

impl Memory {
    /// The memory of a free buffer. The slab makes one for each index.
    fn new(slab: &Slab, index: u32) -> Box<Self> {
        Box::new(Self {
            base: slab.base.at(index as usize * slab.stride),
            capacity: slab.size,
            desc: slab.desc,
            index,
            is_registered: slab.is_registered,
            slab: None,
            attached: Attached::None,
        })
    }
}

/// The memory of a pool, and the list of its free buffers.
pub(super) struct Slab {
    /// Keeps the memory alive.
    _memory: Arc<dyn Allocation>,
    /// Whether the memory is registered for local operations.
    is_registered: bool,
    /// The first byte and the descriptor of `_memory`, cached to avoid dynamic calls.
    base: Base,
    desc: Desc,
    size: usize,
    stride: usize,
    free: FreeList<Box<Memory>>,
}

impl Slab {
    /// Divides `memory` into `count` buffers of `size` bytes, which begin at multiples of `stride`.
    pub(super) fn new(
        domain: &dyn Domain,
        memory: Arc<dyn Allocation>,
        (size, stride, count): (usize, usize, usize),
    ) -> Self {
        let count = u32::try_from(count).expect("checked by layout");
        Self {
            base: Base(NonNull::new(memory.base()).expect("memory is never at address zero")),
            desc: memory.desc(),
            is_registered: domain.mr_mode().contains(MrMode::LOCAL),
            _memory: memory,
            size,
            stride,
            free: FreeList::new(count),
        }
    }

    /// Takes a buffer of length 0; `None` when all of them are in use.
    #[inline]
    pub(super) fn take(slab: &Arc<Self>) -> Option<Buf> {
        let memory = match slab.free.take()? {
            Free::Released(memory) => memory,
            Free::Untouched(index) => Memory::new(slab, index),
        };
        Some(Buf::new(memory, Arc::clone(slab)))
    }

    /// The size of a buffer, in bytes.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// The number of free buffers.
    pub(super) fn available(&self) -> usize {
        self.free.len()
    }
}

/// The address of the first byte of the slab, or of a buffer.
#[derive(Clone, Copy)]
struct Base(NonNull<u8>);

// SAFETY: the value is an address; the owner of a buffer alone accesses its bytes.
unsafe impl Send for Base {}
// SAFETY: as above.
unsafe impl Sync for Base {}

impl Base {
    /// The address `offset` bytes behind this one, in the same slab.
    fn at(self, offset: usize) -> Self {
        let address = self.0.as_ptr().wrapping_add(offset);
        Self(NonNull::new(address).expect("memory is never at address zero"))
    }

    #[inline]
    const fn as_ptr(self) -> *mut u8 {
        self.0.as_ptr()
    }
}

const _: () = assert!(size_of::<Buf>() == 16);
