//! `Endpoint`: the polled endpoint of the safe layer.

mod awaited;
mod endpoint_core;
mod gather;
mod lending;
mod post;
mod remote;
pub(super) mod slots;
mod waiting;

pub use awaited::{AsyncEndpoint, Claim, Claiming, Messages, Receiving, Sending, Viewing};
pub use remote::{RemoteAddr, RemoteRegion};

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use self::endpoint_core::{Count, Deliver, EndpointCore, Finished};
use self::post::{Operands, Post};
use self::waiting::{Deadline, WaitEnd};
use super::completion::Parts;
use super::{Buf, Completions, Handle, TryPostError};
use crate::atomic::{Family, Target};
use crate::{
    Address, AddressVector, Context, Domain, EpOption, Error, FiAddr, Info, OpFlags,
    PeerCredentials, Result, ScalableEndpoint, TagMatch, cq, wait,
};

/// An endpoint whose operations are posted and whose completions are polled.
///
/// A post takes ownership of its buffer. The [`Completion`](super::Completion) with the post's
/// `context` returns the buffer; a failed post returns it at once in the [`TryPostError`]. At most
/// `tx_attr.size + rx_attr.size` operations may be outstanding; further posts fail with
/// [`crate::Errno::Again`].
///
/// Threads may share an endpoint. Dropping it closes it: the buffers of outstanding operations
/// return to their pools, without completions.
///
/// # Examples
///
/// See the [module](super).
#[derive(Debug)]
pub struct Endpoint {
    core: EndpointCore<Context>,
}

impl Endpoint {
    /// Opens an endpoint with its own completion queue (fi_endpoint(3), fi_cq(3)).
    ///
    /// # Errors
    /// Those of [`Domain::cq`] and [`Domain::endpoint`]; [`crate::Errno::Inval`] when `info.mode`
    /// has a mode that this layer does not support.
    pub fn open(
        domain: &dyn Domain,
        info: &Info,
        av: Arc<dyn AddressVector>,
    ) -> Result<Self, Error> {
        Self::open_waiting(domain, info, av, wait::Object::None)
    }

    /// As [`Self::open`], with a wait object: a thread can park until an operation completes
    /// ([`Self::wait`]), and with [`wait::Object::Fd`] a program can wait in its own loop around
    /// `poll(2)` or `epoll(7)` ([`Self::wait_fd`]).
    ///
    /// `queue` is the wait object, or the attributes of the completion queue. The attributes can
    /// limit the time that a waiting thread polls before it parks ([`cq::Attr::spin_time`]); their
    /// size is ignored.
    ///
    /// # Errors
    /// As [`Self::open`]; [`crate::Errno::NoSys`] for a wait object that the provider does not
    /// have.
    pub fn open_waiting(
        domain: &dyn Domain,
        info: &Info,
        av: Arc<dyn AddressVector>,
        queue: impl Into<cq::Attr>,
    ) -> Result<Self, Error> {
        let core = EndpointCore::open(domain, info, av, queue.into())?;
        Ok(Self { core })
    }

    /// Opens the context `index` of the scalable endpoint `sep` of the domain. `queue` is as in
    /// [`Self::open_waiting`]; with [`wait::Object::None`], the endpoint has no wait object.
    ///
    /// # Errors
    /// As [`ScalableEndpoint::context`] and [`Self::open_waiting`].
    pub fn open_context(
        domain: &dyn Domain,
        (sep, index): (&dyn ScalableEndpoint, usize),
        info: &Info,
        av: Arc<dyn AddressVector>,
        queue: impl Into<cq::Attr>,
    ) -> Result<Self, Error> {
        let context = |bind| sep.context(index, info, bind);
        let core = EndpointCore::open_with(domain, info, av, queue.into(), context)?;
        Ok(Self { core })
    }

    /// Returns the address that peers insert into their address vectors (fi_getname(3)).
    ///
    /// # Errors
    /// [`crate::Errno::AddrNotAvail`] if the endpoint has no address.
    pub fn address(&self) -> Result<Address> {
        self.core.address()
    }

    /// Returns what the kernel or a certificate authority vouches for about a connected peer.
    ///
    /// # Errors
    /// As [`crate::Endpoint::peer_credentials`].
    pub fn peer_credentials(&self, peer: FiAddr) -> Result<PeerCredentials> {
        self.core.peer_credentials(peer)
    }

