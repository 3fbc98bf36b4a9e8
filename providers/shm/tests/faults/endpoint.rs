//! `NumberedEndpoint`: an endpoint with numbered operations, which keeps their buffers.

#![expect(unsafe_code, reason = "tests of the raw API")]

use std::collections::{HashMap, VecDeque};
use std::fmt::Display;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use selvedge::cq::{Entry, ErrEntry};
use selvedge::info::EpType;
use selvedge::rma::{ReadMsg, RmaIov, WriteMsg};
use selvedge::shared::SharedBytes;
use selvedge::{
    Address, AddressVector, Allocation, Caps, CompletionQueue, Context, Domain, Endpoint, Errno,
    Error, FiAddr, Hints, Info, Iov, IovMut, LentMemory, MrAccess, OpFlags, TagMatch, alloc, av,
    cq, msg, tagged, wait,
};
use selvedge_testkit::domain::{DomainContext, EndpointConfig};
use selvedge_testkit::local::{self, LocalEndpoint, open_domain, until};
use selvedge_testkit::op;

/// A kind of message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Msg,
    Tagged,
    Inject,
    TaggedInject,
    /// Tagged; the send completes when the receiver has received the message.
    Delivered,
}

impl Kind {
    pub(crate) const ALL: [Self; 5] = [
        Self::Msg,
        Self::Tagged,
        Self::Inject,
        Self::TaggedInject,
        Self::Delivered,
    ];

    pub(crate) fn parse(word: &str) -> Self {
        let has_name = |kind: &Self| format!("{kind:?}") == word;
        Self::ALL.into_iter().find(has_name).unwrap()
    }

    fn is_tagged(self) -> bool {
        !matches!(self, Self::Msg | Self::Inject)
    }
}

/// An endpoint, the buffers of its operations, and its unread completions. A number identifies an
/// operation. The fields are dropped in order: the endpoint before the buffers.
pub(crate) struct NumberedEndpoint {
    local: LocalEndpoint,
    /// Blocks of special memory, by the numbers that the tests choose.
    pub(crate) blocks: HashMap<u64, Arc<dyn Allocation>>,
    sent: HashMap<u64, Buffer>,
    posted: HashMap<u64, Box<[u8]>>,
    events: VecDeque<Event>,
}

impl Deref for NumberedEndpoint {
    type Target = LocalEndpoint;

    fn deref(&self) -> &LocalEndpoint {
        &self.local
    }
}

/// The buffer of a send. Dropping it overwrites its bytes, so that a late reader does not read the
/// message.
struct Buffer(Box<[u8]>);

impl Drop for Buffer {
    fn drop(&mut self) {
        self.0.fill(0xde);
    }
}

/// The handles of an endpoint.
pub(crate) type Handles = (
    Arc<dyn Endpoint>,
    Arc<dyn CompletionQueue>,
    Arc<dyn AddressVector>,
    Arc<dyn Domain>,
);

/// A completion.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) context: u64,
    pub(crate) src: FiAddr,
    pub(crate) tag: u64,
    /// The bytes received; empty for a send.
    pub(crate) bytes: Vec<u8>,
    pub(crate) error: Option<ErrEntry>,
    /// The memory of a lent message.
    pub(crate) view: Option<Box<dyn LentMemory>>,
}

impl Event {
    /// The error of the operation, which must have failed.
    pub(crate) fn errno(&self) -> Errno {
        self.error.as_ref().map(|e| e.errno).unwrap()
    }

    /// The event itself; panics if the operation has failed.
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert!(self.error.is_none(), "{self:?}");
        self
    }
}

/// Copies the bytes of a lent message.
pub(crate) fn read(lent: &dyn LentMemory) -> Vec<u8> {
    let mut bytes = vec![0; lent.len()];
    // SAFETY: lent memory is valid for reads, and nothing is written through the value.
    unsafe { SharedBytes::new(lent.base().cast_mut(), lent.len()) }.read_into(&mut bytes);
    bytes
}

