//! Deferred work of a domain: operations that wait for a counter.

#![expect(unsafe_code, reason = "structures of C")]

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use selvedge::rma::{ReadMsg, WriteMsg};
use selvedge::trigger::{Action, CompletionTarget, Work, WorkId};
use selvedge::{Domain, Errno, Op, Result, msg, tagged};
use selvedge_abi as abi;
use selvedge_abi::{DeferredWork, number};

use super::atomic::{Atomic, Lists, base_lists, compare_lists, fetch_lists};
use super::lists;
use super::message::{Buffers, Message, Operation, buffer_list};
use super::trigger::counter;
use crate::ep::endpoint::Ep;
use crate::object::argument;
use crate::pointer::required;
use crate::status::log_error;

/// The queued work of a domain, by the addresses of the structures that describe it.
#[derive(Debug, Default)]
pub(crate) struct QueuedWork(Mutex<HashMap<usize, WorkId>>);

impl QueuedWork {
    fn lock(&self) -> MutexGuard<'_, HashMap<usize, WorkId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// fi_control(3) of domains: queues, cancels and flushes deferred work.
    ///
    /// # Errors
    /// [`Errno::NoSys`] for other commands; the errors of the domain's deferred work.
    ///
    /// # Safety
    /// The caller follows fi_trigger(3).
    pub(crate) unsafe fn control(
        &self,
        domain: &dyn Domain,
        command: c_int,
        arg: *mut c_void,
    ) -> Result {
        match command {
            // SAFETY: passed on from the caller.
            number::control::QUEUE_WORK => unsafe { self.queue(domain, arg.cast_const().cast()) },
            number::control::CANCEL_WORK => {
                let id = self.lock().remove(&arg.addr());
                domain.cancel_work(id.ok_or(Errno::NoEnt)?)
            }
            number::control::FLUSH_WORK if arg.is_null() => {
                self.lock().clear();
                domain.flush_work(None)
            }
            number::control::FLUSH_WORK => {
                // SAFETY: passed on from the caller.
                let cntr = unsafe { counter(arg.cast()) }?;
                domain.flush_work(Some(&cntr.inner))
            }
            _ => Err(Errno::NoSys),
        }
    }

    /// # Safety
    /// `work` is NULL or points to work whose pointers are valid.
    unsafe fn queue(&self, domain: &dyn Domain, work: *const DeferredWork) -> Result {
        // SAFETY: passed on from the caller.
        let request = unsafe { required(work) }?;
        // SAFETY: passed on from the caller.
        let cntr = unsafe { counter(request.triggering_cntr) }?;
        let completion = if request.completion_cntr.is_null() {
            None
        } else {
            // SAFETY: passed on from the caller.
            Some(&unsafe { counter(request.completion_cntr) }?.inner)
        };
        let action = match request.op_type {
            number::work::CNTR_SET | number::work::CNTR_ADD => match completion {
                Some(_) => return Err(Errno::Inval),
                // SAFETY: passed on from the caller.
                None => unsafe { counter_change(request) }?,
            },
            _ => {
                // SAFETY: passed on from the caller.
                let (ep, op, flags) = unsafe { read_operation(request) }?;
                Action::Post {
                    ep: ep.first_use()?,
                    op,
                    flags: lists::flags(flags)?,
                    done: CompletionTarget::Counter(completion),
                }
            }
        };
        let queued_work = Work {
            cntr: &cntr.inner,
            threshold: request.threshold,
            action,
        };
        // SAFETY: passed on from the caller.
        let id = unsafe { domain.queue_work(&queued_work) }.map_err(|error| log_error(&error))?;
        self.lock().insert(work.addr(), id);
        Ok(())
    }
}

/// The endpoint, operation and flags of deferred work that posts.
type PostedWork<'a> = (&'a Ep, Op<'a>, u64);

/// Reads deferred work. Each entry is a kind of work, the type of the structure that `op` points
/// to, and the conversion of that structure to an operation.
macro_rules! operations {
    ($work:ident: $($kind:ident => $msg_c:ty, |$request:ident| $op:expr;)+) => {
        match $work.op_type {
            $(number::work::$kind => {
                // SAFETY: passed on from the caller, here and below.
                let $request: &'a $msg_c = unsafe { required($work.op.cast()) }?;
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
/// As [`QueuedWork::queue`].
unsafe fn read_operation<'a>(work: &'a DeferredWork) -> Result<PostedWork<'a>> {
    operations! { work:
        SEND => abi::OpMsg, |request| op::<msg::SendMsg<'_>>(&request.msg);
        RECV => abi::OpMsg, |request| op::<msg::RecvMsg<'_>>(&request.msg);
        TSEND => abi::OpTagged, |request| op::<tagged::SendMsg<'_>>(&request.msg);
        TRECV => abi::OpTagged, |request| op::<tagged::RecvMsg<'_>>(&request.msg);
        READ => abi::OpRma, |request| op::<ReadMsg<'_>>(&request.msg);
        WRITE => abi::OpRma, |request| op::<WriteMsg<'_>>(&request.msg);
        ATOMIC => abi::OpAtomic, |request| atomic_op(&request.msg, base_lists());
        FETCH_ATOMIC => abi::OpFetchAtomic, |request| {
            atomic_op(&request.msg, fetch_lists(elements(&request.fetch)))
        };
        COMPARE_ATOMIC => abi::OpCompareAtomic, |request| {
            let (comparands, result) = (elements(&request.compare), elements(&request.fetch));
            atomic_op(&request.msg, compare_lists(comparands, result))
        };
    }
}

/// # Safety
/// As [`Message::read`].
unsafe fn op<'a, M: Message<'a>>(msg_c: &'a M::Struct) -> Result<Op<'a>> {
    // SAFETY: passed on from the caller.
    unsafe { M::read(msg_c) }.map(|msg| msg.op())
}

/// # Safety
/// As [`Atomic::read`].
unsafe fn atomic_op<'a>(msg_c: &'a abi::MsgAtomic, lists: Lists<'a>) -> Result<Op<'a>> {
    // SAFETY: passed on from the caller.
    unsafe { Atomic::read(msg_c, lists) }.map(|atomic| atomic.op())
}

const fn elements(msg_c: &abi::MsgElements) -> Buffers<'_, abi::Ioc> {
    buffer_list(msg_c.msg_iov, msg_c.desc, msg_c.iov_count)
}

/// Deferred work that changes a counter.
///
/// # Safety
/// As [`QueuedWork::queue`].
unsafe fn counter_change<'a>(work: &'a DeferredWork) -> Result<Action<'a>> {
    // SAFETY: passed on from the caller, here and below.
    let request: &'a abi::OpCntrChange = unsafe { required(work.op.cast()) }?;
    // SAFETY: as above.
    let cntr = unsafe { counter(request.cntr) }?;
    Ok(match work.op_type {
        number::work::CNTR_SET => Action::Set(&cntr.inner, request.value),
        _ => Action::Add(&cntr.inner, request.value),
    })
}
