//! What waits for a counter: posts with `FI_TRIGGER`, and deferred work of a domain.

#![expect(unsafe_code, reason = "structures of C")]

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use selvedge::atomic::{self, AtomicMsg, Datatype};
use selvedge::op::{Compared, Fetched};
use selvedge::rma::{ReadMsg, WriteMsg};
use selvedge::trigger::{Action, Done, Ticket, Work};
use selvedge::{Errno, FiAddr, Op, OpFlags, Result, TagMatch, msg, tagged};
use selvedge_abi as abi;
use selvedge_abi::{DeferredWork, Fid, FidCntr, FidEp, TriggeredContext, number};

use super::{Ep, lists};
use crate::answer::{done, told};
use crate::cntr::Cntr;
use crate::domain::Domain;
use crate::given::given;
use crate::object::{argument, of_own_fid};

/// The answer to a post; or, if the provider has refused it because it is to be triggered, that to
/// queueing it.
///
/// # Safety
/// As the post.
#[inline(always)]
pub(super) unsafe fn or_later<'a>(
    ep: &Ep,
    answer: Result,
    flags: OpFlags,
    op: impl FnOnce() -> Op<'a>,
) -> Result {
    match answer {
        Ok(()) => Ok(()),
        Err(Errno::BadFlags) if flags.contains(OpFlags::TRIGGER) => {
            // SAFETY: passed on from the caller.
            unsafe { ep.trigger(op(), flags) }
        }
        Err(errno) => Err(errno),
    }
}

impl Ep {
    /// Queues a post whose context is a `struct fi_triggered_context`.
    ///
    /// # Safety
    /// As the post.
    #[cold]
    unsafe fn trigger(&self, op: Op<'_>, flags: OpFlags) -> Result {
        let ep = self.first_use()?;
        let context = usize::try_from(op.context().0).map_err(|_| Errno::Inval)?;
        let context: *const TriggeredContext = ptr::with_exposed_provenance(context);
        // SAFETY: fi_trigger(3): with FI_TRIGGER the context is such a structure.
        let when = *unsafe { given(context) }?;
        if when.event_type != number::TRIGGER_THRESHOLD {
            return Err(Errno::NoSys);
        }
        // SAFETY: passed on from the caller.
        let cntr = unsafe { counter(when.cntr) }?;
        let work = Work {
            cntr: &cntr.own,
            threshold: when.threshold as u64,
            action: Action::Post {
                ep,
                op,
                flags: flags.difference(OpFlags::TRIGGER),
                done: Done::Endpoint,
            },
        };
        // SAFETY: passed on from the caller.
        let queued = unsafe { self.shared.domain.queue_work(&work) };
        queued.map(drop).map_err(|error| told(&error))
    }
}

/// # Safety
/// `cntr` is NULL or a handle.
unsafe fn counter<'a>(cntr: *mut FidCntr) -> Result<&'a Cntr> {
    // SAFETY: passed on from the caller; handles begin with their fid.
    unsafe { argument(cntr.cast_const().cast()) }
}

/// The work that a domain has been given, by the structures that name it.
#[derive(Debug, Default)]
pub(crate) struct Queued(Mutex<HashMap<usize, Ticket>>);

