//! `Shared`: the state that the endpoints of a domain share.

use std::sync::Arc;

use selvedge::MrMode;
use selvedge_kit::mr::RegionCounters;

use crate::memory::announcements::Announcements;
use crate::memory::keys::Keys;
use crate::memory::siblings::Siblings;
use crate::memory::special::OwnBlocks;

/// The state that the endpoints of a domain share. Its locks are taken with every threading model
/// that the application may have promised.
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
