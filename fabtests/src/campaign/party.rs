//! One end of a campaign's traffic: an endpoint with its queue and the buffers of its operations.
//!
//! It checks what every party may rely on: each operation completes once, received bytes lie
//! inside their message, and nothing completes that was not posted.

#![expect(unsafe_code, reason = "campaigns attack the raw layer")]

mod access;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use selvedge::cq::{Entry, ErrEntry};
use selvedge::info::EpType;
use selvedge::param::Params;
use selvedge::{
    Address, AddressVector, Bindings, Caps, CompletionFlags, CompletionQueue, Context, Desc,
    Domain, Endpoint, Errno, FiAddr, Hints, Info, Iov, IovMut, MsgExt, OpFlags, Registry, TagMatch,
    TaggedExt, av, cq, msg, tagged, wait,
};
use selvedge_testkit::timeout::Timeout;
use serde::{Deserialize, Serialize};

pub(crate) use access::{Access, Memory, Place};

use super::message::{self, Stamp};
use crate::suite::flaw;

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

/// A completion.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// What [`Party::send`] or [`Party::recv`] answered.
    pub(crate) context: u64,
    /// What was received; nothing for a send.
    pub(crate) received: Option<Vec<u8>>,
    /// What went wrong.
    pub(crate) error: Option<ErrEntry>,
}

/// An endpoint with all that it needs. Dropped from the top down: the endpoint before the buffers.
#[derive(Debug)]
pub(crate) struct Party {
    ep: Arc<dyn Endpoint>,
    cq: Arc<dyn CompletionQueue>,
    av: Arc<dyn AddressVector>,
    memory: Option<Memory>,
    domain: Arc<dyn Domain>,
    lent: BTreeMap<u64, Lent>,
    next: u64,
    ready: VecDeque<Outcome>,
}

/// A buffer that the provider has.
#[derive(Debug)]
enum Lent {
    Sent(Box<[u8]>),
    Posted(Box<[u8]>),
    /// For what comes from a peer's memory.
    Asked(Box<[u8]>),
}

/// Finds the shm provider, for an endpoint called `name` if it has one; with the defect that the
/// environment names, for a campaign that is to notice it.
///
/// # Errors
/// When discovery finds none.
pub(crate) fn discover(
    name: Option<&str>,
    params: &[(&str, &str)],
) -> Result<Info, selvedge::Error> {
    let params: Params = params.iter().copied().collect();
    let provider = flaw::planted(Arc::new(&selvedge_shm::PROVIDER));
    let provider = provider.map_err(|e| selvedge::Error::new(Errno::Inval, e.to_string()))?;
    let registry = Registry::new().with_shared(provider).with_params(params);
    let messages = Caps::MSG | Caps::TAGGED | Caps::SOURCE | Caps::DIRECTED_RECV;
    let caps = messages | Caps::RMA | Caps::ATOMIC;
    let hints = Hints::new().caps(caps).ep_type(EpType::Rdm);
    let mut info = registry.infos(&hints)?.remove(0);
    info.src_addr = name.map(|name| Address::Str(name.into()));
    Ok(info)
}

impl Party {
    /// Opens an endpoint of the shm provider, called `name` if it has one.
    ///
    /// # Errors
    /// When discovery finds none, or it does not open.
    pub(crate) fn open(
        name: Option<&str>,
        params: &[(&str, &str)],
    ) -> Result<Self, selvedge::Error> {
        Self::with(&discover(name, params)?)
    }

    /// Opens what [`discover`] has found.
    ///
    /// # Errors
    /// When it does not open.
    pub(crate) fn with(info: &Info) -> Result<Self, selvedge::Error> {
        Self::waiting(info, wait::Object::None)
    }

    /// The same, with a queue that can be waited at.
    ///
    /// # Errors
    /// As [`Self::with`].
    pub(crate) fn waiting(info: &Info, object: wait::Object) -> Result<Self, selvedge::Error> {
        let domain = info.open()?;
        let mut attr = cq::Attr::default();
        attr.wait_obj = object;
        let cq = domain.cq(&attr)?;
        let av = domain.av(&av::Attr::default())?;
        let bindings = Bindings::new(Arc::clone(&cq), Arc::clone(&av));
        Ok(Self {
            ep: domain.endpoint(info, bindings)?,
            cq,
            av,
            memory: None,
            domain,
            lent: BTreeMap::new(),
            next: 1,
            ready: VecDeque::new(),
        })
    }

