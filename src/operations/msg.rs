//! Untagged messages: fi_msg(3).

#![expect(unsafe_code, reason = "the raw API: a post is a promise about memory")]
#![expect(
    clippy::exhaustive_structs,
    reason = "callers and providers write every field, as with the man page's structures"
)]

use crate::{Context, Desc, Errno, FiAddr, Iov, IovMut, OpFlags, Result};

/// A send. The lists are read during the call. The bytes that the lists name are read until the
/// completion.
#[derive(Clone, Copy, Debug)]
pub struct SendMsg<'a> {
    /// The segments of the message, at most `tx_attr.iov_limit`.
    pub iov: &'a [Iov],
    /// Registration descriptors, one for each segment, or empty.
    pub desc: &'a [Desc],
    /// The peer.
    pub dest: FiAddr,
    /// The context of the completion.
    pub context: Context,
    /// Data for the peer's completion, under [`OpFlags::REMOTE_CQ_DATA`].
    pub data: u64,
}

/// A receive. The lists are read during the call. The bytes that `iov` names are accessed until the
/// completion.
#[derive(Clone, Copy, Debug)]
pub struct RecvMsg<'a> {
    /// The segments of the receive buffer, at most `rx_attr.iov_limit`.
    pub iov: &'a [IovMut],
    /// Registration descriptors, one for each segment, or empty.
    pub desc: &'a [Desc],
    /// The only peer from which the receive takes a message, under [`crate::Caps::DIRECTED_RECV`],
    /// or [`FiAddr::UNSPEC`] for any peer.
    pub src: FiAddr,
    /// The context of the completion.
    pub context: Context,
}

/// Sends and receives of untagged messages.
///
/// A post never waits. `Ok` means that the operation was queued. [`Errno::Again`] means that a
/// queue is full: the caller reads the completion queue and retries. After any `Err`, the provider
/// keeps neither the operation nor its buffers. Messages of one endpoint to one peer match receives
/// in the order of their posts ([`crate::MsgOrder::SAS`]).
pub trait Msg {
    /// Posts a send (fi_sendmsg(3)).
    ///
    /// # Safety
    /// Every byte that `msg.iov` names stays valid and unwritten until the completion that carries
    /// `msg.context` has been read or the endpoint has been dropped; with [`OpFlags::INJECT`], until
    /// the call returns.
    unsafe fn sendmsg(&self, msg: &SendMsg<'_>, flags: OpFlags) -> Result {
        let _ = (msg, flags);
        Err(Errno::NoSys)
    }

    /// Posts a receive (fi_recvmsg(3)).
    ///
    /// With [`OpFlags::MULTI_RECV`], one segment receives consecutive messages. The completion of
    /// each message has the message's address ([`crate::cq::Entry::buf`]). The receive ends when
    /// fewer than [`crate::EpOption::MinMultiRecv`] bytes are left.
    ///
    /// # Safety
    /// Every byte that `msg.iov` names stays valid, and the caller neither reads nor writes it,
    /// until the completion that carries `msg.context` has been read or the endpoint has been
    /// dropped. With
    /// [`OpFlags::MULTI_RECV`], this holds until the completion with
    /// [`crate::CompletionFlags::MULTI_RECV`], success or error; the caller may read the bytes of one
    /// message after the completion of that message.
    unsafe fn recvmsg(&self, msg: &RecvMsg<'_>, flags: OpFlags) -> Result {
        let _ = (msg, flags);
        Err(Errno::NoSys)
    }

    /// Sends a copy of `buf` (fi_inject(3), and fi_injectdata(3) with `data`).
    ///
    /// The caller may reuse the buffer after the call. An inject has no completion.
    ///
    /// # Errors
    /// [`Errno::MsgSize`] for more than `tx_attr.inject_size` bytes; [`Errno::Again`] when a queue is full.
    fn inject(&self, buf: &[u8], dest: FiAddr, data: Option<u64>) -> Result {
        let _ = (buf, dest, data);
        Err(Errno::NoSys)
    }
}

/// Short forms of [`Msg`], under the man page's names, with the endpoint's default flags.
///
/// `sendv` and `recvv` take lists of segments. The other methods take one segment.
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

    /// fi_senddata(3): `data` is in the peer's completion.
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
