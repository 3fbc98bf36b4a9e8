//! The traits of the contract, with buffers between canaries.
//!
//! Every receive has its room in the middle of a buffer whose other bytes must stay what they are,
//! and bytes behind a message must stay, too. A buffer that was sent is overwritten as soon as its
//! completion is read: whoever reads it later than it may does not read the right bytes.

#![expect(unsafe_code, reason = "tests of the raw API")]

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{anyhow, bail, ensure};
use selvedge::atomic::{AtomicMsg, Ioc, IocMut, RmaIoc};
use selvedge::cq::{Entry, ErrEntry};
use selvedge::op::{Compared, Fetched};
use selvedge::rma::{ReadMsg, RmaIov, WriteMsg};
use selvedge::trigger::{self, Action, WorkId};
use selvedge::{
    Address, AddressVector, CompletionFlags, CompletionQueue, Context, Counter, Domain, Endpoint,
    EpOption, Errno, FiAddr, Iov, IovMut, Op, OpFlags, SharedReceives, msg,
};

use super::api::EndpointApi;
use super::post::{Atomic, Completion, Failure, Post, Read, Rx, RxKind, Tx, Write};
use crate::op;

/// An endpoint with its queue, and the buffers of what was posted. Dropped from the top down: the
/// endpoint before the buffers.
#[derive(Debug)]
pub struct RawEndpoint {
    pub ep: Arc<dyn Endpoint>,
    pub cq: Arc<dyn CompletionQueue>,
    pub av: Option<Arc<dyn AddressVector>>,
    /// Where receives are posted, if not at the endpoint.
    srx: Option<Arc<dyn SharedReceives>>,
    lent: BTreeMap<u64, Lent>,
    /// When the next post is to be carried out, if not at once; then, how its work is called.
    when: Option<Trigger>,
    ticket: Option<WorkId>,
    allows_torn_receives: bool,
}

/// When a post is carried out that waits.
#[derive(Clone, Debug)]
pub struct Trigger {
    pub domain: Arc<dyn Domain>,
    pub cntr: Arc<dyn Counter>,
    pub threshold: u64,
    pub notify: Notify,
}

/// Where the completion of deferred work is reported.
#[derive(Clone, Debug)]
pub enum Notify {
    Endpoint,
    Counter(Option<Arc<dyn Counter>>),
}

/// What an operation uses until it is over.
#[derive(Debug)]
enum Lent {
    /// Bytes that are sent or written, and those that are compared with.
    Out(Vec<Vec<u8>>),
    /// Room for what is received.
    In(Room),
    /// Room for what is fetched, and the operands of an atomic.
    Fetched { room: Room, _operands: [Vec<u8>; 2] },
}

/// A buffer between canaries.
#[derive(Debug)]
struct Room {
    whole: Vec<u8>,
    len: usize,
    kind: RxKind,
}

/// Queues work of a counter.
///
/// # Errors
/// The domain's.
pub fn queue_count(domain: &dyn Domain, work: &trigger::Work<'_>) -> anyhow::Result<WorkId> {
    let is_post = matches!(work.action, Action::Post { .. });
    ensure!(!is_post, "{work:?} is about memory");
    // SAFETY: a counter is no memory.
    Ok(unsafe { domain.queue_work(work) }?)
}

impl RawEndpoint {
    pub fn new(
        ep: Arc<dyn Endpoint>,
        cq: Arc<dyn CompletionQueue>,
        av: Option<Arc<dyn AddressVector>>,
    ) -> Self {
        Self {
            ep,
            cq,
            av,
            srx: None,
            lent: BTreeMap::new(),
            when: None,
            ticket: None,
            allows_torn_receives: false,
        }
    }

    /// Has buffers unchecked whose operation fails because the peer is gone: a peer that was killed
    /// leaves a part of its message there.
    #[must_use]
    pub fn allow_torn_receives(mut self) -> Self {
        self.allows_torn_receives = true;
        self
    }

