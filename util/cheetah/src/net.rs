//! One fabric that contexts talk over: its objects, and what is posted to them.

#![expect(
    unsafe_code,
    reason = "posts, with memory that the engine keeps until they complete"
)]

use std::sync::Arc;
use std::time::Duration;

use selvedge::cq::{Entry, ErrEntry};
use selvedge::info::{EpType, Threading};
use selvedge::msg::RecvMsg;
use selvedge::owned::SharedRegion;
use selvedge::rma::{ReadMsg, RmaIov, WriteMsg};
use selvedge::tagged;
use selvedge::{
    AddrFormat, Address, AddressVector, Allocation, Bindings, Caps, CompletionQueue, Context,
    Domain, Endpoint, Errno, FiAddr, Hints, Iov, IovMut, MemoryRegion, MrAccess, MrMode, OpFlags,
    TagMatch, alloc, av, cq, mr, wait,
};

use crate::recv::{BUFFER_LEN, Buffer};
use crate::wire::{self, HEAD_MAX, Head, Source};

/// Bytes behind a head that go as one message; more are fetched. No more than what fits the inject
/// size of every provider here, and a receive buffer.
const EAGER_MOST: usize = BUFFER_LEN - HEAD_MAX;
/// Messages up to this size are put together on the stack.
const SMALL: usize = 128;

/// The objects of one fabric.
#[derive(Debug)]
pub(crate) struct Net {
    // Closed first, so that nobody touches memory that goes after it.
    ep: Arc<dyn Endpoint>,
    cq: Arc<dyn CompletionQueue>,
    av: Arc<dyn AddressVector>,
    // All of this process's memory, for those of its peers that know the key.
    everything: Arc<dyn MemoryRegion>,
    domain: Arc<dyn Domain>,
    provider: String,
    inject_size: usize,
    /// It may keep what is posted until it is driven, as a fabric with a network below does; one whose
    /// peers have no network addresses hands everything over at once.
    pub(crate) dawdles: bool,
    next_key: u64,
}

/// Where bytes of a peer are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) peer: FiAddr,
    pub(crate) addr: u64,
    pub(crate) key: u64,
}

impl Net {
    /// Opens what is needed of the best provider, or of the one that is named. `secret` is what
    /// keys begin with. Without a thread of the library's, locks are left out.
    ///
    /// # Errors
    /// What discovery says, or which object could not be opened.
    pub(crate) fn open(
        provider: Option<&str>,
        secret: u64,
        has_thread: bool,
    ) -> Result<Self, selvedge::Error> {
        let registry = selvedge_providers::builtin();
        let info = registry.infos(&hints(provider, has_thread))?.remove(0);
        let domain = info.open()?;
        let mut attr = cq::Attr::with_size(4096);
        attr.wait_obj = wait::Object::Fd;
        // A context polls for a while before it sleeps.
        attr.spin_time = Some(Duration::ZERO);
        let cq = domain.cq(&attr)?;
        let av = domain.av(&av::Attr::default())?;
        let mut bindings = Bindings::new(Arc::clone(&cq), Arc::clone(&av));
        bindings.tx_selective = true;
        let ep = domain.endpoint(&info, bindings)?;
        let everything = expose(&*domain, secret)?;
        Ok(Self {
            ep,
            cq,
            av,
            everything,
            domain,
            provider: info.fabric_attr.prov_name.clone(),
            inject_size: info.tx_attr.inject_size,
            dawdles: info.addr_format != AddrFormat::Str,
            next_key: secret,
        })
    }

    /// The provider's name.
    pub(crate) fn provider(&self) -> &str {
        &self.provider
    }

    /// What peers have to know: the address, and the key of everything.
    pub(crate) fn introduction(&self) -> Result<(String, u64), selvedge::Error> {
        let address = self.ep.address().map_err(|errno| {
            selvedge::Error::new(
                errno,
                format!("the address of a {} endpoint", self.provider),
            )
        })?;
        Ok((address.to_string(), self.everything.key()))
    }

    /// Makes a peer known.
    pub(crate) fn add(&self, address: &str) -> Result<FiAddr, selvedge::Error> {
        let parsed: Address = address.parse()?;
        self.av.insert_one(&parsed).map_err(|error| {
            let what = format!("address {address:?} of a context");
            selvedge::Error::new(error.errno(), what).because(error)
        })
    }

    /// The largest payload that is sent at once.
    pub(crate) fn eager(&self) -> usize {
        EAGER_MOST.min(self.inject_size.saturating_sub(HEAD_MAX))
    }

    /// The largest put that is copied at once.
    pub(crate) fn inject_size(&self) -> usize {
        self.inject_size
    }

