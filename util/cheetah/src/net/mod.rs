//! One fabric: its objects, and the posts to them.

#![expect(
    unsafe_code,
    reason = "posts, with memory that the engine keeps until they complete"
)]

pub(crate) mod recv;
pub(crate) mod wire;

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

use recv::{BUFFER_LEN, Buffer};
use wire::{HEAD_MAX, Head, Source};

/// Largest eager payload in bytes; larger ones are fetched. It fits, with a head, the inject size
/// of every provider here and a receive buffer.
const EAGER_MAX: usize = BUFFER_LEN - HEAD_MAX;
/// Messages up to this size are assembled on the stack.
const SMALL: usize = 128;

/// The objects of one fabric.
#[derive(Debug)]
pub(crate) struct Net {
    // Dropped first, so that no memory is accessed that is freed after it.
    ep: Arc<dyn Endpoint>,
    cq: Arc<dyn CompletionQueue>,
    av: Arc<dyn AddressVector>,
    // Registration of all memory of this process, for peers with the key.
    all_memory: Arc<dyn MemoryRegion>,
    domain: Arc<dyn Domain>,
    provider: String,
    inject_size: usize,
    /// The provider may hold posted messages until the next progress call. Network providers do;
    /// providers without network addresses send everything at once.
    pub(crate) defers_sends: bool,
    next_key: u64,
}

/// Remote memory of a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemoteAddr {
    pub(crate) peer: FiAddr,
    pub(crate) addr: u64,
    pub(crate) key: u64,
}

