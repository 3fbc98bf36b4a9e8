//! `Message`: the bytes of a message, in memory from which the transport sends.

mod body;
#[cfg(feature = "bytemuck")]
mod plain;
#[cfg(feature = "postcard")]
mod values;

pub(crate) use self::body::Body;

use std::fmt;
use std::ops::{Deref, DerefMut};

use selvedge::owned::Buf;

use crate::wire::{HEADER, Header};

/// The bytes of a message, in a buffer of the connection that it came from or goes to.
///
/// A message that was received was not copied after the transport stored it. A message from
/// [`crate::Peer::message`] is sent without a copy.
pub struct Message {
    /// A header, or the room for one, and the message.
    buf: Buf,
}

impl Message {
    /// The message behind the header in `buf`, whose length is that of a header at least.
    pub(crate) fn new(buf: Buf) -> Self {
        debug_assert!(buf.len() >= HEADER, "a buffer without a header");
        Self { buf }
    }

    /// The buffer, with this header in front of the message.
    pub(crate) fn into_frame(mut self, header: &Header) -> Buf {
        self.buf[..HEADER].copy_from_slice(&header.encode());
        self.buf
    }

    /// The buffer of an announced message, without the bytes that an earlier message has left in
    /// the room for the header.
    pub(crate) fn into_bulk(mut self) -> Buf {
        self.buf[..HEADER].fill(0);
        self.buf
    }
}

impl Deref for Message {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.buf.get(HEADER..).unwrap_or_default()
    }
}

impl DerefMut for Message {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.buf.get_mut(HEADER..).unwrap_or_default()
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
