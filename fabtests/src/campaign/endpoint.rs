//! An endpoint of a campaign's process, and the memory that it lets its peers access.
//!
//! The test kit checks what every process may rely on: each operation completes once, received bytes
//! lie inside their message, and nothing completes that was not posted.

use std::collections::VecDeque;
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use selvedge::atomic::{Datatype, Family, Op};
use selvedge::info::EpType;
use selvedge::param::Params;
use selvedge::{
    Address, Bindings, Caps, Errno, Error, FiAddr, Hints, Info, MrAccess, OpFlags, Registry,
    TagMatch, av, cq, wait,
};
use selvedge_testkit::endpoint::{
    Atomic, Post, RawEndpoint, Read, RemoteAddr, Rx, TestEndpoint, Tx, Write,
};
use selvedge_testkit::memory::{Maker, Memory};
use selvedge_testkit::timeout::Timeout;
use serde::{Deserialize, Serialize};

use super::message::{self, Stamp};
use crate::suite::flaw;

pub(crate) use selvedge_testkit::endpoint::{BLANK, Completion};

/// What can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// Untagged.
    Msg,
    /// Tagged.
    Tagged,
    /// Untagged, copied at once, without a completion.
    Inject,
    /// Tagged, copied at once, without a completion.
    TaggedInject,
    /// Tagged, complete when it has been received.
    Delivered,
}

impl Kind {
    /// Whether receives match it by its tag.
    pub(crate) const fn is_tagged(self) -> bool {
        !matches!(self, Self::Msg | Self::Inject)
    }

    /// Whether its send never completes, because it is over when it is posted.
    pub(crate) const fn is_injected(self) -> bool {
        matches!(self, Self::Inject | Self::TaggedInject)
    }
}

/// What is done to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Bytes are written.
    Write,
    /// Bytes are read.
    Read,
    /// One is added to its first word, whose earlier value comes back.
    Add,
}

/// Which memory. Every endpoint that offers memory offers both, under fixed keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Ordinary memory of the process.
    Plain,
    /// Memory that its peers map.
    Special,
}

impl Place {
    /// The key of this memory in every process.
    pub(crate) const fn key(self) -> u64 {
        match self {
            Self::Plain => 1,
            Self::Special => 2,
        }
    }
}

/// An endpoint with all that it needs. Dropped from the top down: the endpoint before the memory.
#[derive(Debug)]
pub(crate) struct CampaignEndpoint {
    endpoint: TestEndpoint,
    memory: Option<[Memory; 2]>,
}

/// Bytes of each memory.
const MEMORY: usize = 65_536;

/// Finds the shm provider, for an endpoint called `name` if it has one; with the defect that the
/// environment names, for a campaign that is to notice it.
///
/// # Errors
/// When discovery finds none.
pub(crate) fn discover(name: Option<&str>, params: &[(&str, &str)]) -> Result<Info, Error> {
    let params: Params = params.iter().copied().collect();
    let provider = flaw::planted(Arc::new(&selvedge_shm::PROVIDER));
    let provider = provider.map_err(|e| Error::new(Errno::Inval, e.to_string()))?;
    let registry = Registry::new().with_shared(provider).with_params(params);
    let messages = Caps::MSG | Caps::TAGGED | Caps::SOURCE | Caps::DIRECTED_RECV;
    let caps = messages | Caps::RMA | Caps::ATOMIC;
    let hints = Hints::new().caps(caps).ep_type(EpType::Rdm);
    let mut info = registry.infos(&hints)?.remove(0);
    info.src_addr = name.map(|name| Address::Str(name.into()));
    Ok(info)
}

impl CampaignEndpoint {
    /// Opens an endpoint of the shm provider, called `name` if it has one.
    ///
    /// # Errors
    /// When discovery finds none, or it does not open.
    pub(crate) fn open(name: Option<&str>, params: &[(&str, &str)]) -> Result<Self, Error> {
        Self::with_wait(&discover(name, params)?, wait::Object::None)
    }

