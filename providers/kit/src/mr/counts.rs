//! Counters of regions (fi_mr_bind(3)): what peers do with the regions of a domain, counted for each
//! region that wants it.
//!
//! An access is counted when the regions are let go again, because counting wakes threads and
//! releases work. What reads such a counter drives every endpoint of the domain: peers reach a
//! region by any of them.

use std::iter;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustc_hash::FxHashMap;
use selvedge::{Caps, Counter, Errno, Error, Info, MrAccess};

use crate::cntr::{self, Cntr};
use crate::identity::DomainId;
use crate::work::Ledger;

/// What may be counted: bytes that peers have taken, and bytes that they have changed.
const EVENTS: [MrAccess; 2] = [MrAccess::REMOTE_READ, MrAccess::REMOTE_WRITE];

/// The counters of a domain's regions, by key.
#[derive(Debug, Default)]
pub struct Counts(FxHashMap<u64, Bound>);

/// The counters of a region: of reads, and of writes.
pub type Bound = [Option<Arc<Cntr>>; 2];

/// What an access is to the regions that it has touched: a counter and a number of bytes for each.
#[derive(Debug)]
#[must_use = "what is not counted is lost"]
pub struct Due(Vec<(Arc<Cntr>, usize)>);

impl Counts {
    /// Binds a counter to the region with this key, for the events `what`.
    ///
    /// # Errors
    /// [`Errno::Inval`] for anything but such events, and for one that has its counter already.
    pub fn bind(&mut self, key: u64, cntr: &Arc<Cntr>, what: MrAccess) -> Result<(), Error> {
        let refused = |why: &str| {
            let what =
                format!("binding a counter for {what:?} to the region of key {key:#x}: {why}");
            Err(Error::new(Errno::Inval, what))
        };
        if what.is_empty() || !(EVENTS[0] | EVENTS[1]).contains(what) {
            return refused("regions count remote reads and remote writes");
        }
        let bound = self.0.entry(key).or_default();
        let is_taken = |place: usize| bound[place].is_some() && what.contains(EVENTS[place]);
        if (0..EVENTS.len()).any(is_taken) {
            return refused("it has one");
        }
        for (place, event) in iter::zip(bound, EVENTS) {
            if what.contains(event) {
                *place = Some(Arc::clone(cntr));
            }
        }
        Ok(())
    }

    /// Forgets a region. Its counters are for the caller to drop, without locks.
    pub fn remove(&mut self, key: u64) -> Option<Bound> {
        self.0.remove(&key)
    }

    /// What an access of `places`, each a key and a number of bytes, is to their regions: one event
    /// for each region and counter.
    pub fn due(&self, places: impl Iterator<Item = (u64, usize)>, what: MrAccess) -> Due {
        let mut seen = Vec::<(u64, usize)>::new();
        for (key, len) in places.filter(|(key, _)| self.0.contains_key(key)) {
            match seen.iter_mut().find(|(other, _)| *other == key) {
                Some((_, sum)) => *sum += len,
                None => seen.push((key, len)),
            }
        }
        let due = seen.iter().flat_map(|&(key, len)| {
            let [read, write] = &self.0[&key];
            let read = read.as_ref().filter(|_| what.contains(EVENTS[0]));
            let write = write.as_ref().filter(|_| what.contains(EVENTS[1]));
            // One that counts both counts an access once.
            let write = write.filter(|write| read.is_none_or(|read| !Arc::ptr_eq(read, write)));
            iter::chain(read, write).map(move |cntr| (Arc::clone(cntr), len))
        });
        Due(due.collect())
    }
}

impl Due {
    /// Counts it.
    pub fn count(self) {
        for (cntr, len) in self.0 {
            cntr.count(len);
        }
    }
}

/// The counters of a domain's regions on one side, its endpoints on the other: the former drive the
/// latter, all of them.
#[derive(Debug)]
pub struct Watchers {
    domain: DomainId,
    groups: Groups,
    sides: Mutex<Sides>,
}

