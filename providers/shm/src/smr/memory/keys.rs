//! `Chunk` and `PeerChunk`: parts of the key table, which states how peers may access registered
//! memory.
//!
//! A chunk is an array of entries, one cache line each. The owner of a chunk alone writes to it;
//! peers map it read-only. An entry is published and withdrawn by its generation, which is odd
//! while the entry is published. A peer copies from the memory that an entry names, and checks
//! afterwards that the generation is the same. If the generation has changed, the peer discards the
//! copy.
//!
//! # Examples
//!
//! ```
//! use selvedge_shm::smr::keys::{Chunk, KeyEntry, Kind, PeerChunk, RIGHT_READ};
//!
//! let mut chunk = Chunk::create(0)?;
//! let fd = chunk.memory().fd().try_clone_to_owned().expect("a spare descriptor");
//! let attached = PeerChunk::attach(fd, 0)?;
//! let entry = KeyEntry {
//!     key: 7,
//!     start: 0,
//!     len: 4096,
//!     rights: RIGHT_READ,
//!     kind: Kind::Plain,
//!     memory: 0x7fff_0000_0000,
//!     block: 0,
//! };
//! chunk.publish(3, &entry);
//! let (copy, generation) = attached.read(3).expect("it was published");
//! assert_eq!(copy, entry);
//! assert_eq!(copy.locate(4090, 8, RIGHT_READ), Err(selvedge_shm::smr::keys::Denied::Bounds));
//! chunk.withdraw(3);
//! assert!(!attached.is_current(3, generation));
//! # Ok::<(), selvedge::Error>(())
//! ```

use std::os::fd::OwnedFd;

use selvedge::{Errno, Error};
pub use selvedge_kit::mr::Denied;

use super::mapping::{Memory, Writers, map_peer_memory};
use crate::smr::sync::{Ordering, Words, order};

/// The number of entries of the first chunk. Each chunk has twice as many as the previous one.
pub const FIRST_ENTRIES: usize = 64;
/// The maximum number of chunks of a table: about a million entries.
pub const MAX_CHUNKS: usize = 14;

/// The right to read.
pub const RIGHT_READ: u32 = 1;
/// The right to write.
pub const RIGHT_WRITE: u32 = 2;
/// The owner counts accesses, so peers must send commands instead of accessing the memory directly.
/// This flag grants no right.
pub const COUNTED: u32 = 4;

const ENTRY_WORDS: usize = 8;
/// The maximum number of attempts to read an entry that its owner changes meanwhile: a correct
/// owner changes an entry once or twice.
const READ_ATTEMPTS: usize = 4;

/// An entry of the key table: one registered region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyEntry {
    /// The key by which peers name the region.
    pub key: u64,
    /// The address or offset by which peers name the region's first byte.
    pub start: u64,
    /// The region's length in bytes.
    pub len: u64,
    /// The granted rights ([`RIGHT_READ`], [`RIGHT_WRITE`]), and [`COUNTED`].
    pub rights: u32,
    /// The kind of memory.
    pub kind: Kind,
    /// The region's address in the owner's process.
    pub memory: u64,
    /// The number of the block that holds special memory; 0 for other memory.
    pub block: u64,
}

/// The kind of memory of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// Private memory of the owner's process.
    Plain = 0,
    /// Special memory, which peers can map.
    Special = 1,
    /// The owner's whole address space, mapped or not.
    Whole = 2,
}

impl KeyEntry {
    /// Translates `addr`, by which a peer names `len` bytes, to an address in the owner's process,
    /// if the region grants `rights`.
    ///
    /// # Errors
    /// [`Denied::Rights`] when the region does not grant the rights; [`Denied::Bounds`] when the
    /// bytes are not all inside.
    #[inline]
    pub fn locate(&self, addr: u64, len: u64, rights: u32) -> Result<u64, Denied> {
        if self.rights & rights != rights {
            return Err(Denied::Rights);
        }
        let offset = addr.checked_sub(self.start).ok_or(Denied::Bounds)?;
        let remaining = self.len.checked_sub(offset).ok_or(Denied::Bounds)?;
        let first = self.memory.checked_add(offset).ok_or(Denied::Bounds)?;
        if len > remaining || first.checked_add(len).is_none() {
            return Err(Denied::Bounds);
        }
        Ok(first)
    }

