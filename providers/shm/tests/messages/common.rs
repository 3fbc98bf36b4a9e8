//! Two endpoints, and the steps of a test: post, wait, check every field of the completion.

#![expect(unsafe_code, reason = "tests of the raw API")]

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use selvedge::cq::{Entry, ErrEntry};
use selvedge::{
    AddressVector, Bindings, CompletionFlags, CompletionQueue, Context, Domain, Endpoint, Errno,
    FiAddr, Hints, Info, Iov, IovMut, Msg, OpFlags, Registry, Result, TagMatch, Tagged, av, cq,
    msg, tagged,
};

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
        self.registry.infos(&self.hints).unwrap().remove(0)
    }

    /// The provider's reason for refusing the hints.
    pub(crate) fn refusal(&self) -> String {
        self.registry.infos(&self.hints).unwrap_err().to_string()
    }

    pub(crate) fn side(&self) -> Side {
        self.side_with(&Queue::default())
    }

    pub(crate) fn side_with(&self, queue: &Queue) -> Side {
        let info = self.info();
        Side::open(&info.open().unwrap(), &info, queue)
    }

    pub(crate) fn pair(&self) -> Pair {
        self.pair_with(&Queue::default())
    }

    pub(crate) fn pair_with(&self, queue: &Queue) -> Pair {
        Pair::connect(self.side_with(queue), self.side_with(queue))
    }
}

/// The options of a side's completion queue and of the bindings to it. The defaults are 0 and
/// `false`.
#[derive(Clone, Copy, Default)]
pub(crate) struct Queue {
    pub(crate) size: usize,
    pub(crate) tx_selective: bool,
    pub(crate) rx_selective: bool,
}

/// Two sides, each with the address of the other in its address vector, at different indices.
pub(crate) struct Pair {
    pub(crate) a: Side,
    pub(crate) b: Side,
    /// The address of `b` in `a`'s address vector.
    pub(crate) to_b: FiAddr,
    /// The address of `a` in `b`'s address vector.
    pub(crate) to_a: FiAddr,
}

impl Pair {
    pub(crate) fn connect(a: Side, b: Side) -> Self {
        let to_b = a.insert_endpoint(&b);
        b.insert_endpoint(&b);
        let to_a = b.insert_endpoint(&a);
        Self { a, b, to_b, to_a }
    }

    /// Waits for a completion of `a`.
    pub(crate) fn wait_at_a(&self) -> Done {
        self.a.wait(&[&self.b])
    }

    /// Waits for a completion of `b`.
    pub(crate) fn wait_at_b(&self) -> Done {
        self.b.wait(&[&self.a])
    }

    /// Progresses both sides until nothing more is likely to move.
    pub(crate) fn settle(&self) {
        settle(&[&self.a, &self.b]);
    }

    /// Asserts that nothing more completes.
    pub(crate) fn assert_no_completion(&self) {
        self.settle();
        for side in [&self.a, &self.b] {
            assert!(side.poll().is_none(), "an unexpected completion");
        }
    }
}

/// Progresses the sides until nothing more is likely to move.
pub(crate) fn settle(sides: &[&Side]) {
    for _ in 0..TURNS {
        for side in sides {
            side.progress();
        }
    }
}

/// An endpoint with its queue and address vector, and the buffers of its posted operations.
pub(crate) struct Side {
    pub(crate) ep: Arc<dyn Endpoint>,
    pub(crate) cq: Arc<dyn CompletionQueue>,
    pub(crate) av: Arc<dyn AddressVector>,
    /// The buffers of sends. They are declared after the endpoint, so that it is closed before they
    /// are freed.
    sent: Mutex<Buffers>,
    received: Mutex<Buffers>,
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

impl Side {
    pub(crate) fn open(domain: &Arc<dyn Domain>, info: &Info, queue: &Queue) -> Self {
        let cq = domain.cq(&cq::Attr::with_size(queue.size)).unwrap();
        let av = domain.av(&av::Attr::default()).unwrap();
        let mut bind = Bindings::new(Arc::clone(&cq), Arc::clone(&av));
        bind.tx_selective = queue.tx_selective;
        bind.rx_selective = queue.rx_selective;
        Self::from_handles(domain.endpoint(info, bind).unwrap(), &cq, &av)
    }

