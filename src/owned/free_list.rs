//! `FreeList` and `FreeRing`: lock-free lists of the free ones of a fixed number of indices. Each index
//! has one holder at a time.
//!
//! Released indices are taken again, in the order of their release, before an index is taken for
//! the first time. So no more indices are ever used than were held at the same time.

use super::sync::{ArrayQueue, AtomicU32, AtomicU64, CachePadded, Ordering};

/// A free list of values, each of which was made from an index. Any thread may release a value.
#[derive(Debug)]
pub(super) struct FreeList<T> {
    released: ArrayQueue<T>,
    untouched: Untouched,
}

/// A free entry that was taken.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Free<T> {
    /// An index that is taken for the first time.
    Untouched(u32),
    /// The value that an earlier holder made from its index and released.
    Released(T),
}

impl<T> FreeList<T> {
    /// A list with the indices below `count`, which is not 0.
    pub(super) fn new(count: u32) -> Self {
        Self {
            released: ArrayQueue::new(count as usize),
            untouched: Untouched::new(count),
        }
    }

    /// Takes a free entry; `None` when all are held.
    #[inline]
    pub(super) fn take(&self) -> Option<Free<T>> {
        let released = || self.released.pop().map(Free::Released);
        let untouched = || self.untouched.take().map(Free::Untouched);
        released().or_else(|| untouched().or_else(released))
    }

    /// Releases a value. The accesses of its holder happen before those of its next holder.
    #[inline]
    pub(super) fn release(&self, value: T) {
        let is_released = self.released.push(value).is_ok();
        assert!(
            is_released,
            "there is room for every index, and each has one holder"
        );
    }

    /// The number of free entries; approximate while other threads take and release entries.
    pub(super) fn len(&self) -> usize {
        self.untouched.len() + self.released.len()
    }
}

/// A free list of numbers, at first the indices. A holder may release another number in place of
/// the one that it took. Releases are serialized by the callers, and are plain stores.
#[derive(Debug)]
pub(super) struct FreeRing {
    /// Released numbers, each at its position modulo the length. The length is a power of two with
    /// room for all of them.
    ring: Box<[AtomicU64]>,
    /// The position of the next number to take.
    head: CachePadded<AtomicU64>,
    /// The position behind the last number. Written by the thread that releases.
    tail: CachePadded<AtomicU64>,
    untouched: Untouched,
    /// Whether the callers serialize [`Self::take`], too.
    is_serialized: bool,
}

impl FreeRing {
    /// A ring with the indices below `count`, which is not 0.
    pub(super) fn new(count: u32) -> Self {
        Self::build(count, false)
    }

    /// As [`Self::new`], for callers that serialize all calls. If they do not, two may take the
    /// same number.
    pub(super) fn serialized(count: u32) -> Self {
        Self::build(count, true)
    }

    fn build(count: u32, is_serialized: bool) -> Self {
        let len = count.next_power_of_two();
        Self {
            is_serialized,
            ring: (0..len).map(|_| AtomicU64::new(0)).collect(),
            head: CachePadded::new(AtomicU64::new(0)),
            tail: CachePadded::new(AtomicU64::new(0)),
            untouched: Untouched::new(count),
        }
    }

    /// Takes a number; `None` when all are held.
    #[inline]
    pub(super) fn take(&self) -> Option<u64> {
        match self.take_released() {
            None => self.take_untouched(),
            number => number,
        }
    }

    #[cold]
    fn take_untouched(&self) -> Option<u64> {
        let untouched = self.untouched.take().map(u64::from);
        untouched.or_else(|| self.take_released())
    }

    /// Releases a number. The accesses of its holder happen before those of its next holder.
    /// Callers serialize their calls.
    #[inline]
    pub(super) fn release(&self, number: u64) {
        let tail = self.tail.load(Ordering::Relaxed);
        self.at(tail).store(number, Ordering::Relaxed);
        // Pairs with the acquire of `take_released`.
        self.tail.store(tail + 1, Ordering::Release);
    }

