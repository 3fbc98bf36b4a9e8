//! Endpoints with a defect.
//!
//! Bytes that a defect changes are copies that are never freed: a mutant lives for a moment.

#![expect(unsafe_code, reason = "an endpoint around an endpoint")]

use std::any::Any;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use selvedge::atomic::{self, AtomicMsg, Datatype, Family, Ioc, IocMut, Op, RmaIoc};
use selvedge::collective::CollectiveMsg;
use selvedge::cq::Entry;
use selvedge::rma::{ReadMsg, RmaIov, WriteMsg};
use selvedge::{
    Address, Atomic, Collective, CompletionFlags, ConnectionManagement, Context, Desc, Endpoint,
    EpOption, EpOptionName, Errno, FiAddr, Iov, Membership, Msg, OpFlags, Result, Rma,
    SharedReceives, TagMatch, Tagged, av, msg, tagged,
};

use super::Flaw;
use super::provider::unwrapped;
use super::queue::Shared;

#[derive(Debug)]
pub(super) struct FlawedEndpoint {
    inner: ManuallyDrop<Arc<dyn Endpoint>>,
    flaw: Flaw,
    queue: Option<Arc<Shared>>,
    inject_size: usize,
    held: Mutex<Option<Outgoing>>,
    /// The process that has opened it.
    process: u32,
    srx: Option<Arc<dyn SharedReceives>>,
    has_sent: AtomicBool,
    /// The group that was joined last.
    group: Mutex<Option<FiAddr>>,
}

/// A send whose bytes are a copy that is never freed.
#[derive(Clone, Debug)]
struct Outgoing {
    bytes: &'static [u8],
    dest: FiAddr,
    tag: Option<u64>,
    context: Context,
    data: u64,
    flags: OpFlags,
}

impl FlawedEndpoint {
    pub(super) fn new(
        inner: Arc<dyn Endpoint>,
        flaw: Flaw,
        queue: Option<Arc<Shared>>,
        inject_size: usize,
    ) -> Self {
        Self {
            inner: ManuallyDrop::new(inner),
            flaw,
            queue,
            inject_size,
            held: Mutex::default(),
            process: std::process::id(),
            srx: None,
            has_sent: AtomicBool::new(false),
            group: Mutex::default(),
        }
    }

    /// With these receives besides.
    pub(super) fn sharing(mut self, srx: Option<Arc<dyn SharedReceives>>) -> Self {
        self.srx = srx;
        self
    }

    pub(super) fn is_around(&self, inner: &Arc<dyn Endpoint>) -> bool {
        Arc::ptr_eq(&self.inner, inner)
    }

    /// The endpoint inside of one with a defect; itself if it has none.
    pub(super) fn inner(ep: &Arc<dyn Endpoint>) -> Arc<dyn Endpoint> {
        unwrapped(
            Arc::clone(ep),
            |ep| ep as &dyn Any,
            |own: &Self| Arc::clone(&own.inner),
        )
    }