    /// Opens what [`discover`] has found, with a queue that can be waited at.
    ///
    /// # Errors
    /// When it does not open.
    pub(crate) fn with_wait(info: &Info, object: wait::Object) -> Result<Self, Error> {
        let domain = info.open()?;
        let mut attr = cq::Attr::default();
        attr.wait_obj = object;
        let cq = domain.cq(&attr)?;
        let av = domain.av(&av::Attr::default())?;
        let ep = domain.endpoint(info, Bindings::new(Arc::clone(&cq), Arc::clone(&av)))?;
        let api = RawEndpoint::new(ep, cq, Some(av)).allow_torn_receives();
        Ok(Self {
            endpoint: TestEndpoint::new(Box::new(api), domain, info.clone(), 0, None),
            memory: None,
        })
    }

    /// Its address, for peers.
    ///
    /// # Errors
    /// When it has none.
    pub(crate) fn name(&self) -> anyhow::Result<String> {
        Ok(self.endpoint.address()?.to_string())
    }

    /// The index of a peer.
    ///
    /// # Errors
    /// When the address is refused.
    pub(crate) fn insert(&self, name: &str) -> anyhow::Result<FiAddr> {
        self.endpoint.insert(&Address::Str(name.to_owned()))
    }

    /// Posts a message of `len` bytes; its context.
    ///
    /// # Errors
    /// What the post answers.
    pub(crate) fn send(
        &mut self,
        kind: Kind,
        dest: FiAddr,
        len: usize,
        stamp: Stamp,
    ) -> Result<u64, Errno> {
        self.send_bytes(kind, dest, message::write(stamp, len), stamp)
    }

    /// Posts a message that has been written already; its context.
    ///
    /// # Errors
    /// What the post answers.
    pub(crate) fn send_bytes(
        &mut self,
        kind: Kind,
        dest: FiAddr,
        bytes: Box<[u8]>,
        stamp: Stamp,
    ) -> Result<u64, Errno> {
        let mut tx = Tx::msg(dest, bytes.into_vec());
        tx.tag = kind.is_tagged().then(|| stamp.word());
        tx.is_injected = kind.is_injected();
        if kind == Kind::Delivered {
            tx.flags = Some(OpFlags::DELIVERY_COMPLETE | OpFlags::COMPLETION);
        }
        self.endpoint.try_post(tx)
    }

    /// Posts a receive of untagged messages up to `len` bytes; its context.
    ///
    /// # Errors
    /// What the post answers.
    pub(crate) fn recv(&mut self, src: FiAddr, len: usize) -> Result<u64, Errno> {
        self.endpoint.try_post(Rx::msg(len).from(src))
    }

    /// Posts a receive of tagged messages up to `len` bytes; its context.
    ///
    /// # Errors
    /// What the post answers.
    pub(crate) fn trecv(&mut self, src: FiAddr, len: usize, tag: TagMatch) -> Result<u64, Errno> {
        self.endpoint.try_post(Rx::tagged(tag, len).from(src))
    }

    /// Posts an access to the beginning of a peer's memory: the bytes are written, or as many are
    /// read. Its context.
    ///
    /// # Errors
    /// What the post answers.
    pub(crate) fn access(
        &mut self,
        access: Access,
        key: u64,
        peer: FiAddr,
        bytes: Box<[u8]>,
    ) -> Result<u64, Errno> {
        let target = RemoteAddr { peer, addr: 0, key };
        self.endpoint.try_post(match access {
            Access::Write => Post::Write(Write::new(target, bytes.into_vec())),
            Access::Read => Post::Read(Read::new(target, bytes.len())),
            Access::Add => Post::Atomic(Atomic::new(
                Family::Fetch,
                Datatype::Uint64,
                Op::Sum,
                target,
                1_u64.to_ne_bytes().to_vec(),
                Vec::new(),
            )),
        })
    }

    /// Cancels a receive, unless a message has met it.
    pub(crate) fn cancel(&self, context: u64) {
        // It completes, canceled or not, or it has already.
        let _ = self.endpoint.cancel(context);
    }

