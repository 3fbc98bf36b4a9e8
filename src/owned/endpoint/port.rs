//! The provider's endpoint and its queue, which nobody else ever holds, and the slots that keep
//! the buffers meanwhile.

#![expect(
    unsafe_code,
    reason = "the slots keep the promise that posting makes about memory"
)]

use std::fmt;
use std::mem;
use std::sync::Arc;

use super::post::{Content, Memory, Operands, Post, Submit};
use super::remote::Remote;
use super::slots::{Changes, Held, Key, Slots};
use crate::atomic::Target;
use crate::handle::sole;
use crate::info::Threading;
use crate::owned::{Buf, Received, Refused};
use crate::{
    Address, AddressVector, Bindings, CompletionFlags, CompletionQueue, Domain, Endpoint, EpOption,
    Errno, Error, FiAddr, Info, Mode, MrMode, OpFlags, Result, cq, wait,
};

/// Entries that one read takes: enough to spread its cost, little enough to stay in the cache.
pub(super) const BATCH: usize = 16;

/// Outstanding operations where the attributes name no sizes, and the most in any case.
const DEFAULT_DEPTH: usize = 512;
const MAX_DEPTH: usize = 1 << 16;

/// Duties that the safe layer does not do: it has no memory for the provider's context, no room
/// for a header, and its lists do not outlive the call.
const UNMET_MODES: Mode = Mode::CONTEXT
    .union(Mode::CONTEXT2)
    .union(Mode::MSG_PREFIX)
    .union(Mode::ASYNC_IOV);

/// Completions of accesses that peers made to this side's memory.
const BY_PEERS: CompletionFlags = CompletionFlags::REMOTE_READ.union(CompletionFlags::REMOTE_WRITE);

/// The default flags of `tx_attr.op_flags` that the safe layer passes on: when a send is complete.
/// The others would change how many completions an operation has.
const TX_FLAGS: OpFlags = OpFlags::INJECT_COMPLETE
    .union(OpFlags::TRANSMIT_COMPLETE)
    .union(OpFlags::DELIVERY_COMPLETE);

/// An endpoint whose operations own their buffers; `O` is who is told when one is done.
pub(super) struct Port<O> {
    // Fields drop in this order: closing the endpoint ends every access to the buffers in `slots`.
    ep: Arc<dyn Endpoint>,
    cq: Arc<dyn CompletionQueue>,
    tx_flags: OpFlags,
    /// Whether the domain uses registered memory alone ([`MrMode::LOCAL`]).
    is_registered_only: bool,
    /// Completions are read and handed out in one turn, so that they keep their order.
    slots: Slots<Operation<O>, Kept<O>, Batch>,
}

impl<O> fmt::Debug for Port<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ep.fmt(f)
    }
}

/// An operation that is done.
#[derive(Debug)]
pub(super) struct Finished<O> {
    pub(super) owner: O,
    pub(super) buf: Buf,
    /// The length of the message in the buffer, if it is not the buffer's own.
    pub(super) len: Option<usize>,
    pub(super) outcome: Outcome,
}

/// Takes operations that are done, in the turn of a thread: it must not wake, drop a buffer or call
/// back.
pub(super) trait Deliver<O> {
    /// Takes one; what it gives back is kept until it is collected.
    fn deliver(&mut self, finished: Finished<O>) -> Option<Finished<O>>;
}

/// How an operation ended. Boxed, because errors are rare and slots are many.
pub(super) type Outcome = Result<Received, Box<cq::ErrEntry>>;

/// What is kept of an operation after a completion.
#[derive(Debug)]
enum Kept<O> {
    /// Messages have come into parts of the buffer, and more may.
    Parted(O, Arc<Buf>),
    /// A message was set aside under this slot's key, which waits to be collected.
    Found(Finished<O>),
    /// A message was set aside under this slot's key.
    Claimed,
    /// Waits to be collected.
    Finished(Finished<O>),
}

#[derive(Debug)]
// In this order, so that a buffer is moved out with the loads and stores that it was moved in with: it
// waits for others.
#[repr(C)]
struct Operation<O> {
    buf: Buf,
    owner: O,
    content: Content,
}

impl<O> Operation<O> {
    /// The length of the message in the buffer after its last completion, if it is not the buffer's
    /// own.
    #[inline]
    fn len(&self, entry: &cq::Entry) -> Option<usize> {
        let len = self.content.len(entry.len);
        (len != self.buf.len()).then_some(len)
    }

    #[inline(always)]
    fn finish(self, len: Option<usize>, outcome: Outcome) -> Finished<O> {
        Finished {
            owner: self.owner,
            buf: self.buf,
            len,
            outcome,
        }
    }
}

