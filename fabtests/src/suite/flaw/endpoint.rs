//! Endpoints with a defect.

#![expect(unsafe_code, reason = "an endpoint around an endpoint")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use selvedge::atomic::{self, AtomicMsg, Datatype, Family, Ioc};
use selvedge::cq::Entry;
use selvedge::op::Fetched;
use selvedge::{
    CompletionFlags, ConnectionManagement, Context, Endpoint, EpOption, Errno, Error, FiAddr,
    LateBindings, Membership, Op, OpFlags, Result, SharedReceives, av,
};
use selvedge_kit::layer::{EndpointLayer, Layered, Layers as _, ObjectLayer};

use super::Flaw;
use super::mixed::mixed;
use super::op::{as_injects, copied, elsewhere, lent, pieces, sending};
use super::queue::Shared;

pub(crate) struct FlawedEndpoint {
    flaw: Flaw,
    /// The endpoint below, for sends that come late.
    below: Arc<dyn Endpoint>,
    queue: Option<Arc<Shared>>,
    inject_size: usize,
    /// A send that waits for the next one.
    held: Mutex<Option<(Op<'static>, OpFlags)>>,
    /// The process that has opened it.
    process: u32,
    srx: Option<Arc<dyn SharedReceives>>,
    has_sent: AtomicBool,
    /// The group that was joined last.
    group: Mutex<Option<FiAddr>>,
}

impl FlawedEndpoint {
    /// An endpoint with a defect, which tells `queue` and takes from `srx`, too.
    pub(super) fn around(
        below: Arc<dyn Endpoint>,
        flaw: Flaw,
        queue: Option<Arc<Shared>>,
        inject_size: usize,
        srx: Option<Arc<dyn SharedReceives>>,
    ) -> Arc<Layered<dyn Endpoint, Self>> {
        if flaw == Flaw::NeverCloses {
            std::mem::forget(Arc::clone(&below));
        }
        let layer = Self {
            flaw,
            below: Arc::clone(&below),
            queue,
            inject_size,
            held: Mutex::default(),
            process: std::process::id(),
            srx,
            has_sent: AtomicBool::new(false),
            group: Mutex::default(),
        };
        Layered::new(below, layer)
    }

    /// The flags that an operation is posted with.
    fn flags(&self, op: &Op<'_>, flags: OpFlags) -> OpFlags {
        let known = OpFlags::MULTI_RECV
            | OpFlags::REMOTE_CQ_DATA
            | OpFlags::PEEK
            | OpFlags::CLAIM
            | OpFlags::DISCARD
            | OpFlags::COMPLETION
            | OpFlags::INJECT
            | OpFlags::DEFAULT;
        match (self.flaw, op) {
            (_, Op::Atomic(_) | Op::FetchAtomic(..) | Op::CompareAtomic(..)) => flags,
            (Flaw::NoRemoteData, Op::Write(_)) => flags - OpFlags::REMOTE_CQ_DATA,
            (Flaw::DeliversEarly, _) => flags - OpFlags::DELIVERY_COMPLETE,
            (Flaw::IgnoresFences, _) => flags - OpFlags::FENCE,
            (Flaw::TakesAnyFlag, _) => flags & known,
            (Flaw::LookTakes, _) if flags.contains(OpFlags::PEEK) => flags | OpFlags::DISCARD,
            (Flaw::DiscardLeaves, _) => flags - OpFlags::DISCARD,
            (Flaw::ClaimsNothing, _) => flags - OpFlags::CLAIM,
            _ => flags,
        }
    }

    /// Completes what nobody carries out.
    fn invent(&self, op: &Op<'_>) -> Result {
        let entry = Entry {
            context: op.context(),
            flags: op.kind() & (CompletionFlags::SEND | CompletionFlags::COLLECTIVE),
            ..Entry::default()
        };
        self.queue.iter().for_each(|queue| queue.invent(entry));
        Ok(())
    }

    /// Posts an operation, in the way of the defect.
    unsafe fn pass(&self, below: &dyn Endpoint, op: &Op<'_>, flags: OpFlags) -> Result {
        // SAFETY: passed on from the caller.
        let op = unsafe { self.flaw.changed(*op) };
        // SAFETY: passed on from the caller; what was changed is never freed.
        unsafe { op.post(below, flags) }
    }

    /// Posts a send after the next one.
    unsafe fn swap(&self, below: &dyn Endpoint, op: &Op<'_>, flags: OpFlags) -> Result {
        // SAFETY: passed on from the caller.
        let op = sending(op, unsafe { copied(pieces(op)) });
        let mut held = lock(&self.held);
        let Some((first, first_flags)) = held.take() else {
            *held = Some((op, flags));
            return Ok(());
        };
        // SAFETY: the bytes are never freed.
        if let Err(errno) = unsafe { op.post(below, flags) } {
            *held = Some((first, first_flags));
            return Err(errno);
        }
        // A queue that is full loses it: that is a defect, too.
        // SAFETY: as above.
        let _ = unsafe { first.post(below, first_flags) };
        Ok(())
    }

