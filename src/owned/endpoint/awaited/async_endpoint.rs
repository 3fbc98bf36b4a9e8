//! `AsyncEndpoint`: the endpoint of the safe layer whose operations are futures.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use super::async_core::AsyncCore;
use super::claim::Claiming;
use super::messages::Messages;
use super::operation::{Operation, Receiving, Sending};
use super::parking::Parking;
use super::waiter::WaiterCore;
use crate::atomic::{Family, Target};
use crate::owned::Buf;
use crate::owned::endpoint::post::{Operands, Post};
use crate::owned::endpoint::remote::RemoteAddr;
use crate::{
    Address, AddressVector, Domain, EpOption, Error, FiAddr, Info, OpFlags, Result,
    ScalableEndpoint, TagMatch, cq, wait,
};

/// An endpoint whose operations are awaited: `ep.send(buf, dest).await`.
///
/// No runtime is needed. Polling a future posts its operation (on the first poll), reads the
/// completion queue, and wakes the futures whose operations have completed. Progress is manual, so
/// a pending future wakes its own task at once: it keeps its executor busy, and other tasks run
/// between its polls. No future depends on another future being polled.
///
/// The futures of an endpoint opened with [`Self::open_waiting`] do not wake themselves. They are
/// woken by a thread that waits for completions: one in [`Self::run`], which runs a future to
/// completion, or, under any other executor, one that calls [`Self::wait`] in a loop. Only a future
/// whose post finds a full queue wakes its own task at once.
///
/// Operations to one peer are posted in the order of the first polls of their futures; so are
/// receives. An operation that finds a full queue waits, and later operations to the same peer (or
/// later receives) wait behind it. The poll of any future of the endpoint posts them when there is
/// room.
///
/// When completions can no longer be read, each pending operation fails with that error: see
/// [`OpError::buf`](crate::owned::OpError::buf).
///
/// A future may be dropped at any time. Its operation is then cancelled if possible. The buffer
/// returns to its pool after the operation has ended, at a later poll of any future of this
/// endpoint or a later [`Self::progress`].
///
/// # Examples
///
/// ```no_run
/// use selvedge::owned::{AsyncEndpoint, Pool};
/// use selvedge::{Errno, FiAddr};
///
/// async fn echo(ep: &AsyncEndpoint, pool: &Pool) -> Result<(), Errno> {
///     let buf = pool.take().ok_or(Errno::NoBufs)?;
///     let (buf, received) = ep.recv(buf, FiAddr::UNSPEC).await?;
///     ep.send(buf, received.src).await?;
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct AsyncEndpoint {
    pub(super) core: AsyncCore,
    parking: Arc<Parking>,
}

impl AsyncEndpoint {
    /// Opens an endpoint with its own completion queue (fi_endpoint(3), fi_cq(3)).
    ///
    /// # Errors
    /// As [`crate::owned::Endpoint::open`].
    pub fn open(
        domain: &dyn Domain,
        info: &Info,
        av: Arc<dyn AddressVector>,
    ) -> Result<Self, Error> {
        Self::open_waiting(domain, info, av, wait::Object::None)
    }