    /// Sends, in the way of the defect.
    fn send(&self, mut out: Outgoing, is_whole: impl FnOnce() -> Result) -> Result {
        out.flags = self.flags(out.flags);
        match self.flaw {
            // As many bits for contexts as no test has peers.
            Flaw::WrongContext => self.post(&Outgoing {
                dest: FiAddr(out.dest.0 & u64::MAX >> 16),
                ..out
            }),
            Flaw::FlipsBit => self.post(&Outgoing {
                bytes: flipped(out.bytes),
                ..out
            }),
            Flaw::FlipsBitOfLarge if out.bytes.len() > 4096 => self.post(&Outgoing {
                bytes: flipped(out.bytes),
                ..out
            }),
            Flaw::CutsOff => {
                let len = out.bytes.len().saturating_sub(1);
                self.post(&Outgoing {
                    bytes: &out.bytes[..len],
                    ..out
                })
            }
            Flaw::SendsTwice => {
                self.post(&out)?;
                let data = out
                    .flags
                    .contains(OpFlags::REMOTE_CQ_DATA)
                    .then_some(out.data);
                let _ = self.inject_copy(out.bytes, out.dest, out.tag, data);
                Ok(())
            }
            Flaw::LosesFirst if !self.has_sent.swap(true, Ordering::Relaxed) => {
                self.invented(out.context, CompletionFlags::SEND)
            }
            Flaw::SwapsSends => self.swap(out),
            Flaw::HalvesTags => self.post(&Outgoing {
                tag: out.tag.map(|tag| tag & 0xffff_ffff),
                ..out
            }),
            Flaw::HalvesData => self.post(&Outgoing {
                data: out.data & 0xffff_ffff,
                ..out
            }),
            Flaw::ServesChildren if self.process != std::process::id() => Ok(()),
            Flaw::DeliversEarly | Flaw::IgnoresFences | Flaw::TakesAnyFlag => self.post(&out),
            _ => is_whole(),
        }
    }

    fn swap(&self, out: Outgoing) -> Result {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        match held.take() {
            None => *held = Some(out),
            Some(first) => {
                if let Err(errno) = self.post(&out) {
                    *held = Some(first);
                    return Err(errno);
                }
                // A queue that is full loses it: that is a defect, too.
                let _ = self.post(&first);
            }
        }
        Ok(())
    }

    fn post(&self, out: &Outgoing) -> Result {
        let iov = [Iov::new(out.bytes)];
        let &Outgoing {
            dest,
            context,
            data,
            flags,
            ..
        } = out;
        let (iov, desc) = (&iov[..], &[][..]);
        match out.tag {
            None => {
                let msg = msg::SendMsg {
                    iov,
                    desc,
                    dest,
                    context,
                    data,
                };
                // SAFETY: the bytes are never freed.
                unsafe { self.inner.sendmsg(&msg, flags) }
            }
            Some(tag) => {
                let msg = tagged::SendMsg {
                    iov,
                    desc,
                    dest,
                    tag,
                    context,
                    data,
                };
                // SAFETY: as above.
                unsafe { self.inner.tsendmsg(&msg, flags) }
            }
        }
    }

    fn inject_copy(
        &self,
        bytes: &[u8],
        dest: FiAddr,
        tag: Option<u64>,
        data: Option<u64>,
    ) -> Result {
        match tag {
            None => self.inner.inject(bytes, dest, data),
            Some(tag) => self.inner.tinject(bytes, dest, tag, data),
        }
    }

    fn injected(&self, bytes: &[u8], dest: FiAddr, tag: Option<u64>, data: Option<u64>) -> Result {
        let inject = |bytes: &[u8], tag, data| self.inject_copy(bytes, dest, tag, data);
        match self.flaw {
            Flaw::ForgetsInjects => Ok(()),
            Flaw::InjectsAnySize if bytes.len() > self.inject_size => Ok(()),
            Flaw::FlipsBit => inject(flipped(bytes), tag, data),
            Flaw::SendsTwice => {
                inject(bytes, tag, data)?;
                let _ = inject(bytes, tag, data);
                Ok(())
            }
            Flaw::HalvesTags => inject(bytes, tag.map(|tag| tag & 0xffff_ffff), data),
            Flaw::HalvesData => inject(bytes, tag, data.map(|data| data & 0xffff_ffff)),
            _ => inject(bytes, tag, data),
        }
    }

