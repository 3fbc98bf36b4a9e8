//! `EndpointCore`: the provider's endpoint and its completion queue, both with a single owner, and
//! the slots that keep the buffers of outstanding operations.

#![expect(
    unsafe_code,
    reason = "the slots keep the promise about memory that a post makes"
)]

use std::fmt;
use std::mem;
use std::sync::Arc;

use super::post::{Content, Gathered, Memory, Operands, Post, Submit};
use super::remote::RemoteAddr;
use super::slots::{Held, Key, LockedSlots, MAX_DEPTH, Slots};
use crate::atomic::Target;
use crate::info::Threading;
use crate::objects::handle::sole;
use crate::owned::{Buf, Received, TryPostError};
use crate::{
    Address, AddressVector, Bindings, CompletionFlags, CompletionQueue, Domain, Endpoint, EpOption,
    Errno, Error, FiAddr, Info, Mode, MrMode, OpFlags, PeerCredentials, Result, cq, wait,
};

/// Maximum number of entries of one read: enough to amortize its cost, few enough to stay in the
/// cache.
pub(super) const BATCH: usize = 16;

/// Maximum number of outstanding operations where the attributes name no sizes.
const DEFAULT_DEPTH: u32 = 512;

/// Modes that the safe layer does not support: it has no memory for the provider's context, no room
/// for a header, and its lists do not outlive the call.
const UNSUPPORTED_MODES: Mode = Mode::CONTEXT
    .union(Mode::CONTEXT2)
    .union(Mode::MSG_PREFIX)
    .union(Mode::ASYNC_IOV);

/// Completions of accesses that peers made to this side's memory.
const REMOTE_ACCESS: CompletionFlags =
    CompletionFlags::REMOTE_READ.union(CompletionFlags::REMOTE_WRITE);

/// The flags of completions that are not those of an operation with its buffer.
const RARE: CompletionFlags = REMOTE_ACCESS.union(CompletionFlags::LENT);

/// The flags of `tx_attr.op_flags` that the safe layer passes on: they say when a send is complete.
/// The other flags would change how many completions an operation has.
const TX_FLAGS: OpFlags = OpFlags::INJECT_COMPLETE
    .union(OpFlags::TRANSMIT_COMPLETE)
    .union(OpFlags::DELIVERY_COMPLETE);

/// An endpoint whose operations own their buffers. `O` is the owner that a completion is delivered
/// to. `W` is state of the readers of completions, protected by the lock of the slots.
pub(super) struct EndpointCore<O, W = ()> {
    // Fields drop in this order: closing the endpoint ends every access to the buffers in `slots`.
    ep: Arc<dyn Endpoint>,
    cq: Arc<dyn CompletionQueue>,
    wait_obj: wait::Object,
    tx_flags: OpFlags,
    /// Whether the domain requires registered local memory ([`MrMode::LOCAL`]).
    is_registered_only: bool,
    /// Completions are read and delivered under one lock, so that they keep their order.
    slots: Slots<Operation<O>, Kept<O>, ReadState<W>>,
}

impl<O, W> fmt::Debug for EndpointCore<O, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ep.fmt(f)
    }
}

/// A finished operation.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) buf: Buf,
    pub(super) outcome: Outcome,
}

/// Receives a finished operation while the slots are locked. An implementation must not wake a
/// task, drop a buffer or call the endpoint.
pub(super) trait Deliver<O> {
    /// Takes the operation that was finished by a completion entry with its source. `error` is
    /// `None` if the operation succeeded. An operation that is returned stays in its slot until it
    /// is collected.
    fn deliver(
        &mut self,
        entry: (&mut cq::Entry, FiAddr),
        owner: O,
        buf: Buf,
        error: Option<Box<cq::ErrEntry>>,
    ) -> Option<Finished>;
}

/// The result of an operation. The error is boxed, because errors are rare and slots are many.
pub(super) type Outcome = Result<Received, Box<cq::ErrEntry>>;

/// The state that a slot keeps of an operation after a completion.
#[derive(Debug)]
enum Kept<O> {
    /// A multi-receive: messages were received into parts of the buffer, and more may follow.
    MultiRecv(O, Arc<Buf>),
    /// A message was claimed under this slot's key. Its completion waits to be collected.
    ClaimReady(Finished),
    /// A message was claimed under this slot's key.
    Claimed,
    /// The completion waits to be collected.
    Finished(Finished),
}

