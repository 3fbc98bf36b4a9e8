//! The endpoint of a campaign's process, and the memory that its peers may access.
//!
//! The test kit checks the promises to every process: each operation completes once, received bytes
//! lie inside their message, and every completion belongs to a posted operation.

pub(super) mod message;

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

use self::message::Stamp;
use crate::suite::defect;

pub(crate) use selvedge_testkit::endpoint::{BLANK, Completion};

/// The kinds of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// Untagged.
    Msg,
    /// Tagged.
    Tagged,
    /// Untagged inject, without a completion.
    Inject,
    /// Tagged inject, without a completion.
    TaggedInject,
    /// Tagged, with delivery complete.
    Delivered,
    /// Tagged, by reference.
    Lent,
}

impl Kind {
    /// Returns whether receives match the message by its tag.
    pub(crate) const fn is_tagged(self) -> bool {
        !matches!(self, Self::Msg | Self::Inject)
    }

    /// Returns whether the send has no completion.
    pub(crate) const fn is_injected(self) -> bool {
        matches!(self, Self::Inject | Self::TaggedInject)
    }
}

/// The kinds of remote accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Writes bytes.
    Write,
    /// Reads bytes.
    Read,
    /// Adds one to the first word and fetches its earlier value.
    Add,
}

/// The kinds of registered memory. Every endpoint that registers memory registers both, under fixed
/// keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryKind {
    /// Ordinary memory of the process.
    Ordinary,
    /// Special memory, which peers map.
    Special,
}

impl MemoryKind {
    /// Returns the key of this memory in every process.
    pub(crate) const fn key(self) -> u64 {
        match self {
            Self::Ordinary => 1,
            Self::Special => 2,
        }
    }
}

/// An endpoint with its objects. Fields are dropped in order: the endpoint before the memory.
#[derive(Debug)]
pub(crate) struct CampaignEndpoint {
    endpoint: TestEndpoint,
    /// Whether tagged receives accept lent messages.
    accepts_lent: bool,
    memory: Option<[Memory; 2]>,
}

/// Bytes of each memory.
const MEMORY_LEN: usize = 65_536;