    /// Memory of this process, as a peer may read it.
    pub(crate) fn source(&self, addr: u64, len: u64) -> Source {
        Source {
            addr,
            key: self.everything.key(),
            len,
        }
    }

    /// Memory that peers write and read directly.
    pub(crate) fn window(&mut self, len: usize) -> Result<SharedRegion, selvedge::Error> {
        let attr = alloc::Attr::new(MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE);
        let key = self.key();
        SharedRegion::with(&*self.domain, len, &attr.with_key(key))
    }

    /// Memory that peers read directly.
    pub(crate) fn readable(&mut self, len: usize) -> Result<Arc<dyn Allocation>, selvedge::Error> {
        let key = self.key();
        let attr = alloc::Attr::new(MrAccess::REMOTE_READ).with_key(key);
        self.domain.alloc(len, &attr)
    }

    fn key(&mut self) -> u64 {
        self.next_key = self.next_key.wrapping_add(1).max(1);
        self.next_key
    }

    /// Sends a copy of a message.
    #[inline]
    pub(crate) fn send(&self, to: FiAddr, tag: u64, message: &[u8]) -> selvedge::Result {
        self.ep.tinject(message, to, tag, None)
    }

    /// Sends a copy of a message; a completion with `context` says that it has left, and arrives
    /// though nobody polls here any more.
    pub(crate) fn send_off(
        &self,
        to: FiAddr,
        tag: u64,
        message: &[u8],
        context: Context,
    ) -> selvedge::Result {
        self.send_copy((to, tag), [message], OpFlags::COMPLETION, context)
    }

    /// Sends a copy of a head with bytes behind it.
    pub(crate) fn send_behind(
        &self,
        to: FiAddr,
        head: &Head,
        bytes: &[u8],
        context: Context,
    ) -> selvedge::Result {
        let words = head.bytes();
        let len = words.len() + bytes.len();
        if len <= SMALL {
            let mut message = [0; SMALL];
            message[..words.len()].copy_from_slice(words);
            message[words.len()..len].copy_from_slice(bytes);
            return self.send(to, head.tag, &message[..len]);
        }
        self.send_copy((to, head.tag), [words, bytes], OpFlags::empty(), context)
    }

    #[inline]
    fn send_copy<const N: usize>(
        &self,
        (dest, tag): (FiAddr, u64),
        pieces: [&[u8]; N],
        flags: OpFlags,
        context: Context,
    ) -> selvedge::Result {
        let msg = tagged::SendMsg {
            iov: &pieces.map(Iov::new),
            desc: &[],
            dest,
            tag,
            context,
            data: 0,
        };
        // SAFETY: with `INJECT` the bytes are copied before the call returns.
        unsafe { self.ep.tsendmsg(&msg, flags | OpFlags::INJECT) }
    }

    /// Posts a receive buffer for a message of anybody.
    ///
    /// # Safety
    /// The buffer is not lent, and the caller keeps it until it has come back or this value has been
    /// dropped.
    #[inline]
    pub(crate) unsafe fn take_into(&self, buffer: &Buffer, context: Context) -> selvedge::Result {
        let msg = tagged::RecvMsg {
            iov: &[buffer.room()],
            desc: &[],
            src: FiAddr::UNSPEC,
            tag: wire::MESSAGES,
            context,
        };
        // SAFETY: the caller's promise; it is read behind its completion only.
        unsafe { self.ep.trecvmsg(&msg, OpFlags::COMPLETION) }
    }

    /// Sends bytes that the peer has posted their place for.
    ///
    /// # Safety
    /// As [`Self::write`].
    pub(crate) unsafe fn send_bulk(
        &self,
        to: FiAddr,
        token: u64,
        bytes: Iov,
        context: Context,
    ) -> selvedge::Result {
        let msg = tagged::SendMsg {
            iov: &[bytes],
            desc: &[],
            dest: to,
            tag: wire::bulk(token),
            context,
            data: 0,
        };
        // SAFETY: the caller's promise.
        unsafe { self.ep.tsendmsg(&msg, OpFlags::COMPLETION) }
    }

    /// Posts the place of bytes that a peer will send.
    ///
    /// # Safety
    /// As [`Self::read`].
    pub(crate) unsafe fn take_bulk(
        &self,
        from: FiAddr,
        token: u64,
        room: IovMut,
        context: Context,
    ) -> selvedge::Result {
        let msg = tagged::RecvMsg {
            iov: &[room],
            desc: &[],
            src: from,
            tag: TagMatch::exact(wire::bulk(token)),
            context,
        };
        // SAFETY: the caller's promise.
        unsafe { self.ep.trecvmsg(&msg, OpFlags::COMPLETION) }
    }