#[derive(Debug)]
// The field order lets the buffer be moved out with loads of the same width as the stores that
// moved it in: a load of another width stalls on store forwarding.
#[repr(C)]
struct Operation<O> {
    buf: Buf,
    owner: O,
    content: Content,
}

impl<O> Kept<O> {
    /// Takes the finished operation out. Returns it, and the state that stays in the slot.
    fn collect(self) -> (Finished, Option<Self>) {
        match self {
            Self::Finished(finished) => (finished, None),
            Self::ClaimReady(finished) => (finished, Some(Self::Claimed)),
            Self::MultiRecv(..) => unreachable!("messages are collected from their queue"),
            Self::Claimed => unreachable!("a claim is not awaited"),
        }
    }
}

impl<O, W> EndpointCore<O, W> {
    /// The completion queue, for waits.
    pub(super) fn cq(&self) -> &Arc<dyn CompletionQueue> {
        &self.cq
    }

    /// The wait object of the completion queue.
    pub(super) fn wait_object(&self) -> wait::Object {
        self.wait_obj
    }
}

impl<O: Clone, W: Default> EndpointCore<O, W> {
    /// Opens the endpoint, and a queue with the attributes `queue` and room for the maximum number
    /// of outstanding operations.
    pub(super) fn open(
        domain: &dyn Domain,
        info: &Info,
        av: Arc<dyn AddressVector>,
        queue: cq::Attr,
    ) -> Result<Self, Error> {
        let endpoint = |bind| domain.endpoint(info, bind);
        Self::open_with(domain, info, av, queue, endpoint)
    }

    /// As [`Self::open`], with an endpoint that `open` opens.
    pub(super) fn open_with(
        domain: &dyn Domain,
        info: &Info,
        av: Arc<dyn AddressVector>,
        mut queue: cq::Attr,
        open: impl FnOnce(Bindings) -> Result<Arc<dyn Endpoint>, Error>,
    ) -> Result<Self, Error> {
        let unsupported = info.mode & UNSUPPORTED_MODES;
        if !unsupported.is_empty() {
            let message = format!("the safe layer does not support mode {unsupported:?}");
            return Err(Error::new(Errno::Inval, message));
        }
        let depth = depth(info);
        queue.size = depth as usize;
        let cq = domain.cq(&queue)?;
        let ep = open(Bindings::new(Arc::clone(&cq), av))?;
        let slots = match info.threading_promise() {
            // SAFETY: only methods of this type call methods of the slots. Its endpoint and queue
            // were opened from `info` and belong to one domain and one group: the promise says that
            // no two threads use them at the same time.
            Threading::Domain | Threading::Completion => unsafe {
                Slots::serialized(depth, ReadState::new())
            },
            _ => Slots::new(depth, ReadState::new()),
        };
        Ok(Self {
            ep: sole(ep, "endpoint")?,
            cq,
            wait_obj: queue.wait_obj,
            tx_flags: info.tx_attr.op_flags & TX_FLAGS,
            is_registered_only: domain.mr_mode().contains(MrMode::LOCAL),
            slots,
        })
    }

    /// Posts an operation with its buffer.
    #[inline(always)]
    pub(super) fn post(
        &self,
        post: Post,
        operands: Operands<'_>,
        buf: Buf,
        owner: O,
    ) -> Result<Key, TryPostError> {
        if let Post::Gather { dest, tag } = post {
            return self.post_gathered((dest, tag), buf, owner);
        }
        let content = post.content(operands.operand, &buf);
        let (content, memory) = match (content, self.memory(post, &buf)) {
            (Ok(content), Ok(memory)) => (content, memory),
            (Err(errno), _) | (_, Err(errno)) => return Err(TryPostError { errno, buf }),
        };
        let Some(slot) = self.slots.reserve() else {
            let errno = Errno::Again;
            return Err(TryPostError { errno, buf });
        };
        let key = slot.put(Operation {
            owner,
            buf,
            content,
        });
        // SAFETY: `memory` belongs to the buffer that was just moved into the slot named by `key`.
        // The buffer leaves the slot in `withdraw`, after an error, when the provider has kept
        // nothing; in
        // `finish`, after the completion with this key (the last one, for a multi-receive); or when
        // `self.slots` is dropped, after `self.ep`, whose only handle this value holds. Parts of the
        // buffer are handed out earlier, for bytes that a completion has named. Operands are
        // borrowed for this call, and injected operands are not used after it.
        let submit = unsafe { Submit::new(&*self.ep) };
        match post.submit(operands, &memory, key.into(), self.tx_flags, submit) {
            Ok(()) => Ok(key),
            Err(errno) => Err(self.withdraw(key, errno)),
        }
    }