    /// Flags of a send, a write or a receive.
    fn flags(&self, flags: OpFlags) -> OpFlags {
        let known = OpFlags::MULTI_RECV
            | OpFlags::REMOTE_CQ_DATA
            | OpFlags::PEEK
            | OpFlags::CLAIM
            | OpFlags::DISCARD
            | OpFlags::COMPLETION
            | OpFlags::INJECT
            | OpFlags::DEFAULT;
        match self.flaw {
            Flaw::DeliversEarly => flags - OpFlags::DELIVERY_COMPLETE,
            Flaw::IgnoresFences => flags - OpFlags::FENCE,
            Flaw::TakesAnyFlag => flags & known,
            Flaw::LookTakes if flags.contains(OpFlags::PEEK) => flags | OpFlags::DISCARD,
            Flaw::DiscardLeaves => flags - OpFlags::DISCARD,
            Flaw::ClaimsNothing => flags - OpFlags::CLAIM,
            _ => flags,
        }
    }

    fn source(&self, src: FiAddr) -> FiAddr {
        match self.flaw {
            Flaw::IgnoresSource => FiAddr::UNSPEC,
            _ => src,
        }
    }

    fn pieces<T: Clone>(&self, pieces: &[T]) -> Vec<T> {
        let mut pieces = pieces.to_vec();
        if self.flaw == Flaw::SwapsPieces {
            pieces.reverse();
        }
        pieces
    }

    fn places(&self, places: &[RmaIov]) -> Vec<RmaIov> {
        let mut places = places.to_vec();
        if self.flaw == Flaw::WrongAddress {
            places.iter_mut().for_each(|place| place.addr += 1);
        }
        places
    }

    /// The operation that is carried out on so many elements in the place of this one.
    fn op(&self, op: Op, count: usize) -> Op {
        match self.flaw {
            Flaw::OtherAtomics => similar(op),
            Flaw::OtherAtomicsOfOne if count == 1 => similar(op),
            _ => op,
        }
    }

    /// Reads in the place of an atomic that returns something.
    unsafe fn only_read(&self, msg: &AtomicMsg<'_>, result: &[IocMut], flags: OpFlags) -> Result {
        let msg = AtomicMsg {
            iov: &[],
            op: Op::AtomicRead,
            ..*msg
        };
        // SAFETY: the caller's promise for `result`.
        unsafe { self.inner.fetch_atomicmsg(&msg, result, &[], flags) }
    }
}

impl Drop for FlawedEndpoint {
    fn drop(&mut self) {
        if self.flaw != Flaw::NeverCloses {
            // SAFETY: it is not used any more.
            unsafe { ManuallyDrop::drop(&mut self.inner) };
        }
    }
}

impl Msg for FlawedEndpoint {
    unsafe fn sendmsg(&self, msg: &msg::SendMsg<'_>, flags: OpFlags) -> Result {
        let outgoing = |bytes| Outgoing {
            bytes,
            dest: msg.dest,
            tag: None,
            context: msg.context,
            data: msg.data,
            flags,
        };
        if self.flaw == Flaw::ReadsInjectLate && flags.contains(OpFlags::INJECT) {
            // SAFETY: the test that this is for keeps the buffer and changes it.
            return self.send_late(outgoing(unsafe { lent(msg.iov) }));
        }
        // SAFETY: the caller's promise.
        let out = outgoing(unsafe { copied(msg.iov) });
        let iov = self.pieces(msg.iov);
        let whole = msg::SendMsg { iov: &iov, ..*msg };
        // SAFETY: the caller's promise.
        self.send(out, || unsafe { self.inner.sendmsg(&whole, flags) })
    }

    unsafe fn recvmsg(&self, msg: &msg::RecvMsg<'_>, flags: OpFlags) -> Result {
        let (iov, src) = (self.pieces(msg.iov), self.source(msg.src));
        let msg = msg::RecvMsg {
            iov: &iov,
            src,
            ..*msg
        };
        match &self.srx {
            // SAFETY: the caller's promise.
            Some(srx) if self.flaw == Flaw::SharesOwn => unsafe { srx.recvmsg(&msg, flags) },
            // SAFETY: the caller's promise.
            _ => unsafe { self.inner.recvmsg(&msg, self.flags(flags)) },
        }
    }

