//! Two endpoints, and the steps of a test: post, wait, check every field of the completion.

#![expect(unsafe_code, reason = "tests of the raw API")]

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex};

use selvedge::cq::{Entry, ErrEntry};
use selvedge::{
    CompletionFlags, Context, Errno, Error, FiAddr, Hints, Info, Iov, IovMut, Op, OpFlags,
    Registry, Result, SharedReceives, TagMatch, msg,
};
use selvedge_testkit::domain::{DomainContext, EndpointConfig};
use selvedge_testkit::local::{self, EndpointPair, LocalEndpoint, PolledEndpoint, TURNS};
use selvedge_testkit::op;
use selvedge_testkit::random::Random;

/// The provider under test, and the hints that it is opened with.
pub(crate) struct Sut {
    registry: Registry,
    hints: Hints,
}

impl Sut {
    pub(crate) fn new(registry: Registry, provider: &str, hints: &Hints) -> Self {
        Self {
            registry,
            hints: hints.clone().provider(provider),
        }
    }

    pub(crate) fn info(&self) -> Info {
        local::first_info(&self.registry, &self.hints)
    }

    /// The provider's reason for refusing the hints.
    pub(crate) fn refusal(&self) -> String {
        self.registry.infos(&self.hints).unwrap_err().to_string()
    }

    pub(crate) fn open_domain(&self) -> Arc<DomainContext> {
        local::open_domain(&self.info()).unwrap()
    }

    pub(crate) fn endpoint(&self) -> MessageEndpoint {
        self.endpoint_with(|_, _| ())
    }

    pub(crate) fn endpoint_with(
        &self,
        configure: impl Fn(&DomainContext, &mut EndpointConfig),
    ) -> MessageEndpoint {
        MessageEndpoint::open_with(&self.open_domain(), configure)
    }

    pub(crate) fn pair(&self) -> MessagePair {
        self.pair_with(|_, _| ())
    }

    pub(crate) fn pair_with(
        &self,
        configure: impl Fn(&DomainContext, &mut EndpointConfig),
    ) -> MessagePair {
        let [a, b] = [(); 2].map(|()| self.endpoint_with(&configure));
        MessagePair::connect(a, b)
    }
}

pub(crate) type MessagePair = EndpointPair<MessageEndpoint>;

/// An endpoint that keeps the buffers of its posted operations.
pub(crate) struct MessageEndpoint {
    local: LocalEndpoint,
    /// The buffers of sends. They are declared after the endpoint, so that it is closed before they
    /// are freed.
    sent: Mutex<Buffers>,
    received: Mutex<Buffers>,
}

impl Deref for MessageEndpoint {
    type Target = LocalEndpoint;

    fn deref(&self) -> &LocalEndpoint {
        &self.local
    }
}

/// The buffers of outstanding operations, by context.
type Buffers = HashMap<Context, PostedBuffers>;

/// The buffers of the operations with one context. No buffer is freed before the last of these
/// operations completes, because they may complete in another order than they were posted.
#[derive(Default)]
struct PostedBuffers {
    segments: Vec<Vec<Vec<u8>>>,
    /// Whether this is a multi-receive buffer. The entry with [`CompletionFlags::MULTI_RECV`]
    /// releases it.
    is_multi: bool,
    done: usize,
}

impl PostedBuffers {
    /// Returns the part of the multi-receive buffer that the entry names.
    fn part(&self, entry: &Entry) -> Vec<u8> {
        if entry.buf == 0 {
            return Vec::new();
        }
        let whole = &self.segments[self.done][0];
        let from = entry.buf - whole.as_ptr().addr();
        whole[from..from + entry.len].to_vec()
    }
}

impl PolledEndpoint for MessageEndpoint {
    type Completion = Done;

    fn local(&self) -> &LocalEndpoint {
        &self.local
    }

    fn poll(&self) -> Option<Done> {
        let (outcome, src) = self.local.poll_from()?;
        Some(self.done(outcome, src))
    }
}

impl MessageEndpoint {
    pub(crate) fn open(context: &Arc<DomainContext>) -> Self {
        Self::open_with(context, |_, _| ())
    }

    pub(crate) fn open_with(
        context: &Arc<DomainContext>,
        configure: impl FnOnce(&DomainContext, &mut EndpointConfig),
    ) -> Self {
        Self::try_open(context, configure).unwrap()
    }

