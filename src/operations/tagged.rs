//! Tagged messages: fi_tagged(3).

#![expect(unsafe_code, reason = "the raw API: a post is a promise about memory")]
#![expect(
    clippy::exhaustive_structs,
    reason = "callers and providers write every field, as with the man page's structures"
)]

use crate::{Context, Desc, Errno, FiAddr, Iov, IovMut, OpFlags, Result};

/// A tagged send. The lists are read during the call. The bytes that the lists name are read until
/// the completion.
#[derive(Clone, Copy, Debug)]
pub struct SendMsg<'a> {
    /// The segments of the message, at most `tx_attr.iov_limit`.
    pub iov: &'a [Iov],
    /// Registration descriptors, one for each segment, or empty.
    pub desc: &'a [Desc],
    /// The peer.
    pub dest: FiAddr,
    /// The tag.
    pub tag: u64,
    /// The context of the completion.
    pub context: Context,
    /// Data for the peer's completion, under [`OpFlags::REMOTE_CQ_DATA`].
    pub data: u64,
}

/// A tagged receive. The lists are read during the call. The bytes that `iov` names are accessed
/// until the completion.
#[derive(Clone, Copy, Debug)]
pub struct RecvMsg<'a> {
    /// The segments of the receive buffer, at most `rx_attr.iov_limit`.
    pub iov: &'a [IovMut],
    /// Registration descriptors, one for each segment, or empty.
    pub desc: &'a [Desc],
    /// The only peer from which the receive takes a message, under [`crate::Caps::DIRECTED_RECV`]
    /// or
    /// [`crate::Caps::TAGGED_DIRECTED_RECV`], or [`FiAddr::UNSPEC`] for any peer.
    pub src: FiAddr,
    /// The tags to accept.
    pub tag: TagMatch,
    /// The context of the completion.
    pub context: Context,
}

/// The tags that a receive accepts. The tag of a send matches if
/// `(send | ignore) == (tag | ignore)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TagMatch {
    /// The tag.
    pub tag: u64,
    /// The bits that are ignored in the comparison.
    pub ignore: u64,
}

impl TagMatch {
    /// Accepts every tag.
    pub const ANY: Self = Self {
        tag: 0,
        ignore: u64::MAX,
    };

    /// Accepts only `tag`.
    #[inline]
    pub const fn exact(tag: u64) -> Self {
        Self { tag, ignore: 0 }
    }

    /// Returns whether a message with this tag is accepted.
    #[inline]
    pub const fn accepts(self, tag: u64) -> bool {
        (tag ^ self.tag) & !self.ignore == 0
    }
}

impl From<u64> for TagMatch {
    fn from(tag: u64) -> Self {
        Self::exact(tag)
    }
}

/// Sends and receives of tagged messages. The meaning of return values and the order of messages
/// are those of [`crate::Msg`].
pub trait Tagged {
    /// Posts a tagged send (fi_tsendmsg(3)).
    ///
    /// # Safety
    /// As [`crate::Msg::sendmsg`].
    unsafe fn tsendmsg(&self, msg: &SendMsg<'_>, flags: OpFlags) -> Result {
        let _ = (msg, flags);
        Err(Errno::NoSys)
    }

    /// Posts a tagged receive (fi_trecvmsg(3)).
    ///
    /// [`OpFlags::MULTI_RECV`] has the same meaning as in [`crate::Msg::recvmsg`]. With
    /// [`OpFlags::PEEK`], the memory is not used: the completion describes the message that the receive
    /// would match, or is an error with [`Errno::NoMsg`]. `PEEK | CLAIM` also reserves the message
    /// for a receive with the same context and only [`OpFlags::CLAIM`]. [`OpFlags::DISCARD`] with
    /// either flag discards the message.
    ///
    /// # Safety
    /// As [`crate::Msg::recvmsg`].
    unsafe fn trecvmsg(&self, msg: &RecvMsg<'_>, flags: OpFlags) -> Result {
        let _ = (msg, flags);
        Err(Errno::NoSys)
    }

    /// Sends a copy of `buf` (fi_tinject(3), and fi_tinjectdata(3) with `data`). An inject has no
    /// completion.
    ///
    /// # Errors
    /// [`Errno::MsgSize`] for more than `tx_attr.inject_size` bytes; [`Errno::Again`] when a queue is full.
    fn tinject(&self, buf: &[u8], dest: FiAddr, tag: u64, data: Option<u64>) -> Result {
        let _ = (buf, dest, tag, data);
        Err(Errno::NoSys)
    }
}

/// Short forms of [`Tagged`], under the man page's names, with the endpoint's default flags.
pub trait TaggedExt: Tagged {
    /// fi_tsend(3).
    ///
    /// # Safety
    /// As [`crate::Msg::sendmsg`].
    #[inline]
    unsafe fn tsend(
        &self,
        buf: Iov,
        desc: Desc,
        dest: FiAddr,
        tag: u64,
        context: Context,
    ) -> Result {
        // SAFETY: the caller makes the promise of `tsendmsg` for `buf`.
        unsafe { self.tsendv(&[buf], &[desc], dest, tag, context) }
    }

    /// fi_tsendv(3).
    ///
    /// # Safety
    /// As [`crate::Msg::sendmsg`].
    #[inline]
    unsafe fn tsendv(
        &self,
        iov: &[Iov],
        desc: &[Desc],
        dest: FiAddr,
        tag: u64,
        context: Context,
    ) -> Result {
        let msg = SendMsg {
            iov,
            desc,
            dest,
            tag,
            context,
            data: 0,
        };
        // SAFETY: the caller makes the promise of `tsendmsg` for every element of `iov`.
        unsafe { self.tsendmsg(&msg, OpFlags::DEFAULT) }
    }

    /// fi_tsenddata(3): `data` is in the peer's completion.
    ///
    /// # Safety
    /// As [`crate::Msg::sendmsg`].
    #[inline]
    unsafe fn tsenddata(
        &self,
        buf: Iov,
        desc: Desc,
        data: u64,
        dest: FiAddr,
        tag: u64,
        context: Context,
    ) -> Result {
        let msg = SendMsg {
            iov: &[buf],
            desc: &[desc],
            dest,
            tag,
            context,
            data,
        };
        // SAFETY: the caller makes the promise of `tsendmsg` for `buf`.
        unsafe { self.tsendmsg(&msg, OpFlags::DEFAULT | OpFlags::REMOTE_CQ_DATA) }
    }

    /// fi_trecv(3).
    ///
    /// # Safety
    /// As [`crate::Msg::recvmsg`].
    #[inline]
    unsafe fn trecv(
        &self,
        buf: IovMut,
        desc: Desc,
        src: FiAddr,
        tag: TagMatch,
        context: Context,
    ) -> Result {
        // SAFETY: the caller makes the promise of `trecvmsg` for `buf`.
        unsafe { self.trecvv(&[buf], &[desc], src, tag, context) }
    }

    /// fi_trecvv(3).
    ///
    /// # Safety
    /// As [`crate::Msg::recvmsg`].
    #[inline]
    unsafe fn trecvv(
        &self,
        iov: &[IovMut],
        desc: &[Desc],
        src: FiAddr,
        tag: TagMatch,
        context: Context,
    ) -> Result {
        let msg = RecvMsg {
            iov,
            desc,
            src,
            tag,
            context,
        };
        // SAFETY: the caller makes the promise of `trecvmsg` for every element of `iov`.
        unsafe { self.trecvmsg(&msg, OpFlags::DEFAULT) }
    }
}

impl<T: Tagged + ?Sized> TaggedExt for T {}