impl<O> Kept<O> {
    /// What an operation has brought that was over, and what is kept of it then.
    fn collect(self) -> (Finished<O>, Option<Self>) {
        match self {
            Self::Finished(finished) => (finished, None),
            Self::Found(finished) => (finished, Some(Self::Claimed)),
            Self::Parted(..) => unreachable!("messages are collected from their mailbox"),
            Self::Claimed => unreachable!("nobody awaits a claim"),
        }
    }
}

impl<O> Finished<O> {
    /// Gives the buffer the length of its message.
    pub(super) fn set_len(&mut self) {
        if let Some(len) = self.len.take() {
            let set = self.buf.set_len(len);
            set.expect("not above the capacity");
        }
    }
}

#[derive(Debug)]
struct Batch {
    entries: [cq::Entry; BATCH],
    sources: [FiAddr; BATCH],
}

impl Batch {
    fn new() -> Self {
        Self {
            entries: [cq::Entry::default(); BATCH],
            sources: [FiAddr::UNSPEC; BATCH],
        }
    }
}

impl<O: Clone> Port<O> {
    /// Opens the endpoint and a queue that has room for every operation that may be outstanding.
    pub(super) fn open(
        domain: &dyn Domain,
        info: &Info,
        av: Arc<dyn AddressVector>,
        wait_obj: wait::Object,
    ) -> Result<Self, Error> {
        let endpoint = |bind| domain.endpoint(info, bind);
        Self::around(domain, info, av, wait_obj, endpoint)
    }

    /// The same around an endpoint that `open` opens.
    pub(super) fn around(
        domain: &dyn Domain,
        info: &Info,
        av: Arc<dyn AddressVector>,
        wait_obj: wait::Object,
        open: impl FnOnce(Bindings) -> Result<Arc<dyn Endpoint>, Error>,
    ) -> Result<Self, Error> {
        let unmet = info.mode & UNMET_MODES;
        if !unmet.is_empty() {
            let what = format!("the safe layer does not do what mode {unmet:?} asks");
            return Err(Error::new(Errno::Inval, what));
        }
        let depth = depth(info);
        let mut attr = cq::Attr::with_size(depth as usize);
        attr.wait_obj = wait_obj;
        let cq = domain.cq(&attr)?;
        let ep = open(Bindings::new(Arc::clone(&cq), av))?;
        let slots = match info.threading_promise() {
            // SAFETY: methods of the slots are called by those of the port, whose endpoint and queue
            // were opened from `info` and are of one domain and of one group: no two threads use them
            // at the same time.
            Threading::Domain | Threading::Completion => unsafe {
                Slots::promised(depth, Batch::new())
            },
            _ => Slots::new(depth, Batch::new()),
        };
        Ok(Self {
            ep: sole(ep, "endpoint")?,
            cq,
            tx_flags: info.tx_attr.op_flags & TX_FLAGS,
            is_registered_only: domain.mr_mode().contains(MrMode::LOCAL),
            slots,
        })
    }

    /// Posts an operation with its buffer.
    #[inline(always)]
    pub(super) fn post(
        &self,
        what: Post,
        operands: Operands<'_>,
        buf: Buf,
        owner: O,
    ) -> Result<Key, Refused> {
        let content = what.content(operands.operand, &buf);
        let (content, memory) = match (content, self.memory(&buf)) {
            (Ok(content), Ok(memory)) => (content, memory),
            (Err(errno), _) | (_, Err(errno)) => return Err(Refused { errno, buf }),
        };
        let Some(slot) = self.slots.reserve() else {
            let errno = Errno::Again;
            return Err(Refused { errno, buf });
        };
        let key = slot.put(Operation {
            owner,
            buf,
            content,
        });
        // SAFETY: `memory` is the buffer's that was just moved into the slot named by `key`. It
        // leaves the slot in `withdraw`, after an error, with which nothing was kept; in
        // `finish`, after the completion with this key, of a multi-receive the last; or when
        // `self.slots` is dropped, after `self.ep`, whose only handle is ours. Parts of it are lent
        // before, of bytes that a completion has named. Operands are borrowed for this call, which is
        // as long as injected ones are used.
        let submit = unsafe { Submit::new(&*self.ep) };
        match what.submit(operands, &memory, key.into(), self.tx_flags, submit) {
            Ok(()) => Ok(key),
            Err(errno) => Err(self.withdraw(key, errno)),
        }
    }

    /// The memory of a buffer, for a post. That of another domain's pool is registered there, which
    /// this domain's endpoint refuses by its descriptor, or nowhere.
    ///
    /// # Errors
    /// [`Errno::Inval`] for memory that is not registered where the domain uses no other.
    fn memory(&self, buf: &Buf) -> Result<Memory> {
        match self.is_registered_only && !buf.is_registered() {
            true => Err(Errno::Inval),
            false => Ok(Memory::of(buf)),
        }
    }

