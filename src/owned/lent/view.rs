//! `View`: the bytes of a message that was received by reference.

#![expect(
    unsafe_code,
    reason = "reads memory that the sender's process may write"
)]

use std::mem::MaybeUninit;
use std::slice;

use super::plain::Plain;
use crate::owned::Buf;
use crate::shared::SharedBytes;
use crate::{Errno, LentMemory, Result};

/// The bytes of a message that a lending receive has received
/// ([`crate::owned::Endpoint::recv_lent`]).
///
/// The bytes are in memory of the sender, if the sender lends the message and the provider can pass
/// it by reference. Dropping the view then gives the message back to the sender, from any thread.
/// Otherwise the bytes are in the buffer of the receive, which returns to its pool when the view is
/// dropped.
///
/// A sender can write its memory at any time, though it breaks its promise then. A view has
/// therefore no `&[u8]`: methods copy bytes out, each by one access that the compiler cannot repeat
/// ([`crate::shared`]). A copy counts only if the message was still lent after it; otherwise the
/// method fails with [`Errno::ConnReset`], and no bytes of a later message are returned.
///
/// A view may outlive the endpoint, the domain and the sender's process. After the receiver or the
/// sender has closed its endpoint, or has disconnected the other, the sender may reuse the memory,
/// and reads fail. After the death of the sender, reads succeed.
#[derive(Debug)]
pub struct View(Bytes);

#[derive(Debug)]
enum Bytes {
    Lent(Box<dyn LentMemory>),
    Received(Buf),
}

/// The view of a received buffer, or of the lent message that it holds.
impl From<Buf> for View {
    fn from(buf: Buf) -> Self {
        match buf.into_lent() {
            Ok(message) => Self(Bytes::Lent(message)),
            Err(buf) => Self(Bytes::Received(buf)),
        }
    }
}

impl View {
    /// The length of the message in bytes.
    pub fn len(&self) -> usize {
        match &self.0 {
            Bytes::Lent(message) => message.len(),
            Bytes::Received(buf) => buf.len(),
        }
    }

    /// Whether the message has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the bytes are in memory of the sender.
    pub fn is_lent(&self) -> bool {
        matches!(self.0, Bytes::Lent(_))
    }

    /// Copies bytes of the message from `offset` on into `to`.
    ///
    /// # Errors
    /// [`Errno::Inval`] when the message has fewer bytes; nothing is copied then.
    /// [`Errno::ConnReset`] when the message is not lent any more; `to` has unspecified bytes then.
    pub fn copy_to(&self, offset: usize, to: &mut [u8]) -> Result {
        let message = match &self.0 {
            Bytes::Lent(message) => message,
            Bytes::Received(buf) => {
                let end = offset.checked_add(to.len()).ok_or(Errno::Inval)?;
                to.copy_from_slice(buf.get(offset..end).ok_or(Errno::Inval)?);
                return Ok(());
            }
        };
        let from = shared_bytes(&**message).get(offset, to.len());
        from.ok_or(Errno::Inval)?.read_into(to);
        check_intact(&**message)
    }

    /// Returns a copy of the message.
    ///
    /// # Errors
    /// [`Errno::ConnReset`] as [`Self::copy_to`].
    pub fn to_vec(&self) -> Result<Vec<u8>> {
        let message = match &self.0 {
            Bytes::Lent(message) => message,
            Bytes::Received(buf) => return Ok(buf.to_vec()),
        };
        let mut copy: Box<[MaybeUninit<u8>]> = Box::new_uninit_slice(message.len());
        shared_bytes(&**message).read(&mut copy);
        check_intact(&**message)?;
        // SAFETY: `read` has filled every byte.
        Ok(unsafe { copy.assume_init() }.into_vec())
    }

    /// Reads the value at `offset`, which needs no alignment. For long arrays, [`Self::copy_to`] is
    /// faster.
    ///
    /// # Errors
    /// As [`Self::copy_to`].
    pub fn read<T: Plain>(&self, offset: usize) -> Result<T> {
        let end = offset.checked_add(size_of::<T>()).ok_or(Errno::Inval)?;
        if end > self.len() {
            return Err(Errno::Inval);
        }
        let (mut next, mut result) = (offset, Ok(()));
        let value = T::read_from(&mut |bytes| {
            result = result.and_then(|()| self.copy_to(next, bytes));
            next += bytes.len();
        });
        result.map(|()| value)
    }

    /// Returns the message as a slice, without a copy.
    ///
    /// # Safety
    /// While the slice is used:
    /// - the process of the sender does not write the bytes: it is alive and keeps its promise of a
    ///   send, or it is dead;
    /// - neither the sender nor this process closes the endpoints or disconnects the other, because
    ///   the sender may then reuse the bytes.
    pub unsafe fn as_slice(&self) -> &[u8] {
        match &self.0 {
            // SAFETY: the memory is valid for reads while `self` is borrowed, as `LentMemory`
            // promises, and the caller promises that it does not change.
            Bytes::Lent(message) => unsafe { slice::from_raw_parts(message.base(), message.len()) },
            Bytes::Received(buf) => buf,
        }
    }

    /// Returns the bytes, if they are in the buffer of the receive.
    pub fn as_received(&self) -> Option<&[u8]> {
        match &self.0 {
            Bytes::Lent(_) => None,
            Bytes::Received(buf) => Some(buf),
        }
    }

    /// Returns the buffer of the receive, if the message is in it.
    ///
    /// # Errors
    /// The view itself, if the message is lent.
    pub fn into_buf(self) -> Result<Buf, Self> {
        match self.0 {
            Bytes::Received(buf) => Ok(buf),
            lent => Err(Self(lent)),
        }
    }
}

/// The bytes of a lent message, for copies.
fn shared_bytes(message: &dyn LentMemory) -> SharedBytes {
    // SAFETY: the bytes are valid for reads while `message` is borrowed, and no method keeps the
    // value. Nothing is written through it, and this process makes no other access of the bytes
    // that is not atomic, as `LentMemory` promises.
    unsafe { SharedBytes::new(message.base().cast_mut(), message.len()) }
}

fn check_intact(message: &dyn LentMemory) -> Result {
    if message.is_intact() {
        Ok(())
    } else {
        Err(Errno::ConnReset)
    }
}
