//! Endpoints with a defect.

#![expect(unsafe_code, reason = "posts are passed on to the endpoint below")]

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

use super::hide_refusal::hide_refusal;
use super::kind::Defect;
use super::op::{as_injects, extended_borrow, leaked_copy, segments, send_of, unread_memory};
use super::queue::QueueState;

pub(crate) struct DefectiveEndpoint {
    defect: Defect,
    /// The endpoint below, for delayed sends.
    below: Arc<dyn Endpoint>,
    queue: Option<Arc<QueueState>>,
    inject_size: usize,
    /// A send that is held back until after the next one.
    delayed_send: Mutex<Option<(Op<'static>, OpFlags)>>,
    /// The process that has opened the endpoint.
    process: u32,
    srx: Option<Arc<dyn SharedReceives>>,
    has_sent: AtomicBool,
    /// The group that was joined last.
    group: Mutex<Option<FiAddr>>,
}

impl DefectiveEndpoint {
    /// Wraps an endpoint; `queue` is its completion queue, `srx` its shared receives.
    pub(super) fn wrap(
        below: Arc<dyn Endpoint>,
        defect: Defect,
        queue: Option<Arc<QueueState>>,
        inject_size: usize,
        srx: Option<Arc<dyn SharedReceives>>,
    ) -> Arc<Layered<dyn Endpoint, Self>> {
        if defect == Defect::NeverCloses {
            std::mem::forget(Arc::clone(&below));
        }
        let layer = Self {
            defect,
            below: Arc::clone(&below),
            queue,
            inject_size,
            delayed_send: Mutex::default(),
            process: std::process::id(),
            srx,
            has_sent: AtomicBool::new(false),
            group: Mutex::default(),
        };
        Layered::new(below, layer)
    }

    /// Returns the flags with which an operation is posted.
    fn flags(&self, op: &Op<'_>, flags: OpFlags) -> OpFlags {
        let valid = OpFlags::MULTI_RECV
            | OpFlags::REMOTE_CQ_DATA
            | OpFlags::PEEK
            | OpFlags::CLAIM
            | OpFlags::DISCARD
            | OpFlags::COMPLETION
            | OpFlags::INJECT
            | OpFlags::DEFAULT;
        match (self.defect, op) {
            (_, Op::Atomic(_) | Op::FetchAtomic(..) | Op::CompareAtomic(..)) => flags,
            (Defect::NoRemoteData, Op::Write(_)) => flags - OpFlags::REMOTE_CQ_DATA,
            (Defect::DeliversEarly, _) => flags - OpFlags::DELIVERY_COMPLETE,
            (Defect::IgnoresFences, _) => flags - OpFlags::FENCE,
            (Defect::AcceptsAnyFlag, _) => flags & valid,
            (Defect::PeekConsumes, _) if flags.contains(OpFlags::PEEK) => flags | OpFlags::DISCARD,
            (Defect::DiscardKeeps, _) => flags - OpFlags::DISCARD,
            (Defect::ClaimsNothing, _) => flags - OpFlags::CLAIM,
            _ => flags,
        }
    }

    /// Completes an operation that is not carried out.
    fn complete_without_posting(&self, op: &Op<'_>) -> Result {
        let entry = Entry {
            context: op.context(),
            flags: op.kind() & (CompletionFlags::SEND | CompletionFlags::COLLECTIVE),
            ..Entry::default()
        };
        self.queue.iter().for_each(|queue| queue.report(entry));
        Ok(())
    }

    /// Posts an operation, changed by the defect.
    unsafe fn post_changed(&self, below: &dyn Endpoint, op: &Op<'_>, flags: OpFlags) -> Result {
        // SAFETY: passed on from the caller.
        let op = unsafe { self.defect.changed(*op) };
        // SAFETY: passed on from the caller; changed bytes are never freed.
        unsafe { op.post(below, flags) }
    }

    /// Posts a send after the next one.
    unsafe fn post_after_next(&self, below: &dyn Endpoint, op: &Op<'_>, flags: OpFlags) -> Result {
        // SAFETY: passed on from the caller.
        let op = send_of(op, unsafe { leaked_copy(segments(op)) });
        let mut delayed_send = lock(&self.delayed_send);
        let Some((earlier, earlier_flags)) = delayed_send.take() else {
            *delayed_send = Some((op, flags));
            return Ok(());
        };
        // SAFETY: the bytes are never freed.
        if let Err(errno) = unsafe { op.post(below, flags) } {
            *delayed_send = Some((earlier, earlier_flags));
            return Err(errno);
        }
        // If the queue is full, the send is lost, which is also a defect. SAFETY: as above.
        let _ = unsafe { earlier.post(below, earlier_flags) };
        Ok(())
    }

