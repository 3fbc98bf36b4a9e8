//! The queues and counters that an endpoint is bound to, as this package's own.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use selvedge::{
    AddressVector, Bindings, CompletionFlags, CompletionQueue, Counter, Counters, Errno, Error,
    EventQueue, SharedReceives,
};

use super::late::Late;
use crate::AutoProgress;
use crate::cntr::{self, Cntr};
use crate::cq::{CqRing, Progress};
use crate::eq::Queue;
use crate::fork_guard::ForkGuarded;
use crate::identity::{DomainId, FabricId, OfDomain};
use crate::mr::RegionCounters;
use crate::srx::Shared;
use crate::work::DeferredOps;

/// The counters of an endpoint, resolved.
#[derive(Clone, Debug)]
pub(crate) struct Cntrs {
    pub(super) send: Option<Arc<Cntr>>,
    pub(super) recv: Option<Arc<Cntr>>,
    pub(super) read: Option<Arc<Cntr>>,
    pub(super) write: Option<Arc<Cntr>>,
    pub(super) remote_read: Option<Arc<Cntr>>,
    pub(super) remote_write: Option<Arc<Cntr>>,
}

/// The queues, counters and threads that drive an endpoint, apart from it: detaching waits for progress,
/// which takes the endpoint's own lock.
#[derive(Debug)]
pub struct Drivers {
    pub(super) bound: Mutex<Bound>,
    pub(crate) auto: Option<Arc<AutoProgress>>,
    /// The counters of the domain's regions.
    pub(crate) region_counters: Arc<RegionCounters>,
    /// The queue may hold the endpoint, and so must not be held by it.
    pub(super) eq: Weak<Queue>,
    pub(super) deferred_ops: Arc<DeferredOps>,
}

/// The queues and counters that an endpoint is bound to.
#[derive(Clone, Debug, Default)]
pub(super) struct Bound {
    pub(super) cqs: Vec<Arc<CqRing>>,
    pub(super) cntrs: Vec<Arc<Cntr>>,
}

impl Bound {
    fn attach(&self, progress: &Arc<dyn Progress>) -> Result<(), Error> {
        self.cqs.iter().try_for_each(|cq| cq.attach(progress))?;
        self.cntrs.iter().try_for_each(|it| it.attach(progress))
    }

    /// Has threads keep apart by locks at all of them, whatever was promised.
    fn share(&self) {
        self.cqs.iter().for_each(|cq| cq.share());
        self.cntrs.iter().for_each(|it| it.share());
    }

    fn detach(&self, progress: &Arc<dyn Progress>) {
        self.cqs.iter().for_each(|cq| cq.detach(progress));
        self.cntrs.iter().for_each(|it| it.detach(progress));
    }
}

impl Drivers {
    fn bound(&self) -> MutexGuard<'_, Bound> {
        self.bound.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the queues and counters of [`Late`] drive `progress`, too. The caller binds the endpoint
    /// to them afterwards.
    ///
    /// # Errors
    /// As [`Self::attach`].
    pub(super) fn attach_late(
        &self,
        late: &Late,
        progress: &Arc<dyn Progress>,
    ) -> Result<(), Error> {
        let new = late.bound();
        if self.eq.strong_count() > 0 {
            new.share();
        }
        let attached = new.attach(progress);
        let mut bound = self.bound();
        // Those that could not be attached are detached with the others when the endpoint closes.
        bound.cqs.extend(new.cqs);
        bound.cntrs.extend(new.cntrs);
        attached
    }

    /// Has an event queue drive the endpoint, too. Its readers have promised nothing about threads:
    /// the endpoint has the lock of [`crate::domain::Base::mode_of`], and what it completes at has
    /// locks from here on.
    #[must_use]
    pub fn with_eq(mut self, eq: &Weak<Queue>) -> Self {
        self.eq.clone_from(eq);
        if eq.strong_count() > 0 {
            self.bound().share();
        }
        self
    }

    /// Has all of them drive `progress`.
    ///
    /// # Errors
    /// The system's, when memory is too short to wait for it; it is attached nowhere then.
    pub fn attach(&self, progress: &Arc<dyn Progress>) -> Result<(), Error> {
        let attach = || {
            self.bound().clone().attach(progress)?;
            if let Some(eq) = self.eq.upgrade() {
                eq.attach(progress)?;
            }
            self.region_counters.add_endpoint(&self.deferred_ops)?;
            self.auto.iter().try_for_each(|auto| auto.attach(progress))
        };
        self.deferred_ops.set_progress(progress);
        attach().inspect_err(|_| self.detach(progress))
    }

    /// Ends an endpoint: has nothing drive `progress` any more, and then `close`s its `state`. In a
    /// forked child there is nothing to end, because all of it is the parent's: the child's copy is
    /// forgotten, and its queues still name it.
    pub fn end<T>(
        &self,
        progress: &Arc<dyn Progress>,
        state: &ForkGuarded<T>,
        close: impl FnOnce(&mut T),
    ) {
        if state.lock().is_err() {
            return;
        }
        // Without the lock: a queue waits here until its call of progress is over.
        self.detach(progress);
        if let Ok(mut state) = state.lock() {
            close(&mut state);
        }
    }

