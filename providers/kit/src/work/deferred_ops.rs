//! What an endpoint owes for work that is under way: who is told when it is over.
//!
//! Deferred work is posted with [`selvedge::OpFlags::DEFERRED`], and the number of its entry here as
//! its context. It then ends in [`crate::Ep`] like everything else, which asks here what that means.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use selvedge::cq::{Entry, ErrEntry};
use selvedge::{CompletionFlags, Context, Counter, Errno, Error};

use crate::cntr::Cntr;
use crate::cq::{CqRing, Progress};
use crate::ep::Cntrs;
use crate::identity::DomainId;

/// What an endpoint owes.
#[derive(Debug)]
pub struct DeferredOps {
    /// The endpoint's.
    domain: DomainId,
    bound: Mutex<Bound>,
    /// What drives the endpoint, and counters that it is driven by though it is not bound to them:
    /// those of its work, and of its domain's regions.
    progress: OnceLock<Weak<dyn Progress>>,
    extra_cntrs: Mutex<Vec<Weak<Cntr>>>,
    /// By the address of the entry: no application's context is a place in memory that is ours.
    open: Mutex<HashMap<u64, Box<DeferredOp>>>,
}

/// The queues and counters that its endpoint is bound to.
#[derive(Debug)]
struct Bound {
    tx_cq: Arc<CqRing>,
    rx_cq: Arc<CqRing>,
    cntrs: Cntrs,
}

/// An endpoint that has one.
pub trait HasDeferredOps {
    /// What it owes.
    fn deferred_ops(&self) -> &Arc<DeferredOps>;
}

/// Who is told of one operation.
#[derive(Debug)]
pub(crate) struct DeferredOp {
    /// The application's.
    pub(crate) context: Context,
    pub(crate) cntr: Weak<Cntr>,
    /// Whether the endpoint's queue is told, too.
    pub(crate) reports: bool,
}

impl DeferredOp {
    /// The operation was done. Whether the queue is to be told.
    pub(crate) fn succeeded(&self) -> bool {
        if let Some(cntr) = self.cntr.upgrade() {
            cntr.add(1);
        }
        self.reports
    }

    /// The operation has failed. Whether the queue is to be told.
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

    /// The endpoint is bound to these from now on.
    pub(crate) fn bind(&self, tx_cq: &Arc<CqRing>, rx_cq: &Arc<CqRing>, cntrs: Cntrs) {
        *self.bound() = Bound::new(tx_cq, rx_cq, cntrs);
    }

    fn bound(&self) -> MutexGuard<'_, Bound> {
        self.bound.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Learns what moves the endpoint.
    pub(crate) fn set_progress(&self, progress: &Arc<dyn Progress>) {
        // An endpoint is attached once.
        let _ = self.progress.set(Arc::downgrade(progress));
    }

    /// Has such a counter drive the endpoint, so that a thread may wait for it alone.
    ///
    /// # Errors
    /// The system's, when memory is too short to wait for it.
    pub(crate) fn add_driver(&self, cntr: &Arc<Cntr>) -> Result<(), Error> {
        let Some(progress) = self.progress.get().and_then(Weak::upgrade) else {
            return Ok(());
        };
        let is_it = |other: &Weak<Cntr>| other.as_ptr() == Arc::as_ptr(cntr);
        {
            let mut extra_cntrs = self.extra_cntrs();
            extra_cntrs.retain(|it| it.strong_count() > 0);
            if extra_cntrs.iter().any(is_it) {
                return Ok(());
            }
            extra_cntrs.push(Arc::downgrade(cntr));
        }
        // Without our lock: it waits for progress, which may want to wake the extra_cntrs.
        let attached = cntr.attach(&progress);
        attached.inspect_err(|_| self.extra_cntrs().retain(|it| !is_it(it)))
    }

    /// Ends what [`Self::add_driver`] began.
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

    /// Notes a op; the context that stands for it.
    pub(crate) fn register(&self, op: DeferredOp) -> Context {
        let op = Box::new(op);
        let id = (&raw const *op).addr() as u64;
        self.with(|open| open.insert(id, op));
        Context(id)
    }

    /// The op that a context stands for, which is none any more.
    #[cold]
    pub(crate) fn complete(&self, context: Context) -> Option<Box<DeferredOp>> {
        self.with(|open| open.remove(&context.0))
    }

    /// An operation that its endpoint tells of has failed when it was posted.
    pub(super) fn report_refused(&self, entry: Entry, errno: Errno) {
        let cntr = self.bound().cntrs.of(entry.flags).map(Arc::clone);
        if let Some(cntr) = cntr {
            cntr.add_err(1);
        }
        self.push_refusal(entry, errno);
    }

    pub(super) fn push_refusal(&self, entry: Entry, errno: Errno) {
        let bound = self.bound();
        let cq = Arc::clone(match entry.flags.contains(CompletionFlags::RECV) {
            true => &bound.rx_cq,
            false => &bound.tx_cq,
        });
        drop(bound);
        let detail = "the counter has reached its number, but the endpoint refuses what waited";
        cq.push_err(ErrEntry::new(entry, errno, detail));
    }

    fn with<R>(&self, run: impl FnOnce(&mut HashMap<u64, Box<DeferredOp>>) -> R) -> R {
        run(&mut self.open.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
