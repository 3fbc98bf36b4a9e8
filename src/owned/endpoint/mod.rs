//! The endpoint of the safe layer that is polled.

mod backlog;
mod claim;
mod future;
mod messages;
mod operation;
mod port;
mod post;
mod remote;
mod sleep;
pub(super) mod slots;
mod stage;
mod told;

pub use claim::{Claim, Claiming};
pub use future::AsyncEndpoint;
pub use messages::Messages;
pub use operation::{Receiving, Sending};
pub use remote::Remote;

use std::sync::Arc;

use self::port::{Deliver, Finished, Port};
use self::post::{Operands, Post};
use super::{Buf, Completion, Completions, Handle, Refused};
use crate::atomic::{Family, Target};
use crate::{
    Address, AddressVector, Context, Domain, EpOption, Error, FiAddr, Info, OpFlags, Result,
    ScalableEndpoint, TagMatch, wait,
};

/// An endpoint that is posted to and polled.
///
/// A post moves its buffer in. It comes back with the [`Completion`] that carries the post's
/// `context`, or at once in [`Refused`]. As many operations may be outstanding as the attributes'
/// `tx_attr.size` and `rx_attr.size` say together; posts beyond are refused with
/// [`crate::Errno::Again`].
///
/// It may be shared between threads. Dropping it closes it: the buffers of outstanding operations
/// return to their pools, without completions.
///
/// # Examples
///
/// See the [module](super).
#[derive(Debug)]
pub struct Endpoint {
    port: Port<Context>,
}

impl Endpoint {
    /// Opens an endpoint with a completion queue of its own (fi_endpoint(3), fi_cq(3)).
    ///
    /// # Errors
    /// Those of [`Domain::cq`] and [`Domain::endpoint`]; [`crate::Errno::Inval`] when `info.mode` asks
    /// for a duty that this layer does not do.
    pub fn open(
        domain: &dyn Domain,
        info: &Info,
        av: Arc<dyn AddressVector>,
    ) -> Result<Self, Error> {
        let port = Port::open(domain, info, av, wait::Object::None)?;
        Ok(Self { port })
    }

    /// Opens a context of a scalable endpoint of the domain.
    ///
    /// # Errors
    /// As [`ScalableEndpoint::context`] and [`Self::open`].
    pub fn open_context(
        domain: &dyn Domain,
        (sep, index): (&dyn ScalableEndpoint, usize),
        info: &Info,
        av: Arc<dyn AddressVector>,
    ) -> Result<Self, Error> {
        let context = |bind| sep.context(index, info, bind);
        let port = Port::around(domain, info, av, wait::Object::None, context)?;
        Ok(Self { port })
    }

    /// The address that peers insert (fi_getname(3)).
    ///
    /// # Errors
    /// [`crate::Errno::AddrNotAvail`] where it has none.
    pub fn address(&self) -> Result<Address> {
        self.port.address()
    }

    /// Sends the message in `buf` (fi_send(3)).
    ///
    /// # Errors
    /// [`crate::Errno::Again`] when a queue is full: poll and try again. Others as the provider says;
    /// [`crate::Errno::NoSys`] where it has no messages.
    pub fn send(&self, buf: Buf, dest: FiAddr, context: Context) -> Result<Handle, Refused> {
        let (tag, data) = (None, None);
        self.post(Post::Send { dest, tag, data }, buf, context)
    }

    /// Sends the message in `buf`, and `data` to the peer's completion (fi_senddata(3)).
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn senddata(
        &self,
        buf: Buf,
        data: u64,
        dest: FiAddr,
        context: Context,
    ) -> Result<Handle, Refused> {
        let (tag, data) = (None, Some(data));
        self.post(Post::Send { dest, tag, data }, buf, context)
    }

