//! What is posted with a buffer, before the buffer is there, and how it becomes an [`Op`].

#![expect(unsafe_code, reason = "passes the promise of the slots on")]

use std::ffi::c_void;

use super::remote::Remote;
use crate::atomic::{self, Family, Ioc, IocMut, Target};
use crate::op::{Compared, Fetched};
use crate::owned::Buf;
use crate::rma::{ReadMsg, WriteMsg};
use crate::{
    Context, Desc, Endpoint, Errno, FiAddr, Iov, IovMut, Op, OpFlags, Result, TagMatch, msg, tagged,
};

/// An operation on one buffer: everything that an [`Op`] says but its memory and its context.
#[derive(Clone, Copy, Debug)]
pub(super) enum Post {
    /// A send of the message in the buffer, tagged with `tag`.
    Send {
        dest: FiAddr,
        tag: Option<u64>,
        data: Option<u64>,
    },
    /// A receive into the buffer, tagged with `tag`. `flags` are those of fi_trecvmsg(3):
    /// `MULTI_RECV`, `PEEK`, `CLAIM` and `DISCARD`.
    Recv {
        src: FiAddr,
        tag: Option<TagMatch>,
        flags: OpFlags,
    },
    /// A write of the message in the buffer.
    Write { to: Remote, data: Option<u64> },
    /// A read into the buffer, over the message that is there.
    Read { from: Remote },
    /// An atomic: with the operands in the buffer ([`Family::Base`]), or with [`Operands`] and room
    /// for the earlier values in the buffer.
    Atomic { family: Family, target: Target },
}

/// What a post borrows for the call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operands<'a> {
    pub(super) operand: &'a [u8],
    pub(super) compare: &'a [u8],
}

impl Operands<'_> {
    /// Those of a post that borrows nothing.
    pub(super) const NONE: Self = Self {
        operand: &[],
        compare: &[],
    };
}

/// What is in a buffer when its operation is done: as many bytes as the completion says, within these
/// bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Content {
    least: usize,
    most: usize,
}

impl Content {
    /// Messages, in parts of it.
    pub(super) const MESSAGES: Self = Self {
        least: usize::MAX,
        most: 0,
    };
    /// What was in it before; and a message is set aside if one was found.
    pub(super) const CLAIM: Self = Self {
        least: usize::MAX,
        most: 1,
    };

    /// So many bytes.
    #[inline]
    const fn bytes(len: usize) -> Self {
        let (least, most) = (len, len);
        Self { least, most }
    }

    /// A message of as many bytes as fit.
    #[inline]
    const fn message(capacity: usize) -> Self {
        let (least, most) = (0, capacity);
        Self { least, most }
    }

    /// Whether the buffer comes back with the next completion, and nothing else is left.
    #[inline]
    pub(super) const fn is_final(self) -> bool {
        self.least <= self.most
    }

    /// How many bytes there are after a completion that says so many, where that is final.
    #[inline]
    pub(super) fn len(self, completed: usize) -> usize {
        completed.min(self.most).max(self.least)
    }
}

/// The memory of a buffer that is about to move into its slot.
pub(super) struct Memory {
    message: Iov,
    room: IovMut,
    desc: Desc,
}

impl Memory {
    pub(super) fn of(buf: &Buf) -> Self {
        Self {
            message: buf.message(),
            room: buf.room(),
            desc: buf.desc(),
        }
    }
}

/// The promise that an operation on a buffer may be posted to an endpoint, once.
pub(super) struct Submit<'a>(&'a dyn Endpoint);

impl<'a> Submit<'a> {
    /// # Safety
    /// The memory of the operation is valid, and nobody else touches it, until the post fails, the
    /// completion with its context has been read, or `ep` has been dropped; injected memory until
    /// the post returns.
    pub(super) const unsafe fn new(ep: &'a dyn Endpoint) -> Self {
        Self(ep)
    }

    /// Inlined, so that each kind of operation is a call of the endpoint's method for it.
    #[inline(always)]
    fn post(self, op: &Op<'_>, flags: OpFlags) -> Result {
        // SAFETY: the promise of `new`.
        unsafe { op.post(self.0, flags) }
    }
}

impl Post {
    /// An untagged receive of one message.
    pub(super) const fn recv(src: FiAddr) -> Self {
        Self::Recv {
            src,
            tag: None,
            flags: OpFlags::empty(),
        }
    }

    /// A tagged receive with these flags.
    pub(super) const fn trecv(src: FiAddr, tag: TagMatch, flags: OpFlags) -> Self {
        let tag = Some(tag);
        Self::Recv { src, tag, flags }
    }

    /// A receive of the message that was set aside, or with `DISCARD` its end.
    pub(super) const fn claimed(flags: OpFlags) -> Self {
        let flags = OpFlags::CLAIM.union(flags);
        Self::trecv(FiAddr::UNSPEC, TagMatch::ANY, flags)
    }

    /// The peer that it is posted to; `None` for a receive.
    pub(super) const fn dest(self) -> Option<FiAddr> {
        match self {
            Self::Send { dest, .. } => Some(dest),
            Self::Write { to: place, .. } | Self::Read { from: place } => Some(place.peer),
            Self::Atomic { target, .. } => Some(target.dest),
            Self::Recv { .. } => None,
        }
    }

    /// Whether what it finds is set aside.
    pub(super) fn claims(self) -> bool {
        matches!(self, Self::Recv { flags, .. } if flags == CLAIMS)
    }

