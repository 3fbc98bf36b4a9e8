//! Special memory: the blocks that a domain allocates for its application, and the blocks that
//! peers have announced.
//!
//! Each allocation is a *block*. The owner announces it to all peers with its address in the
//! owner's process. A peer that has mapped the block copies messages from it directly
//! ([`PeerBlocks`]), and reads and writes the parts of it for which it has keys. When the owner
//! frees the block, peers unmap it.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use rustc_hash::FxHashMap;
use selvedge::{Errno, Error};

use crate::connect::packet::BlockInfo;
use crate::matching::lent::views::{LendableBlock, LentBytes};
use crate::memory::arena::MappedArena;
use crate::memory::mapping_quota::MappingQuota;
use crate::smr::arena::PeerArena;
use crate::smr::bytes::Bytes;
use crate::smr::special::PeerBlock;

/// The blocks of a domain, by address.
#[derive(Debug, Default)]
pub(crate) struct OwnBlocks {
    /// The number of the last block.
    last_number: AtomicU64,
    /// The blocks in the order of their addresses.
    by_base: RwLock<Vec<BlockInfo>>,
    /// The number of blocks. Most programs have none and skip the lookup.
    count: AtomicUsize,
    /// The number of changes, which tells whether a [`LastBlock`] is still valid.
    changes: AtomicU64,
}

/// The block that an endpoint has lent from last: a lookup without the lock of [`OwnBlocks`].
#[derive(Debug, Default)]
pub(crate) struct LastBlock {
    info: Option<BlockInfo>,
    /// [`OwnBlocks::changes`] when the block was found.
    changes: u64,
}

impl LastBlock {
    /// As [`OwnBlocks::block_of`].
    #[inline]
    pub(crate) fn block_of(&mut self, blocks: &OwnBlocks, addr: u64, len: u64) -> Option<u64> {
        let changes = blocks.changes.load(Ordering::Acquire);
        if self.changes != changes {
            (self.info, self.changes) = (None, changes);
        }
        let last = self.info.filter(|info| info.offset_of(addr, len).is_some());
        self.info = last.or_else(|| blocks.find_block(addr, len));
        self.info.map(|info| info.block)
    }
}

impl OwnBlocks {
    /// Finds the block that holds the `len` bytes at an address of this process. Returns its
    /// number.
    #[inline]
    pub(crate) fn block_of(&self, addr: u64, len: u64) -> Option<u64> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.find_block(addr, len).map(|info| info.block)
    }

    #[cold]
    fn find_block(&self, addr: u64, len: u64) -> Option<BlockInfo> {
        let by_base = self.by_base.read().unwrap_or_else(PoisonError::into_inner);
        let info = by_base[..by_base.partition_point(|info| info.base <= addr)].last()?;
        info.offset_of(addr, len).map(|_| *info)
    }

    /// Returns a number for a new block.
    pub(crate) fn next_number(&self) -> u64 {
        self.last_number.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn add(&self, info: BlockInfo) {
        self.change(|by_base| {
            let position = by_base.partition_point(|other| other.base < info.base);
            by_base.insert(position, info);
        });
    }

    pub(crate) fn remove(&self, base: u64) {
        self.change(|by_base| by_base.retain(|info| info.base != base));
    }

    fn change(&self, change: impl FnOnce(&mut Vec<BlockInfo>)) {
        let mut by_base = self.by_base.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut by_base);
        self.changes.fetch_add(1, Ordering::Release);
        self.count.store(by_base.len(), Ordering::Relaxed);
    }
}

/// The mapped blocks of a peer, and the mapped arenas of its shared heap. Both are numbered
/// together.
#[derive(Debug, Default)]
pub(crate) struct PeerBlocks {
    by_number: FxHashMap<u64, MappedBlock>,
    arenas: FxHashMap<u64, MappedArena>,
}

/// A mapped block of a peer.
#[derive(Debug)]
pub(crate) struct MappedBlock {
    info: BlockInfo,
    block: Arc<LendableBlock>,
}

/// The error of bytes that are not inside the block that a peer has named for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutOfBlock;

impl PeerBlocks {
    /// Maps a block that a peer has announced. If that fails, this process sends commands instead
    /// of accessing the block directly.
    ///
    /// # Errors
    /// [`Errno::Proto`] for an invalid block.
    pub(crate) fn map(&mut self, info: BlockInfo, fd: OwnedFd) -> Result<(), Error> {
        let invalid = || {
            Error::new(
                Errno::Proto,
                format!("a peer's block of special memory was refused: {info:?}"),
            )
        };
        let len = usize::try_from(info.len).map_err(|_| invalid())?;
        if info.block == 0 || info.base.checked_add(info.len).is_none() {
            return Err(invalid());
        }
        if self.by_number.contains_key(&info.block) || self.arenas.contains_key(&info.block) {
            return Ok(());
        }
        if info.is_arena {
            return self.map_arena(info, fd, len);
        }
        // This process does not map blocks beyond the peer's share, and sends commands instead.
        let Some(permit) = MappingQuota::of_blocks().take(self.by_number.len()) else {
            return Ok(());
        };
        match PeerBlock::attach(fd, len, info.writable) {
            Ok(memory) => {
                let block = Arc::new(LendableBlock::new(memory, permit));
                self.by_number
                    .insert(info.block, MappedBlock { info, block });
            }
            Err(error) if error.errno() == Errno::Proto => return Err(error),
            Err(error) => log::info!(target: "selvedge::shm::mr", "{error}"),
        }
        Ok(())
    }

