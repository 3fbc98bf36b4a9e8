//! Untagged messages: fi_msg(3).

#![expect(unsafe_code, reason = "the raw face: a post is a promise about memory")]
#![expect(
    clippy::exhaustive_structs,
    reason = "callers and providers write every field, as of the man page's structures"
)]

use crate::{Context, Desc, Errno, FiAddr, Iov, IovMut, OpFlags, Result};

/// One send. The lists are read during the call; the bytes they name, until the completion.
#[derive(Clone, Copy, Debug)]
pub struct SendMsg<'a> {
    /// The pieces of the message, at most `tx_attr.iov_limit`.
    pub iov: &'a [Iov],
    /// Registration descriptors, one per piece, or empty.
    pub desc: &'a [Desc],
    /// The peer.
    pub dest: FiAddr,
    /// Comes back with the completion.
    pub context: Context,
    /// Reaches the peer's completion, under [`OpFlags::REMOTE_CQ_DATA`].
    pub data: u64,
}

/// One receive. The list is read during the call; the bytes it names, until the completion.
#[derive(Clone, Copy, Debug)]
pub struct RecvMsg<'a> {
    /// Where the message goes, at most `rx_attr.iov_limit` pieces.
    pub iov: &'a [IovMut],
    /// Registration descriptors, one per piece, or empty.
    pub desc: &'a [Desc],
    /// The only peer to receive from, under [`crate::Caps::DIRECTED_RECV`], or
    /// [`FiAddr::UNSPEC`] for any.
    pub src: FiAddr,
    /// Comes back with the completion.
    pub context: Context,
}

/// Sends and receives of untagged messages.
///
/// Every post answers at once: `Ok` means queued, [`Errno::Again`] that a queue is full and the
/// completion queue must be read before the next try. On any `Err` nothing was kept.
/// Messages of one endpoint to one peer meet receives in the order of their posts
/// ([`crate::MsgOrder::SAS`]).
pub trait Msg {
    /// Posts a send (fi_sendmsg(3)).
    ///
    /// # Safety
    /// Every byte named by `msg.iov` stays valid and unwritten until the completion that carries
    /// `msg.context` has been read or the endpoint has been dropped. With [`OpFlags::INJECT`]
    /// until the call returns.
    unsafe fn sendmsg(&self, msg: &SendMsg<'_>, flags: OpFlags) -> Result {
        let _ = (msg, flags);
        Err(Errno::NoSys)
    }

    /// Posts a receive (fi_recvmsg(3)).
    ///
    /// With [`OpFlags::MULTI_RECV`] one piece of memory takes one message behind the other, each with
    /// a completion that says where it is ([`crate::cq::Entry::buf`]), until less than
    /// [`crate::EpOption::MinMultiRecv`] is left.
    ///
    /// # Safety
    /// Every byte named by `msg.iov` stays valid, and is neither read nor written by the caller,
    /// until the completion that carries `msg.context` has been read or the endpoint has been
    /// dropped. With [`OpFlags::MULTI_RECV`] until the completion with
    /// [`crate::CompletionFlags::MULTI_RECV`], success or error; but the bytes of a message that a
    /// completion names may be read from then on.
    unsafe fn recvmsg(&self, msg: &RecvMsg<'_>, flags: OpFlags) -> Result {
        let _ = (msg, flags);
        Err(Errno::NoSys)
    }

    /// Sends a copy of `buf` (fi_inject(3), and fi_injectdata(3) with `data`).
    ///
    /// The buffer is the caller's again at return; there is no completion.
    ///
    /// # Errors
    /// [`Errno::MsgSize`] above `tx_attr.inject_size`; [`Errno::Again`] when a queue is full.
    fn inject(&self, buf: &[u8], dest: FiAddr, data: Option<u64>) -> Result {
        let _ = (buf, dest, data);
        Err(Errno::NoSys)
    }
}

/// Short forms of [`Msg`], under the man page's names, with the endpoint's default flags.
///
/// `sendv` and `recvv` are [`Msg::sendmsg`] and [`Msg::recvmsg`] with the flags of
/// `tx_attr.op_flags`; they differ from the short forms here only in their lists.
pub trait MsgExt: Msg {
    /// fi_send(3).
    ///
    /// # Safety
    /// As [`Msg::sendmsg`].
    #[inline]
    unsafe fn send(&self, buf: Iov, desc: Desc, dest: FiAddr, context: Context) -> Result {
        // SAFETY: the caller makes the promise of `sendmsg` for `buf`.
        unsafe { self.sendv(&[buf], &[desc], dest, context) }
    }

    /// fi_sendv(3).
    ///
    /// # Safety
    /// As [`Msg::sendmsg`].
    #[inline]
    unsafe fn sendv(&self, iov: &[Iov], desc: &[Desc], dest: FiAddr, context: Context) -> Result {
        let msg = SendMsg {
            iov,
            desc,
            dest,
            context,
            data: 0,
        };
        // SAFETY: the caller makes the promise of `sendmsg` for every element of `iov`.
        unsafe { self.sendmsg(&msg, OpFlags::DEFAULT) }
    }

    /// fi_senddata(3): `data` reaches the peer's completion.
    ///
    /// # Safety
    /// As [`Msg::sendmsg`].
    #[inline]
    unsafe fn senddata(
        &self,
        buf: Iov,
        desc: Desc,
        data: u64,
        dest: FiAddr,
        context: Context,
    ) -> Result {
        let msg = SendMsg {
            iov: &[buf],
            desc: &[desc],
            dest,
            context,
            data,
        };
        // SAFETY: the caller makes the promise of `sendmsg` for `buf`.
        unsafe { self.sendmsg(&msg, OpFlags::DEFAULT | OpFlags::REMOTE_CQ_DATA) }
    }

    /// fi_recv(3).
    ///
    /// # Safety
    /// As [`Msg::recvmsg`].
    #[inline]
    unsafe fn recv(&self, buf: IovMut, desc: Desc, src: FiAddr, context: Context) -> Result {
        // SAFETY: the caller makes the promise of `recvmsg` for `buf`.
        unsafe { self.recvv(&[buf], &[desc], src, context) }
    }

    /// fi_recvv(3).
    ///
    /// # Safety
    /// As [`Msg::recvmsg`].
    #[inline]
    unsafe fn recvv(&self, iov: &[IovMut], desc: &[Desc], src: FiAddr, context: Context) -> Result {
        let msg = RecvMsg {
            iov,
            desc,
            src,
            context,
        };
        // SAFETY: the caller makes the promise of `recvmsg` for every element of `iov`.
        unsafe { self.recvmsg(&msg, OpFlags::DEFAULT) }
    }
}

impl<T: Msg + ?Sized> MsgExt for T {}