    /// The number of indices.
    pub(super) fn count(&self) -> usize {
        self.untouched.count as usize
    }

    /// The number of indices that were ever taken. They are the indices below this number.
    pub(super) fn touched(&self) -> u32 {
        self.untouched.first()
    }

    #[inline]
    fn take_released(&self) -> Option<u64> {
        // A thread that sees a position as taken also sees the earlier releases of the thread that
        // took it: no free number is missed.
        let mut head = self.head.load(Ordering::Acquire);
        // The acquire pairs with the release of the last number, and so with those of all before
        // it.
        while head < self.tail.load(Ordering::Acquire) {
            // The entry is overwritten only after it was taken, and then the exchange fails.
            let number = self.at(head).load(Ordering::Relaxed);
            if self.is_serialized {
                self.head.store(head + 1, Ordering::Relaxed);
                return Some(number);
            }
            let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
            match self
                .head
                .compare_exchange_weak(head, head + 1, success, failure)
            {
                Ok(_) => return Some(number),
                Err(now) => head = now,
            }
        }
        None
    }

    #[inline]
    fn at(&self, position: u64) -> &AtomicU64 {
        &self.ring[position as usize & (self.ring.len() - 1)]
    }
}

/// The indices that were never taken: those from `first` on.
#[derive(Debug)]
struct Untouched {
    first: AtomicU32,
    count: u32,
}

impl Untouched {
    fn new(count: u32) -> Self {
        let first = AtomicU32::new(0);
        Self { first, count }
    }

    fn first(&self) -> u32 {
        self.first.load(Ordering::Relaxed)
    }

    fn len(&self) -> usize {
        (self.count - self.first()) as usize
    }

    /// Takes the first one. When it returns `None`, another thread may have released an index that
    /// the caller has not seen.
    #[cold]
    fn take(&self) -> Option<u32> {
        let next = |first| (first < self.count).then(|| first + 1);
        self.first
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, next)
            .ok()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;

    /// A list of plain indices.
    struct Indices(FreeList<u32>);

    impl Indices {
        fn take(&self) -> Option<u64> {
            let index = self.0.take().map(|free| match free {
                Free::Untouched(index) | Free::Released(index) => index,
            });
            index.map(u64::from)
        }

        fn release(&self, index: u64) {
            self.0.release(index as u32);
        }
    }

    #[test]
    fn released_indices_are_taken_before_untouched_ones() {
        let (list, ring) = (Indices(FreeList::new(3)), FreeRing::new(3));
        assert_eq!([list.take(), ring.take()], [Some(0); 2]);
        assert_eq!([list.take(), ring.take()], [Some(1); 2]);
        for index in [1, 0] {
            list.release(index);
            ring.release(index);
        }
        assert_eq!((list.0.len(), ring.touched()), (3, 2));
        for index in [Some(1), Some(0), Some(2), None] {
            assert_eq!([list.take(), ring.take()], [index; 2]);
        }
    }

    /// Four threads hold one of three indices at a time; some find none.
    fn no_index_has_two_holders(
        take: impl Fn() -> Option<u64> + Sync,
        release: impl Fn(u64) + Sync,
    ) {
        let is_held: [AtomicBool; 3] = Default::default();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        if let Some(index) = take() {
                            let is_held = &is_held[index as usize];
                            assert!(!is_held.swap(true, Ordering::Relaxed));
                            is_held.store(false, Ordering::Relaxed);
                            release(index);
                        }
                    }
                });
            }
        });
        let mut free: Vec<_> = std::iter::from_fn(take).collect();
        free.sort_unstable();
        assert_eq!(free, [0, 1, 2]);
    }

    #[test]
    fn an_index_has_one_holder_at_a_time() {
        let list = Indices(FreeList::new(3));
        no_index_has_two_holders(|| list.take(), |index| list.release(index));
        let (ring, apart) = (FreeRing::new(3), Mutex::new(()));
        no_index_has_two_holders(
            || ring.take(),
            |index| {
                let _apart = apart.lock().unwrap();
                ring.release(index);
            },
        );
    }
}
