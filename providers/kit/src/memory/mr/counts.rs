//! Counters of registered regions (fi_mr_bind(3)): accesses by peers, counted for each region that
//! has a counter.
//!
//! An access is counted after the lock of the regions is released, because counting wakes threads
//! and releases work. Reading such a counter drives every endpoint of the domain: peers reach a
//! region through any of them.

use std::iter;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustc_hash::FxHashMap;
use selvedge::{Caps, Counter, Errno, Error, Info, MrAccess};

use crate::cntr::{self, Cntr};
use crate::domain::identity::DomainId;
use crate::endpoint::work::DeferredOps;

/// The events that a region counts: remote reads, and remote writes.
const EVENTS: [MrAccess; 2] = [MrAccess::REMOTE_READ, MrAccess::REMOTE_WRITE];

/// The counters of a domain's regions, by key.
#[derive(Debug, Default)]
pub struct Counts(FxHashMap<u64, Bound>);

/// The counters of a region: of reads, and of writes.
pub type Bound = [Option<Arc<Cntr>>; 2];

/// The events of one access: for each region that it touches, a counter and a number of bytes.
#[derive(Debug)]
#[must_use = "the events are lost unless they are counted"]
pub struct AccessEvents(Vec<(Arc<Cntr>, usize)>);

impl Counts {
    /// Binds a counter to the region with this key, for these events.
    ///
    /// # Errors
    /// [`Errno::Inval`] for other events, and for an event for which the region has a counter
    /// already.
    pub fn bind(&mut self, key: u64, cntr: &Arc<Cntr>, events: MrAccess) -> Result<(), Error> {
        let refused = |reason: &str| {
            let message =
                format!("a counter for {events:?} of the region with key {key:#x}: {reason}");
            Err(Error::new(Errno::Inval, message))
        };
        if events.is_empty() || !(EVENTS[0] | EVENTS[1]).contains(events) {
            return refused("regions count remote reads and remote writes");
        }
        let bound = self.0.entry(key).or_default();
        let is_taken = |slot: usize| bound[slot].is_some() && events.contains(EVENTS[slot]);
        if (0..EVENTS.len()).any(is_taken) {
            return refused("the region has one already");
        }
        for (slot, event) in iter::zip(bound, EVENTS) {
            if events.contains(event) {
                *slot = Some(Arc::clone(cntr));
            }
        }
        Ok(())
    }

    /// Removes a region. The caller drops the counters while it holds no lock.
    pub fn remove(&mut self, key: u64) -> Option<Bound> {
        self.0.remove(&key)
    }

    /// The events of an access to `segments`, each a key and a number of bytes: one event for each
    /// region and counter.
    pub fn events_of(
        &self,
        segments: impl Iterator<Item = (u64, usize)>,
        access: MrAccess,
    ) -> AccessEvents {
        let mut regions = Vec::<(u64, usize)>::new();
        for (key, len) in segments.filter(|(key, _)| self.0.contains_key(key)) {
            match regions.iter_mut().find(|(other, _)| *other == key) {
                Some((_, sum)) => *sum += len,
                None => regions.push((key, len)),
            }
        }
        let events = regions.iter().flat_map(|&(key, len)| {
            let [read, write] = &self.0[&key];
            let read = read.as_ref().filter(|_| access.contains(EVENTS[0]));
            let write = write.as_ref().filter(|_| access.contains(EVENTS[1]));
            // A counter of both events counts an access once.
            let write = write.filter(|write| read.is_none_or(|read| !Arc::ptr_eq(read, write)));
            iter::chain(read, write).map(move |cntr| (Arc::clone(cntr), len))
        });
        AccessEvents(events.collect())
    }
}

impl AccessEvents {
    /// Counts the events.
    pub fn count(self) {
        for (cntr, len) in self.0 {
            cntr.count(len);
        }
    }
}

/// The counters of a domain's regions, and the endpoints of the domain. Every one of these counters
/// drives every endpoint.
#[derive(Debug)]
pub struct RegionCounters {
    domain: DomainId,
    sharing: ObjectSharing,
    members: Mutex<Members>,
}

