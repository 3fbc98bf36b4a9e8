//! Access: what a peer lets us do with its memory, as its key table says.
//!
//! Looked up before anything moves. The peer checks again whatever reaches it as a command. Windows
//! are the regions of its special memory that were used last.

use std::os::fd::OwnedFd;

use rustc_hash::FxHashMap;
use selvedge::rma::RmaIov;
use selvedge::{Errno, Error, FiAddr};

use crate::memory::keys::hint;
use crate::smr::bytes::Span;
use crate::smr::keys::{Denied, EntryVersion, KeyEntry, MAX_CHUNKS, PeerChunk, locate_entry};

/// A peer's key table.
#[derive(Debug, Default)]
pub(crate) struct PeerKeys {
    chunks: Vec<PeerChunk>,
    /// Chunks that follow the peer's hello.
    expected: usize,
    /// Rows of keys that are not where their number says.
    found: FxHashMap<u64, u32>,
}

/// A piece of a peer's memory that may be used as was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    pub(crate) row: KeyEntry,
    /// Where the piece begins: an address in the peer's process.
    pub(crate) memory: u64,
    number: u32,
    generation: u64,
}

impl PeerKeys {
    /// The peer says how many chunks follow.
    pub(crate) fn expect(&mut self, chunks: usize) {
        self.expected = chunks.min(MAX_CHUNKS);
    }

    /// Whether everything that the peer has said hello with is here.
    #[inline]
    pub(crate) fn are_complete(&self) -> bool {
        self.chunks.len() >= self.expected
    }

    /// Maps a chunk that the peer has handed over. Over a second socket they come once more.
    pub(crate) fn attach(&mut self, number: usize, fd: OwnedFd) -> Result<(), Error> {
        if number < self.chunks.len() {
            return Ok(());
        }
        if number > self.chunks.len() {
            let what = format!("its key chunk {number} comes before others");
            return Err(Error::new(Errno::Proto, what));
        }
        self.chunks.push(PeerChunk::attach(fd, number)?);
        Ok(())
    }

    /// Whether a piece of the peer's memory may be used with these rights.
    ///
    /// # Errors
    /// Why not.
    #[inline]
    pub(crate) fn check(&mut self, segment: &RmaIov, rights: u32) -> Result<Grant, Denied> {
        let (number, row, generation) = self.find(segment.key).ok_or(Denied::Key)?;
        let memory = row.locate(segment.addr, segment.len as u64, rights)?;
        Ok(Grant {
            row,
            memory,
            number,
            generation,
        })
    }

    /// Whether a grant still holds. To be asked after every copy out of the peer's memory: `true`
    /// says that the copy is good.
    #[inline]
    pub(crate) fn is_current(&self, grant: &Grant) -> bool {
        let (chunk, segment) = locate_entry(grant.number as usize);
        let chunk = self.chunks.get(chunk);
        chunk.is_some_and(|chunk| chunk.is_current(segment, grant.generation))
    }

    /// The row of a grant, to ask about it later.
    pub(crate) fn entry_version(&self, grant: &Grant) -> Option<EntryVersion> {
        let (chunk, segment) = locate_entry(grant.number as usize);
        let chunk = self.chunks.get(chunk)?;
        Some(chunk.version(segment, grant.generation))
    }

    #[inline]
    fn find(&mut self, key: u64) -> Option<(u32, KeyEntry, u64)> {
        match self.read(hint(key), key) {
            Some(found) => Some(found),
            None => self.search(key),
        }
    }

    #[inline]
    fn read(&self, number: usize, key: u64) -> Option<(u32, KeyEntry, u64)> {
        let (chunk, segment) = locate_entry(number);
        let (row, generation) = self.chunks.get(chunk)?.read(segment)?;
        (row.key == key).then_some((number as u32, row, generation))
    }