    /// Whether the owner must execute every access.
    #[inline]
    pub const fn is_counted(&self) -> bool {
        self.rights & COUNTED != 0
    }

    /// Returns rights and kind, as one word of the table.
    const fn rights_and_kind(&self) -> u64 {
        self.rights as u64 | (self.kind as u64) << 32
    }
}

/// Returns the number of entries of chunk `number`.
pub const fn entries_of(number: usize) -> usize {
    FIRST_ENTRIES << number
}

/// Returns the number of the chunk that holds entry number `entry`, and the entry's index in the
/// chunk. Entries are numbered through all chunks.
pub const fn locate_entry(entry: usize) -> (usize, usize) {
    let number = (entry / FIRST_ENTRIES + 1).ilog2() as usize;
    (number, entry - (entries_of(number) - FIRST_ENTRIES))
}

/// The owner's view of a chunk.
#[derive(Debug)]
pub struct Chunk {
    memory: Memory,
    entries: Words,
    /// The generations of the entries, as in the memory: odd while the entry is published.
    generations: Box<[u64]>,
}

impl Chunk {
    /// Creates chunk `number` of a table with all entries withdrawn.
    ///
    /// # Errors
    /// [`Errno::NoMem`] beyond [`MAX_CHUNKS`]; the system's error when memory is short.
    pub fn create(number: usize) -> Result<Self, Error> {
        if number >= MAX_CHUNKS {
            let reason = format!(
                "a domain has at most {} registered regions",
                entries_of(MAX_CHUNKS) - FIRST_ENTRIES
            );
            return Err(Error::new(Errno::NoMem, reason));
        }
        let words = entries_of(number) * ENTRY_WORDS;
        let memory = Memory::create(words * 8, Writers::Owner)?;
        let entries = Words::new(memory.mapping().clone(), 0, words);
        Ok(Self {
            memory,
            entries,
            generations: vec![0; entries_of(number)].into(),
        })
    }

    /// Returns the memory to send to peers.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Publishes `entry` at `index`, where no entry may be published yet.
    pub fn publish(&mut self, index: usize, entry: &KeyEntry) {
        let line = self.entries.line::<ENTRY_WORDS>(index * ENTRY_WORDS);
        self.generations[index] += 1;
        debug_assert!(self.is_published(index), "the entry is published already");
        let words = [
            entry.key,
            entry.start,
            entry.len,
            entry.rights_and_kind(),
            entry.memory,
            entry.block,
        ];
        for (word, value) in line[1..].iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
        line[0].store(self.generations[index], order::commit());
    }

    /// Changes the rights of the entry at `index`, which stays published under a new generation.
    /// Peers that have read the entry read it again.
    ///
    /// The rights are stored before the generation. A peer may see the new rights under the old
    /// generation, as if it had read later, but never the old rights under the new generation.
    pub fn amend(&mut self, index: usize, entry: &KeyEntry) {
        debug_assert!(self.is_published(index), "the entry is not published");
        self.generations[index] += 2;
        let line = self.entries.line::<ENTRY_WORDS>(index * ENTRY_WORDS);
        line[4].store(entry.rights_and_kind(), Ordering::Relaxed);
        line[0].store(self.generations[index], order::commit());
    }

    /// Withdraws the entry at `index`. The caller must call this before the memory that the entry
    /// names is used for other data.
    pub fn withdraw(&mut self, index: usize) {
        debug_assert!(self.is_published(index), "the entry is not published");
        self.generations[index] += 1;
        let word = self.entries.word(index * ENTRY_WORDS);
        word.store(self.generations[index], Ordering::Relaxed);
        order::after_withdraw();
    }

    fn is_published(&self, index: usize) -> bool {
        !self.generations[index].is_multiple_of(2)
    }
}

