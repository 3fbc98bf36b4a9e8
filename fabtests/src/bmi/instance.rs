//! The BMI instance of one process, its peer, and posts that do not own their memory.

#![expect(unsafe_code, reason = "posts are promises about memory")]

use std::ops::{Deref, DerefMut};
use std::time::Instant;

use anyhow::Context as _;
use selvedge::{Iov, IovMut};
use selvedge_bench::buffer::Pages;
use selvedge_bench::fabric::OpenOrder;
use selvedge_bmi::{Addr, Bmi, Config, ContextId, Memory, Post, Posted};

/// An open instance and its peer.
#[derive(Debug)]
pub(super) struct MethodInstance {
    pub(super) bmi: Bmi,
    pub(super) context: ContextId,
    pub(super) peer: Addr,
    pub(super) url: String,
    pub(super) provider: String,
    /// Whether buffers are allocated by BMI.
    special: bool,
    /// Nanoseconds that opening took.
    pub(super) open_ns: u64,
}

/// A message buffer, allocated by the rules that hold for every contestant of a benchmark.
#[derive(Debug)]
pub(super) enum MessageBuffer {
    Pages(Pages),
    Special(Memory),
}

impl Deref for MessageBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Pages(pages) => pages,
            Self::Special(memory) => memory,
        }
    }
}

impl DerefMut for MessageBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Pages(pages) => pages,
            Self::Special(memory) => memory,
        }
    }
}

/// The kind of a message, which is its tag.
#[derive(Clone, Copy, Debug)]
pub(super) enum MessageKind {
    /// A measured message.
    Payload = 1,
    /// The acknowledgement of a window.
    Ack = 2,
}

impl MethodInstance {
    /// Opens an instance that the other process can connect to.
    pub(super) fn open(order: &OpenOrder) -> anyhow::Result<Self> {
        let provider = order.provider.clone().unwrap_or_else(|| "shm".to_owned());
        let begin = Instant::now();
        let config = Config::server(&format!("{provider}://localhost"));
        let bmi = Bmi::initialize(config).context("cannot open BMI")?;
        let url = bmi.urls().pop().context("BMI listens at no URL")?;
        Ok(Self {
            context: bmi.open_context()?,
            bmi,
            peer: Addr::NONE,
            url,
            provider,
            special: order.special,
            open_ns: begin.elapsed().as_nanos() as u64,
        })
    }

    /// Allocates `count` buffers of `len` bytes.
    pub(super) fn buffers(&self, count: usize, len: usize) -> anyhow::Result<Vec<MessageBuffer>> {
        let buffer = |_| {
            if self.special {
                let memory = self.bmi.memalloc(self.peer, len);
                memory
                    .map(MessageBuffer::Special)
                    .context("BMI cannot allocate memory")
            } else {
                Pages::new(len).map(MessageBuffer::Pages)
            }
        };
        (0..count).map(buffer).collect()
    }

    /// Posts a send.
    ///
    /// # Safety
    /// The buffer stays valid and unwritten until the operation is collected or this value is
    /// dropped.
    #[inline]
    pub(super) unsafe fn send(
        &self,
        buffer: &[u8],
        kind: MessageKind,
        user: u64,
    ) -> anyhow::Result<Posted> {
        let segments = [Iov::new(buffer)];
        let post = Post::new(self.peer, &segments[..], kind as i32, self.context).with_user(user);
        // SAFETY: passed on from the caller.
        Ok(unsafe { self.bmi.post_send_raw(&post, |_| ()) }?)
    }

    /// Posts a receive.
    ///
    /// # Safety
    /// The buffer stays valid, and nothing else uses it, until the operation is collected or this
    /// value is dropped.
    #[inline]
    pub(super) unsafe fn recv(
        &self,
        buffer: &mut [u8],
        kind: MessageKind,
        user: u64,
    ) -> anyhow::Result<Posted> {
        let segments = [IovMut::new(buffer)];
        let post = Post::new(self.peer, &segments[..], kind as i32, self.context).with_user(user);
        // SAFETY: passed on from the caller.
        Ok(unsafe { self.bmi.post_recv_raw(&post, |_| ()) }?)
    }
}