    /// Posts a send of the message that is gathered from the buffers in `buf`.
    #[inline(never)]
    fn post_gathered(
        &self,
        route: (FiAddr, Option<u64>),
        buf: Buf,
        owner: O,
    ) -> Result<Key, TryPostError> {
        let segments = buf.segments();
        if self.is_registered_only && !segments.iter().all(Buf::is_registered) {
            let errno = Errno::Inval;
            return Err(TryPostError { errno, buf });
        }
        let gathered = Gathered::of(segments);
        let Some(slot) = self.slots.reserve() else {
            let errno = Errno::Again;
            return Err(TryPostError { errno, buf });
        };
        let key = slot.put(Operation {
            owner,
            content: Content::NONE,
            buf,
        });
        // SAFETY: as in `post`; the segments belong to the buffers that the buffer in the slot
        // holds.
        let submit = unsafe { Submit::new(&*self.ep) };
        match gathered.submit(route, key.into(), self.tx_flags, submit) {
            Ok(()) => Ok(key),
            Err(errno) => Err(self.withdraw(key, errno)),
        }
    }

    /// The memory of a buffer, for a post. The memory of another domain's pool is registered with
    /// that domain, and this domain's endpoint rejects its descriptor; or it is not registered at
    /// all.
    ///
    /// # Errors
    /// [`Errno::Inval`] for unregistered memory where the domain requires registration.
    #[inline]
    fn memory(&self, post: Post, buf: &Buf) -> Result<Memory> {
        if self.is_registered_only && !buf.is_registered() {
            Err(Errno::Inval)
        } else if let Post::Lend { .. } = post {
            Ok(Memory::of_lent(buf))
        } else {
            Ok(Memory::of(buf))
        }
    }

    /// Whether the endpoint sends and receives messages by reference.
    pub(super) fn can_lend(&self) -> bool {
        self.ep.lending().is_some()
    }

    /// The flags of a receive that accepts lent messages.
    pub(super) fn lent_receive_flags(&self) -> OpFlags {
        if self.can_lend() {
            OpFlags::LEND
        } else {
            OpFlags::empty()
        }
    }

    /// Posts the receive, or the discard, of the message that was claimed under `key`, in the slot
    /// of the claim.
    pub(super) fn post_claimed(
        &self,
        key: Key,
        post: Post,
        buf: Buf,
        owner: O,
    ) -> Result<(), TryPostError> {
        let memory = match self.memory(post, &buf) {
            Ok(memory) => memory,
            Err(errno) => return Err(TryPostError { errno, buf }),
        };
        let content = post
            .content(&[], &buf)
            .expect("the content of a claimed receive always fits");
        let operation = Operation {
            owner,
            buf,
            content,
        };
        let mut operation = Some(operation);
        self.slots.update(key, |held| match held {
            Held::Kept(Kept::Claimed) => (operation.take().map(Held::Added), ()),
            held => (Some(held), ()),
        });
        if let Some(Operation { buf, .. }) = operation {
            let errno = Errno::NoMsg;
            return Err(TryPostError { errno, buf });
        }
        // SAFETY: as in `post`: the buffer is in the slot named by `key` until the second
        // completion with this key, or until this call fails.
        let submit = unsafe { Submit::new(&*self.ep) };
        let posted = post.submit(Operands::NONE, &memory, key.into(), self.tx_flags, submit);
        posted.map_err(|errno| {
            let claimed = Some(Held::Kept(Kept::Claimed));
            let failed = self.slots.update(key, |held| (claimed, held));
            try_post_error(errno, failed.expect("a failed post has no completion"))
        })
    }