    /// Sends at the next read of the queue, from the caller's buffer.
    unsafe fn send_late(&self, op: &Op<'_>, flags: OpFlags) -> Result {
        // SAFETY: the test of this defect keeps the buffer and changes it.
        let op = send_of(op, unsafe { extended_borrow(segments(op)) });
        let below = Arc::clone(&self.below);
        let send = move || {
            // If the queue is full, the send is lost, which is also a defect. SAFETY: as above.
            let _ = unsafe { op.post(&*below, flags) };
        };
        match &self.queue {
            Some(queue) => queue.defer(Box::new(send)),
            None => send(),
        }
        Ok(())
    }

    /// Sends a message twice.
    unsafe fn send_twice(&self, below: &dyn Endpoint, op: &Op<'_>, flags: OpFlags) -> Result {
        // SAFETY: passed on from the caller.
        unsafe { op.post(below, flags)? };
        // SAFETY: passed on from the caller.
        let buf = unsafe { leaked_copy(segments(op)) };
        let data = |data| flags.contains(OpFlags::REMOTE_CQ_DATA).then_some(data);
        // If there is no room for the second message, the defect has no effect.
        let _ = match *op {
            Op::Send(msg) => below.inject(buf, msg.dest, data(msg.data)),
            Op::TaggedSend(msg) => below.tinject(buf, msg.dest, msg.tag, data(msg.data)),
            // SAFETY: an inject requires no promise.
            _ => unsafe { op.post(below, flags) },
        };
        Ok(())
    }