    /// Sends at the next read of the queue, out of the caller's buffer.
    unsafe fn send_late(&self, op: &Op<'_>, flags: OpFlags) -> Result {
        // SAFETY: the test that this is for keeps the buffer and changes it.
        let op = sending(op, unsafe { lent(pieces(op)) });
        let below = Arc::clone(&self.below);
        let send = move || {
            // It is lost if the queue is full: a defect, too.
            // SAFETY: as above.
            let _ = unsafe { op.post(&*below, flags) };
        };
        match &self.queue {
            Some(queue) => queue.later(Box::new(send)),
            None => send(),
        }
        Ok(())
    }

    /// Sends, and sends once more what was sent.
    unsafe fn send_twice(&self, below: &dyn Endpoint, op: &Op<'_>, flags: OpFlags) -> Result {
        // SAFETY: passed on from the caller.
        unsafe { op.post(below, flags)? };
        // SAFETY: passed on from the caller.
        let buf = unsafe { copied(pieces(op)) };
        let data = |data| flags.contains(OpFlags::REMOTE_CQ_DATA).then_some(data);
        // Where there is no room for the second one, the defect is not there.
        let _ = match *op {
            Op::Send(msg) => below.inject(buf, msg.dest, data(msg.data)),
            Op::TaggedSend(msg) => below.tinject(buf, msg.dest, msg.tag, data(msg.data)),
            // SAFETY: an inject, which asks for no promise.
            _ => unsafe { op.post(below, flags) },
        };
        Ok(())
    }

