//! Counters of regions (fi_mr_bind(3)): what peers do with the regions of a domain, counted for each
//! region that wants it.
//!
//! An access is counted when the regions are let go again, because counting wakes threads and
//! releases work. What reads such a counter drives every endpoint of the domain: peers reach a
//! region by any of them.

use std::iter;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustc_hash::FxHashMap;
use selvedge::{Counter, Errno, Error, MrAccess};

use crate::cntr::{self, Cntr};
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
#[derive(Debug, Default)]
pub struct Watchers(Mutex<Sides>);

#[derive(Debug, Default)]
struct Sides {
    cntrs: Vec<Weak<Cntr>>,
    ledgers: Vec<Weak<Ledger>>,
}

impl Watchers {
    /// Has reads of a counter drive all endpoints, now and later; the counter as this package's own.
    ///
    /// # Errors
    /// [`Errno::Inval`] for a counter of another provider; the system's, when memory is too short to
    /// wait for an endpoint.
    pub fn watch(&self, cntr: &Arc<dyn Counter>) -> Result<Arc<Cntr>, Error> {
        let cntr = cntr::own(cntr)?;
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
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
