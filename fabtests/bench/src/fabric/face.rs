//! The two message interfaces, as one shape for the loops.

#![expect(unsafe_code, reason = "the raw face: a post is a promise about memory")]

use selvedge::{Context, Desc, Endpoint, FiAddr, Iov, IovMut, MsgExt, Result, TagMatch, TaggedExt};

/// What a message is for; tagged messages carry it as their tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Is measured.
    Payload = 1,
    /// Closes a window.
    Ack = 2,
}

/// Untagged or tagged messages.
pub(super) trait Face {
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

/// fi_msg(3).
#[derive(Debug)]
pub(super) struct Untagged;

impl Face for Untagged {
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

/// fi_tagged(3).
#[derive(Debug)]
pub(super) struct Tagged;

impl Face for Tagged {
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