    /// Its address, for peers.
    ///
    /// # Errors
    /// When it has none.
    pub(crate) fn name(&self) -> anyhow::Result<String> {
        let address = self.ep.address().context("an endpoint has no address")?;
        Ok(address.to_string())
    }

    /// The index of a peer.
    ///
    /// # Errors
    /// When the address is refused.
    pub(crate) fn insert(&self, name: &str) -> anyhow::Result<FiAddr> {
        let index = self.av.insert_one(&Address::Str(name.to_owned()));
        index.with_context(|| format!("the address {name} is refused"))
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
        let context = self.next;
        match kind {
            Kind::Inject => self.ep.inject(&bytes, dest, None)?,
            Kind::TaggedInject => self.ep.tinject(&bytes, dest, stamp.word(), None)?,
            Kind::Msg => self.post_msg(&bytes, dest, context)?,
            Kind::Tagged => self.post_tagged(&bytes, dest, stamp, context, OpFlags::DEFAULT)?,
            Kind::Delivered => {
                let flags = OpFlags::DELIVERY_COMPLETE | OpFlags::COMPLETION;
                self.post_tagged(&bytes, dest, stamp, context, flags)?;
            }
        }
        self.next += 1;
        if !kind.is_injected() {
            self.lent.insert(context, Lent::Sent(bytes));
        }
        Ok(context)
    }

    fn post_msg(&self, bytes: &[u8], dest: FiAddr, context: u64) -> Result<(), Errno> {
        let msg = msg::SendMsg {
            iov: &[Iov::new(bytes)],
            desc: &[],
            dest,
            context: Context(context),
            data: 0,
        };
        // SAFETY: `send` keeps the bytes in `lent` until their completion or the end of the
        // endpoint, and nobody writes to them there.
        unsafe { self.ep.sendmsg(&msg, OpFlags::DEFAULT) }
    }

    fn post_tagged(
        &self,
        bytes: &[u8],
        dest: FiAddr,
        stamp: Stamp,
        context: u64,
        flags: OpFlags,
    ) -> Result<(), Errno> {
        let msg = tagged::SendMsg {
            iov: &[Iov::new(bytes)],
            desc: &[],
            dest,
            tag: stamp.word(),
            context: Context(context),
            data: 0,
        };
        // SAFETY: as in `post_msg`.
        unsafe { self.ep.tsendmsg(&msg, flags) }
    }

    /// Posts a receive of untagged messages up to `len` bytes; its context.
    ///
    /// # Errors
    /// What the post answers.
    pub(crate) fn recv(&mut self, src: FiAddr, len: usize) -> Result<u64, Errno> {
        let (context, mut bytes) = (self.next, blank(len));
        let iov = IovMut::new(&mut bytes);
        // SAFETY: the bytes are kept in `lent` and left alone there until their completion or the
        // end of the endpoint.
        unsafe { self.ep.recv(iov, Desc::NONE, src, Context(context)) }?;
        self.lend(context, bytes);
        Ok(context)
    }

    /// Posts a receive of tagged messages up to `len` bytes; its context.
    ///
    /// # Errors
    /// What the post answers.
    pub(crate) fn trecv(&mut self, src: FiAddr, len: usize, tag: TagMatch) -> Result<u64, Errno> {
        let (context, mut bytes) = (self.next, blank(len));
        let iov = IovMut::new(&mut bytes);
        // SAFETY: as in `recv`.
        unsafe { self.ep.trecv(iov, Desc::NONE, src, tag, Context(context)) }?;
        self.lend(context, bytes);
        Ok(context)
    }

    fn lend(&mut self, context: u64, bytes: Box<[u8]>) {
        self.next += 1;
        self.lent.insert(context, Lent::Posted(bytes));
    }

    /// Cancels a receive, unless a message has met it.
    pub(crate) fn cancel(&self, context: u64) {
        // It completes, canceled or not, or it has already.
        let _ = self.ep.cancel(Context(context));
    }

