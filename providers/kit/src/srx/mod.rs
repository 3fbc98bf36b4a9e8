//! Receive matching: the assignment of messages to posted receives.
//!
//! [`Matcher`] holds the posted receives that have no message yet and the unexpected messages that
//! have no receive yet. A matcher does no I/O, takes no lock and has no callbacks: every method
//! takes and returns values, and the provider acts on them. [`Shared`] holds receives that several
//! matchers have in common, behind its own lock.
//!
//! A receive accepts a message if the tags agree outside the ignored bits and the receive names the
//! message's source or any. Of several receives the one posted first takes the message; of several
//! messages the one that arrived first is taken. A multi-receive buffer takes one message after the
//! other, until fewer bytes than its minimum are left. A claimed message is taken only through its
//! context.

mod by_mask;
mod index;
mod matcher;
mod multi;
mod policy;
mod queue;
mod quota;
mod receiver;
mod shared;
mod views;

pub use matcher::Matcher;
pub use policy::{COMMON_FLAGS, ReceivePolicy};
pub use quota::UnexpectedQuota;
pub use receiver::Receiver;
pub use shared::{Member, Shared};

use selvedge::{CompletionFlags, Context, OpFlags, TagMatch};

use crate::copy::RxBuf;

/// The provider's number for a peer; not an index of the address vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Source(pub u32);

impl Source {
    /// Any peer, for a receive.
    pub const ANY: Self = Self(u32::MAX);

    /// Whether a receive from `self` takes a message of `sender`.
    #[inline]
    pub const fn accepts(self, sender: Self) -> bool {
        self.0 == sender.0 || self.0 == Self::ANY.0
    }
}

/// The interface of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// fi_msg(3).
    Msg,
    /// fi_tagged(3).
    Tagged,
}

impl Kind {
    /// The flags of the completion of a receive.
    #[inline]
    pub const fn received(self) -> CompletionFlags {
        CompletionFlags::RECV.union(self.flag())
    }

    /// The flags of the completion of a send.
    #[inline]
    pub const fn sent(self) -> CompletionFlags {
        CompletionFlags::SEND.union(self.flag())
    }

    #[inline]
    const fn flag(self) -> CompletionFlags {
        match self {
            Self::Msg => CompletionFlags::MSG,
            Self::Tagged => CompletionFlags::TAGGED,
        }
    }
}

/// A posted receive. Dropping it ends the access to its memory.
#[derive(Debug)]
pub struct Posted {
    /// The memory for the message.
    pub buf: RxBuf,
    /// The source whose messages the receive takes.
    pub src: Source,
    /// The tags that the receive takes; [`TagMatch::exact`]`(0)` for an untagged receive.
    pub tag: TagMatch,
    /// The caller's context, for the completion.
    pub context: Context,
    /// The flags of the operation, defaults included ([`crate::Ep::rx_flags`]).
    pub flags: OpFlags,
    /// The interface that the receive was posted to.
    pub kind: Kind,
}

impl Posted {
    /// Whether the receive takes the message.
    #[inline]
    pub fn accepts(&self, env: &Envelope) -> bool {
        self.tag.accepts(env.tag) && self.src.accepts(env.src)
    }
}

/// The metadata of a message, without its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The sender.
    pub src: Source,
    /// The tag; 0 for an untagged message.
    pub tag: u64,
    /// The length in bytes.
    pub len: usize,
    /// The sender's completion data, if `has_data`.
    pub data: u64,
    /// Whether the sender gave completion data.
    pub has_data: bool,
}

/// An unexpected message of a matcher: its metadata, and the provider's data.
#[derive(Debug)]
struct Unexpected<U> {
    env: Envelope,
    payload: U,
}

impl<U> Unexpected<U> {
    /// Whether a receive with this source and tag takes the message.
    const fn is_taken_by(&self, src: Source, tag: TagMatch) -> bool {
        tag.accepts(self.env.tag) && src.accepts(self.env.src)
    }
}

/// Counts the queue members that a method examines, for the tests of its cost.
#[inline]
fn examine() {
    #[cfg(test)]
    EXAMINED.set(EXAMINED.get() + 1);
}

#[cfg(test)]
thread_local! {
    static EXAMINED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// The number of different ignore masks among the receives, or of pairs of mask and directedness
/// among the searches for a message, that are indexed at a time. Programs use one to three. Each
/// costs one or two lookups for a member that is not found at the head.
const MASKS: usize = 8;

/// Up to this many members, a linear search is faster than maintaining an index.
const LINEAR_LIMIT: usize = 16;
