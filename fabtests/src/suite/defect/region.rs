//! Regions with a defect: registered memory, and memory that the domain has allocated.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use selvedge::{Counter, Error, MemoryRegion, MrAccess};
use selvedge_kit::layer::{Layers as _, ObjectLayer, RegionLayer};

use super::hide_refusal::hide_refusal;
use super::kind::Defect;

/// The regions of a domain that peers may access, in the order of their registration.
pub(super) type Regions = Mutex<Vec<Weak<dyn MemoryRegion>>>;

pub(super) struct DefectiveRegion {
    defect: Defect,
    regions: Arc<Regions>,
}

impl DefectiveRegion {
    /// Makes the layer around `region`.
    pub(super) fn new(
        region: &Arc<dyn MemoryRegion>,
        defect: Defect,
        regions: &Arc<Regions>,
    ) -> Self {
        let mut all = regions.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|region| region.strong_count() > 0);
        all.push(Arc::downgrade(region));
        Self {
            defect,
            regions: Arc::clone(regions),
        }
    }

    /// Returns the region after the one with this key, or the first region after the last one.
    fn next_region(&self, key: u64) -> Option<Arc<dyn MemoryRegion>> {
        let all = self.regions.lock().unwrap_or_else(PoisonError::into_inner);
        let all: Vec<_> = all.iter().filter_map(Weak::upgrade).collect();
        let region = all.iter().position(|region| region.key() == key)?;
        all.get((region + 1) % all.len()).cloned()
    }
}

impl ObjectLayer for DefectiveRegion {
    type Layers = Defect;
}

impl RegionLayer for DefectiveRegion {
    fn bind_counter(
        &self,
        below: &dyn MemoryRegion,
        cntr: &Arc<dyn Counter>,
        access: MrAccess,
    ) -> Result<(), Error> {
        let cntr = Defect::counter(cntr);
        match (self.defect, self.next_region(below.key())) {
            (Defect::MixesRegions, Some(other)) => other.bind_counter(&cntr, access),
            (Defect::WrongCounter, _) => {
                let all_access = MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE;
                let swapped = access.symmetric_difference(all_access);
                let swapped = if swapped.is_empty() {
                    all_access
                } else {
                    swapped
                };
                below.bind_counter(&cntr, swapped)
            }
            _ => hide_refusal(self.defect, below.bind_counter(&cntr, access), || Ok(())),
        }
    }
}