    /// Moves things on, and keeps what has completed for [`Self::take`].
    ///
    /// # Errors
    /// When something completes that must not.
    pub(crate) fn drive(&mut self) -> anyhow::Result<()> {
        while let Some(outcome) = self.read()? {
            self.ready.push_back(outcome);
        }
        Ok(())
    }

    /// The next completion that [`Self::drive`] has found.
    pub(crate) fn take(&mut self) -> Option<Outcome> {
        self.ready.pop_front()
    }

    /// Takes completions back, which are older than those that are still there.
    pub(crate) fn put_back(&mut self, mut outcomes: VecDeque<Outcome>) {
        outcomes.append(&mut self.ready);
        self.ready = outcomes;
    }

    /// Drives, and takes the next completion if there is one.
    ///
    /// # Errors
    /// As [`Self::drive`].
    pub(crate) fn poll(&mut self) -> anyhow::Result<Option<Outcome>> {
        self.drive()?;
        Ok(self.take())
    }

    /// Falls asleep as somebody does who polls the descriptor of its queue: from here on it must
    /// become ready with whatever comes. What has come before is kept for [`Self::take`].
    ///
    /// # Errors
    /// As [`Self::drive`]; when it never may.
    pub(crate) fn lie_down(&mut self) -> anyhow::Result<()> {
        let mut timeout = Timeout::new("leave to sleep");
        loop {
            match self.cq.try_wait() {
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
    /// When nobody has woken it after a minute.
    pub(crate) fn sleep(&self) -> anyhow::Result<()> {
        let fd = self.cq.wait_fd().context("a queue without a descriptor")?;
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
        self.lent.is_empty() && self.ready.is_empty()
    }

    fn read(&mut self) -> anyhow::Result<Option<Outcome>> {
        let mut entry = [Entry::default()];
        match self.cq.read(&mut entry) {
            Ok(0) => Ok(None),
            Ok(_) => self.outcome(entry[0], None).map(Some),
            Err(Errno::Avail) => {
                let error = self.cq.read_err()?;
                match error.entry.context.0 {
                    // An inject has no context; that its peer is gone is reported all the same.
                    0 => self.read(),
                    _ => self.outcome(error.entry, Some(error)).map(Some),
                }
            }
            Err(errno) => bail!("reading the completion queue: {errno}"),
        }
    }

    fn outcome(&mut self, entry: Entry, error: Option<ErrEntry>) -> anyhow::Result<Outcome> {
        let context = entry.context.0;
        let is_receive = entry.flags.contains(CompletionFlags::RECV);
        let received = match self.lent.remove(&context) {
            Some(Lent::Sent(mut bytes)) if !is_receive => {
                // Whoever reads it later than it may does not read the right bytes.
                bytes.fill(POISON);
                None
            }
            Some(Lent::Asked(bytes)) if !is_receive => error.is_none().then(|| bytes.into_vec()),
            Some(Lent::Posted(bytes)) if is_receive => Some(cut(bytes, entry.len, &error)?),
            lent => bail!("{entry:?} completes {lent:?}: {error:?}"),
        };
        Ok(Outcome {
            context,
            received,
            error,
        })
    }
}

/// The message at the beginning of a receive buffer. What lies behind it must be untouched.
fn cut(bytes: Box<[u8]>, len: usize, error: &Option<ErrEntry>) -> anyhow::Result<Vec<u8>> {
    let mut bytes = bytes.into_vec();
    if error.is_some() {
        return Ok(Vec::new());
    }
    ensure!(len <= bytes.len(), "{len} bytes in {}", bytes.len());
    let behind = bytes.split_off(len);
    let is_blank = behind.iter().all(|&byte| byte == BLANK);
    ensure!(is_blank, "bytes behind a message of {len} were written");
    Ok(bytes)
}

/// Room for what is to come, and nothing in it that anybody sends.
pub(crate) fn blank(len: usize) -> Box<[u8]> {
    vec![BLANK; len].into()
}

/// What receive buffers are filled with.
pub(crate) const BLANK: u8 = 0xee;
/// What buffers of sends are filled with after their completion.
const POISON: u8 = 0xde;
