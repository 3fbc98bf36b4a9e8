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
use super::slots::{Changes, Key, Slots};
use crate::atomic::Target;
use crate::handle::sole;
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
    slots: Slots<State<O>, Batch>,
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
    /// The length of the message in the buffer.
    pub(super) len: usize,
    pub(super) outcome: Outcome,
}

/// How an operation ended. Boxed, because errors are rare and slots are many.
pub(super) type Outcome = Result<Received, Box<cq::ErrEntry>>;

#[derive(Debug)]
enum State<O> {
    Posted(Operation<O>),
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
struct Operation<O> {
    owner: O,
    buf: Buf,
    content: Content,
}

impl<O> Operation<O> {
    #[inline(always)]
    fn finish(self, entry: &cq::Entry, outcome: Outcome) -> Finished<O> {
        let len = match self.content {
            Content::Same | Content::Claim => self.buf.len(),
            Content::Message => entry.len.min(self.buf.capacity()),
            Content::Bytes(len) => len,
            Content::Messages => 0,
        };
        Finished {
            owner: self.owner,
            buf: self.buf,
            len,
            outcome,
        }
    }
}

impl<O> Finished<O> {
    /// Gives the buffer the length of its message.
    pub(super) fn set_len(&mut self) {
        let set = self.buf.set_len(self.len);
        set.expect("not above the capacity");
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
        Ok(Self {
            ep: sole(ep, "endpoint")?,
            cq,
            tx_flags: info.tx_attr.op_flags & TX_FLAGS,
            is_registered_only: domain.mr_mode().contains(MrMode::LOCAL),
            slots: Slots::new(depth, Batch::new()),
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
        let key = slot.put(State::Posted(Operation {
            owner,
            buf,
            content,
        }));
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
        self.slots.update(key, |state| match state {
            State::Claimed => (operation.take().map(State::Posted), ()),
            state => (Some(state), ()),
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
            let failed = self
                .slots
                .update(key, |state| (Some(State::Claimed), state));
            refused(errno, failed.expect("a failed post has no completion"))
        })
    }

    /// The queue, to be waited at.
    pub(super) fn cq(&self) -> &Arc<dyn CompletionQueue> {
        &self.cq
    }

    /// Reads up to `limit` completions, at most [`BATCH`], and says how many there were. What
    /// `deliver` gives back stays in its slot until it is collected. `deliver` runs in the
    /// turn: it must not wake, drop a buffer or call back.
    ///
    /// Accesses by peers to this side's memory have no slot and are passed over, and so are
    /// completions that no operation waits for.
    #[inline]
    pub(super) fn read(
        &self,
        limit: usize,
        mut deliver: impl FnMut(Finished<O>) -> Option<Finished<O>>,
    ) -> Result<usize> {
        self.slots.change(|changes, batch| {
            self.read_batch(changes, batch, limit.min(BATCH), &mut deliver)
        })
    }

    #[inline]
    fn read_batch(
        &self,
        changes: &mut Changes<'_, State<O>>,
        Batch { entries, sources }: &mut Batch,
        limit: usize,
        deliver: &mut impl FnMut(Finished<O>) -> Option<Finished<O>>,
    ) -> Result<usize> {
        match self
            .cq
            .read_from(&mut entries[..limit], &mut sources[..limit])
        {
            Ok(0) | Err(Errno::Again) => Ok(0),
            Ok(count) => {
                for (entry, &src) in entries[..count].iter().zip(&*sources) {
                    let received = Received::new(entry, src);
                    finish(changes, entry, Ok(received), deliver);
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
        let collected = self.slots.update(key, |state| match state {
            State::Finished(finished) => (None, Ok(finished)),
            State::Found(finished) => (Some(State::Claimed), Ok(finished)),
            State::Posted(mut op) => {
                let before = mem::replace(&mut op.owner, owner);
                (Some(State::Posted(op)), Err(before))
            }
            State::Parted(before, buf) => (Some(State::Parted(owner, buf)), Err(before)),
            State::Claimed => unreachable!("nobody awaits a claim"),
        });
        collected.expect("a slot is its owner's until it is collected")
    }

    /// Leaves a posted operation, whose completion cannot be read, and its buffer to the endpoint,
    /// and tells `owner` in the end. Gives a buffer of capacity 0 in its place, or the operation if
    /// it has finished.
    pub(super) fn abandon(&self, key: Key, owner: O) -> Result<Finished<O>, Buf> {
        let abandoned = self.slots.update(key, |state| match state {
            State::Finished(finished) => (None, Ok(finished)),
            State::Found(finished) => (Some(State::Claimed), Ok(finished)),
            State::Posted(mut op) => {
                let stand_in = op.buf.stand_in();
                op.owner = owner;
                (Some(State::Posted(op)), Err(stand_in))
            }
            State::Parted(_, buf) => {
                let stand_in = buf.stand_in();
                (Some(State::Parted(owner, buf)), Err(stand_in))
            }
            State::Claimed => unreachable!("nobody awaits a claim"),
        });
        abandoned.expect("a slot is its owner's until it is collected")
    }

    /// Who is told when the operations are done that are under way.
    pub(super) fn owners(&self) -> Vec<O> {
        let mut owners = Vec::new();
        self.slots.change(|changes, _| {
            changes.for_each(|state| match state {
                State::Posted(op) => owners.push(op.owner.clone()),
                State::Parted(owner, _) => owners.push(owner.clone()),
                State::Found(_) | State::Claimed | State::Finished(_) => {}
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
        changes: &mut Changes<'_, State<O>>,
        deliver: &mut impl FnMut(Finished<O>) -> Option<Finished<O>>,
    ) -> Result<usize> {
        let error = match self.cq.read_err() {
            Ok(error) => error,
            Err(Errno::Again) => return Ok(0),
            Err(errno) => return Err(errno),
        };
        let entry = error.entry;
        finish(changes, &entry, Err(Box::new(error)), deliver);
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
#[inline]
fn finish<O: Clone>(
    slots: &mut Changes<'_, State<O>>,
    entry: &cq::Entry,
    outcome: Outcome,
    deliver: &mut impl FnMut(Finished<O>) -> Option<Finished<O>>,
) {
    if entry.flags.intersects(BY_PEERS) {
        return;
    }
    let Some((state, slot)) = slots.take(Key::from(entry.context)) else {
        return;
    };
    let rest = match state {
        State::Posted(op) if matches!(op.content, Content::Messages) => {
            part(op.owner, Arc::new(op.buf), entry, outcome, deliver)
        }
        State::Posted(op) if matches!(op.content, Content::Claim) && outcome.is_ok() => {
            let found = deliver(op.finish(entry, outcome));
            Some(found.map_or(State::Claimed, State::Found))
        }
        State::Posted(op) => deliver(op.finish(entry, outcome)).map(State::Finished),
        State::Parted(owner, whole) => part(owner, whole, entry, outcome, deliver),
        finished => Some(finished),
    };
    if let Some(rest) = rest {
        slot.put_back(rest);
    }
}

/// Hands on one message of a multi-receive; what its slot holds from then on.
#[inline(never)]
fn part<O: Clone>(
    owner: O,
    whole: Arc<Buf>,
    entry: &cq::Entry,
    outcome: Outcome,
    deliver: &mut impl FnMut(Finished<O>) -> Option<Finished<O>>,
) -> Option<State<O>> {
    let is_last = entry.flags.contains(CompletionFlags::MULTI_RECV);
    let buf = Buf::part(&whole, entry.buf, entry.len);
    let kept = deliver(Finished {
        owner: owner.clone(),
        len: buf.len(),
        buf,
        outcome,
    });
    match kept {
        Some(kept) if is_last => Some(State::Finished(kept)),
        _ if is_last => None,
        _ => Some(State::Parted(owner, whole)),
    }
}

fn refused<O>(errno: Errno, state: State<O>) -> Refused {
    let buf = match state {
        State::Posted(op) => op.buf,
        State::Finished(finished) => finished.buf,
        State::Parted(..) | State::Found(_) | State::Claimed => {
            unreachable!("a refused post has no messages")
        }
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