    /// Maps an arena of the peer's heap, as [`Self::map`].
    fn map_arena(&mut self, info: BlockInfo, fd: OwnedFd, len: usize) -> Result<(), Error> {
        match MappedArena::map(info, fd, len, self.arenas.len()) {
            Ok(Some(arena)) => drop(self.arenas.insert(info.block, arena)),
            Ok(None) => {}
            Err(error) if error.errno() == Errno::Proto => return Err(error),
            Err(error) => log::info!(target: "selvedge::shm::mr", "{error}"),
        }
        Ok(())
    }

    /// Unmaps a block that the peer has freed, or an arena that it does not offer any more.
    pub(crate) fn release(&mut self, block: u64) {
        self.by_number.remove(&block);
        self.arenas.remove(&block);
    }

    /// Whether no block is mapped. Arenas do not count: no key leads to them.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.by_number.is_empty()
    }

    /// Unmaps all blocks.
    pub(crate) fn clear(&mut self) {
        self.by_number.clear();
        self.arenas.clear();
    }

    /// Finds the `len` bytes at the peer's address `addr` in the mapping of a block. Returns the
    /// mapping and the offset in it, if the block holds all of the bytes.
    #[inline]
    pub(crate) fn find(&self, block: u64, addr: u64, len: u64) -> Option<(&Bytes, usize)> {
        let mapped = self.by_number.get(&block)?;
        let offset = mapped.info.offset_of(addr, len)?;
        Some((mapped.block.memory.bytes(), offset))
    }

    /// As [`Self::find`], for bytes that outlive this table. Returns `None` if the block is not
    /// mapped.
    ///
    /// # Errors
    /// [`OutOfBlock`] if the block does not hold all of the bytes.
    pub(crate) fn lend(
        &self,
        block: u64,
        addr: u64,
        len: u64,
    ) -> Result<Option<LentBytes>, OutOfBlock> {
        let Some(mapped) = self.by_number.get(&block) else {
            return Ok(None);
        };
        let offset = mapped.info.offset_of(addr, len).ok_or(OutOfBlock)?;
        Ok(Some(LentBytes::new(&mapped.block, offset, len as usize)))
    }

    /// As [`Self::find`], in blocks and arenas: the source of a message, whose bytes stay the
    /// same until the sender's completion.
    #[inline]
    pub(crate) fn find_source(&self, block: u64, addr: u64, len: u64) -> Option<(&Bytes, usize)> {
        let Some(arena) = self.arenas.get(&block) else {
            return self.find(block, addr, len);
        };
        let (memory, offset) = arena.find(addr, len)?;
        Some((memory.bytes(), offset))
    }

    /// Finds the arena in which the `len` bytes at the peer's address `addr` lie. Returns its
    /// memory and the offset in it. The peer may be changing the bytes, and may have withdrawn the
    /// arena: after the copy, the caller checks [`PeerArena::is_offered`].
    pub(crate) fn find_arena(&self, addr: u64, len: u64) -> Option<(&PeerArena, usize)> {
        let mut found = self
            .arenas
            .values()
            .filter_map(|arena| arena.find(addr, len));
        found.find(|(memory, _)| memory.is_offered())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use nix::fcntl::{FcntlArg, SealFlag, fcntl};
    use nix::sys::memfd::{MFdFlags, memfd_create};
    use nix::unistd::ftruncate;

    use super::*;
    use crate::smr::Writers;
    use crate::smr::special::{Block, PageSize};

    fn info(block: u64, base: u64) -> BlockInfo {
        BlockInfo {
            block,
            base,
            len: 4096,
            writable: false,
            is_arena: false,
        }
    }

    #[test]
    fn an_address_is_found_only_in_its_block() {
        let special = OwnBlocks::default();
        assert_eq!(special.block_of(0x1000, 1), None);
        special.add(info(1, 0x1000));
        special.add(info(2, 0x3000));
        let table = [
            (0x1000, 4096, Some(1)),
            (0x1fff, 1, Some(1)),
            (0x1fff, 2, None),
            (0x2000, 1, None),
            (0x0fff, 1, None),
            (0x3001, 4095, Some(2)),
            (0x3001, u64::MAX, None),
            (u64::MAX, 1, None),
        ];
        for (addr, len, block) in table {
            assert_eq!(special.block_of(addr, len), block, "{len} at {addr:#x}");
        }
        let mut last = LastBlock::default();
        for _ in 0..2 {
            assert_eq!(last.block_of(&special, 0x1001, 4095), Some(1));
            assert_eq!(last.block_of(&special, 0x1001, 4096), None);
        }
        assert_eq!(last.block_of(&special, 0x1000, 1), Some(1));
        special.remove(0x1000);
        assert_eq!(special.block_of(0x1000, 1), None);
        assert_eq!(last.block_of(&special, 0x1000, 1), None);
        assert_eq!(special.block_of(0x3000, 1), Some(2));
    }

    #[test]
    fn peers_that_announce_blocks_without_end_leave_mappings_for_others() {
        let (_memory, fd) = Block::create(4096, Writers::Owner, PageSize::Ordinary).unwrap();
        let map = |blocks: &mut PeerBlocks, number: u64| {
            let fd = fd.try_clone().unwrap();
            blocks.map(info(number, number << 20), fd).unwrap();
        };
        let mut greedy_peers: Vec<_> = (0..4).map(|_| PeerBlocks::default()).collect();
        for greedy in &mut greedy_peers {
            (1..17_000).for_each(|number| map(greedy, number));
            assert!(greedy.find(1, 1 << 20, 4096).is_some());
        }
        let mut honest = PeerBlocks::default();
        map(&mut honest, 1);
        assert!(
            honest.find(1, 1 << 20, 4096).is_some(),
            "no mapping was left for the honest peer"
        );
        let other_memory = crate::smr::Memory::create(4096, Writers::Owner);
        assert!(other_memory.is_ok(), "{other_memory:?}");
    }

    /// The file of an arena of `len` bytes, and the owner's mapping of it.
    fn create_arena(len: usize) -> (Arc<crate::smr::Mapping>, OwnedFd) {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let file = File::from(memfd_create(c"arena", flags).unwrap());
        ftruncate(&file, len as i64).unwrap();
        let mapping = crate::smr::Mapping::writable(&file, len).unwrap();
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW;
        let seals = FcntlArg::F_ADD_SEALS(seals | selvedge_kit::seal::future_write());
        fcntl(&file, seals).unwrap();
        (mapping, file.into())
    }

    #[test]
    fn arenas_serve_messages_and_reads_but_no_key_leads_to_them() {
        const LEN: usize = 1 << 16;
        let (mapping, fd) = create_arena(LEN);
        let owner = Bytes::new(mapping, 0, LEN);
        owner.copy_in(0, &selvedge_heap::table::OFFERED.to_ne_bytes());
        owner.copy_in(8192, b"message");
        let sound = BlockInfo {
            len: LEN as u64,
            is_arena: true,
            ..info(5, 0x7000_0000)
        };
        let mut blocks = PeerBlocks::default();
        for wrong in [
            BlockInfo { block: 0, ..sound },
            BlockInfo { len: 8192, ..sound },
            BlockInfo {
                len: 1 << 50,
                ..sound
            },
        ] {
            let refused = blocks.map(wrong, fd.try_clone().unwrap()).unwrap_err();
            assert_eq!(refused.errno(), Errno::Proto, "{wrong:?}");
        }
        blocks.map(sound, fd).unwrap();
        assert!(blocks.is_empty() && blocks.find(5, sound.base + 8192, 7).is_none());
        let source = blocks.find_source(5, sound.base + 8192, 7);
        assert_eq!(source.unwrap().1, 8192);
        assert!(blocks.find_source(5, sound.base + 8192, 4097).is_none());
        assert!(blocks.find_arena(sound.base + 8192, 7).is_some());
        owner.copy_in(0, &[0; 8]);
        assert!(blocks.find_arena(sound.base + 8192, 7).is_none());
        assert!(blocks.find_source(5, sound.base + 8192, 7).is_some());
        blocks.release(5);
        assert!(blocks.find_source(5, sound.base + 8192, 7).is_none());
    }

    #[test]
    fn announced_blocks_are_validated() {
        let (memory, fd) = Block::create(8192, Writers::Owner, PageSize::Ordinary).unwrap();
        let sound = BlockInfo {
            len: memory.len() as u64,
            ..info(7, 0x7000_0000)
        };
        let mut blocks = PeerBlocks::default();
        for wrong in [
            BlockInfo { block: 0, ..sound },
            BlockInfo { len: 4096, ..sound },
            BlockInfo { len: 0, ..sound },
            BlockInfo {
                base: u64::MAX - 1,
                ..sound
            },
        ] {
            let refused = blocks.map(wrong, fd.try_clone().unwrap()).unwrap_err();
            assert_eq!(refused.errno(), Errno::Proto, "{wrong:?}");
        }
        let unmappable = BlockInfo {
            writable: true,
            ..sound
        };
        blocks.map(unmappable, fd.try_clone().unwrap()).unwrap();
        assert!(blocks.find(7, sound.base, 1).is_none());
        blocks.map(sound, fd.try_clone().unwrap()).unwrap();
        blocks.map(sound, fd).unwrap();
        assert_eq!(blocks.find(7, sound.base + 8190, 2).unwrap().1, 8190);
        assert!(blocks.find(7, sound.base + 8190, 3).is_none());
        assert!(blocks.find(7, sound.base - 1, 1).is_none());
        assert!(blocks.find(8, sound.base, 1).is_none());
        blocks.release(7);
        assert!(blocks.find(7, sound.base, 1).is_none());
    }
}