    /// As [`Self::open`], with a wait object: threads can park until an operation completes
    /// ([`Self::run`], [`Self::wait`]), and with [`wait::Object::Fd`] an executor can wait for the
    /// endpoint's descriptor ([`Self::wait_fd`]). `queue` is as in
    /// [`crate::owned::Endpoint::open_waiting`].
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
        let core = WaiterCore::open(domain, info, av, queue.into())?;
        Ok(Self::from_core(core))
    }

    /// Opens a context of a scalable endpoint of the domain. `queue` is as in
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
        let core = WaiterCore::open_with(domain, info, av, queue.into(), context)?;
        Ok(Self::from_core(core))
    }

    fn from_core(core: WaiterCore) -> Self {
        Self {
            parking: Arc::new(Parking::new(Arc::clone(core.cq()))),
            core: AsyncCore::new(core),
        }
    }

    /// The address that peers insert (fi_getname(3)).
    ///
    /// # Errors
    /// [`crate::Errno::AddrNotAvail`] where it has none.
    pub fn address(&self) -> Result<Address> {
        self.core.endpoint().address()
    }

    /// Sends the message in `buf` (fi_send(3)). Resolves to the buffer.
    pub fn send(&self, buf: Buf, dest: FiAddr) -> Sending<'_> {
        let (tag, data) = (None, None);
        self.sending(Post::Send { dest, tag, data }, buf)
    }

    /// Sends the message in `buf`, with `data` for the peer's completion (fi_senddata(3)).
    pub fn senddata(&self, buf: Buf, data: u64, dest: FiAddr) -> Sending<'_> {
        let (tag, data) = (None, Some(data));
        self.sending(Post::Send { dest, tag, data }, buf)
    }

    /// Receives a message into `buf` (fi_recv(3)), from `src` alone under
    /// [`crate::Caps::DIRECTED_RECV`], or from any peer with [`FiAddr::UNSPEC`].
    pub fn recv(&self, buf: Buf, src: FiAddr) -> Receiving<'_> {
        self.receiving(Post::recv(src), buf)
    }

    /// Receives messages into consecutive parts of `buf` (fi_recvmsg(3) with `FI_MULTI_RECV`): see
    /// [`crate::owned::Endpoint::recv_multi`].
    pub fn recv_multi(&self, buf: Buf, src: FiAddr, tag: Option<TagMatch>) -> Messages<'_> {
        let flags = OpFlags::MULTI_RECV;
        Messages::new(&self.core, Post::Recv { src, tag, flags }, buf)
    }

    /// Changes an option (fi_setopt(3)).
    ///
    /// # Errors
    /// As [`crate::owned::Endpoint::set`].
    pub fn set(&self, option: EpOption) -> Result {
        self.core.endpoint().set(option)
    }

    /// Sends the message in `buf` to a receive that accepts `tag` (fi_tsend(3)).
    pub fn tsend(&self, buf: Buf, dest: FiAddr, tag: u64) -> Sending<'_> {
        let (tag, data) = (Some(tag), None);
        self.sending(Post::Send { dest, tag, data }, buf)
    }

    /// As [`Self::tsend`], with `data` for the peer's completion (fi_tsenddata(3)).
    pub fn tsenddata(&self, buf: Buf, data: u64, dest: FiAddr, tag: u64) -> Sending<'_> {
        let (tag, data) = (Some(tag), Some(data));
        self.sending(Post::Send { dest, tag, data }, buf)
    }

    /// Receives a message with an accepted tag into `buf` (fi_trecv(3)); `src` as in
    /// [`Self::recv`].
    pub fn trecv(&self, buf: Buf, src: FiAddr, tag: impl Into<TagMatch>) -> Receiving<'_> {
        self.receiving(Post::trecv(src, tag.into(), OpFlags::empty()), buf)
    }

    /// Searches for the message that [`Self::trecv`] would receive (fi_trecvmsg(3) with `FI_PEEK`),
    /// and resolves to its tag, data, source and length. The message stays in the queue, and `buf`
    /// is returned unused. Fails with [`crate::Errno::NoMsg`] when there is no such message.
    pub fn tpeek(&self, buf: Buf, src: FiAddr, tag: impl Into<TagMatch>) -> Receiving<'_> {
        let flags = OpFlags::PEEK;
        self.receiving(Post::trecv(src, tag.into(), flags), buf)
    }

    /// As [`Self::tpeek`], and discards the message (`FI_DISCARD`).
    pub fn tdiscard(&self, buf: Buf, src: FiAddr, tag: impl Into<TagMatch>) -> Receiving<'_> {
        let flags = OpFlags::PEEK | OpFlags::DISCARD;
        self.receiving(Post::trecv(src, tag.into(), flags), buf)
    }

    /// As [`Self::tpeek`], and claims the message (`FI_CLAIM`): no other receive takes it. The
    /// [`crate::owned::Claim`] holds `buf`.
    pub fn tclaim(&self, buf: Buf, src: FiAddr, tag: impl Into<TagMatch>) -> Claiming<'_> {
        let post = Post::trecv(src, tag.into(), OpFlags::PEEK | OpFlags::CLAIM);
        Claiming(Operation::new(&self.core, post, Operands::NONE, buf))
    }

    /// Sends a copy of `bytes` (fi_inject(3), and fi_injectdata(3) with `data`). The call does not
    /// wait, and there is no completion.
    ///
    /// # Errors
    /// [`crate::Errno::MsgSize`] for more than `tx_attr.inject_size` bytes;
    /// [`crate::Errno::Again`] when a queue is full, or while an earlier operation to this peer
    /// waits for room.
    pub fn inject(&self, bytes: &[u8], dest: FiAddr, data: Option<u64>) -> Result {
        self.core.check_backlog(dest)?;
        self.core.endpoint().inject(bytes, dest, data)
    }

    /// As [`Self::inject`], tagged (fi_tinject(3), and fi_tinjectdata(3) with `data`).
    ///
    /// # Errors
    /// As [`Self::inject`].
    pub fn tinject(&self, bytes: &[u8], dest: FiAddr, tag: u64, data: Option<u64>) -> Result {
        self.core.check_backlog(dest)?;
        self.core.endpoint().tinject(bytes, dest, tag, data)
    }

    /// Writes the message in `buf` to a peer's memory (fi_write(3)). Resolves to the buffer.
    pub fn write(&self, buf: Buf, to: RemoteAddr) -> Sending<'_> {
        let data = None;
        self.sending(Post::Write { to, data }, buf)
    }

    /// As [`Self::write`], with `data` for a completion at the peer (fi_writedata(3)).
    pub fn writedata(&self, buf: Buf, data: u64, to: RemoteAddr) -> Sending<'_> {
        let data = Some(data);
        self.sending(Post::Write { to, data }, buf)
    }

    /// Reads a peer's memory into `buf` (fi_read(3)), as many bytes as the length of `buf`.
    /// Resolves to the buffer.
    pub fn read(&self, buf: Buf, from: RemoteAddr) -> Sending<'_> {
        self.sending(Post::Read { from }, buf)
    }

    /// Writes a copy of `bytes` to a peer's memory (fi_inject_write(3), and fi_inject_writedata(3)
    /// with `data`). The call does not wait, and there is no completion.
    ///
    /// # Errors
    /// As [`crate::Rma::inject_write`].
    pub fn inject_write(&self, bytes: &[u8], to: RemoteAddr, data: Option<u64>) -> Result {
        self.core.check_backlog(to.peer)?;
        self.core.endpoint().inject_write(bytes, to, data)
    }

    /// Applies an atomic with the operands in `buf` to a peer's memory (fi_atomic(3)). Resolves to
    /// the buffer.
    pub fn atomic(&self, buf: Buf, target: Target) -> Sending<'_> {
        let family = Family::Base;
        self.sending(Post::Atomic { family, target }, buf)
    }

    /// Applies an atomic with `operand` to a peer's memory (fi_fetch_atomic(3)). Resolves to `buf`
    /// with the earlier values: see [`crate::owned::Endpoint::fetch_atomic`].
    pub fn fetch_atomic<'a>(&'a self, buf: Buf, operand: &'a [u8], target: Target) -> Sending<'a> {
        let operands = Operands {
            operand,
            ..Operands::NONE
        };
        let family = Family::Fetch;
        let post = Post::Atomic { family, target };
        Sending(Operation::new(&self.core, post, operands, buf))
    }

    /// Compares a peer's memory with `compare`, and applies `operand` where the comparison holds
    /// (fi_compare_atomic(3)). Resolves to `buf` with the earlier values.
    pub fn compare_atomic<'a>(
        &'a self,
        buf: Buf,
        operand: &'a [u8],
        compare: &'a [u8],
        target: Target,
    ) -> Sending<'a> {
        let operands = Operands { operand, compare };
        let family = Family::Compare;
        let post = Post::Atomic { family, target };
        Sending(Operation::new(&self.core, post, operands, buf))
    }

    /// Applies an atomic with a copy of `operand` to a peer's memory (fi_inject_atomic(3)). The
    /// call does not wait, and there is no completion.
    ///
    /// # Errors
    /// As [`crate::Atomic::inject_atomic`].
    pub fn inject_atomic(&self, operand: &[u8], target: Target) -> Result {
        self.core.check_backlog(target.dest)?;
        self.core.endpoint().inject_atomic(operand, &target)
    }

    /// Drives progress without a future: reads completions and wakes their futures, posts
    /// operations that waited for room, and frees the buffers of dropped futures. Returns the
    /// number of completions. One call reads a bounded number, and never waits.
    ///
    /// # Errors
    /// Those of [`crate::CompletionQueue::read`].
    pub fn progress(&self) -> Result<usize> {
        self.core.progress()
    }

    /// Parks the calling thread until an operation completes or `timeout` has passed, then drives
    /// progress as [`Self::progress`] does. Returns the number of completions, which may be 0
    /// before the timeout. With `None`, the wait has no time limit.
    ///
    /// # Errors
    /// As [`Self::progress`]; [`crate::Errno::NoSys`] for an endpoint that was not opened by
    /// [`Self::open_waiting`].
    pub fn wait(&self, timeout: Option<Duration>) -> Result<usize> {
        self.parking.wait(&self.core, timeout)
    }

    /// Runs a future to completion on the calling thread, which parks while the future is pending.
    /// Several threads may run futures at the same time.
    ///
    /// # Errors
    /// As [`Self::wait`].
    pub fn run<F: Future>(&self, future: F) -> Result<F::Output> {
        self.parking.run(&self.core, future)
    }

    /// Ends one [`Self::wait`] (fi_cq_signal(3)): of a thread that waits at the queue now, or else
    /// the next one.
    ///
    /// # Errors
    /// As [`crate::owned::Endpoint::signal`].
    pub fn signal(&self) -> Result {
        self.core.endpoint().signal()
    }

    /// Returns the descriptor for the loop of an executor: see
    /// [`crate::owned::Endpoint::wait_fd`]. When it is readable, call [`Self::progress`], which
    /// wakes the futures whose operations have completed.
    ///
    /// # Errors
    /// As [`crate::owned::Endpoint::wait_fd`].
    ///
    /// # Examples
    ///
    /// A tokio task that drives the futures of all other tasks, without a thread of its own. Open
    /// the endpoint with [`cq::Attr::spin_time`] zero, so that [`Self::try_wait`] does not keep
    /// the other tasks waiting. The task never ends by itself; abort it before the endpoint is
    /// dropped.
    ///
    /// ```no_run
    /// use std::error::Error;
    /// use std::sync::Arc;
    ///
    /// use selvedge::Errno;
    /// use selvedge::owned::AsyncEndpoint;
    /// use tokio::io::{Interest, unix::AsyncFd};
    ///
    /// async fn drive(ep: Arc<AsyncEndpoint>) -> Result<(), Box<dyn Error + Send + Sync>> {
    ///     let fd = ep.wait_fd()?.try_clone_to_owned()?;
    ///     // SAFETY: the value owns the descriptor, which stays open and the same.
    ///     let fd = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?;
    ///     loop {
    ///         ep.progress()?;
    ///         match ep.try_wait() {
    ///             // A call of `progress` after this check makes the descriptor readable.
    ///             Ok(()) => fd.readable().await?.clear_ready(),
    ///             Err(Errno::Again) => tokio::task::yield_now().await,
    ///             Err(errno) => return Err(errno.into()),
    ///         }
    ///     }
    /// }
    /// ```
    pub fn wait_fd(&self) -> Result<BorrowedFd<'_>, Error> {
        self.core.endpoint().wait_fd()
    }

    /// Checks that an executor may block on [`Self::wait_fd`]: see
    /// [`crate::owned::Endpoint::try_wait`].
    ///
    /// # Errors
    /// As [`crate::owned::Endpoint::try_wait`], where [`Self::progress`] takes the place of polls.
    pub fn try_wait(&self) -> Result {
        self.core.endpoint().try_wait()
    }

    pub(in crate::owned::endpoint) fn sending(&self, post: Post, buf: Buf) -> Sending<'_> {
        Sending(Operation::new(&self.core, post, Operands::NONE, buf))
    }

    fn receiving(&self, post: Post, buf: Buf) -> Receiving<'_> {
        Receiving(Operation::new(&self.core, post, Operands::NONE, buf))
    }
}
