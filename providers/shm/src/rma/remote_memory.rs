//! The memory of a peer that this process may access: the peer's key table, and a cache of mapped
//! regions.
//!
//! The initiator checks every access against the key table before a byte moves; the peer checks
//! each command again. [`MappedRegions`] caches the regions of special memory that were used last.

use std::os::fd::OwnedFd;

use rustc_hash::FxHashMap;
use selvedge::rma::RmaIov;
use selvedge::{Errno, Error, FiAddr};
use selvedge_kit::mr::entry_hint;

use crate::smr::bytes::Span;
use crate::smr::keys::{Denied, EntryVersion, KeyEntry, MAX_CHUNKS, PeerChunk, locate_entry};

/// A peer's key table, in chunks that the peer shares.
#[derive(Debug, Default)]
pub(crate) struct PeerKeys {
    chunks: Vec<PeerChunk>,
    /// The number of chunks that the peer's `Hello` announces.
    expected: usize,
    /// Entry numbers of keys whose entry is not the one that [`entry_hint`] returns.
    searched: FxHashMap<u64, u32>,
}

/// The permission to access a segment of a peer's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    pub(crate) entry: KeyEntry,
    /// The address of the segment in the peer's process.
    pub(crate) memory: u64,
    /// The number of the entry.
    number: u32,
    /// The generation of the entry at the check.
    generation: u64,
}

impl PeerKeys {
    /// Sets the number of chunks that the peer has announced.
    pub(crate) fn expect(&mut self, chunks: usize) {
        self.expected = chunks.min(MAX_CHUNKS);
    }

    /// Whether all announced chunks are attached.
    #[inline]
    pub(crate) fn are_complete(&self) -> bool {
        self.chunks.len() >= self.expected
    }

    /// Maps a chunk that the peer has sent. A chunk that is attached already is ignored: a second
    /// socket delivers all chunks again.
    pub(crate) fn attach(&mut self, number: usize, fd: OwnedFd) -> Result<(), Error> {
        if number < self.chunks.len() {
            return Ok(());
        }
        if number > self.chunks.len() {
            let message = format!(
                "key chunk {number} arrived before chunk {}",
                self.chunks.len()
            );
            return Err(Error::new(Errno::Proto, message));
        }
        self.chunks.push(PeerChunk::attach(fd, number)?);
        Ok(())
    }

    /// Checks that the key table grants `rights` to a segment of the peer's memory.
    ///
    /// # Errors
    /// The reason for the denial.
    #[inline]
    pub(crate) fn check(&mut self, segment: &RmaIov, rights: u32) -> Result<Grant, Denied> {
        let (number, entry, generation) = self.find(segment.key).ok_or(Denied::Key)?;
        let memory = entry.locate(segment.addr, segment.len as u64, rights)?;
        Ok(Grant {
            entry,
            memory,
            number,
            generation,
        })
    }

    /// Whether a grant still holds. The caller checks this after every copy out of the peer's
    /// memory: `true` means that the copied bytes are valid.
    #[inline]
    pub(crate) fn is_current(&self, grant: &Grant) -> bool {
        let (chunk, index) = locate_entry(grant.number as usize);
        let chunk = self.chunks.get(chunk);
        chunk.is_some_and(|chunk| chunk.is_current(index, grant.generation))
    }

    /// Returns the version of a grant's entry, for later checks that the entry is unchanged.
    pub(crate) fn entry_version(&self, grant: &Grant) -> Option<EntryVersion> {
        let (chunk, index) = locate_entry(grant.number as usize);
        let chunk = self.chunks.get(chunk)?;
        Some(chunk.version(index, grant.generation))
    }

    /// Finds the entry of a key. Returns its number, content and generation.
    #[inline]
    fn find(&mut self, key: u64) -> Option<(u32, KeyEntry, u64)> {
        match self.read(entry_hint(key), key) {
            Some(found) => Some(found),
            None => self.search(key),
        }
    }

    /// Reads the entry `number`, if it has this key.
    #[inline]
    fn read(&self, number: usize, key: u64) -> Option<(u32, KeyEntry, u64)> {
        let (chunk, index) = locate_entry(number);
        let (entry, generation) = self.chunks.get(chunk)?.read(index)?;
        (entry.key == key).then_some((number as u32, entry, generation))
    }

