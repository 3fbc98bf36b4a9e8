//! The queues, counters and threads that drive an endpoint, and the objects that it is bound to,
//! downcast to the kit's types.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use selvedge::{
    AddressVector, Bindings, CompletionQueue, Errno, Error, EventQueue, SharedReceives,
};

use crate::AutoProgress;
use crate::cntr::Cntr;
use crate::cq::{CqRing, Progress};
use crate::domain::identity::{DomainId, FabricId, OfDomain};
use crate::endpoint::work::DeferredOps;
use crate::eq::Queue;
use crate::fork_guard::ForkGuarded;
use crate::mr::RegionCounters;
use crate::srx::Shared;

/// The queues, counters and threads that drive an endpoint. They are kept apart from the endpoint's
/// state because detaching waits for progress, which takes the endpoint's lock.
#[derive(Debug)]
pub struct Drivers {
    pub(super) bound: Mutex<Bound>,
    pub(crate) auto: Option<Arc<AutoProgress>>,
    /// The counters of the domain's regions.
    pub(crate) region_counters: Arc<RegionCounters>,
    /// Weak, because the queue may hold the endpoint.
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

    /// Makes threads take the locks of these queues and counters from now on, whatever the
    /// application has promised about its threads.
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

    /// Makes new queues and counters drive `progress`, too. The caller binds the endpoint to them
    /// afterwards.
    ///
    /// # Errors
    /// As [`Self::attach`].
    pub(super) fn attach_late(
        &self,
        new: Bound,
        progress: &Arc<dyn Progress>,
    ) -> Result<(), Error> {
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

    /// Makes an event queue drive the endpoint, too. The queue belongs to no domain, so no promise
    /// about threads binds its readers: the endpoint's lock has the mode that
    /// [`crate::domain::Base::mode_of`] returns, and the queues and counters of the endpoint have
    /// real locks from now on.
    #[must_use]
    pub fn with_eq(mut self, eq: &Weak<Queue>) -> Self {
        self.eq.clone_from(eq);
        if eq.strong_count() > 0 {
            self.bound().share();
        }
        self
    }

    /// Makes all drivers drive `progress`.
    ///
    /// # Errors
    /// The system's error if it has no memory to wait for the endpoint. No driver drives `progress`
    /// then.
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

    /// Closes an endpoint: detaches `progress` from all drivers, and then calls `close` with the
    /// endpoint's `state`. Does nothing in a forked child, because the endpoint belongs to the
    /// parent: the child leaks its copy, to which the child's queues still refer.
    pub fn close<T>(
        &self,
        progress: &Arc<dyn Progress>,
        state: &ForkGuarded<T>,
        close: impl FnOnce(&mut T),
    ) {
        if state.lock().is_err() {
            return;
        }
        // The lock is not held here: detaching waits until every call of `progress`, which takes
        // the lock, has returned.
        self.detach(progress);
        if let Ok(mut state) = state.lock() {
            close(&mut state);
        }
    }

    /// Reverts [`Self::attach`]. When it returns, no driver is calling `progress`, nor will one.
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

/// The address vector that an endpoint of `domain` is bound to, as the provider's type; error texts
/// call the endpoint `title`.
///
/// # Errors
/// [`Errno::NoAv`] without an address vector, [`Errno::Inval`] for one of another domain.
pub fn bound_av<T: AddressVector + OfDomain>(
    bind: &Bindings,
    domain: &DomainId,
    title: &str,
) -> Result<Arc<T>, Error> {
    let Some(av) = &bind.av else {
        let message = format!("{title} needs an address vector; bind one before it is enabled");
        return Err(Error::new(Errno::NoAv, message));
    };
    let any: Arc<dyn Any + Send + Sync> = Arc::<dyn AddressVector>::clone(av);
    domain.downcast("address vector of an endpoint", any, av)
}

/// The shared receive context that an endpoint of `domain` is bound to, as the kit's type.
///
/// # Errors
/// [`Errno::Inval`] for a context of another domain.
pub fn bound_srx(bind: &Bindings, domain: &DomainId) -> Result<Option<Arc<Shared>>, Error> {
    let Some(srx) = &bind.srx else {
        return Ok(None);
    };
    let any: Arc<dyn Any + Send + Sync> = Arc::<dyn SharedReceives>::clone(srx);
    let resolved = domain.downcast("shared receive context of an endpoint", any, srx);
    resolved.map(Some)
}

/// A completion queue of an endpoint of `domain`, as the kit's type; error texts call it `name`.
pub(super) fn bound_cq(
    cq: &Arc<dyn CompletionQueue>,
    domain: &DomainId,
    name: &str,
) -> Result<Arc<CqRing>, Error> {
    let any: Arc<dyn Any + Send + Sync> = Arc::<dyn CompletionQueue>::clone(cq);
    domain.downcast(name, any, cq)
}

/// An event queue of `fabric`, as the kit's type; error texts name `user`, the object that is bound
/// to the queue.
///
/// # Errors
/// [`Errno::Inval`] for an event queue of another provider or another fabric.
pub fn bound_eq(
    eq: &Arc<dyn EventQueue>,
    fabric: &FabricId,
    user: &dyn fmt::Debug,
) -> Result<Arc<Queue>, Error> {
    let any: Arc<dyn Any + Send + Sync> = Arc::<dyn EventQueue>::clone(eq);
    let resolved: Arc<Queue> = any.downcast().map_err(|_| {
        let message = format!(
            "{user:?} ({fabric:?}): the event queue is of another provider ({eq:?}); open both from \
             one fabric"
        );
        Error::new(Errno::Inval, message)
    })?;
    fabric.check(user, "event queue", resolved.fabric())?;
    Ok(resolved)
}
