//! Receive buffers: memory that takes one message behind the other, and lends each out until
//! whoever reads it is done.

#![expect(
    unsafe_code,
    reason = "bytes that the fabric writes while others are read"
)]

use std::alloc::{self, Layout};
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use selvedge::IovMut;

use crate::wire::LINE;

/// Bytes of one buffer. A few are enough for all contexts; more come when messages are kept.
pub(crate) const BUFFER_LEN: usize = 128 << 10;

/// Memory for messages.
pub(crate) struct Buffer {
    memory: NonNull<u8>,
}

// SAFETY: the memory is this value's alone; what is written where, and read when, is the promise of
// `Buffer::room` and `Buffer::part`.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    pub(crate) fn new() -> Self {
        let layout = layout();
        // SAFETY: the layout is not empty.
        let memory = unsafe { alloc::alloc_zeroed(layout) };
        let memory = NonNull::new(memory).unwrap_or_else(|| alloc::handle_alloc_error(layout));
        Self { memory }
    }

    /// All of it, to be posted. Whoever posts it sees to it that no part of it is lent meanwhile.
    pub(crate) fn room(&self) -> IovMut {
        IovMut::from_raw(self.memory.as_ptr().cast(), BUFFER_LEN)
    }

    /// The part of it that a message was received into; `None` if it is none.
    ///
    /// # Safety
    /// A completion has said that the message is there, and the buffer is not posted again while a
    /// clone of `this` lives.
    #[inline]
    pub(crate) unsafe fn part(this: &Arc<Self>, address: usize, len: usize) -> Option<Part> {
        let start = address.checked_sub(this.memory.addr().get())?;
        let end = start.checked_add(len)?;
        (end <= BUFFER_LEN && start.is_multiple_of(LINE)).then(|| Part {
            buffer: Arc::clone(this),
            start,
            len,
        })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and nobody has a part of it any more. The endpoint that
        // it was posted to has been closed, or has given it back.
        unsafe { alloc::dealloc(self.memory.as_ptr(), layout()) };
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "receive buffer at {:?}", self.memory)
    }
}

fn layout() -> Layout {
    Layout::from_size_align(BUFFER_LEN, 4096).expect("a power of two")
}

/// A message in a buffer, or a piece of one.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    buffer: Arc<Buffer>,
    start: usize,
    len: usize,
}

impl Part {
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        let first = self.buffer.memory.as_ptr().wrapping_add(self.start);
        // SAFETY: `Buffer::part` has checked that the bytes lie within; its caller has promised that
        // they stand still.
        unsafe { std::slice::from_raw_parts(first, self.len) }
    }

    /// Where in a message a piece of it lies.
    #[inline]
    pub(crate) fn place(message: &[u8], piece: &[u8]) -> Range<usize> {
        let start = piece.as_ptr().addr() - message.as_ptr().addr();
        start..start + piece.len()
    }

    /// A piece of it.
    #[inline]
    pub(crate) fn piece(mut self, place: Range<usize>) -> Self {
        debug_assert!(place.end <= self.len);
        self.start += place.start;
        self.len = place.len();
        self
    }
}

/// What a message brought.
#[derive(Debug)]
pub(crate) enum Payload {
    /// It lies where it was received.
    Part(Part),
    /// It was fetched, or is from this context.
    Own(Aligned),
}

impl Payload {
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Part(part) => part.bytes(),
            Self::Own(own) => own.bytes(),
        }
    }
}

/// Bytes of our own, aligned as all that is received.
#[derive(Debug)]
pub(crate) struct Aligned {
    lines: Box<[u128]>,
    len: usize,
}

impl Aligned {
    pub(crate) fn zeroed(len: usize) -> Self {
        Self {
            lines: bytemuck::zeroed_slice_box(len.div_ceil(LINE)),
            len,
        }
    }

    /// As [`Self::zeroed`], for a length that somebody else has named.
    pub(crate) fn try_zeroed(len: usize) -> Option<Self> {
        let lines = bytemuck::try_zeroed_slice_box(len.div_ceil(LINE)).ok()?;
        Some(Self { lines, len })
    }

    pub(crate) fn copy_of(bytes: &[u8]) -> Self {
        let mut copy = Self::zeroed(bytes.len());
        copy.bytes_mut().copy_from_slice(bytes);
        copy
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.lines)[..self.len]
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.lines)[..self.len]
    }
}