pub(crate) fn info(ep_type: EpType, params: &[(&str, &str)]) -> Info {
    let caps = Caps::MSG | Caps::TAGGED | Caps::SOURCE | Caps::DIRECTED_RECV;
    let hints = Hints::new().caps(caps).ep_type(ep_type);
    local::info(&selvedge_shm::PROVIDER, params, &hints)
}

impl NumberedEndpoint {
    /// Opens an endpoint under the default name.
    pub(crate) fn new() -> Self {
        Self::with_params(None, &[])
    }

    pub(crate) fn named(name: &str) -> Self {
        Self::with_params(Some(name), &[])
    }

    pub(crate) fn with_params(name: Option<&str>, params: &[(&str, &str)]) -> Self {
        Self::open(name, &info(EpType::Rdm, params)).unwrap()
    }

    pub(crate) fn open(name: Option<&str>, info: &Info) -> Result<Self, Error> {
        Self::open_with(name, info, |_, _| ())
    }

    /// Opens an endpoint with a queue that a thread can wait at. The thread parks without spinning.
    pub(crate) fn open_waiting(
        name: Option<&str>,
        info: &Info,
        wait_obj: wait::Object,
    ) -> Result<Self, Error> {
        let mut attr = cq::Attr::default();
        attr.wait_obj = wait_obj;
        attr.spin_time = Some(Duration::ZERO);
        Self::open_with(name, info, |domain, config| {
            config.rx = Some(domain.queue_with(&attr).unwrap());
        })
    }

    /// Opens an endpoint with an address vector of these attributes.
    pub(crate) fn open_with_av_attr(
        name: Option<&str>,
        info: &Info,
        attr: &av::Attr,
    ) -> Result<Self, Error> {
        Self::open_with(name, info, |domain, config| {
            config.av = Some(domain.domain().av(attr).unwrap());
        })
    }

    fn open_with(
        name: Option<&str>,
        info: &Info,
        configure: impl FnOnce(&DomainContext, &mut EndpointConfig),
    ) -> Result<Self, Error> {
        let mut info = info.clone();
        info.src_addr = name.map(|name| Address::Str(name.into()));
        LocalEndpoint::try_open(&open_domain(&info)?, configure).map(Self::from)
    }

    /// Opens the contexts of a scalable endpoint called `name`.
    pub(crate) fn open_contexts(name: &str, count: usize) -> Vec<Self> {
        let mut info = info(EpType::Rdm, &[]);
        info.src_addr = Some(Address::Str(name.into()));
        (info.ep_attr.tx_ctx_cnt, info.ep_attr.rx_ctx_cnt) = (count, count);
        let domain = open_domain(&info).unwrap();
        let sep = domain.domain().scalable_endpoint(&info).unwrap();
        let context = |index| {
            let context = LocalEndpoint::try_open(&domain, |_, config| {
                config.context = Some((Arc::clone(&sep), index));
            });
            Self::from(context.unwrap())
        };
        (0..count).map(context).collect()
    }

    /// Returns the handles. The buffers of outstanding operations are never freed.
    pub(crate) fn into_handles(self) -> Handles {
        std::mem::forget((self.sent, self.posted));
        (
            Arc::clone(&self.local.ep),
            Arc::clone(self.local.cq()),
            Arc::clone(&self.local.av),
            Arc::clone(self.local.domain()),
        )
    }

    pub(crate) fn name(&self) -> String {
        self.address().to_string()
    }

    pub(crate) fn insert(&self, name: impl Display) -> FiAddr {
        self.local.insert(&Address::Str(name.to_string()))
    }