    /// Posts an operation, with a defect of atomics if the operation is an atomic.
    unsafe fn post_with_atomic_defect(
        &self,
        below: &dyn Endpoint,
        op: &Op<'_>,
        flags: OpFlags,
    ) -> Result {
        match (self.defect, *op) {
            (Defect::NoAtomics, Op::InjectAtomic { .. }) => Ok(()),
            (Defect::NoAtomics, Op::Atomic(msg)) => {
                let count: usize = msg.iov.iter().map(|ioc| ioc.count).sum();
                // Sixteen-byte elements must be aligned.
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
            (
                Defect::NoAtomics,
                Op::FetchAtomic(msg, result) | Op::CompareAtomic(msg, _, result),
            ) => {
                let msg = AtomicMsg {
                    iov: &[],
                    op: atomic::Op::AtomicRead,
                    ..msg
                };
                let op = Op::FetchAtomic(
                    msg,
                    Fetched {
                        desc: &[],
                        ..result
                    },
                );
                // SAFETY: the caller's promise for the fetched memory.
                unsafe { op.post(below, flags) }
            }
            (Defect::FetchesNothing, Op::FetchAtomic(msg, result)) => {
                let op = Op::FetchAtomic(msg, discard_result(&msg, result));
                // SAFETY: the caller's promise, and memory that is never freed.
                unsafe { op.post(below, flags) }
            }
            (Defect::FetchesNothing, Op::CompareAtomic(msg, compare, result)) => {
                let op = Op::CompareAtomic(msg, compare, discard_result(&msg, result));
                // SAFETY: as above.
                unsafe { op.post(below, flags) }
            }
            (Defect::TwiceAtomics, Op::InjectAtomic { .. }) => {
                // SAFETY: an inject requires no promise.
                unsafe { op.post(below, flags)? };
                // SAFETY: as above.
                unsafe { op.post(below, flags) }
            }
            (Defect::TwiceAtomics, Op::Atomic(msg) | Op::FetchAtomic(msg, _))
                if msg.op != atomic::Op::AtomicRead =>
            {
                // SAFETY: passed on from the caller.
                for inject in unsafe { as_injects(&msg) } {
                    // SAFETY: an inject requires no promise.
                    unsafe { inject.post(below, OpFlags::empty())? };
                }
                // SAFETY: passed on from the caller.
                unsafe { op.post(below, flags) }
            }
            // SAFETY: passed on from the caller.
            _ => unsafe { self.post_changed(below, op, flags) },
        }
    }
}

/// Returns memory that no test reads, instead of the memory that an atomic fetches into.
fn discard_result<'a>(msg: &AtomicMsg<'_>, result: Fetched<'a>) -> Fetched<'a> {
    Fetched {
        iov: unread_memory(result.iov, msg.datatype.size()),
        desc: &[],
    }
}

impl ObjectLayer for DefectiveEndpoint {
    type Layers = Defect;
}

// SAFETY: the endpoint below keeps the promise; a defect changes the content of messages alone.
// Changed bytes are copies that are never freed.
unsafe impl EndpointLayer for DefectiveEndpoint {
    unsafe fn post(&self, below: &dyn Endpoint, op: &Op<'_>, flags: OpFlags) -> Result {
        let changed_flags = self.flags(op, flags);
        let is_injected = matches!(
            op,
            Op::Inject { .. }
                | Op::TaggedInject { .. }
                | Op::InjectWrite { .. }
                | Op::InjectAtomic { .. }
        );
        match (self.defect, op) {
            (Defect::DropsInjects, _) if is_injected => Ok(()),
            (Defect::InjectsAnySize, Op::Inject { buf, .. } | Op::TaggedInject { buf, .. })
                if buf.len() > self.inject_size =>
            {
                Ok(())
            }
            (Defect::ReadsInjectLate, Op::Send(_) | Op::TaggedSend(_))
                if flags.contains(OpFlags::INJECT) =>
            {
                // SAFETY: passed on from the caller.
                unsafe { self.send_late(op, changed_flags) }
            }
            (
                Defect::SendsTwice,
                Op::Send(_) | Op::TaggedSend(_) | Op::Inject { .. } | Op::TaggedInject { .. },
            ) => {
                // SAFETY: passed on from the caller.
                unsafe { self.send_twice(below, op, changed_flags) }
            }
            (Defect::DropsFirst, Op::Send(_) | Op::TaggedSend(_))
                if !self.has_sent.swap(true, Ordering::Relaxed) =>
            {
                self.complete_without_posting(op)
            }
            (Defect::SwapsSends, Op::Send(_) | Op::TaggedSend(_)) => {
                // SAFETY: passed on from the caller.
                unsafe { self.post_after_next(below, op, changed_flags) }
            }
            (Defect::AcceptsForkedCalls, Op::Send(_) | Op::TaggedSend(_))
                if self.process != std::process::id() =>
            {
                Ok(())
            }
            (Defect::SharesOwnReceives, Op::Recv(_)) => match &self.srx {
                // SAFETY: passed on from the caller.
                Some(srx) => unsafe { op.post_shared(&**srx, flags) },
                // SAFETY: as above.
                None => unsafe { self.post_changed(below, op, changed_flags) },
            },
            (Defect::CompletesCollectivesEarly, Op::Collective(_)) => {
                self.complete_without_posting(op)
            }
            (Defect::MixesGroups, &Op::Collective(mut msg)) => {
                msg.group = lock(&self.group).unwrap_or(msg.group);
                // SAFETY: passed on from the caller.
                unsafe { Op::Collective(msg).post(below, changed_flags) }
            }
            // SAFETY: passed on from the caller.
            _ => unsafe { self.post_with_atomic_defect(below, op, changed_flags) },
        }
    }

    fn bind_late(&self, below: &dyn Endpoint, late: &LateBindings) -> Result<(), Error> {
        let bound = below.bind_late(&Defect::late_bindings(late));
        hide_refusal(self.defect, bound, || Ok(()))
    }

    fn cancel(&self, below: &dyn Endpoint, context: Context) -> Result {
        match self.defect {
            Defect::CancelsNothing => Ok(()),
            Defect::DeniesCancel => below.cancel(context).and(Err(Errno::NoEnt)),
            _ => below.cancel(context),
        }
    }

    fn set(&self, below: &dyn Endpoint, option: EpOption) -> Result {
        match self.defect {
            Defect::IgnoresOptions => Ok(()),
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
        match self.defect {
            Defect::DeniesAtomics => Err(Errno::OpNotSupp),
            _ => below.valid(family, datatype, op),
        }
    }

    fn join_collective(
        &self,
        below: &dyn Endpoint,
        set: &av::Set,
        context: Context,
    ) -> Result<Arc<dyn Membership>> {
        let membership = below.collective().ok_or(Errno::NoSys)?.join(set, context)?;
        *lock(&self.group) = Some(membership.addr());
        Ok(membership)
    }

    fn shutdown(&self, below: &dyn ConnectionManagement) -> Result {
        match self.defect {
            Defect::NeverShutsDown => Ok(()),
            _ => below.shutdown(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
