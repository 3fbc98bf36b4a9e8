//! The endpoint of the safe layer whose operations are futures.

use std::sync::Arc;
use std::task::{self, Waker};

use super::backlog::{Backlog, Lane};
use super::claim::Claiming;
use super::messages::Messages;
use super::operation::{Operation, Receiving, Sending};
use super::port::{BATCH, Port};
use super::post::{Operands, Post};
use super::remote::Remote;
use super::sleep::Dormitory;
use super::slots::Key;
use super::stage::Stage;
use super::told::{After, Aftermath, Task};
use crate::atomic::{Family, Target};
use crate::owned::{Buf, Refused};
use crate::{
    Address, AddressVector, Domain, EpOption, Errno, Error, FiAddr, Info, OpFlags, Result,
    ScalableEndpoint, TagMatch, wait,
};

/// An endpoint whose operations are awaited: `ep.send(buf, dest).await`.
///
/// It needs no runtime. Polling one of its futures posts the operation if that was not done yet,
/// reads the completion queue, gives what is there to the futures it belongs to, and wakes them.
/// A future that is still pending asks to be polled again at once, since progress is manual: a
/// pending future keeps its executor busy, and lets other tasks run in between. No future relies
/// on another one being polled.
///
/// An endpoint that was opened by [`Self::open_waiting`] sleeps instead: its pending futures are
/// woken when their operations are done, by whoever waits for that. [`Self::run`] runs a future and
/// waits; under an executor of another make, a thread that calls [`Self::wait`] again and again
/// does. Only a future whose post finds a full queue asks to be polled again at once.
///
/// Operations are posted in the order of their futures' first polls: those to one peer, and all
/// receives. One that finds a full queue waits, and so do those of its kind that come later; they
/// are posted as room is found, whichever future's poll finds it.
///
/// When completions cannot be read any more, each pending operation fails with that error: see
/// [`Failed::buf`](crate::owned::Failed::buf).
///
/// Dropping a future is always allowed. Its operation is cancelled if that still works. The buffer
/// returns to its pool when the operation is over, which is found by any later poll of a future of
/// this endpoint or [`Self::progress`].
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
    backlog: Backlog,
    port: Port<Task>,
    dormitory: Arc<Dormitory>,
    /// Whether somebody waits for completions.
    sleeps: bool,
}

impl AsyncEndpoint {
    /// Opens an endpoint with a completion queue of its own (fi_endpoint(3), fi_cq(3)).
    ///
    /// # Errors
    /// As [`super::Endpoint::open`].
    pub fn open(
        domain: &dyn Domain,
        info: &Info,
        av: Arc<dyn AddressVector>,
    ) -> Result<Self, Error> {
        Self::with(domain, info, av, wait::Object::None)
    }

    /// As [`Self::open`], with a queue that threads sleep at.
    ///
    /// # Errors
    /// As [`Self::open`]; [`Errno::NoSys`] for a wait object that the provider does not have.
    pub fn open_waiting(
        domain: &dyn Domain,
        info: &Info,
        av: Arc<dyn AddressVector>,
        object: wait::Object,
    ) -> Result<Self, Error> {
        Self::with(domain, info, av, object)
    }

    /// Opens a context of a scalable endpoint of the domain, with a queue that threads sleep at if
    /// `object` is one.
    ///
    /// # Errors
    /// As [`ScalableEndpoint::context`] and [`Self::open_waiting`].
    pub fn open_context(
        domain: &dyn Domain,
        (sep, index): (&dyn ScalableEndpoint, usize),
        info: &Info,
        av: Arc<dyn AddressVector>,
        object: wait::Object,
    ) -> Result<Self, Error> {
        let context = |bind| sep.context(index, info, bind);
        let port = Port::around(domain, info, av, object, context)?;
        Ok(Self::over(port, object))
    }

    fn with(
        domain: &dyn Domain,
        info: &Info,
        av: Arc<dyn AddressVector>,
        object: wait::Object,
    ) -> Result<Self, Error> {
        let port = Port::open(domain, info, av, object)?;
        Ok(Self::over(port, object))
    }

    fn over(port: Port<Task>, object: wait::Object) -> Self {
        Self {
            dormitory: Arc::new(Dormitory::new(Arc::clone(port.cq()))),
            backlog: Backlog::default(),
            port,
            sleeps: object != wait::Object::None,
        }
    }

    /// The address that peers insert (fi_getname(3)).
    ///
    /// # Errors
    /// [`Errno::AddrNotAvail`] where it has none.
    pub fn address(&self) -> Result<Address> {
        self.port.address()
    }

