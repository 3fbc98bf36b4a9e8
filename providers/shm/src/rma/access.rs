//! Access: what a peer lets us do with its memory, as its key table says.
//!
//! Looked up before anything moves. The peer checks again whatever reaches it as a command.

use std::os::fd::OwnedFd;

use rustc_hash::FxHashMap;
use selvedge::rma::RmaIov;
use selvedge::{Errno, Error};

use crate::mr::hint;
use crate::smr::keys::{Denied, MAX_CHUNKS, PeerChunk, Row, Seen, place_of};

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
    pub(crate) row: Row,
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
    pub(crate) fn check(&mut self, piece: &RmaIov, rights: u32) -> Result<Grant, Denied> {
        let (number, row, generation) = self.find(piece.key).ok_or(Denied::Key)?;
        let memory = row.locate(piece.addr, piece.len as u64, rights)?;
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
        let (chunk, place) = place_of(grant.number as usize);
        let chunk = self.chunks.get(chunk);
        chunk.is_some_and(|chunk| chunk.is_current(place, grant.generation))
    }

    /// The row of a grant, to ask about it later.
    pub(crate) fn seen(&self, grant: &Grant) -> Option<Seen> {
        let (chunk, place) = place_of(grant.number as usize);
        let chunk = self.chunks.get(chunk)?;
        Some(chunk.seen(place, grant.generation))
    }

    #[inline]
    fn find(&mut self, key: u64) -> Option<(u32, Row, u64)> {
        match self.read(hint(key), key) {
            Some(found) => Some(found),
            None => self.search(key),
        }
    }

    #[inline]
    fn read(&self, number: usize, key: u64) -> Option<(u32, Row, u64)> {
        let (chunk, place) = place_of(number);
        let (row, generation) = self.chunks.get(chunk)?.read(place)?;
        (row.key == key).then_some((number as u32, row, generation))
    }

    #[cold]
    fn search(&mut self, key: u64) -> Option<(u32, Row, u64)> {
        if let Some(&number) = self.found.get(&key) {
            let found = self.read(number as usize, key);
            if found.is_some() {
                return found;
            }
            self.found.remove(&key);
        }
        let places = self
            .chunks
            .iter()
            .flat_map(|chunk| (0..chunk.len()).map(move |place| chunk.key(place)));
        let number = places
            .enumerate()
            .filter(|&(_, found)| found == key)
            .find_map(|(number, _)| self.read(number, key));
        if let Some((number, ..)) = number {
            self.found.insert(key, number);
        }
        number
    }
}