/// Finds the shm provider for an endpoint with the address `name`, if given. The provider has the
/// defect that the environment names, for campaigns that must detect it.
///
/// # Errors
/// Discovery finds no provider.
pub(crate) fn discover(name: Option<&str>, params: &[(&str, &str)]) -> Result<Info, Error> {
    let params: Params = params.iter().copied().collect();
    let provider = defect::plant_defect(Arc::new(&selvedge_shm::PROVIDER));
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
    /// Opens an endpoint of the shm provider with the address `name`, if given.
    ///
    /// # Errors
    /// Discovery finds no provider, or the endpoint cannot be opened.
    pub(crate) fn open(name: Option<&str>, params: &[(&str, &str)]) -> Result<Self, Error> {
        Self::with_wait(&discover(name, params)?, wait::Object::None)
    }

    /// Opens the result of [`discover`], with a wait object at its queue.
    ///
    /// # Errors
    /// The endpoint cannot be opened.
    pub(crate) fn with_wait(info: &Info, object: wait::Object) -> Result<Self, Error> {
        let domain = info.open()?;
        let mut attr = cq::Attr::default();
        attr.wait_obj = object;
        let cq = domain.cq(&attr)?;
        let av = domain.av(&av::Attr::default())?;
        let ep = domain.endpoint(info, Bindings::new(Arc::clone(&cq), Arc::clone(&av)))?;
        let api = RawEndpoint::new(ep, cq, Some(av)).lend_from(&domain);
        let api = api.allow_torn_receives();
        Ok(Self {
            endpoint: TestEndpoint::new(Box::new(api), domain, info.clone(), 0, None),
            accepts_lent: false,
            memory: None,
        })
    }

    /// Lets later tagged receives accept lent messages.
    pub(crate) fn accept_lent(&mut self) {
        self.accepts_lent = true;
    }

    /// Returns the endpoint's address, for peers.
    ///
    /// # Errors
    /// The endpoint has no address.
    pub(crate) fn name(&self) -> anyhow::Result<String> {
        Ok(self.endpoint.address()?.to_string())
    }

    /// Inserts a peer and returns its index.
    ///
    /// # Errors
    /// The address is invalid.
    pub(crate) fn insert(&self, name: &str) -> anyhow::Result<FiAddr> {
        self.endpoint.insert(&Address::Str(name.to_owned()))
    }

    /// Posts a message of `len` bytes and returns its context.
    ///
    /// # Errors
    /// The error of the post.
    pub(crate) fn send(
        &mut self,
        kind: Kind,
        dest: FiAddr,
        len: usize,
        stamp: Stamp,
    ) -> Result<u64, Errno> {
        self.send_bytes(kind, dest, message::write(stamp, len), stamp)
    }

    /// Posts a message with the content `bytes` and returns its context.
    ///
    /// # Errors
    /// The error of the post.
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
        tx.flags = match kind {
            Kind::Delivered => Some(OpFlags::DELIVERY_COMPLETE | OpFlags::COMPLETION),
            Kind::Lent => Some(OpFlags::DEFAULT | OpFlags::LEND),
            _ => None,
        };
        self.endpoint.try_post(tx)
    }

    /// Posts a receive of untagged messages up to `len` bytes and returns its context.
    ///
    /// # Errors
    /// The error of the post.
    pub(crate) fn recv(&mut self, src: FiAddr, len: usize) -> Result<u64, Errno> {
        self.endpoint.try_post(Rx::msg(len).from(src))
    }

    /// Posts a receive of tagged messages up to `len` bytes and returns its context.
    ///
    /// # Errors
    /// The error of the post.
    pub(crate) fn trecv(&mut self, src: FiAddr, len: usize, tag: TagMatch) -> Result<u64, Errno> {
        let mut rx = Rx::tagged(tag, len).from(src);
        if self.accepts_lent {
            rx.flags = Some(OpFlags::DEFAULT | OpFlags::LEND);
        }
        self.endpoint.try_post(rx)
    }

    /// Posts an access to the beginning of a peer's memory and returns its context. A write stores
    /// `bytes`; a read fetches as many bytes.
    ///
    /// # Errors
    /// The error of the post.
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

    /// Cancels a receive, unless a message has matched it.
    pub(crate) fn cancel(&self, context: u64) {
        // The receive completes, canceled or not, or has completed already.
        let _ = self.endpoint.cancel(context);
    }

    /// Makes progress, and stores completions for [`Self::take`].
    ///
    /// # Errors
    /// A completion is invalid.
    pub(crate) fn drive(&mut self) -> anyhow::Result<()> {
        self.endpoint.store_completions()
    }

    /// Takes the next completion that [`Self::drive`] has stored.
    pub(crate) fn take(&mut self) -> Option<Completion> {
        loop {
            // An inject has no context; a failure of its peer is reported nevertheless.
            let next = self.endpoint.take_stored()?;
            if next.context != 0 {
                return Some(next);
            }
        }
    }

    /// Puts completions back in front of the stored ones.
    pub(crate) fn put_back(&mut self, completions: VecDeque<Completion>) {
        self.endpoint.put_back(completions);
    }

    /// Makes progress, and takes the next completion if there is one.
    ///
    /// # Errors
    /// As [`Self::drive`].
    pub(crate) fn poll(&mut self) -> anyhow::Result<Option<Completion>> {
        self.drive()?;
        Ok(self.take())
    }

    /// Arms the wake-up of the queue's descriptor: it becomes ready with the next completion.
    /// Earlier completions are stored for [`Self::take`].
    ///
    /// # Errors
    /// As [`Self::drive`]; or the wake-up cannot be armed in time.
    pub(crate) fn arm_wakeup(&mut self) -> anyhow::Result<()> {
        let mut timeout = Timeout::new("a wake-up that can be armed");
        let cq = self.endpoint.cq();
        loop {
            match cq.try_wait() {
                Ok(()) => return Ok(()),
                Err(Errno::Again) => self.drive()?,
                Err(errno) => bail!("arming the wake-up: {errno}"),
            }
            timeout.check()?;
        }
    }

    /// Blocks in poll(2) until the descriptor is ready.
    ///
    /// # Errors
    /// The descriptor is not ready after a minute.
    pub(crate) fn wait_for_wakeup(&self) -> anyhow::Result<()> {
        let cq = self.endpoint.cq();
        let fd = cq.wait_fd().context("a queue without a descriptor")?;
        let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
        let minute = PollTimeout::from(60_000_u16);
        loop {
            match poll(&mut fds, minute) {
                Ok(ready) => {
                    ensure!(ready > 0, "a parked process was not woken");
                    return Ok(());
                }
                Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns whether no operation is outstanding and no completion is unread.
    pub(crate) fn is_idle(&self) -> bool {
        self.endpoint.is_idle()
    }

    /// Registers memory that all peers may access.
    ///
    /// # Errors
    /// Memory cannot be registered.
    pub(crate) fn register_memory(&mut self) -> anyhow::Result<()> {
        let access = MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE;
        let memory = |maker, memory_kind: MemoryKind| {
            Memory::new(
                &*self.endpoint.domain,
                maker,
                MEMORY_LEN,
                access,
                memory_kind.key(),
            )
        };
        self.memory = Some([
            memory(Maker::Test, MemoryKind::Ordinary)?,
            memory(Maker::Domain, MemoryKind::Special)?,
        ]);
        Ok(())
    }

    fn memory(&self, memory_kind: MemoryKind) -> &Memory {
        let [ordinary, special] = self.memory.as_ref().expect("the memory was registered");
        match memory_kind {
            MemoryKind::Ordinary => ordinary,
            MemoryKind::Special => special,
        }
    }

    /// Writes `bytes` at the beginning of a memory, and [`BLANK`] behind them.
    pub(crate) fn set_memory(&self, memory_kind: MemoryKind, bytes: &[u8]) {
        let mut whole = blank(MEMORY_LEN);
        whole[..bytes.len()].copy_from_slice(bytes);
        self.memory(memory_kind).put(0, &whole);
    }

    /// Returns the stamp at the beginning of a memory.
    pub(crate) fn memory_stamp(&self, memory_kind: MemoryKind) -> Stamp {
        Stamp::from_word(u64::from_le(self.memory(memory_kind).word(0)))
    }

    /// Returns all bytes of a memory.
    pub(crate) fn memory_bytes(&self, memory_kind: MemoryKind) -> Vec<u8> {
        self.memory(memory_kind).get(0, MEMORY_LEN)
    }
}

/// Returns a buffer of bytes that no process sends.
pub(crate) fn blank(len: usize) -> Box<[u8]> {
    vec![BLANK; len].into()
}
