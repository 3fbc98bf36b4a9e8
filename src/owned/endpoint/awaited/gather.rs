//! Messages of the [`AsyncEndpoint`] that are gathered from several buffers.

use super::async_endpoint::AsyncEndpoint;
use super::operation::Sending;
use crate::FiAddr;
use crate::owned::Buf;
use crate::owned::endpoint::post::Post;

/// Gathered messages, as of [`crate::owned::Endpoint`].
impl AsyncEndpoint {
    /// Sends the bytes of several buffers as one message: see [`crate::owned::Endpoint::sendv`].
    /// Resolves to a buffer that holds them ([`Buf::into_segments`]).
    pub fn sendv(&self, head: Buf, rest: Vec<Buf>, dest: FiAddr) -> Sending<'_> {
        self.sending(Post::gather(dest, None), head.gathered(rest))
    }

    /// As [`Self::sendv`], to a receive that accepts `tag` (fi_tsendv(3)).
    pub fn tsendv(&self, head: Buf, rest: Vec<Buf>, dest: FiAddr, tag: u64) -> Sending<'_> {
        self.sending(Post::gather(dest, Some(tag)), head.gathered(rest))
    }
}
