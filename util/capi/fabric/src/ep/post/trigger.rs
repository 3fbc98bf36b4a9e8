//! Posts with `FI_TRIGGER`, which wait for a counter.

#![expect(unsafe_code, reason = "structures of C")]

use std::ptr;

use selvedge::trigger::{Action, CompletionTarget, Work};
use selvedge::{Errno, Op, OpFlags, Result};
use selvedge_abi::{FidCntr, TriggeredContext, number};

use crate::ep::endpoint::Ep;
use crate::object::{Object, argument};
use crate::pointer::required;
use crate::queue::cntr::Cntr;
use crate::status::log_error;

/// Returns the result of a post. Queues a post with `FI_TRIGGER` that the provider fails with
/// `FI_EBADFLAGS`, and returns the result of queueing it.
///
/// # Safety
/// As the post.
#[inline(always)]
pub(crate) unsafe fn queue_if_triggered<'a>(
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
        // SAFETY: by fi_trigger(3), with FI_TRIGGER the context is a `struct fi_triggered_context`.
        let trigger = *unsafe { required(context) }?;
        if trigger.event_type != number::TRIGGER_THRESHOLD {
            return Err(Errno::NoSys);
        }
        // SAFETY: passed on from the caller.
        let cntr = unsafe { counter(trigger.cntr) }?;
        let work = Work {
            cntr: &cntr.inner,
            threshold: trigger.threshold as u64,
            action: Action::Post {
                ep,
                op,
                flags: flags.difference(OpFlags::TRIGGER),
                done: CompletionTarget::Endpoint,
            },
        };
        // SAFETY: passed on from the caller.
        let queued_work = unsafe { self.shared.domain.queue_work(&work) };
        queued_work.map(drop).map_err(|error| log_error(&error))
    }
}

/// The counter of a handle.
///
/// # Errors
/// As [`argument`].
///
/// # Safety
/// `cntr` is NULL or a handle.
pub(crate) unsafe fn counter<'a>(cntr: *mut FidCntr) -> Result<&'a Object<Cntr>> {
    // SAFETY: passed on from the caller; handles begin with their fid.
    unsafe { argument(cntr.cast_const().cast()) }
}
