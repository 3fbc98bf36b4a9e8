//! `Message`: the bytes of a message, in memory from which the transport sends.

mod body;
#[cfg(feature = "bytemuck")]
mod plain;
mod small;
#[cfg(feature = "postcard")]
mod values;

pub(crate) use self::body::Body;
pub(crate) use self::small::{SMALL_FRAME_MAX, SmallFrame};

use std::fmt;
use std::ops::{Deref, DerefMut};

use selvedge::owned::Buf;

use crate::wire::{HEADER, Header};

/// The bytes of a message, in memory of the connection that it came from or goes to.
///
/// A received message of more than 512 bytes was not copied after the transport stored it. A
/// message from [`crate::Peer::message`] is sent without a copy in this process.
pub struct Message {
    frame: Frame,
}

/// A header, or the room for one, and a message.
pub(crate) enum Frame {
    /// In a buffer of a pool.
    Pooled(Buf),
    /// In memory of its own.
    Small(SmallFrame),
}

impl Frame {
    /// The header and the message.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Pooled(buf) => buf,
            Self::Small(small) => small.bytes(),
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Pooled(buf) => buf,
            Self::Small(small) => small.bytes_mut(),
        }
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frame({} bytes)", self.bytes().len())
    }
}

impl Message {
    /// The message behind the header in `buf`, whose length is that of a header at least.
    pub(crate) fn new(buf: Buf) -> Self {
        Self::of(Frame::Pooled(buf))
    }

    /// The message behind the header in `frame`.
    pub(crate) fn of(frame: Frame) -> Self {
        debug_assert!(frame.bytes().len() >= HEADER, "a frame without a header");
        Self { frame }
    }

    /// The frame, with this header in front of the message.
    pub(crate) fn into_frame(mut self, header: &Header) -> Frame {
        self.frame.bytes_mut()[..HEADER].copy_from_slice(&header.encode());
        self.frame
    }

    /// The frame of an announced message, without the bytes that an earlier message has left in the
    /// room for the header.
    pub(crate) fn into_bulk(mut self) -> Frame {
        self.frame.bytes_mut()[..HEADER].fill(0);
        self.frame
    }
}

impl Deref for Message {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.frame.bytes().get(HEADER..).unwrap_or_default()
    }
}

impl DerefMut for Message {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.frame.bytes_mut().get_mut(HEADER..).unwrap_or_default()
    }
}

impl AsRef<[u8]> for Message {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Message({} bytes)", self.len())
    }
}