    /// Calls `read` under the lock, with a reader of completions and the readers' state.
    #[inline]
    pub(super) fn with_reader<R>(&self, read: impl FnOnce(Reader<'_, O>, &mut W) -> R) -> R {
        let (cq, ep) = (&*self.cq, &*self.ep);
        self.slots.with_lock(|slots, ReadState { sources, state }| {
            let reader = Reader {
                cq,
                ep,
                slots,
                sources,
            };
            read(reader, state)
        })
    }

    /// Takes a finished operation out of its slot. Where it has not finished, replaces its owner
    /// and returns the previous one.
    pub(super) fn collect(&self, key: Key, owner: O) -> Result<Finished, O> {
        self.collect_or_detach(key, owner, |previous, _| previous)
    }

    /// Detaches a posted operation whose completion cannot be read: the operation and its buffer
    /// stay with the endpoint, and `owner` becomes its owner. Returns a buffer of capacity 0 in
    /// place of the operation's, or the operation if it has finished.
    pub(super) fn abandon(&self, key: Key, owner: O) -> Result<Finished, Buf> {
        // The previous owner is dropped here, without the lock of the slots.
        self.collect_or_detach(key, owner, |previous, buf| (previous, buf.placeholder()))
            .map_err(|(_, placeholder)| placeholder)
    }

    /// Takes a finished operation out of its slot. Where it has not finished, replaces its owner
    /// and returns the value that `detach` makes of the previous owner and the buffer.
    fn collect_or_detach<T>(
        &self,
        key: Key,
        owner: O,
        detach: impl FnOnce(O, &Buf) -> T,
    ) -> Result<Finished, T> {
        let collected = self.slots.update(key, |held| match held {
            Held::Added(mut op) => {
                let previous = mem::replace(&mut op.owner, owner);
                let detached = detach(previous, &op.buf);
                (Some(Held::Added(op)), Err(detached))
            }
            Held::Kept(Kept::MultiRecv(previous, buf)) => {
                let detached = detach(previous, &buf);
                (Some(Held::Kept(Kept::MultiRecv(owner, buf))), Err(detached))
            }
            Held::Kept(kept) => {
                let (finished, rest) = kept.collect();
                (rest.map(Held::Kept), Ok(finished))
            }
        });
        collected.expect("a slot is its owner's until it is collected")
    }

    /// The owners of the outstanding operations.
    pub(super) fn owners(&self) -> Vec<O> {
        let mut owners = Vec::new();
        self.slots.with_lock(|mut locked, _| {
            locked.for_each(|held| match held {
                Held::Added(op) => owners.push(op.owner.clone()),
                Held::Kept(Kept::MultiRecv(owner, _)) => owners.push(owner.clone()),
                Held::Kept(_) => {}
            });
        });
        owners
    }

    /// Tries to cancel a posted operation.
    pub(super) fn cancel(&self, key: Key) -> Result {
        self.ep.cancel(key.into())
    }

    pub(super) fn set(&self, option: EpOption) -> Result {
        self.ep.set(option)
    }

    pub(super) fn inject(&self, bytes: &[u8], dest: FiAddr, data: Option<u64>) -> Result {
        self.ep.inject(bytes, dest, data)
    }

    pub(super) fn tinject(
        &self,
        bytes: &[u8],
        dest: FiAddr,
        tag: u64,
        data: Option<u64>,
    ) -> Result {
        self.ep.tinject(bytes, dest, tag, data)
    }

    pub(super) fn inject_write(&self, bytes: &[u8], to: RemoteAddr, data: Option<u64>) -> Result {
        self.ep.inject_write(bytes, to.peer, to.addr, to.key, data)
    }

    pub(super) fn inject_atomic(&self, operand: &[u8], target: &Target) -> Result {
        self.ep.inject_atomic(operand, target)
    }

    pub(super) fn address(&self) -> Result<Address> {
        self.ep.address()
    }

    pub(super) fn peer_credentials(&self, peer: FiAddr) -> Result<PeerCredentials> {
        self.ep.peer_credentials(peer)
    }

    /// Takes the buffer of a failed post out of its slot.
    #[cold]
    fn withdraw(&self, key: Key, errno: Errno) -> TryPostError {
        let state = self.slots.remove(key);
        try_post_error(errno, state.expect("a failed post has no completion"))
    }
}

/// The values that the lock of the slots protects beside them.
struct ReadState<W> {
    /// The sources of the entries of one read.
    sources: [FiAddr; BATCH],
    state: W,
}

impl<W: Default> ReadState<W> {
    fn new() -> Self {
        Self {
            sources: [FiAddr::UNSPEC; BATCH],
            state: W::default(),
        }
    }
}

/// Reads completions while the slots are locked.
pub(super) struct Reader<'a, O> {
    cq: &'a dyn CompletionQueue,
    ep: &'a dyn Endpoint,
    slots: LockedSlots<'a, Operation<O>, Kept<O>>,
    sources: &'a mut [FiAddr; BATCH],
}