    /// Searches all entries for a key.
    #[cold]
    fn search(&mut self, key: u64) -> Option<(u32, KeyEntry, u64)> {
        if let Some(&number) = self.searched.get(&key) {
            let found = self.read(number as usize, key);
            if found.is_some() {
                return found;
            }
            self.searched.remove(&key);
        }
        let keys = self
            .chunks
            .iter()
            .flat_map(|chunk| (0..chunk.len()).map(move |index| chunk.key(index)));
        let found = keys
            .enumerate()
            .filter(|&(_, found)| found == key)
            .find_map(|(number, _)| self.read(number, key));
        if let Some((number, ..)) = found {
            self.searched.insert(key, number);
        }
        found
    }
}

/// The number of cached regions per peer. The lowest bits of a key select the slot.
const MAPPED_REGIONS: usize = 8;

/// The cache of a peer's mapped regions, by key.
#[derive(Debug, Default)]
pub(crate) struct MappedRegions {
    /// Empty until the first region is cached.
    cached: Vec<Option<MappedRegion>>,
}

/// The mapping of the region that the last access used, as a prefetch hint. Most accesses use the
/// same region as the previous one: the next access prefetches its cache line by this hint before
/// the lookup of the region, and the line arrives during the lookup.
#[derive(Debug)]
pub(crate) struct PrefetchHint {
    peer: FiAddr,
    key: u64,
    /// The difference between an address in this process and the peer's address of the same byte,
    /// modulo 2^64.
    delta: u64,
}

impl PrefetchHint {
    pub(crate) const NONE: Self = Self {
        peer: FiAddr::UNSPEC,
        key: 0,
        delta: 0,
    };

    /// Returns the address at which a segment is probably mapped in this process. Only a prefetch
    /// may use the address.
    #[inline(always)]
    pub(crate) fn guess(&self, peer: FiAddr, segment: &RmaIov) -> Option<*const u8> {
        let is_same = self.peer == peer && self.key == segment.key;
        let addr = segment.addr.wrapping_add(self.delta);
        is_same.then(|| std::ptr::without_provenance(addr as usize))
    }

    /// Whether the guess differs from the segment's address, which is `offset` bytes into the span.
    #[inline(always)]
    pub(crate) fn is_wrong(guess: Option<*const u8>, span: &Span, offset: usize) -> bool {
        guess.is_none_or(|line| line.addr() != span.address(offset))
    }

    /// Builds the hint of a segment that begins `offset` bytes into a span.
    #[inline(always)]
    pub(crate) fn of_segment(peer: FiAddr, segment: &RmaIov, span: &Span, offset: usize) -> Self {
        Self {
            peer,
            key: segment.key,
            delta: (span.address(offset) as u64).wrapping_sub(segment.addr),
        }
    }
}

/// A region of a peer's special memory that this process has mapped.
#[derive(Clone, Debug)]
pub(super) struct MappedRegion {
    pub(super) key: u64,
    /// The address or offset by which peers name the first byte.
    pub(super) start: u64,
    pub(super) rights: u32,
    pub(super) span: Span,
    pub(super) version: EntryVersion,
}

impl MappedRegions {
    /// Removes all regions and releases their mappings.
    pub(crate) fn clear(&mut self) {
        self.cached.clear();
    }

    /// Caches a region. It replaces a cached region with the same slot.
    pub(super) fn keep(&mut self, region: MappedRegion) {
        let slot = slot(region.key);
        self.cached.resize(MAPPED_REGIONS, None);
        self.cached[slot] = Some(region);
    }

    /// Finds a segment in its cached region. Returns the region's span and the segment's offset in
    /// the span; `None` if the region is not cached, has changed, or does not grant `rights` to all
    /// of the segment.
    #[inline(always)]
    pub(crate) fn find(&self, segment: &RmaIov, rights: u32) -> Option<(&Span, usize)> {
        let region = self.cached.get(slot(segment.key))?.as_ref()?;
        let is_allowed = region.key == segment.key && region.rights & rights == rights;
        if !is_allowed || !region.version.is_current() {
            return None;
        }
        let offset = segment.addr.wrapping_sub(region.start) as usize;
        let is_inside = offset <= region.span.len() && segment.len <= region.span.len() - offset;
        is_inside.then_some((&region.span, offset))
    }
}

/// Returns the slot of a key in the cache.
#[inline(always)]
const fn slot(key: u64) -> usize {
    key as usize % MAPPED_REGIONS
}
