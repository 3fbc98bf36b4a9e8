//! Lent messages of the polled [`Endpoint`].

use super::Endpoint;
use super::post::Post;
use crate::owned::completion::{Completion, Handle, TryPostError};
use crate::owned::{Buf, Received, SharedBuf, View};
use crate::{Context, FiAddr, TagMatch, cq};

/// Lent messages: see [`crate::lending`] and [`View`].
///
/// The same calls work with every provider. A provider that cannot pass a message by reference
/// sends a lent message as an ordinary one, and a view then owns the buffer of its receive.
impl Endpoint {
    /// Lends the message in `buf`. The completion returns `buf` when the peer has given the message
    /// back, or has copied it into the buffer of an ordinary receive.
    ///
    /// The message is lent if the provider can lend and `buf` is from [`super::super::Pool::special`].
    /// Otherwise it is sent as by [`Self::send`].
    ///
    /// # Errors
    /// As [`Self::send`]; [`crate::Errno::Again`] also when too many messages are lent to the peer.
    pub fn lend(&self, buf: Buf, dest: FiAddr, context: Context) -> Result<Handle, TryPostError> {
        self.post(self.lending_post(dest, None), buf, context)
    }

    /// As [`Self::lend`], for a receive that accepts `tag`.
    ///
    /// # Errors
    /// As [`Self::lend`].
    pub fn tlend(
        &self,
        buf: Buf,
        dest: FiAddr,
        tag: u64,
        context: Context,
    ) -> Result<Handle, TryPostError> {
        self.post(self.lending_post(dest, Some(tag)), buf, context)
    }

    /// Lends the message in a shared buffer, as [`Self::lend`]: several peers, or one several times,
    /// may read it at the same time. The completion has a buffer of capacity 0, and the operation
    /// uses the shared buffer until that one is dropped.
    ///
    /// # Errors
    /// As [`Self::lend`]; the error returns a buffer of capacity 0.
    pub fn lend_shared(
        &self,
        buf: &SharedBuf,
        dest: FiAddr,
        context: Context,
    ) -> Result<Handle, TryPostError> {
        self.post(self.lending_post(dest, None), buf.lendable(), context)
    }

    /// As [`Self::lend_shared`], for a receive that accepts `tag`.
    ///
    /// # Errors
    /// As [`Self::lend_shared`].
    pub fn tlend_shared(
        &self,
        buf: &SharedBuf,
        dest: FiAddr,
        tag: u64,
        context: Context,
    ) -> Result<Handle, TryPostError> {
        self.post(self.lending_post(dest, Some(tag)), buf.lendable(), context)
    }

    /// Receives a message by reference, if its sender lends it, and otherwise into `buf`; `src` as
    /// in [`Self::recv`]. [`Completion::into_view`] returns the message. A lent message may be
    /// longer than `buf`.
    ///
    /// # Errors
    /// As [`Self::recv`].
    pub fn recv_lent(
        &self,
        buf: Buf,
        src: FiAddr,
        context: Context,
    ) -> Result<Handle, TryPostError> {
        let (tag, flags) = (None, self.core.lent_receive_flags());
        self.post(Post::Recv { src, tag, flags }, buf, context)
    }

    /// As [`Self::recv_lent`], for a message whose tag `tag` accepts.
    ///
    /// # Errors
    /// As [`Self::recv`].
    pub fn trecv_lent(
        &self,
        buf: Buf,
        src: FiAddr,
        tag: impl Into<TagMatch>,
        context: Context,
    ) -> Result<Handle, TryPostError> {
        let flags = self.core.lent_receive_flags();
        self.post(Post::trecv(src, tag.into(), flags), buf, context)
    }

    /// As [`Self::recv_claimed`], by reference if the sender lends the message.
    ///
    /// # Errors
    /// As [`Self::recv_claimed`].
    pub fn recv_claimed_lent(
        &self,
        claim: Handle,
        buf: Buf,
        context: Context,
    ) -> Result<(), TryPostError> {
        let post = Post::claimed(self.core.lent_receive_flags());
        self.core.post_claimed(claim.0, post, buf, context)
    }

    fn lending_post(&self, dest: FiAddr, tag: Option<u64>) -> Post {
        let is_lent = self.core.can_lend();
        Post::Lend { dest, tag, is_lent }
    }
}

impl Completion {
    /// Returns the message of a lending receive ([`Endpoint::recv_lent`]).
    ///
    /// # Errors
    /// The error of the operation.
    pub fn into_view(self) -> Result<(View, Received), Box<cq::ErrEntry>> {
        let received = self.result?;
        Ok((View::from(self.buf), received))
    }
}