    /// Posts the receive of a message that was set aside under `key`, in the slot that it has.
    pub(super) fn redeem(&self, key: Key, what: Post, buf: Buf, owner: O) -> Result<(), Refused> {
        let memory = match self.memory(&buf) {
            Ok(memory) => memory,
            Err(errno) => return Err(Refused { errno, buf }),
        };
        let content = what
            .content(&[], &buf)
            .expect("it holds a message or what it holds");
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
            return Err(Refused { errno, buf });
        }
        // SAFETY: as in `post`: the buffer is in the slot named by `key`, until the completion with
        // this key, which comes once more, or until this call fails.
        let submit = unsafe { Submit::new(&*self.ep) };
        let posted = what.submit(Operands::NONE, &memory, key.into(), self.tx_flags, submit);
        posted.map_err(|errno| {
            let claimed = Some(Held::Kept(Kept::Claimed));
            let failed = self.slots.update(key, |held| (claimed, held));
            refused(errno, failed.expect("a failed post has no completion"))
        })
    }

    /// The queue, to be waited at.
    pub(super) fn cq(&self) -> &Arc<dyn CompletionQueue> {
        &self.cq
    }

    /// Reads up to `limit` completions, at most [`BATCH`], and says how many there were. What
    /// `deliver` gives back stays in its slot until it is collected.
    ///
    /// Accesses by peers to this side's memory have no slot and are passed over, and so are
    /// completions that no operation waits for.
    #[inline]
    pub(super) fn read(&self, limit: usize, deliver: &mut impl Deliver<O>) -> Result<usize> {
        self.slots
            .change(|changes, batch| self.read_batch(changes, batch, limit.min(BATCH), deliver))
    }

    #[inline(always)]
    fn read_batch(
        &self,
        changes: &mut Changes<'_, Operation<O>, Kept<O>>,
        Batch { entries, sources }: &mut Batch,
        limit: usize,
        deliver: &mut impl Deliver<O>,
    ) -> Result<usize> {
        match self
            .cq
            .read_from(&mut entries[..limit], &mut sources[..limit])
        {
            Ok(0) | Err(Errno::Again) => Ok(0),
            Ok(count) => {
                for (entry, &src) in entries.iter().zip(&*sources).take(count) {
                    let outcome = || Ok(Received::new(entry, src));
                    finish(changes, entry, outcome, deliver);
                }
                Ok(count)
            }
            // The error stays where it is.
            Err(Errno::Avail) if limit == 0 => Ok(0),
            Err(Errno::Avail) => self.read_err(changes, deliver),
            Err(errno) => Err(errno),
        }
    }

    /// Takes a finished operation out of its slot, or changes whom it will be told to and gives
    /// back who it was.
    pub(super) fn collect(&self, key: Key, owner: O) -> Result<Finished<O>, O> {
        let collected = self.slots.update(key, |held| match held {
            Held::Added(mut op) => {
                let before = mem::replace(&mut op.owner, owner);
                (Some(Held::Added(op)), Err(before))
            }
            Held::Kept(Kept::Parted(before, buf)) => {
                (Some(Held::Kept(Kept::Parted(owner, buf))), Err(before))
            }
            Held::Kept(kept) => {
                let (finished, rest) = kept.collect();
                (rest.map(Held::Kept), Ok(finished))
            }
        });
        collected.expect("a slot is its owner's until it is collected")
    }

    /// Leaves a posted operation, whose completion cannot be read, and its buffer to the endpoint,
    /// and tells `owner` in the end. Gives a buffer of capacity 0 in its place, or the operation if
    /// it has finished.
    pub(super) fn abandon(&self, key: Key, owner: O) -> Result<Finished<O>, Buf> {
        let abandoned = self.slots.update(key, |held| match held {
            Held::Added(mut op) => {
                let stand_in = op.buf.stand_in();
                op.owner = owner;
                (Some(Held::Added(op)), Err(stand_in))
            }
            Held::Kept(Kept::Parted(_, buf)) => {
                let stand_in = buf.stand_in();
                (Some(Held::Kept(Kept::Parted(owner, buf))), Err(stand_in))
            }
            Held::Kept(kept) => {
                let (finished, rest) = kept.collect();
                (rest.map(Held::Kept), Ok(finished))
            }
        });
        abandoned.expect("a slot is its owner's until it is collected")
    }

    /// Who is told when the operations are done that are under way.
    pub(super) fn owners(&self) -> Vec<O> {
        let mut owners = Vec::new();
        self.slots.change(|changes, _| {
            changes.for_each(|held| match held {
                Held::Added(op) => owners.push(op.owner.clone()),
                Held::Kept(Kept::Parted(owner, _)) => owners.push(owner.clone()),
                Held::Kept(_) => {}
            });
        });
        owners
    }

    /// Tries to take a posted operation back.
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

    pub(super) fn inject_write(&self, bytes: &[u8], to: Remote, data: Option<u64>) -> Result {
        self.ep.inject_write(bytes, to.peer, to.addr, to.key, data)
    }

    pub(super) fn inject_atomic(&self, operand: &[u8], target: &Target) -> Result {
        self.ep.inject_atomic(operand, target)
    }

    pub(super) fn address(&self) -> Result<Address> {
        self.ep.address()
    }

    #[cold]
    fn read_err(
        &self,
        changes: &mut Changes<'_, Operation<O>, Kept<O>>,
        deliver: &mut impl Deliver<O>,
    ) -> Result<usize> {
        let error = match self.cq.read_err() {
            Ok(error) => error,
            Err(Errno::Again) => return Ok(0),
            Err(errno) => return Err(errno),
        };
        let entry = error.entry;
        finish(changes, &entry, || Err(Box::new(error)), deliver);
        Ok(1)
    }

    /// Gives the buffer of a failed post back.
    #[cold]
    fn withdraw(&self, key: Key, errno: Errno) -> Refused {
        let state = self.slots.remove(key);
        refused(errno, state.expect("a failed post has no completion"))
    }
}

