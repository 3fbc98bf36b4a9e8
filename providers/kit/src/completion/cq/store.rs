//! Completions and errors in the order in which they were pushed.

use std::collections::VecDeque;

use selvedge::cq::{Entry, ErrEntry};
use selvedge::{CompletionFlags, Context, Errno, FiAddr, Result};

use super::slot::Slot;

/// A ring of entries, which grows instead of losing one, and a list of errors beside it.
///
/// The store is protected by a lock instead of being `crossbeam_queue::ArrayQueue`. Measured on one
/// EPYC core in one run, push and read of an entry in batches of eight: 10.1 ns here in thread-safe
/// mode, 10.6 single-threaded, 22 with `ArrayQueue`, which pays two atomic read-modify-writes per
/// entry where a lock pays one per push and one per batch. An `ArrayQueue` also allocates all its
/// memory at once, can be full, and cannot keep errors in their place between entries.
#[derive(Debug)]
pub(super) struct Store {
    slots: Box<[Slot]>,
    /// The numbers of entries ever read and ever pushed. The slot of the n-th is n modulo the
    /// capacity, which is a power of two.
    read: usize,
    pushed: usize,
    /// The number of stored entries from which a push leaves the fast path, to grow the ring or to
    /// wake a thread: the capacity, or 0 while a wake-up is armed.
    fast_limit: usize,
    /// The errors, each with the number of entries that were pushed before it.
    errors: VecDeque<(usize, ErrEntry)>,
}

/// Every read whose entries cross a multiple of this number also drives the endpoints: seldom
/// enough to cost less than a nanosecond for each entry.
pub(super) const DRIVE_INTERVAL: usize = 64;

impl Store {
    pub(super) fn new() -> Self {
        Self {
            slots: empty(MIN_CAPACITY),
            read: 0,
            pushed: 0,
            fast_limit: MIN_CAPACITY,
            errors: VecDeque::new(),
        }
    }

    /// The number of stored entries, without errors.
    #[inline]
    const fn len(&self) -> usize {
        self.pushed.wrapping_sub(self.read)
    }

    /// The number of stored entries and errors.
    #[inline]
    pub(super) fn stored(&self) -> usize {
        self.len() + self.errors.len()
    }

    /// Adds an entry. Returns whether a wake-up was armed.
    #[inline(always)]
    pub(super) fn push(&mut self, entry: Entry, src: FiAddr) -> bool {
        let is_fast = self.len() < self.fast_limit;
        let was_armed = !is_fast && self.prepare_push();
        let index = self.index_of(self.pushed);
        self.slots[index].put(entry, src);
        self.pushed = self.pushed.wrapping_add(1);
        was_armed
    }

    /// Adds a completion that has only a context and flags, unless the ring is full or a wake-up is
    /// armed. Returns whether the completion was added.
    #[inline(always)]
    pub(super) fn try_push_plain(&mut self, context: Context, flags: CompletionFlags) -> bool {
        let (number, is_fast) = (self.pushed, self.len() < self.fast_limit);
        let index = self.index_of(number);
        let Some(slot) = self.slots.get_mut(index).filter(|_| is_fast) else {
            return false;
        };
        slot.put_plain(context, flags);
        self.pushed = number.wrapping_add(1);
        true
    }

    /// Adds an error. Returns whether a wake-up was armed.
    pub(super) fn push_err(&mut self, error: ErrEntry) -> bool {
        self.errors.push_back((self.pushed, error));
        self.disarm_wakeup()
    }

    /// Arms a wake-up: the next push reports it.
    pub(super) fn arm_wakeup(&mut self) {
        self.fast_limit = 0;
    }

    /// Disarms the wake-up. Returns whether it was armed.
    pub(super) fn disarm_wakeup(&mut self) -> bool {
        std::mem::replace(&mut self.fast_limit, self.slots.len()) == 0
    }

    /// Disarms the wake-up and grows the ring if it is full. Returns whether a wake-up was armed.
    #[cold]
    fn prepare_push(&mut self) -> bool {
        let was_armed = self.disarm_wakeup();
        if self.len() == self.slots.len() {
            self.grow();
        }
        was_armed
    }

    /// Takes the next entry if there is one, no error is stored, and the read does not have to
    /// drive the endpoints.
    #[inline(always)]
    pub(super) fn take_one_fast(&mut self) -> Option<&Slot> {
        let (read, next) = (self.read, self.read.wrapping_add(1));
        if self.len() == 0 || !self.errors.is_empty() || next.is_multiple_of(DRIVE_INTERVAL) {
            return None;
        }
        let slot = self.slots.get(self.index_of(read))?;
        self.read = next;
        Some(slot)
    }

    /// Moves entries to `out`, up to the next error, and their sources to `src`, as far as `src`
    /// reaches. Returns the number of entries, and whether the read also has to drive the
    /// endpoints.
    ///
    /// # Errors
    /// [`Errno::Avail`] if an error is next.
    pub(super) fn take(&mut self, out: &mut [Entry], src: &mut [FiAddr]) -> Result<(usize, bool)> {
        let count = out.len().min(self.ready()?);
        let read = self.read;
        for (index, out) in out[..count].iter_mut().enumerate() {
            *out = self.slots[self.index_of(read.wrapping_add(index))].entry();
        }
        for (index, src) in src.iter_mut().take(count).enumerate() {
            *src = self.slots[self.index_of(read.wrapping_add(index))].src();
        }
        self.read = read.wrapping_add(count);
        Ok((count, self.read / DRIVE_INTERVAL != read / DRIVE_INTERVAL))
    }