    /// Sends the message in `buf` (fi_send(3)).
    ///
    /// # Errors
    /// [`crate::Errno::Again`] when a queue is full: poll, then retry. [`crate::Errno::NoSys`] if
    /// the provider does not implement the operation. Other errors of the provider.
    #[inline]
    pub fn send(&self, buf: Buf, dest: FiAddr, context: Context) -> Result<Handle, TryPostError> {
        let (tag, data) = (None, None);
        self.post(Post::Send { dest, tag, data }, buf, context)
    }

    /// Sends the message in `buf`, with `data` for the peer's completion (fi_senddata(3)).
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn senddata(
        &self,
        buf: Buf,
        data: u64,
        dest: FiAddr,
        context: Context,
    ) -> Result<Handle, TryPostError> {
        let (tag, data) = (None, Some(data));
        self.post(Post::Send { dest, tag, data }, buf, context)
    }

    /// Receives a message into `buf` (fi_recv(3)). With [`crate::Caps::DIRECTED_RECV`], only
    /// messages from `src` match, or from any peer if `src` is [`FiAddr::UNSPEC`].
    ///
    /// # Errors
    /// As [`Self::send`].
    #[inline]
    pub fn recv(&self, buf: Buf, src: FiAddr, context: Context) -> Result<Handle, TryPostError> {
        self.post(Post::recv(src), buf, context)
    }

    /// Sends the message in `buf` to a receive that accepts `tag` (fi_tsend(3)).
    ///
    /// # Errors
    /// As [`Self::send`].
    #[inline]
    pub fn tsend(
        &self,
        buf: Buf,
        dest: FiAddr,
        tag: u64,
        context: Context,
    ) -> Result<Handle, TryPostError> {
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
    ) -> Result<Handle, TryPostError> {
        let (tag, data) = (Some(tag), Some(data));
        self.post(Post::Send { dest, tag, data }, buf, context)
    }

