//! The operations that a [`DomainEndpoint`] posts, and why the memory of an operation is valid.
//!
//! The memory belongs to a domain, which every endpoint keeps open, so it outlives all operations;
//! and there are no references to it. If a program writes to memory that an operation still uses,
//! this only changes the received data, and the checks of the program detect it.

#![expect(unsafe_code, reason = "a post is a promise about memory")]

use std::mem::ManuallyDrop;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use selvedge::collective::CollectiveMsg;
use selvedge::rma::{ReadMsg, RmaIov, WriteMsg};
use selvedge::{
    CompletionFlags, Context, Desc, Errno, FiAddr, Iov, IovMut, Op, OpFlags, SharedReceives,
    TagMatch, msg, tagged,
};

use super::{DomainEndpoint, Memory, Remote, Rights};
use crate::op;
use crate::run::failure::{failure, wrong};

/// A segment of registered memory.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// The memory.
    pub memory: &'a Memory,
    /// The registration of the memory.
    pub rights: &'a Rights,
    /// The offset of the first byte.
    pub at: usize,
    /// The length in bytes.
    pub len: usize,
}

impl Segment<'_> {
    /// The address of the first byte, for an operation of `ep`.
    ///
    /// # Panics
    /// When the memory belongs to another domain.
    #[inline]
    pub fn base(&self, ep: &DomainEndpoint) -> *mut u8 {
        assert!(
            self.memory.owner() == ep.context.number(),
            "the memory belongs to another domain"
        );
        self.memory.at(self.at, self.len)
    }

    #[inline]
    fn iov(&self) -> Iov {
        Iov::from_raw(
            self.memory.at(self.at, self.len).cast_const().cast(),
            self.len,
        )
    }

    #[inline]
    fn iov_mut(&self) -> IovMut {
        IovMut::from_raw(self.memory.at(self.at, self.len).cast(), self.len)
    }
}

/// The parameters of a send. It is a tagged send if `tag` is set.
#[derive(Clone, Copy, Debug)]
pub struct Send {
    pub dest: FiAddr,
    pub tag: Option<u64>,
    pub data: Option<u64>,
    pub flags: OpFlags,
    pub context: u64,
}

/// The parameters of a receive. It is a tagged receive if `tag` is set.
#[derive(Clone, Copy, Debug)]
pub struct Recv {
    pub src: FiAddr,
    pub tag: Option<TagMatch>,
    pub flags: OpFlags,
    pub context: u64,
}

/// The parameters of an access to a peer's memory.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    pub peer: FiAddr,
    pub remote: Remote,
    pub data: Option<u64>,
    pub flags: OpFlags,
    pub context: u64,
}

impl Send {
    /// An untagged send.
    #[inline]
    pub fn new(dest: FiAddr, context: u64) -> Self {
        Self {
            dest,
            tag: None,
            data: None,
            flags: OpFlags::DEFAULT,
            context,
        }
    }

    /// Sets the tag.
    #[inline]
    pub fn tag(mut self, tag: impl Into<Option<u64>>) -> Self {
        self.tag = tag.into();
        self
    }
}

impl Recv {
    /// An untagged receive from any peer.
    #[inline]
    pub fn new(context: u64) -> Self {
        Self {
            src: FiAddr::UNSPEC,
            tag: None,
            flags: OpFlags::DEFAULT,
            context,
        }
    }

    /// Sets the source.
    #[inline]
    pub fn from(mut self, src: FiAddr) -> Self {
        self.src = src;
        self
    }

    /// Sets the accepted tags.
    #[inline]
    pub fn tag(mut self, tag: impl Into<Option<TagMatch>>) -> Self {
        self.tag = tag.into();
        self
    }

    /// Sets flags in place of the endpoint's default flags.
    #[inline]
    pub fn flags(mut self, flags: OpFlags) -> Self {
        self.flags = flags;
        self
    }
}

impl Access {
    /// An access without remote data.
    #[inline]
    pub fn new(peer: FiAddr, remote: Remote, context: u64) -> Self {
        Self {
            peer,
            remote,
            data: None,
            flags: OpFlags::DEFAULT,
            context,
        }
    }
}

