//! One process's instance of BMI, its peer, and posts that name memory by its address.

#![expect(unsafe_code, reason = "posts are promises about memory")]

use std::ops::{Deref, DerefMut};
use std::time::Instant;

use anyhow::Context as _;
use selvedge::{Iov, IovMut};
use selvedge_bench::buffer::Pages;
use selvedge_bench::clock::Clock;
use selvedge_bench::fabric::{BenchOrder, OpenOrder, Opened};
use selvedge_bench::pair::Side;
use selvedge_bench::pair::role::Backend;
use selvedge_bench::timing::Timing;
use selvedge_bmi::{Addr, Bmi, Config, ContextId, Memory, Post, Posted};

/// An open instance and its peer.
#[derive(Debug)]
pub(super) struct Station {
    pub(super) bmi: Bmi,
    pub(super) context: ContextId,
    peer: Addr,
    url: String,
    provider: String,
    /// Whether buffers are such as BMI makes.
    special: bool,
    /// What opening it took.
    open_ns: u64,
}

/// Memory for messages, by the rules that hold for every contestant.
#[derive(Debug)]
pub(super) enum Room {
    Pages(Pages),
    Special(Memory),
}

impl Deref for Room {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Pages(pages) => pages,
            Self::Special(memory) => memory,
        }
    }
}

impl DerefMut for Room {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Pages(pages) => pages,
            Self::Special(memory) => memory,
        }
    }
}

/// What a message's tag says.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    /// Is measured.
    Payload = 1,
    /// Closes a window.
    Ack = 2,
}

impl Station {
    /// Opens an instance that the other process can find.
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

    /// Buffers of `len` bytes.
    pub(super) fn buffers(&self, count: usize, len: usize) -> anyhow::Result<Vec<Room>> {
        let buffer = |_| match self.special {
            true => {
                let made = self.bmi.memalloc(self.peer, len);
                made.map(Room::Special).context("BMI makes no memory")
            }
            false => Pages::new(len).map(Room::Pages),
        };
        (0..count).map(buffer).collect()
    }

    /// Posts a send.
    ///
    /// # Safety
    /// The buffer lives, unwritten, until the operation was collected, or this value was dropped.
    #[inline]
    pub(super) unsafe fn send(
        &self,
        buffer: &[u8],
        purpose: Purpose,
        user: u64,
    ) -> anyhow::Result<Posted> {
        let pieces = [Iov::new(buffer)];
        let post = Post::new(self.peer, &pieces[..], purpose as i32, self.context).with_user(user);
        // SAFETY: passed on from the caller.
        Ok(unsafe { self.bmi.post_send_raw(&post, |_| ()) }?)
    }

    /// Posts a receive.
    ///
    /// # Safety
    /// The buffer lives, and nobody uses it, until the operation was collected, or this value was
    /// dropped.
    #[inline]
    pub(super) unsafe fn recv(
        &self,
        buffer: &mut [u8],
        purpose: Purpose,
        user: u64,
    ) -> anyhow::Result<Posted> {
        let pieces = [IovMut::new(buffer)];
        let post = Post::new(self.peer, &pieces[..], purpose as i32, self.context).with_user(user);
        // SAFETY: passed on from the caller.
        Ok(unsafe { self.bmi.post_recv_raw(&post, |_| ()) }?)
    }
}

impl Backend for Station {
    /// What is sent at once is up to BMI.
    fn describe(&self) -> Opened {
        Opened {
            provider: self.provider.clone(),
            address: self.url.clone(),
            inject_size: 0,
            open_ns: self.open_ns,
        }
    }

    fn set_peer(&mut self, url: &str) -> anyhow::Result<()> {
        self.peer = self.bmi.addr_lookup(url)?;
        Ok(())
    }

    fn run(&mut self, side: Side, clock: Clock, order: BenchOrder) -> anyhow::Result<Timing> {
        super::run(self, side, clock, order)
    }
}
