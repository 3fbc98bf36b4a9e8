//! `Shared`: the state that the endpoints of a domain share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use selvedge::{Error, IovMut, MemoryRegion, MrAccess, MrMode, mr};
use selvedge_kit::mr::{Keys, RegionCounters};

use crate::memory::announcements::Announcements;
use crate::memory::heap::HeapArenas;
use crate::memory::keys::{KeyChunks, RegionKeys};
use crate::memory::siblings::Siblings;
use crate::memory::special::OwnBlocks;

/// The state that the endpoints of a domain share. Its locks are taken with every threading model
/// that the application may have promised.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) announcements: Arc<Announcements>,
    pub(crate) special: OwnBlocks,
    heap: HeapArenas,
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
            heap: HeapArenas::default(),
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

    /// Registers memory, as [`Keys::register`]. Announces an arena of the shared heap that peers
    /// may read in, so that they copy from its mapping.
    pub(crate) fn register(
        &self,
        memory: &[IovMut],
        attr: &mr::Attr,
    ) -> Result<Arc<dyn MemoryRegion>, Error> {
        if attr.access.contains(MrAccess::REMOTE_READ) {
            for segment in memory {
                let first = segment.base.expose_provenance() as u64;
                // Where peers cannot map the memory, they use another protocol.
                let _ = self.block_of(first, segment.len as u64);
            }
        }
        self.keys.register(memory, attr)
    }

    /// Returns the number of the block, or of the arena of the shared heap, that holds the `len`
    /// bytes at an address of this process. Announces an arena at its first use.
    #[inline]
    pub(crate) fn block_of(&self, addr: u64, len: u64) -> Option<u64> {
        let block = self.special.block_of(addr, len);
        block.or_else(|| {
            self.heap
                .announce(addr, len, &self.special, &self.announcements)
        })
    }

    /// Sends pending announcements, and withdraws arenas that the heap does not offer any more.
    pub(crate) fn catch_up(&self) {
        self.heap.withdraw_ended(&self.announcements);
        self.announcements.catch_up();
    }
}
