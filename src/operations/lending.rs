//! Lent messages: messages that are sent by reference. libfabric has no man page for them.
//!
//! A send with [`OpFlags::LEND`](crate::OpFlags::LEND) lends its bytes to the receiver. If the
//! receive that matches the message also has this flag, no byte is copied: the receiver reads the
//! sender's memory, and gives the message back when it drops its [`LentMemory`]. The send completes
//! then. With any other receive, the message is copied into the buffer of the receive, and the
//! send completes when it was received.
//!
//! | | ordinary send | lending send |
//! |---|---|---|
//! | ordinary receive | copied | copied into the buffer |
//! | lending receive | copied into the buffer | by reference; the buffer is not used |
//!
//! A receive whose buffer is shorter than a message truncates the message only if it is copied.

#![expect(unsafe_code, reason = "lent memory is a promise about its bytes")]

use std::fmt::Debug;

#[cfg(doc)]
use crate::Errno;
use crate::Result;

/// The lent messages of an endpoint ([`crate::Endpoint::lending`]).
///
/// [`crate::OpFlags::LEND`] applies to sends and receives, tagged and untagged, and to the receive
/// of a claimed message. It is refused with [`Errno::BadFlags`] in an injected send, a
/// multi-receive, a shared receive context and deferred work.
///
/// A lending send whose bytes the provider cannot lend is carried out as an ordinary one. The shm
/// provider lends one segment of memory that [`crate::Domain::alloc`] has allocated.
pub trait Lending {
    /// Takes a lent message that a completion with [`crate::CompletionFlags::LENT`] has reported.
    /// `number` is [`crate::cq::Entry::buf`] of the completion. A message that is not taken stays
    /// lent until the endpoint is closed.
    ///
    /// # Errors
    /// [`Errno::NoEnt`] if the endpoint has no such message, or the message was taken before.
    fn take_lent(&self, number: usize) -> Result<Box<dyn LentMemory>>;
}

/// The bytes of a lent message. Dropping the value gives the message back to its sender, from any
/// thread and also after the endpoint was closed. It is an object of the domain for
/// [`crate::Hints::promise_threading`].
///
/// The sender's process can still write the bytes, and may reuse them once it has disconnected the
/// receiver: code copies bytes out through [`crate::shared::SharedBytes`], and then checks
/// [`Self::is_intact`].
///
/// # Safety
/// For implementors: until the value is dropped, the bytes from [`Self::base`] on, [`Self::len`] of
/// them, are valid for reads, and this process writes them through no reference and no
/// unsynchronized access.
#[expect(clippy::len_without_is_empty, reason = "a lent message is never empty")]
pub unsafe trait LentMemory: Debug + Send + Sync {
    /// The address of the first byte in this process.
    fn base(&self) -> *const u8;

    /// The length of the message in bytes; never 0.
    fn len(&self) -> usize;

    /// Whether everything that was copied out before this call are bytes of the message. Returns
    /// `false` after the sender and the receiver have been disconnected, because the sender may
    /// then reuse the memory. The memory of a sender that was killed stays intact.
    fn is_intact(&self) -> bool;
}
