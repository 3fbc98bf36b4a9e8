//! The untagged and the tagged message API under one trait, for the benchmark loops.

#![expect(unsafe_code, reason = "a post is a promise about memory")]

use selvedge::{Context, Desc, Endpoint, FiAddr, Iov, IovMut, MsgExt, Result, TagMatch, TaggedExt};

/// Purpose of a message. The tag of a tagged message contains the purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::fabric) enum Purpose {
    /// A message whose transfer is measured.
    Payload = 1,
    /// The acknowledgement of a window.
    Ack = 2,
}

/// The bits of a tag that name a channel.
pub(in crate::fabric) const fn channel_tag(channel: usize) -> u64 {
    (channel as u64) << CHANNEL_SHIFT
}

/// Position of the channel in a tag, above the bits of [`Purpose`].
pub(in crate::fabric) const CHANNEL_SHIFT: u32 = 8;

/// The API of untagged or tagged messages.
pub(in crate::fabric) trait MessageApi {
    /// # Safety
    /// As [`selvedge::Msg::sendmsg`].
    unsafe fn send(ep: &dyn Endpoint, buf: Iov, dest: FiAddr, tag: u64, context: Context)
    -> Result;

    /// # Safety
    /// As [`selvedge::Msg::recvmsg`].
    unsafe fn recv(ep: &dyn Endpoint, buf: IovMut, tag: TagMatch, context: Context) -> Result;

    /// Sends a copy.
    fn inject(ep: &dyn Endpoint, buf: &[u8], dest: FiAddr, tag: u64) -> Result;
}

/// Untagged messages, fi_msg(3).
#[derive(Debug)]
pub(in crate::fabric) struct Untagged;

impl MessageApi for Untagged {
    #[inline]
    unsafe fn send(
        ep: &dyn Endpoint,
        buf: Iov,
        dest: FiAddr,
        _tag: u64,
        context: Context,
    ) -> Result {
        // SAFETY: the caller makes the promise of `sendmsg`.
        unsafe { ep.send(buf, Desc::NONE, dest, context) }
    }

    #[inline]
    unsafe fn recv(ep: &dyn Endpoint, buf: IovMut, _tag: TagMatch, context: Context) -> Result {
        // SAFETY: the caller makes the promise of `recvmsg`.
        unsafe { ep.recv(buf, Desc::NONE, FiAddr::UNSPEC, context) }
    }

    #[inline]
    fn inject(ep: &dyn Endpoint, buf: &[u8], dest: FiAddr, _tag: u64) -> Result {
        ep.inject(buf, dest, None)
    }
}

/// Tagged messages, fi_tagged(3).
#[derive(Debug)]
pub(in crate::fabric) struct Tagged;

impl MessageApi for Tagged {
    #[inline]
    unsafe fn send(
        ep: &dyn Endpoint,
        buf: Iov,
        dest: FiAddr,
        tag: u64,
        context: Context,
    ) -> Result {
        // SAFETY: the caller makes the promise of `tsendmsg`.
        unsafe { ep.tsend(buf, Desc::NONE, dest, tag, context) }
    }

    #[inline]
    unsafe fn recv(ep: &dyn Endpoint, buf: IovMut, tag: TagMatch, context: Context) -> Result {
        // SAFETY: the caller makes the promise of `trecvmsg`.
        unsafe { ep.trecv(buf, Desc::NONE, FiAddr::UNSPEC, tag, context) }
    }

    #[inline]
    fn inject(ep: &dyn Endpoint, buf: &[u8], dest: FiAddr, tag: u64) -> Result {
        ep.tinject(buf, dest, tag, None)
    }
}