    /// Atomics with a defect that is more than another operation.
    unsafe fn atomic(&self, below: &dyn Endpoint, op: &Op<'_>, flags: OpFlags) -> Result {
        match (self.flaw, *op) {
            (Flaw::NoAtomics, Op::InjectAtomic { .. }) => Ok(()),
            (Flaw::NoAtomics, Op::Atomic(msg)) => {
                let count: usize = msg.iov.iter().map(|ioc| ioc.count).sum();
                // Sixteen-byte elements want to be aligned.
                let zeros: &'static [u128] =
                    vec![0; (count * msg.datatype.size()).div_ceil(16)].leak();
                let op = Op::Atomic(AtomicMsg {
                    iov: &[Ioc::from_raw(zeros.as_ptr().cast(), count)],
                    op: atomic::Op::Sum,
                    ..msg
                });
                // SAFETY: the zeros are never freed.
                unsafe { op.post(below, flags) }
            }
            (Flaw::NoAtomics, Op::FetchAtomic(msg, to) | Op::CompareAtomic(msg, _, to)) => {
                let msg = AtomicMsg {
                    iov: &[],
                    op: atomic::Op::AtomicRead,
                    ..msg
                };
                let op = Op::FetchAtomic(msg, Fetched { desc: &[], ..to });
                // SAFETY: the caller's promise for what is fetched.
                unsafe { op.post(below, flags) }
            }
            (Flaw::FetchesNothing, Op::FetchAtomic(msg, to)) => {
                let op = Op::FetchAtomic(msg, nowhere(&msg, to));
                // SAFETY: the caller's promise, and memory that is never freed.
                unsafe { op.post(below, flags) }
            }
            (Flaw::FetchesNothing, Op::CompareAtomic(msg, with, to)) => {
                let op = Op::CompareAtomic(msg, with, nowhere(&msg, to));
                // SAFETY: as above.
                unsafe { op.post(below, flags) }
            }
            (Flaw::TwiceAtomics, Op::InjectAtomic { .. }) => {
                // SAFETY: an inject asks for no promise.
                unsafe { op.post(below, flags)? };
                // SAFETY: as above.
                unsafe { op.post(below, flags) }
            }
            (Flaw::TwiceAtomics, Op::Atomic(msg) | Op::FetchAtomic(msg, _))
                if msg.op != atomic::Op::AtomicRead =>
            {
                // SAFETY: passed on from the caller.
                for once in unsafe { as_injects(&msg) } {
                    // SAFETY: an inject asks for no promise.
                    unsafe { once.post(below, OpFlags::empty())? };
                }
                // SAFETY: passed on from the caller.
                unsafe { op.post(below, flags) }
            }
            // SAFETY: passed on from the caller.
            _ => unsafe { self.pass(below, op, flags) },
        }
    }
}

/// Memory that nobody sees in the place of what an atomic fetches into.
fn nowhere<'a>(msg: &AtomicMsg<'_>, to: Fetched<'a>) -> Fetched<'a> {
    Fetched {
        iov: elsewhere(to.iov, msg.datatype.size()),
        desc: &[],
    }
}

impl ObjectLayer for FlawedEndpoint {
    type Layers = Flaw;
}

// SAFETY: as the endpoint below, or a defect in what messages hold. Bytes that it changes are
// copies that are never freed.
unsafe impl EndpointLayer for FlawedEndpoint {
    unsafe fn post(&self, below: &dyn Endpoint, op: &Op<'_>, flags: OpFlags) -> Result {
        let own = self.flags(op, flags);
        let is_injected = matches!(
            op,
            Op::Inject { .. }
                | Op::TaggedInject { .. }
                | Op::InjectWrite { .. }
                | Op::InjectAtomic { .. }
        );
        match (self.flaw, op) {
            (Flaw::ForgetsInjects, _) if is_injected => Ok(()),
            (Flaw::InjectsAnySize, Op::Inject { buf, .. } | Op::TaggedInject { buf, .. })
                if buf.len() > self.inject_size =>
            {
                Ok(())
            }
            (Flaw::ReadsInjectLate, Op::Send(_) | Op::TaggedSend(_))
                if flags.contains(OpFlags::INJECT) =>
            {
                // SAFETY: passed on from the caller.
                unsafe { self.send_late(op, own) }
            }
            (
                Flaw::SendsTwice,
                Op::Send(_) | Op::TaggedSend(_) | Op::Inject { .. } | Op::TaggedInject { .. },
            ) => {
                // SAFETY: passed on from the caller.
                unsafe { self.send_twice(below, op, own) }
            }
            (Flaw::LosesFirst, Op::Send(_) | Op::TaggedSend(_))
                if !self.has_sent.swap(true, Ordering::Relaxed) =>
            {
                self.invent(op)
            }
            (Flaw::SwapsSends, Op::Send(_) | Op::TaggedSend(_)) => {
                // SAFETY: passed on from the caller.
                unsafe { self.swap(below, op, own) }
            }
            (Flaw::ServesChildren, Op::Send(_) | Op::TaggedSend(_))
                if self.process != std::process::id() =>
            {
                Ok(())
            }
            (Flaw::SharesOwn, Op::Recv(_)) => match &self.srx {
                // SAFETY: passed on from the caller.
                Some(srx) => unsafe { op.post_shared(&**srx, flags) },
                // SAFETY: as above.
                None => unsafe { self.pass(below, op, own) },
            },
            (Flaw::HurriesCollectives, Op::Collective(_)) => self.invent(op),
            (Flaw::MixesGroups, &Op::Collective(mut msg)) => {
                msg.group = lock(&self.group).unwrap_or(msg.group);
                // SAFETY: passed on from the caller.
                unsafe { Op::Collective(msg).post(below, own) }
            }
            // SAFETY: passed on from the caller.
            _ => unsafe { self.atomic(below, op, own) },
        }
    }

    fn bind_late(&self, below: &dyn Endpoint, late: &LateBindings) -> Result<(), Error> {
        let bound = below.bind_late(&Flaw::late_bindings(late));
        mixed(self.flaw, bound, || Ok(()))
    }

    fn cancel(&self, below: &dyn Endpoint, context: Context) -> Result {
        match self.flaw {
            Flaw::CancelsNothing => Ok(()),
            Flaw::DeniesCancel => below.cancel(context).and(Err(Errno::NoEnt)),
            _ => below.cancel(context),
        }
    }

    fn set(&self, below: &dyn Endpoint, option: EpOption) -> Result {
        match self.flaw {
            Flaw::ForgetsOptions => Ok(()),
            _ => below.set(option),
        }
    }

    fn valid(
        &self,
        below: &dyn Endpoint,
        family: Family,
        datatype: Datatype,
        op: atomic::Op,
    ) -> Result<atomic::Attr> {
        match self.flaw {
            Flaw::DeniesAtomics => Err(Errno::OpNotSupp),
            _ => below.valid(family, datatype, op),
        }
    }

    fn join_collective(
        &self,
        below: &dyn Endpoint,
        set: &av::Set,
        context: Context,
    ) -> Result<Arc<dyn Membership>> {
        let joined = below.collective().ok_or(Errno::NoSys)?.join(set, context)?;
        *lock(&self.group) = Some(joined.addr());
        Ok(joined)
    }

    fn shutdown(&self, below: &dyn ConnectionManagement) -> Result {
        match self.flaw {
            Flaw::NeverShutsDown => Ok(()),
            _ => below.shutdown(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
