//! The common part of every domain: the process that it belongs to, the mode of its locks, and its
//! automatic progress thread, if it has one. Everything else of a domain is the provider's part.

#![expect(unsafe_code, reason = "passes the application's promise to the locks")]

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use selvedge::info::{Progress, RxAttr, Threading};
use selvedge::trigger::{Action, Work, WorkId};
use selvedge::{
    Bindings, CompletionQueue, Counter, Endpoint, Errno, Error, Info, Result, SharedReceives, cntr,
    cq,
};

use crate::cntr::{self as counter, Cntr};
use crate::cq::{CqRing, Progress as CqProgress};
use crate::domain::identity::{DomainId, FabricId};
use crate::endpoint::work::{self, HasDeferredOps, ReadyWork, WorkItem};
use crate::fork_guard::ForkGuard;
use crate::lock::Mode;
use crate::mr::{ObjectSharing, RegionCounters};
use crate::srx::Shared;
use crate::wait::PollPolicy;
use crate::weak_list::WeakList;
use crate::{AutoProgress, Drivers, Ep};

/// The common part of domains. Its `Debug` is the domain's title.
pub struct Base {
    id: DomainId,
    mode: Mode,
    sharing: ObjectSharing,
    policy: PollPolicy,
    fork_guard: ForkGuard,
    auto: Option<Arc<AutoProgress>>,
    region_counters: Arc<RegionCounters>,
    opened: Mutex<Opened>,
}

/// The queues and counters of a domain that exist, for its deferred work.
#[derive(Debug, Default)]
struct Opened {
    cqs: WeakList<CqRing>,
    cntrs: WeakList<Cntr>,
    /// Present once the domain has work.
    ready_work: Option<Arc<ReadyWork>>,
}

impl Base {
    /// Opens a domain of `fabric` with `info`; error texts call it `title`.
    ///
    /// # Errors
    /// The system's error, if automatic progress is requested and no thread can be started.
    pub fn open(
        info: &Info,
        fabric: &FabricId,
        title: String,
        policy: PollPolicy,
    ) -> Result<Self, Error> {
        let attr = &info.domain_attr;
        let auto = if [attr.control_progress, attr.data_progress].contains(&Progress::Auto) {
            let name = format!("selvedge-{}", info.fabric_attr.prov_name);
            Some(Arc::new(AutoProgress::start(&name, policy.spin)?))
        } else {
            None
        };
        selvedge::log::log_as(
            log::Level::Info,
            &info.fabric_attr.prov_name,
            "domain",
            format_args!(
                "{title} is open: {} threads, {} data progress, {} control progress",
                info.threading_promise(),
                attr.data_progress,
                attr.control_progress
            ),
        );
        let (mode, sharing) = match info.threading_promise() {
            // The application's promise does not cover the automatic progress thread.
            _ if auto.is_some() => (Mode::Safe, ObjectSharing::AcrossGroups),
            Threading::Domain => (Mode::Asserted, ObjectSharing::AcrossGroups),
            Threading::Completion => match ObjectSharing::from_info(info) {
                ObjectSharing::AcrossGroups => (Mode::Safe, ObjectSharing::AcrossGroups),
                ObjectSharing::WithinGroup => (Mode::Asserted, ObjectSharing::WithinGroup),
            },
            _ => (Mode::Safe, ObjectSharing::AcrossGroups),
        };
        let id = DomainId::new(title, fabric.clone());
        Ok(Self {
            region_counters: Arc::new(RegionCounters::of(&id, sharing)),
            id,
            mode,
            sharing,
            policy,
            fork_guard: ForkGuard::current(),
            auto,
            opened: Mutex::default(),
        })
    }

    /// The mode of the locks of the domain's objects.
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// The identity of the domain.
    pub const fn id(&self) -> &DomainId {
        &self.id
    }

    /// The mode of the locks of an endpoint with these bindings. An event queue belongs to no
    /// domain, and the domain's promise does not cover its readers: an endpoint that an event queue
    /// drives has real locks.
    pub fn mode_of(&self, bind: &Bindings) -> Mode {
        match bind.eq {
            Some(_) => Mode::Safe,
            None => self.mode,
        }
    }

    /// The drivers of an endpoint of the domain: its queues, its counters, the counters of regions,
    /// and the automatic progress thread, if there is one.
    pub fn drivers(&self, ep: &Ep) -> Drivers {
        let mut drivers = ep.drivers();
        drivers.auto.clone_from(&self.auto);
        drivers.region_counters = Arc::clone(&self.region_counters);
        drivers
    }

