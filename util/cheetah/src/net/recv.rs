//! Receive buffers: memory for one message each. The fabric and readers share a buffer until the
//! last reader drops it.

#![expect(
    unsafe_code,
    reason = "receive buffers shared between the fabric and readers"
)]

use std::alloc::{self, Layout};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use selvedge::IovMut;

use crate::net::wire::ALIGNMENT;

/// Bytes of one buffer, and of the longest message.
pub(crate) const BUFFER_LEN: usize = 4096;

/// Memory for a message, aligned to its length.
pub(crate) struct Buffer {
    memory: NonNull<u8>,
}

// SAFETY: this value owns the memory. The contracts of `Buffer::iov` and `Buffer::message` order
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

    /// The whole buffer, to be posted. The caller ensures that the buffer has no readers while it
    /// is posted.
    pub(crate) fn iov(&self) -> IovMut {
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
pub(crate) struct BufferedMessage {
    buffer: Arc<Buffer>,
    len: usize,
}

impl BufferedMessage {
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
    Buffered(BufferedMessage),
    /// Fetched, or sent by this context.
    Owned(Aligned),
}

impl Payload {
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Short(short) => short.bytes(),
            Self::Buffered(message) => message.bytes(),
            Self::Owned(owned) => owned.bytes(),
        }
    }

    /// The address of the bytes, for an owner that may change them.
    pub(crate) fn base(&mut self) -> *mut u8 {
        match self {
            Self::Short(short) => (&raw mut short.block).cast(),
            Self::Buffered(message) => message.buffer.memory.as_ptr(),
            Self::Owned(owned) => owned.bytes_mut().as_mut_ptr(),
        }
    }
}

/// At most 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Short {
    block: u128,
    len: u8,
}

impl Short {
    /// Copies the bytes; `None` if there are more than 16.
    #[inline]
    pub(crate) fn copy_of(bytes: &[u8]) -> Option<Self> {
        let mut block = [0; ALIGNMENT];
        match *bytes {
            // The most common length is copied without a call.
            [a, b, c, d, e, f, g, h] => block[..8].copy_from_slice(&[a, b, c, d, e, f, g, h]),
            _ => block.get_mut(..bytes.len())?.copy_from_slice(bytes),
        }
        Some(Self {
            block: u128::from_ne_bytes(block),
            len: bytes.len() as u8,
        })
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &bytemuck::bytes_of(&self.block)[..self.len.into()]
    }
}

/// Owned bytes, aligned like received messages.
#[derive(Debug)]
pub(crate) struct Aligned {
    blocks: Box<[u128]>,
    len: usize,
}

impl Aligned {
    pub(crate) fn zeroed(len: usize) -> Self {
        Self {
            blocks: bytemuck::zeroed_slice_box(len.div_ceil(ALIGNMENT)),
            len,
        }
    }

    /// As [`Self::zeroed`], for a length that a peer has named.
    pub(crate) fn try_zeroed(len: usize) -> Option<Self> {
        let blocks = bytemuck::try_zeroed_slice_box(len.div_ceil(ALIGNMENT)).ok()?;
        Some(Self { blocks, len })
    }

    pub(crate) fn copy_of(bytes: &[u8]) -> Self {
        let mut copy = Self::zeroed(bytes.len());
        copy.bytes_mut().copy_from_slice(bytes);
        copy
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.blocks)[..self.len]
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.blocks)[..self.len]
    }
}