    /// Moves things on, and keeps what has completed for [`Self::take`].
    ///
    /// # Errors
    /// When something completes that must not.
    pub(crate) fn drive(&mut self) -> anyhow::Result<()> {
        self.endpoint.store_completions()
    }

    /// The next completion that [`Self::drive`] has found.
    pub(crate) fn take(&mut self) -> Option<Completion> {
        loop {
            // An inject has no context; that its peer is gone is reported all the same.
            let next = self.endpoint.take_stored()?;
            if next.context != 0 {
                return Some(next);
            }
        }
    }

    /// Takes completions back, which are older than those that are still there.
    pub(crate) fn put_back(&mut self, completions: VecDeque<Completion>) {
        self.endpoint.put_back(completions);
    }

    /// Drives, and takes the next completion if there is one.
    ///
    /// # Errors
    /// As [`Self::drive`].
    pub(crate) fn poll(&mut self) -> anyhow::Result<Option<Completion>> {
        self.drive()?;
        Ok(self.take())
    }

    /// Arms the wake-up of the queue's descriptor: from here on it must become ready with whatever
    /// comes. What has come before is kept for [`Self::take`].
    ///
    /// # Errors
    /// As [`Self::drive`]; when it never may.
    pub(crate) fn arm_wakeup(&mut self) -> anyhow::Result<()> {
        let mut timeout = Timeout::new("leave to sleep");
        let cq = self.endpoint.cq();
        loop {
            match cq.try_wait() {
                Ok(()) => return Ok(()),
                Err(Errno::Again) => self.drive()?,
                Err(errno) => bail!("asking for leave to sleep: {errno}"),
            }
            timeout.check()?;
        }
    }

    /// Sleeps until the descriptor is ready.
    ///
    /// # Errors
    /// When it is not after a minute.
    pub(crate) fn wait_for_wakeup(&self) -> anyhow::Result<()> {
        let cq = self.endpoint.cq();
        let fd = cq.wait_fd().context("a queue without a descriptor")?;
        let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
        let minute = PollTimeout::from(60_000_u16);
        loop {
            match poll(&mut fds, minute) {
                Ok(ready) => {
                    ensure!(ready > 0, "a sleeper was not woken");
                    return Ok(());
                }
                Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Whether no operation is outstanding and no completion unread.
    pub(crate) fn is_idle(&self) -> bool {
        self.endpoint.is_idle()
    }

    /// Lets all peers access memory of this endpoint.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn offer_memory(&mut self) -> anyhow::Result<()> {
        let access = MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE;
        let memory = |maker, place: Place| {
            Memory::new(&*self.endpoint.domain, maker, MEMORY, access, place.key())
        };
        self.memory = Some([
            memory(Maker::Test, Place::Plain)?,
            memory(Maker::Domain, Place::Special)?,
        ]);
        Ok(())
    }

    fn memory(&self, place: Place) -> &Memory {
        let [plain, special] = self.memory.as_ref().expect("it was offered");
        match place {
            Place::Plain => plain,
            Place::Special => special,
        }
    }

    /// Puts bytes at the beginning of a memory, and what no peer writes behind them.
    pub(crate) fn set_memory(&self, place: Place, bytes: &[u8]) {
        let mut whole = blank(MEMORY);
        whole[..bytes.len()].copy_from_slice(bytes);
        self.memory(place).put(0, &whole);
    }

    /// The stamp that a memory begins with.
    pub(crate) fn memory_stamp(&self, place: Place) -> Stamp {
        Stamp::from_word(u64::from_le(self.memory(place).word(0)))
    }

    /// All bytes of a memory.
    pub(crate) fn memory_bytes(&self, place: Place) -> Vec<u8> {
        self.memory(place).get(0, MEMORY)
    }
}

/// Room for what is to come, and nothing in it that anybody sends.
pub(crate) fn blank(len: usize) -> Box<[u8]> {
    vec![BLANK; len].into()
}