    #[cold]
    fn search(&mut self, key: u64) -> Option<(u32, KeyEntry, u64)> {
        if let Some(&number) = self.found.get(&key) {
            let found = self.read(number as usize, key);
            if found.is_some() {
                return found;
            }
            self.found.remove(&key);
        }
        let segments = self
            .chunks
            .iter()
            .flat_map(|chunk| (0..chunk.len()).map(move |segment| chunk.key(segment)));
        let number = segments
            .enumerate()
            .filter(|&(_, found)| found == key)
            .find_map(|(number, _)| self.read(number, key));
        if let Some((number, ..)) = number {
            self.found.insert(key, number);
        }
        number
    }
}

/// Windows that are kept of one peer, by the lowest bits of their keys.
const MAPPED_REGIONS: usize = 8;

/// The regions of a peer that were used last.
#[derive(Debug, Default)]
pub(crate) struct MappedRegions {
    /// Empty until there is one.
    kept: Vec<Option<MappedRegion>>,
}

/// Where the last access went that waited for its line. Most go to the same region as the one
/// before: the line of the next one is asked for before anything is looked up, and comes meanwhile.
#[derive(Debug)]
pub(crate) struct PrefetchHint {
    peer: FiAddr,
    key: u64,
    /// What is to be added to an address that the region is addressed by.
    offset: u64,
}

impl PrefetchHint {
    pub(crate) const NONE: Self = Self {
        peer: FiAddr::UNSPEC,
        key: 0,
        offset: 0,
    };

    /// Where a piece probably is mapped here: for a hint, and nothing else.
    #[inline(always)]
    pub(crate) fn guess(&self, peer: FiAddr, segment: &RmaIov) -> Option<*const u8> {
        let is_same = self.peer == peer && self.key == segment.key;
        let addr = segment.addr.wrapping_add(self.offset);
        is_same.then(|| std::ptr::without_provenance(addr as usize))
    }

    /// Whether a piece is elsewhere than it was guessed to be: at `at` of a span.
    #[inline(always)]
    pub(crate) fn is_wrong(guess: Option<*const u8>, span: &Span, at: usize) -> bool {
        guess.is_none_or(|line| line.addr() != span.address(at))
    }

    /// What was found: the piece is at `at` of a span.
    #[inline(always)]
    pub(crate) fn at(peer: FiAddr, segment: &RmaIov, span: &Span, at: usize) -> Self {
        Self {
            peer,
            key: segment.key,
            offset: (span.address(at) as u64).wrapping_sub(segment.addr),
        }
    }
}

/// A region of special memory that is mapped here.
#[derive(Clone, Debug)]
pub(super) struct MappedRegion {
    pub(super) key: u64,
    /// What its first byte is named by.
    pub(super) start: u64,
    pub(super) rights: u32,
    pub(super) span: Span,
    pub(super) row: EntryVersion,
}

impl MappedRegions {
    /// Forgets them all, and lets their memory go.
    pub(crate) fn clear(&mut self) {
        self.kept.clear();
    }

    /// Keeps a window.
    pub(super) fn keep(&mut self, region: MappedRegion) {
        let slot = slot(region.key);
        self.kept.resize(MAPPED_REGIONS, None);
        self.kept[slot] = Some(region);
    }

    /// Where a piece is in the window that was kept of its region, if one was.
    #[inline(always)]
    pub(crate) fn find(&self, segment: &RmaIov, rights: u32) -> Option<(&Span, usize)> {
        let region = self.kept.get(slot(segment.key))?.as_ref()?;
        let is_allowed = region.key == segment.key && region.rights & rights == rights;
        if !is_allowed || !region.row.is_current() {
            return None;
        }
        let at = segment.addr.wrapping_sub(region.start) as usize;
        let is_inside = at <= region.span.len() && segment.len <= region.span.len() - at;
        is_inside.then_some((&region.span, at))
    }
}

#[inline(always)]
const fn slot(key: u64) -> usize {
    key as usize % MAPPED_REGIONS
}
