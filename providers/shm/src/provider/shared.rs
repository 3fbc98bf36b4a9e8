//! `Shared`: what the endpoints of a domain have in common.

use std::sync::Arc;

use selvedge::MrMode;
use selvedge_kit::mr::RegionCounters;

use crate::memory::exports::Exports;
use crate::memory::keys::Keys;
use crate::memory::siblings::Siblings;
use crate::memory::special::Special;

/// What the endpoints of a domain have in common. It has locks of its own, which hold whatever was
/// promised about threads.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) exports: Exports,
    pub(crate) special: Special,
    pub(crate) keys: Keys,
    pub(crate) siblings: Siblings,
}

impl Shared {
    pub(crate) fn new(mode: MrMode, region_counters: &Arc<RegionCounters>) -> Self {
        Self {
            exports: Exports::default(),
            special: Special::default(),
            keys: Keys::new(mode, region_counters),
            siblings: Siblings::default(),
        }
    }
}
