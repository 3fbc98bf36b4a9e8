//! Messages that are gathered from several buffers, of [`Endpoint`] and [`AsyncEndpoint`].

use super::post::Post;
use super::{AsyncEndpoint, Endpoint, Sending};
use crate::owned::Buf;
use crate::owned::completion::{Handle, TryPostError};
use crate::{Context, FiAddr};

/// Gathered messages: a header and a body need no copy into one buffer.
///
/// One completion, or the error of the post, returns all buffers of the message: its buffer has
/// capacity 0 and holds them ([`Buf::into_segments`]). Such an operation allocates memory.
impl Endpoint {
    /// Sends the bytes of `head` and then those of each buffer of `rest` as one message
    /// (fi_sendv(3)).
    ///
    /// # Errors
    /// As [`Self::send`]; [`crate::Errno::Inval`] for more buffers than `tx_attr.iov_limit`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use selvedge::owned::{Buf, Completion, Endpoint, TryPostError};
    /// use selvedge::{Context, FiAddr};
    ///
    /// fn send(ep: &Endpoint, header: Buf, body: Buf, peer: FiAddr) -> Result<(), TryPostError> {
    ///     ep.sendv(header, vec![body], peer, Context(1))?;
    ///     Ok(())
    /// }
    ///
    /// fn sent(completion: Completion) {
    ///     for buf in completion.buf.into_segments() {
    ///         drop(buf); // first the header, then the body
    ///     }
    /// }
    /// ```
    pub fn sendv(
        &self,
        head: Buf,
        rest: Vec<Buf>,
        dest: FiAddr,
        context: Context,
    ) -> Result<Handle, TryPostError> {
        self.post(Post::gather(dest, None), head.gathered(rest), context)
    }

    /// As [`Self::sendv`], to a receive that accepts `tag` (fi_tsendv(3)).
    ///
    /// # Errors
    /// As [`Self::sendv`].
    pub fn tsendv(
        &self,
        head: Buf,
        rest: Vec<Buf>,
        dest: FiAddr,
        tag: u64,
        context: Context,
    ) -> Result<Handle, TryPostError> {
        self.post(Post::gather(dest, Some(tag)), head.gathered(rest), context)
    }
}

/// Gathered messages, as of [`Endpoint`].
impl AsyncEndpoint {
    /// Sends the bytes of several buffers as one message: see [`Endpoint::sendv`].
    /// Resolves to a buffer that holds them ([`Buf::into_segments`]).
    pub fn sendv(&self, head: Buf, rest: Vec<Buf>, dest: FiAddr) -> Sending<'_> {
        self.sending(Post::gather(dest, None), head.gathered(rest))
    }

    /// As [`Self::sendv`], to a receive that accepts `tag` (fi_tsendv(3)).
    pub fn tsendv(&self, head: Buf, rest: Vec<Buf>, dest: FiAddr, tag: u64) -> Sending<'_> {
        self.sending(Post::gather(dest, Some(tag)), head.gathered(rest))
    }
}
