//! Regions with a defect: registered memory, and memory that the domain has made.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use selvedge::{Counter, Error, MemoryRegion, MrAccess};
use selvedge_kit::layer::{Layers as _, ObjectLayer, RegionLayer};

use super::Flaw;
use super::mixed::mixed;

/// The regions of a domain that peers may use, in the order of their births.
pub(super) type Regions = Mutex<Vec<Weak<dyn MemoryRegion>>>;

pub(super) struct FlawedRegion {
    flaw: Flaw,
    others: Arc<Regions>,
}

impl FlawedRegion {
    /// What is around `own`.
    pub(super) fn new(own: &Arc<dyn MemoryRegion>, flaw: Flaw, others: &Arc<Regions>) -> Self {
        let mut all = others.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|region| region.strong_count() > 0);
        all.push(Arc::downgrade(own));
        Self {
            flaw,
            others: Arc::clone(others),
        }
    }

    /// The region that was made behind the one with this key, or the first.
    fn next(&self, key: u64) -> Option<Arc<dyn MemoryRegion>> {
        let all = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        let all: Vec<_> = all.iter().filter_map(Weak::upgrade).collect();
        let own = all.iter().position(|region| region.key() == key)?;
        all.get((own + 1) % all.len()).cloned()
    }
}

impl ObjectLayer for FlawedRegion {
    type Layers = Flaw;
}

impl RegionLayer for FlawedRegion {
    fn bind_counter(
        &self,
        below: &dyn MemoryRegion,
        cntr: &Arc<dyn Counter>,
        what: MrAccess,
    ) -> Result<(), Error> {
        let cntr = Flaw::counter(cntr);
        match (self.flaw, self.next(below.key())) {
            (Flaw::MixesRegions, Some(other)) => other.bind_counter(&cntr, what),
            (Flaw::WrongCounter, _) => {
                let both = MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE;
                let turned = what.symmetric_difference(both);
                let turned = if turned.is_empty() { both } else { turned };
                below.bind_counter(&cntr, turned)
            }
            _ => mixed(self.flaw, below.bind_counter(&cntr, what), || Ok(())),
        }
    }
}
