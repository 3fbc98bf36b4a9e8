//! Key chunks: where the owner of memory says what its peers may do with it.
//!
//! A chunk is a piece of a table of rows, one cache line each; its owner alone writes, peers map it
//! read-only. A row is published and withdrawn by its generation: odd while the row counts. Whoever
//! copies from memory that a row names asks afterwards whether the generation is still the same,
//! and throws the copy away if it is not.
//!
//! # Examples
//!
//! ```
//! use selvedge_shm::smr::keys::{Chunk, Kind, PeerChunk, RIGHT_READ, Row};
//!
//! let mut chunk = Chunk::create(0)?;
//! let fd = chunk.memory().fd().try_clone_to_owned().expect("a spare descriptor");
//! let seen = PeerChunk::attach(fd, 0)?;
//! let row = Row {
//!     key: 7,
//!     start: 0,
//!     len: 4096,
//!     rights: RIGHT_READ,
//!     kind: Kind::Plain,
//!     memory: 0x7fff_0000_0000,
//!     block: 0,
//! };
//! chunk.publish(3, &row);
//! let (copy, generation) = seen.read(3).expect("it was published");
//! assert_eq!(copy, row);
//! assert_eq!(copy.locate(4090, 8, RIGHT_READ), Err(selvedge_shm::smr::keys::Denied::Bounds));
//! chunk.withdraw(3);
//! assert!(!seen.is_current(3, generation));
//! # Ok::<(), selvedge::Error>(())
//! ```

use std::os::fd::OwnedFd;

use selvedge::{Errno, Error};

use super::mapping::{Memory, Writers, map_foreign};
use crate::smr::sync::{Ordering, Words, order};

/// Rows of the first chunk; each has twice as many as the one before.
pub const FIRST_ROWS: usize = 64;
/// Chunks that a table may have: about a million rows.
pub const MAX_CHUNKS: usize = 14;

/// Peers may read.
pub const RIGHT_READ: u32 = 1;
/// Peers may write.
pub const RIGHT_WRITE: u32 = 2;
/// The owner counts what peers do, so they do nothing without it. Grants nothing.
pub const COUNTED: u32 = 4;

const ROW_WORDS: usize = 8;
/// Looks at a row that its owner changes each time: an honest one does so once or twice in its life.
const LOOKS: usize = 4;

/// What a row says of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// What peers name the region by.
    pub key: u64,
    /// What they name its first byte by.
    pub start: u64,
    /// Its length in bytes.
    pub len: u64,
    /// What they may do ([`RIGHT_READ`], [`RIGHT_WRITE`]), and whether that is [`COUNTED`].
    pub rights: u32,
    /// What kind of memory it is.
    pub kind: Kind,
    /// Its address in the owner's process.
    pub memory: u64,
    /// The block that it is, for special memory.
    pub block: u64,
}

/// What kind of memory a region is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// Private memory of the owner's process.
    Plain = 0,
    /// Memory that peers can map.
    Special = 1,
    /// All of the owner's address space, with or without memory behind it.
    Whole = 2,
}

/// Why an access is not allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// Nobody has this key, or not any more.
    Key,
    /// The region does not grant the right.
    Rights,
    /// The bytes are not all inside the region.
    Bounds,
    /// The region is the whole address space, and there is no memory at the address.
    Nowhere,
}

impl Denied {
    /// The error number of a completion.
    pub const fn errno(self) -> Errno {
        match self {
            Self::Key => Errno::KeyRejected,
            Self::Rights => Errno::Acces,
            Self::Bounds | Self::Nowhere => Errno::Fault,
        }
    }

    /// What is wrong, to stand behind key and address.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Key => "no region has this key",
            Self::Rights => "the region does not grant this access",
            Self::Bounds => "beyond the region",
            Self::Nowhere => "no memory is there",
        }
    }
}

impl Row {
    /// Where the `len` bytes are that a peer names by `addr` and wants to use with these rights:
    /// see [`Self::memory`].
    ///
    /// # Errors
    /// When they are not all inside, or the region does not grant it.
    #[inline]
    pub fn locate(&self, addr: u64, len: u64, rights: u32) -> Result<u64, Denied> {
        if self.rights & rights != rights {
            return Err(Denied::Rights);
        }
        let offset = addr.checked_sub(self.start).ok_or(Denied::Bounds)?;
        let left = self.len.checked_sub(offset).ok_or(Denied::Bounds)?;
        let first = self.memory.checked_add(offset).ok_or(Denied::Bounds)?;
        if len > left || first.checked_add(len).is_none() {
            return Err(Denied::Bounds);
        }
        Ok(first)
    }