    /// Takes the error, if it is next.
    pub(super) fn take_err(&mut self) -> Option<ErrEntry> {
        let (before, _) = self.errors.front()?;
        (*before == self.read)
            .then(|| self.errors.pop_front())?
            .map(|(_, error)| error)
    }

    /// The number of entries before the next error.
    #[inline]
    fn ready(&self) -> Result<usize> {
        match self.errors.front() {
            None => Ok(self.len()),
            Some((before, _)) if *before == self.read => Err(Errno::Avail),
            Some((before, _)) => Ok(before.wrapping_sub(self.read)),
        }
    }

    #[inline]
    const fn index_of(&self, number: usize) -> usize {
        number & (self.slots.len() - 1)
    }

    /// Doubles the capacity; the oldest entry moves to slot 0.
    #[cold]
    fn grow(&mut self) {
        let len = self.len();
        let mut slots = empty(self.slots.len() * 2);
        for (index, slot) in slots[..len].iter_mut().enumerate() {
            let old = &self.slots[self.index_of(self.read.wrapping_add(index))];
            slot.put(old.entry(), old.src());
        }
        for (before, _) in &mut self.errors {
            *before = before.wrapping_sub(self.read);
        }
        self.fast_limit = slots.len();
        self.slots = slots;
        (self.read, self.pushed) = (0, len);
    }
}

fn empty(count: usize) -> Box<[Slot]> {
    vec![Slot::default(); count].into_boxed_slice()
}

/// The capacity of an idle queue: 4 KiB.
const MIN_CAPACITY: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: u64) -> Entry {
        Entry {
            context: Context(number),
            ..Entry::default()
        }
    }

    fn error(number: u64) -> ErrEntry {
        ErrEntry::new(entry(number), Errno::Io, "planted")
    }

    fn read(store: &mut Store, most: usize) -> Result<Vec<u64>> {
        let mut out = vec![Entry::default(); most];
        let mut src = vec![FiAddr::UNSPEC; most];
        let (count, _) = store.take(&mut out, &mut src)?;
        let contexts: Vec<_> = out[..count].iter().map(|e| e.context.0).collect();
        assert!(
            src.iter()
                .take(count)
                .map(|s| s.0)
                .eq(contexts.iter().copied())
        );
        Ok(contexts)
    }

    #[test]
    fn entries_stay_in_order_when_the_ring_wraps_around() {
        let mut store = Store::new();
        let (mut pushed, mut expected) = (0, 0);
        for round in 0..500 {
            for _ in 0..round % 7 {
                store.push(entry(pushed), FiAddr(pushed));
                pushed += 1;
            }
            for number in read(&mut store, round % 5).unwrap() {
                assert_eq!(number, expected);
                expected += 1;
            }
            assert_eq!(store.stored() as u64, pushed - expected);
        }
        assert!(expected > 2 * MIN_CAPACITY as u64);
    }

    #[test]
    fn growth_keeps_entries_and_errors_where_they_are() {
        let mut store = Store::new();
        for number in 0..40 {
            store.push(entry(number), FiAddr(number));
        }
        assert_eq!(read(&mut store, 40).unwrap().len(), 40);
        for number in 0..50 {
            store.push(entry(number), FiAddr(number));
        }
        store.push_err(error(50));
        for number in 51..300 {
            store.push(entry(number), FiAddr(number));
        }
        assert_eq!(read(&mut store, 300).unwrap(), Vec::from_iter(0..50));
        assert_eq!(read(&mut store, 300), Err(Errno::Avail));
        assert_eq!(store.take_err().unwrap().entry.context.0, 50);
        assert_eq!(read(&mut store, 300).unwrap(), Vec::from_iter(51..300));
    }

    #[test]
    fn an_error_is_not_read_before_its_turn() {
        let mut store = Store::new();
        store.push(entry(0), FiAddr(0));
        store.push_err(error(1));
        store.push_err(error(2));
        assert!(store.take_err().is_none());
        assert_eq!(read(&mut store, 9).unwrap(), [0]);
        assert_eq!(store.take_err().unwrap().entry.context.0, 1);
        assert_eq!(read(&mut store, 9), Err(Errno::Avail));
        assert_eq!(store.take_err().unwrap().entry.context.0, 2);
        assert_eq!(store.stored(), 0);
    }

    #[test]
    fn an_armed_wakeup_is_reported_by_the_next_push_alone() {
        let mut store = Store::new();
        assert!(!store.push(entry(0), FiAddr(0)));
        store.arm_wakeup();
        assert!(store.push(entry(1), FiAddr(1)));
        assert!(!store.push(entry(2), FiAddr(2)));
        store.arm_wakeup();
        assert_eq!(read(&mut store, 9).unwrap(), [0, 1, 2]);
        assert!(store.push_err(error(3)), "reading does not disarm");
        assert!(!store.push_err(error(4)));
        store.arm_wakeup();
        assert!(store.disarm_wakeup());
        assert!(!store.disarm_wakeup());
        for number in 0..MIN_CAPACITY as u64 {
            assert!(!store.push(entry(number), FiAddr(number)));
        }
        store.arm_wakeup();
        assert!(
            store.push(entry(64), FiAddr(64)),
            "it grows and reports the wake-up"
        );
        assert!(!store.push(entry(65), FiAddr(65)));
    }
}
