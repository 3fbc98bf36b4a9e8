//! `HeapArenas`: the arenas of this process's shared heap (`selvedge-heap`) that a domain has
//! announced.
//!
//! An arena is announced when the domain first sends from it or registers memory in it. It is
//! withdrawn after the heap has ceased to offer it: because it is empty, or because of a fork. The
//! heap does not notify the domain, which compares a counter when it sends and when it polls its
//! sockets.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rustc_hash::FxHashMap;
use selvedge_heap::table::{Client, Location};

use crate::connect::packet::{BlockInfo, encode_block, encode_release};
use crate::memory::announcements::Announcements;
use crate::memory::special::OwnBlocks;

/// The announced arenas of a domain.
#[derive(Debug, Default)]
pub(crate) struct HeapArenas {
    client: Client,
    /// The heap's count of changes when [`Self::withdraw_ended`] last compared.
    changes: AtomicU64,
    /// By serial number.
    announced: Mutex<FxHashMap<u64, AnnouncedArena>>,
}

/// An arena that peers may have mapped.
#[derive(Clone, Copy, Debug)]
struct AnnouncedArena {
    /// The number by which peers know the arena.
    block: u64,
    /// The number of the announcement.
    announcement: u64,
}

impl HeapArenas {
    /// Returns the number of the arena that holds the `len` bytes at an address, and announces the
    /// arena if that has not happened yet. Returns `None` for other memory.
    pub(crate) fn announce(
        &self,
        addr: u64,
        len: u64,
        blocks: &OwnBlocks,
        announcements: &Announcements,
    ) -> Option<u64> {
        let location = self.client.find(addr, len)?;
        self.withdraw_ended(announcements);
        let mut announced = self
            .announced
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(arena) = announced.get(&location.serial) {
            return Some(arena.block);
        }
        let fd = self.client.descriptor(location.serial)?;
        let arena = AnnouncedArena::publish(location, fd, blocks, announcements);
        announced.insert(location.serial, arena);
        Some(arena.block)
    }

    /// Withdraws the announcements of arenas that the heap does not offer any more. An operation
    /// that names such an arena is copied like one from other memory.
    #[inline]
    pub(crate) fn withdraw_ended(&self, announcements: &Announcements) {
        let changes = self.client.changes();
        if changes != self.changes.load(Ordering::Relaxed) {
            self.changes.store(changes, Ordering::Relaxed);
            self.withdraw(announcements);
        }
    }

    #[cold]
    fn withdraw(&self, announcements: &Announcements) {
        let mut announced = self
            .announced
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        announced.retain(|&serial, arena| {
            let is_offered = self.client.is_offered(serial);
            if !is_offered {
                let release = encode_release(arena.block);
                announcements.withdraw(arena.announcement, release);
            }
            is_offered
        });
    }
}

impl AnnouncedArena {
    fn publish(
        location: Location,
        fd: OwnedFd,
        blocks: &OwnBlocks,
        announcements: &Announcements,
    ) -> Self {
        let info = BlockInfo {
            block: blocks.next_number(),
            base: location.base,
            len: location.len,
            writable: false,
            is_arena: true,
        };
        Self {
            block: info.block,
            announcement: announcements.publish(encode_block(&info), Some(fd)),
        }
    }
}