/// The result of one read.
#[derive(Default)]
pub(super) struct Count {
    /// The number of completions that were read.
    pub(super) read: usize,
    /// The number of completions that were delivered.
    pub(super) delivered: usize,
}

impl<O: Clone> Reader<'_, O> {
    /// Reads up to [`BATCH`] completions into `entries`, and delivers the operation of each to the
    /// output with the same index.
    ///
    /// Completions of accesses by peers to local memory have no slot and are not delivered, nor are
    /// completions without an operation.
    #[inline(always)]
    pub(super) fn read(
        self,
        entries: &mut [cq::Entry],
        outputs: &mut [impl Deliver<O>],
    ) -> Result<Count> {
        let Self {
            cq,
            ep,
            mut slots,
            sources,
        } = self;
        let limit = entries.len().min(BATCH);
        let (entries, sources) = (&mut entries[..limit], &mut sources[..limit]);
        match cq.read_from(entries, sources) {
            Ok(0) | Err(Errno::Again) => Ok(Count::default()),
            Ok(read) => {
                let mut delivered = 0;
                let completed = entries.iter_mut().zip(sources).zip(outputs).take(read);
                for ((entry, src), output) in completed {
                    delivered += usize::from(finish(&mut slots, ep, (entry, *src), None, output));
                }
                Ok(Count { read, delivered })
            }
            Err(Errno::Avail) => match (entries, outputs) {
                ([entry, ..], [output, ..]) => read_err(cq, ep, slots, entry, output),
                // The error stays in the queue.
                _ => Ok(Count::default()),
            },
            Err(errno) => Err(errno),
        }
    }
}

#[cold]
fn read_err<O: Clone>(
    cq: &dyn CompletionQueue,
    ep: &dyn Endpoint,
    mut slots: LockedSlots<'_, Operation<O>, Kept<O>>,
    entry: &mut cq::Entry,
    output: &mut impl Deliver<O>,
) -> Result<Count> {
    let error = match cq.read_err() {
        Ok(error) => error,
        Err(Errno::Again) => return Ok(Count::default()),
        Err(errno) => return Err(errno),
    };
    *entry = error.entry;
    let src = error.src;
    let error = Some(Box::new(error));
    let is_delivered = finish(&mut slots, ep, (entry, src), error, output);
    Ok(Count {
        read: 1,
        delivered: usize::from(is_delivered),
    })
}

/// Delivers a completion to its operation, if it has one. Returns whether it has.
#[inline(always)]
fn finish<O: Clone>(
    slots: &mut LockedSlots<'_, Operation<O>, Kept<O>>,
    ep: &dyn Endpoint,
    (entry, src): (&mut cq::Entry, FiAddr),
    error: Option<Box<cq::ErrEntry>>,
    output: &mut impl Deliver<O>,
) -> bool {
    if entry.flags.intersects(RARE) {
        return finish_rare(slots.reborrow(), ep, (entry, src), output);
    }
    let added = slots.added(Key::from(entry.context));
    let Some((added, len)) = added.and_then(|op| {
        let len = op.with(|op| op.content.len(entry.len))?;
        Some((op, len))
    }) else {
        return finish_partial(slots.reborrow(), (entry, src), error, output);
    };
    let (mut op, slot) = added.take();
    op.buf.set_completed_len(len);
    if let Some(finished) = output.deliver((entry, src), op.owner, op.buf, error) {
        slot.keep(Kept::Finished(finished));
    }
    true
}

