//! `RawEndpoint`: an endpoint under test over the raw API, with canaries around its buffers.
//!
//! A receive uses the middle of a larger buffer. The bytes around it, and those behind the message,
//! must not change. The buffer of a send is overwritten when its completion is read, so that a
//! later access of the provider is detected by wrong data.

#![expect(unsafe_code, reason = "tests of the raw API")]

use std::collections::BTreeMap;
use std::ptr;
use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail, ensure};
use selvedge::atomic::{AtomicMsg, Ioc, IocMut, RmaIoc};
use selvedge::cq::{Entry, ErrEntry};
use selvedge::op::{Compared, Fetched};
use selvedge::rma::{ReadMsg, RmaIov, WriteMsg};
use selvedge::shared::SharedBytes;
use selvedge::trigger::{self, Action, WorkId};
use selvedge::{
    Address, AddressVector, Allocation, CompletionFlags, CompletionQueue, Context, Domain,
    Endpoint, EpOption, Errno, FiAddr, Iov, IovMut, Op, OpFlags, SharedReceives, alloc, msg,
};

use super::api::{EndpointApi, Notify, RawObjects, Trigger};
use super::post::{Atomic, Completion, Failure, Post, Read, Rx, RxKind, Tx, Write};
use crate::op;

/// An endpoint with its queue, and the buffers of outstanding operations. Fields are dropped in
/// order: the endpoint before the buffers.
#[derive(Debug)]
pub struct RawEndpoint {
    pub objects: RawObjects,
    /// The shared receive context for receives, if there is one.
    srx: Option<Arc<dyn SharedReceives>>,
    in_use: BTreeMap<u64, InUse>,
    /// The trigger of the next post, if that post is deferred.
    trigger: Option<Trigger>,
    /// The id of the deferred work that the last post queued.
    work_id: Option<WorkId>,
    allows_torn_receives: bool,
    /// The domain that allocates the bytes of lent messages, if messages are lent.
    lender: Option<Arc<dyn Domain>>,
}

/// The memory of an outstanding operation.
#[derive(Debug)]
enum InUse {
    /// Bytes that are sent or written.
    Sent(Vec<Vec<u8>>),
    /// Special memory whose bytes are lent.
    Lent(Arc<dyn Allocation>),
    /// The buffer of a receive.
    Received(CanaryBuf),
    /// The buffer of a result, and the operands of an atomic.
    Fetched {
        buf: CanaryBuf,
        _operands: [Vec<u8>; 2],
    },
}

/// A buffer with canaries around it.
#[derive(Debug)]
struct CanaryBuf {
    whole: Vec<u8>,
    len: usize,
    kind: RxKind,
}

/// Overwrites memory whose lent bytes came back: a later reader detects it by wrong data.
fn poison(memory: &dyn Allocation) {
    // SAFETY: the memory has as many bytes, and no operation of this process uses it any more.
    unsafe { ptr::write_bytes(memory.base(), POISON, memory.len()) };
}

/// Queues deferred work that sets a counter or adds to it.
///
/// # Errors
/// Those of the domain, and an error for work that posts an operation.
pub fn queue_count(domain: &dyn Domain, work: &trigger::Work<'_>) -> anyhow::Result<WorkId> {
    let is_post = matches!(work.action, Action::Post { .. });
    ensure!(!is_post, "{work:?} accesses memory");
    // SAFETY: the action does not access memory.
    Ok(unsafe { domain.queue_work(work) }?)
}

impl RawEndpoint {
    pub fn new(
        ep: Arc<dyn Endpoint>,
        cq: Arc<dyn CompletionQueue>,
        av: Option<Arc<dyn AddressVector>>,
    ) -> Self {
        Self {
            objects: RawObjects { ep, cq, av },
            srx: None,
            in_use: BTreeMap::new(),
            trigger: None,
            work_id: None,
            allows_torn_receives: false,
            lender: None,
        }
    }

    /// Skips the check of buffers whose operation fails with a reset connection: a killed peer may
    /// leave a part of its message.
    #[must_use]
    pub fn allow_torn_receives(mut self) -> Self {
        self.allows_torn_receives = true;
        self
    }

