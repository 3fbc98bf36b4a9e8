//! `Post`: an operation on one buffer, before the buffer is known, and its conversion to an [`Op`].

#![expect(unsafe_code, reason = "passes on the promise that the slots keep")]

use std::ffi::c_void;

use super::remote::RemoteAddr;
use crate::atomic::{self, Family, Ioc, IocMut, Target};
use crate::op::{Compared, Fetched};
use crate::owned::Buf;
use crate::rma::{ReadMsg, WriteMsg};
use crate::{
    Context, Desc, Endpoint, Errno, FiAddr, Iov, IovMut, Op, OpFlags, Result, TagMatch, msg, tagged,
};

/// An operation on one buffer: an [`Op`] without its memory and its context.
#[derive(Clone, Copy, Debug)]
pub(super) enum Post {
    /// A send of the message in the buffer, tagged with `tag`.
    Send {
        dest: FiAddr,
        tag: Option<u64>,
        data: Option<u64>,
    },
    /// A send of the message that is gathered from the buffers that the buffer holds, tagged with
    /// `tag`. [`Gathered`] posts it.
    Gather { dest: FiAddr, tag: Option<u64> },
    /// A send that lends the message in the buffer, if the endpoint can lend.
    Lend {
        dest: FiAddr,
        tag: Option<u64>,
        is_lent: bool,
    },
    /// A receive into the buffer, tagged with `tag`. `flags` are those of fi_trecvmsg(3):
    /// `MULTI_RECV`, `PEEK`, `CLAIM`, `DISCARD` and `LEND`.
    Recv {
        src: FiAddr,
        tag: Option<TagMatch>,
        flags: OpFlags,
    },
    /// A write of the message in the buffer.
    Write { to: RemoteAddr, data: Option<u64> },
    /// A read into the buffer, which overwrites its message.
    Read { from: RemoteAddr },
    /// An atomic. The buffer holds the operands ([`Family::Base`]), or receives the earlier values;
    /// the operands are then in [`Operands`].
    Atomic { family: Family, target: Target },
}

/// The operands that a post borrows for the duration of the call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operands<'a> {
    pub(super) operand: &'a [u8],
    pub(super) compare: &'a [u8],
}

impl Operands<'_> {
    /// No operands.
    pub(super) const NONE: Self = Self {
        operand: &[],
        compare: &[],
    };
}

/// The content of a buffer after its operation: a number of bytes, or one of the constants, which
/// are greater than the length of any buffer. It is one word, which each post stores in the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Content(usize);

impl Content {
    /// A message without bytes, of a buffer that holds the buffers of a gathered message.
    pub(super) const NONE: Self = Self(0);
    /// A received message; the completion reports its length.
    const MESSAGE: Self = Self(usize::MAX);
    /// The buffer of a multi-receive holds messages in its parts.
    pub(super) const MESSAGES: Self = Self(usize::MAX - 1);
    /// The buffer of a claim keeps its message, and its slot keeps the claim if a message was
    /// found.
    pub(super) const CLAIM: Self = Self(usize::MAX - 2);

    /// The length of the message after a completion that reports `completed` bytes; `None` when the
    /// next completion does not return the buffer, or does not free the slot.
    #[inline]
    pub(super) fn len(self, completed: usize) -> Option<usize> {
        match self {
            Self(bytes) if bytes <= isize::MAX as usize => Some(bytes),
            Self::MESSAGE => Some(completed),
            _ => None,
        }
    }
}

/// The memory of a buffer that is about to be moved into its slot.
pub(super) struct Memory {
    message: Iov,
    recv_iov: IovMut,
    desc: Desc,
}

impl Memory {
    /// The memory of a lending send.
    pub(super) fn of_lent(buf: &Buf) -> Self {
        Self {
            message: buf.lent_iov(),
            ..Self::of(buf)
        }
    }

    pub(super) fn of(buf: &Buf) -> Self {
        Self {
            message: buf.send_iov(),
            recv_iov: buf.receive_iov(),
            desc: buf.desc(),
        }
    }
}

