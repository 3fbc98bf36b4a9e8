//! What happens to messages between a post and its completion.

#![expect(unsafe_code, reason = "a provider copies between its users' buffers")]

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{fmt, ptr};

use selvedge::atomic::{AtomicMsg, Ioc, IocMut};
use selvedge::shared::SharedBytes;
use selvedge::{
    CompletionFlags, Context, Errno, FiAddr, Iov, IovMut, Result, TagMatch, cq::Entry, cq::ErrEntry,
};

/// The moods of a [`super::Net`].
pub(crate) struct Knobs {
    /// Operations that an endpoint keeps in each direction.
    pub(crate) depth: usize,
    /// The peer to which there is no room.
    pub(crate) crowded: Option<FiAddr>,
    /// Messages that may still move.
    pub(crate) budget: usize,
    /// What the next posts are refused with.
    pub(crate) refusals: VecDeque<Errno>,
    /// What the next sends that could move fail with.
    pub(crate) failures: VecDeque<Errno>,
    /// What every read of completions fails with.
    pub(crate) unreadable: Option<Errno>,
    /// Whether it is always too late to cancel.
    pub(crate) uncancellable: bool,
    /// Which sender's turn it is; another number, another order between senders.
    pub(crate) seed: usize,
    /// Whether handles of opened endpoints are kept.
    pub(crate) hoards: bool,
    /// What is called while an endpoint closes.
    pub(crate) at_close: Option<Box<dyn FnOnce() + Send>>,
}

impl Default for Knobs {
    fn default() -> Self {
        Self {
            depth: usize::MAX,
            crowded: None,
            budget: usize::MAX,
            refusals: VecDeque::new(),
            failures: VecDeque::new(),
            unreadable: None,
            uncancellable: false,
            seed: 0,
            hoards: false,
            at_close: None,
        }
    }
}

/// Locks the wire, also after a test has failed with the lock.
pub(super) fn lock(wire: &Mutex<Wire>) -> MutexGuard<'_, Wire> {
    wire.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) type Event = Result<(Entry, FiAddr), ErrEntry>;

/// A completion queue: its entries, and how many may wait.
pub(super) struct Queue {
    pub(super) events: VecDeque<Event>,
    pub(super) size: usize,
}

#[derive(Default)]
pub(crate) struct Wire {
    pub(crate) knobs: Knobs,
    pub(super) ports: BTreeMap<u64, Port>,
    pub(super) queues: Vec<Queue>,
    /// Registered memory by key.
    pub(super) regions: BTreeMap<u64, IovMut>,
    /// Contexts of all posts in their order.
    contexts: Vec<Context>,
}

/// An endpoint.
pub(super) struct Port {
    pub(super) queue: usize,
    pub(super) outbox: VecDeque<Message>,
    pub(super) posted: VecDeque<Posted>,
}

pub(super) struct Message {
    pub(super) dest: u64,
    pub(super) tag: Option<u64>,
    pub(super) data: Option<u64>,
    pub(super) bytes: Bytes,
}

pub(super) enum Bytes {
    /// The sender's, which wants them back.
    Lent(Iov, Context),
    Copied(Vec<u8>),
}

#[derive(Clone, Copy)]
pub(super) struct Posted {
    pub(super) src: FiAddr,
    pub(super) tag: Option<TagMatch>,
    pub(super) room: IovMut,
    pub(super) context: Context,
}

impl Posted {
    fn accepts(&self, src: u64, message: &Message) -> bool {
        let tags_meet = match (self.tag, message.tag) {
            (Some(wanted), Some(tag)) => wanted.accepts(tag),
            (None, None) => true,
            _ => false,
        };
        tags_meet && (self.src == FiAddr::UNSPEC || self.src == FiAddr(src))
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("loopback wire")
    }
}

impl Wire {
    pub(super) fn send(&mut self, from: u64, message: Message) -> Result {
        self.refusal()?;
        let port = self.ports.get_mut(&from).unwrap();
        let is_crowded = self.knobs.crowded == Some(FiAddr(message.dest));
        if is_crowded || port.outbox.len() >= self.knobs.depth {
            return Err(Errno::Again);
        }
        if let Bytes::Lent(_, context) = message.bytes {
            self.contexts.push(context);
        }
        port.outbox.push_back(message);
        Ok(())
    }

    pub(super) fn recv(&mut self, at: u64, posted: Posted) -> Result {
        self.refusal()?;
        let port = self.ports.get_mut(&at).unwrap();
        if port.posted.len() >= self.knobs.depth {
            return Err(Errno::Again);
        }
        self.contexts.push(posted.context);
        port.posted.push_back(posted);
        Ok(())
    }

    pub(super) fn cancel(&mut self, at: u64, context: Context) -> Result {
        if self.knobs.uncancellable {
            return Err(Errno::NoEnt);
        }
        let port = self.ports.get_mut(&at).unwrap();
        let before = port.posted.len() + port.outbox.len();
        port.posted.retain(|posted| posted.context != context);
        port.outbox
            .retain(|message| !matches!(message.bytes, Bytes::Lent(_, c) if c == context));
        if port.posted.len() + port.outbox.len() == before {
            return Err(Errno::NoEnt);
        }
        self.push(at, Err(error(context, Errno::Canceled)));
        Ok(())
    }

    /// Moves the messages that can move, as far as the budget goes.
    pub(super) fn progress(&mut self) {
        while self.knobs.budget > 0 && self.step() {
            self.knobs.budget -= 1;
        }
    }

    /// Adds an entry to every queue that no operation asked for.
    pub(crate) fn stray(&mut self, entry: Entry) {
        for queue in &mut self.queues {
            queue.events.push_back(Ok((entry, FiAddr::UNSPEC)));
        }
    }

