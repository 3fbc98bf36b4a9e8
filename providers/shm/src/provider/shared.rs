//! `Shared`: the state that the endpoints of a domain share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use selvedge::MrMode;
use selvedge_kit::mr::{Keys, RegionCounters};

use crate::memory::announcements::Announcements;
use crate::memory::keys::{KeyChunks, RegionKeys};
use crate::memory::siblings::Siblings;
use crate::memory::special::OwnBlocks;

/// The state that the endpoints of a domain share. Its locks are taken with every threading model
/// that the application may have promised.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) announcements: Arc<Announcements>,
    pub(crate) special: OwnBlocks,
    pub(crate) keys: Arc<RegionKeys>,
    key_chunks: Arc<AtomicUsize>,
    pub(crate) siblings: Siblings,
}

impl Shared {
    pub(crate) fn new(mode: MrMode, region_counters: &Arc<RegionCounters>) -> Self {
        let (announcements, key_chunks) = (Arc::default(), Arc::default());
        let keys = Keys::published(mode, KeyChunks::new(&key_chunks, &announcements));
        Self {
            announcements,
            special: OwnBlocks::default(),
            keys: Arc::new(keys.with_counters(region_counters)),
            key_chunks,
            siblings: Siblings::default(),
        }
    }

    /// Returns the number of chunks of the key table that a peer needs before it may treat a key as
    /// unknown. Takes no lock.
    pub(crate) fn key_chunks(&self) -> usize {
        self.key_chunks.load(Ordering::Acquire)
    }
}
