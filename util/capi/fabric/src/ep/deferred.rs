//! Operations that wait for a counter: posts with `FI_TRIGGER`, and deferred work of a domain.

#![expect(unsafe_code, reason = "structures of C")]

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use selvedge::rma::{ReadMsg, WriteMsg};
use selvedge::trigger::{Action, CompletionTarget, Work, WorkId};
use selvedge::{Errno, Op, OpFlags, Result, msg, tagged};
use selvedge_abi as abi;
use selvedge_abi::{DeferredWork, FidCntr, TriggeredContext, number};

use super::atomic::{Atomic, BASE, Lists, compare, fetch};
use super::post::{Buffers, Message, Operation, list};
use super::{Ep, lists};
use crate::cntr::Cntr;
use crate::domain::Domain;
use crate::object::{Object, argument};
use crate::pointer::required;
use crate::status::log_error;

/// The result of a post. A post with `FI_TRIGGER` that the provider fails with `FI_EBADFLAGS` is
/// queued, and the result is that of queueing.
///
/// # Safety
/// As the post.
#[inline(always)]
pub(super) unsafe fn or_trigger<'a>(
    ep: &Ep,
    result: Result,
    flags: OpFlags,
    op: impl FnOnce() -> Op<'a>,
) -> Result {
    match result {
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
        // SAFETY: fi_trigger(3): with FI_TRIGGER the context is a `struct fi_triggered_context`.
        let when = *unsafe { required(context) }?;
        if when.event_type != number::TRIGGER_THRESHOLD {
            return Err(Errno::NoSys);
        }
        // SAFETY: passed on from the caller.
        let cntr = unsafe { counter(when.cntr) }?;
        let work = Work {
            cntr: &cntr.inner,
            threshold: when.threshold as u64,
            action: Action::Post {
                ep,
                op,
                flags: flags.difference(OpFlags::TRIGGER),
                done: CompletionTarget::Endpoint,
            },
        };
        // SAFETY: passed on from the caller.
        let queued = unsafe { self.shared.domain.queue_work(&work) };
        queued.map(drop).map_err(|error| log_error(&error))
    }
}

/// # Safety
/// `cntr` is NULL or a handle.
unsafe fn counter<'a>(cntr: *mut FidCntr) -> Result<&'a Object<Cntr>> {
    // SAFETY: passed on from the caller; handles begin with their fid.
    unsafe { argument(cntr.cast_const().cast()) }
}

/// The queued work of a domain, by the addresses of the structures that describe it.
#[derive(Debug, Default)]
pub(crate) struct Queued(Mutex<HashMap<usize, WorkId>>);

