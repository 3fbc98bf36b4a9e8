//! `SharedBuf`: a buffer whose message is lent to several peers.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::owned::Buf;

/// A [`Buf`] that several operations and handles share, for a message that is lent to several
/// peers ([`crate::owned::Endpoint::lend_shared`]). It dereferences to the bytes of the message,
/// which nobody can change.
///
/// Clones are handles of the same buffer. The buffer returns to its pool with the last handle and
/// the last operation.
///
/// # Examples
///
/// A message for every peer, without a copy:
///
/// ```no_run
/// use selvedge::owned::{Endpoint, SharedBuf, TryPostError};
/// use selvedge::{Context, FiAddr};
///
/// fn broadcast(ep: &Endpoint, message: &SharedBuf, to: &[FiAddr]) -> Result<(), TryPostError> {
///     for &peer in to {
///         ep.lend_shared(message, peer, Context(1))?;
///     }
///     Ok(())
/// }
/// ```
#[derive(Clone)]
pub struct SharedBuf(Arc<Buf>);

impl SharedBuf {
    /// Returns the buffer, if this is the only handle and no operation uses the buffer.
    ///
    /// An operation uses the buffer until the [`crate::owned::Completion`] of the operation is
    /// dropped.
    ///
    /// # Errors
    /// The handle itself, otherwise.
    pub fn into_buf(self) -> Result<Buf, Self> {
        Arc::try_unwrap(self.0).map_err(Self)
    }

    /// A buffer of capacity 0 for a lending send of the message.
    pub(in crate::owned) fn lendable(&self) -> Buf {
        Buf::lendable(&self.0)
    }
}

impl From<Buf> for SharedBuf {
    fn from(buf: Buf) -> Self {
        Self(Arc::new(buf))
    }
}

impl Deref for SharedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for SharedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SharedBuf").field(&self.0).finish()
    }
}
