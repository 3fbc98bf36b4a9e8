//! `Shared`: state shared by the endpoints of a domain.

use std::sync::Arc;

use selvedge::MrMode;
use selvedge_kit::mr::RegionCounters;

use crate::memory::announcements::Announcements;
use crate::memory::keys::Keys;
use crate::memory::siblings::Siblings;
use crate::memory::special::OwnBlocks;

/// State shared by the endpoints of a domain. Its locks are always taken, whatever threading model
/// the application has promised.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) announcements: Announcements,
    pub(crate) special: OwnBlocks,
    pub(crate) keys: Keys,
    pub(crate) siblings: Siblings,
}

impl Shared {
    pub(crate) fn new(mode: MrMode, region_counters: &Arc<RegionCounters>) -> Self {
        Self {
            announcements: Announcements::default(),
            special: OwnBlocks::default(),
            keys: Keys::new(mode, region_counters),
            siblings: Siblings::default(),
        }
    }
}