    /// Posts, now or when it is time.
    ///
    /// # Safety
    /// As the post.
    unsafe fn issue(&mut self, op: &Op<'_>, flags: OpFlags) -> Result<(), Errno> {
        let Some(when) = self.when.take() else {
            let is_receive = matches!(op, Op::Recv(_) | Op::TaggedRecv(_));
            return match &self.srx {
                // SAFETY: passed on from the caller.
                Some(srx) if is_receive => unsafe { op.post_shared(&**srx, flags) },
                // SAFETY: passed on from the caller.
                _ => unsafe { op.post(&*self.ep, flags) },
            };
        };
        let (done, flags) = match &when.notify {
            Notify::Endpoint => (trigger::CompletionTarget::Endpoint, flags),
            Notify::Counter(cntr) => {
                let done = trigger::CompletionTarget::Counter(cntr.as_ref());
                (done, flags.difference(OpFlags::DEFAULT))
            }
        };
        let action = Action::Post {
            ep: &self.ep,
            op: *op,
            flags,
            done,
        };
        let (cntr, threshold) = (&when.cntr, when.threshold);
        let work = trigger::Work {
            cntr,
            threshold,
            action,
        };
        // SAFETY: passed on from the caller.
        let ticket = unsafe { when.domain.queue_work(&work) };
        self.ticket = Some(ticket.map_err(|error| error.errno())?);
        Ok(())
    }

    /// What the next completion says of its operation, which must be outstanding.
    fn done(
        &mut self,
        entry: Entry,
        src: FiAddr,
        error: Option<ErrEntry>,
    ) -> anyhow::Result<Completion> {
        let context = entry.context.0;
        let is_released = error.is_some() || entry.flags.contains(CompletionFlags::MULTI_RECV);
        let mut bytes = Vec::new();
        let by_a_peer = CompletionFlags::REMOTE_READ | CompletionFlags::REMOTE_WRITE;
        if !entry.flags.intersects(by_a_peer) {
            let is_torn = self.allows_torn_receives
                && error
                    .as_ref()
                    .is_some_and(|error| error.errno == Errno::ConnReset);
            let lent = self.lent.remove(&context);
            let is_receive = entry.flags.contains(CompletionFlags::RECV);
            if let Some(lent) = &lent {
                let is_right = is_receive == matches!(lent, Lent::In(_));
                ensure!(is_right, "{entry:?} completes {lent:?}: {error:?}");
            }
            bytes = match lent {
                Some(Lent::Out(mut sent)) => {
                    sent.iter_mut().for_each(|bytes| bytes.fill(POISON));
                    Vec::new()
                }
                Some(Lent::In(room)) if room.kind == RxKind::Multi => {
                    let bytes = room.part(&entry)?;
                    if !is_released {
                        self.lent.insert(context, Lent::In(room));
                    }
                    bytes
                }
                Some(Lent::In(_) | Lent::Fetched { .. }) if is_torn => Vec::new(),
                Some(Lent::In(room) | Lent::Fetched { room, .. }) => {
                    room.taken(&entry, error.as_ref())?
                }
                // An inject has no context; that its peer is gone is reported all the same.
                None if error.is_some() && context == 0 => Vec::new(),
                None => bail!("{entry:?} completes nothing that is outstanding"),
            };
        }
        Ok(Completion {
            context,
            flags: entry.flags,
            len: entry.len,
            tag: entry.tag,
            data: entry
                .flags
                .contains(CompletionFlags::REMOTE_CQ_DATA)
                .then_some(entry.data),
            src,
            bytes,
            error: error.map(|error| Failure {
                sender: error.sender(),
                errno: error.errno,
                olen: error.olen,
                detail: error.detail,
            }),
        })
    }

    fn send(&mut self, context: u64, tx: &mut Tx) -> Result<(), Errno> {
        if tx.is_injected {
            return self.inject(&op::inject(&tx.bytes, tx.to, tx.tag, tx.data));
        }
        let segments = cut(std::mem::take(&mut tx.bytes), &tx.segments);
        let iov: Vec<_> = segments.iter().map(|segment| Iov::new(segment)).collect();
        let msg = msg::SendMsg {
            iov: &iov,
            desc: &[],
            dest: tx.to,
            context: Context(context),
            data: tx.data.unwrap_or(NO_DATA),
        };
        let flags = op::with_data(tx.flags.unwrap_or(OpFlags::DEFAULT), tx.data);
        // SAFETY: `lent` keeps the segments until the completion or the endpoint's end, and nobody
        // writes to them there; a post that fails has kept nothing.
        let posted = unsafe { self.issue(&op::send(msg, tx.tag), flags) };
        self.lend_out(context, posted, segments, &mut tx.bytes)
    }