    /// Lends the messages of sends with [`OpFlags::LEND`] from memory of `domain`.
    #[must_use]
    pub fn lend_from(mut self, domain: &Arc<dyn Domain>) -> Self {
        self.lender = Some(Arc::clone(domain));
        self
    }

    /// Posts an operation, or queues it if it is deferred.
    ///
    /// # Safety
    /// The requirements of the post.
    unsafe fn issue(&mut self, op: &Op<'_>, flags: OpFlags) -> Result<(), Errno> {
        let Some(trigger) = self.trigger.take() else {
            let is_receive = matches!(op, Op::Recv(_) | Op::TaggedRecv(_));
            return match &self.srx {
                // SAFETY: passed on from the caller.
                Some(srx) if is_receive => unsafe { op.post_shared(&**srx, flags) },
                // SAFETY: passed on from the caller.
                _ => unsafe { op.post(&*self.objects.ep, flags) },
            };
        };
        let (done, flags) = match &trigger.notify {
            Notify::Endpoint => (trigger::CompletionTarget::Endpoint, flags),
            Notify::Counter(cntr) => {
                let done = trigger::CompletionTarget::Counter(cntr.as_ref());
                (done, flags.difference(OpFlags::DEFAULT))
            }
        };
        let action = Action::Post {
            ep: &self.objects.ep,
            op: *op,
            flags,
            done,
        };
        let (cntr, threshold) = (&trigger.cntr, trigger.threshold);
        let work = trigger::Work {
            cntr,
            threshold,
            action,
        };
        // SAFETY: passed on from the caller.
        let work_id = unsafe { trigger.domain.queue_work(&work) };
        self.work_id = Some(work_id.map_err(|error| error.errno())?);
        Ok(())
    }

