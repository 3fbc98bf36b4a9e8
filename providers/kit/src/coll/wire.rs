//! `Wire` and `Events`: the collective layer's calls to the endpoint below and to the event queue.

#![expect(unsafe_code, reason = "posts to the endpoint below")]

use std::sync::{Arc, Weak};

use selvedge::eq::Event;
use selvedge::shared::SharedBytes;
use selvedge::{Context, FiAddr, OpFlags, Result, TagMatch, eq, tagged};

use super::memory::{iov, iov_mut};
use super::tag::{Number, Purpose};
use crate::eq::Queue;

/// The endpoint below, to which the layer posts.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) inner: Arc<dyn selvedge::Endpoint>,
}

/// A weak reference to the event queue. The queue may hold the endpoint; two strong references
/// would keep both alive.
#[derive(Debug)]
pub(super) struct Events(pub(super) Weak<Queue>);

impl Wire {
    /// Posts a receive for a message of one member.
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
        // SAFETY: the memory belongs to a running collective, a join or a notification. Each keeps
        // it until the receive has completed in `LayerCompletions` or the endpoint is closed;
        // nothing accesses it meanwhile.
        unsafe { self.inner.trecvmsg(&msg, OpFlags::PEER_TRANSFER) }
    }

    /// Posts a receive for a message of any member.
    pub(super) fn receive_any(&self, tag: u64, to: SharedBytes, context: Context) -> Result {
        self.receive(FiAddr::UNSPEC, tag, to, context)
    }

    /// Sends a short message. The send completes in [`LayerCompletions`](super::LayerCompletions)
    /// only if it fails, and may need further progress calls.
    pub(super) fn send_short(
        &self,
        dest: FiAddr,
        tag: u64,
        from: SharedBytes,
        context: Context,
    ) -> Result {
        self.post_send((dest, tag), from, context, OpFlags::INJECT)
    }

    /// Sends a message. The send completes when it needs no further progress calls.
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
        // SAFETY: as in `receive`; the memory of an injected message is copied before the call
        // returns.
        unsafe { self.inner.tsendmsg(&msg, flags | OpFlags::PEER_TRANSFER) }
    }

    /// Cancels the receives with this context that have not matched a message.
    pub(super) fn cancel_all(&self, context: Context) {
        while self.inner.cancel(context).is_ok() {}
    }

    /// Discards one unexpected message with this tag, if there is one.
    pub(super) fn discard_one(&self, tag: TagMatch, number: Number) {
        let msg = tagged::RecvMsg {
            iov: &[],
            desc: &[],
            src: FiAddr::UNSPEC,
            tag,
            context: Purpose::Discard.context(number),
        };
        let flags = OpFlags::PEER_TRANSFER | OpFlags::PEEK | OpFlags::DISCARD;
        // The error of a post is ignored, because the layer discards again after
        // `DISCARD_INTERVAL`.
        // SAFETY: the receive has no memory.
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