    /// Ends what [`Self::attach`] began; no call of `progress` from there is running afterwards.
    pub fn detach(&self, progress: &Arc<dyn Progress>) {
        let bound = self.bound().clone();
        bound.detach(progress);
        if let Some(eq) = self.eq.upgrade() {
            eq.detach(progress);
        }
        if let Some(auto) = &self.auto {
            auto.detach(progress);
        }
        self.region_counters.remove_endpoint(&self.deferred_ops);
        self.deferred_ops.remove_drivers(progress);
    }
}

/// The address vector that an endpoint of `domain` is bound to, as a provider's own; `title` is what
/// messages call the endpoint.
///
/// # Errors
/// [`Errno::NoAv`] without one, [`Errno::Inval`] for one of another domain.
pub fn bound_av<T: AddressVector + OfDomain>(
    bind: &Bindings,
    domain: &DomainId,
    title: &str,
) -> Result<Arc<T>, Error> {
    let Some(av) = &bind.av else {
        let what = format!("{title} needs an address vector");
        return Err(Error::new(Errno::NoAv, what));
    };
    let any: Arc<dyn Any + Send + Sync> = Arc::<dyn AddressVector>::clone(av);
    domain.downcast("address vector of an endpoint", any, av)
}

/// The shared receives that an endpoint of `domain` is bound to, as this package's own.
///
/// # Errors
/// [`Errno::Inval`] for those of another domain.
pub fn bound_srx(bind: &Bindings, domain: &DomainId) -> Result<Option<Arc<Shared>>, Error> {
    let Some(srx) = &bind.srx else {
        return Ok(None);
    };
    let any: Arc<dyn Any + Send + Sync> = Arc::<dyn SharedReceives>::clone(srx);
    let own = domain.downcast("shared receive context of an endpoint", any, srx);
    own.map(Some)
}

impl Cntrs {
    /// # Errors
    /// [`Errno::Inval`] for a counter of another domain.
    pub(super) fn resolve(bound: &Counters, domain: &DomainId) -> Result<Self, Error> {
        let own = |cntr: &Option<Arc<dyn Counter>>, name| {
            let own = |cntr| cntr::resolve(domain, name, cntr);
            cntr.as_ref().map(own).transpose()
        };
        Ok(Self {
            send: own(&bound.send, "send counter of an endpoint")?,
            recv: own(&bound.recv, "recv counter of an endpoint")?,
            read: own(&bound.read, "read counter of an endpoint")?,
            write: own(&bound.write, "write counter of an endpoint")?,
            remote_read: own(&bound.remote_read, "remote_read counter of an endpoint")?,
            remote_write: own(&bound.remote_write, "remote_write counter of an endpoint")?,
        })
    }

    /// The counter of operations of which completions say this.
    #[inline]
    pub(crate) fn of(&self, what: CompletionFlags) -> Option<&Arc<Cntr>> {
        if what.contains(CompletionFlags::SEND) {
            self.send.as_ref()
        } else if what.contains(CompletionFlags::READ) {
            self.read.as_ref()
        } else if what.contains(CompletionFlags::RECV) {
            self.recv.as_ref()
        } else {
            self.write.as_ref()
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Cntr>> {
        self.all().into_iter().flatten()
    }

    const fn all(&self) -> [&Option<Arc<Cntr>>; 6] {
        [
            &self.send,
            &self.recv,
            &self.read,
            &self.write,
            &self.remote_read,
            &self.remote_write,
        ]
    }

    /// Whether both have a counter of the same operations.
    pub(super) fn have_any_of(&self, other: &Self) -> bool {
        let mut pairs = self.all().into_iter().zip(other.all());
        pairs.any(|(own, other)| own.is_some() && other.is_some())
    }

    /// Takes those of `other`.
    pub(super) fn add(&mut self, other: &Self) {
        let own = [
            &mut self.send,
            &mut self.recv,
            &mut self.read,
            &mut self.write,
            &mut self.remote_read,
            &mut self.remote_write,
        ];
        for (own, other) in own.into_iter().zip(other.all()) {
            if other.is_some() {
                own.clone_from(other);
            }
        }
    }
}

/// A completion queue of an endpoint of `domain`, called `name` in messages.
pub(super) fn own_cq(
    cq: &Arc<dyn CompletionQueue>,
    domain: &DomainId,
    name: &str,
) -> Result<Arc<CqRing>, Error> {
    let any: Arc<dyn Any + Send + Sync> = Arc::<dyn CompletionQueue>::clone(cq);
    domain.downcast(name, any, cq)
}

/// An event queue, as this package's own of `fabric`; `user` is what is bound to it.
///
/// # Errors
/// [`Errno::Inval`] for one of another fabric.
pub fn bound_eq(
    eq: &Arc<dyn EventQueue>,
    fabric: &FabricId,
    user: &dyn fmt::Debug,
) -> Result<Arc<Queue>, Error> {
    let any: Arc<dyn Any + Send + Sync> = Arc::<dyn EventQueue>::clone(eq);
    let own: Arc<Queue> = any.downcast().map_err(|_| {
        let what = format!(
            "{user:?} ({fabric:?}): the event queue is of another provider ({eq:?}); open both from \
             one fabric"
        );
        Error::new(Errno::Inval, what)
    })?;
    fabric.check(user, "event queue", own.fabric())?;
    Ok(own)
}
