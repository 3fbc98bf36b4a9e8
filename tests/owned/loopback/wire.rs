//! `Wire`: the state of the loopback provider, which transfers messages from posted sends to posted
//! receives.

#![expect(
    unsafe_code,
    reason = "a provider copies between the buffers of the application"
)]

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{fmt, ptr};

use selvedge::atomic::{AtomicMsg, Ioc, IocMut};
use selvedge::shared::SharedBytes;
use selvedge::{
    CompletionFlags, Context, Errno, FiAddr, Iov, IovMut, Result, TagMatch, cq::Entry, cq::ErrEntry,
};

/// Settings of a [`super::Net`].
pub(crate) struct Settings {
    /// The number of operations that an endpoint queues in each direction.
    pub(crate) depth: usize,
    /// The peer to which posts fail with `EAGAIN`.
    pub(crate) full_peer: Option<FiAddr>,
    /// The number of messages that may still be transferred.
    pub(crate) budget: usize,
    /// Errors of the next posts.
    pub(crate) post_errors: VecDeque<Errno>,
    /// Errors of the next sends that match a receive.
    pub(crate) completion_errors: VecDeque<Errno>,
    /// The error of every read of completions.
    pub(crate) read_error: Option<Errno>,
    /// The events of the next waits at a queue, in which nothing else happens.
    pub(crate) waits: VecDeque<fn(&mut Wire)>,
    /// Whether cancellation always fails.
    pub(crate) uncancellable: bool,
    /// Seed of the order of senders.
    pub(crate) seed: usize,
    /// Whether the domain keeps handles of opened endpoints.
    pub(crate) keeps_handles: bool,
    /// A callback that runs while an endpoint closes.
    pub(crate) on_close: Option<Box<dyn FnOnce() + Send>>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            depth: usize::MAX,
            full_peer: None,
            budget: usize::MAX,
            post_errors: VecDeque::new(),
            completion_errors: VecDeque::new(),
            read_error: None,
            waits: VecDeque::new(),
            uncancellable: false,
            seed: 0,
            keeps_handles: false,
            on_close: None,
        }
    }
}

/// Locks the wire, also after a panic of a lock holder.
pub(super) fn lock(wire: &Mutex<Wire>) -> MutexGuard<'_, Wire> {
    wire.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) type Event = Result<(Entry, FiAddr), ErrEntry>;

/// A completion queue: its entries and its size.
pub(super) struct Queue {
    pub(super) events: VecDeque<Event>,
    pub(super) size: usize,
}

#[derive(Default)]
pub(crate) struct Wire {
    pub(crate) settings: Settings,
    pub(super) endpoints: BTreeMap<u64, EndpointState>,
    pub(super) queues: Vec<Queue>,
    /// Registered memory by key.
    pub(super) regions: BTreeMap<u64, IovMut>,
    /// Contexts of all posts, in order.
    contexts: Vec<Context>,
}

/// The state of an endpoint.
pub(super) struct EndpointState {
    pub(super) queue: usize,
    pub(super) outbox: VecDeque<Message>,
    pub(super) posted: VecDeque<PostedRecv>,
}

pub(super) struct Message {
    pub(super) dest: u64,
    pub(super) tag: Option<u64>,
    pub(super) data: Option<u64>,
    pub(super) bytes: Bytes,
}

pub(super) enum Bytes {
    /// The sender's buffer, returned with the completion.
    Borrowed(Iov, Context),
    Copied(Vec<u8>),
}

#[derive(Clone, Copy)]
pub(super) struct PostedRecv {
    pub(super) src: FiAddr,
    pub(super) tag: Option<TagMatch>,
    pub(super) buf: IovMut,
    pub(super) context: Context,
}

impl PostedRecv {
    fn accepts(&self, src: u64, message: &Message) -> bool {
        let tags_match = match (self.tag, message.tag) {
            (Some(expected), Some(tag)) => expected.accepts(tag),
            (None, None) => true,
            _ => false,
        };
        tags_match && (self.src == FiAddr::UNSPEC || self.src == FiAddr(src))
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("loopback wire")
    }
}

impl Wire {
    pub(super) fn send(&mut self, ep: u64, message: Message) -> Result {
        self.take_post_error()?;
        let endpoint = self.endpoints.get_mut(&ep).unwrap();
        let is_full = self.settings.full_peer == Some(FiAddr(message.dest));
        if is_full || endpoint.outbox.len() >= self.settings.depth {
            return Err(Errno::Again);
        }
        if let Bytes::Borrowed(_, context) = message.bytes {
            self.contexts.push(context);
        }
        endpoint.outbox.push_back(message);
        Ok(())
    }