/// Whether the groups of endpoints of a domain share objects. Under
/// [`selvedge::info::Threading::Completion`] each group of endpoints that complete at the same
/// queues and counters has one thread; if the groups share no object, its objects need no locks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ObjectSharing {
    /// Objects may serve all endpoints of the domain.
    #[default]
    AcrossGroups,
    /// Every object serves one group.
    WithinGroup,
}

impl ObjectSharing {
    /// The sharing of a domain that is opened with `info` under the promise
    /// [`selvedge::info::Threading::Completion`]: objects that serve all endpoints have to be
    /// requested when the domain is opened.
    pub(crate) fn from_info(info: &Info) -> Self {
        let serves_all = Caps::RMA_EVENT | Caps::TRIGGER;
        let shares_receives = info.ep_attr.rx_ctx_cnt == usize::MAX;
        if info.caps.intersects(serves_all) || shares_receives {
            Self::AcrossGroups
        } else {
            Self::WithinGroup
        }
    }

    /// Checks that an object of `domain` may serve all its endpoints. `request` is the capability
    /// or attribute that the application has to request.
    ///
    /// # Errors
    /// [`Errno::OpNotSupp`] if objects serve one group each.
    pub(crate) fn check_span(
        self,
        domain: &DomainId,
        object: &str,
        request: &str,
    ) -> Result<(), Error> {
        if self == Self::AcrossGroups {
            return Ok(());
        }
        let message = format!(
            "{domain:?}: {object} serves all endpoints, but the domain was opened under \
             FI_THREAD_COMPLETION and its objects have no locks; request {request} when the domain \
             is opened, or promise nothing about threads"
        );
        Err(Error::new(Errno::OpNotSupp, message))
    }
}

#[derive(Debug, Default)]
struct Members {
    cntrs: Vec<Weak<Cntr>>,
    endpoints: Vec<Weak<DeferredOps>>,
}

impl RegionCounters {
    /// Makes an empty registry for a domain.
    pub fn of(domain: &DomainId, sharing: ObjectSharing) -> Self {
        Self {
            domain: domain.clone(),
            sharing,
            members: Mutex::default(),
        }
    }

    /// Makes a counter drive all present and later endpoints. Returns the counter as the kit's
    /// type.
    ///
    /// # Errors
    /// [`Errno::Inval`] for a counter of another domain; the system's error, if there is no memory
    /// to wait for an endpoint.
    pub fn add_counter(&self, cntr: &Arc<dyn Counter>) -> Result<Arc<Cntr>, Error> {
        let cntr = cntr::resolve(&self.domain, "counter of a region", cntr)?;
        self.sharing
            .check_span(&self.domain, "the counter of a region", "FI_RMA_EVENT")?;
        let mut members = self.lock();
        let mut endpoints = members.endpoints.iter().filter_map(Weak::upgrade);
        endpoints.try_for_each(|ops| ops.add_driver(&cntr))?;
        drop(endpoints);
        members.cntrs.retain(|other| other.strong_count() > 0);
        members.cntrs.push(Arc::downgrade(&cntr));
        Ok(cntr)
    }

    /// Adds an endpoint: every counter drives it.
    ///
    /// # Errors
    /// The system's error, as for [`Self::add_counter`].
    pub(crate) fn add_endpoint(&self, endpoint: &Arc<DeferredOps>) -> Result<(), Error> {
        let mut members = self.lock();
        members.endpoints.push(Arc::downgrade(endpoint));
        let mut cntrs = members.cntrs.iter().filter_map(Weak::upgrade);
        cntrs.try_for_each(|cntr| endpoint.add_driver(&cntr))
    }

    /// Removes an endpoint that closes; [`DeferredOps::remove_drivers`] detaches the counters.
    pub(crate) fn remove_endpoint(&self, endpoint: &Arc<DeferredOps>) {
        let is_another = |ops: &Weak<DeferredOps>| ops.as_ptr() != Arc::as_ptr(endpoint);
        self.lock().endpoints.retain(is_another);
    }

    fn lock(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