    /// Sends the message in `buf` (fi_send(3)) and gives the buffer back.
    pub fn send(&self, buf: Buf, dest: FiAddr) -> Sending<'_> {
        let (tag, data) = (None, None);
        self.sending(Post::Send { dest, tag, data }, buf)
    }

    /// Sends the message in `buf`, and `data` to the peer's completion (fi_senddata(3)).
    pub fn senddata(&self, buf: Buf, data: u64, dest: FiAddr) -> Sending<'_> {
        let (tag, data) = (None, Some(data));
        self.sending(Post::Send { dest, tag, data }, buf)
    }

    /// Receives a message into `buf` (fi_recv(3)), from `src` alone under
    /// [`crate::Caps::DIRECTED_RECV`], or from any peer with [`FiAddr::UNSPEC`].
    pub fn recv(&self, buf: Buf, src: FiAddr) -> Receiving<'_> {
        self.receiving(Post::recv(src), buf)
    }

    /// Receives messages into `buf`, one behind the other, until little of it is left (fi_recvmsg(3)
    /// with `FI_MULTI_RECV`): see [`super::Endpoint::recv_multi`].
    pub fn recv_multi(&self, buf: Buf, src: FiAddr, tag: Option<TagMatch>) -> Messages<'_> {
        let flags = OpFlags::MULTI_RECV;
        Messages::new(self, Post::Recv { src, tag, flags }, buf)
    }

    /// Changes an option (fi_setopt(3)).
    ///
    /// # Errors
    /// As [`super::Endpoint::set`].
    pub fn set(&self, option: EpOption) -> Result {
        self.port.set(option)
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

    /// Looks for the message that [`Self::trecv`] would take (fi_trecvmsg(3) with `FI_PEEK`). `buf`
    /// is not used and comes back, with the tag, data, source and length of the message; it fails
    /// with [`Errno::NoMsg`] when there is none.
    pub fn tpeek(&self, buf: Buf, src: FiAddr, tag: impl Into<TagMatch>) -> Receiving<'_> {
        let flags = OpFlags::PEEK;
        self.receiving(Post::trecv(src, tag.into(), flags), buf)
    }

    /// As [`Self::tpeek`], and drops the message (`FI_DISCARD`).
    pub fn tdiscard(&self, buf: Buf, src: FiAddr, tag: impl Into<TagMatch>) -> Receiving<'_> {
        let flags = OpFlags::PEEK | OpFlags::DISCARD;
        self.receiving(Post::trecv(src, tag.into(), flags), buf)
    }

    /// As [`Self::tpeek`], and sets the message aside (`FI_CLAIM`): no other receive takes it. `buf`
    /// stays with the [`super::Claim`].
    pub fn tclaim(&self, buf: Buf, src: FiAddr, tag: impl Into<TagMatch>) -> Claiming<'_> {
        let what = Post::trecv(src, tag.into(), OpFlags::PEEK | OpFlags::CLAIM);
        Claiming(Operation::new(self, what, Operands::NONE, buf))
    }

    /// Sends a copy of `bytes` (fi_inject(3), and fi_injectdata(3) with `data`): no buffer, no
    /// waiting.
    ///
    /// # Errors
    /// [`Errno::MsgSize`] above `tx_attr.inject_size`; [`Errno::Again`] when a queue is full, or
    /// while something else to this peer waits for room.
    pub fn inject(&self, bytes: &[u8], dest: FiAddr, data: Option<u64>) -> Result {
        self.admit(dest)?;
        self.port.inject(bytes, dest, data)
    }

    /// As [`Self::inject`], tagged (fi_tinject(3), and fi_tinjectdata(3) with `data`).
    ///
    /// # Errors
    /// As [`Self::inject`].
    pub fn tinject(&self, bytes: &[u8], dest: FiAddr, tag: u64, data: Option<u64>) -> Result {
        self.admit(dest)?;
        self.port.tinject(bytes, dest, tag, data)
    }

    /// Writes the message in `buf` to a peer's memory (fi_write(3)), and gives the buffer back.
    pub fn write(&self, buf: Buf, to: Remote) -> Sending<'_> {
        let data = None;
        self.sending(Post::Write { to, data }, buf)
    }

    /// The same, with `data` for a completion of the peer's (fi_writedata(3)).
    pub fn writedata(&self, buf: Buf, data: u64, to: Remote) -> Sending<'_> {
        let data = Some(data);
        self.sending(Post::Write { to, data }, buf)
    }

    /// Reads a peer's memory into `buf` (fi_read(3)), as many bytes as its length says, and gives
    /// it back.
    pub fn read(&self, buf: Buf, from: Remote) -> Sending<'_> {
        self.sending(Post::Read { from }, buf)
    }

    /// Writes a copy of `bytes` to a peer's memory (fi_inject_write(3), and fi_inject_writedata(3)
    /// with `data`): no buffer, no waiting.
    ///
    /// # Errors
    /// As [`crate::Rma::inject_write`].
    pub fn inject_write(&self, bytes: &[u8], to: Remote, data: Option<u64>) -> Result {
        self.admit(to.peer)?;
        self.port.inject_write(bytes, to, data)
    }

    /// Changes a peer's memory by the operands in `buf` (fi_atomic(3)), and gives the buffer back.
    pub fn atomic(&self, buf: Buf, target: Target) -> Sending<'_> {
        let family = Family::Base;
        self.sending(Post::Atomic { family, target }, buf)
    }

    /// Changes a peer's memory by `operand` (fi_fetch_atomic(3)), and gives `buf` back with what was
    /// there before: see [`super::Endpoint::fetch_atomic`].
    pub fn fetch_atomic<'a>(&'a self, buf: Buf, operand: &'a [u8], target: Target) -> Sending<'a> {
        let operands = Operands {
            operand,
            ..Operands::NONE
        };
        let family = Family::Fetch;
        let what = Post::Atomic { family, target };
        Sending(Operation::new(self, what, operands, buf))
    }

    /// Compares a peer's memory with `compare` and changes it by `operand` where that says so
    /// (fi_compare_atomic(3)); gives `buf` back with what was there before.
    pub fn compare_atomic<'a>(
        &'a self,
        buf: Buf,
        operand: &'a [u8],
        compare: &'a [u8],
        target: Target,
    ) -> Sending<'a> {
        let operands = Operands { operand, compare };
        let family = Family::Compare;
        let what = Post::Atomic { family, target };
        Sending(Operation::new(self, what, operands, buf))
    }

    /// Changes a peer's memory by a copy of `operand` (fi_inject_atomic(3)): no buffer, no waiting.
    ///
    /// # Errors
    /// As [`crate::Atomic::inject_atomic`].
    pub fn inject_atomic(&self, operand: &[u8], target: Target) -> Result {
        self.admit(target.dest)?;
        self.port.inject_atomic(operand, &target)
    }

    /// Does what the poll of any future does: drives progress, wakes the futures whose operations
    /// are done, posts what waited for room, and returns the buffers of futures that were dropped.
    /// Says how many completions it met; one call reads a bounded number, and never waits.
    ///
    /// # Errors
    /// Those of [`crate::CompletionQueue::read`].
    pub fn progress(&self) -> Result<usize> {
        let mut aftermath = Aftermath::default();
        let count = self.port.read(BATCH, &mut aftermath);
        aftermath.run();
        self.backlog
            .flush(&self.port)
            .into_iter()
            .for_each(After::run);
        if count.is_err() {
            self.wake_all();
        }
        count
    }

    fn sending(&self, what: Post, buf: Buf) -> Sending<'_> {
        Sending(Operation::new(self, what, Operands::NONE, buf))
    }

    fn receiving(&self, what: Post, buf: Buf) -> Receiving<'_> {
        Receiving(Operation::new(self, what, Operands::NONE, buf))
    }

    /// Posts, behind whatever waits; a full queue is no failure.
    pub(super) fn place(
        &self,
        what: Post,
        operands: Operands<'_>,
        buf: Buf,
        task: impl Fn() -> Task,
    ) -> Result<Stage, Refused> {
        let refused = match self.backlog.holds(Lane::of(what)) {
            true => Refused {
                errno: Errno::Again,
                buf,
            },
            false => match self.port.post(what, operands, buf, task()) {
                Ok(key) => return Ok(Stage::Posted(key)),
                Err(refused) => refused,
            },
        };
        match refused.errno {
            Errno::Again => {
                let ticket = self.backlog.add(what, operands, refused.buf, task());
                Ok(Stage::Waiting(ticket))
            }
            _ => Err(refused),
        }
    }

    /// Posts for what is set aside; a full queue is no failure.
    pub(super) fn redeem(
        &self,
        key: Key,
        what: Post,
        buf: Buf,
        task: Task,
    ) -> Result<Stage, Refused> {
        match self.port.redeem(key, what, buf, task) {
            Ok(()) => Ok(Stage::Posted(key)),
            Err(Refused {
                errno: Errno::Again,
                buf,
            }) => Ok(Stage::Claimed(key, buf)),
            Err(refused) => Err(refused),
        }
    }

    /// Drops what is set aside. If there is no room for that even after a look, it stays until the
    /// endpoint is closed.
    pub(super) fn discard(&self, key: Key, buf: Buf) {
        let what = Post::claimed(OpFlags::DISCARD);
        if let Ok(Stage::Claimed(key, buf)) = self.redeem(key, what, buf, Task::Gone) {
            let _ = self.progress();
            let _ = self.redeem(key, what, buf, Task::Gone);
        }
        // A read that fails here fails again for a future that can say so.
        let _ = self.progress();
    }

    /// Lets nothing pass that cannot wait while something to this peer does.
    fn admit(&self, peer: FiAddr) -> Result {
        let lane = Lane::To(peer);
        if self.backlog.holds(lane) {
            self.progress()?;
            if self.backlog.holds(lane) {
                return Err(Errno::Again);
            }
        }
        Ok(())
    }

    /// Arranges that a pending future is polled again: at once, unless somebody waits.
    pub(super) fn poll_again(&self, cx: &task::Context<'_>) {
        if !self.sleeps {
            cx.waker().wake_by_ref();
        }
    }

    /// Has every future that waits for a completion polled, after a read of completions that failed:
    /// their own read fails, too, and ends them.
    #[cold]
    pub(super) fn wake_all(&self) {
        let wakers = self.port.owners().into_iter().filter_map(Task::waker);
        wakers.for_each(Waker::wake);
    }

    pub(super) fn port(&self) -> &Port<Task> {
        &self.port
    }

    pub(super) fn dormitory(&self) -> &Arc<Dormitory> {
        &self.dormitory
    }
}
