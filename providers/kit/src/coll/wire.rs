//! The endpoint below and the event queue, as far as the layer uses them.

#![expect(unsafe_code, reason = "posts to the endpoint below")]

use std::sync::{Arc, Weak};

use selvedge::eq::Event;
use selvedge::shared::SharedBytes;
use selvedge::{Context, FiAddr, OpFlags, Result, TagMatch, eq, tagged};

use super::memory::{iov, iov_mut};
use super::tag::{Number, Purpose};
use crate::eq::Queue;

/// The endpoint below, as far as the layer posts to it.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) inner: Arc<dyn selvedge::Endpoint>,
}

/// The event queue, which may hold the endpoint and so is not held by it.
#[derive(Debug)]
pub(super) struct Events(pub(super) Weak<Queue>);

impl Wire {
    /// Posts a receive for one member's message.
    pub(super) fn receive(
        &self,
        src: FiAddr,
        tag: u64,
        to: SharedBytes,
        context: Context,
    ) -> Result {
        let msg = tagged::RecvMsg {
            iov: &[iov_mut(to)],
            desc: &[],
            src,
            tag: TagMatch::exact(tag),
            context,
        };
        // SAFETY: the memory is a running collective's, a join's or a notice's, which are kept until
        // the mailbox has said that the receive is over, or the endpoint is closed; nothing touches
        // it meanwhile.
        unsafe { self.inner.trecvmsg(&msg, OpFlags::PEER_TRANSFER) }
    }

    /// Posts a receive for anybody's.
    pub(super) fn receive_any(&self, tag: u64, to: SharedBytes, context: Context) -> Result {
        self.receive(FiAddr::UNSPEC, tag, to, context)
    }

    /// Sends a short message, of which the mailbox tells only if it fails. It may need more progress
    /// before it leaves.
    pub(super) fn send_short(
        &self,
        dest: FiAddr,
        tag: u64,
        from: SharedBytes,
        context: Context,
    ) -> Result {
        self.post_send((dest, tag), from, context, OpFlags::INJECT)
    }

    /// Sends, and has the mailbox tell when the message leaves without our help.
    pub(super) fn send(
        &self,
        dest: FiAddr,
        tag: u64,
        from: SharedBytes,
        context: Context,
    ) -> Result {
        self.post_send((dest, tag), from, context, OpFlags::empty())
    }

    fn post_send(
        &self,
        (dest, tag): (FiAddr, u64),
        from: SharedBytes,
        context: Context,
        flags: OpFlags,
    ) -> Result {
        let msg = tagged::SendMsg {
            iov: &[iov(from)],
            desc: &[],
            dest,
            tag,
            context,
            data: 0,
        };
        // SAFETY: as for receives; a message that is injected is copied before the call returns.
        unsafe { self.inner.tsendmsg(&msg, flags | OpFlags::PEER_TRANSFER) }
    }

    /// Takes the receives with a context back that have met no message.
    pub(super) fn cancel_all(&self, context: Context) {
        while self.inner.cancel(context).is_ok() {}
    }

    /// Drops a message that waits, if there is one.
    pub(super) fn discard_one(&self, tag: TagMatch, number: Number) {
        let msg = tagged::RecvMsg {
            iov: &[],
            desc: &[],
            src: FiAddr::UNSPEC,
            tag,
            context: Purpose::Discard.context(number),
        };
        let flags = OpFlags::PEER_TRANSFER | OpFlags::PEEK | OpFlags::DISCARD;
        // If it is not taken, the next look comes by itself.
        // SAFETY: there is no memory.
        let _ = unsafe { self.inner.trecvmsg(&msg, flags) };
    }
}

impl Events {
    pub(super) fn push(&self, event: Event) {
        if let Some(queue) = self.0.upgrade() {
            queue.push(event);
        }
    }

    pub(super) fn push_err(&self, error: eq::ErrEntry) {
        if let Some(queue) = self.0.upgrade() {
            queue.push_err(error);
        }
    }
}