    pub(crate) fn try_open(
        context: &Arc<DomainContext>,
        configure: impl FnOnce(&DomainContext, &mut EndpointConfig),
    ) -> Result<Self, Error> {
        Ok(Self {
            local: LocalEndpoint::try_open(context, configure)?,
            sent: Mutex::default(),
            received: Mutex::default(),
        })
    }

    /// Posts a send of a copy of the bytes.
    pub(crate) fn try_send(&self, tx: &Tx) -> Result {
        let segments = tx.segments.clone();
        let iov: Vec<_> = segments.iter().map(|segment| Iov::new(segment)).collect();
        let context = keep(&self.sent, tx.context, segments);
        let msg = msg::SendMsg {
            iov: &iov,
            desc: &[],
            dest: tx.dest,
            context,
            data: tx.data.unwrap_or(0xdead),
        };
        let flags = op::with_data(tx.flags, tx.data);
        // SAFETY: `sent` keeps the buffers until the completion or the endpoint's close.
        let posted = unsafe { op::send(msg, tx.tag).post(&*self.ep, flags) };
        posted.inspect_err(|_| remove_refused(&self.sent, context))
    }

    /// Posts a receive into new buffers.
    pub(crate) fn try_recv(&self, rx: &Rx) -> Result {
        // SAFETY: `post_receive` keeps the buffers.
        self.post_receive(rx, |op| unsafe { op.post(&*self.ep, rx.flags) })
    }

    /// As [`Self::try_recv`], but posts at a receive context that several endpoints share. This
    /// endpoint keeps the buffers.
    pub(crate) fn try_recv_at(&self, srx: &dyn SharedReceives, rx: &Rx) -> Result {
        // SAFETY: as above.
        self.post_receive(rx, |op| unsafe { op.post_shared(srx, rx.flags) })
    }