    /// Sends message `number` of `len` bytes. The number is tag and context.
    pub(crate) fn send(
        &mut self,
        kind: Kind,
        dest: FiAddr,
        len: usize,
        number: u64,
    ) -> Result<(), Errno> {
        let bytes: Box<[u8]> = content(number, len).into();
        let tag = kind.is_tagged().then_some(number);
        let flags = match kind {
            Kind::Inject | Kind::TaggedInject => {
                let inject = op::inject(&bytes, dest, tag, None);
                // SAFETY: an injected operation has no safety requirement.
                return unsafe { inject.post(&*self.ep, OpFlags::DEFAULT) };
            }
            Kind::Delivered => OpFlags::DELIVERY_COMPLETE | OpFlags::COMPLETION,
            Kind::Msg | Kind::Tagged => OpFlags::DEFAULT,
        };
        let msg = msg::SendMsg {
            iov: &[Iov::new(&bytes)],
            desc: &[],
            dest,
            context: Context(number),
            data: 0,
        };
        // SAFETY: the buffer is kept until its completion or the end of the endpoint.
        unsafe { op::send(msg, tag).post(&*self.ep, flags) }?;
        self.sent.insert(number, Buffer(bytes));
        Ok(())
    }

    /// Allocates special memory under the number `block`.
    pub(crate) fn alloc(&mut self, block: u64, len: usize, access: MrAccess) -> Result<(), Error> {
        let attr = alloc::Attr::new(access).with_key(block);
        let memory = self.domain().alloc(len, &attr)?;
        self.blocks.insert(block, memory);
        Ok(())
    }

    /// Sends the tagged message `number` of `len` bytes, from the end of a block of special memory,
    /// as `segments` segments.
    pub(crate) fn send_special(
        &mut self,
        block: u64,
        dest: FiAddr,
        len: usize,
        number: u64,
        segments: usize,
    ) -> Result<(), Errno> {
        self.fill(block, len, number);
        self.send_from(block, dest, len, number, segments, OpFlags::DEFAULT)
    }

    /// Lends the tagged message `number` of `len` bytes, at the end of a block of special memory.
    pub(crate) fn lend(
        &mut self,
        block: u64,
        dest: FiAddr,
        len: usize,
        number: u64,
    ) -> Result<(), Errno> {
        let flags = OpFlags::DEFAULT | OpFlags::LEND;
        self.fill(block, len, number);
        self.send_from(block, dest, len, number, 1, flags)
    }

    /// Fills the end of a block with the bytes of a message.
    pub(crate) fn fill(&mut self, block: u64, len: usize, number: u64) {
        let memory = &self.blocks[&block];
        let first = memory.base().wrapping_add(memory.len() - len);
        let bytes = content(number, len);
        // SAFETY: the block has at least `len` bytes, and the tests send one message of it at a
        // time.
        unsafe { first.copy_from_nonoverlapping(bytes.as_ptr(), len) };
    }

    fn send_from(
        &self,
        block: u64,
        dest: FiAddr,
        len: usize,
        number: u64,
        segments: usize,
        flags: OpFlags,
    ) -> Result<(), Errno> {
        let memory = &self.blocks[&block];
        let first = memory.base().wrapping_add(memory.len() - len);
        let segment_len = len.div_ceil(segments);
        let iov: Vec<_> = (0..segments)
            .map(|segment| {
                let (start, end) = (segment * segment_len, len.min((segment + 1) * segment_len));
                Iov::from_raw(first.wrapping_add(start).cast(), end - start)
            })
            .collect();
        let msg = tagged::SendMsg {
            iov: &iov,
            desc: &[],
            dest,
            tag: number,
            context: Context(number),
            data: 0,
        };
        // SAFETY: the block is kept until the end of the endpoint, or is freed when no operation is
        // outstanding.
        unsafe { self.ep.tsendmsg(&msg, flags) }
    }

    /// Loads a word of a local block.
    pub(crate) fn word(&self, block: u64, offset: usize) -> u64 {
        self.atomic(block, offset).load(Ordering::Acquire)
    }

    pub(crate) fn set_word(&self, block: u64, offset: usize, word: u64) {
        self.atomic(block, offset).store(word, Ordering::Release);
    }

    fn atomic(&self, block: u64, offset: usize) -> &AtomicU64 {
        let memory = &self.blocks[&block];
        assert!(offset.is_multiple_of(8) && offset + 8 <= memory.len());
        let word = memory.base().wrapping_add(offset).cast();
        // SAFETY: inside of the block, which lives as long as `self` keeps it, and aligned.
        unsafe { AtomicU64::from_ptr(word) }
    }