    /// Receives a message into `buf` (fi_recv(3)), from `src` alone under
    /// [`crate::Caps::DIRECTED_RECV`], or from any peer with [`FiAddr::UNSPEC`].
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn recv(&self, buf: Buf, src: FiAddr, context: Context) -> Result<Handle, Refused> {
        self.post(Post::recv(src), buf, context)
    }

    /// Sends the message in `buf` to a receive that accepts `tag` (fi_tsend(3)).
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn tsend(
        &self,
        buf: Buf,
        dest: FiAddr,
        tag: u64,
        context: Context,
    ) -> Result<Handle, Refused> {
        let (tag, data) = (Some(tag), None);
        self.post(Post::Send { dest, tag, data }, buf, context)
    }

    /// As [`Self::tsend`], with `data` for the peer's completion (fi_tsenddata(3)).
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn tsenddata(
        &self,
        buf: Buf,
        data: u64,
        dest: FiAddr,
        tag: u64,
        context: Context,
    ) -> Result<Handle, Refused> {
        let (tag, data) = (Some(tag), Some(data));
        self.post(Post::Send { dest, tag, data }, buf, context)
    }

    /// Receives a message with an accepted tag into `buf` (fi_trecv(3)); `src` as in
    /// [`Self::recv`].
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn trecv(
        &self,
        buf: Buf,
        src: FiAddr,
        tag: impl Into<TagMatch>,
        context: Context,
    ) -> Result<Handle, Refused> {
        let what = Post::trecv(src, tag.into(), OpFlags::empty());
        self.post(what, buf, context)
    }

    /// Receives messages into `buf`, one behind the other, until little of it is left (fi_recvmsg(3)
    /// with `FI_MULTI_RECV`); `src` as in [`Self::recv`], `tag` for tagged messages.
    ///
    /// Each message has a completion with this `context`, whose buffer is the part of `buf` that the
    /// message has, and no more. The last one says [`crate::CompletionFlags::MULTI_RECV`], be it in
    /// [`super::Received::flags`] or in those of an error's entry; post another buffer then. `buf`
    /// returns to its pool when that has come and all parts are dropped.
    /// [`crate::EpOption::MinMultiRecv`] sets what is little ([`Self::set`]).
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn recv_multi(
        &self,
        buf: Buf,
        src: FiAddr,
        tag: Option<TagMatch>,
        context: Context,
    ) -> Result<Handle, Refused> {
        let flags = OpFlags::MULTI_RECV;
        self.post(Post::Recv { src, tag, flags }, buf, context)
    }

    /// Looks for the message that [`Self::trecv`] would take (fi_trecvmsg(3) with `FI_PEEK`). `buf`
    /// is not used, and comes back with the completion: with the tag, data, source and length of the
    /// message, or [`crate::Errno::NoMsg`].
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn tpeek(
        &self,
        buf: Buf,
        src: FiAddr,
        tag: impl Into<TagMatch>,
        context: Context,
    ) -> Result<Handle, Refused> {
        let flags = OpFlags::PEEK;
        self.post(Post::trecv(src, tag.into(), flags), buf, context)
    }

    /// As [`Self::tpeek`], and drops the message (`FI_DISCARD`).
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn tdiscard(
        &self,
        buf: Buf,
        src: FiAddr,
        tag: impl Into<TagMatch>,
        context: Context,
    ) -> Result<Handle, Refused> {
        let flags = OpFlags::PEEK | OpFlags::DISCARD;
        self.post(Post::trecv(src, tag.into(), flags), buf, context)
    }