    /// Processes a completion entry, whose operation must be outstanding.
    fn process_completion(
        &mut self,
        entry: Entry,
        src: FiAddr,
        error: Option<ErrEntry>,
    ) -> anyhow::Result<Completion> {
        let context = entry.context.0;
        let is_released = error.is_some() || entry.flags.contains(CompletionFlags::MULTI_RECV);
        let mut bytes = Vec::new();
        let peer_access = CompletionFlags::REMOTE_READ | CompletionFlags::REMOTE_WRITE;
        if !entry.flags.intersects(peer_access) {
            let is_torn = self.allows_torn_receives
                && error
                    .as_ref()
                    .is_some_and(|error| error.errno == Errno::ConnReset);
            let in_use = self.in_use.remove(&context);
            let is_receive = entry.flags.contains(CompletionFlags::RECV);
            if let Some(in_use) = &in_use {
                let has_same_kind = is_receive == matches!(in_use, InUse::Received(_));
                ensure!(has_same_kind, "{entry:?} completes {in_use:?}: {error:?}");
            }
            bytes = match in_use {
                Some(InUse::Sent(mut sent)) => {
                    sent.iter_mut().for_each(|bytes| bytes.fill(POISON));
                    Vec::new()
                }
                Some(InUse::Lent(memory)) => {
                    poison(&*memory);
                    Vec::new()
                }
                Some(InUse::Received(_)) if entry.flags.contains(CompletionFlags::LENT) => {
                    self.take_lent(entry.buf)?
                }
                Some(InUse::Received(buf)) if buf.kind == RxKind::Multi => {
                    let bytes = buf.multi_received(&entry)?;
                    if !is_released {
                        self.in_use.insert(context, InUse::Received(buf));
                    }
                    bytes
                }
                Some(InUse::Received(_) | InUse::Fetched { .. }) if is_torn => Vec::new(),
                Some(InUse::Received(buf) | InUse::Fetched { buf, .. }) => {
                    buf.received(&entry, error.as_ref())?
                }
                // An inject has no context; its failure is reported with context 0.
                None if error.is_some() && context == 0 => Vec::new(),
                None => bail!("{entry:?} completes no outstanding operation"),
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
        if let Some(domain) = self.lender.clone()
            && tx.flags.is_some_and(|flags| flags.contains(OpFlags::LEND))
        {
            return self.lend(context, tx, &*domain);
        }
        let segments = split(std::mem::take(&mut tx.bytes), &tx.segments);
        let iov: Vec<_> = segments.iter().map(|segment| Iov::new(segment)).collect();
        let msg = msg::SendMsg {
            iov: &iov,
            desc: &[],
            dest: tx.to,
            context: Context(context),
            data: tx.data.unwrap_or(NO_DATA),
        };
        let flags = op::with_data(tx.flags.unwrap_or(OpFlags::DEFAULT), tx.data);
        // SAFETY: `in_use` keeps the segments unchanged until the completion, or until the endpoint
        // is closed; a failed post keeps nothing.
        let posted = unsafe { self.issue(&op::send(msg, tx.tag), flags) };
        self.keep_or_restore_bytes(context, posted, segments, &mut tx.bytes)
    }

    /// Lends a copy of the bytes.
    fn lend(&mut self, context: u64, tx: &Tx, domain: &dyn Domain) -> Result<(), Errno> {
        let memory = domain.alloc(tx.bytes.len(), &alloc::Attr::default());
        let memory = memory.map_err(|error| error.errno())?;
        // SAFETY: the memory has room for the bytes, and nothing else accesses it yet.
        unsafe { ptr::copy_nonoverlapping(tx.bytes.as_ptr(), memory.base(), tx.bytes.len()) };
        let msg = msg::SendMsg {
            iov: &[Iov::from_raw(memory.base().cast(), tx.bytes.len())],
            desc: &[],
            dest: tx.to,
            context: Context(context),
            data: tx.data.unwrap_or(NO_DATA),
        };
        let flags = op::with_data(tx.flags.unwrap_or(OpFlags::DEFAULT), tx.data);
        // SAFETY: `in_use` keeps the memory unchanged until the completion, or until the endpoint
        // is closed; a failed post keeps nothing.
        unsafe { self.issue(&op::send(msg, tx.tag), flags) }?;
        self.keep_buffers(context, InUse::Lent(memory));
        Ok(())
    }

    /// Copies a lent message, and gives it back.
    fn take_lent(&self, number: usize) -> anyhow::Result<Vec<u8>> {
        let lending = self.objects.ep.lending();
        let lent = lending.context("an endpoint that cannot lend")?;
        let lent = lent.take_lent(number)?;
        let mut bytes = vec![0; lent.len()];
        // SAFETY: lent memory is valid for reads, and nothing is written through the value.
        let from = unsafe { SharedBytes::new(lent.base().cast_mut(), lent.len()) };
        from.read_into(&mut bytes);
        ensure!(lent.is_intact(), "a message that is not lent any more");
        Ok(bytes)
    }

    fn recv(&mut self, context: u64, rx: &Rx) -> Result<(), Errno> {
        let mut buf = CanaryBuf::new(rx.room, rx.kind);
        let iov = buf.iov(&rx.segments);
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
        // SAFETY: `in_use` keeps the buffer until the completion, or until the endpoint is closed.
        let posted = unsafe { self.issue(&op::recv(msg, rx.tag), flags) };
        posted.inspect(|()| self.keep_buffers(context, InUse::Received(buf)))
    }

    /// Posts an injected operation.
    fn inject(&mut self, op: &Op<'_>) -> Result<(), Errno> {
        // SAFETY: an injected operation has no safety requirement.
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
        let segments = split(std::mem::take(&mut write.bytes), &write.segments);
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
        // SAFETY: `in_use` keeps the segments until the completion, or until the endpoint is
        // closed.
        let posted = unsafe { self.issue(&Op::Write(msg), flags) };
        self.keep_or_restore_bytes(context, posted, segments, &mut write.bytes)
    }

    fn read(&mut self, context: u64, read: &Read) -> Result<(), Errno> {
        let mut buf = CanaryBuf::new(read.len, RxKind::Plain);
        let (iov, whole) = (buf.iov(&read.segments), [read.from.iov(read.len)]);
        let msg = ReadMsg {
            iov: &iov,
            desc: &[],
            src: read.from.peer,
            rma_iov: or_whole(&read.rma_iov, &whole),
            context: Context(context),
        };
        let flags = read.flags.unwrap_or(OpFlags::DEFAULT);
        // SAFETY: `in_use` keeps the buffer until the completion, or until the endpoint is closed.
        let posted = unsafe { self.issue(&Op::Read(msg), flags) };
        posted.inspect(|()| self.keep_result(context, buf, Default::default()))
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
        let mut buf = CanaryBuf::new(atomic.result, RxKind::Plain);
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
        let base = buf.iov(&[])[0].base;
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
        // SAFETY: `in_use` keeps the operands and the result buffer until the completion, or until
        // the endpoint is closed.
        let posted = unsafe { self.issue(&op, flags) };
        posted.inspect(|()| self.keep_result(context, buf, [operand, compare]))
    }

    fn keep_result(&mut self, context: u64, buf: CanaryBuf, operands: [Vec<u8>; 2]) {
        let in_use = InUse::Fetched {
            buf,
            _operands: operands,
        };
        self.keep_buffers(context, in_use);
    }

    /// Keeps the segments of a successful post, or puts them back into a failed one.
    fn keep_or_restore_bytes(
        &mut self,
        context: u64,
        posted: Result<(), Errno>,
        segments: Vec<Vec<u8>>,
        bytes: &mut Vec<u8>,
    ) -> Result<(), Errno> {
        match posted {
            Ok(()) => self.keep_buffers(context, InUse::Sent(segments)),
            Err(_) => *bytes = segments.concat(),
        }
        posted
    }

    fn keep_buffers(&mut self, context: u64, in_use: InUse) {
        self.in_use.insert(context, in_use);
    }
}

impl EndpointApi for RawEndpoint {
    fn address(&self) -> Result<Address, Errno> {
        self.objects.ep.address()
    }

    fn insert(&self, peer: &Address) -> Result<FiAddr, Errno> {
        match &self.objects.av {
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
            None => self.objects.ep.cancel(Context(context)),
        }
    }

    fn post_receives_to(&mut self, srx: Option<Arc<dyn SharedReceives>>) {
        self.srx = srx;
    }

    fn set(&self, option: EpOption) -> Result<(), Errno> {
        self.objects.ep.set(option)
    }

    fn overwrite(&mut self, context: u64) {
        if let Some(InUse::Sent(bytes)) = self.in_use.get_mut(&context) {
            bytes.iter_mut().for_each(|bytes| bytes.fill(POISON));
        }
    }

    fn complete(&mut self, entry: Entry) -> anyhow::Result<Completion> {
        self.process_completion(entry, FiAddr::UNSPEC, None)
    }

    fn poll(&mut self) -> anyhow::Result<Option<Completion>> {
        let (mut out, mut src) = ([Entry::default()], [FiAddr(NO_DATA)]);
        match self.objects.cq.read_from(&mut out, &mut src) {
            Ok(0) => Ok(None),
            Ok(_) => self.process_completion(out[0], src[0], None).map(Some),
            Err(Errno::Avail) => {
                let error = self.objects.cq.read_err()?;
                self.process_completion(error.entry, error.src, Some(error))
                    .map(Some)
            }
            Err(errno) => Err(anyhow!("reading the completion queue: {errno}")),
        }
    }

    fn progress(&mut self) -> anyhow::Result<()> {
        match self.objects.cq.read(&mut []) {
            // An error entry stays in the queue.
            Ok(_) | Err(Errno::Avail) => Ok(()),
            Err(errno) => Err(anyhow!("driving progress: {errno}")),
        }
    }

    fn raw_objects(&self) -> Option<&RawObjects> {
        Some(&self.objects)
    }

    fn defer(&mut self, context: u64, post: &mut Post, trigger: Trigger) -> Result<WorkId, Errno> {
        self.trigger = Some(trigger);
        self.post(context, post)?;
        Ok(self
            .work_id
            .take()
            .expect("a successful post of deferred work stores its ID"))
    }
}

impl CanaryBuf {
    fn new(len: usize, kind: RxKind) -> Self {
        Self {
            whole: vec![BLANK; len + 2 * CANARY],
            len,
            kind,
        }
    }

    /// The buffer as segments of these lengths; as one segment if `lengths` is empty.
    fn iov(&mut self, lengths: &[usize]) -> Vec<IovMut> {
        let mut rest = &mut self.whole[CANARY..CANARY + self.len];
        if lengths.is_empty() {
            return vec![IovMut::new(rest)];
        }
        let mut iov = Vec::new();
        for &length in lengths {
            let (segment, remaining) = rest.split_at_mut(length);
            iov.push(IovMut::new(segment));
            rest = remaining;
        }
        iov
    }

    /// Returns the received bytes. All other bytes must be unchanged.
    fn received(&self, entry: &Entry, error: Option<&ErrEntry>) -> anyhow::Result<Vec<u8>> {
        let is_receive = entry.flags.contains(CompletionFlags::RECV);
        // The message was received despite these errors.
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
        self.assert_blank_except(used, entry)?;
        Ok(self.whole[CANARY..CANARY + used].to_vec())
    }

    fn assert_blank_except(&self, used: usize, entry: &Entry) -> anyhow::Result<()> {
        let (head, rest) = self.whole.split_at(CANARY);
        ensure!(
            is_blank(head),
            "bytes before the buffer of {entry:?} were written"
        );
        ensure!(
            is_blank(&rest[used..]),
            "bytes behind the first {used} of the buffer of {entry:?} were written"
        );
        Ok(())
    }

    /// Returns the message that the entry locates in a multi-receive buffer.
    fn multi_received(&self, entry: &Entry) -> anyhow::Result<Vec<u8>> {
        if entry.buf == 0 {
            ensure!(entry.len == 0, "{entry:?} has no address of its message");
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

/// Whether every byte is [`BLANK`]. The bytes are compared with themselves, one byte further: a
/// comparison of slices is fast without optimization, too.
fn is_blank(bytes: &[u8]) -> bool {
    let Some((first, rest)) = bytes.split_first() else {
        return true;
    };
    *first == BLANK && *rest == bytes[..rest.len()]
}

/// Splits bytes into segments of these lengths; one segment if `lengths` is empty.
fn split(bytes: Vec<u8>, lengths: &[usize]) -> Vec<Vec<u8>> {
    if lengths.is_empty() {
        return vec![bytes];
    }
    let mut rest = &bytes[..];
    let mut segments = Vec::new();
    for &length in lengths {
        let (segment, remaining) = rest.split_at(length);
        segments.push(segment.to_vec());
        rest = remaining;
    }
    let len = bytes.len();
    assert!(rest.is_empty(), "{lengths:?} do not make {len} bytes");
    segments
}

/// Returns the remote segments of an access; `whole` if there are none.
fn or_whole<'a>(rma_iov: &'a [RmaIov], whole: &'a [RmaIov]) -> &'a [RmaIov] {
    if rma_iov.is_empty() { whole } else { rma_iov }
}

/// The number of canary bytes before and behind each buffer.
const CANARY: usize = 64;
/// The initial value of receive buffers and canaries.
pub const BLANK: u8 = 0xee;
/// The value that buffers of sends are overwritten with after the completion.
const POISON: u8 = 0xde;
/// Remote data that must never be reported.
const NO_DATA: u64 = 0xdead_dead_dead_dead;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_blank_if_every_byte_is() {
        assert!(is_blank(&[]) && is_blank(&[BLANK]) && is_blank(&[BLANK; 100]));
        for index in [0, 50, 99] {
            let mut bytes = [BLANK; 100];
            bytes[index] ^= 1;
            assert!(!is_blank(&bytes), "byte {index}");
        }
        assert!(!is_blank(&[BLANK ^ 1]));
        assert!(!is_blank(&[BLANK ^ 1; 100]));
    }
}