    /// Passes a receive to `post`. `received` keeps its buffers until the completion or the
    /// endpoint's close.
    fn post_receive(&self, rx: &Rx, post: impl FnOnce(&Op<'_>) -> Result) -> Result {
        let mut segments: Vec<_> = rx.sizes.iter().map(|&size| vec![BLANK; size]).collect();
        let iov: Vec<_> = segments
            .iter_mut()
            .map(|segment| IovMut::new(segment))
            .collect();
        let context = keep(&self.received, rx.context, segments);
        if rx.flags.contains(OpFlags::MULTI_RECV) {
            let mut received = self.received.lock().unwrap();
            received.entry(context).or_default().is_multi = true;
        }
        let msg = msg::RecvMsg {
            iov: &iov,
            desc: &[],
            src: rx.src,
            context,
        };
        post(&op::recv(msg, rx.tag)).inspect_err(|_| remove_refused(&self.received, context))
    }

    pub(crate) fn send(&self, tx: &Tx) {
        self.try_send(tx).unwrap();
    }

    pub(crate) fn recv(&self, rx: &Rx) {
        self.try_recv(rx).unwrap();
    }

    /// Posts a send, and progresses `others` while there is no room for it.
    #[track_caller]
    pub(crate) fn send_retrying(&self, tx: &Tx, others: &[&LocalEndpoint]) {
        self.local.post_retrying(others, || self.try_send(tx));
    }

    /// Injects, and progresses `others` while there is no room for it.
    #[track_caller]
    pub(crate) fn inject_retrying(&self, tx: &Tx, others: &[&LocalEndpoint]) {
        let bytes = tx.segments.concat();
        let inject = op::inject(&bytes, tx.dest, tx.tag, tx.data);
        // SAFETY: an injected operation has no safety requirement.
        let post = || unsafe { inject.post(&*self.ep, OpFlags::DEFAULT) };
        self.local.post_retrying(others, post);
    }

    /// The next completion, if there is one.
    pub(crate) fn poll(&self) -> Option<Done> {
        PolledEndpoint::poll(self)
    }

    /// The completions of one read, at most `max`.
    pub(crate) fn take(&self, max: usize) -> Vec<Done> {
        let (mut out, mut src) = (vec![Entry::default(); max], vec![FiAddr(4711); max]);
        match self.cq().read_from(&mut out, &mut src) {
            Ok(count) => (0..count)
                .map(|index| self.done(Ok(out[index]), src[index]))
                .collect(),
            Err(Errno::Avail) => Vec::from_iter(self.poll()),
            Err(errno) => panic!("reading completions: {errno}"),
        }
    }

    /// Progresses this endpoint and the others until this one has a completion.
    #[track_caller]
    pub(crate) fn wait(&self, others: &[&LocalEndpoint]) -> Done {
        PolledEndpoint::wait(self, others)
    }

    /// All completions that follow without further posts.
    pub(crate) fn drain(&self, others: &[&LocalEndpoint]) -> Vec<Done> {
        let mut all = Vec::new();
        let mut silence = 0;
        while silence < TURNS {
            others.iter().for_each(|other| other.progress());
            silence += 1;
            while let Some(done) = self.poll() {
                all.push(done);
                silence = 0;
            }
        }
        all
    }

    fn done(&self, outcome: Result<Entry, ErrEntry>, src: FiAddr) -> Done {
        let entry = *entry_of(&outcome);
        let bytes = if entry.flags.contains(CompletionFlags::SEND) {
            end(&self.sent, &entry, false)
        } else {
            end(&self.received, &entry, true)
        };
        Done {
            outcome,
            src,
            bytes,
        }
    }
}

fn keep(buffers: &Mutex<Buffers>, context: u64, segments: Vec<Vec<u8>>) -> Context {
    let context = Context(context);
    let mut buffers = buffers.lock().unwrap();
    buffers.entry(context).or_default().segments.push(segments);
    context
}

/// Removes the buffers of a refused post.
fn remove_refused(buffers: &Mutex<Buffers>, context: Context) {
    let mut buffers = buffers.lock().unwrap();
    let kept = buffers
        .get_mut(&context)
        .expect("a refused post has kept its buffers");
    kept.segments.pop();
    if kept.segments.len() == kept.done {
        buffers.remove(&context);
    }
}

/// Ends the oldest operation of this context. Returns a copy of its bytes, if `wanted`.
fn end(buffers: &Mutex<Buffers>, entry: &Entry, wanted: bool) -> Vec<u8> {
    let context = entry.context;
    let mut buffers = buffers.lock().unwrap();
    let kept = buffers.get_mut(&context);
    let kept = kept.expect("a completion without a posted operation");
    let bytes = if !wanted {
        Vec::new()
    } else if kept.is_multi {
        kept.part(entry)
    } else {
        kept.segments[kept.done].concat()
    };
    if kept.is_multi && !entry.flags.contains(CompletionFlags::MULTI_RECV) {
        return bytes;
    }
    kept.done += 1;
    if kept.segments.len() == kept.done {
        buffers.remove(&context);
    }
    bytes
}

/// A completion or an error, with the bytes of a receive.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) outcome: Result<Entry, ErrEntry>,
    pub(crate) src: FiAddr,
    pub(crate) bytes: Vec<u8>,
}

impl Done {
    pub(crate) fn entry(&self) -> &Entry {
        entry_of(&self.outcome)
    }

    pub(crate) fn context(&self) -> u64 {
        self.entry().context.0
    }

    /// The error. Panics for a success.
    pub(crate) fn error(&self) -> &ErrEntry {
        self.outcome
            .as_ref()
            .expect_err("the operation has succeeded")
    }

    /// Asserts that the operation has succeeded with exactly this entry.
    #[track_caller]
    pub(crate) fn assert_entry(&self, expected: Entry) {
        assert_eq!(
            self.outcome.as_ref().expect("the operation has failed"),
            &expected
        );
    }

    /// Asserts a receive of exactly these bytes, with the rest of the buffer unchanged.
    #[track_caller]
    pub(crate) fn assert_bytes(&self, expected: &[u8]) {
        let (bytes, rest) = self.bytes.split_at(expected.len());
        assert!(bytes == expected, "{} bytes differ", expected.len());
        assert!(
            rest == vec![BLANK; rest.len()],
            "bytes behind the message were changed"
        );
    }
}

fn entry_of(outcome: &Result<Entry, ErrEntry>) -> &Entry {
    match outcome {
        Ok(entry) => entry,
        Err(error) => &error.entry,
    }
}

/// A send: untagged if `tag` is `None`.
#[derive(Clone, Debug)]
pub(crate) struct Tx {
    pub(crate) dest: FiAddr,
    pub(crate) tag: Option<u64>,
    pub(crate) data: Option<u64>,
    pub(crate) context: u64,
    pub(crate) flags: OpFlags,
    pub(crate) segments: Vec<Vec<u8>>,
}

