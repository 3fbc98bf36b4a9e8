//! The deferred operations of an endpoint that have been posted and have not completed.
//!
//! A deferred operation is posted with [`selvedge::OpFlags::DEFERRED`]. Its context is the address
//! of its entry in [`DeferredOps`]. [`crate::Ep`] completes the operation like any other, and finds
//! the application's context and counter in the entry.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use selvedge::cq::{Entry, ErrEntry};
use selvedge::{CompletionFlags, Context, Counter, Errno, Error};

use crate::cntr::Cntr;
use crate::cq::{CqRing, Progress};
use crate::domain::identity::DomainId;
use crate::endpoint::ep::Cntrs;

/// The posted deferred operations of one endpoint.
#[derive(Debug)]
pub struct DeferredOps {
    /// The endpoint's domain.
    domain: DomainId,
    bound: Mutex<Bound>,
    /// The inner part of the endpoint, which its queues and counters drive.
    progress: OnceLock<Weak<dyn Progress>>,
    /// Counters that drive the endpoint though it is not bound to them: those of its deferred work,
    /// and of its domain's regions.
    extra_cntrs: Mutex<Vec<Weak<Cntr>>>,
    /// The entries, by their addresses. No context of the application equals such an address,
    /// because the kit has allocated the memory there.
    open: Mutex<HashMap<u64, Box<DeferredOp>>>,
}

/// The queues and counters that the endpoint is bound to.
#[derive(Debug)]
struct Bound {
    tx_cq: Arc<CqRing>,
    rx_cq: Arc<CqRing>,
    cntrs: Cntrs,
}

/// An endpoint with deferred operations.
pub trait HasDeferredOps {
    /// The posted deferred operations.
    fn deferred_ops(&self) -> &Arc<DeferredOps>;
}

/// The entry of one deferred operation: how its completion is reported.
#[derive(Debug)]
pub(crate) struct DeferredOp {
    /// The application's context.
    pub(crate) context: Context,
    /// The counter that counts the completion.
    pub(crate) cntr: Weak<Cntr>,
    /// Whether the endpoint's queue reports the completion, too.
    pub(crate) reports: bool,
}

impl DeferredOp {
    /// Counts the success, and returns whether the queue reports it.
    pub(crate) fn succeeded(&self) -> bool {
        if let Some(cntr) = self.cntr.upgrade() {
            cntr.add(1);
        }
        self.reports
    }

    /// Counts the failure, and returns whether the queue reports it.
    pub(crate) fn failed(&self) -> bool {
        if let Some(cntr) = self.cntr.upgrade() {
            cntr.add_err(1);
        }
        self.reports
    }
}

impl Bound {
    fn new(tx_cq: &Arc<CqRing>, rx_cq: &Arc<CqRing>, cntrs: Cntrs) -> Self {
        Self {
            tx_cq: Arc::clone(tx_cq),
            rx_cq: Arc::clone(rx_cq),
            cntrs,
        }
    }
}

impl DeferredOps {
    pub(crate) fn new(
        domain: &DomainId,
        tx_cq: &Arc<CqRing>,
        rx_cq: &Arc<CqRing>,
        cntrs: Cntrs,
    ) -> Self {
        Self {
            domain: domain.clone(),
            bound: Mutex::new(Bound::new(tx_cq, rx_cq, cntrs)),
            progress: OnceLock::new(),
            extra_cntrs: Mutex::default(),
            open: Mutex::default(),
        }
    }

    /// The endpoint's domain.
    pub(crate) const fn domain(&self) -> &DomainId {
        &self.domain
    }

    /// Replaces the queues and counters that the endpoint is bound to.
    pub(crate) fn bind(&self, tx_cq: &Arc<CqRing>, rx_cq: &Arc<CqRing>, cntrs: Cntrs) {
        *self.bound() = Bound::new(tx_cq, rx_cq, cntrs);
    }

    fn bound(&self) -> MutexGuard<'_, Bound> {
        self.bound.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the inner part of the endpoint.
    pub(crate) fn set_progress(&self, progress: &Arc<dyn Progress>) {
        // An endpoint is attached once.
        let _ = self.progress.set(Arc::downgrade(progress));
    }

    /// Makes a counter drive the endpoint, so that a thread can wait at that counter alone.
    ///
    /// # Errors
    /// The system's error, if it has no memory to wait for the endpoint.
    pub(crate) fn add_driver(&self, cntr: &Arc<Cntr>) -> Result<(), Error> {
        let Some(progress) = self.progress.get().and_then(Weak::upgrade) else {
            return Ok(());
        };
        let is_same = |other: &Weak<Cntr>| other.as_ptr() == Arc::as_ptr(cntr);
        {
            let mut extra_cntrs = self.extra_cntrs();
            extra_cntrs.retain(|it| it.strong_count() > 0);
            if extra_cntrs.iter().any(is_same) {
                return Ok(());
            }
            extra_cntrs.push(Arc::downgrade(cntr));
        }
        // Without the lock: attaching waits for progress, which may wake these counters.
        let attached = cntr.attach(&progress);
        attached.inspect_err(|_| self.extra_cntrs().retain(|it| !is_same(it)))
    }

    /// Reverts every [`Self::add_driver`].
    pub(crate) fn remove_drivers(&self, progress: &Arc<dyn Progress>) {
        let extra_cntrs = std::mem::take(&mut *self.extra_cntrs());
        for cntr in extra_cntrs.iter().filter_map(Weak::upgrade) {
            cntr.detach(progress);
        }
    }

    fn extra_cntrs(&self) -> MutexGuard<'_, Vec<Weak<Cntr>>> {
        self.extra_cntrs
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers an operation; returns the context to post it with.
    pub(crate) fn register(&self, op: DeferredOp) -> Context {
        let op = Box::new(op);
        let id = (&raw const *op).addr() as u64;
        self.with(|open| open.insert(id, op));
        Context(id)
    }

    /// Removes and returns the operation with this context.
    #[cold]
    pub(crate) fn complete(&self, context: Context) -> Option<Box<DeferredOp>> {
        self.with(|open| open.remove(&context.0))
    }

    /// Reports that the endpoint refused the post of an operation that has no entry: the
    /// endpoint's counter counts an error, and its queue gets an error entry.
    pub(super) fn report_refused(&self, entry: Entry, errno: Errno) {
        let cntr = self.bound().cntrs.for_kind(entry.flags).map(Arc::clone);
        if let Some(cntr) = cntr {
            cntr.add_err(1);
        }
        self.push_refusal(entry, errno);
    }

    pub(super) fn push_refusal(&self, entry: Entry, errno: Errno) {
        let bound = self.bound();
        let cq = Arc::clone(if entry.flags.contains(CompletionFlags::RECV) {
            &bound.rx_cq
        } else {
            &bound.tx_cq
        });
        drop(bound);
        let detail =
            "the counter has reached the threshold, but the endpoint refuses the operation";
        cq.push_err(ErrEntry::new(entry, errno, detail));
    }

    fn with<R>(&self, run: impl FnOnce(&mut HashMap<u64, Box<DeferredOp>>) -> R) -> R {
        run(&mut self.open.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
