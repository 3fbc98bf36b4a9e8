//! An item of deferred work, and its execution.

use std::sync::{Arc, Weak};

use selvedge::cq::Entry;
use selvedge::trigger::{self, CompletionTarget, Work, WorkId};
use selvedge::{Counter, Endpoint, Errno, Error, Op, OpFlags};

use super::deferred_ops::{DeferredOp, DeferredOps};
use crate::cntr::{Cntr, resolve};
use crate::domain::identity::DomainId;
use crate::endpoint::stored_op::StoredOp;

/// An item of queued work, which keeps no object alive: an action on an object that was closed is
/// dropped.
#[derive(Debug)]
pub(crate) struct WorkItem {
    pub(crate) id: WorkId,
    pub(crate) threshold: u64,
    /// The address of the counter at which the work waits, as the counter's identity.
    pub(crate) cntr_addr: usize,
    action: Action,
}

#[derive(Debug)]
enum Action {
    Post(Box<Post>),
    Set(Weak<Cntr>, u64),
    Add(Weak<Cntr>, u64),
}

#[derive(Debug)]
struct Post {
    ep: Weak<dyn Endpoint>,
    deferred_ops: Arc<DeferredOps>,
    op: StoredOp,
    flags: OpFlags,
    target: Target,
}

#[derive(Debug)]
enum Target {
    Endpoint,
    Counter(Weak<Cntr>),
}

/// The outcome of an attempt to carry work out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FireOutcome {
    /// The work was carried out, has failed, or its object is closed.
    Done,
    /// The endpoint had no room; try again.
    Retry,
}

impl WorkItem {
    /// Makes an item of work. `deferred_ops` are those of the endpoint, for work that posts an
    /// operation.
    ///
    /// # Errors
    /// [`Errno::Inval`] for a counter of another domain; the system's error, if there is no memory.
    pub(crate) fn new(
        work: &Work<'_>,
        id: WorkId,
        domain: &DomainId,
        cntr_addr: usize,
        deferred_ops: Option<&Arc<DeferredOps>>,
    ) -> Result<Self, Error> {
        let resolve_cntr = |cntr| {
            resolve(
                domain,
                "counter that deferred work counts at or changes",
                cntr,
            )
        };
        let action = match (work.action, deferred_ops) {
            (trigger::Action::Set(cntr, value), _) => {
                Action::Set(Arc::downgrade(&resolve_cntr(cntr)?), value)
            }
            (trigger::Action::Add(cntr, value), _) => {
                Action::Add(Arc::downgrade(&resolve_cntr(cntr)?), value)
            }
            (
                trigger::Action::Post {
                    ep,
                    op,
                    flags,
                    done,
                },
                Some(deferred_ops),
            ) => Action::Post(Box::new(Post {
                ep: Arc::downgrade(ep),
                deferred_ops: Arc::clone(deferred_ops),
                op: StoredOp::new(&op),
                flags,
                target: match done {
                    CompletionTarget::Endpoint => Target::Endpoint,
                    CompletionTarget::Counter(None) => Target::Counter(Weak::new()),
                    CompletionTarget::Counter(Some(cntr)) => {
                        let cntr = resolve_cntr(cntr)?;
                        deferred_ops.add_driver(&cntr)?;
                        Target::Counter(Arc::downgrade(&cntr))
                    }
                },
            })),
            (trigger::Action::Post { ep, .. }, None) => {
                let message = format!("{ep:?} does not support deferred work");
                return Err(Error::new(Errno::NoSys, message));
            }
        };
        let threshold = work.threshold;
        Ok(Self {
            id,
            threshold,
            cntr_addr,
            action,
        })
    }

    /// Whether the work has to wait behind `other`, which waits for room at the same endpoint.
    pub(super) fn is_behind(&self, other: &Self) -> bool {
        match (&self.action, &other.action) {
            (Action::Post(post), Action::Post(other)) => Weak::ptr_eq(&post.ep, &other.ep),
            _ => false,
        }
    }

    /// Carries out the work. Takes no lock but those of the endpoint and counters that the work
    /// uses.
    pub(super) fn fire(&self) -> FireOutcome {
        match &self.action {
            Action::Set(cntr, value) => {
                if let Some(cntr) = cntr.upgrade() {
                    cntr.set(*value);
                }
                FireOutcome::Done
            }
            Action::Add(cntr, value) => {
                if let Some(cntr) = cntr.upgrade() {
                    cntr.add(*value);
                }
                FireOutcome::Done
            }
            Action::Post(post) => post.fire(),
        }
    }
}

impl Post {
    fn fire(&self) -> FireOutcome {
        let Some(ep) = self.ep.upgrade() else {
            return FireOutcome::Done;
        };
        match &self.target {
            Target::Endpoint => self.post_plain(&*ep),
            Target::Counter(cntr) => self.post_for_counter(&*ep, cntr),
        }
    }

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
