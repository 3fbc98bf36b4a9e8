//! `Shared`: what the endpoints of a domain have in common.

use std::sync::Arc;

use selvedge::MrMode;
use selvedge_kit::mr::RegionCounters;

use crate::memory::announcements::Announcements;
use crate::memory::keys::Keys;
use crate::memory::siblings::Siblings;
use crate::memory::special::OwnBlocks;

/// What the endpoints of a domain have in common. It has locks of its own, which hold whatever was
/// promised about threads.
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