    fn recv(&mut self, context: u64, rx: &Rx) -> Result<(), Errno> {
        let mut room = Room::new(rx.room, rx.kind);
        let iov = room.iov(&rx.segments);
        let flags = rx.flags.unwrap_or(OpFlags::DEFAULT)
            | match rx.kind {
                RxKind::Plain => OpFlags::empty(),
                RxKind::Multi => OpFlags::MULTI_RECV,
                RxKind::Peek => OpFlags::PEEK,
                RxKind::Discard => OpFlags::PEEK | OpFlags::DISCARD,
            };
        let msg = msg::RecvMsg {
            iov: &iov,
            desc: &[],
            src: rx.from,
            context: Context(context),
        };
        // SAFETY: `lent` keeps the room until the completion or the endpoint's end.
        let posted = unsafe { self.issue(&op::recv(msg, rx.tag), flags) };
        posted.inspect(|()| self.lend(context, Lent::In(room)))
    }

    /// Posts what is copied at once.
    fn inject(&mut self, op: &Op<'_>) -> Result<(), Errno> {
        // SAFETY: an injected operation needs no promise.
        unsafe { self.issue(op, OpFlags::DEFAULT) }
    }

    fn write(&mut self, context: u64, write: &mut Write) -> Result<(), Errno> {
        let to = write.to;
        if write.is_injected {
            return self.inject(&Op::InjectWrite {
                buf: &write.bytes,
                dest: to.peer,
                addr: to.addr,
                key: to.key,
                data: write.data,
            });
        }
        let whole = [to.iov(write.bytes.len())];
        let segments = cut(std::mem::take(&mut write.bytes), &write.segments);
        let iov: Vec<_> = segments.iter().map(|segment| Iov::new(segment)).collect();
        let msg = WriteMsg {
            iov: &iov,
            desc: &[],
            dest: to.peer,
            rma_iov: or_whole(&write.rma_iov, &whole),
            context: Context(context),
            data: write.data.unwrap_or(NO_DATA),
        };
        let flags = op::with_data(write.flags.unwrap_or(OpFlags::DEFAULT), write.data);
        // SAFETY: `lent` keeps the segments until the completion or the endpoint's end.
        let posted = unsafe { self.issue(&Op::Write(msg), flags) };
        self.lend_out(context, posted, segments, &mut write.bytes)
    }

    fn read(&mut self, context: u64, read: &Read) -> Result<(), Errno> {
        let mut room = Room::new(read.len, RxKind::Plain);
        let (iov, whole) = (room.iov(&read.segments), [read.from.iov(read.len)]);
        let msg = ReadMsg {
            iov: &iov,
            desc: &[],
            src: read.from.peer,
            rma_iov: or_whole(&read.rma_iov, &whole),
            context: Context(context),
        };
        let flags = read.flags.unwrap_or(OpFlags::DEFAULT);
        // SAFETY: `lent` keeps the room until the completion or the endpoint's end.
        let posted = unsafe { self.issue(&Op::Read(msg), flags) };
        posted.inspect(|()| self.lend_room(context, room, Default::default()))
    }

    fn atomic(&mut self, context: u64, atomic: &Atomic) -> Result<(), Errno> {
        if atomic.is_injected {
            let (buf, target) = (&atomic.operand[..], atomic.target());
            return self.inject(&Op::InjectAtomic { buf, target });
        }
        let Atomic {
            datatype,
            op,
            target,
            ..
        } = *atomic;
        let (operand, compare) = (atomic.operand.clone(), atomic.compare.clone());
        let mut room = Room::new(atomic.result, RxKind::Plain);
        let ioc =
            |bytes: &[u8]| Ioc::from_raw(bytes.as_ptr().cast(), bytes.len() / datatype.size());
        let (iov, compare_iov) = ([ioc(&operand)], [ioc(&compare)]);
        let count = (operand.len().max(atomic.result)) / datatype.size();
        let msg = AtomicMsg {
            iov: if operand.is_empty() { &[] } else { &iov },
            desc: &[],
            dest: target.peer,
            rma_iov: &[RmaIoc {
                addr: target.addr,
                count,
                key: target.key,
            }],
            datatype,
            op,
            context: Context(context),
            data: 0,
        };
        let base = room.iov(&[])[0].base;
        let result = [IocMut::from_raw(base, atomic.result / datatype.size())];
        let compared = Compared {
            iov: &compare_iov,
            desc: &[],
        };
        let fetched = Fetched {
            iov: &result,
            desc: &[],
        };
        let op = op::atomic(atomic.family, msg, compared, fetched);
        let flags = atomic.flags.unwrap_or(OpFlags::DEFAULT);
        // SAFETY: `lent` keeps the operands and the room of the result until the completion or the
        // endpoint's end.
        let posted = unsafe { self.issue(&op, flags) };
        posted.inspect(|()| self.lend_room(context, room, [operand, compare]))
    }

