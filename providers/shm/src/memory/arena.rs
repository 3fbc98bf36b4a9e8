//! `MappedArena`: an arena of a peer's shared heap, with the ranges of it that may be accessed.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

use selvedge::Error;

use crate::connect::packet::BlockInfo;
use crate::memory::mapping_quota::{MappingPermit, MappingQuota};
use crate::smr::arena::PeerArena;

/// A mapped arena of a peer's heap.
#[derive(Debug)]
pub(crate) struct MappedArena {
    info: BlockInfo,
    memory: PeerArena,
    /// Ranges without a hole, which neither overlap nor touch.
    checked: Mutex<Vec<(usize, usize)>>,
    _permit: MappingPermit,
}

/// The maximum number of ranges that an arena remembers. Most programs have fewer buffers.
const RANGES: usize = 64;

impl MappedArena {
    /// Maps an arena of `len` bytes that a peer has announced; the peer holds `held` arenas.
    /// Returns `None` if the peer has used up its share of the address space.
    ///
    /// # Errors
    /// As [`PeerArena::attach`].
    pub(crate) fn map(
        info: BlockInfo,
        fd: OwnedFd,
        len: usize,
        held: usize,
    ) -> Result<Option<Self>, Error> {
        let Some(_permit) = MappingQuota::of_arenas().take(held) else {
            return Ok(None);
        };
        let memory = PeerArena::attach(fd, len)?;
        Ok(Some(Self {
            info,
            memory,
            checked: Mutex::default(),
            _permit,
        }))
    }

    /// Returns the memory, and the offset in it of the `len` bytes at the peer's address `addr`, if
    /// they are all there.
    pub(crate) fn find(&self, addr: u64, len: u64) -> Option<(&PeerArena, usize)> {
        let offset = self.info.offset_of(addr, len)?;
        let len = usize::try_from(len).ok()?;
        let end = offset.checked_add(len)?;
        let mut checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        let covers = |&(start, stop): &(usize, usize)| start <= offset && end <= stop;
        if !checked.iter().any(covers) {
            if !self.memory.is_whole(offset, len) {
                return None;
            }
            add(&mut checked, offset, end);
        }
        Some((&self.memory, offset))
    }
}

/// Adds a range, and joins it with those that it touches.
fn add(ranges: &mut Vec<(usize, usize)>, mut start: usize, mut end: usize) {
    if ranges.len() == RANGES {
        ranges.clear();
    }
    ranges.retain(|&(other_start, other_end)| {
        let is_apart = other_end < start || end < other_start;
        if !is_apart {
            (start, end) = (start.min(other_start), end.max(other_end));
        }
        is_apart
    });
    ranges.push((start, end));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checked_ranges_are_joined() {
        let mut ranges = Vec::new();
        for (start, end) in [(10, 20), (30, 40), (20, 25), (24, 30), (50, 60)] {
            add(&mut ranges, start, end);
        }
        assert_eq!(ranges, [(10, 40), (50, 60)]);
        for start in 0..RANGES {
            add(&mut ranges, 100 + 10 * start, 105 + 10 * start);
        }
        assert!(ranges.len() <= RANGES);
    }
}
