//! The actions of deferred work: a change of a counter, and the post of an operation.

use std::sync::{Arc, Weak};

use selvedge::cq::Entry;
use selvedge::trigger::{self, CompletionTarget, Work};
use selvedge::{Counter, Endpoint, Errno, Error, Op, OpFlags};

use super::deferred_ops::{DeferredOp, DeferredOps};
use super::item::{Action, FireOutcome};
use crate::cntr::{Cntr, resolve};
use crate::domain::identity::DomainId;
use crate::endpoint::stored_op::StoredOp;

/// Makes the action of queued work. `deferred_ops` are those of the endpoint, for work that posts
/// an operation.
///
/// # Errors
/// [`Errno::Inval`] for a counter of another domain; the system's error, if there is no memory.
pub(crate) fn action(
    work: &Work<'_>,
    domain: &DomainId,
    deferred_ops: Option<&Arc<DeferredOps>>,
) -> Result<Box<dyn Action>, Error> {
    let resolve_cntr = |cntr| {
        let name = "counter that deferred work counts at or changes";
        resolve(domain, name, cntr)
    };
    let change = |cntr, change| {
        let cntr = Arc::downgrade(&resolve_cntr(cntr)?);
        Ok::<_, Error>(Box::new(ChangeCounter { cntr, change }))
    };
    let (ep, op, flags, done) = match work.action {
        trigger::Action::Set(cntr, value) => return Ok(change(cntr, Change::Set(value))?),
        trigger::Action::Add(cntr, value) => return Ok(change(cntr, Change::Add(value))?),
        trigger::Action::Post {
            ep,
            op,
            flags,
            done,
        } => (ep, op, flags, done),
    };
    let Some(deferred_ops) = deferred_ops else {
        let message = format!("{ep:?} does not support deferred work");
        return Err(Error::new(Errno::NoSys, message));
    };
    let target = match done {
        CompletionTarget::Endpoint => Target::Endpoint,
        CompletionTarget::Counter(None) => Target::Counter(Weak::new()),
        CompletionTarget::Counter(Some(cntr)) => {
            let cntr = resolve_cntr(cntr)?;
            deferred_ops.add_driver(&cntr)?;
            Target::Counter(Arc::downgrade(&cntr))
        }
    };
    Ok(Box::new(Post {
        ep: Arc::downgrade(ep),
        deferred_ops: Arc::clone(deferred_ops),
        op: StoredOp::new(&op),
        flags,
        target,
    }))
}

/// The change of a counter.
#[derive(Debug)]
struct ChangeCounter {
    cntr: Weak<Cntr>,
    change: Change,
}

#[derive(Debug)]
enum Change {
    Set(u64),
    Add(u64),
}

/// The post of an operation.
#[derive(Debug)]
struct Post {
    ep: Weak<dyn Endpoint>,
    deferred_ops: Arc<DeferredOps>,
    op: StoredOp,
    flags: OpFlags,
    target: Target,
}

/// The place where the completion of a posted operation is reported.
#[derive(Debug)]
enum Target {
    Endpoint,
    Counter(Weak<Cntr>),
}

impl Action for ChangeCounter {
    fn fire(&self) -> FireOutcome {
        if let Some(cntr) = self.cntr.upgrade() {
            match self.change {
                Change::Set(value) => cntr.set(value),
                Change::Add(value) => cntr.add(value),
            }
        }
        FireOutcome::Done
    }
}

impl Action for Post {
    fn fire(&self) -> FireOutcome {
        let Some(ep) = self.ep.upgrade() else {
            return FireOutcome::Done;
        };
        match &self.target {
            Target::Endpoint => self.post_plain(&*ep),
            Target::Counter(cntr) => self.post_for_counter(&*ep, cntr),
        }
    }

    fn endpoint(&self) -> Option<&Weak<dyn Endpoint>> {
        Some(&self.ep)
    }
}

impl Post {
    /// Posts the operation as the application would.
    fn post_plain(&self, ep: &dyn Endpoint) -> FireOutcome {
        #[expect(unsafe_code, reason = "the promise of the caller that queued the work")]
        // SAFETY: the caller that queued the work has promised what the post requires, until the
        // completion.
        let posted = unsafe { self.op.op().post(ep, self.flags) };
        match posted {
            Err(Errno::Again) => return FireOutcome::Retry,
            Err(errno) => self.deferred_ops.report_refused(self.entry(), errno),
            Ok(()) => {}
        }
        FireOutcome::Done
    }

    /// Posts the operation so that a counter reports its completion. The endpoint's queue also
    /// reports the completion if the operation has [`OpFlags::COMPLETION`].
    fn post_for_counter(&self, ep: &dyn Endpoint, cntr: &Weak<Cntr>) -> FireOutcome {
        let op = self.op.op();
        let deferred = DeferredOp {
            context: op.context(),
            cntr: cntr.clone(),
            reports: self.flags.contains(OpFlags::COMPLETION),
        };
        let id = self.deferred_ops.register(deferred);
        let flags = self.flags | OpFlags::DEFERRED;
        #[expect(unsafe_code, reason = "the promise of the caller that queued the work")]
        // SAFETY: as above, until the counter counts the operation.
        let posted = unsafe { op.with_context(id).post(ep, flags) };
        let Err(errno) = posted else {
            return FireOutcome::Done;
        };
        let deferred = self.deferred_ops.complete(id);
        if errno == Errno::Again {
            return FireOutcome::Retry;
        }
        if let Some(deferred) = deferred {
            log::warn!(target: "selvedge::core::domain", "deferred work for {ep:?} was refused: {errno}");
            if deferred.failed() {
                self.deferred_ops.push_refusal(self.entry(), errno);
            }
        }
        FireOutcome::Done
    }

    /// The entry of an error about this operation.
    fn entry(&self) -> Entry {
        let op = self.op.op();
        Entry {
            context: op.context(),
            flags: op.kind(),
            tag: match op {
                Op::TaggedRecv(msg) => msg.tag.tag,
                _ => 0,
            },
            ..Entry::default()
        }
    }
}