impl Queued {
    fn all(&self) -> MutexGuard<'_, HashMap<usize, Ticket>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `control` of domains.
///
/// # Safety
/// As fi_trigger(3) has it.
pub(crate) unsafe extern "C" fn control(fid: *mut Fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: passed on from the caller.
    let domain: &Domain = unsafe { of_own_fid(fid) };
    done(|| match command {
        // SAFETY: passed on from the caller.
        number::control::QUEUE_WORK => unsafe { queue(domain, arg.cast_const().cast()) },
        number::control::CANCEL_WORK => {
            let ticket = domain.queued.all().remove(&arg.addr());
            domain.own.cancel_work(ticket.ok_or(Errno::NoEnt)?)
        }
        number::control::FLUSH_WORK if arg.is_null() => {
            domain.queued.all().clear();
            domain.own.flush_work(None)
        }
        number::control::FLUSH_WORK => {
            // SAFETY: passed on from the caller.
            let cntr = unsafe { counter(arg.cast()) }?;
            domain.own.flush_work(Some(&cntr.own))
        }
        _ => Err(Errno::NoSys),
    })
}

/// # Safety
/// `work` is NULL or names work, with all that it names in turn.
unsafe fn queue(domain: &Domain, work: *const DeferredWork) -> Result {
    // SAFETY: passed on from the caller.
    let asked = unsafe { given(work) }?;
    // SAFETY: passed on from the caller.
    let cntr = unsafe { counter(asked.triggering_cntr) }?;
    let completion = match asked.completion_cntr.is_null() {
        true => None,
        // SAFETY: passed on from the caller.
        false => Some(&unsafe { counter(asked.completion_cntr) }?.own),
    };
    let done = Done::Counter(completion);
    let (kind, at) = (asked.op_type, asked.op);
    let action = match kind {
        number::work::SEND | number::work::RECV => {
            // SAFETY: passed on from the caller, here and below.
            unsafe { message(at.cast(), kind == number::work::SEND, done) }
        }
        number::work::TSEND | number::work::TRECV => {
            // SAFETY: as above.
            unsafe { tagged(at.cast(), kind == number::work::TSEND, done) }
        }
        number::work::READ | number::work::WRITE => {
            // SAFETY: as above.
            unsafe { access(at.cast(), kind == number::work::WRITE, done) }
        }
        // SAFETY: as above.
        number::work::ATOMIC => unsafe { atomic(at.cast(), done) },
        // SAFETY: as above.
        number::work::FETCH_ATOMIC => unsafe { fetch_atomic(at.cast(), done) },
        // SAFETY: as above.
        number::work::COMPARE_ATOMIC => unsafe { compare_atomic(at.cast(), done) },
        number::work::CNTR_SET | number::work::CNTR_ADD if completion.is_some() => {
            Err(Errno::Inval)
        }
        // SAFETY: as above.
        number::work::CNTR_SET => unsafe { change(at.cast(), Action::Set) },
        // SAFETY: as above.
        number::work::CNTR_ADD => unsafe { change(at.cast(), Action::Add) },
        _ => Err(Errno::NoSys),
    }?;
    let queued = Work {
        cntr: &cntr.own,
        threshold: asked.threshold,
        action,
    };
    // SAFETY: passed on from the caller.
    let ticket = unsafe { domain.own.queue_work(&queued) }.map_err(|error| told(&error))?;
    domain.queued.all().insert(work.addr(), ticket);
    Ok(())
}

/// # Safety
/// `ep` is NULL or a handle.
unsafe fn post<'a>(ep: *mut FidEp, op: Op<'a>, flags: u64, done: Done<'a>) -> Result<Action<'a>> {
    // SAFETY: passed on from the caller; handles begin with their fid.
    let ep: &'a Ep = unsafe { Ep::any(ep.cast_const().cast()) }?;
    let ep = ep.first_use()?;
    let flags = lists::flags(flags)?;
    Ok(Action::Post {
        ep,
        op,
        flags,
        done,
    })
}

/// # Safety
/// `op` is NULL or names an operation, with all that it names in turn.
unsafe fn message<'a>(op: *const abi::OpMsg, sends: bool, done: Done<'a>) -> Result<Action<'a>> {
    // SAFETY: passed on from the caller, here and below.
    let asked: &'a abi::OpMsg = unsafe { given(op) }?;
    let (at, count) = (asked.msg.msg_iov, asked.msg.iov_count);
    // SAFETY: as above.
    let desc = unsafe { lists::descs(asked.msg.desc, count) }?;
    let (peer, context) = (FiAddr(asked.msg.addr), lists::context(asked.msg.context));
    let op = match sends {
        true => Op::Send(msg::SendMsg {
            // SAFETY: as above.
            iov: unsafe { lists::iov(at, count) }?,
            desc,
            dest: peer,
            context,
            data: asked.msg.data,
        }),
        false => Op::Recv(msg::RecvMsg {
            // SAFETY: as above.
            iov: unsafe { lists::iov_room(at, count) }?,
            desc,
            src: peer,
            context,
        }),
    };
    // SAFETY: as above.
    unsafe { post(asked.ep, op, asked.flags, done) }
}

/// # Safety
/// As [`message`].
unsafe fn tagged<'a>(op: *const abi::OpTagged, sends: bool, done: Done<'a>) -> Result<Action<'a>> {
    // SAFETY: passed on from the caller, here and below.
    let asked: &'a abi::OpTagged = unsafe { given(op) }?;
    let (at, count) = (asked.msg.msg_iov, asked.msg.iov_count);
    // SAFETY: as above.
    let desc = unsafe { lists::descs(asked.msg.desc, count) }?;
    let (peer, context) = (FiAddr(asked.msg.addr), lists::context(asked.msg.context));
    let (tag, ignore) = (asked.msg.tag, asked.msg.ignore);
    let op = match sends {
        true => Op::TaggedSend(tagged::SendMsg {
            // SAFETY: as above.
            iov: unsafe { lists::iov(at, count) }?,
            desc,
            dest: peer,
            tag,
            context,
            data: asked.msg.data,
        }),
        false => Op::TaggedRecv(tagged::RecvMsg {
            // SAFETY: as above.
            iov: unsafe { lists::iov_room(at, count) }?,
            desc,
            src: peer,
            tag: TagMatch { tag, ignore },
            context,
        }),
    };
    // SAFETY: as above.
    unsafe { post(asked.ep, op, asked.flags, done) }
}