/// Setters that [`Send`] and [`Access`] have in common.
macro_rules! data_and_flags {
    ($($type:ty),+) => { $(impl $type {
        /// Sets the remote data.
        #[inline]
        pub fn data(mut self, data: impl Into<Option<u64>>) -> Self {
            self.data = data.into();
            self
        }

        /// Sets flags in place of the endpoint's default flags.
        #[inline]
        pub fn flags(mut self, flags: OpFlags) -> Self {
            self.flags = flags;
            self
        }
    })+ };
}

data_and_flags!(Send, Access);

impl DomainEndpoint {
    /// Posts a collective on 64-bit words, waits for its completion, and returns the result.
    ///
    /// # Errors
    /// Those of the post and of the wait. After an error the words are leaked, because the endpoint
    /// may still use them.
    pub fn collective(
        &self,
        mut msg: CollectiveMsg,
        buf: Vec<u64>,
        result: Vec<u64>,
    ) -> anyhow::Result<Vec<u64>> {
        let (buf, mut result) = (ManuallyDrop::new(buf), ManuallyDrop::new(result));
        (msg.buf, msg.result) = (buf.as_ptr().cast(), result.as_mut_ptr().cast());
        let coll = self.ep.collective();
        let coll = coll.context("the endpoint has no collectives")?;
        self.push("collective", |_| {
            // SAFETY: the words are dropped after the collective has completed, or never.
            unsafe { coll.collective(&msg, OpFlags::DEFAULT) }
        })?;
        let entry = self.tx.next()?;
        if entry.context != msg.context || entry.flags != CompletionFlags::COLLECTIVE {
            return Err(wrong(format!("a collective completes with {entry:?}")));
        }
        drop(ManuallyDrop::into_inner(buf));
        Ok(ManuallyDrop::into_inner(result))
    }

    /// Runs a collective `turns` times, with `words[0]` as its operand and `words[1]` as its
    /// result. Returns the total time.
    ///
    /// # Errors
    /// Those of the provider.
    pub fn collectives(
        &self,
        mut msg: CollectiveMsg,
        words: &'static [AtomicU64; 2],
        turns: usize,
    ) -> anyhow::Result<Duration> {
        let coll = self.ep.collective();
        let coll = coll.context("the endpoint has no collectives")?;
        (msg.buf, msg.result) = (words[0].as_ptr().cast(), words[1].as_ptr().cast());
        let start = Instant::now();
        for _ in 0..turns {
            // SAFETY: the words are never freed, and atomics may be changed through shared
            // references.
            while unsafe { coll.collective(&msg, OpFlags::DEFAULT) } == Err(Errno::Again) {
                self.tx.progress()?;
            }
            self.tx.next()?;
        }
        Ok(start.elapsed())
    }

    /// Runs a barrier, or an all-reduce, that is made of messages `turns` times: in each round this
    /// member sends a word to the next peer of `rounds` and waits for a word. Returns the total
    /// time. All members have the same number of rounds, and each receives one word in each round.
    ///
    /// # Errors
    /// Those of the provider.
    pub fn exchanges(
        &self,
        rounds: &[FiAddr],
        words: &'static [AtomicU64; 2],
        turns: usize,
    ) -> anyhow::Result<Duration> {
        let received = IovMut::from_raw(words[1].as_ptr().cast(), 8);
        let start = Instant::now();
        for turn in 0..turns {
            for (tag, &to) in (7..).zip(rounds) {
                let msg = tagged::RecvMsg {
                    iov: &[received],
                    desc: &[],
                    src: FiAddr::UNSPEC,
                    tag: TagMatch::exact(tag),
                    context: Context(0),
                };
                // SAFETY: as in `collectives`.
                unsafe { self.ep.trecvmsg(&msg, OpFlags::DEFAULT) }?;
                let word = (turn as u64).to_ne_bytes();
                while self.ep.tinject(&word, to, tag, None) == Err(Errno::Again) {
                    self.tx.progress()?;
                }
                self.rx.next()?;
            }
        }
        Ok(start.elapsed())
    }

