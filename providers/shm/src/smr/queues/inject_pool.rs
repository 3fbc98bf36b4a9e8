//! The inject pool: a ring buffer for the payloads of commands.
//!
//! Producer and consumer compute the same offsets: a payload takes the next whole cache lines, and
//! starts at offset 0 when the lines up to the end of the pool are too few. The consumer therefore
//! knows the offset of each payload and compares it with the one in the command. A returned command
//! slot returns its payload, too: the producer records the pool's position with each slot.

use crate::smr::memory::bytes::Bytes;

/// Granularity of the pool, in bytes.
const LINE: u64 = 64;
/// The longest payload, in bytes, that is prefetched as a whole. Where cores are far apart, a
/// stream of 1 KiB messages is a fifth faster with the prefetch. The prefetch of a longer payload
/// comes too early and evicts other lines.
const PREFETCH_WHOLE_MAX: usize = 1024;
/// The number of bytes that are prefetched of a longer payload.
const PREFETCH_PART: usize = 256;

/// A position in the pool, which producer and consumer advance in the same way.
#[derive(Clone, Copy, Debug)]
pub struct PoolPosition {
    size: u64,
    /// Offset of the next payload, if the payload fits before the end.
    offset: u64,
    /// Bytes advanced so far, gaps included.
    position: u64,
}

impl PoolPosition {
    /// Creates the first position of a pool of `size` bytes.
    pub fn new(size: usize) -> Self {
        Self {
            size: size as u64,
            offset: 0,
            position: 0,
        }
    }

    /// Returns the number of bytes advanced so far, gaps included.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Returns the offset of the next payload, if the payload fits before the end.
    pub fn offset(&self) -> usize {
        self.offset as usize
    }

    /// Advances past a payload of `len` bytes and returns the payload's offset. Returns `None`
    /// without effect when the pool is smaller than the payload.
    #[inline]
    pub fn advance(&mut self, len: usize) -> Option<usize> {
        let len = (len as u64).checked_next_multiple_of(LINE)?;
        if len > self.size {
            return None;
        }
        let remaining = self.size - self.offset;
        if len > remaining {
            self.position += remaining;
            self.offset = 0;
        }
        let start = self.offset;
        self.position += len;
        self.offset = if len == self.size - start {
            0
        } else {
            start + len
        };
        Some(start as usize)
    }
}

/// The producer of payloads in a pool.
#[derive(Debug)]
pub struct InjectPool {
    bytes: Bytes,
    cursor: PoolPosition,
    /// Position up to which payloads were consumed.
    freed: u64,
    /// Length of the last payload, as a guess for the next payload.
    last_len: usize,
}

impl InjectPool {
    /// Creates an empty pool over `bytes`.
    pub(crate) fn new(bytes: Bytes) -> Self {
        Self {
            cursor: PoolPosition::new(bytes.len()),
            bytes,
            freed: 0,
            last_len: 0,
        }
    }

    /// Claims `len` bytes and returns their offset. Returns `None` while there is no room.
    #[inline]
    pub fn claim(&mut self, len: usize) -> Option<usize> {
        let mut cursor = self.cursor;
        let offset = cursor.advance(len)?;
        // A gap counts as used like a payload, except in an empty pool, where no payload precedes
        // it.
        if cursor.position - self.freed > cursor.size && self.freed != self.cursor.position {
            return None;
        }
        self.cursor = cursor;
        self.last_len = len;
        Some(offset)
    }

    /// Prefetches the first cache line of the next payload, which the consumer polls if payloads
    /// are short. For a caller that does other work before the claim.
    #[inline(always)]
    pub fn prefetch(&self) {
        if (1..=PREFETCH_WHOLE_MAX).contains(&self.last_len) {
            self.bytes.prefetch_for_write(self.cursor.offset(), 1);
        }
    }

    /// Prefetches the cache lines of the next payload. For a caller that has committed a command,
    /// off the critical path.
    #[inline]
    pub fn prefetch_ahead(&self) {
        let len = if self.last_len <= PREFETCH_WHOLE_MAX {
            self.last_len
        } else {
            PREFETCH_PART
        };
        self.bytes.prefetch_for_write(self.cursor.offset(), len);
    }

    /// Returns the position up to which the pool is used. The caller records it with the command.
    #[inline]
    pub fn position(&self) -> u64 {
        self.cursor.position
    }

    /// Frees all payloads up to `position`.
    #[inline]
    pub fn free_to(&mut self, position: u64) {
        debug_assert!(self.freed <= position && position <= self.cursor.position);
        self.freed = position;
    }

    /// Returns the memory of the pool.
    #[inline]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::ops::Range;

    use proptest::prelude::*;

    use super::*;
    use crate::smr::{Memory, Writers};

    const SIZE: usize = 1024;

    fn pool() -> InjectPool {
        let memory = Memory::create(4096, Writers::Owner).unwrap();
        InjectPool::new(Bytes::new(memory.mapping().clone(), 0, SIZE))
    }

    #[test]
    fn a_payload_that_does_not_fit_before_the_end_starts_at_offset_0() {
        let mut cursor = PoolPosition::new(256);
        assert_eq!(cursor.advance(100), Some(0));
        assert_eq!(cursor.advance(64), Some(128));
        assert_eq!(cursor.advance(100), Some(0));
        assert_eq!(cursor.position(), 256 + 128);
    }

    #[test]
    fn a_payload_larger_than_the_pool_is_refused() {
        let mut cursor = PoolPosition::new(256);
        assert_eq!(cursor.advance(257), None);
        assert_eq!(cursor.advance(usize::MAX), None);
        assert_eq!(cursor.advance(256), Some(0));
    }

    #[test]
    fn an_empty_pool_takes_a_payload_of_its_own_size() {
        let mut pool = pool();
        for len in [64, SIZE, 1, SIZE, SIZE - 64] {
            assert!(pool.claim(len).is_some(), "{len} bytes");
            assert_eq!(pool.claim(SIZE), None);
            pool.free_to(pool.position());
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Claim(usize),
        Free,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            2 => (1..SIZE + 65).prop_map(Step::Claim),
            3 => (1..SIZE / 4).prop_map(Step::Claim),
            5 => Just(Step::Free),
        ]
    }

    fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
        a.start < b.end && b.start < a.end
    }

    proptest! {
        #[test]
        fn producer_and_consumer_compute_equal_offsets_and_payloads_never_overlap(
            steps in proptest::collection::vec(step(), 1..200),
        ) {
            let (mut pool, mut cursor) = (pool(), PoolPosition::new(SIZE));
            let mut unfreed = VecDeque::<(Range<usize>, u64)>::new();
            for step in steps {
                match step {
                    Step::Claim(len) => {
                        let Some(start) = pool.claim(len) else {
                            prop_assert!(len > SIZE || !unfreed.is_empty(), "an empty pool has room");
                            continue;
                        };
                        let range = start..start + len;
                        prop_assert!(range.end <= SIZE);
                        prop_assert!(unfreed.iter().all(|(other, _)| !overlap(other, &range)));
                        unfreed.push_back((range, pool.position()));
                    }
                    Step::Free => {
                        let Some((range, end)) = unfreed.pop_front() else { continue };
                        prop_assert_eq!(cursor.advance(range.len()), Some(range.start));
                        prop_assert_eq!(cursor.position(), end);
                        pool.free_to(end);
                    }
                }
            }
        }
    }
}