    /// The counters of the domain's regions, and the endpoints that they drive.
    pub const fn region_counters(&self) -> &Arc<RegionCounters> {
        &self.region_counters
    }

    /// Checks that the calling process has opened the domain.
    ///
    /// # Errors
    /// [`selvedge::Errno::BadF`] in a forked child, which has to open a domain of its own.
    pub fn check_process(&self) -> Result<(), Error> {
        self.fork_guard.check_for(self)
    }

    /// Opens a completion queue.
    ///
    /// # Errors
    /// As [`CqRing::open_in_domain`], and [`Self::check_process`].
    pub fn cq(&self, attr: &cq::Attr) -> Result<Arc<dyn CompletionQueue>, Error> {
        self.check_process()?;
        // SAFETY: `mode` comes from the promise of `Hints::promise_threading`, which covers the
        // queues of this domain and the endpoints bound to them.
        let cq = unsafe { CqRing::open_in_domain(attr, &self.id, self.mode, self.policy) }?;
        self.lock_opened().add_cq(&cq)?;
        Ok(cq)
    }

    /// Opens a counter.
    ///
    /// # Errors
    /// As [`Cntr::open_in_domain`], and [`Self::check_process`].
    pub fn cntr(&self, attr: &cntr::Attr) -> Result<Arc<dyn Counter>, Error> {
        self.check_process()?;
        // SAFETY: as for queues; the promise covers the domain's counters too.
        let cntr = unsafe { Cntr::open_in_domain(attr, &self.id, self.mode, self.policy) }?;
        self.lock_opened().add_cntr(&cntr)?;
        Ok(cntr)
    }

    /// Opens a shared receive context, whose receives have `iov_limit` segments at most.
    ///
    /// # Errors
    /// [`Errno::OpNotSupp`] where endpoints share no objects; as [`Self::check_process`].
    pub fn srx(&self, attr: &RxAttr, iov_limit: usize) -> Result<Arc<dyn SharedReceives>, Error> {
        self.check_process()?;
        let request = "a shared receive context (ep_attr.rx_ctx_cnt of FI_SHARED_CONTEXT)";
        self.sharing
            .check_span(&self.id, "a shared receive context", request)?;
        Ok(Shared::open(attr, &self.id, iov_limit))
    }

    /// Queues deferred work; `E` is the provider's endpoint type.
    ///
    /// # Errors
    /// As [`selvedge::Domain::queue_work`], and [`Self::check_process`].
    ///
    /// # Safety
    /// As [`selvedge::Domain::queue_work`].
    pub unsafe fn queue_work<E: Endpoint + HasDeferredOps>(
        &self,
        work: &Work<'_>,
    ) -> Result<WorkId, Error> {
        self.check_process()?;
        self.sharing
            .check_span(&self.id, "deferred work", "FI_TRIGGER")?;
        work::check(&work.action, self)?;
        let cntr = counter::resolve(&self.id, "counter of deferred work", work.cntr)?;
        let deferred_ops = match &work.action {
            Action::Post { ep, .. } => Some(work::resolve_deferred_ops::<E>(&self.id, ep)?),
            Action::Set(..) | Action::Add(..) => None,
        };
        let ready_work = self.lock_opened().ready_work(self.auto.as_ref())?;
        let id = ready_work.next_id();
        let item = WorkItem {
            id,
            threshold: work.threshold,
            cntr_addr: Arc::as_ptr(&cntr).addr(),
            action: work::action(work, &self.id, deferred_ops)?,
        };
        cntr.work.add(item, &ready_work);
        cntr.release_work();
        ready_work.run();
        Ok(id)
    }

    /// Cancels work.
    ///
    /// # Errors
    /// As [`selvedge::Domain::cancel_work`].
    pub fn cancel_work(&self, id: WorkId) -> Result {
        self.fork_guard.check()?;
        let opened = self.lock_opened();
        let mut cntrs = opened.cntrs.iter();
        if cntrs.any(|cntr| cntr.work.remove(id)) {
            return Ok(());
        }
        let ready_work = opened.ready_work.clone();
        drop(cntrs);
        drop(opened);
        match ready_work.map(|ready_work| ready_work.remove(|item| item.id == id)) {
            Some(1..) => Ok(()),
            _ => Err(Errno::NoEnt),
        }
    }

