//! Receive buffers: memory for one message with shared ownership, until the last reader drops it.

#![expect(
    unsafe_code,
    reason = "bytes that the fabric writes while others are read"
)]

use std::alloc::{self, Layout};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use selvedge::IovMut;

use crate::wire::LINE;

/// Bytes of one buffer, and of the longest message.
pub(crate) const BUFFER_LEN: usize = 4096;

/// Memory for a message, aligned to its length.
pub(crate) struct Buffer {
    memory: NonNull<u8>,
}

// SAFETY: this value owns the memory. The contracts of `Buffer::room` and `Buffer::message` order
// writes and reads.
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

    /// The whole buffer, to be posted. The caller ensures that it has no readers meanwhile.
    pub(crate) fn room(&self) -> IovMut {
        IovMut::from_raw(self.memory.as_ptr().cast(), BUFFER_LEN)
    }

    /// The received message; `None` if `len` is invalid.
    ///
    /// # Safety
    /// The completion of the message was read, and the buffer is not posted again while the bytes
    /// are borrowed.
    #[inline]
    pub(crate) unsafe fn message(&self, len: usize) -> Option<&[u8]> {
        if len > BUFFER_LEN {
            return None;
        }
        // SAFETY: the bytes lie within the buffer, were written or zeroed, and do not change by the
        // caller's guarantee.
        Some(unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), len) })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the memory was allocated with this layout and has no other user. The endpoint
        // that it was posted to was closed, or has completed the receive.
        unsafe { alloc::dealloc(self.memory.as_ptr(), layout()) };
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "receive buffer at {:?}", self.memory)
    }
}

fn layout() -> Layout {
    Layout::from_size_align(BUFFER_LEN, BUFFER_LEN).expect("a power of two")
}

/// A message in its receive buffer.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    buffer: Arc<Buffer>,
    len: usize,
}

impl Part {
    /// The received message; `None` if `len` is invalid.
    ///
    /// # Safety
    /// The completion of the message was read, and the buffer is not posted again while it has more
    /// than one owner.
    pub(crate) unsafe fn new(buffer: &Arc<Buffer>, len: usize) -> Option<Self> {
        (len <= BUFFER_LEN).then(|| Self {
            buffer: Arc::clone(buffer),
            len,
        })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the contract of `new`.
        unsafe { self.buffer.message(self.len) }.unwrap_or_default()
    }
}

/// The payload of a message.
#[derive(Debug)]
pub(crate) enum Payload {
    /// At most 16 bytes, copied out of the buffer.
    Short(Short),
    /// In the receive buffer.
    Part(Part),
    /// Fetched, or sent by this context.
    Own(Aligned),
}

impl Payload {
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Short(short) => short.bytes(),
            Self::Part(part) => part.bytes(),
            Self::Own(own) => own.bytes(),
        }
    }

    /// The address of the bytes, for an owner that may change them.
    pub(crate) fn base(&mut self) -> *mut u8 {
        match self {
            Self::Short(short) => (&raw mut short.line).cast(),
            Self::Part(part) => part.buffer.memory.as_ptr(),
            Self::Own(own) => own.bytes_mut().as_mut_ptr(),
        }
    }
}

/// At most 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Short {
    line: u128,
    len: u8,
}

impl Short {
    /// Copies the bytes; `None` if there are more than 16.
    #[inline]
    pub(crate) fn copy_of(bytes: &[u8]) -> Option<Self> {
        let mut line = [0; LINE];
        match *bytes {
            // Without a call for the most common length.
            [a, b, c, d, e, f, g, h] => line[..8].copy_from_slice(&[a, b, c, d, e, f, g, h]),
            _ => line.get_mut(..bytes.len())?.copy_from_slice(bytes),
        }
        Some(Self {
            line: u128::from_ne_bytes(line),
            len: bytes.len() as u8,
        })
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &bytemuck::bytes_of(&self.line)[..self.len.into()]
    }
}

/// Owned bytes, aligned like received messages.
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

    /// As [`Self::zeroed`], for a length that a peer has named.
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