impl Queued {
    fn all(&self) -> MutexGuard<'_, HashMap<usize, WorkId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `control` of domains.
///
/// # Errors
/// [`Errno::NoSys`] for other commands; those of the domain's deferred work.
///
/// # Safety
/// The caller follows fi_trigger(3).
pub(crate) unsafe fn control(domain: &Domain, command: c_int, arg: *mut c_void) -> Result {
    match command {
        // SAFETY: passed on from the caller.
        number::control::QUEUE_WORK => unsafe { queue(domain, arg.cast_const().cast()) },
        number::control::CANCEL_WORK => {
            let id = domain.queued.all().remove(&arg.addr());
            domain.inner.cancel_work(id.ok_or(Errno::NoEnt)?)
        }
        number::control::FLUSH_WORK if arg.is_null() => {
            domain.queued.all().clear();
            domain.inner.flush_work(None)
        }
        number::control::FLUSH_WORK => {
            // SAFETY: passed on from the caller.
            let cntr = unsafe { counter(arg.cast()) }?;
            domain.inner.flush_work(Some(&cntr.inner))
        }
        _ => Err(Errno::NoSys),
    }
}

/// # Safety
/// `work` is NULL or points to work whose pointers are valid.
unsafe fn queue(domain: &Domain, work: *const DeferredWork) -> Result {
    // SAFETY: passed on from the caller.
    let request = unsafe { required(work) }?;
    // SAFETY: passed on from the caller.
    let cntr = unsafe { counter(request.triggering_cntr) }?;
    let completion = match request.completion_cntr.is_null() {
        true => None,
        // SAFETY: passed on from the caller.
        false => Some(&unsafe { counter(request.completion_cntr) }?.inner),
    };
    let action = match request.op_type {
        number::work::CNTR_SET | number::work::CNTR_ADD => match completion {
            Some(_) => return Err(Errno::Inval),
            // SAFETY: passed on from the caller.
            None => unsafe { change(request) }?,
        },
        _ => {
            // SAFETY: passed on from the caller.
            let (ep, op, flags) = unsafe { operation(request) }?;
            Action::Post {
                ep: ep.first_use()?,
                op,
                flags: lists::flags(flags)?,
                done: CompletionTarget::Counter(completion),
            }
        }
    };
    let queued = Work {
        cntr: &cntr.inner,
        threshold: request.threshold,
        action,
    };
    // SAFETY: passed on from the caller.
    let id = unsafe { domain.inner.queue_work(&queued) }.map_err(|error| log_error(&error))?;
    domain.queued.all().insert(work.addr(), id);
    Ok(())
}

/// The endpoint, operation and flags of deferred work that posts.
type Posted<'a> = (&'a Ep, Op<'a>, u64);

/// Reads deferred work. Each entry is a kind with the structure that `op` points to, and its
/// conversion to an operation.
macro_rules! operations {
    ($work:ident: $($kind:ident => $given:ty, |$request:ident| $op:expr;)+) => {
        match $work.op_type {
            $(number::work::$kind => {
                // SAFETY: passed on from the caller, here and below.
                let $request: &'a $given = unsafe { required($work.op.cast()) }?;
                // SAFETY: as above.
                let op = unsafe { $op }?;
                // SAFETY: as above; handles begin with their fid.
                let ep = unsafe { argument::<Ep>($request.ep.cast_const().cast()) }?;
                Ok((&**ep, op, $request.flags))
            })+
            _ => Err(Errno::NoSys),
        }
    };
}

/// The operation of deferred work that posts.
///
/// # Errors
/// [`Errno::NoSys`] for other kinds of work; [`Errno::Inval`] for NULL.
///
/// # Safety
/// As [`queue`].
unsafe fn operation<'a>(work: &'a DeferredWork) -> Result<Posted<'a>> {
    operations! { work:
        SEND => abi::OpMsg, |request| op::<msg::SendMsg<'_>>(&request.msg);
        RECV => abi::OpMsg, |request| op::<msg::RecvMsg<'_>>(&request.msg);
        TSEND => abi::OpTagged, |request| op::<tagged::SendMsg<'_>>(&request.msg);
        TRECV => abi::OpTagged, |request| op::<tagged::RecvMsg<'_>>(&request.msg);
        READ => abi::OpRma, |request| op::<ReadMsg<'_>>(&request.msg);
        WRITE => abi::OpRma, |request| op::<WriteMsg<'_>>(&request.msg);
        ATOMIC => abi::OpAtomic, |request| atomic_op(&request.msg, BASE);
        FETCH_ATOMIC => abi::OpFetchAtomic, |request| {
            atomic_op(&request.msg, fetch(elements(&request.fetch)))
        };
        COMPARE_ATOMIC => abi::OpCompareAtomic, |request| {
            let (with, result) = (elements(&request.compare), elements(&request.fetch));
            atomic_op(&request.msg, compare(with, result))
        };
    }
}

/// # Safety
/// As [`Message::read`].
unsafe fn op<'a, M: Message<'a>>(given: &'a M::Given) -> Result<Op<'a>> {
    // SAFETY: passed on from the caller.
    unsafe { M::read(given) }.map(|msg| msg.op())
}

/// # Safety
/// As [`Atomic::read`].
unsafe fn atomic_op<'a>(given: &'a abi::MsgAtomic, lists: Lists<'a>) -> Result<Op<'a>> {
    // SAFETY: passed on from the caller.
    unsafe { Atomic::read(given, lists) }.map(|atomic| atomic.op())
}

const fn elements(given: &abi::MsgElements) -> Buffers<'_, abi::Ioc> {
    list(given.msg_iov, given.desc, given.iov_count)
}

/// Deferred work that changes a counter.
///
/// # Safety
/// As [`queue`].
unsafe fn change<'a>(work: &'a DeferredWork) -> Result<Action<'a>> {
    // SAFETY: passed on from the caller, here and below.
    let request: &'a abi::OpCntrChange = unsafe { required(work.op.cast()) }?;
    // SAFETY: as above.
    let cntr = unsafe { counter(request.cntr) }?;
    Ok(match work.op_type {
        number::work::CNTR_SET => Action::Set(&cntr.inner, request.value),
        _ => Action::Add(&cntr.inner, request.value),
    })
}