    fn inject(&self, buf: &[u8], dest: FiAddr, data: Option<u64>) -> Result {
        self.injected(buf, dest, None, data)
    }
}

impl FlawedEndpoint {
    /// Sends at the next read of the queue, out of the caller's buffer.
    fn send_late(&self, out: Outgoing) -> Result {
        let Some(queue) = &self.queue else {
            return self.post(&out);
        };
        let inner = Arc::clone(&self.inner);
        queue.later(Box::new(move || {
            let late = Self::new(inner, Flaw::ReadsInjectLate, None, 0);
            // It is lost if the queue is full: a defect, too.
            let _ = late.post(&out);
        }));
        Ok(())
    }
}

impl Tagged for FlawedEndpoint {
    unsafe fn tsendmsg(&self, msg: &tagged::SendMsg<'_>, flags: OpFlags) -> Result {
        let outgoing = |bytes| Outgoing {
            bytes,
            dest: msg.dest,
            tag: Some(msg.tag),
            context: msg.context,
            data: msg.data,
            flags,
        };
        if self.flaw == Flaw::ReadsInjectLate && flags.contains(OpFlags::INJECT) {
            // SAFETY: the test that this is for keeps the buffer and changes it.
            return self.send_late(outgoing(unsafe { lent(msg.iov) }));
        }
        // SAFETY: the caller's promise.
        let out = outgoing(unsafe { copied(msg.iov) });
        let iov = self.pieces(msg.iov);
        let whole = tagged::SendMsg { iov: &iov, ..*msg };
        // SAFETY: the caller's promise.
        self.send(out, || unsafe { self.inner.tsendmsg(&whole, flags) })
    }

    unsafe fn trecvmsg(&self, msg: &tagged::RecvMsg<'_>, flags: OpFlags) -> Result {
        let tag = match self.flaw {
            Flaw::IgnoresIgnore => TagMatch::exact(msg.tag.tag),
            Flaw::IgnoresTags => TagMatch::ANY,
            _ => msg.tag,
        };
        let (iov, src) = (self.pieces(msg.iov), self.source(msg.src));
        let msg = tagged::RecvMsg {
            iov: &iov,
            src,
            tag,
            ..*msg
        };
        // SAFETY: the caller's promise.
        unsafe { self.inner.trecvmsg(&msg, self.flags(flags)) }
    }

    fn tinject(&self, buf: &[u8], dest: FiAddr, tag: u64, data: Option<u64>) -> Result {
        self.injected(buf, dest, Some(tag), data)
    }
}

impl Rma for FlawedEndpoint {
    unsafe fn readmsg(&self, msg: &ReadMsg<'_>, flags: OpFlags) -> Result {
        let (iov, rma_iov) = (self.pieces(msg.iov), self.places(msg.rma_iov));
        let msg = ReadMsg {
            iov: &iov,
            rma_iov: &rma_iov,
            ..*msg
        };
        // SAFETY: the caller's promise.
        unsafe { self.inner.readmsg(&msg, self.flags(flags)) }
    }

    unsafe fn writemsg(&self, msg: &WriteMsg<'_>, flags: OpFlags) -> Result {
        let (iov, rma_iov) = (self.pieces(msg.iov), self.places(msg.rma_iov));
        let mut msg = WriteMsg {
            iov: &iov,
            rma_iov: &rma_iov,
            ..*msg
        };
        let mut flags = self.flags(flags);
        // SAFETY: the caller's promise.
        let spoiled = [Iov::new(flipped(unsafe { copied(msg.iov) }))];
        match self.flaw {
            Flaw::NoRemoteData => flags -= OpFlags::REMOTE_CQ_DATA,
            Flaw::HalvesData => msg.data &= 0xffff_ffff,
            Flaw::FlipsBit => msg.iov = &spoiled,
            _ => {}
        }
        // SAFETY: the caller's promise.
        unsafe { self.inner.writemsg(&msg, flags) }
    }