/// Dropping a chunk withdraws all its entries. The copy of a chunk in a forked child withdraws
/// nothing.
impl Drop for Chunk {
    fn drop(&mut self) {
        if !self.memory.mapping().is_in_creator() {
            return;
        }
        for index in 0..self.generations.len() {
            if self.is_published(index) {
                self.withdraw(index);
            }
        }
    }
}

/// A peer's chunk, mapped read-only.
#[derive(Debug)]
pub struct PeerChunk {
    entries: Words,
}

impl PeerChunk {
    /// Maps chunk `number` of a peer's table.
    ///
    /// # Errors
    /// [`Errno::Proto`] when the number or the memory is not valid.
    pub fn attach(fd: OwnedFd, number: usize) -> Result<Self, Error> {
        if number >= MAX_CHUNKS {
            let reason = format!(
                "a peer's key chunk was refused: its number is {number}, and a table has \
                 {MAX_CHUNKS} chunks"
            );
            return Err(Error::new(Errno::Proto, reason));
        }
        let words = entries_of(number) * ENTRY_WORDS;
        let mapping = map_peer_memory(fd, words * 8, false)?;
        let entries = Words::new(mapping, 0, words);
        Ok(Self { entries })
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.entries.len() / ENTRY_WORDS
    }

    /// Always `false`.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the key of the entry at `index`, published or not. For a search; [`Self::read`] then
    /// checks the entry.
    #[inline]
    pub fn key(&self, index: usize) -> u64 {
        self.entries
            .word(index * ENTRY_WORDS + 1)
            .load(Ordering::Relaxed)
    }

    /// Reads the entry at `index` and its generation. Returns `None` if the entry is not published
    /// or is malformed. If the owner changes the entry meanwhile, reads it again, a few times.
    #[inline]
    pub fn read(&self, index: usize) -> Option<(KeyEntry, u64)> {
        for _ in 0..READ_ATTEMPTS {
            let generation = self
                .entries
                .word(index * ENTRY_WORDS)
                .load(order::observe());
            if generation.is_multiple_of(2) {
                return None;
            }
            let entry = self.copy(index)?;
            if self.is_current(index, generation) {
                return Some((entry, generation));
            }
        }
        None
    }

    /// Copies the entry at `index`, which its owner may be changing.
    #[inline(always)]
    fn copy(&self, index: usize) -> Option<KeyEntry> {
        let line = self.entries.line::<ENTRY_WORDS>(index * ENTRY_WORDS);
        let word = |index: usize| line[index].load(Ordering::Relaxed);
        let rights_and_kind = word(4);
        Some(KeyEntry {
            key: word(1),
            start: word(2),
            len: word(3),
            rights: rights_and_kind as u32,
            kind: parse_kind((rights_and_kind >> 32) as u32)?,
            memory: word(5),
            block: word(6),
        })
    }

    /// Returns the version of the entry at `index` that was read with this generation.
    pub fn version(&self, index: usize, generation: u64) -> EntryVersion {
        EntryVersion {
            entry: self.entries.part(index * ENTRY_WORDS, ENTRY_WORDS),
            generation,
        }
    }

    /// Whether the entry at `index` is still published with this generation. The caller must call
    /// this after every copy from the memory that the entry names: `true` means that the copy is
    /// valid.
    #[inline]
    pub fn is_current(&self, index: usize, generation: u64) -> bool {
        order::after_copy();
        self.entries
            .word(index * ENTRY_WORDS)
            .load(Ordering::Relaxed)
            == generation
    }
}

/// A version of an entry. A caller can check whether it is current.
#[derive(Clone, Debug)]
pub struct EntryVersion {
    entry: Words,
    generation: u64,
}

impl EntryVersion {
    /// Whether the entry is still published with the generation that was read.
    #[inline(always)]
    pub fn is_current(&self) -> bool {
        let word = self.entry.get(0);
        word.is_some_and(|word| word.load(order::observe()) == self.generation)
    }
}