/// The segments of a gathered message, and their descriptors. They are apart from [`Memory`], so
/// that posts of one buffer stay free of a choice between one segment and several.
pub(super) struct Gathered {
    iov: Vec<Iov>,
    desc: Vec<Desc>,
}

impl Gathered {
    /// The segments of the message that is gathered from `bufs`.
    pub(super) fn of(bufs: &[Buf]) -> Self {
        Self {
            iov: bufs.iter().map(Buf::send_iov).collect(),
            desc: bufs.iter().map(Buf::desc).collect(),
        }
    }

    /// Posts a send of the message, tagged with `tag`.
    ///
    /// # Errors
    /// Those of [`Op::post`].
    pub(super) fn submit(
        &self,
        (dest, tag): (FiAddr, Option<u64>),
        context: Context,
        flags: OpFlags,
        submit: Submit<'_>,
    ) -> Result {
        let (iov, desc, data) = (&self.iov[..], &self.desc[..], 0);
        let op = match tag {
            None => Op::Send(msg::SendMsg {
                iov,
                desc,
                dest,
                context,
                data,
            }),
            Some(tag) => Op::TaggedSend(tagged::SendMsg {
                iov,
                desc,
                dest,
                tag,
                context,
                data,
            }),
        };
        submit.post(&op, flags)
    }
}

/// Permission to post one operation on a buffer to an endpoint.
pub(super) struct Submit<'a>(&'a dyn Endpoint);

impl<'a> Submit<'a> {
    /// # Safety
    /// The memory of the operation is valid, and nothing but the operation accesses it, until the
    /// post fails, the completion with its context has been read, or `ep` has been dropped. For
    /// injected memory this holds until the post returns.
    pub(super) const unsafe fn new(ep: &'a dyn Endpoint) -> Self {
        Self(ep)
    }

    /// Inlined, so that each kind of operation becomes a direct call of its endpoint method.
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

    /// A send of a gathered message, tagged with `tag`.
    pub(super) const fn gather(dest: FiAddr, tag: Option<u64>) -> Self {
        Self::Gather { dest, tag }
    }

    /// A tagged receive with these flags.
    pub(super) const fn trecv(src: FiAddr, tag: TagMatch, flags: OpFlags) -> Self {
        let tag = Some(tag);
        Self::Recv { src, tag, flags }
    }

    /// A receive of the claimed message; with `DISCARD`, its discard.
    pub(super) const fn claimed(flags: OpFlags) -> Self {
        let flags = OpFlags::CLAIM.union(flags);
        Self::trecv(FiAddr::UNSPEC, TagMatch::ANY, flags)
    }

    /// The peer that the operation is posted to; `None` for a receive.
    pub(super) const fn dest(self) -> Option<FiAddr> {
        match self {
            Self::Send { dest, .. } | Self::Gather { dest, .. } | Self::Lend { dest, .. } => {
                Some(dest)
            }
            Self::Write { to: remote, .. } | Self::Read { from: remote } => Some(remote.peer),
            Self::Atomic { target, .. } => Some(target.dest),
            Self::Recv { .. } => None,
        }
    }

    /// Whether the operation claims the message that it finds.
    pub(super) fn claims(self) -> bool {
        matches!(self, Self::Recv { flags, .. } if flags == CLAIMS)
    }

    /// The content of the buffer after the operation. An atomic read has no operands; the length of
    /// the buffer says how many values it reads.
    ///
    /// # Errors
    /// [`Errno::TooSmall`] when the content does not fit.
    #[inline(always)]
    pub(super) fn content(self, operand: &[u8], buf: &Buf) -> Result<Content> {
        let is_fetched = match self {
            Self::Recv { flags, .. } => return Ok(received(flags, buf)),
            Self::Send { .. }
            | Self::Gather { .. }
            | Self::Lend { .. }
            | Self::Write { .. }
            | Self::Read { .. } => false,
            Self::Atomic { family, target } => match (family, target.op) {
                (Family::Base, _) | (Family::Fetch, atomic::Op::AtomicRead) => false,
                (Family::Fetch | Family::Compare, _) => true,
            },
        };
        if !is_fetched {
            Ok(Content(buf.len()))
        } else if operand.len() <= buf.capacity() {
            Ok(Content(operand.len()))
        } else {
            Err(Errno::TooSmall)
        }
    }