/// # Safety
/// As [`message`].
unsafe fn access<'a>(op: *const abi::OpRma, writes: bool, done: Done<'a>) -> Result<Action<'a>> {
    // SAFETY: passed on from the caller, here and below.
    let asked: &'a abi::OpRma = unsafe { given(op) }?;
    let (at, count) = (asked.msg.msg_iov, asked.msg.iov_count);
    // SAFETY: as above.
    let desc = unsafe { lists::descs(asked.msg.desc, count) }?;
    // SAFETY: as above.
    let rma_iov = unsafe { lists::rma_iov(asked.msg.rma_iov, asked.msg.rma_iov_count) }?;
    let (peer, context) = (FiAddr(asked.msg.addr), lists::context(asked.msg.context));
    let op = match writes {
        true => Op::Write(WriteMsg {
            // SAFETY: as above.
            iov: unsafe { lists::iov(at, count) }?,
            desc,
            dest: peer,
            rma_iov,
            context,
            data: asked.msg.data,
        }),
        false => Op::Read(ReadMsg {
            // SAFETY: as above.
            iov: unsafe { lists::iov_mut(at, count) }?,
            desc,
            src: peer,
            rma_iov,
            context,
        }),
    };
    // SAFETY: as above.
    unsafe { post(asked.ep, op, asked.flags, done) }
}

/// # Safety
/// `msg` names all that it says.
unsafe fn atomic_msg(msg: &abi::MsgAtomic) -> Result<AtomicMsg<'_>> {
    let datatype = Datatype::from_raw(msg.datatype).ok_or(Errno::OpNotSupp)?;
    Ok(AtomicMsg {
        // SAFETY: passed on from the caller, here and below.
        iov: unsafe { lists::ioc(msg.msg_iov, msg.iov_count) }?,
        // SAFETY: as above.
        desc: unsafe { lists::descs(msg.desc, msg.iov_count) }?,
        dest: FiAddr(msg.addr),
        // SAFETY: as above.
        rma_iov: unsafe { lists::rma_ioc(msg.rma_iov, msg.rma_iov_count) }?,
        datatype,
        op: atomic::Op::from_raw(msg.op).ok_or(Errno::OpNotSupp)?,
        context: lists::context(msg.context),
        data: msg.data,
    })
}

/// # Safety
/// `to` names all that it says.
unsafe fn fetched(to: &abi::MsgElements) -> Result<Fetched<'_>> {
    Ok(Fetched {
        // SAFETY: passed on from the caller, here and below.
        iov: unsafe { lists::ioc_mut(to.msg_iov, to.iov_count) }?,
        // SAFETY: as above.
        desc: unsafe { lists::descs(to.desc, to.iov_count) }?,
    })
}

/// # Safety
/// As [`message`].
unsafe fn atomic<'a>(op: *const abi::OpAtomic, done: Done<'a>) -> Result<Action<'a>> {
    // SAFETY: passed on from the caller, here and below.
    let asked: &'a abi::OpAtomic = unsafe { given(op) }?;
    // SAFETY: as above.
    let op = Op::Atomic(unsafe { atomic_msg(&asked.msg) }?);
    // SAFETY: as above.
    unsafe { post(asked.ep, op, asked.flags, done) }
}

/// # Safety
/// As [`message`].
unsafe fn fetch_atomic<'a>(op: *const abi::OpFetchAtomic, done: Done<'a>) -> Result<Action<'a>> {
    // SAFETY: passed on from the caller, here and below.
    let asked: &'a abi::OpFetchAtomic = unsafe { given(op) }?;
    // SAFETY: as above.
    let msg = unsafe { atomic_msg(&asked.msg) }?;
    // SAFETY: as above.
    let to = unsafe { fetched(&asked.fetch) }?;
    let op = Op::FetchAtomic(msg, to);
    // SAFETY: as above.
    unsafe { post(asked.ep, op, asked.flags, done) }
}

/// # Safety
/// As [`message`].
unsafe fn compare_atomic<'a>(
    op: *const abi::OpCompareAtomic,
    done: Done<'a>,
) -> Result<Action<'a>> {
    // SAFETY: passed on from the caller, here and below.
    let asked: &'a abi::OpCompareAtomic = unsafe { given(op) }?;
    // SAFETY: as above.
    let msg = unsafe { atomic_msg(&asked.msg) }?;
    // SAFETY: as above.
    let to = unsafe { fetched(&asked.fetch) }?;
    let with = Compared {
        // SAFETY: as above.
        iov: unsafe { lists::ioc(asked.compare.msg_iov, asked.compare.iov_count) }?,
        // SAFETY: as above.
        desc: unsafe { lists::descs(asked.compare.desc, asked.compare.iov_count) }?,
    };
    let op = Op::CompareAtomic(msg, with, to);
    // SAFETY: as above.
    unsafe { post(asked.ep, op, asked.flags, done) }
}

/// # Safety
/// `op` is NULL or names a change of a counter.
unsafe fn change<'a>(
    op: *const abi::OpCntrChange,
    change: impl FnOnce(&'a std::sync::Arc<dyn selvedge::Counter>, u64) -> Action<'a>,
) -> Result<Action<'a>> {
    // SAFETY: passed on from the caller.
    let op = unsafe { given(op) }?;
    // SAFETY: as above.
    let cntr: &'a Cntr = unsafe { counter(op.cntr) }?;
    Ok(change(&cntr.own, op.value))
}
