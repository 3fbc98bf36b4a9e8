//! Regions with a defect: registered memory, and memory that the domain has made.

#![expect(unsafe_code, reason = "memory around memory")]

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use selvedge::{Allocation, Counter, Desc, Error, MemoryRegion, MrAccess};

use super::Flaw;
use super::mixed::mixed;
use super::objects::FlawedCounter;

/// The regions of a domain that peers may use, in the order of their births.
pub(super) type Regions = Mutex<Vec<Weak<dyn MemoryRegion>>>;

/// A region, or an allocation, which is one.
pub(super) struct FlawedRegion<T: ?Sized + MemoryRegion> {
    inner: Arc<T>,
    flaw: Flaw,
    others: Arc<Regions>,
}

impl<T: ?Sized + MemoryRegion> FlawedRegion<T> {
    /// Around `inner`, which is `own` in other words.
    pub(super) fn new(
        inner: Arc<T>,
        own: &Arc<dyn MemoryRegion>,
        flaw: Flaw,
        others: &Arc<Regions>,
    ) -> Self {
        let mut all = others.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|region| region.strong_count() > 0);
        all.push(Arc::downgrade(own));
        Self {
            inner,
            flaw,
            others: Arc::clone(others),
        }
    }

    /// The region that was made behind this one, or the first.
    fn next(&self) -> Option<Arc<dyn MemoryRegion>> {
        let all = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        let all: Vec<_> = all.iter().filter_map(Weak::upgrade).collect();
        let own = all.iter().position(|region| region.key() == self.key())?;
        all.get((own + 1) % all.len()).cloned()
    }
}

impl<T: ?Sized + MemoryRegion> MemoryRegion for FlawedRegion<T> {
    fn key(&self) -> u64 {
        self.inner.key()
    }

    fn desc(&self) -> Desc {
        self.inner.desc()
    }

    fn bind_counter(&self, cntr: &Arc<dyn Counter>, what: MrAccess) -> Result<(), Error> {
        let cntr = FlawedCounter::inner(Arc::clone(cntr));
        match (self.flaw, self.next()) {
            (Flaw::MixesRegions, Some(other)) => other.bind_counter(&cntr, what),
            (Flaw::WrongCounter, _) => {
                let both = MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE;
                let turned = what.symmetric_difference(both);
                let turned = if turned.is_empty() { both } else { turned };
                self.inner.bind_counter(&cntr, turned)
            }
            _ => mixed(self.flaw, self.inner.bind_counter(&cntr, what), || Ok(())),
        }
    }
}

// SAFETY: the memory is the inner allocation's, which lives as long as this.
unsafe impl Allocation for FlawedRegion<dyn Allocation> {
    fn base(&self) -> *mut u8 {
        self.inner.base()
    }

    fn len(&self) -> usize {
        self.inner.len()
    }

    fn remote_addr(&self) -> u64 {
        self.inner.remote_addr()
    }

    fn is_special(&self) -> bool {
        self.inner.is_special()
    }
}

impl<T: ?Sized + MemoryRegion> fmt::Debug for FlawedRegion<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