    pub(crate) fn from_handles(
        ep: Arc<dyn Endpoint>,
        cq: &Arc<dyn CompletionQueue>,
        av: &Arc<dyn AddressVector>,
    ) -> Self {
        Self {
            ep,
            cq: Arc::clone(cq),
            av: Arc::clone(av),
            sent: Mutex::default(),
            received: Mutex::default(),
        }
    }

    pub(crate) fn insert_endpoint(&self, other: &Self) -> FiAddr {
        self.av.insert_one(&other.ep.address().unwrap()).unwrap()
    }

    /// Posts a send of a copy of the bytes.
    pub(crate) fn try_send(&self, tx: &Tx) -> Result {
        let segments = tx.segments.clone();
        let iov: Vec<_> = segments.iter().map(|segment| Iov::new(segment)).collect();
        let context = keep(&self.sent, tx.context, segments);
        let flags = match tx.data {
            Some(_) => tx.flags | OpFlags::REMOTE_CQ_DATA,
            None => tx.flags,
        };
        let data = tx.data.unwrap_or(0xdead);
        let posted = match tx.tag {
            None => {
                let msg = msg::SendMsg {
                    iov: &iov,
                    desc: &[],
                    dest: tx.dest,
                    context,
                    data,
                };
                // SAFETY: `sent` keeps the buffers until the completion or the endpoint's close.
                unsafe { self.ep.sendmsg(&msg, flags) }
            }
            Some(tag) => {
                let msg = tagged::SendMsg {
                    iov: &iov,
                    desc: &[],
                    dest: tx.dest,
                    tag,
                    context,
                    data,
                };
                // SAFETY: as above.
                unsafe { self.ep.tsendmsg(&msg, flags) }
            }
        };
        posted.inspect_err(|_| remove_refused(&self.sent, context))
    }

    /// Posts a receive into new buffers.
    pub(crate) fn try_recv(&self, rx: &Rx) -> Result {
        self.try_recv_at(&*self.ep, rx)
    }

    /// As [`Self::try_recv`], but posts at `receiver`, a receive context that several endpoints
    /// share. This side keeps the buffers.
    pub(crate) fn try_recv_at(&self, receiver: &(impl Msg + Tagged + ?Sized), rx: &Rx) -> Result {
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
        let posted = match rx.tag {
            None => {
                let msg = msg::RecvMsg {
                    iov: &iov,
                    desc: &[],
                    src: rx.src,
                    context,
                };
                // SAFETY: `received` keeps the buffers until the completion or the endpoint's
                // close.
                unsafe { receiver.recvmsg(&msg, rx.flags) }
            }
            Some(tag) => {
                let msg = tagged::RecvMsg {
                    iov: &iov,
                    desc: &[],
                    src: rx.src,
                    tag,
                    context,
                };
                // SAFETY: as above.
                unsafe { receiver.trecvmsg(&msg, rx.flags) }
            }
        };
        posted.inspect_err(|_| remove_refused(&self.received, context))
    }

    pub(crate) fn send(&self, tx: &Tx) {
        self.try_send(tx).unwrap();
    }

    pub(crate) fn recv(&self, rx: &Rx) {
        self.try_recv(rx).unwrap();
    }

    /// Posts a send, and progresses `others` while there is no room for it.
    pub(crate) fn send_retrying(&self, tx: &Tx, others: &[&Self]) {
        let start = Instant::now();
        while self.try_send(tx) == Err(Errno::Again) {
            assert!(start.elapsed() < TIMEOUT, "no room for a send");
            self.progress();
            others.iter().for_each(|other| other.progress());
        }
    }