const fn parse_kind(raw: u32) -> Option<Kind> {
    match raw {
        0 => Some(Kind::Plain),
        1 => Some(Kind::Special),
        2 => Some(Kind::Whole),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGION: KeyEntry = KeyEntry {
        key: 1,
        start: 0x1000,
        len: 0x100,
        rights: RIGHT_READ,
        kind: Kind::Plain,
        memory: 0x7000_0000,
        block: 0,
    };

    #[test]
    fn addresses_inside_the_region_are_located_and_no_others() {
        let table = [
            (0x1000, 0x100, Ok(0x7000_0000)),
            (0x10ff, 1, Ok(0x7000_00ff)),
            (0x1100, 0, Ok(0x7000_0100)),
            (0x1100, 1, Err(Denied::Bounds)),
            (0x0fff, 1, Err(Denied::Bounds)),
            (0x1001, 0x100, Err(Denied::Bounds)),
            (0x1001, u64::MAX, Err(Denied::Bounds)),
            (u64::MAX, 1, Err(Denied::Bounds)),
            (0, u64::MAX, Err(Denied::Bounds)),
        ];
        for (addr, len, expected) in table {
            let found = REGION.locate(addr, len, RIGHT_READ);
            assert_eq!(found, expected, "{len} bytes at {addr:#x}");
        }
    }

    #[test]
    fn every_requested_right_is_needed() {
        assert_eq!(REGION.locate(0x1000, 1, RIGHT_WRITE), Err(Denied::Rights));
        let both = RIGHT_READ | RIGHT_WRITE;
        assert_eq!(REGION.locate(0x1000, 1, both), Err(Denied::Rights));
    }

    #[test]
    fn a_range_past_the_last_address_is_out_of_bounds() {
        let whole = KeyEntry {
            start: 0,
            len: u64::MAX,
            memory: 0,
            kind: Kind::Whole,
            ..REGION
        };
        assert_eq!(whole.locate(0x1234, 8, RIGHT_READ), Ok(0x1234));
        let last = whole.locate(u64::MAX - 3, 4, RIGHT_READ);
        assert_eq!(last, Err(Denied::Bounds));
    }

    #[test]
    fn entries_are_numbered_through_all_chunks() {
        let mut entry = 0;
        for number in 0..4 {
            for index in 0..entries_of(number) {
                assert_eq!(locate_entry(entry), (number, index));
                entry += 1;
            }
        }
    }

    fn chunk() -> (Chunk, PeerChunk) {
        let chunk = Chunk::create(0).unwrap();
        let fd = chunk.memory().fd().try_clone_to_owned().unwrap();
        (chunk, PeerChunk::attach(fd, 0).unwrap())
    }

    #[test]
    fn an_entry_published_again_has_another_generation() {
        let (mut chunk, peer_chunk) = chunk();
        assert_eq!(peer_chunk.read(5), None);
        chunk.publish(5, &REGION);
        let (entry, first) = peer_chunk.read(5).unwrap();
        assert_eq!((entry, peer_chunk.key(5)), (REGION, 1));
        chunk.withdraw(5);
        assert_eq!(peer_chunk.read(5), None);
        chunk.publish(5, &REGION);
        assert!(!peer_chunk.is_current(5, first));
        assert!(peer_chunk.read(5).is_some());
    }

    #[test]
    fn a_table_that_is_dropped_grants_nothing() {
        let (mut chunk, peer_chunk) = chunk();
        chunk.publish(0, &REGION);
        drop(chunk);
        assert_eq!(peer_chunk.read(0), None);
    }

    #[test]
    fn chunks_beyond_the_last_are_refused() {
        assert_eq!(Chunk::create(MAX_CHUNKS).unwrap_err().errno(), Errno::NoMem);
        let memory = Memory::create(4096, Writers::Owner).unwrap();
        let fd = memory.fd().try_clone_to_owned().unwrap();
        let refused = PeerChunk::attach(fd, MAX_CHUNKS).unwrap_err();
        assert_eq!(refused.errno(), Errno::Proto);
    }
}
