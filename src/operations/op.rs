//! `Op`: an operation of an [`Endpoint`] as a value.
//!
//! An [`Op`] represents one call of a posting method of [`crate::Msg`], [`crate::Tagged`],
//! [`crate::Rma`], [`crate::Atomic`] or [`crate::Collective`]. Code that forwards, stores, counts or
//! changes operations uses an `Op` and posts it with [`Op::post`]. Code that posts one kind of
//! operation calls the method directly.

#![expect(unsafe_code, reason = "the raw API: a post is a promise about memory")]
#![expect(
    clippy::exhaustive_structs,
    reason = "callers and providers write every field, as with the man page's structures"
)]

use crate::atomic::{AtomicMsg, Ioc, IocMut, Target};
use crate::collective::CollectiveMsg;
use crate::rma::{ReadMsg, WriteMsg};
use crate::{
    CompletionFlags, Context, Desc, Endpoint, Errno, FiAddr, OpFlags, Result, SharedReceives,
    TagMatch, msg, tagged,
};

/// An operation, which borrows its lists and injected bytes. The caller of [`Op::post`] promises
/// that the memory in the lists is valid.
///
/// # Examples
///
/// A wrapper that numbers operations:
///
/// ```
/// use selvedge::{Context, Endpoint, Op, OpFlags, Result};
///
/// /// # Safety
/// /// As [`Op::post`].
/// unsafe fn post_numbered(ep: &dyn Endpoint, op: Op<'_>, flags: OpFlags, number: u64) -> Result {
///     // SAFETY: passed on from the caller; the completion has the context `number`.
///     unsafe { op.with_context(Context(number)).post(ep, flags) }
/// }
/// ```
#[derive(Clone, Copy, Debug)]
#[expect(
    missing_docs,
    reason = "the fields are the parameters of the methods that are named"
)]
pub enum Op<'a> {
    /// [`crate::Msg::sendmsg`]
    Send(msg::SendMsg<'a>),
    /// [`crate::Msg::recvmsg`]
    Recv(msg::RecvMsg<'a>),
    /// [`crate::Msg::inject`]
    Inject {
        buf: &'a [u8],
        dest: FiAddr,
        data: Option<u64>,
    },
    /// [`crate::Tagged::tsendmsg`]
    TaggedSend(tagged::SendMsg<'a>),
    /// [`crate::Tagged::trecvmsg`]
    TaggedRecv(tagged::RecvMsg<'a>),
    /// [`crate::Tagged::tinject`]
    TaggedInject {
        buf: &'a [u8],
        dest: FiAddr,
        tag: u64,
        data: Option<u64>,
    },
    /// [`crate::Rma::readmsg`]
    Read(ReadMsg<'a>),
    /// [`crate::Rma::writemsg`]
    Write(WriteMsg<'a>),
    /// [`crate::Rma::inject_write`]
    InjectWrite {
        buf: &'a [u8],
        dest: FiAddr,
        addr: u64,
        key: u64,
        data: Option<u64>,
    },
    /// [`crate::Atomic::atomicmsg`]
    Atomic(AtomicMsg<'a>),
    /// [`crate::Atomic::fetch_atomicmsg`]
    FetchAtomic(AtomicMsg<'a>, Fetched<'a>),
    /// [`crate::Atomic::compare_atomicmsg`]
    CompareAtomic(AtomicMsg<'a>, Compared<'a>, Fetched<'a>),
    /// [`crate::Atomic::inject_atomic`]
    InjectAtomic { buf: &'a [u8], target: Target },
    /// [`crate::Collective::collective`]
    Collective(CollectiveMsg),
}

/// The memory for the earlier values of an atomic.
#[derive(Clone, Copy, Debug)]
pub struct Fetched<'a> {
    /// The elements.
    pub iov: &'a [IocMut],
    /// Registration descriptors, one for each segment, or empty.
    pub desc: &'a [Desc],
}

/// The comparands of an atomic.
#[derive(Clone, Copy, Debug)]
pub struct Compared<'a> {
    /// The elements.
    pub iov: &'a [Ioc],
    /// Registration descriptors, one for each segment, or empty.
    pub desc: &'a [Desc],
}

impl Op<'_> {
    /// Posts the operation to `ep` by the method of its kind.
    ///
    /// # Errors
    /// The errors of that method. [`Errno::BadFlags`] for an injected operation with flags other
    /// than
    /// [`OpFlags::DEFAULT`], because the method of an injected operation has no flags parameter.
    /// [`Errno::NoSys`] for a collective if the endpoint has no collectives.
    ///
    /// # Safety
    /// The safety requirement of that method. Injected operations have no safety requirement.
    // Inlined, so that a call with a known kind of operation needs no dispatch.
    #[inline(always)]
    pub unsafe fn post(&self, ep: &(impl Endpoint + ?Sized), flags: OpFlags) -> Result {
        match self {
            // SAFETY: passed on from the caller, here and below.
            Self::Send(msg) => unsafe { ep.sendmsg(msg, flags) },
            // SAFETY: as above.
            Self::Recv(msg) => unsafe { ep.recvmsg(msg, flags) },
            Self::Inject { buf, dest, data } => {
                check_no_flags(flags)?;
                ep.inject(buf, *dest, *data)
            }
            // SAFETY: as above.
            Self::TaggedSend(msg) => unsafe { ep.tsendmsg(msg, flags) },
            // SAFETY: as above.
            Self::TaggedRecv(msg) => unsafe { ep.trecvmsg(msg, flags) },
            Self::TaggedInject {
                buf,
                dest,
                tag,
                data,
            } => {
                check_no_flags(flags)?;
                ep.tinject(buf, *dest, *tag, *data)
            }
            // SAFETY: as above.
            Self::Read(msg) => unsafe { ep.readmsg(msg, flags) },
            // SAFETY: as above.
            Self::Write(msg) => unsafe { ep.writemsg(msg, flags) },
            Self::InjectWrite {
                buf,
                dest,
                addr,
                key,
                data,
            } => {
                check_no_flags(flags)?;
                ep.inject_write(buf, *dest, *addr, *key, *data)
            }
            // SAFETY: as above.
            Self::Atomic(msg) => unsafe { ep.atomicmsg(msg, flags) },
            Self::FetchAtomic(msg, Fetched { iov, desc }) => {
                // SAFETY: as above.
                unsafe { ep.fetch_atomicmsg(msg, iov, desc, flags) }
            }
            Self::CompareAtomic(msg, compared, Fetched { iov, desc }) => {
                // SAFETY: as above.
                unsafe { ep.compare_atomicmsg(msg, compared.iov, compared.desc, iov, desc, flags) }
            }
            Self::InjectAtomic { buf, target } => {
                check_no_flags(flags)?;
                ep.inject_atomic(buf, target)
            }
            Self::Collective(msg) => {
                let collectives = ep.collective().ok_or(Errno::NoSys)?;
                // SAFETY: as above.
                unsafe { collectives.collective(msg, flags) }
            }
        }
    }

    /// Posts a receive to a shared receive context.
    ///
    /// # Errors
    /// The errors of [`crate::Msg::recvmsg`] and [`crate::Tagged::trecvmsg`]; [`Errno::NoSys`] for
    /// any other operation.
    ///
    /// # Safety
    /// The safety requirement of these methods.
    pub unsafe fn post_shared(
        &self,
        srx: &(impl SharedReceives + ?Sized),
        flags: OpFlags,
    ) -> Result {
        match self {
            // SAFETY: passed on from the caller, here and below.
            Self::Recv(msg) => unsafe { srx.recvmsg(msg, flags) },
            // SAFETY: as above.
            Self::TaggedRecv(msg) => unsafe { srx.trecvmsg(msg, flags) },
            _ => Err(Errno::NoSys),
        }
    }

    /// Returns the context of the completion, or 0 for an injected operation, which has no
    /// completion.
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
            Self::Collective(msg) => msg.context,
            Self::Inject { .. }
            | Self::TaggedInject { .. }
            | Self::InjectWrite { .. }
            | Self::InjectAtomic { .. } => Context(0),
        }
    }

    /// Replaces the context, if the operation has one.
    #[must_use]
    pub const fn with_context(mut self, context: Context) -> Self {
        let field = match &mut self {
            Self::Send(msg) => &mut msg.context,
            Self::Recv(msg) => &mut msg.context,
            Self::TaggedSend(msg) => &mut msg.context,
            Self::TaggedRecv(msg) => &mut msg.context,
            Self::Read(msg) => &mut msg.context,
            Self::Write(msg) => &mut msg.context,
            Self::Atomic(msg) | Self::FetchAtomic(msg, _) | Self::CompareAtomic(msg, ..) => {
                &mut msg.context
            }
            Self::Collective(msg) => &mut msg.context,
            Self::Inject { .. }
            | Self::TaggedInject { .. }
            | Self::InjectWrite { .. }
            | Self::InjectAtomic { .. } => return self,
        };
        *field = context;
        self
    }

    /// Returns the flags of a completion of this kind of operation.
    pub const fn kind(&self) -> CompletionFlags {
        const fn both(kind: CompletionFlags, direction: CompletionFlags) -> CompletionFlags {
            kind.union(direction)
        }
        match self {
            Self::Send(_) | Self::Inject { .. } => {
                both(CompletionFlags::MSG, CompletionFlags::SEND)
            }
            Self::Recv(_) => both(CompletionFlags::MSG, CompletionFlags::RECV),
            Self::TaggedSend(_) | Self::TaggedInject { .. } => {
                both(CompletionFlags::TAGGED, CompletionFlags::SEND)
            }
            Self::TaggedRecv(_) => both(CompletionFlags::TAGGED, CompletionFlags::RECV),
            Self::Read(_) => both(CompletionFlags::RMA, CompletionFlags::READ),
            Self::Write(_) | Self::InjectWrite { .. } => {
                both(CompletionFlags::RMA, CompletionFlags::WRITE)
            }
            Self::Atomic(_) | Self::InjectAtomic { .. } => {
                both(CompletionFlags::ATOMIC, CompletionFlags::WRITE)
            }
            Self::FetchAtomic(..) | Self::CompareAtomic(..) => {
                both(CompletionFlags::ATOMIC, CompletionFlags::READ)
            }
            Self::Collective(_) => CompletionFlags::COLLECTIVE,
        }
    }

    /// Returns the tag of a tagged send, or the accepted tags of a tagged receive.
    pub const fn tag(&self) -> Option<TagMatch> {
        match self {
            Self::TaggedSend(msg) => Some(TagMatch::exact(msg.tag)),
            Self::TaggedInject { tag, .. } => Some(TagMatch::exact(*tag)),
            Self::TaggedRecv(msg) => Some(msg.tag),
            _ => None,
        }
    }

    /// Returns the peer, or the group of a collective; [`FiAddr::UNSPEC`] for a receive from any
    /// peer.
    pub const fn peer(&self) -> FiAddr {
        match self {
            Self::Send(msg) => msg.dest,
            Self::Recv(msg) => msg.src,
            Self::TaggedSend(msg) => msg.dest,
            Self::TaggedRecv(msg) => msg.src,
            Self::Read(msg) => msg.src,
            Self::Write(msg) => msg.dest,
            Self::Atomic(msg) | Self::FetchAtomic(msg, _) | Self::CompareAtomic(msg, ..) => {
                msg.dest
            }
            Self::Inject { dest, .. }
            | Self::TaggedInject { dest, .. }
            | Self::InjectWrite { dest, .. } => *dest,
            Self::InjectAtomic { target, .. } => target.dest,
            Self::Collective(msg) => msg.group,
        }
    }
}

/// Checks the flags of an injected operation, whose method has no flags parameter.
#[inline]
fn check_no_flags(flags: OpFlags) -> Result {
    if OpFlags::DEFAULT.contains(flags) {
        Ok(())
    } else {
        Err(Errno::BadFlags)
    }
}

#[cfg(test)]
mod tests;