    /// Posts the operation on `memory`. `tx_flags` apply to operations other than receives and
    /// reads. Operands are injected, because they are borrowed for this call.
    ///
    /// # Errors
    /// Those of [`Op::post`]; [`Errno::Inval`] when the bytes of an atomic are not whole elements.
    #[inline(always)]
    pub(super) fn submit(
        self,
        operands: Operands<'_>,
        memory: &Memory,
        context: Context,
        tx_flags: OpFlags,
        submit: Submit<'_>,
    ) -> Result {
        let (iov, recv_iov, desc) = (
            &[memory.message][..],
            &[memory.recv_iov][..],
            &[memory.desc][..],
        );
        match self {
            Self::Gather { .. } => unreachable!("`Gathered::submit` posts gathered messages"),
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
            Self::Lend { dest, tag, is_lent } => {
                let flags = if is_lent {
                    tx_flags | OpFlags::LEND
                } else {
                    tx_flags
                };
                let data = None;
                let send = Self::Send { dest, tag, data };
                send.submit(operands, memory, context, flags, submit)
            }
            Self::Recv {
                src,
                tag: None,
                flags,
            } => {
                let msg = msg::RecvMsg {
                    iov: recv_iov,
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
                    iov: recv_iov,
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
                    iov: &[IovMut::from_raw(memory.recv_iov.base, len)],
                    desc,
                    src: from.peer,
                    rma_iov: &[from.iov(len)],
                    context,
                };
                submit.post(&Op::Read(msg), OpFlags::empty())
            }
            Self::Atomic { family, target } => {
                let message = || elements(&target, memory.message.base, memory.message.len);
                let borrowed = |bytes: &[u8]| elements(&target, bytes.as_ptr().cast(), bytes.len());
                let is_read = family == Family::Fetch && target.op == atomic::Op::AtomicRead;
                let operand_ioc = match family {
                    _ if is_read => message()?,
                    Family::Base => message()?,
                    Family::Fetch | Family::Compare => borrowed(operands.operand)?,
                };
                let (iov, rma_iov) = ([operand_ioc], [target.elements(operand_ioc.count)]);
                let iov = if is_read { &[][..] } else { &iov[..] };
                let fetched = Fetched {
                    iov: &[IocMut::from_raw(memory.recv_iov.base, operand_ioc.count)],
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
                            iov: &[borrowed(operands.compare)?],
                            desc: &[],
                        };
                        submit.post(&Op::CompareAtomic(msg, compared, fetched), injected)
                    }
                }
            }
        }
    }
}

/// The flags of a receive that claims a message.
const CLAIMS: OpFlags = OpFlags::PEEK.union(OpFlags::CLAIM);

/// The content of the buffer of a receive with these flags.
#[inline]
fn received(flags: OpFlags, buf: &Buf) -> Content {
    if flags.contains(OpFlags::MULTI_RECV) {
        Content::MESSAGES
    } else if flags == CLAIMS {
        Content::CLAIM
    } else if flags.intersects(OpFlags::PEEK | OpFlags::DISCARD) {
        Content(buf.len())
    } else {
        Content::MESSAGE
    }
}

/// The flags with [`OpFlags::REMOTE_CQ_DATA`] if there is data, and the data.
#[inline]
fn with_data(flags: OpFlags, data: Option<u64>) -> (OpFlags, u64) {
    match data {
        Some(data) => (flags | OpFlags::REMOTE_CQ_DATA, data),
        None => (flags, 0),
    }
}

/// Describes bytes as elements of the target's type.
fn elements(target: &Target, base: *const c_void, len: usize) -> Result<Ioc> {
    let size = target.datatype.size();
    if !len.is_multiple_of(size) {
        return Err(Errno::Inval);
    }
    Ok(Ioc::from_raw(base, len / size))
}