    pub(super) fn recv(&mut self, ep: u64, posted: PostedRecv) -> Result {
        self.take_post_error()?;
        let endpoint = self.endpoints.get_mut(&ep).unwrap();
        if endpoint.posted.len() >= self.settings.depth {
            return Err(Errno::Again);
        }
        self.contexts.push(posted.context);
        endpoint.posted.push_back(posted);
        Ok(())
    }

    pub(super) fn cancel(&mut self, ep: u64, context: Context) -> Result {
        if self.settings.uncancellable {
            return Err(Errno::NoEnt);
        }
        let endpoint = self.endpoints.get_mut(&ep).unwrap();
        let before = endpoint.posted.len() + endpoint.outbox.len();
        endpoint.posted.retain(|posted| posted.context != context);
        endpoint
            .outbox
            .retain(|message| !matches!(message.bytes, Bytes::Borrowed(_, c) if c == context));
        if endpoint.posted.len() + endpoint.outbox.len() == before {
            return Err(Errno::NoEnt);
        }
        self.push(ep, Err(error(context, Errno::Canceled)));
        Ok(())
    }

    /// Transfers messages that match a receive, within the budget.
    pub(super) fn progress(&mut self) {
        while self.settings.budget > 0 && self.transfer_one() {
            self.settings.budget -= 1;
        }
    }

    /// Adds an entry without an operation to every queue.
    pub(crate) fn push_stray_entry(&mut self, entry: Entry) {
        for queue in &mut self.queues {
            queue.events.push_back(Ok((entry, FiAddr::UNSPEC)));
        }
    }

    /// Returns the context of the last post.
    pub(crate) fn last_context(&self) -> Context {
        *self.contexts.last().unwrap()
    }

    /// Returns the number of outstanding operations of all endpoints.
    pub(crate) fn outstanding(&self) -> usize {
        let endpoints = self.endpoints.values();
        endpoints
            .map(|endpoint| endpoint.posted.len() + endpoint.outbox.len())
            .sum()
    }

    /// Returns the number of registered regions.
    pub(crate) fn regions(&self) -> usize {
        self.regions.len()
    }

    /// Writes to a region as a peer does; `addr` is an offset in the region.
    pub(crate) fn write(&self, key: u64, addr: u64, bytes: &[u8]) {
        let region = self.regions[&key];
        let addr = usize::try_from(addr).unwrap();
        // SAFETY: the region is registered and therefore valid, and its owner expects writes by
        // peers.
        let region = unsafe { SharedBytes::new(region.base.cast(), region.len) };
        region.part(addr, bytes.len()).write(bytes);
    }

    /// Executes an atomic on 64-bit words: a sum, a compare-and-swap, or a read.
    pub(super) fn atomic(
        &mut self,
        ep: u64,
        msg: &AtomicMsg<'_>,
        compare: Option<Ioc>,
        result: Option<IocMut>,
    ) -> Result {
        self.take_post_error()?;
        let target = msg.rma_iov[0];
        let region = self.regions[&target.key];
        assert!(target.addr as usize + target.count * 8 <= region.len);
        let first = region.base.wrapping_byte_add(target.addr as usize);
        for index in 0..target.count {
            let operand_at = |ioc: &Ioc| word(ioc, index);
            // SAFETY: the word is within a region that is registered and therefore valid. The owner
            // of the region expects changes by peers.
            let cell = unsafe { AtomicU64::from_ptr(first.cast::<u64>().wrapping_add(index)) };
            let old = match (
                msg.iov.first().map(operand_at),
                compare.as_ref().map(operand_at),
            ) {
                (Some(operand), Some(compare)) => cell
                    .compare_exchange(compare, operand, Ordering::AcqRel, Ordering::Acquire)
                    .unwrap_or_else(|old| old),
                (Some(operand), None) => cell.fetch_add(operand, Ordering::AcqRel),
                (None, _) => cell.load(Ordering::Acquire),
            };
            if let Some(result) = result {
                assert!(index < result.count);
                // SAFETY: the result buffer has `count` words and is valid until the completion.
                unsafe {
                    result
                        .addr
                        .cast::<u64>()
                        .wrapping_add(index)
                        .write_unaligned(old)
                };
            }
        }
        self.contexts.push(msg.context);
        let entry = Entry {
            context: msg.context,
            flags: CompletionFlags::ATOMIC,
            ..Entry::default()
        };
        self.push(ep, Ok((entry, FiAddr::UNSPEC)));
        Ok(())
    }

    fn take_post_error(&mut self) -> Result {
        self.settings.post_errors.pop_front().map_or(Ok(()), Err)
    }