    fn lend_room(&mut self, context: u64, room: Room, operands: [Vec<u8>; 2]) {
        let lent = Lent::Fetched {
            room,
            _operands: operands,
        };
        self.lend(context, lent);
    }

    /// Keeps the segments of what was posted, or puts them back into the post.
    fn lend_out(
        &mut self,
        context: u64,
        posted: Result<(), Errno>,
        segments: Vec<Vec<u8>>,
        bytes: &mut Vec<u8>,
    ) -> Result<(), Errno> {
        match posted {
            Ok(()) => self.lend(context, Lent::Out(segments)),
            Err(_) => *bytes = segments.concat(),
        }
        posted
    }

    fn lend(&mut self, context: u64, lent: Lent) {
        self.lent.insert(context, lent);
    }
}

impl EndpointApi for RawEndpoint {
    fn address(&self) -> Result<Address, Errno> {
        self.ep.address()
    }

    fn insert(&self, peer: &Address) -> Result<FiAddr, Errno> {
        match &self.av {
            Some(av) => Ok(av.insert_one(peer)?),
            None => Ok(FiAddr::UNSPEC),
        }
    }

    fn post(&mut self, context: u64, post: &mut Post) -> Result<(), Errno> {
        match post {
            Post::Send(tx) => self.send(context, tx),
            Post::Recv(rx) => self.recv(context, rx),
            Post::Write(write) => self.write(context, write),
            Post::Read(read) => self.read(context, read),
            Post::Atomic(atomic) => self.atomic(context, atomic),
        }
    }

    fn cancel(&mut self, context: u64) -> Result<(), Errno> {
        match &self.srx {
            Some(srx) => srx.cancel(Context(context)),
            None => self.ep.cancel(Context(context)),
        }
    }

    fn post_receives_to(&mut self, srx: Option<Arc<dyn SharedReceives>>) {
        self.srx = srx;
    }

    fn set(&self, option: EpOption) -> Result<(), Errno> {
        self.ep.set(option)
    }

    fn overwrite(&mut self, context: u64) {
        if let Some(Lent::Out(bytes)) = self.lent.get_mut(&context) {
            bytes.iter_mut().for_each(|bytes| bytes.fill(POISON));
        }
    }

    fn complete(&mut self, entry: Entry) -> anyhow::Result<Completion> {
        self.done(entry, FiAddr::UNSPEC, None)
    }

    fn poll(&mut self) -> anyhow::Result<Option<Completion>> {
        let (mut out, mut src) = ([Entry::default()], [FiAddr(NO_DATA)]);
        match self.cq.read_from(&mut out, &mut src) {
            Ok(0) => Ok(None),
            Ok(_) => self.done(out[0], src[0], None).map(Some),
            Err(Errno::Avail) => {
                let error = self.cq.read_err()?;
                self.done(error.entry, error.src, Some(error)).map(Some)
            }
            Err(errno) => Err(anyhow!("reading the completion queue: {errno}")),
        }
    }

    fn progress(&mut self) -> anyhow::Result<()> {
        match self.cq.read(&mut []) {
            // An error that waits to be read is as good as silence here.
            Ok(_) | Err(Errno::Avail) => Ok(()),
            Err(errno) => Err(anyhow!("driving progress: {errno}")),
        }
    }

    fn raw(&self) -> Option<&RawEndpoint> {
        Some(self)
    }