    fn inject_write(
        &self,
        buf: &[u8],
        dest: FiAddr,
        addr: u64,
        key: u64,
        data: Option<u64>,
    ) -> Result {
        match self.flaw {
            Flaw::ForgetsInjects => Ok(()),
            Flaw::WrongAddress => self.inner.inject_write(buf, dest, addr + 1, key, data),
            Flaw::NoRemoteData => self.inner.inject_write(buf, dest, addr, key, None),
            _ => self.inner.inject_write(buf, dest, addr, key, data),
        }
    }
}

impl Atomic for FlawedEndpoint {
    unsafe fn atomicmsg(&self, msg: &AtomicMsg<'_>, flags: OpFlags) -> Result {
        let size: usize = msg
            .iov
            .iter()
            .map(|ioc| ioc.count * msg.datatype.size())
            .sum();
        // Sixteen-byte elements want to be aligned.
        let zeros: &'static [u128] = vec![0; size.div_ceil(16)].leak();
        let nothing = [Ioc::from_raw(
            zeros.as_ptr().cast(),
            size / msg.datatype.size(),
        )];
        let mut changed = AtomicMsg {
            op: self.op(msg.op, elements(msg)),
            ..*msg
        };
        match self.flaw {
            Flaw::NoAtomics => (changed.iov, changed.op) = (&nothing, Op::Sum),
            // SAFETY: the caller's promise; an atomic that has no completion needs it no longer.
            Flaw::TwiceAtomics => unsafe { self.twice(msg)? },
            _ => {}
        }
        // SAFETY: the caller's promise, or zeros that are never freed.
        unsafe { self.inner.atomicmsg(&changed, flags) }
    }

    unsafe fn fetch_atomicmsg(
        &self,
        msg: &AtomicMsg<'_>,
        result: &[IocMut],
        result_desc: &[Desc],
        flags: OpFlags,
    ) -> Result {
        let changed = AtomicMsg {
            op: self.op(msg.op, elements(msg)),
            ..*msg
        };
        match self.flaw {
            // SAFETY: the caller's promise.
            Flaw::NoAtomics => unsafe { self.only_read(msg, result, flags) },
            Flaw::FetchesNothing => {
                let elsewhere = elsewhere(result, msg.datatype);
                // SAFETY: the caller's promise, and memory that is never freed.
                unsafe { self.inner.fetch_atomicmsg(msg, &elsewhere, &[], flags) }
            }
            Flaw::TwiceAtomics if msg.op != Op::AtomicRead => {
                // SAFETY: the caller's promise.
                unsafe { self.twice(msg)? };
                // SAFETY: the caller's promise.
                unsafe { self.inner.fetch_atomicmsg(msg, result, result_desc, flags) }
            }
            // SAFETY: the caller's promise.
            _ => unsafe {
                self.inner
                    .fetch_atomicmsg(&changed, result, result_desc, flags)
            },
        }
    }

    unsafe fn compare_atomicmsg(
        &self,
        msg: &AtomicMsg<'_>,
        compare: &[Ioc],
        compare_desc: &[Desc],
        result: &[IocMut],
        result_desc: &[Desc],
        flags: OpFlags,
    ) -> Result {
        let changed = AtomicMsg {
            op: self.op(msg.op, elements(msg)),
            ..*msg
        };
        let elsewhere = elsewhere(result, msg.datatype);
        let result = match self.flaw {
            // SAFETY: the caller's promise.
            Flaw::NoAtomics => return unsafe { self.only_read(msg, result, flags) },
            Flaw::FetchesNothing => &elsewhere,
            _ => result,
        };
        // SAFETY: the caller's promise, and memory that is never freed.
        unsafe {
            self.inner.compare_atomicmsg(
                &changed,
                compare,
                compare_desc,
                result,
                result_desc,
                flags,
            )
        }
    }

