//! The inject pool: payloads of commands, first in first out.
//!
//! Both ends walk the same path: a payload takes the next whole cache lines, and the first ones of
//! the pool when those up to its end are too few. So the consumer knows where a payload must lie
//! and merely checks what the command says; and giving a command slot back gives back its payload
//! with it. The producer remembers per slot how far the pool was used.

use crate::smr::memory::bytes::Bytes;

/// Granularity of the pool, in bytes.
const LINE: u64 = 64;
/// Payloads up to this length are asked for as a whole beforehand, in bytes. Where cores are far
/// apart, a stream of 1 KiB gains a fifth; with longer ones the lines come too early and too many.
const WHOLE: usize = 1024;
/// What is asked for of a longer payload.
const AHEAD: usize = 256;

/// The path through the pool that both ends walk.
#[derive(Clone, Copy, Debug)]
pub struct Walk {
    size: u64,
    /// Where the next payload goes, if it fits before the end.
    offset: u64,
    /// Bytes passed so far, gaps included.
    position: u64,
}

impl Walk {
    /// The start of the path through a pool of `size` bytes.
    pub fn new(size: usize) -> Self {
        Self {
            size: size as u64,
            offset: 0,
            position: 0,
        }
    }

    /// Bytes passed so far, gaps included.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Where the next payload goes, if it fits before the end.
    pub fn offset(&self) -> usize {
        self.offset as usize
    }

    /// Passes a payload of `len` bytes and says where it lies. `None` when the pool is smaller
    /// than that; nothing is passed then.
    #[inline]
    pub fn pass(&mut self, len: usize) -> Option<usize> {
        let len = (len as u64).checked_next_multiple_of(LINE)?;
        if len > self.size {
            return None;
        }
        let left = self.size - self.offset;
        if len > left {
            self.position += left;
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

/// The producing end.
#[derive(Debug)]
pub struct InjectPool {
    bytes: Bytes,
    walk: Walk,
    /// Position up to which payloads were consumed.
    freed: u64,
    /// Length of the last payload: the next one is probably like it.
    last: usize,
}

impl InjectPool {
    /// An empty pool over `bytes`.
    pub(crate) fn new(bytes: Bytes) -> Self {
        Self {
            walk: Walk::new(bytes.len()),
            bytes,
            freed: 0,
            last: 0,
        }
    }

    /// Makes room for `len` bytes: their offset, or `None` while there is not enough.
    #[inline]
    pub fn claim(&mut self, len: usize) -> Option<usize> {
        let mut walk = self.walk;
        let offset = walk.pass(len)?;
        // A gap costs room like a payload, but not in an empty pool: there it keeps nothing apart.
        if walk.position - self.freed > walk.size && self.freed != self.walk.position {
            return None;
        }
        self.walk = walk;
        self.last = len;
        Some(offset)
    }

    /// Asks for the first cache line of the next payload, which its reader looks at all the time if
    /// payloads are short. To be called when something else is done first.
    #[inline(always)]
    pub fn prepare(&self) {
        if (1..=WHOLE).contains(&self.last) {
            self.bytes.prepare(self.walk.offset(), 1);
        }
    }

    /// Asks for the cache lines of the next payload. To be called once a command was committed, when
    /// nobody waits for it.
    #[inline]
    pub fn look_ahead(&self) {
        let len = if self.last <= WHOLE { self.last } else { AHEAD };
        self.bytes.prepare(self.walk.offset(), len);
    }

    /// How far the pool is used: what to remember with the command.
    #[inline]
    pub fn position(&self) -> u64 {
        self.walk.position
    }

    /// Learns that everything up to `position` was consumed.
    #[inline]
    pub fn free_to(&mut self, position: u64) {
        debug_assert!(self.freed <= position && position <= self.walk.position);
        self.freed = position;
    }

    /// The memory.
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
    fn a_payload_that_does_not_fit_before_the_end_starts_over() {
        let mut walk = Walk::new(256);
        assert_eq!(walk.pass(100), Some(0));
        assert_eq!(walk.pass(64), Some(128));
        assert_eq!(walk.pass(100), Some(0));
        assert_eq!(walk.position(), 256 + 128);
    }

    #[test]
    fn a_payload_larger_than_the_pool_has_no_place() {
        let mut walk = Walk::new(256);
        assert_eq!(walk.pass(257), None);
        assert_eq!(walk.pass(usize::MAX), None);
        assert_eq!(walk.pass(256), Some(0));
    }

    #[test]
    fn an_empty_pool_takes_what_is_as_large_as_itself() {
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
        fn both_ends_walk_one_path_and_payloads_never_overlap(
            steps in proptest::collection::vec(step(), 1..200),
        ) {
            let (mut pool, mut walk) = (pool(), Walk::new(SIZE));
            let mut kept = VecDeque::<(Range<usize>, u64)>::new();
            for step in steps {
                match step {
                    Step::Claim(len) => {
                        let Some(start) = pool.claim(len) else {
                            prop_assert!(len > SIZE || !kept.is_empty(), "an empty pool has room");
                            continue;
                        };
                        let place = start..start + len;
                        prop_assert!(place.end <= SIZE);
                        prop_assert!(kept.iter().all(|(other, _)| !overlap(other, &place)));
                        kept.push_back((place, pool.position()));
                    }
                    Step::Free => {
                        let Some((place, behind)) = kept.pop_front() else { continue };
                        prop_assert_eq!(walk.pass(place.len()), Some(place.start));
                        prop_assert_eq!(walk.position(), behind);
                        pool.free_to(behind);
                    }
                }
            }
        }
    }
}