    /// Has an error completion with `context` come when this peer ends: messages without a tag are sent
    /// by nobody.
    pub(crate) fn watch(&self, peer: FiAddr, context: Context) -> selvedge::Result {
        let msg = RecvMsg {
            iov: &[],
            desc: &[],
            src: peer,
            context,
        };
        // SAFETY: there is no memory to keep.
        unsafe { self.ep.recvmsg(&msg, OpFlags::empty()) }
    }

    /// Reads a peer's memory into ours.
    ///
    /// # Safety
    /// `room` stays valid, and nobody else touches it, until the completion with `context` or until
    /// this value has been dropped.
    pub(crate) unsafe fn read(
        &self,
        from: Place,
        room: IovMut,
        context: Context,
    ) -> selvedge::Result {
        let msg = ReadMsg {
            iov: &[room],
            desc: &[],
            src: from.peer,
            rma_iov: &[from.piece(room.len)],
            context,
        };
        // SAFETY: the caller's promise.
        unsafe { self.ep.readmsg(&msg, OpFlags::COMPLETION) }
    }

    /// Writes into a peer's memory, with `data` for its queue if that is not 0; there is a completion
    /// without `INJECT` in `flags`.
    ///
    /// # Safety
    /// `bytes` stay valid and unchanged until the completion with `context` or until this value has
    /// been dropped; with `INJECT`, until the call returns.
    #[inline]
    pub(crate) unsafe fn write(
        &self,
        to: Place,
        bytes: Iov,
        data: u64,
        flags: OpFlags,
        context: Context,
    ) -> selvedge::Result {
        let msg = WriteMsg {
            iov: &[bytes],
            desc: &[],
            dest: to.peer,
            rma_iov: &[to.piece(bytes.len)],
            context,
            data,
        };
        let flags = match data {
            0 => flags,
            _ => flags | OpFlags::REMOTE_CQ_DATA,
        };
        // SAFETY: the caller's promise.
        unsafe { self.ep.writemsg(&msg, flags) }
    }

    /// Moves bytes, and takes what has completed, with the source of what was received.
    #[inline]
    pub(crate) fn poll(&self, done: &mut [Entry], from: &mut [FiAddr]) -> selvedge::Result<usize> {
        self.cq.read_from(done, from)
    }

    /// The error that [`Errno::Avail`] announced.
    pub(crate) fn error(&self) -> Option<ErrEntry> {
        self.cq.read_err().ok()
    }

    /// Sleeps until something has completed, the time is over, or for no reason.
    pub(crate) fn sleep(&self, time: Duration) {
        // Whatever ends it is found out by the next poll.
        let _ = self.cq.wait(&mut [], Some(time));
    }

    /// The queue, to sleep on its descriptor.
    pub(crate) fn queue(&self) -> &Arc<dyn CompletionQueue> {
        &self.cq
    }
}

impl Place {
    fn piece(&self, len: usize) -> RmaIov {
        RmaIov {
            addr: self.addr,
            len,
            key: self.key,
        }
    }
}

/// Registers all of this process's memory.
fn expose(domain: &dyn Domain, key: u64) -> Result<Arc<dyn MemoryRegion>, selvedge::Error> {
    let mut attr = mr::Attr::default();
    attr.access = MrAccess::REMOTE_READ | MrAccess::READ | MrAccess::WRITE;
    attr.requested_key = key;
    let everything = [IovMut::from_raw(std::ptr::null_mut(), usize::MAX)];
    // SAFETY: peers that have the key, which are contexts of this program alone, read only, and
    // only what this context has offered them: bytes that it lends until they say that they are done.
    unsafe { domain.reg(&everything, &attr) }
}

fn hints(provider: Option<&str>, has_thread: bool) -> Hints {
    let caps = Caps::MSG | Caps::TAGGED | Caps::RMA | Caps::SOURCE | Caps::DIRECTED_RECV;
    let mut hints = Hints::new()
        .caps(caps)
        .ep_type(EpType::Rdm)
        .mr_mode(MrMode::VIRT_ADDR | MrMode::PROV_KEY)
        .cq_data_size(8)
        .iov_limit(2);
    if let Some(name) = provider {
        hints = hints.provider(name);
    }
    if has_thread {
        return hints;
    }
    // SAFETY: the objects belong to an engine, and are used by whoever has that to itself: without a
    // thread of the library's it lies in a `RefCell`, which two threads cannot share.
    unsafe { hints.promise_threading(Threading::Domain) }
}

/// Whether an error of a post or a completion means that the peer is gone.
pub(crate) fn is_loss(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::ConnReset
            | Errno::NotConn
            | Errno::ConnRefused
            | Errno::ConnAborted
            | Errno::HostUnreach
            | Errno::HostDown
            | Errno::NetUnreach
            | Errno::NetDown
            | Errno::Pipe
            | Errno::Shutdown
            | Errno::TimedOut
    )
}