    fn inject_atomic(&self, buf: &[u8], target: &atomic::Target) -> Result {
        match self.flaw {
            Flaw::NoAtomics | Flaw::ForgetsInjects => Ok(()),
            Flaw::TwiceAtomics => {
                self.inner.inject_atomic(buf, target)?;
                self.inner.inject_atomic(buf, target)
            }
            _ => {
                let op = self.op(target.op, buf.len() / target.datatype.size());
                self.inner
                    .inject_atomic(buf, &atomic::Target { op, ..*target })
            }
        }
    }

    fn valid(&self, family: Family, datatype: Datatype, op: Op) -> Result<atomic::Attr> {
        match self.flaw {
            Flaw::DeniesAtomics => Err(Errno::OpNotSupp),
            _ => self.inner.valid(family, datatype, op),
        }
    }
}

impl FlawedEndpoint {
    /// An atomic once more, by inject.
    unsafe fn twice(&self, msg: &AtomicMsg<'_>) -> Result {
        let [RmaIoc { addr, key, .. }] = *msg.rma_iov else {
            return Ok(());
        };
        for ioc in msg.iov {
            let len = ioc.count * msg.datatype.size();
            // SAFETY: the caller's promise.
            let bytes = unsafe { std::slice::from_raw_parts(ioc.addr.cast(), len) };
            let (dest, datatype, op) = (msg.dest, msg.datatype, msg.op);
            let target = atomic::Target {
                dest,
                addr,
                key,
                datatype,
                op,
            };
            self.inner.inject_atomic(bytes, &target)?;
        }
        Ok(())
    }
}

// SAFETY: as the inner endpoint, or a defect in what messages hold. Bytes that it changes are
// copies that are never freed.
unsafe impl Endpoint for FlawedEndpoint {
    fn address(&self) -> Result<Address> {
        self.inner.address()
    }

    fn cancel(&self, context: Context) -> Result {
        match self.flaw {
            Flaw::CancelsNothing => Ok(()),
            Flaw::DeniesCancel => self.inner.cancel(context).and(Err(Errno::NoEnt)),
            _ => self.inner.cancel(context),
        }
    }

    fn set(&self, option: EpOption) -> Result {
        match self.flaw {
            Flaw::ForgetsOptions => Ok(()),
            _ => self.inner.set(option),
        }
    }

    fn option(&self, name: EpOptionName) -> Result<EpOption> {
        self.inner.option(name)
    }

    fn join(&self, group: &Address, context: Context) -> Result<Arc<dyn Membership>> {
        self.inner.join(group, context)
    }

    fn collective(&self) -> Option<&dyn Collective> {
        self.inner.collective().map(|_| self as &dyn Collective)
    }

    fn cm(&self) -> Option<&dyn ConnectionManagement> {
        self.inner.cm().map(|_| self as &dyn ConnectionManagement)
    }
}

impl Collective for FlawedEndpoint {
    fn join(&self, set: &av::Set, context: Context) -> Result<Arc<dyn Membership>> {
        let joined = self.joiner()?.join(set, context)?;
        *self.group.lock().unwrap_or_else(PoisonError::into_inner) = Some(joined.addr());
        Ok(joined)
    }

    unsafe fn collective(&self, msg: &CollectiveMsg, flags: OpFlags) -> Result {
        let (mut msg, flags) = (*msg, self.flags(flags));
        let last = *self.group.lock().unwrap_or_else(PoisonError::into_inner);
        match self.flaw {
            Flaw::HurriesCollectives => {
                return self.invented(msg.context, CompletionFlags::COLLECTIVE);
            }
            Flaw::OtherCollectives if msg.op == Op::Sum => msg.op = Op::Bxor,
            Flaw::OtherCollectives => msg.op = similar(msg.op),
            Flaw::WrongRoot if msg.coll.has_root() => msg.root = FiAddr(0),
            Flaw::MixesGroups => msg.group = last.unwrap_or(msg.group),
            _ => {}
        }
        // SAFETY: the caller's promise.
        unsafe { self.joiner()?.collective(&msg, flags) }
    }
}