impl Tx {
    pub(crate) fn msg(dest: FiAddr, bytes: &[u8]) -> Self {
        Self {
            dest,
            tag: None,
            data: None,
            context: 0,
            flags: OpFlags::DEFAULT,
            segments: vec![bytes.to_vec()],
        }
    }

    pub(crate) fn tagged(dest: FiAddr, tag: u64, bytes: &[u8]) -> Self {
        Self {
            tag: Some(tag),
            ..Self::msg(dest, bytes)
        }
    }

    pub(crate) fn context(mut self, context: u64) -> Self {
        self.context = context;
        self
    }

    pub(crate) fn data(mut self, data: u64) -> Self {
        self.data = Some(data);
        self
    }

    /// Sets the flags of the operation, in place of the endpoint's default flags.
    pub(crate) fn flags(mut self, flags: OpFlags) -> Self {
        self.flags = flags;
        self
    }

    /// Splits the bytes into segments of these sizes and one of the rest.
    pub(crate) fn cut(mut self, sizes: &[usize]) -> Self {
        let mut rest = self.segments.concat();
        self.segments = sizes
            .iter()
            .map(|&size| rest.drain(..size.min(rest.len())).collect())
            .collect();
        self.segments.push(rest);
        self
    }
}

/// A receive: untagged if `tag` is `None`.
#[derive(Clone, Debug)]
pub(crate) struct Rx {
    pub(crate) src: FiAddr,
    pub(crate) tag: Option<TagMatch>,
    pub(crate) context: u64,
    pub(crate) flags: OpFlags,
    pub(crate) sizes: Vec<usize>,
}

impl Rx {
    pub(crate) fn msg(size: usize) -> Self {
        Self {
            src: FiAddr::UNSPEC,
            tag: None,
            context: 0,
            flags: OpFlags::DEFAULT,
            sizes: vec![size],
        }
    }

    pub(crate) fn tagged(tag: impl Into<TagMatch>, size: usize) -> Self {
        Self {
            tag: Some(tag.into()),
            ..Self::msg(size)
        }
    }

    pub(crate) fn from(mut self, src: FiAddr) -> Self {
        self.src = src;
        self
    }

    pub(crate) fn context(mut self, context: u64) -> Self {
        self.context = context;
        self
    }

    /// Sets the flags of the operation, in place of the endpoint's default flags.
    pub(crate) fn flags(mut self, flags: OpFlags) -> Self {
        self.flags = flags;
        self
    }

    /// Splits the buffer into segments of these sizes and one of the rest.
    pub(crate) fn cut(mut self, sizes: &[usize]) -> Self {
        let mut rest: usize = self.sizes.iter().sum();
        self.sizes.clear();
        for size in sizes {
            self.sizes.push(rest.min(*size));
            rest -= rest.min(*size);
        }
        self.sizes.push(rest);
        self
    }
}

/// The entry of a send.
pub(crate) fn sent(kind: CompletionFlags, context: u64) -> Entry {
    Entry {
        context: Context(context),
        flags: CompletionFlags::SEND | kind,
        ..Entry::default()
    }
}

/// The entry of a receive without data.
pub(crate) fn received(kind: CompletionFlags, context: u64, len: usize, tag: u64) -> Entry {
    Entry {
        context: Context(context),
        flags: CompletionFlags::RECV | kind,
        len,
        tag,
        ..Entry::default()
    }
}

/// An entry with remote data.
pub(crate) fn with_data(mut entry: Entry, data: u64) -> Entry {
    entry.flags |= CompletionFlags::REMOTE_CQ_DATA;
    entry.data = data;
    entry
}

/// `len` bytes that differ from those of other seeds.
pub(crate) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    let block: Vec<u8> = (0..PERIOD).map(|_| random.word() as u8).collect();
    let mut bytes = Vec::with_capacity(len + PERIOD);
    while bytes.len() < len {
        bytes.extend_from_slice(&block);
    }
    bytes.truncate(len);
    bytes
}

/// The initial byte of receive buffers.
const BLANK: u8 = 0xa5;

/// The number of bytes after which a pattern repeats: a prime, so that no two pages or segments of
/// a pattern are the same.
const PERIOD: usize = 1009;