    /// As [`Self::tpeek`], and sets the message aside (`FI_CLAIM`) for [`Self::recv_claimed`] or
    /// [`Self::discard_claimed`] with the handle that this call gives: no other receive takes it.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn tclaim(
        &self,
        buf: Buf,
        src: FiAddr,
        tag: impl Into<TagMatch>,
        context: Context,
    ) -> Result<Handle, Refused> {
        let flags = OpFlags::PEEK | OpFlags::CLAIM;
        self.post(Post::trecv(src, tag.into(), flags), buf, context)
    }

    /// Receives the message that was claimed by the call that gave this handle, into `buf`.
    ///
    /// # Errors
    /// As [`Self::send`]; [`crate::Errno::NoMsg`] for a handle whose claim has not completed, has
    /// found nothing, or was used before.
    pub fn recv_claimed(&self, claim: Handle, buf: Buf, context: Context) -> Result<(), Refused> {
        let what = Post::claimed(OpFlags::empty());
        self.port.redeem(claim.0, what, buf, context)
    }

    /// Drops the message that was claimed by the call that gave this handle. `buf` is not used, and
    /// comes back with the completion.
    ///
    /// # Errors
    /// As [`Self::recv_claimed`].
    pub fn discard_claimed(
        &self,
        claim: Handle,
        buf: Buf,
        context: Context,
    ) -> Result<(), Refused> {
        let what = Post::claimed(OpFlags::DISCARD);
        self.port.redeem(claim.0, what, buf, context)
    }

    /// Changes an option (fi_setopt(3)).
    ///
    /// # Errors
    /// [`crate::Errno::NoProtoOpt`] where the option is unknown; [`crate::Errno::Inval`] for a bad
    /// value.
    pub fn set(&self, option: EpOption) -> Result {
        self.port.set(option)
    }

    /// Sends a copy of `bytes` (fi_inject(3), and fi_injectdata(3) with `data`): no buffer, no
    /// completion.
    ///
    /// # Errors
    /// [`crate::Errno::MsgSize`] above `tx_attr.inject_size`; [`crate::Errno::Again`] when a queue is full.
    pub fn inject(&self, bytes: &[u8], dest: FiAddr, data: Option<u64>) -> Result {
        self.port.inject(bytes, dest, data)
    }

    /// As [`Self::inject`], tagged (fi_tinject(3), and fi_tinjectdata(3) with `data`).
    ///
    /// # Errors
    /// As [`Self::inject`].
    pub fn tinject(&self, bytes: &[u8], dest: FiAddr, tag: u64, data: Option<u64>) -> Result {
        self.port.tinject(bytes, dest, tag, data)
    }

    /// Writes the message in `buf` to a peer's memory (fi_write(3)).
    ///
    /// # Errors
    /// As [`Self::send`]. What the peer does not allow is reported by the completion.
    pub fn write(&self, buf: Buf, to: Remote, context: Context) -> Result<Handle, Refused> {
        let data = None;
        self.post(Post::Write { to, data }, buf, context)
    }

    /// The same, with `data` for a completion of the peer's (fi_writedata(3)).
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn writedata(
        &self,
        buf: Buf,
        data: u64,
        to: Remote,
        context: Context,
    ) -> Result<Handle, Refused> {
        let data = Some(data);
        self.post(Post::Write { to, data }, buf, context)
    }

    /// Reads a peer's memory into `buf` (fi_read(3)), as many bytes as its length says.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn read(&self, buf: Buf, from: Remote, context: Context) -> Result<Handle, Refused> {
        self.post(Post::Read { from }, buf, context)
    }

    /// Writes a copy of `bytes` to a peer's memory (fi_inject_write(3), and fi_inject_writedata(3)
    /// with `data`): no buffer, no completion.
    ///
    /// # Errors
    /// As [`crate::Rma::inject_write`].
    pub fn inject_write(&self, bytes: &[u8], to: Remote, data: Option<u64>) -> Result {
        self.port.inject_write(bytes, to, data)
    }

    /// Changes a peer's memory by the operands in `buf`, as many elements as there are
    /// (fi_atomic(3)).
    ///
    /// # Errors
    /// As [`Self::send`]; [`crate::Errno::Inval`] when the bytes are no whole elements,
    /// [`crate::Errno::OpNotSupp`] where the operation is not carried. What the peer does not allow
    /// is reported by the completion.
    pub fn atomic(&self, buf: Buf, target: Target, context: Context) -> Result<Handle, Refused> {
        let family = Family::Base;
        self.post(Post::Atomic { family, target }, buf, context)
    }

    /// Changes a peer's memory by a copy of `operand`, and puts what was there before into `buf`
    /// (fi_fetch_atomic(3)). An [`crate::atomic::Op::AtomicRead`] takes no operand, and reads as many
    /// elements as the length of `buf` says.
    ///
    /// # Errors
    /// As [`Self::atomic`]; [`crate::Errno::TooSmall`] when `buf` has too little room.
    pub fn fetch_atomic(
        &self,
        buf: Buf,
        operand: &[u8],
        target: Target,
        context: Context,
    ) -> Result<Handle, Refused> {
        let operands = Operands {
            operand,
            ..Operands::NONE
        };
        let family = Family::Fetch;
        self.post_with(Post::Atomic { family, target }, operands, buf, context)
    }

    /// Compares a peer's memory with `compare` and changes it by a copy of `operand` where that says
    /// so; puts what was there before into `buf` (fi_compare_atomic(3)).
    ///
    /// # Errors
    /// As [`Self::fetch_atomic`].
    pub fn compare_atomic(
        &self,
        buf: Buf,
        operand: &[u8],
        compare: &[u8],
        target: Target,
        context: Context,
    ) -> Result<Handle, Refused> {
        let operands = Operands { operand, compare };
        let family = Family::Compare;
        self.post_with(Post::Atomic { family, target }, operands, buf, context)
    }

    /// Changes a peer's memory by a copy of `operand` (fi_inject_atomic(3)): no buffer, no
    /// completion.
    ///
    /// # Errors
    /// As [`crate::Atomic::inject_atomic`].
    pub fn inject_atomic(&self, operand: &[u8], target: Target) -> Result {
        self.port.inject_atomic(operand, &target)
    }

    /// Drives progress, adds completions to `done` while there is room, and says how many it
    /// holds now. What `done` held before stays in front. One call reads a bounded number, and
    /// never waits.
    ///
    /// Peers' accesses to this side's [`super::Window`]s are not reported.
    ///
    /// # Errors
    /// Those of [`crate::CompletionQueue::read`]. The completions so far are in `done`.
    pub fn poll(&self, done: &mut Completions) -> Result<usize> {
        self.port.read(done.free(), done)?;
        Ok(done.len())
    }

    /// Tries to take a posted operation back (fi_cancel(3)). If that works, it completes with
    /// [`crate::Errno::Canceled`]. Its buffer comes with its completion in any case.
    ///
    /// # Errors
    /// [`crate::Errno::NoEnt`] when it is too late, or the handle is another endpoint's.
    pub fn cancel(&self, handle: Handle) -> Result {
        self.port.cancel(handle.0)
    }

    #[inline(always)]
    fn post_with(
        &self,
        what: Post,
        operands: Operands<'_>,
        buf: Buf,
        context: Context,
    ) -> Result<Handle, Refused> {
        let posted = self.port.post(what, operands, buf, context);
        posted.map(Handle)
    }

    // Inlined, so that what is posted is known where it is looked at.
    #[inline(always)]
    fn post(&self, what: Post, buf: Buf, context: Context) -> Result<Handle, Refused> {
        self.post_with(what, Operands::NONE, buf, context)
    }
}

impl Deliver<Context> for Completions {
    #[inline(always)]
    fn deliver(&mut self, finished: Finished<Context>) -> Option<Finished<Context>> {
        let len = finished.len;
        let completion = Completion {
            buf: finished.buf,
            context: finished.owner,
            result: finished.outcome,
        };
        let refused = self.push(completion, len).err()?;
        Some(Finished {
            owner: refused.context,
            buf: refused.buf,
            len,
            outcome: refused.result,
        })
    }
}