impl FlawedEndpoint {
    fn joiner(&self) -> Result<&dyn Collective> {
        self.inner.collective().ok_or(Errno::NoSys)
    }

    /// Completes what nobody carries out.
    fn invented(&self, context: Context, flags: CompletionFlags) -> Result {
        let entry = Entry {
            context,
            flags,
            ..Entry::default()
        };
        self.queue.iter().for_each(|queue| queue.invent(entry));
        Ok(())
    }
}

impl ConnectionManagement for FlawedEndpoint {
    fn connect(&self, addr: &Address, data: &[u8]) -> Result {
        self.managed()?.connect(addr, data)
    }

    fn accept(&self, data: &[u8]) -> Result {
        self.managed()?.accept(data)
    }

    fn shutdown(&self) -> Result {
        match self.flaw {
            Flaw::NeverShutsDown => Ok(()),
            _ => self.managed()?.shutdown(),
        }
    }

    fn peer(&self) -> Result<Address> {
        self.managed()?.peer()
    }
}

impl FlawedEndpoint {
    fn managed(&self) -> Result<&dyn ConnectionManagement> {
        self.inner.cm().ok_or(Errno::NoSys)
    }
}

/// A copy that is never freed.
pub(super) unsafe fn copied(iov: &[Iov]) -> &'static [u8] {
    let mut bytes = Vec::new();
    for piece in iov.iter().filter(|piece| piece.len > 0) {
        // SAFETY: the caller's promise.
        bytes
            .extend_from_slice(unsafe { std::slice::from_raw_parts(piece.base.cast(), piece.len) });
    }
    bytes.leak()
}

/// The caller's own bytes, for longer than it lends them.
unsafe fn lent(iov: &[Iov]) -> &'static [u8] {
    match iov {
        // SAFETY: the caller's promise.
        [piece] => unsafe { std::slice::from_raw_parts(piece.base.cast(), piece.len) },
        _ => &[],
    }
}

pub(super) fn flipped(bytes: &[u8]) -> &'static [u8] {
    let mut bytes = bytes.to_vec();
    if let Some(last) = bytes.last_mut() {
        *last ^= 0x10;
    }
    bytes.leak()
}

fn elsewhere(result: &[IocMut], datatype: Datatype) -> Vec<IocMut> {
    let moved = result.iter().map(|ioc| {
        let room: &'static mut [u128] = vec![0; (ioc.count * datatype.size()).div_ceil(16)].leak();
        IocMut::from_raw(room.as_mut_ptr().cast(), ioc.count)
    });
    moved.collect()
}

/// Of how many elements an atomic is.
fn elements(msg: &AtomicMsg<'_>) -> usize {
    msg.rma_iov.iter().map(|target| target.count).sum()
}

/// An operation that does the same to equal operands, or to zeros, and not otherwise.
pub(super) fn similar(op: Op) -> Op {
    match op {
        Op::Min => Op::Max,
        Op::Max => Op::Min,
        Op::Sum => Op::AtomicWrite,
        Op::Prod => Op::Sum,
        Op::Lor => Op::Land,
        Op::Land => Op::Lor,
        Op::Bor => Op::Bxor,
        Op::Band => Op::Bor,
        Op::Lxor => Op::Lor,
        Op::Bxor => Op::Bor,
        Op::AtomicRead => Op::AtomicRead,
        Op::AtomicWrite => Op::Sum,
        Op::Cswap => Op::CswapNe,
        Op::CswapNe => Op::Cswap,
        Op::CswapLe => Op::CswapLt,
        Op::CswapLt => Op::CswapLe,
        Op::CswapGe => Op::CswapGt,
        Op::CswapGt => Op::CswapGe,
        Op::Mswap => Op::Cswap,
        Op::Diff => Op::Sum,
    }
}