    fn defer(&mut self, context: u64, post: &mut Post, when: Trigger) -> Result<WorkId, Errno> {
        self.when = Some(when);
        self.post(context, post)?;
        Ok(self.ticket.take().expect("it was queued"))
    }
}

impl Room {
    fn new(len: usize, kind: RxKind) -> Self {
        Self {
            whole: vec![BLANK; len + 2 * CANARY],
            len,
            kind,
        }
    }

    /// The room, in segments of these lengths; in one without any.
    fn iov(&mut self, lengths: &[usize]) -> Vec<IovMut> {
        let mut rest = &mut self.whole[CANARY..CANARY + self.len];
        if lengths.is_empty() {
            return vec![IovMut::new(rest)];
        }
        let mut iov = Vec::new();
        for &length in lengths {
            let (segment, behind) = rest.split_at_mut(length);
            iov.push(IovMut::new(segment));
            rest = behind;
        }
        iov
    }

    /// What was received; everything else must be as it was.
    fn taken(&self, entry: &Entry, error: Option<&ErrEntry>) -> anyhow::Result<Vec<u8>> {
        let is_receive = entry.flags.contains(CompletionFlags::RECV);
        // The message is there all the same.
        let has_message = [Errno::Trunc, Errno::AddrNotAvail];
        let has_message = error.is_some_and(|error| has_message.contains(&error.errno));
        let used = match (self.kind, error) {
            (RxKind::Peek | RxKind::Discard, _) => 0,
            (_, Some(_)) if !has_message => 0,
            _ if is_receive => entry.len.min(self.len),
            _ => self.len,
        };
        if is_receive && self.kind == RxKind::Plain && error.is_none() {
            ensure!(
                entry.len <= self.len,
                "{entry:?} has more than {} bytes",
                self.len
            );
        }
        self.assert_blank_but(used, entry)?;
        Ok(self.whole[CANARY..CANARY + used].to_vec())
    }

    fn assert_blank_but(&self, used: usize, entry: &Entry) -> anyhow::Result<()> {
        let (head, rest) = self.whole.split_at(CANARY);
        let is_blank = |bytes: &[u8]| bytes.iter().all(|&byte| byte == BLANK);
        ensure!(
            is_blank(head),
            "bytes before the buffer of {entry:?} were written"
        );
        ensure!(
            is_blank(&rest[used..]),
            "bytes behind the {used} of {entry:?} were written"
        );
        Ok(())
    }

    /// The part of a multi-receive buffer that the entry names.
    fn part(&self, entry: &Entry) -> anyhow::Result<Vec<u8>> {
        if entry.buf == 0 {
            ensure!(
                entry.len == 0,
                "{entry:?} does not say where its message is"
            );
            return Ok(Vec::new());
        }
        let first = self.whole.as_ptr().addr() + CANARY;
        let from = entry.buf.checked_sub(first);
        let from = from.filter(|from| from + entry.len <= self.len);
        let from = from.ok_or_else(|| anyhow!("{entry:?} is not within its buffer"))?;
        let bytes = &self.whole[CANARY..CANARY + self.len];
        Ok(bytes[from..from + entry.len].to_vec())
    }
}

/// Cuts bytes into segments of these lengths; one without any.
fn cut(bytes: Vec<u8>, lengths: &[usize]) -> Vec<Vec<u8>> {
    if lengths.is_empty() {
        return vec![bytes];
    }
    let mut rest = &bytes[..];
    let mut segments = Vec::new();
    for &length in lengths {
        let (segment, behind) = rest.split_at(length);
        segments.push(segment.to_vec());
        rest = behind;
    }
    let len = bytes.len();
    assert!(rest.is_empty(), "{lengths:?} do not make {len} bytes");
    segments
}

/// The remote segments of an access; `whole` if it names none.
fn or_whole<'a>(rma_iov: &'a [RmaIov], whole: &'a [RmaIov]) -> &'a [RmaIov] {
    match rma_iov.is_empty() {
        true => whole,
        false => rma_iov,
    }
}

/// Bytes before and behind each room.
const CANARY: usize = 64;
/// What rooms are filled with before something is received there.
pub const BLANK: u8 = 0xee;
/// What buffers of sends are filled with after their completion.
const POISON: u8 = 0xde;
/// Data that nobody may see.
const NO_DATA: u64 = 0xdead_dead_dead_dead;