/// Hands a completion to the operation that it belongs to.
#[inline(always)]
fn finish<O: Clone>(
    slots: &mut Changes<'_, Operation<O>, Kept<O>>,
    entry: &cq::Entry,
    outcome: impl FnOnce() -> Outcome,
    deliver: &mut impl Deliver<O>,
) {
    if entry.flags.intersects(BY_PEERS) {
        return;
    }
    let key = Key::from(entry.context);
    let added = slots.added(key);
    let Some(added) = added.filter(|op| op.with(|op| op.content.is_final())) else {
        return finish_step(slots, entry, outcome(), deliver);
    };
    // Here and not below: a buffer that is looked into is not moved as a whole.
    let len = added.with(|op| op.len(entry));
    let (op, slot) = added.take();
    if let Some(kept) = deliver.deliver(op.finish(len, outcome())) {
        slot.keep(Kept::Finished(kept));
    }
}

/// Hands a completion to an operation that has several, or that leaves something behind.
#[inline(never)]
fn finish_step<O: Clone>(
    slots: &mut Changes<'_, Operation<O>, Kept<O>>,
    entry: &cq::Entry,
    outcome: Outcome,
    deliver: &mut impl Deliver<O>,
) {
    let Some((held, slot)) = slots.take(Key::from(entry.context)) else {
        return;
    };
    let rest = match held {
        Held::Added(op) if op.content == Content::MESSAGES => {
            part(op.owner, Arc::new(op.buf), entry, outcome, deliver)
        }
        Held::Added(op) => {
            let sets_aside = outcome.is_ok();
            let kept = deliver.deliver(op.finish(None, outcome));
            match (sets_aside, kept) {
                (true, None) => Some(Kept::Claimed),
                (true, Some(found)) => Some(Kept::Found(found)),
                (false, kept) => kept.map(Kept::Finished),
            }
        }
        Held::Kept(Kept::Parted(owner, whole)) => part(owner, whole, entry, outcome, deliver),
        Held::Kept(kept) => Some(kept),
    };
    if let Some(rest) = rest {
        slot.keep(rest);
    }
}

/// Hands on one message of a multi-receive; what is kept of it from then on.
fn part<O: Clone>(
    owner: O,
    whole: Arc<Buf>,
    entry: &cq::Entry,
    outcome: Outcome,
    deliver: &mut impl Deliver<O>,
) -> Option<Kept<O>> {
    let is_last = entry.flags.contains(CompletionFlags::MULTI_RECV);
    let buf = Buf::part(&whole, entry.buf, entry.len);
    let kept = deliver.deliver(Finished {
        owner: owner.clone(),
        buf,
        len: None,
        outcome,
    });
    match kept {
        Some(kept) if is_last => Some(Kept::Finished(kept)),
        _ if is_last => None,
        _ => Some(Kept::Parted(owner, whole)),
    }
}

fn refused<O>(errno: Errno, held: Held<Operation<O>, Kept<O>>) -> Refused {
    let buf = match held {
        Held::Added(op) => op.buf,
        Held::Kept(Kept::Finished(finished)) => finished.buf,
        Held::Kept(_) => unreachable!("a refused post has no messages"),
    };
    Refused { errno, buf }
}

/// Operations that may be outstanding at once.
fn depth(info: &Info) -> u32 {
    let depth = match info.tx_attr.size.saturating_add(info.rx_attr.size) {
        0 => DEFAULT_DEPTH,
        depth => depth.min(MAX_DEPTH),
    };
    u32::try_from(depth).expect("at most the largest depth")
}