/// Delivers a lent message to its receive. Returns whether there is such a receive; an access by a
/// peer has none.
#[cold]
#[inline(never)]
fn finish_rare<O: Clone>(
    mut slots: LockedSlots<'_, Operation<O>, Kept<O>>,
    ep: &dyn Endpoint,
    (entry, src): (&mut cq::Entry, FiAddr),
    output: &mut impl Deliver<O>,
) -> bool {
    if entry.flags.intersects(REMOTE_ACCESS) {
        return false;
    }
    let number = mem::take(&mut entry.buf);
    let message = ep.lending().ok_or(Errno::NoSys);
    let message = message.and_then(|lending| lending.take_lent(number));
    let Some((Held::Added(op), slot)) = slots.take(Key::from(entry.context)) else {
        return false;
    };
    let (buf, error) = match message {
        Ok(message) => (op.buf.with_lent(message), None),
        Err(errno) => {
            let error = cq::ErrEntry::new(*entry, errno, "the lent message is not there");
            (op.buf, Some(Box::new(error)))
        }
    };
    if let Some(finished) = output.deliver((entry, src), op.owner, buf, error) {
        slot.keep(Kept::Finished(finished));
    }
    true
}

/// Delivers a completion to an operation that has several completions, or whose slot stays in use.
/// Returns whether there is such an operation.
#[inline(never)]
fn finish_partial<O: Clone>(
    mut slots: LockedSlots<'_, Operation<O>, Kept<O>>,
    (entry, src): (&mut cq::Entry, FiAddr),
    error: Option<Box<cq::ErrEntry>>,
    output: &mut impl Deliver<O>,
) -> bool {
    let Some((held, slot)) = slots.take(Key::from(entry.context)) else {
        return false;
    };
    let rest = match held {
        Held::Added(op) if op.content == Content::MESSAGES => {
            deliver_part(op.owner, Arc::new(op.buf), (entry, src), error, output)
        }
        Held::Added(op) => {
            let is_claimed = error.is_none();
            let kept = output.deliver((entry, src), op.owner, op.buf, error);
            match (is_claimed, kept) {
                (true, None) => Some(Kept::Claimed),
                (true, Some(found)) => Some(Kept::ClaimReady(found)),
                (false, kept) => kept.map(Kept::Finished),
            }
        }
        Held::Kept(Kept::MultiRecv(owner, whole)) => {
            deliver_part(owner, whole, (entry, src), error, output)
        }
        Held::Kept(kept) => {
            slot.keep(kept);
            return false;
        }
    };
    if let Some(rest) = rest {
        slot.keep(rest);
    }
    true
}

/// Delivers one message of a multi-receive. Returns the state that stays in the slot.
fn deliver_part<O: Clone>(
    owner: O,
    whole: Arc<Buf>,
    (entry, src): (&mut cq::Entry, FiAddr),
    error: Option<Box<cq::ErrEntry>>,
    output: &mut impl Deliver<O>,
) -> Option<Kept<O>> {
    let is_last = entry.flags.contains(CompletionFlags::MULTI_RECV);
    let part = Buf::part(&whole, entry.buf, entry.len);
    match output.deliver((entry, src), owner.clone(), part, error) {
        Some(finished) if is_last => Some(Kept::Finished(finished)),
        _ if is_last => None,
        _ => Some(Kept::MultiRecv(owner, whole)),
    }
}

fn try_post_error<O>(errno: Errno, held: Held<Operation<O>, Kept<O>>) -> TryPostError {
    let buf = match held {
        Held::Added(op) => op.buf,
        Held::Kept(Kept::Finished(finished)) => finished.buf,
        Held::Kept(_) => unreachable!("a refused post has no messages"),
    };
    TryPostError { errno, buf }
}

/// The maximum number of outstanding operations.
fn depth(info: &Info) -> u32 {
    match info.tx_attr.size.saturating_add(info.rx_attr.size) {
        0 => DEFAULT_DEPTH,
        depth => u32::try_from(depth).unwrap_or(MAX_DEPTH).min(MAX_DEPTH),
    }
}