    /// What the buffer will hold. An atomic that reads has no operands, but as many values as the
    /// buffer's length says.
    ///
    /// # Errors
    /// [`Errno::TooSmall`] when that does not fit.
    #[inline(always)]
    pub(super) fn content(self, operand: &[u8], buf: &Buf) -> Result<Content> {
        let len = match self {
            Self::Recv { flags, .. } => return Ok(received(flags, buf)),
            Self::Send { .. } | Self::Write { .. } | Self::Read { .. } => buf.len(),
            Self::Atomic { family, target } => match (family, target.op) {
                (Family::Base, _) => buf.len(),
                (Family::Fetch, atomic::Op::AtomicRead) => buf.len(),
                (Family::Fetch | Family::Compare, _) => operand.len(),
            },
        };
        match len <= buf.capacity() {
            true => Ok(Content::bytes(len)),
            false => Err(Errno::TooSmall),
        }
    }

    /// Posts the operation on `memory`. `tx_flags` are those of an operation that completes at the
    /// sender. Operands are injected, since they are borrowed for this call.
    ///
    /// # Errors
    /// Those of [`Op::post`]; [`Errno::Inval`] when the bytes of an atomic are no whole elements.
    #[inline(always)]
    pub(super) fn submit(
        self,
        operands: Operands<'_>,
        memory: &Memory,
        context: Context,
        tx_flags: OpFlags,
        submit: Submit<'_>,
    ) -> Result {
        let (iov, room, desc) = (
            &[memory.message][..],
            &[memory.room][..],
            &[memory.desc][..],
        );
        match self {
            Self::Send { dest, tag, data } => {
                let (flags, data) = with_data(tx_flags, data);
                match tag {
                    None => {
                        let msg = msg::SendMsg {
                            iov,
                            desc,
                            dest,
                            context,
                            data,
                        };
                        submit.post(&Op::Send(msg), flags)
                    }
                    Some(tag) => {
                        let msg = tagged::SendMsg {
                            iov,
                            desc,
                            dest,
                            tag,
                            context,
                            data,
                        };
                        submit.post(&Op::TaggedSend(msg), flags)
                    }
                }
            }
            Self::Recv {
                src,
                tag: None,
                flags,
            } => {
                let msg = msg::RecvMsg {
                    iov: room,
                    desc,
                    src,
                    context,
                };
                submit.post(&Op::Recv(msg), flags)
            }
            Self::Recv {
                src,
                tag: Some(tag),
                flags,
            } => {
                let msg = tagged::RecvMsg {
                    iov: room,
                    desc,
                    src,
                    tag,
                    context,
                };
                submit.post(&Op::TaggedRecv(msg), flags)
            }
            Self::Write { to, data } => {
                let (flags, data) = with_data(tx_flags, data);
                let msg = WriteMsg {
                    iov,
                    desc,
                    dest: to.peer,
                    rma_iov: &[to.iov(memory.message.len)],
                    context,
                    data,
                };
                submit.post(&Op::Write(msg), flags)
            }
            Self::Read { from } => {
                let len = memory.message.len;
                let msg = ReadMsg {
                    iov: &[IovMut::from_raw(memory.room.base, len)],
                    desc,
                    src: from.peer,
                    rma_iov: &[from.iov(len)],
                    context,
                };
                submit.post(&Op::Read(msg), OpFlags::empty())
            }
            Self::Atomic { family, target } => {
                let message = || elements(&target, memory.message.base, memory.message.len);
                let given = |bytes: &[u8]| elements(&target, bytes.as_ptr().cast(), bytes.len());
                let is_read = family == Family::Fetch && target.op == atomic::Op::AtomicRead;
                let own = match family {
                    _ if is_read => message()?,
                    Family::Base => message()?,
                    Family::Fetch | Family::Compare => given(operands.operand)?,
                };
                let (iov, rma_iov) = ([own], [target.elements(own.count)]);
                let iov = if is_read { &[][..] } else { &iov[..] };
                let fetched = Fetched {
                    iov: &[IocMut::from_raw(memory.room.base, own.count)],
                    desc,
                };
                let injected = tx_flags | OpFlags::INJECT;
                match family {
                    Family::Base => {
                        let msg = target.msg(iov, desc, &rma_iov, context);
                        submit.post(&Op::Atomic(msg), tx_flags)
                    }
                    Family::Fetch => {
                        let msg = target.msg(iov, &[], &rma_iov, context);
                        submit.post(&Op::FetchAtomic(msg, fetched), injected)
                    }
                    Family::Compare => {
                        let msg = target.msg(iov, &[], &rma_iov, context);
                        let compared = Compared {
                            iov: &[given(operands.compare)?],
                            desc: &[],
                        };
                        submit.post(&Op::CompareAtomic(msg, compared, fetched), injected)
                    }
                }
            }
        }
    }
}

/// The flags of a receive that sets a message aside.
const CLAIMS: OpFlags = OpFlags::PEEK.union(OpFlags::CLAIM);

/// What the buffer of a receive with these flags will hold.
#[inline]
fn received(flags: OpFlags, buf: &Buf) -> Content {
    if flags.contains(OpFlags::MULTI_RECV) {
        Content::MESSAGES
    } else if flags == CLAIMS {
        Content::CLAIM
    } else if flags.intersects(OpFlags::PEEK | OpFlags::DISCARD) {
        Content::bytes(buf.len())
    } else {
        Content::message(buf.capacity())
    }
}

/// The flags with remote data, and the data.
#[inline]
fn with_data(flags: OpFlags, data: Option<u64>) -> (OpFlags, u64) {
    match data {
        Some(data) => (flags | OpFlags::REMOTE_CQ_DATA, data),
        None => (flags, 0),
    }
}

/// Whole elements of the target's type.
fn elements(target: &Target, base: *const c_void, len: usize) -> Result<Ioc> {
    let size = target.datatype.size();
    if !len.is_multiple_of(size) {
        return Err(Errno::Inval);
    }
    Ok(Ioc::from_raw(base, len / size))
}
