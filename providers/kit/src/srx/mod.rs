//! Receive matching: which posted receive takes which message.
//!
//! [`Matcher`] holds the receives that wait for messages and the messages that wait for receives.
//! It does no I/O, takes no lock and calls nobody back: every verb takes values and answers with
//! values, and the provider does what follows from the answer. [`Shared`] holds receives that several
//! matchers have in common, behind a lock of its own.
//!
//! A receive accepts a message when the tags agree outside the ignored bits and the receive names
//! the message's source or any. Of several receives the one posted first takes the message; of
//! several messages the one that arrived first is taken. A multi-receive buffer takes one message
//! after the other, until too little of it is left; a claimed message is taken by its context alone.

mod allowance;
mod by_mask;
mod index;
mod manner;
mod matcher;
mod multi;
mod queue;
mod receiver;
mod shared;
mod views;

pub use allowance::Allowance;
pub use manner::Manner;
pub use matcher::Matcher;
pub use receiver::{PLAIN, Receiver};
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

/// Which interface an operation belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// fi_msg(3).
    Msg,
    /// fi_tagged(3).
    Tagged,
}

impl Kind {
    /// What the completion of a receive says.
    #[inline]
    pub const fn received(self) -> CompletionFlags {
        CompletionFlags::RECV.union(self.flag())
    }

    /// What the completion of a send says.
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
    /// Where the message goes.
    pub buf: RxBuf,
    /// Whose messages it takes.
    pub src: Source,
    /// Which tags it takes; [`TagMatch::exact`]`(0)` for an untagged one.
    pub tag: TagMatch,
    /// Comes back with the completion.
    pub context: Context,
    /// The flags of the operation, defaults included ([`crate::Ep::rx_flags`]).
    pub flags: OpFlags,
    /// The interface that it was posted to.
    pub kind: Kind,
}

impl Posted {
    /// Whether this receive takes that message.
    #[inline]
    pub fn accepts(&self, env: &Envelope) -> bool {
        self.tag.accepts(env.tag) && self.src.accepts(env.src)
    }
}

/// What is known of a message before its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Who sent it.
    pub src: Source,
    /// Its tag; 0 for an untagged one.
    pub tag: u64,
    /// Its length in bytes.
    pub len: usize,
    /// The sender's completion data, if `has_data`.
    pub data: u64,
    /// Whether the sender gave completion data.
    pub has_data: bool,
}

/// Counts the members that a verb looks at, for the tests of its cost.
#[inline]
fn examine() {
    #[cfg(test)]
    EXAMINED.set(EXAMINED.get() + 1);
}

#[cfg(test)]
thread_local! {
    static EXAMINED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Different ignore masks among the receives, or pairs of mask and directedness among those that
/// look for a message, that are indexed at a time. Programs use one to three; each costs a look-up
/// or two for a member that is not met at the head.
const MASKS: usize = 8;

/// So many members are searched one by one faster than an index of them is kept.
const SHORT: usize = 16;