    /// Loads words of a local block. Returns them in one line.
    pub(crate) fn words(&self, block: u64, offset: usize, count: usize) -> String {
        let words = (0..count).map(|word| self.word(block, offset + 8 * word).to_string());
        words.collect::<Vec<_>>().join(" ")
    }

    /// Writes a copy of `bytes` to a peer's memory; `number` is the context.
    pub(crate) fn write(
        &mut self,
        dest: FiAddr,
        segments: &[RmaIov],
        bytes: &[u8],
        number: u64,
    ) -> Result<(), Errno> {
        let bytes: Box<[u8]> = bytes.into();
        let msg = WriteMsg {
            iov: &[Iov::new(&bytes)],
            desc: &[],
            dest,
            rma_iov: segments,
            context: Context(number),
            data: 0,
        };
        // SAFETY: the buffer is kept until its completion or the end of the endpoint.
        unsafe { self.ep.writemsg(&msg, OpFlags::COMPLETION) }?;
        self.sent.insert(number, Buffer(bytes));
        Ok(())
    }

    /// Reads a peer's memory; `number` is the context.
    pub(crate) fn read_from(
        &mut self,
        src: FiAddr,
        segments: &[RmaIov],
        len: usize,
        number: u64,
    ) -> Result<(), Errno> {
        let mut bytes = vec![BLANK; len].into_boxed_slice();
        let msg = ReadMsg {
            iov: &[IovMut::new(&mut bytes)],
            desc: &[],
            src,
            rma_iov: segments,
            context: Context(number),
        };
        // SAFETY: the buffer is kept until its completion or the end of the endpoint.
        unsafe { self.ep.readmsg(&msg, OpFlags::COMPLETION) }?;
        self.posted.insert(number, bytes);
        Ok(())
    }

    /// Posts a receive for a message of this kind; `number` is tag and context, or [`ANY`].
    pub(crate) fn recv(
        &mut self,
        kind: Kind,
        src: FiAddr,
        len: usize,
        number: u64,
    ) -> Result<(), Errno> {
        self.recv_with(kind, src, len, number, OpFlags::DEFAULT)
    }

    /// As [`Self::recv`], tagged and from any source, by reference if the message is lent.
    pub(crate) fn recv_lent(&mut self, len: usize, number: u64) {
        let flags = OpFlags::DEFAULT | OpFlags::LEND;
        self.recv_with(Kind::Tagged, FiAddr::UNSPEC, len, number, flags)
            .unwrap();
    }

    fn recv_with(
        &mut self,
        kind: Kind,
        src: FiAddr,
        len: usize,
        number: u64,
        flags: OpFlags,
    ) -> Result<(), Errno> {
        let mut bytes = vec![BLANK; len].into_boxed_slice();
        let tag = match number {
            ANY => TagMatch::ANY,
            number => TagMatch::exact(number),
        };
        let msg = msg::RecvMsg {
            iov: &[IovMut::new(&mut bytes)],
            desc: &[],
            src,
            context: Context(number),
        };
        let recv = op::recv(msg, kind.is_tagged().then_some(tag));
        // SAFETY: the buffer is kept until its completion or the end of the endpoint.
        unsafe { recv.post(&*self.ep, flags) }?;
        self.posted.insert(number, bytes);
        Ok(())
    }

    /// As [`Self::recv`], from any source. Returns the address of the buffer.
    pub(crate) fn recv_at(&mut self, kind: Kind, len: usize, number: u64) -> *const u8 {
        self.recv(kind, FiAddr::UNSPEC, len, number).unwrap();
        self.posted[&number].as_ptr()
    }

    /// Makes progress without waiting, and stores the completions.
    pub(crate) fn drive(&mut self) {
        while let Some(event) = self.read() {
            self.events.push_back(event);
        }
    }

    /// The next completion, if there is one.
    pub(crate) fn poll(&mut self) -> Option<Event> {
        self.drive();
        self.events.pop_front()
    }

    fn read(&mut self) -> Option<Event> {
        let (outcome, src) = self.local.poll_from()?;
        Some(match outcome {
            Ok(entry) => self.event(entry, src, None),
            Err(error) => self.event(error.entry, src, Some(error)),
        })
    }