    /// Injects, and progresses `others` while there is no room for it.
    pub(crate) fn inject_retrying(&self, tx: &Tx, others: &[&Self]) {
        let (bytes, start) = (tx.segments.concat(), Instant::now());
        let inject = || match tx.tag {
            None => self.ep.inject(&bytes, tx.dest, tx.data),
            Some(tag) => self.ep.tinject(&bytes, tx.dest, tag, tx.data),
        };
        while let Err(errno) = inject() {
            assert_eq!(errno, Errno::Again);
            assert!(start.elapsed() < TIMEOUT, "no room for an inject");
            self.progress();
            others.iter().for_each(|other| other.progress());
        }
    }

    pub(crate) fn progress(&self) {
        // A pending error entry does not matter for progress.
        let (Ok(_) | Err(Errno::Avail)) = self.cq.read(&mut []) else {
            panic!("progress failed");
        };
    }

    /// The next completion, if there is one.
    pub(crate) fn poll(&self) -> Option<Done> {
        let (mut out, mut src) = ([Entry::default()], [FiAddr(4711)]);
        match self.cq.read_from(&mut out, &mut src) {
            Ok(0) => None,
            Ok(_) => Some(self.done(Ok(out[0]), src[0])),
            Err(Errno::Avail) => {
                let error = self.cq.read_err().unwrap();
                let src = error.src;
                Some(self.done(Err(error), src))
            }
            Err(errno) => panic!("reading completions: {errno}"),
        }
    }

    /// The completions of one read, at most `max`.
    pub(crate) fn take(&self, max: usize) -> Vec<Done> {
        let (mut out, mut src) = (vec![Entry::default(); max], vec![FiAddr(4711); max]);
        match self.cq.read_from(&mut out, &mut src) {
            Ok(count) => (0..count)
                .map(|index| self.done(Ok(out[index]), src[index]))
                .collect(),
            Err(Errno::Avail) => Vec::from_iter(self.poll()),
            Err(errno) => panic!("reading completions: {errno}"),
        }
    }

    /// Progresses this side and the others until this one has a completion.
    pub(crate) fn wait(&self, others: &[&Self]) -> Done {
        let start = Instant::now();
        loop {
            if let Some(done) = self.poll() {
                return done;
            }
            others.iter().for_each(|other| other.progress());
            assert!(start.elapsed() < TIMEOUT, "no completion");
        }
    }

    /// All completions that follow without further posts.
    pub(crate) fn drain(&self, others: &[&Self]) -> Vec<Done> {
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
        let bytes = match entry.flags.contains(CompletionFlags::SEND) {
            true => end(&self.sent, &entry, false),
            false => end(&self.received, &entry, true),
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
    let bytes = match wanted {
        true if kept.is_multi => kept.part(entry),
        true => kept.segments[kept.done].concat(),
        false => Vec::new(),
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
    let block: Vec<u8> = (0..PERIOD).map(|_| random.next() as u8).collect();
    let mut bytes = Vec::with_capacity(len + PERIOD);
    while bytes.len() < len {
        bytes.extend_from_slice(&block);
    }
    bytes.truncate(len);
    bytes
}

/// Random numbers that are the same in each run.
#[derive(Clone)]
pub(crate) struct Random(fastrand::Rng);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.u64(..)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0.usize(..limit)
    }

    pub(crate) fn pick<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())]
    }
}

/// The initial byte of receive buffers.
const BLANK: u8 = 0xa5;

/// The number of bytes after which a pattern repeats: a prime, so that no two pages or segments of
/// a pattern are the same.
const PERIOD: usize = 1009;

/// Turns of progress after which nothing more is likely to move.
const TURNS: usize = 1000;

/// A test that hangs fails after this time.
const TIMEOUT: Duration = Duration::from_secs(20);
