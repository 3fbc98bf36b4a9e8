//! Memory that a domain allocates for its application (`Domain::alloc`). The domain announces each
//! block of it to all peers, which map the block until it is freed. [`crate::memory::special`] has
//! the tables of the domain's blocks and of its peers' blocks.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use selvedge::{Allocation, Counter, Desc, Error, MemoryRegion, MrAccess, alloc, mr};
use selvedge_kit::fork_guard::ForkGuard;
use selvedge_kit::mr::Entry;

use crate::connect::packet::{BlockInfo, encode_block, encode_release};
use crate::provider::shared::Shared;
use crate::smr::Writers;
use crate::smr::special::{Block, PageSize};

/// The application's handle to special memory: the block and its registration.
#[derive(Debug)]
struct DomainAllocation {
    // Declared before the memory, so that the key is withdrawn first.
    region: Arc<dyn MemoryRegion>,
    remote_addr: u64,
    block: AnnouncedBlock,
}

/// A block of special memory that the domain has announced to its peers.
#[derive(Debug)]
pub(crate) struct AnnouncedBlock {
    shared: Arc<Shared>,
    memory: Block,
    location: BlockInfo,
    /// The number of the announcement.
    announcement: u64,
    /// The requested length in bytes.
    len: usize,
    fork_guard: ForkGuard,
}

impl AnnouncedBlock {
    /// Allocates memory, announces it to the peers, and registers it.
    ///
    /// # Errors
    /// As [`Block::create`], and as [`selvedge_kit::mr::Keys::add`].
    pub(crate) fn create(
        shared: &Arc<Shared>,
        len: usize,
        attr: &alloc::Attr,
    ) -> Result<Arc<dyn Allocation>, Error> {
        let pages = if attr.huge_pages {
            PageSize::Huge
        } else {
            PageSize::Ordinary
        };
        let writable = attr.access.contains(MrAccess::REMOTE_WRITE);
        let writers = if writable {
            Writers::AnyProcess
        } else {
            Writers::Owner
        };
        let (memory, fd) = Block::create(len, writers, pages)?;
        let location = BlockInfo {
            block: shared.special.next_number(),
            base: memory.base().expose_provenance() as u64,
            len: memory.len() as u64,
            writable,
            is_arena: false,
        };
        let block = Self::announce(shared, memory, location, fd, len);
        let first = location.base as usize;
        let remote_addr = shared.keys.remote_start(first, &mr::Attr::default());
        let region = shared.keys.add(Entry {
            key: attr.requested_key,
            start: remote_addr,
            len,
            first,
            access: attr.access,
            is_counted: false,
            details: Some(location.block),
        })?;
        Ok(Arc::new(DomainAllocation {
            region,
            remote_addr,
            block,
        }))
    }

    /// Announces the block to the peers. The key of the block must not exist yet.
    fn announce(
        shared: &Arc<Shared>,
        memory: Block,
        location: BlockInfo,
        fd: OwnedFd,
        len: usize,
    ) -> Self {
        shared.special.add(location);
        Self {
            shared: Arc::clone(shared),
            memory,
            location,
            announcement: shared
                .announcements
                .publish(encode_block(&location), Some(fd)),
            len,
            fork_guard: ForkGuard::current(),
        }
    }
}

impl Drop for AnnouncedBlock {
    fn drop(&mut self) {
        // In a forked child the block belongs to the parent.
        if !self.fork_guard.is_owner() {
            return;
        }
        // The block leaves the table before its address can be reused.
        self.shared.special.remove(self.location.base);
        let release = encode_release(self.location.block);
        self.shared
            .announcements
            .withdraw(self.announcement, release);
    }
}

impl MemoryRegion for DomainAllocation {
    fn key(&self) -> u64 {
        self.region.key()
    }

    fn desc(&self) -> Desc {
        Desc::NONE
    }

    fn bind_counter(&self, cntr: &Arc<dyn Counter>, access: MrAccess) -> Result<(), Error> {
        self.region.bind_counter(cntr, access)
    }
}

#[expect(unsafe_code, reason = "the promise of the memory trait")]
// SAFETY: the block is whole pages of zeroed memory, mapped until `self` is dropped. This provider
// accesses the block only for the operations that name it. Peers have a descriptor that is sealed
// against writing, unless `REMOTE_WRITE` was requested.
unsafe impl Allocation for DomainAllocation {
    fn base(&self) -> *mut u8 {
        self.block.memory.base()
    }

    fn len(&self) -> usize {
        self.block.len
    }

    fn remote_addr(&self) -> u64 {
        self.remote_addr
    }

    fn is_special(&self) -> bool {
        true
    }
}