    /// Cancels all work, or all work at one counter.
    ///
    /// # Errors
    /// As [`selvedge::Domain::flush_work`].
    pub fn flush_work(&self, cntr: Option<&Arc<dyn Counter>>) -> Result {
        self.fork_guard.check()?;
        let resolve = |cntr| counter::resolve(&self.id, "counter whose work is cancelled", cntr);
        let cntr = cntr.map(resolve).transpose();
        let cntr = cntr.map_err(|error| error.errno())?;
        let opened = self.lock_opened();
        let all = opened.cntrs.iter();
        all.filter(|it| cntr.as_ref().is_none_or(|cntr| Arc::ptr_eq(cntr, it)))
            .for_each(|it| it.work.clear());
        let ready_work = opened.ready_work.clone();
        drop(opened);
        if let Some(ready_work) = ready_work {
            let addr = cntr.map(|cntr| Arc::as_ptr(&cntr).addr());
            ready_work.remove(|item| addr.is_none_or(|addr| item.cntr_addr == addr));
        }
        Ok(())
    }

    fn lock_opened(&self) -> MutexGuard<'_, Opened> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Opened {
    fn add_cq(&mut self, cq: &Arc<CqRing>) -> Result<(), Error> {
        self.cqs.push(Arc::downgrade(cq));
        match self.work_progress() {
            Some(ready_work) => cq.attach(&ready_work),
            None => Ok(()),
        }
    }

    fn add_cntr(&mut self, cntr: &Arc<Cntr>) -> Result<(), Error> {
        self.cntrs.push(Arc::downgrade(cntr));
        match self.work_progress() {
            Some(ready_work) => cntr.attach(&ready_work),
            None => Ok(()),
        }
    }

    fn work_progress(&self) -> Option<Arc<dyn CqProgress>> {
        let ready_work = Arc::clone(self.ready_work.as_ref()?);
        Some(ready_work)
    }

    /// The ready work of the domain. The first call makes every queue and counter drive it.
    fn ready_work(&mut self, auto: Option<&Arc<AutoProgress>>) -> Result<Arc<ReadyWork>, Error> {
        if let Some(ready_work) = &self.ready_work {
            return Ok(Arc::clone(ready_work));
        }
        let ready_work = Arc::new(ReadyWork::open()?);
        let progress: Arc<dyn CqProgress> = Arc::clone(&ready_work) as Arc<dyn CqProgress>;
        for cq in self.cqs.iter() {
            cq.attach(&progress)?;
        }
        for cntr in self.cntrs.iter() {
            cntr.attach(&progress)?;
        }
        auto.map_or(Ok(()), |auto| auto.attach(&progress))?;
        self.ready_work = Some(Arc::clone(&ready_work));
        Ok(ready_work)
    }
}

impl fmt::Debug for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id.title())
    }
}

#[cfg(test)]
mod tests {
    use selvedge::{Caps, Hints};

    use super::*;

    fn open(caps: Caps) -> Base {
        // SAFETY: one thread uses the objects that are opened with these hints.
        let hints = unsafe { Hints::new().promise_threading(Threading::Completion) };
        let hints = hints.caps(caps);
        let (info, policy) = (hints.info(), PollPolicy::default());
        Base::open(info, &FabricId::of(info), "a domain".into(), policy).unwrap()
    }

    /// The errors of opening objects that serve all endpoints: shared receives, counters of
    /// regions.
    fn errors_of_shared_objects(base: &Base) -> Vec<Error> {
        let cntr = base.cntr(&cntr::Attr::default()).unwrap();
        let srx = base.srx(&RxAttr::default(), 1).map(drop);
        let counter = base.region_counters().add_counter(&cntr).map(drop);
        [srx, counter].into_iter().filter_map(Result::err).collect()
    }

    #[test]
    fn objects_that_serve_all_endpoints_are_refused_where_groups_have_no_locks() {
        let separate = open(Caps::MSG);
        assert_eq!(separate.mode(), Mode::Asserted);
        let refused = errors_of_shared_objects(&separate);
        assert_eq!(refused.len(), 2);
        for error in refused {
            assert_eq!(error.errno(), Errno::OpNotSupp);
            assert!(error.message().contains("FI_THREAD_COMPLETION"), "{error}");
        }
        for caps in [Caps::RMA_EVENT, Caps::TRIGGER] {
            let shared = open(Caps::MSG | caps);
            assert_eq!(shared.mode(), Mode::Safe);
            assert!(errors_of_shared_objects(&shared).is_empty());
        }
    }
}