    /// Transfers one message. Returns false if no message has a target.
    fn transfer_one(&mut self) -> bool {
        let senders: Vec<u64> = self.endpoints.keys().copied().collect();
        let first = self.settings.seed % senders.len().max(1);
        self.settings.seed = self.settings.seed.wrapping_mul(31).wrapping_add(7);
        let order = senders[first..].iter().chain(&senders[..first]);
        order.copied().any(|sender| self.transfer_from(sender))
    }

    /// Transfers the first message of a sender that has a target.
    fn transfer_from(&mut self, sender: u64) -> bool {
        let outbox = &self.endpoints[&sender].outbox;
        let found =
            (0..outbox.len()).find_map(|i| Some((i, self.find_target(sender, &outbox[i])?)));
        let Some((index, target)) = found else {
            return false;
        };
        let endpoint = self.endpoints.get_mut(&sender).unwrap();
        let message = endpoint.outbox.remove(index).unwrap();
        let failure = match target {
            Target::Closed => Some(Errno::HostUnreach),
            Target::Posted(_) => self.settings.completion_errors.pop_front(),
        };
        if let (None, Target::Posted(receive)) = (failure, target) {
            self.deliver(sender, receive, &message);
        }
        self.complete_send(sender, &message, failure);
        true
    }

    fn find_target(&self, sender: u64, message: &Message) -> Option<Target> {
        let Some(endpoint) = self.endpoints.get(&message.dest) else {
            return Some(Target::Closed);
        };
        let mut posted = endpoint.posted.iter();
        let found = posted.position(|posted| posted.accepts(sender, message));
        found.map(Target::Posted)
    }

    fn deliver(&mut self, sender: u64, receive: usize, message: &Message) {
        let endpoint = self.endpoints.get_mut(&message.dest).unwrap();
        let posted = endpoint.posted.remove(receive).unwrap();
        let (source, len) = match &message.bytes {
            Bytes::Borrowed(iov, _) => (iov.base.cast::<u8>(), iov.len),
            Bytes::Copied(bytes) => (bytes.as_ptr(), bytes.len()),
        };
        let fits = len.min(posted.buf.len);
        // SAFETY: both buffers are valid, because their operations were posted and have not
        // completed. The receive buffer is exclusive, so the buffers do not overlap.
        unsafe { ptr::copy_nonoverlapping(source, posted.buf.base.cast(), fits) };
        let entry = Entry {
            context: posted.context,
            flags: flags(CompletionFlags::RECV, message),
            len: fits,
            buf: 0,
            data: message.data.unwrap_or(0),
            tag: message.tag.unwrap_or(0),
        };
        let event = if fits == len {
            Ok((entry, FiAddr(sender)))
        } else {
            let mut error = ErrEntry::new(entry, Errno::Trunc, "receive buffer too small");
            error.olen = len - fits;
            Err(error)
        };
        self.push(message.dest, event);
    }

    fn complete_send(&mut self, sender: u64, message: &Message, failure: Option<Errno>) {
        let Bytes::Borrowed(_, context) = message.bytes else {
            return;
        };
        let entry = Entry {
            context,
            flags: flags(CompletionFlags::SEND, message) - CompletionFlags::REMOTE_CQ_DATA,
            ..Entry::default()
        };
        let event = match failure {
            None => Ok((entry, FiAddr::UNSPEC)),
            Some(errno) => Err(error(context, errno)),
        };
        self.push(sender, event);
    }

    fn push(&mut self, ep: u64, event: Event) {
        let queue = &mut self.queues[self.endpoints[&ep].queue];
        queue.events.push_back(event);
        assert!(queue.events.len() <= queue.size, "completion queue overrun");
    }
}

fn word(ioc: &Ioc, index: usize) -> u64 {
    assert!(index < ioc.count);
    // SAFETY: the `count` operands are valid during the call.
    unsafe { ioc.addr.cast::<u64>().wrapping_add(index).read_unaligned() }
}

/// The target of a message.
#[derive(Clone, Copy)]
enum Target {
    /// The posted receive with this index.
    Posted(usize),
    /// An endpoint that does not exist any more.
    Closed,
}

fn flags(direction: CompletionFlags, message: &Message) -> CompletionFlags {
    let kind = match message.tag {
        Some(_) => CompletionFlags::TAGGED,
        None => CompletionFlags::MSG,
    };
    match message.data {
        Some(_) => kind | direction | CompletionFlags::REMOTE_CQ_DATA,
        None => kind | direction,
    }
}

fn error(context: Context, errno: Errno) -> ErrEntry {
    let entry = Entry {
        context,
        ..Entry::default()
    };
    ErrEntry::new(entry, errno, "an error injected by the test")
}
