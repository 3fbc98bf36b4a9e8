//! Triggered operations and deferred work: fi_trigger(3).
//!
//! Work waits at a counter until that has reached a number, successes and errors together, and is
//! carried out by the progress of the domain's queues and counters then. What C writes as a post with
//! `FI_TRIGGER` is work here, too: work that completes at its endpoint.

#![expect(unsafe_code, reason = "the raw face: a post is a promise about memory")]

use std::sync::Arc;

use crate::atomic::{AtomicMsg, Ioc, IocMut};
use crate::rma::{ReadMsg, WriteMsg};
use crate::{
    CompletionFlags, Context, Counter, Desc, Endpoint, OpFlags, Result, TagMatch, msg, tagged,
};

/// Something that is done when a counter has reached a number (`struct fi_deferred_work`).
#[derive(Clone, Copy, Debug)]
pub struct Work<'a> {
    /// What it waits at.
    pub cntr: &'a Arc<dyn Counter>,
    /// The number of successes and errors, together, from which on it is done.
    pub threshold: u64,
    /// What is done.
    pub op: Op<'a>,
}

/// What is done (`enum fi_op_type`).
#[derive(Clone, Copy, Debug)]
pub enum Op<'a> {
    /// Something is posted to an endpoint. The work ends with the endpoint.
    Post {
        /// Which one.
        ep: &'a Arc<dyn Endpoint>,
        /// What is posted. Its lists are copied; the bytes that they name are not touched before.
        transfer: Transfer<'a>,
        /// Its flags.
        flags: OpFlags,
        /// Who is told when it is done.
        done: Done<'a>,
    },
    /// The successes of a counter are set (`FI_OP_CNTR_SET`).
    Set(&'a Arc<dyn Counter>, u64),
    /// The successes of a counter are added to (`FI_OP_CNTR_ADD`).
    Add(&'a Arc<dyn Counter>, u64),
}

/// Who is told when an operation is done.
#[derive(Clone, Copy, Debug)]
pub enum Done<'a> {
    /// The queues and counters of its endpoint, as of any other post: an operation that is triggered.
    Endpoint,
    /// This counter, by one, and nobody else; with [`OpFlags::COMPLETION`] the endpoint's queue, too:
    /// work that is deferred.
    Counter(Option<&'a Arc<dyn Counter>>),
}

/// What may be posted to an endpoint, as a value.
#[derive(Clone, Copy, Debug)]
pub enum Transfer<'a> {
    /// [`crate::Msg::sendmsg`]
    Send(msg::SendMsg<'a>),
    /// [`crate::Msg::recvmsg`]
    Recv(msg::RecvMsg<'a>),
    /// [`crate::Tagged::tsendmsg`]
    TaggedSend(tagged::SendMsg<'a>),
    /// [`crate::Tagged::trecvmsg`]
    TaggedRecv(tagged::RecvMsg<'a>),
    /// [`crate::Rma::readmsg`]
    Read(ReadMsg<'a>),
    /// [`crate::Rma::writemsg`]
    Write(WriteMsg<'a>),
    /// [`crate::Atomic::atomicmsg`]
    Atomic(AtomicMsg<'a>),
    /// [`crate::Atomic::fetch_atomicmsg`]
    FetchAtomic(AtomicMsg<'a>, Fetched<'a>),
    /// [`crate::Atomic::compare_atomicmsg`]
    CompareAtomic(AtomicMsg<'a>, Compared<'a>, Fetched<'a>),
}

/// Where an atomic puts the target's earlier values.
#[derive(Clone, Copy, Debug)]
pub struct Fetched<'a> {
    /// The elements.
    pub iov: &'a [IocMut],
    /// Registration descriptors, one per piece, or empty.
    pub desc: &'a [Desc],
}

/// What an atomic compares the target's values with.
#[derive(Clone, Copy, Debug)]
pub struct Compared<'a> {
    /// The elements.
    pub iov: &'a [Ioc],
    /// Registration descriptors, one per piece, or empty.
    pub desc: &'a [Desc],
}

/// Names work that was queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(pub u64);

impl Transfer<'_> {
    /// Posts it.
    ///
    /// # Errors
    /// Those of the method that its kind names.
    ///
    /// # Safety
    /// As that method.
    pub unsafe fn post(&self, ep: &dyn Endpoint, flags: OpFlags) -> Result {
        match self {
            // SAFETY: passed on from the caller, here and below.
            Self::Send(msg) => unsafe { ep.sendmsg(msg, flags) },
            // SAFETY: as above.
            Self::Recv(msg) => unsafe { ep.recvmsg(msg, flags) },
            // SAFETY: as above.
            Self::TaggedSend(msg) => unsafe { ep.tsendmsg(msg, flags) },
            // SAFETY: as above.
            Self::TaggedRecv(msg) => unsafe { ep.trecvmsg(msg, flags) },
            // SAFETY: as above.
            Self::Read(msg) => unsafe { ep.readmsg(msg, flags) },
            // SAFETY: as above.
            Self::Write(msg) => unsafe { ep.writemsg(msg, flags) },
            // SAFETY: as above.
            Self::Atomic(msg) => unsafe { ep.atomicmsg(msg, flags) },
            Self::FetchAtomic(msg, to) => {
                // SAFETY: as above.
                unsafe { ep.fetch_atomicmsg(msg, to.iov, to.desc, flags) }
            }
            Self::CompareAtomic(msg, with, to) => {
                // SAFETY: as above.
                unsafe { ep.compare_atomicmsg(msg, with.iov, with.desc, to.iov, to.desc, flags) }
            }
        }
    }

    /// What comes back with its completion.
    pub const fn context(&self) -> Context {
        match self {
            Self::Send(msg) => msg.context,
            Self::Recv(msg) => msg.context,
            Self::TaggedSend(msg) => msg.context,
            Self::TaggedRecv(msg) => msg.context,
            Self::Read(msg) => msg.context,
            Self::Write(msg) => msg.context,
            Self::Atomic(msg) | Self::FetchAtomic(msg, _) | Self::CompareAtomic(msg, ..) => {
                msg.context
            }
        }
    }

    /// The same with another context.
    #[must_use]
    pub const fn with_context(mut self, context: Context) -> Self {
        let place = match &mut self {
            Self::Send(msg) => &mut msg.context,
            Self::Recv(msg) => &mut msg.context,
            Self::TaggedSend(msg) => &mut msg.context,
            Self::TaggedRecv(msg) => &mut msg.context,
            Self::Read(msg) => &mut msg.context,
            Self::Write(msg) => &mut msg.context,
            Self::Atomic(msg) | Self::FetchAtomic(msg, _) | Self::CompareAtomic(msg, ..) => {
                &mut msg.context
            }
        };
        *place = context;
        self
    }

    /// What its completion says that it was.
    pub const fn what(&self) -> CompletionFlags {
        const fn both(kind: CompletionFlags, direction: CompletionFlags) -> CompletionFlags {
            kind.union(direction)
        }
        match self {
            Self::Send(_) => both(CompletionFlags::MSG, CompletionFlags::SEND),
            Self::Recv(_) => both(CompletionFlags::MSG, CompletionFlags::RECV),
            Self::TaggedSend(_) => both(CompletionFlags::TAGGED, CompletionFlags::SEND),
            Self::TaggedRecv(_) => both(CompletionFlags::TAGGED, CompletionFlags::RECV),
            Self::Read(_) => both(CompletionFlags::RMA, CompletionFlags::READ),
            Self::Write(_) => both(CompletionFlags::RMA, CompletionFlags::WRITE),
            Self::Atomic(_) => both(CompletionFlags::ATOMIC, CompletionFlags::WRITE),
            Self::FetchAtomic(..) | Self::CompareAtomic(..) => {
                both(CompletionFlags::ATOMIC, CompletionFlags::READ)
            }
        }
    }

    /// The tag that a receive names.
    pub const fn tag(&self) -> TagMatch {
        match self {
            Self::TaggedRecv(msg) => msg.tag,
            _ => TagMatch::exact(0),
        }
    }
}