    /// Receives a message whose tag `tag` accepts into `buf` (fi_trecv(3)); `src` as in
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
    ) -> Result<Handle, TryPostError> {
        let post = Post::trecv(src, tag.into(), OpFlags::empty());
        self.post(post, buf, context)
    }

    /// Receives messages into consecutive parts of `buf` (fi_recvmsg(3) with `FI_MULTI_RECV`);
    /// `src` as in [`Self::recv`]. With `tag`, receives tagged messages that `tag` accepts.
    ///
    /// Each message has a completion with `context`; its buffer is the part of `buf` that holds the
    /// message. The receive ends when less than [`crate::EpOption::MinMultiRecv`] bytes are left
    /// (set with [`Self::set`]). The last completion has [`crate::CompletionFlags::MULTI_RECV`], in
    /// [`super::Received::flags`] or in the flags of the error's entry; post another buffer then.
    /// `buf` returns to its pool after the last completion, when all parts have been dropped.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn recv_multi(
        &self,
        buf: Buf,
        src: FiAddr,
        tag: Option<TagMatch>,
        context: Context,
    ) -> Result<Handle, TryPostError> {
        let flags = OpFlags::MULTI_RECV;
        self.post(Post::Recv { src, tag, flags }, buf, context)
    }

    /// Searches for the message that [`Self::trecv`] would receive (fi_trecvmsg(3) with `FI_PEEK`).
    /// The completion reports the message's tag, data, source and length, or
    /// [`crate::Errno::NoMsg`]. The message stays in the queue, and the completion returns `buf`
    /// unused.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn tpeek(
        &self,
        buf: Buf,
        src: FiAddr,
        tag: impl Into<TagMatch>,
        context: Context,
    ) -> Result<Handle, TryPostError> {
        let flags = OpFlags::PEEK;
        self.post(Post::trecv(src, tag.into(), flags), buf, context)
    }

    /// As [`Self::tpeek`], and discards the message (`FI_DISCARD`).
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn tdiscard(
        &self,
        buf: Buf,
        src: FiAddr,
        tag: impl Into<TagMatch>,
        context: Context,
    ) -> Result<Handle, TryPostError> {
        let flags = OpFlags::PEEK | OpFlags::DISCARD;
        self.post(Post::trecv(src, tag.into(), flags), buf, context)
    }

    /// As [`Self::tpeek`], and claims the message (`FI_CLAIM`): no other receive takes it. Pass the
    /// returned handle to [`Self::recv_claimed`] or [`Self::discard_claimed`] after the completion.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn tclaim(
        &self,
        buf: Buf,
        src: FiAddr,
        tag: impl Into<TagMatch>,
        context: Context,
    ) -> Result<Handle, TryPostError> {
        let flags = OpFlags::PEEK | OpFlags::CLAIM;
        self.post(Post::trecv(src, tag.into(), flags), buf, context)
    }

    /// Receives into `buf` the message that [`Self::tclaim`] claimed under the handle `claim`.
    ///
    /// # Errors
    /// As [`Self::send`]; [`crate::Errno::NoMsg`] when the claim has not completed, has found no
    /// message, or was used before.
    pub fn recv_claimed(
        &self,
        claim: Handle,
        buf: Buf,
        context: Context,
    ) -> Result<(), TryPostError> {
        let post = Post::claimed(OpFlags::empty());
        self.core.post_claimed(claim.0, post, buf, context)
    }

    /// Discards the message that [`Self::tclaim`] claimed under the handle `claim`. The completion
    /// returns `buf` unused.
    ///
    /// # Errors
    /// As [`Self::recv_claimed`].
    pub fn discard_claimed(
        &self,
        claim: Handle,
        buf: Buf,
        context: Context,
    ) -> Result<(), TryPostError> {
        let post = Post::claimed(OpFlags::DISCARD);
        self.core.post_claimed(claim.0, post, buf, context)
    }

    /// Sets an option of the endpoint (fi_setopt(3)).
    ///
    /// # Errors
    /// [`crate::Errno::NoProtoOpt`] for an option that the provider does not have;
    /// [`crate::Errno::Inval`] for an invalid value.
    pub fn set(&self, option: EpOption) -> Result {
        self.core.set(option)
    }

    /// Sends a copy of `bytes` (fi_inject(3), and fi_injectdata(3) with `data`). There is no
    /// completion.
    ///
    /// # Errors
    /// [`crate::Errno::MsgSize`] for more than `tx_attr.inject_size` bytes; [`crate::Errno::Again`]
    /// when a queue is full.
    pub fn inject(&self, bytes: &[u8], dest: FiAddr, data: Option<u64>) -> Result {
        self.core.inject(bytes, dest, data)
    }

    /// As [`Self::inject`], tagged (fi_tinject(3), and fi_tinjectdata(3) with `data`).
    ///
    /// # Errors
    /// As [`Self::inject`].
    pub fn tinject(&self, bytes: &[u8], dest: FiAddr, tag: u64, data: Option<u64>) -> Result {
        self.core.tinject(bytes, dest, tag, data)
    }

    /// Writes the bytes in `buf` to a peer's memory (fi_write(3)).
    ///
    /// # Errors
    /// As [`Self::send`]. The completion reports an access that the peer denies.
    pub fn write(
        &self,
        buf: Buf,
        to: RemoteAddr,
        context: Context,
    ) -> Result<Handle, TryPostError> {
        let data = None;
        self.post(Post::Write { to, data }, buf, context)
    }

    /// As [`Self::write`], with `data` for a completion at the peer (fi_writedata(3)).
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn writedata(
        &self,
        buf: Buf,
        data: u64,
        to: RemoteAddr,
        context: Context,
    ) -> Result<Handle, TryPostError> {
        let data = Some(data);
        self.post(Post::Write { to, data }, buf, context)
    }

    /// Reads as many bytes as the length of `buf` from a peer's memory into `buf` (fi_read(3)).
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn read(
        &self,
        buf: Buf,
        from: RemoteAddr,
        context: Context,
    ) -> Result<Handle, TryPostError> {
        self.post(Post::Read { from }, buf, context)
    }

    /// Writes a copy of `bytes` to a peer's memory (fi_inject_write(3), and fi_inject_writedata(3)
    /// with `data`). There is no completion.
    ///
    /// # Errors
    /// As [`crate::Rma::inject_write`].
    pub fn inject_write(&self, bytes: &[u8], to: RemoteAddr, data: Option<u64>) -> Result {
        self.core.inject_write(bytes, to, data)
    }

    /// Applies an atomic operation to elements of a peer's memory (fi_atomic(3)). `buf` holds one
    /// operand for each element.
    ///
    /// # Errors
    /// As [`Self::send`]; [`crate::Errno::Inval`] when the operands are not whole elements;
    /// [`crate::Errno::OpNotSupp`] for an unsupported operation. The completion reports an access
    /// that the peer denies.
    pub fn atomic(
        &self,
        buf: Buf,
        target: Target,
        context: Context,
    ) -> Result<Handle, TryPostError> {
        let family = Family::Base;
        self.post(Post::Atomic { family, target }, buf, context)
    }

    /// Applies an atomic operation with a copy of `operand` to a peer's memory, and stores the
    /// earlier values in `buf` (fi_fetch_atomic(3)). An [`crate::atomic::Op::AtomicRead`] takes no
    /// operand, and reads as many elements as the length of `buf` holds.
    ///
    /// # Errors
    /// As [`Self::atomic`]; [`crate::Errno::TooSmall`] when the capacity of `buf` is too small.
    pub fn fetch_atomic(
        &self,
        buf: Buf,
        operand: &[u8],
        target: Target,
        context: Context,
    ) -> Result<Handle, TryPostError> {
        let operands = Operands {
            operand,
            ..Operands::NONE
        };
        let family = Family::Fetch;
        self.post_with(Post::Atomic { family, target }, operands, buf, context)
    }

    /// Compares each element of a peer's memory with `compare`, applies a copy of `operand` to the
    /// elements for which the comparison holds, and stores the earlier values of all elements in
    /// `buf` (fi_compare_atomic(3)).
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
    ) -> Result<Handle, TryPostError> {
        let operands = Operands { operand, compare };
        let family = Family::Compare;
        self.post_with(Post::Atomic { family, target }, operands, buf, context)
    }

    /// Applies an atomic operation with a copy of `operand` to a peer's memory
    /// (fi_inject_atomic(3)). There is no completion.
    ///
    /// # Errors
    /// As [`crate::Atomic::inject_atomic`].
    pub fn inject_atomic(&self, operand: &[u8], target: Target) -> Result {
        self.core.inject_atomic(operand, &target)
    }

    /// Drives progress and appends completions to `done` while there is room. Returns the length of
    /// `done`. One call reads a bounded number of completions, and never waits.
    ///
    /// Accesses of peers to local [`super::SharedRegion`]s are not reported.
    ///
    /// # Errors
    /// Those of [`crate::CompletionQueue::read`]. `done` keeps the completions that it holds.
    pub fn poll(&self, done: &mut Completions) -> Result<usize> {
        let (entries, parts) = done.vacant();
        let Count { delivered, read } = self
            .core
            .with_reader(|reader, ()| reader.read(entries, parts))?;
        done.append(delivered, read);
        Ok(done.len())
    }

    /// Parks the calling thread until `done` has a new completion or `timeout` has passed
    /// (fi_cq_sread(3)), and appends completions to `done` as [`Self::poll`] does. Returns the
    /// length of `done`. With `None`, the wait has no time limit.
    ///
    /// The thread polls for a short time before it parks ([`cq::Attr::spin_time`]). A call with a
    /// full list returns at once. A call that [`Self::signal`] ends returns without a new
    /// completion. Several threads may wait; each completion goes to one of them.
    ///
    /// # Errors
    /// As [`Self::poll`]; [`crate::Errno::NoSys`] for an endpoint without a wait object: open it
    /// with [`Self::open_waiting`].
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// use selvedge::owned::{Completions, Endpoint};
    ///
    /// fn next(ep: &Endpoint, done: &mut Completions) -> selvedge::Result<bool> {
    ///     let len = ep.wait(done, Some(Duration::from_millis(100)))?;
    ///     Ok(len > 0)
    /// }
    /// ```
    pub fn wait(&self, done: &mut Completions, timeout: Option<Duration>) -> Result<usize> {
        let (before, deadline) = (done.len(), Deadline::after(timeout));
        loop {
            let len = self.poll(done)?;
            if len > before || done.is_full() {
                return Ok(len);
            }
            if self.core.wait_for_entry(deadline)? == WaitEnd::Ended {
                return self.poll(done);
            }
        }
    }

    /// Ends one [`Self::wait`] (fi_cq_signal(3)): of a thread that waits now, or else the next one.
    ///
    /// # Errors
    /// [`crate::Errno::NoSys`] for an endpoint without a wait object.
    pub fn signal(&self) -> Result {
        self.core.signal()
    }

    /// Returns the descriptor for `poll(2)` and `epoll(7)`. It becomes readable when completions
    /// may have arrived since the last successful [`Self::try_wait`]. Wait for it to be readable,
    /// and do nothing else with it.
    ///
    /// The descriptor belongs to the endpoint. Programs that keep a descriptor apart from the
    /// endpoint duplicate it ([`BorrowedFd::try_clone_to_owned`]).
    ///
    /// # Errors
    /// [`crate::Errno::NoSys`] for an endpoint that was not opened with [`wait::Object::Fd`], or
    /// whose provider has no descriptor.
    ///
    /// # Examples
    ///
    /// The thread parks until the endpoint or `stop` is ready:
    ///
    /// ```no_run
    /// use std::os::fd::BorrowedFd;
    ///
    /// use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    /// use selvedge::Errno;
    /// use selvedge::owned::{Completions, Endpoint};
    ///
    /// fn next(
    ///     ep: &Endpoint,
    ///     done: &mut Completions,
    ///     stop: BorrowedFd<'_>,
    /// ) -> Result<usize, Box<dyn std::error::Error>> {
    ///     loop {
    ///         let len = ep.poll(done)?;
    ///         if len > 0 {
    ///             return Ok(len);
    ///         }
    ///         match ep.try_wait() {
    ///             Ok(()) => {}
    ///             Err(Errno::Again) => continue,
    ///             Err(errno) => return Err(errno.into()),
    ///         }
    ///         let ep_fd = PollFd::new(ep.wait_fd()?, PollFlags::POLLIN);
    ///         let stop = PollFd::new(stop, PollFlags::POLLIN);
    ///         let mut fds = [ep_fd, stop];
    ///         poll(&mut fds, PollTimeout::NONE)?;
    ///         if fds[1].any() == Some(true) {
    ///             return Ok(0);
    ///         }
    ///     }
    /// }
    /// ```
    pub fn wait_fd(&self) -> Result<BorrowedFd<'_>, Error> {
        self.core.wait_fd()
    }

    /// Checks that a thread may block on [`Self::wait_fd`] (fi_trywait(3)). Call it after the last
    /// poll before each block. It polls for up to [`cq::Attr::spin_time`] itself: set
    /// [`Duration::ZERO`] if the thread has other work.
    ///
    /// # Errors
    /// [`crate::Errno::Again`] when completions may have arrived: poll first.
    /// [`crate::Errno::NoSys`] for an endpoint without a descriptor.
    pub fn try_wait(&self) -> Result {
        self.core.try_wait()
    }

    /// Tries to cancel a posted operation (fi_cancel(3)). A cancelled operation completes with
    /// [`crate::Errno::Canceled`]. The completion returns the buffer, cancelled or
    /// not.
    ///
    /// # Errors
    /// [`crate::Errno::NoEnt`] when it is too late, or the handle belongs to another endpoint.
    pub fn cancel(&self, handle: Handle) -> Result {
        self.core.cancel(handle.0)
    }

    #[inline(always)]
    fn post_with(
        &self,
        post: Post,
        operands: Operands<'_>,
        buf: Buf,
        context: Context,
    ) -> Result<Handle, TryPostError> {
        let posted = self.core.post(post, operands, buf, context);
        posted.map(Handle)
    }

    // Inlined, so that the compiler knows the kind of the post where it is matched.
    #[inline(always)]
    fn post(&self, post: Post, buf: Buf, context: Context) -> Result<Handle, TryPostError> {
        self.post_with(post, Operands::NONE, buf, context)
    }
}

impl Deliver<Context> for Parts {
    /// Replaces the key in the entry by the context of the post.
    #[inline(always)]
    fn deliver(
        &mut self,
        (entry, src): (&mut cq::Entry, FiAddr),
        owner: Context,
        buf: Buf,
        error: Option<Box<cq::ErrEntry>>,
    ) -> Option<Finished> {
        entry.context = owner;
        self.set(src, buf, error);
        None
    }
}