    /// Whether peers have to leave every access to the owner.
    #[inline]
    pub const fn is_counted(&self) -> bool {
        self.rights & COUNTED != 0
    }

    /// Rights and kind, as a word of the table.
    const fn what(&self) -> u64 {
        self.rights as u64 | (self.kind as u64) << 32
    }
}

/// Rows of chunk `number`.
pub const fn rows_of(number: usize) -> usize {
    FIRST_ROWS << number
}

/// The chunk and the place in it of a row that is counted through all chunks.
pub const fn place_of(row: usize) -> (usize, usize) {
    let number = (row / FIRST_ROWS + 1).ilog2() as usize;
    (number, row - (rows_of(number) - FIRST_ROWS))
}

/// The owner's end of a chunk.
#[derive(Debug)]
pub struct Chunk {
    memory: Memory,
    rows: Words,
    /// By row, as they stand in the memory: odd while the row counts.
    generations: Box<[u64]>,
}

impl Chunk {
    /// Makes chunk `number` of a table, all rows withdrawn.
    ///
    /// # Errors
    /// [`Errno::NoMem`] beyond [`MAX_CHUNKS`]; the system's, when memory is short.
    pub fn create(number: usize) -> Result<Self, Error> {
        if number >= MAX_CHUNKS {
            let what = format!("more than {} regions", rows_of(MAX_CHUNKS) - FIRST_ROWS);
            return Err(Error::new(Errno::NoMem, what));
        }
        let words = rows_of(number) * ROW_WORDS;
        let memory = Memory::create(words * 8, Writers::Owner)?;
        let rows = Words::new(memory.mapping().clone(), 0, words);
        Ok(Self {
            memory,
            rows,
            generations: vec![0; rows_of(number)].into(),
        })
    }

    /// The memory to hand to peers.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Fills the row at `place`, which counts from here on. It must not count yet.
    pub fn publish(&mut self, place: usize, row: &Row) {
        let line = self.rows.line::<ROW_WORDS>(place * ROW_WORDS);
        self.generations[place] += 1;
        debug_assert!(self.counts(place), "the row counts already");
        let words = [
            row.key,
            row.start,
            row.len,
            row.what(),
            row.memory,
            row.block,
        ];
        for (word, value) in line[1..].iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
        line[0].store(self.generations[place], order::commit());
    }

    /// Says other rights of the row at `place`, which goes on counting. Whoever has looked at it
    /// before looks again: it is another one from here on.
    ///
    /// The word comes before the generation. A peer may then see the new rights early, which is as
    /// if it had come later, but never the old ones under the new generation.
    pub fn amend(&mut self, place: usize, row: &Row) {
        debug_assert!(self.counts(place), "the row does not count");
        self.generations[place] += 2;
        let line = self.rows.line::<ROW_WORDS>(place * ROW_WORDS);
        line[4].store(row.what(), Ordering::Relaxed);
        line[0].store(self.generations[place], order::commit());
    }

    /// Takes the row at `place` back. To be called before the memory that it names is used for
    /// something else.
    pub fn withdraw(&mut self, place: usize) {
        debug_assert!(self.counts(place), "the row does not count");
        self.generations[place] += 1;
        let word = self.rows.at(place * ROW_WORDS);
        word.store(self.generations[place], Ordering::Relaxed);
        order::withdrawn();
    }

    fn counts(&self, place: usize) -> bool {
        !self.generations[place].is_multiple_of(2)
    }
}

/// A table that is no more grants nothing. The copy that a forked child has is not the table.
impl Drop for Chunk {
    fn drop(&mut self) {
        if !self.memory.mapping().is_here() {
            return;
        }
        for place in 0..self.generations.len() {
            if self.counts(place) {
                self.withdraw(place);
            }
        }
    }
}

/// A peer's chunk, mapped read-only.
#[derive(Debug)]
pub struct PeerChunk {
    rows: Words,
}

impl PeerChunk {
    /// Maps chunk `number` of a peer's table.
    ///
    /// # Errors
    /// [`Errno::Proto`] when it is not what it should be.
    pub fn attach(fd: OwnedFd, number: usize) -> Result<Self, Error> {
        if number >= MAX_CHUNKS {
            let what = format!("a peer's key chunk was refused: its number is {number}");
            return Err(Error::new(Errno::Proto, what));
        }
        let words = rows_of(number) * ROW_WORDS;
        let mapping = map_foreign(fd, words * 8, false)?;
        let rows = Words::new(mapping, 0, words);
        Ok(Self { rows })
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows.len() / ROW_WORDS
    }