/// Whether objects of a domain may have one thread each, by the groups of endpoints that complete at
/// the same queues and counters ([`selvedge::info::Threading::Completion`]), and have no locks therefore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Groups {
    /// Objects may be of use to all endpoints of the domain.
    #[default]
    Together,
    /// None may.
    Apart,
}

impl Groups {
    /// Those of a domain that is opened with `info` under the promise [`selvedge::info::Threading::Completion`]: what
    /// serves all endpoints has to be asked for when the domain is opened.
    pub(crate) fn of(info: &Info) -> Self {
        let serves_all = Caps::RMA_EVENT | Caps::TRIGGER;
        let shares_receives = info.ep_attr.rx_ctx_cnt == usize::MAX;
        match info.caps.intersects(serves_all) || shares_receives {
            true => Self::Together,
            false => Self::Apart,
        }
    }

    /// Makes sure that an object of `domain` may be of use to all its endpoints; it is when `asked` is
    /// asked for.
    ///
    /// # Errors
    /// [`Errno::OpNotSupp`] where groups are kept apart.
    pub(crate) fn check_span(
        self,
        domain: &DomainId,
        object: &str,
        asked: &str,
    ) -> Result<(), Error> {
        if self == Self::Together {
            return Ok(());
        }
        let what = format!(
            "{domain:?}: {object} is of use to all endpoints, which have no locks here: the domain was \
             opened under FI_THREAD_COMPLETION; ask for {asked} when it is opened, or promise nothing \
             about threads"
        );
        Err(Error::new(Errno::OpNotSupp, what))
    }
}

#[derive(Debug, Default)]
struct Sides {
    cntrs: Vec<Weak<Cntr>>,
    ledgers: Vec<Weak<Ledger>>,
}

impl Watchers {
    /// Those of a domain, of which there are none yet.
    pub fn of(domain: &DomainId, groups: Groups) -> Self {
        Self {
            domain: domain.clone(),
            groups,
            sides: Mutex::default(),
        }
    }

    /// Has reads of a counter drive all endpoints, now and later; the counter as this package's own.
    ///
    /// # Errors
    /// [`Errno::Inval`] for a counter of another domain; the system's, when memory is too short to
    /// wait for an endpoint.
    pub fn watch(&self, cntr: &Arc<dyn Counter>) -> Result<Arc<Cntr>, Error> {
        let cntr = cntr::own(&self.domain, "counter of a region", cntr)?;
        self.groups
            .check_span(&self.domain, "the counter of a region", "FI_RMA_EVENT")?;
        let mut sides = self.lock();
        let mut ledgers = sides.ledgers.iter().filter_map(Weak::upgrade);
        ledgers.try_for_each(|ledger| ledger.follow(&cntr))?;
        drop(ledgers);
        sides.cntrs.retain(|other| other.strong_count() > 0);
        sides.cntrs.push(Arc::downgrade(&cntr));
        Ok(cntr)
    }

    /// An endpoint is open.
    ///
    /// # Errors
    /// The system's, as for [`Self::watch`].
    pub(crate) fn join(&self, endpoint: &Arc<Ledger>) -> Result<(), Error> {
        let mut sides = self.lock();
        sides.ledgers.push(Arc::downgrade(endpoint));
        let mut cntrs = sides.cntrs.iter().filter_map(Weak::upgrade);
        cntrs.try_for_each(|cntr| endpoint.follow(&cntr))
    }

    /// An endpoint closes; [`Ledger::part`] is for what follows it.
    pub(crate) fn leave(&self, endpoint: &Arc<Ledger>) {
        let is_another = |ledger: &Weak<Ledger>| ledger.as_ptr() != Arc::as_ptr(endpoint);
        self.lock().ledgers.retain(is_another);
    }

    fn lock(&self) -> MutexGuard<'_, Sides> {
        self.sides.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
