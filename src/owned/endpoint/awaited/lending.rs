//! Lent messages of the [`AsyncEndpoint`].

use std::pin::Pin;
use std::task::{self, Poll};

use super::async_endpoint::AsyncEndpoint;
use super::operation::{Operation, Sending};
use crate::owned::endpoint::post::{Operands, Post};
use crate::owned::{Buf, OpError, Received, SharedBuf, View};
use crate::{FiAddr, TagMatch};

/// Future of a receive that accepts lent messages. Resolves to the message and its metadata.
#[derive(Debug)]
#[must_use = "nothing is received before the future is polled"]
pub struct Viewing<'a>(pub(super) Operation<'a>);

impl Future for Viewing<'_> {
    type Output = Result<(View, Received), OpError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        let outcome = self.0.poll(cx);
        outcome.map_ok(|(_, buf, received)| (View::from(buf), received))
    }
}

/// Lent messages, as of [`crate::owned::Endpoint`].
impl AsyncEndpoint {
    /// Lends the message in `buf`: see [`crate::owned::Endpoint::lend`]. Resolves to the buffer.
    pub fn lend(&self, buf: Buf, dest: FiAddr) -> Sending<'_> {
        self.sending(self.lending_post(dest, None), buf)
    }

    /// As [`Self::lend`], for a receive that accepts `tag`.
    pub fn tlend(&self, buf: Buf, dest: FiAddr, tag: u64) -> Sending<'_> {
        self.sending(self.lending_post(dest, Some(tag)), buf)
    }

    /// Lends the message in a shared buffer: see [`crate::owned::Endpoint::lend_shared`]. Resolves
    /// to a buffer of capacity 0; the operation uses the shared buffer until it is dropped.
    pub fn lend_shared(&self, buf: &SharedBuf, dest: FiAddr) -> Sending<'_> {
        self.sending(self.lending_post(dest, None), buf.lendable())
    }

    /// As [`Self::lend_shared`], for a receive that accepts `tag`.
    pub fn tlend_shared(&self, buf: &SharedBuf, dest: FiAddr, tag: u64) -> Sending<'_> {
        self.sending(self.lending_post(dest, Some(tag)), buf.lendable())
    }

    /// Receives a message by reference, if its sender lends it, and otherwise into `buf`: see
    /// [`crate::owned::Endpoint::recv_lent`].
    pub fn recv_lent(&self, buf: Buf, src: FiAddr) -> Viewing<'_> {
        let (tag, flags) = (None, self.core.endpoint().lent_receive_flags());
        self.viewing(Post::Recv { src, tag, flags }, buf)
    }

    /// As [`Self::recv_lent`], for a message with an accepted tag.
    pub fn trecv_lent(&self, buf: Buf, src: FiAddr, tag: impl Into<TagMatch>) -> Viewing<'_> {
        let flags = self.core.endpoint().lent_receive_flags();
        self.viewing(Post::trecv(src, tag.into(), flags), buf)
    }

    fn lending_post(&self, dest: FiAddr, tag: Option<u64>) -> Post {
        let is_lent = self.core.endpoint().can_lend();
        Post::Lend { dest, tag, is_lent }
    }

    fn viewing(&self, post: Post, buf: Buf) -> Viewing<'_> {
        Viewing(Operation::new(&self.core, post, Operands::NONE, buf))
    }
}