    /// Whether there are none, which is never so.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The key of the row at `place`, whether it counts or not: to find a row to read.
    #[inline]
    pub fn key(&self, place: usize) -> u64 {
        self.rows.at(place * ROW_WORDS + 1).load(Ordering::Relaxed)
    }

    /// The row at `place` and its generation, if it counts and makes sense. One that its owner changes
    /// meanwhile is looked at again, a few times.
    #[inline]
    pub fn read(&self, place: usize) -> Option<(Row, u64)> {
        for _ in 0..LOOKS {
            let generation = self.rows.at(place * ROW_WORDS).load(order::seen());
            if generation.is_multiple_of(2) {
                return None;
            }
            let row = self.copy(place)?;
            if self.is_current(place, generation) {
                return Some((row, generation));
            }
        }
        None
    }

    #[inline(always)]
    fn copy(&self, place: usize) -> Option<Row> {
        let line = self.rows.line::<ROW_WORDS>(place * ROW_WORDS);
        let word = |index: usize| line[index].load(Ordering::Relaxed);
        let what = word(4);
        Some(Row {
            key: word(1),
            start: word(2),
            len: word(3),
            rights: what as u32,
            kind: kind((what >> 32) as u32)?,
            memory: word(5),
            block: word(6),
        })
    }

    /// The row at `place` that was read with this generation, to ask about it later.
    pub fn seen(&self, place: usize, generation: u64) -> Seen {
        Seen {
            row: self.rows.part(place * ROW_WORDS, ROW_WORDS),
            generation,
        }
    }

    /// Whether the row at `place` still counts and is the one that was read with this generation.
    /// To be asked after every copy from the memory that it names: `true` says that the copy is
    /// good.
    #[inline]
    pub fn is_current(&self, place: usize, generation: u64) -> bool {
        order::copied();
        self.rows.at(place * ROW_WORDS).load(Ordering::Relaxed) == generation
    }
}

/// A row that was read once, to ask whether it still counts.
#[derive(Clone, Debug)]
pub struct Seen {
    row: Words,
    generation: u64,
}

impl Seen {
    /// Whether the row still counts and is the one that was read.
    #[inline(always)]
    pub fn is_current(&self) -> bool {
        let word = self.row.get(0);
        word.is_some_and(|word| word.load(order::seen()) == self.generation)
    }
}

const fn kind(raw: u32) -> Option<Kind> {
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

    const REGION: Row = Row {
        key: 1,
        start: 0x1000,
        len: 0x100,
        rights: RIGHT_READ,
        kind: Kind::Plain,
        memory: 0x7000_0000,
        block: 0,
    };

    #[test]
    fn what_is_inside_is_found_and_nothing_else() {
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
    fn rights_are_needed_all_of_them() {
        assert_eq!(REGION.locate(0x1000, 1, RIGHT_WRITE), Err(Denied::Rights));
        let both = RIGHT_READ | RIGHT_WRITE;
        assert_eq!(REGION.locate(0x1000, 1, both), Err(Denied::Rights));
    }

    #[test]
    fn the_whole_address_space_ends_where_addresses_do() {
        let whole = Row {
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
    fn rows_are_counted_through_all_chunks() {
        let mut row = 0;
        for number in 0..4 {
            for place in 0..rows_of(number) {
                assert_eq!(place_of(row), (number, place));
                row += 1;
            }
        }
    }

    fn chunk() -> (Chunk, PeerChunk) {
        let chunk = Chunk::create(0).unwrap();
        let fd = chunk.memory().fd().try_clone_to_owned().unwrap();
        (chunk, PeerChunk::attach(fd, 0).unwrap())
    }

    #[test]
    fn a_row_that_is_used_again_is_another() {
        let (mut chunk, seen) = chunk();
        assert_eq!(seen.read(5), None);
        chunk.publish(5, &REGION);
        let (row, first) = seen.read(5).unwrap();
        assert_eq!((row, seen.key(5)), (REGION, 1));
        chunk.withdraw(5);
        assert_eq!(seen.read(5), None);
        chunk.publish(5, &REGION);
        assert!(!seen.is_current(5, first));
        assert!(seen.read(5).is_some());
    }

    #[test]
    fn a_table_that_is_dropped_grants_nothing() {
        let (mut chunk, seen) = chunk();
        chunk.publish(0, &REGION);
        drop(chunk);
        assert_eq!(seen.read(0), None);
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