    /// Posts a send of segments once.
    ///
    /// # Errors
    /// Those of the provider.
    #[inline]
    pub fn send(&self, segments: &[Segment<'_>], send: &Send) -> Result<(), Errno> {
        // SAFETY: the memory belongs to the endpoint's domain (`SegmentLists` checks it), which the
        // endpoint keeps open; there are no references to it.
        self.send_op(segments, send, |op, flags| unsafe {
            op.post(&*self.ep, flags)
        })
    }

    /// Builds the operation of a send, and passes it to `post` with its flags.
    #[inline]
    pub fn send_op<T>(
        &self,
        segments: &[Segment<'_>],
        send: &Send,
        post: impl FnOnce(&Op<'_>, OpFlags) -> T,
    ) -> T {
        let mut lists = SegmentLists::default();
        let (iov, desc) = lists.read(self, segments);
        let msg = msg::SendMsg {
            iov,
            desc,
            dest: send.dest,
            context: Context(send.context),
            data: send.data.unwrap_or(0),
        };
        let flags = op::with_data(send.flags, send.data);
        post(&op::send(msg, send.tag), flags)
    }

    /// Posts a receive into segments once.
    ///
    /// # Errors
    /// Those of the provider.
    #[inline]
    pub fn recv(&self, segments: &[Segment<'_>], recv: &Recv) -> Result<(), Errno> {
        // SAFETY: as in `send`.
        self.recv_op(segments, recv, |op| unsafe {
            op.post(&*self.ep, recv.flags)
        })
    }

    /// Posts a receive to a shared receive context once.
    ///
    /// # Errors
    /// Those of the provider.
    pub fn recv_at(
        &self,
        srx: &dyn SharedReceives,
        segments: &[Segment<'_>],
        recv: &Recv,
    ) -> Result<(), Errno> {
        // SAFETY: as in `send`.
        self.recv_op(segments, recv, |op| unsafe {
            op.post_shared(srx, recv.flags)
        })
    }

    /// Builds the operation of a receive, and passes it to `post`.
    #[inline]
    pub fn recv_op<T>(
        &self,
        segments: &[Segment<'_>],
        recv: &Recv,
        post: impl FnOnce(&Op<'_>) -> T,
    ) -> T {
        let mut lists = SegmentLists::default();
        let (iov, desc) = lists.write(self, segments);
        let msg = msg::RecvMsg {
            iov,
            desc,
            src: recv.src,
            context: Context(recv.context),
        };
        post(&op::recv(msg, recv.tag))
    }

    /// Posts a write to a peer's memory once.
    ///
    /// # Errors
    /// Those of the provider.
    #[inline]
    pub fn write(&self, segments: &[Segment<'_>], access: &Access) -> Result<(), Errno> {
        // SAFETY: as in `send`.
        self.write_op(segments, access, |op, flags| unsafe {
            op.post(&*self.ep, flags)
        })
    }

    /// Builds the operation of a write to a peer's memory, and passes it to `post` with its flags.
    #[inline]
    pub fn write_op<T>(
        &self,
        segments: &[Segment<'_>],
        access: &Access,
        post: impl FnOnce(&Op<'_>, OpFlags) -> T,
    ) -> T {
        let mut lists = SegmentLists::default();
        let (iov, desc) = lists.read(self, segments);
        let msg = WriteMsg {
            iov,
            desc,
            dest: access.peer,
            rma_iov: &[rma_iov(access, segments)],
            context: Context(access.context),
            data: access.data.unwrap_or(0),
        };
        post(&Op::Write(msg), op::with_data(access.flags, access.data))
    }

    /// Posts a read of a peer's memory once.
    ///
    /// # Errors
    /// Those of the provider.
    #[inline]
    pub fn read(&self, segments: &[Segment<'_>], access: &Access) -> Result<(), Errno> {
        let mut lists = SegmentLists::default();
        let (iov, desc) = lists.write(self, segments);
        let msg = ReadMsg {
            iov,
            desc,
            src: access.peer,
            rma_iov: &[rma_iov(access, segments)],
            context: Context(access.context),
        };
        // SAFETY: as in `send`.
        unsafe { self.ep.readmsg(&msg, access.flags) }
    }

    /// Calls `post`, and repeats the call while it returns [`Errno::Again`]; drives progress
    /// between the calls. Error texts call the operation `name`.
    ///
    /// # Errors
    /// Those of the provider; a timeout when `post` continues to return [`Errno::Again`].
    #[inline]
    pub fn push(
        &self,
        name: &str,
        mut post: impl FnMut(&Self) -> Result<(), Errno>,
    ) -> anyhow::Result<()> {
        match post(self) {
            Ok(()) => Ok(()),
            Err(errno) => self.retry_post(name, errno, post),
        }
    }

    #[cold]
    fn retry_post(
        &self,
        name: &str,
        first: Errno,
        mut post: impl FnMut(&Self) -> Result<(), Errno>,
    ) -> anyhow::Result<()> {
        let start = Instant::now();
        let mut errno = first;
        self.context.strategy().until(name, || {
            if errno != Errno::Again {
                let message = format!("cannot post a {name} after {:?}", start.elapsed());
                return Err(failure(errno, message));
            }
            self.progress()?;
            match post(self) {
                Ok(()) => Ok(Some(())),
                Err(next) => {
                    errno = next;
                    Ok(None)
                }
            }
        })
    }

    /// The address of the endpoint, as bytes.
    ///
    /// # Errors
    /// When the endpoint has no address.
    pub fn name(&self) -> anyhow::Result<Vec<u8>> {
        let address = self.ep.address().context("the endpoint has no address")?;
        Ok(address.to_bytes())
    }
}

/// The remote segment of an access; it has as many bytes as the local segments together.
fn rma_iov(access: &Access, segments: &[Segment<'_>]) -> RmaIov {
    RmaIov {
        addr: access.remote.addr,
        len: segments.iter().map(|segment| segment.len).sum(),
        key: access.remote.key,
    }
}

/// The maximum number of segments in a list.
const MAX_SEGMENTS: usize = 4;

/// The lists of segments and descriptors that a call passes to the provider, on the stack.
#[derive(Debug)]
pub struct SegmentLists {
    read: [Iov; MAX_SEGMENTS],
    write: [IovMut; MAX_SEGMENTS],
    desc: [Desc; MAX_SEGMENTS],
}

impl Default for SegmentLists {
    #[inline]
    fn default() -> Self {
        Self {
            read: [const { Iov::from_raw(std::ptr::null(), 0) }; MAX_SEGMENTS],
            write: [const { IovMut::from_raw(std::ptr::null_mut(), 0) }; MAX_SEGMENTS],
            desc: [Desc::NONE; MAX_SEGMENTS],
        }
    }
}

impl SegmentLists {
    /// Returns the list of segments that an operation reads from, and their descriptors.
    #[inline]
    pub fn read(&mut self, ep: &DomainEndpoint, segments: &[Segment<'_>]) -> (&[Iov], &[Desc]) {
        self.describe(ep, segments);
        for (iov, segment) in self.read.iter_mut().zip(segments) {
            *iov = segment.iov();
        }
        (&self.read[..segments.len()], &self.desc[..segments.len()])
    }

    /// Returns the list of segments that an operation writes to, and their descriptors.
    #[inline]
    pub fn write(&mut self, ep: &DomainEndpoint, segments: &[Segment<'_>]) -> (&[IovMut], &[Desc]) {
        self.describe(ep, segments);
        for (iov, segment) in self.write.iter_mut().zip(segments) {
            *iov = segment.iov_mut();
        }
        (&self.write[..segments.len()], &self.desc[..segments.len()])
    }

    #[inline]
    fn describe(&mut self, ep: &DomainEndpoint, segments: &[Segment<'_>]) {
        for (desc, segment) in self.desc.iter_mut().zip(segments) {
            let owner = segment.memory.owner();
            assert!(
                owner == ep.context.number(),
                "the memory belongs to another domain"
            );
            *desc = segment.rights.desc();
        }
    }
}