    /// The context of the last post.
    pub(crate) fn last_context(&self) -> Context {
        *self.contexts.last().unwrap()
    }

    /// Operations that wait in all endpoints.
    pub(crate) fn outstanding(&self) -> usize {
        let ports = self.ports.values();
        ports
            .map(|port| port.posted.len() + port.outbox.len())
            .sum()
    }

    /// Regions that are registered.
    pub(crate) fn regions(&self) -> usize {
        self.regions.len()
    }

    /// Writes as a peer would; `addr` counts from the start of the region.
    pub(crate) fn write(&self, key: u64, addr: u64, bytes: &[u8]) {
        let region = self.regions[&key];
        let addr = usize::try_from(addr).unwrap();
        // SAFETY: the region is registered and therefore alive, and its owner expects peers to write.
        let region = unsafe { SharedBytes::new(region.base.cast(), region.len) };
        region.part(addr, bytes.len()).write(bytes);
    }

    /// Carries out an atomic on 64-bit words at once: a sum, an exchange under a condition, or a read.
    pub(super) fn atomic(
        &mut self,
        at: u64,
        msg: &AtomicMsg<'_>,
        compare: Option<Ioc>,
        result: Option<IocMut>,
    ) -> Result {
        self.refusal()?;
        let target = msg.rma_iov[0];
        let region = self.regions[&target.key];
        assert!(target.addr as usize + target.count * 8 <= region.len);
        let first = region.base.wrapping_byte_add(target.addr as usize);
        for index in 0..target.count {
            let given = |ioc: &Ioc| word(ioc, index);
            // SAFETY: the word lies in a region that is registered and therefore alive, and whose
            // owner expects peers to change it.
            let cell = unsafe { AtomicU64::from_ptr(first.cast::<u64>().wrapping_add(index)) };
            let old = match (msg.iov.first().map(given), compare.as_ref().map(given)) {
                (Some(operand), Some(compare)) => cell
                    .compare_exchange(compare, operand, Ordering::AcqRel, Ordering::Acquire)
                    .unwrap_or_else(|old| old),
                (Some(operand), None) => cell.fetch_add(operand, Ordering::AcqRel),
                (None, _) => cell.load(Ordering::Acquire),
            };
            if let Some(result) = result {
                assert!(index < result.count);
                // SAFETY: results have room for as many words, until the completion.
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
        self.push(at, Ok((entry, FiAddr::UNSPEC)));
        Ok(())
    }

    fn refusal(&mut self) -> Result {
        self.knobs.refusals.pop_front().map_or(Ok(()), Err)
    }

    fn step(&mut self) -> bool {
        let senders: Vec<u64> = self.ports.keys().copied().collect();
        let first = self.knobs.seed % senders.len().max(1);
        self.knobs.seed = self.knobs.seed.wrapping_mul(31).wrapping_add(7);
        let turns = senders[first..].iter().chain(&senders[..first]);
        turns.copied().any(|sender| self.step_from(sender))
    }

    /// Moves the first message of a sender that can move.
    fn step_from(&mut self, sender: u64) -> bool {
        let outbox = &self.ports[&sender].outbox;
        let found = (0..outbox.len()).find_map(|i| Some((i, self.meet(sender, &outbox[i])?)));
        let Some((index, target)) = found else {
            return false;
        };
        let port = self.ports.get_mut(&sender).unwrap();
        let message = port.outbox.remove(index).unwrap();
        let failure = match target {
            Target::Closed => Some(Errno::HostUnreach),
            Target::Posted(_) => self.knobs.failures.pop_front(),
        };
        if let (None, Target::Posted(at)) = (failure, target) {
            self.arrive(sender, at, &message);
        }
        self.sent(sender, &message, failure);
        true
    }

    fn meet(&self, sender: u64, message: &Message) -> Option<Target> {
        let Some(port) = self.ports.get(&message.dest) else {
            return Some(Target::Closed);
        };
        let mut posted = port.posted.iter();
        let found = posted.position(|posted| posted.accepts(sender, message));
        found.map(Target::Posted)
    }

    fn arrive(&mut self, sender: u64, at: usize, message: &Message) {
        let port = self.ports.get_mut(&message.dest).unwrap();
        let posted = port.posted.remove(at).unwrap();
        let (source, len) = match &message.bytes {
            Bytes::Lent(iov, _) => (iov.base.cast::<u8>(), iov.len),
            Bytes::Copied(bytes) => (bytes.as_ptr(), bytes.len()),
        };
        let fits = len.min(posted.room.len);
        // SAFETY: both buffers were posted and have not completed, so they are valid, and the
        // receive's is ours alone, which also keeps them apart.
        unsafe { ptr::copy_nonoverlapping(source, posted.room.base.cast(), fits) };
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

    fn sent(&mut self, sender: u64, message: &Message, failure: Option<Errno>) {
        let Bytes::Lent(_, context) = message.bytes else {
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

    fn push(&mut self, at: u64, event: Event) {
        let queue = &mut self.queues[self.ports[&at].queue];
        queue.events.push_back(event);
        assert!(queue.events.len() <= queue.size, "completion queue overrun");
    }
}

fn word(ioc: &Ioc, index: usize) -> u64 {
    assert!(index < ioc.count);
    // SAFETY: operands are valid during the call, and there are `count` of them.
    unsafe { ioc.addr.cast::<u64>().wrapping_add(index).read_unaligned() }
}

/// Where a message goes.
#[derive(Clone, Copy)]
enum Target {
    Posted(usize),
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
    ErrEntry::new(entry, errno, "as the test wanted")
}
