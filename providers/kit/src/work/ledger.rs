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
pub struct Ledger {
    /// The endpoint's.
    domain: DomainId,
    bound: Mutex<Bound>,
    /// What drives the endpoint, and counters that it is driven by though it is not bound to them:
    /// those of its work, and of its domain's regions.
    progress: OnceLock<Weak<dyn Progress>>,
    followers: Mutex<Vec<Weak<Cntr>>>,
    /// By the address of the entry: no application's context is a place in memory that is ours.
    open: Mutex<HashMap<u64, Box<Debt>>>,
}

/// The queues and counters that its endpoint is bound to.
#[derive(Debug)]
struct Bound {
    tx_cq: Arc<CqRing>,
    rx_cq: Arc<CqRing>,
    cntrs: Cntrs,
}

/// An endpoint that has one.
pub trait Owing {
    /// What it owes.
    fn ledger(&self) -> &Arc<Ledger>;
}

/// Who is told of one operation.
#[derive(Debug)]
pub(crate) struct Debt {
    /// The application's.
    pub(crate) context: Context,
    pub(crate) cntr: Weak<Cntr>,
    /// Whether the endpoint's queue is told, too.
    pub(crate) reports: bool,
}

impl Debt {
    /// The operation was done. Whether the queue is to be told.
    pub(crate) fn pay(&self) -> bool {
        if let Some(cntr) = self.cntr.upgrade() {
            cntr.add(1);
        }
        self.reports
    }

    /// The operation has failed. Whether the queue is to be told.
    pub(crate) fn fail(&self) -> bool {
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

impl Ledger {
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
            followers: Mutex::default(),
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
    pub(crate) fn follow(&self, cntr: &Arc<Cntr>) -> Result<(), Error> {
        let Some(progress) = self.progress.get().and_then(Weak::upgrade) else {
            return Ok(());
        };
        let is_it = |other: &Weak<Cntr>| other.as_ptr() == Arc::as_ptr(cntr);
        {
            let mut followers = self.followers();
            followers.retain(|it| it.strong_count() > 0);
            if followers.iter().any(is_it) {
                return Ok(());
            }
            followers.push(Arc::downgrade(cntr));
        }
        // Without our lock: it waits for progress, which may want to wake the followers.
        let attached = cntr.attach(&progress);
        attached.inspect_err(|_| self.followers().retain(|it| !is_it(it)))
    }

    /// Ends what [`Self::follow`] began.
    pub(crate) fn part(&self, progress: &Arc<dyn Progress>) {
        let followers = std::mem::take(&mut *self.followers());
        for cntr in followers.iter().filter_map(Weak::upgrade) {
            cntr.detach(progress);
        }
    }

    fn followers(&self) -> MutexGuard<'_, Vec<Weak<Cntr>>> {
        self.followers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a debt; the context that stands for it.
    pub(crate) fn owe(&self, debt: Debt) -> Context {
        let debt = Box::new(debt);
        let id = (&raw const *debt).addr() as u64;
        self.with(|open| open.insert(id, debt));
        Context(id)
    }

    /// The debt that a context stands for, which is none any more.
    #[cold]
    pub(crate) fn settle(&self, context: Context) -> Option<Box<Debt>> {
        self.with(|open| open.remove(&context.0))
    }

    /// An operation that its endpoint tells of has failed when it was posted.
    pub(super) fn refused(&self, entry: Entry, errno: Errno) {
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

    fn with<R>(&self, run: impl FnOnce(&mut HashMap<u64, Box<Debt>>) -> R) -> R {
        run(&mut self.open.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