    fn event(&mut self, entry: Entry, src: FiAddr, error: Option<ErrEntry>) -> Event {
        use selvedge::CompletionFlags as Flags;

        let context = entry.context.0;
        let (mut bytes, mut view) = (Vec::new(), None);
        if entry.flags.contains(Flags::LENT) {
            self.posted.remove(&context);
            let lent = self.ep.lending().unwrap().take_lent(entry.buf).unwrap();
            bytes = read(&*lent);
            view = Some(lent);
        } else if entry.flags.contains(Flags::READ) {
            bytes = self.posted.remove(&context).unwrap().into_vec();
        } else if entry.flags.contains(Flags::RECV) {
            bytes = self.posted.remove(&context).unwrap().into_vec();
            let unused = bytes.split_off(entry.len);
            assert!(error.is_some() || unused.iter().all(|&byte| byte == BLANK));
        } else {
            self.sent.remove(&context);
        }
        Event {
            context,
            src,
            tag: entry.tag,
            bytes,
            error,
            view,
        }
    }

    /// Parks until there is a completion, or until the timeout.
    pub(crate) fn park(&mut self, timeout: Option<Duration>) -> Option<Event> {
        let mut entry = [Entry::default()];
        match self.cq().wait(&mut entry, timeout) {
            Ok(_) => Some(self.event(entry[0], FiAddr::UNSPEC, None)),
            Err(Errno::Avail) => self.read(),
            Err(Errno::Again) => None,
            Err(errno) => panic!("{errno}"),
        }
    }

    /// Parks at the queue's descriptor until there is a completion.
    pub(crate) fn park_on_descriptor(&mut self) -> Event {
        loop {
            if let Some(event) = self.poll() {
                return event;
            }
            match self.cq().try_wait() {
                Ok(()) => {
                    let fd = self.cq().wait_fd().unwrap();
                    let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
                    assert_eq!(poll(&mut fds, PollTimeout::NONE), Ok(1));
                }
                Err(errno) => assert_eq!(errno, Errno::Again),
            }
        }
    }

    /// Makes progress until there is a completion.
    #[track_caller]
    pub(crate) fn next(&mut self) -> Event {
        self.next_with(&mut [])
    }

    /// Makes progress on this endpoint and on `others` until there is a completion.
    #[track_caller]
    pub(crate) fn next_with(&mut self, others: &mut [&mut Self]) -> Event {
        until(|| {
            let event = self.poll();
            if event.is_none() {
                others.iter_mut().for_each(|other| other.drive());
            }
            event
        })
    }

    /// Makes progress until `done` holds.
    #[track_caller]
    pub(crate) fn until(&mut self, mut done: impl FnMut(&mut Self) -> bool) {
        until(|| {
            let is_done = done(self);
            if !is_done {
                self.drive();
            }
            is_done.then_some(())
        });
    }

    /// Drops the completions with this context.
    pub(crate) fn forget(&mut self, context: u64) {
        self.drive();
        self.events.retain(|event| event.context != context);
    }

    /// Drops the stored completions.
    pub(crate) fn clear(&mut self) {
        self.drive();
        self.events.clear();
    }

    /// Whether no operation is outstanding, and every completion was read.
    pub(crate) fn is_idle(&self) -> bool {
        self.sent.is_empty() && self.posted.is_empty() && self.events.is_empty()
    }
}

impl From<LocalEndpoint> for NumberedEndpoint {
    fn from(local: LocalEndpoint) -> Self {
        Self {
            local,
            blocks: HashMap::new(),
            sent: HashMap::new(),
            posted: HashMap::new(),
            events: VecDeque::new(),
        }
    }
}

/// The number of a receive that matches every tag.
pub(crate) const ANY: u64 = u64::MAX;

/// The initial bytes of receive buffers.
const BLANK: u8 = 0xee;

/// Returns the bytes of message `number`. No two messages have the same bytes.
pub(crate) fn content(number: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fastrand::Rng::with_seed(number).fill(&mut bytes);
    bytes
}