impl Net {
    /// Opens an endpoint of the named provider, or of the first one. Keys begin with `secret`.
    /// Without `has_thread`, locks are omitted.
    ///
    /// # Errors
    /// The error of discovery, or of the object that could not be opened.
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
        // A context polls for a while before it parks.
        attr.spin_time = Some(Duration::ZERO);
        let cq = domain.cq(&attr)?;
        let av = domain.av(&av::Attr::default())?;
        let mut bindings = Bindings::new(Arc::clone(&cq), Arc::clone(&av));
        bindings.tx_selective = true;
        let ep = domain.endpoint(&info, bindings)?;
        let all_memory = register_all_memory(&*domain, secret)?;
        Ok(Self {
            ep,
            cq,
            av,
            all_memory,
            domain,
            provider: info.fabric_attr.prov_name.clone(),
            inject_size: info.tx_attr.inject_size,
            defers_sends: info.addr_format != AddrFormat::Str,
            next_key: secret,
        })
    }

    /// The provider's name.
    pub(crate) fn provider(&self) -> &str {
        &self.provider
    }

    /// The address and key that peers need.
    pub(crate) fn local_address(&self) -> Result<(String, u64), selvedge::Error> {
        let address = self.ep.address().map_err(|errno| {
            selvedge::Error::new(
                errno,
                format!("the address of a {} endpoint", self.provider),
            )
        })?;
        Ok((address.to_string(), self.all_memory.key()))
    }

    /// Adds a peer to the address vector.
    pub(crate) fn add(&self, address: &str) -> Result<FiAddr, selvedge::Error> {
        let parsed: Address = address.parse()?;
        self.av.insert_one(&parsed).map_err(|error| {
            let message = format!("address {address:?} of a context");
            selvedge::Error::new(error.errno(), message).because(error)
        })
    }

    /// The largest eager payload.
    pub(crate) fn eager(&self) -> usize {
        EAGER_MAX.min(self.inject_size.saturating_sub(HEAD_MAX))
    }

    /// The largest put that is copied at once.
    pub(crate) fn inject_size(&self) -> usize {
        self.inject_size
    }

    /// Memory of this process that a peer may read.
    pub(crate) fn source(&self, addr: u64, len: u64) -> Source {
        Source {
            addr,
            key: self.all_memory.key(),
            len,
        }
    }

    /// Allocates memory that peers read and write directly.
    pub(crate) fn shared_region(&mut self, len: usize) -> Result<SharedRegion, selvedge::Error> {
        let attr = alloc::Attr::new(MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE);
        let key = self.key();
        SharedRegion::with(&*self.domain, len, &attr.with_key(key))
    }

    /// Allocates memory that peers read directly.
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

    /// Sends a copy of a message. A completion with `context` confirms that it was sent, and is
    /// reported without further polls.
    pub(crate) fn send_with_completion(
        &self,
        to: FiAddr,
        tag: u64,
        message: &[u8],
        context: Context,
    ) -> selvedge::Result {
        self.send_copy((to, tag), [message], OpFlags::COMPLETION, context)
    }

    /// Sends a copy of a head and the bytes behind it.
    pub(crate) fn send_with_head(
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
        segments: [&[u8]; N],
        flags: OpFlags,
        context: Context,
    ) -> selvedge::Result {
        let msg = tagged::SendMsg {
            iov: &segments.map(Iov::new),
            desc: &[],
            dest,
            tag,
            context,
            data: 0,
        };
        // SAFETY: with `INJECT` the bytes are copied before the call returns.
        unsafe { self.ep.tsendmsg(&msg, flags | OpFlags::INJECT) }
    }

    /// Posts a receive buffer for a message of any peer.
    ///
    /// # Safety
    /// The buffer has no other owner, and the caller retains it until its completion or until this
    /// value is dropped.
    #[inline]
    pub(crate) unsafe fn post_recv(&self, buffer: &Buffer, context: Context) -> selvedge::Result {
        let msg = tagged::RecvMsg {
            iov: &[buffer.iov()],
            desc: &[],
            src: FiAddr::UNSPEC,
            tag: wire::MESSAGES,
            context,
        };
        // SAFETY: passed on from the caller; the buffer is read only after its completion.
        unsafe { self.ep.trecvmsg(&msg, OpFlags::COMPLETION) }
    }

    /// Sends bytes for which the peer has posted a receive.
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
            tag: wire::bulk_tag(token),
            context,
            data: 0,
        };
        // SAFETY: passed on from the caller.
        unsafe { self.ep.tsendmsg(&msg, OpFlags::COMPLETION) }
    }

    /// Posts a receive for the bytes of a put.
    ///
    /// # Safety
    /// As [`Self::read`].
    pub(crate) unsafe fn post_bulk_recv(
        &self,
        from: FiAddr,
        token: u64,
        buffer: IovMut,
        context: Context,
    ) -> selvedge::Result {
        let msg = tagged::RecvMsg {
            iov: &[buffer],
            desc: &[],
            src: from,
            tag: TagMatch::exact(wire::bulk_tag(token)),
            context,
        };
        // SAFETY: passed on from the caller.
        unsafe { self.ep.trecvmsg(&msg, OpFlags::COMPLETION) }
    }

    /// Posts a receive that fails with `context` when this peer fails: no context sends untagged
    /// messages.
    pub(crate) fn watch(&self, peer: FiAddr, context: Context) -> selvedge::Result {
        let msg = RecvMsg {
            iov: &[],
            desc: &[],
            src: peer,
            context,
        };
        // SAFETY: no memory is passed.
        unsafe { self.ep.recvmsg(&msg, OpFlags::empty()) }
    }

    /// Reads a peer's memory into local memory.
    ///
    /// # Safety
    /// `buffer` stays valid, and no other code accesses it, until the completion with `context` or
    /// until this value is dropped.
    pub(crate) unsafe fn read(
        &self,
        from: RemoteAddr,
        buffer: IovMut,
        context: Context,
    ) -> selvedge::Result {
        let msg = ReadMsg {
            iov: &[buffer],
            desc: &[],
            src: from.peer,
            rma_iov: &[from.rma_iov(buffer.len)],
            context,
        };
        // SAFETY: passed on from the caller.
        unsafe { self.ep.readmsg(&msg, OpFlags::COMPLETION) }
    }

    /// Writes into a peer's memory, with remote completion data unless `data` is 0. There is a
    /// completion unless `flags` contains `INJECT`.
    ///
    /// # Safety
    /// `bytes` stay valid and unchanged until the completion with `context` or until this value is
    /// dropped; with `INJECT`, until the call returns.
    #[inline]
    pub(crate) unsafe fn write(
        &self,
        to: RemoteAddr,
        bytes: Iov,
        data: u64,
        flags: OpFlags,
        context: Context,
    ) -> selvedge::Result {
        let msg = WriteMsg {
            iov: &[bytes],
            desc: &[],
            dest: to.peer,
            rma_iov: &[to.rma_iov(bytes.len)],
            context,
            data,
        };
        let flags = match data {
            0 => flags,
            _ => flags | OpFlags::REMOTE_CQ_DATA,
        };
        // SAFETY: passed on from the caller.
        unsafe { self.ep.writemsg(&msg, flags) }
    }

    /// Makes progress and reads completions, with the source of received messages.
    #[inline]
    pub(crate) fn poll(&self, done: &mut [Entry], from: &mut [FiAddr]) -> selvedge::Result<usize> {
        self.cq.read_from(done, from)
    }

    /// Reads the error that [`Errno::Avail`] announced.
    pub(crate) fn error(&self) -> Option<ErrEntry> {
        self.cq.read_err().ok()
    }

    /// Parks until a completion, the end of the time, or a spurious wake-up.
    pub(crate) fn park(&self, time: Duration) {
        // The next poll finds the reason.
        let _ = self.cq.wait(&mut [], Some(time));
    }

    /// The queue, to park on its descriptor.
    pub(crate) fn queue(&self) -> &Arc<dyn CompletionQueue> {
        &self.cq
    }
}

impl RemoteAddr {
    fn rma_iov(&self, len: usize) -> RmaIov {
        RmaIov {
            addr: self.addr,
            len,
            key: self.key,
        }
    }
}

/// Registers all memory of this process.
fn register_all_memory(
    domain: &dyn Domain,
    key: u64,
) -> Result<Arc<dyn MemoryRegion>, selvedge::Error> {
    let mut attr = mr::Attr::default();
    attr.access = MrAccess::REMOTE_READ | MrAccess::READ | MrAccess::WRITE;
    attr.requested_key = key;
    let all_memory = [IovMut::from_raw(std::ptr::null_mut(), usize::MAX)];
    // SAFETY: only contexts of this program have the key, and they only read. They read only bytes
    // that this context has offered and does not change until they confirm.
    unsafe { domain.reg(&all_memory, &attr) }
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
    // SAFETY: the objects belong to an engine and are used with exclusive access to it. Without a
    // thread of the library the engine lies in a `RefCell`, which two threads cannot share.
    unsafe { hints.promise_threading(Threading::Domain) }
}

/// Whether an error of a post or completion means that the peer has failed.
pub(crate) fn is_peer_failure(errno: Errno) -> bool {
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
