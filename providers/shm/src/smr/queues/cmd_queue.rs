//! The command queue: one ring per ordered pair of endpoints, with one producer and one consumer.
//!
//! A slot is one cache line of eight words. Word 0 is the commit word. Its upper half is the stamp
//! of the slot's position, so that a slot of the previous lap is never taken for a new one. Its
//! lower half belongs to the command. The producer writes words 1 to 7 first and word 0 last, with
//! one release store; a producer that dies in between has sent nothing. The consumer's cursor is
//! private. The consumer returns slots in batches through a word in its own memory ([`Credit`]).
//!
//! The queue does not check the content of slots; the caller of [`Receiver::peek`] does.

use crate::smr::sync::{AtomicU64, LINE_WORDS, Lines, Ordering, Words, order};

/// The number of slots by which a sender prefetches ahead. In a stream, the cache lines of several
/// slots then move from the consumer at the same time instead of one after the other.
const PREFETCH_DISTANCE: u64 = 4;

/// The number of words of one slot.
pub const SLOT_WORDS: usize = LINE_WORDS;

/// The producer of a command queue.
#[derive(Debug)]
pub struct Sender {
    slots: Lines,
    /// Position of the next slot.
    head: u64,
    /// Position up to which slots are known to be free, less the reserved slots.
    limit: u64,
    /// The number of reserved slots ([`Self::reserve_slots`]).
    reserved: u64,
}

/// The consumer of a command queue.
#[derive(Debug)]
pub struct Receiver {
    slots: Lines,
    /// Position of the next slot.
    tail: u64,
}

/// A claimed slot that the consumer does not see yet. Dropping it sends nothing.
#[derive(Debug)]
pub struct Slot<'a> {
    line: &'a [AtomicU64; SLOT_WORDS],
    sender_head: &'a mut u64,
}

/// A slot that the producer has committed.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    line: &'a [AtomicU64; SLOT_WORDS],
    head: u32,
}

#[cfg(test)]
impl Received<'_> {
    /// Calls `read` with a slot of these words. The lower half of the first word is the slot's
    /// head.
    pub(crate) fn with<R>(words: [u64; SLOT_WORDS], read: impl FnOnce(Received<'_>) -> R) -> R {
        let line = words.map(AtomicU64::new);
        read(Received {
            line: &line,
            head: words[0] as u32,
        })
    }
}

/// The error of a credit that has decreased, or exceeds the number of commands: the invalid credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadCredit(pub u64);

impl Sender {
    /// Creates the producer of an empty queue over `slots`: a power of two of slots of
    /// [`SLOT_WORDS`] words each.
    pub(crate) fn new(slots: Words) -> Self {
        let slots = Lines::new(slots);
        Self {
            head: 0,
            limit: slots.count(),
            reserved: 0,
            slots,
        }
    }

    /// Reserves slots for commands that must always find room ([`Self::claim_reserved`]). The
    /// caller calls this once, while the queue is empty, with fewer slots than the queue has.
    pub fn reserve_slots(&mut self, slots: u64) {
        self.reserved = slots;
        self.limit -= slots;
    }

    /// As [`Self::claim`], but may also claim a reserved slot.
    pub fn claim_reserved(&mut self) -> Option<Slot<'_>> {
        (self.head < self.limit + self.reserved).then(|| Slot {
            line: self.slots.line(self.head),
            sender_head: &mut self.head,
        })
    }

    /// Claims the next slot if one is known to be free.
    #[inline(always)]
    pub fn claim(&mut self) -> Option<Slot<'_>> {
        if self.head >= self.limit {
            return None;
        }
        Some(Slot {
            line: self.slots.line(self.head),
            sender_head: &mut self.head,
        })
    }

    /// Prefetches the cache line of the next slot. For a caller that does other work before the
    /// claim.
    #[inline(always)]
    pub fn prefetch(&self) {
        self.slots.prefetch(self.head);
    }

    /// Prefetches the cache line of a later slot. For a caller that has committed a slot, off the
    /// critical path.
    #[inline(always)]
    pub fn prefetch_ahead(&self) {
        self.slots
            .prefetch(self.head.wrapping_add(PREFETCH_DISTANCE));
    }

    /// Returns the number of slots that are known to be free.
    #[inline]
    pub fn room(&self) -> u64 {
        self.limit.saturating_sub(self.head)
    }

    /// Returns the position of the next slot: the number of slots committed so far.
    #[inline]
    pub fn position(&self) -> u64 {
        self.head
    }

    /// Returns the position up to which the consumer has returned slots.
    #[inline]
    pub fn consumed(&self) -> u64 {
        self.limit + self.reserved - self.slots.count()
    }

    /// Updates the number of free slots from the credit that the consumer has published.
    ///
    /// # Errors
    /// [`BadCredit`] when the credit has decreased, or exceeds the number of committed slots.
    /// Nothing changes then.
    pub fn refresh(&mut self, consumed: u64) -> Result<(), BadCredit> {
        if consumed < self.consumed() || consumed > self.head {
            return Err(BadCredit(consumed));
        }
        self.limit = consumed + self.slots.count() - self.reserved;
        Ok(())
    }
}

impl Slot<'_> {
    /// Writes word `index` (1 to 7).
    #[inline]
    pub fn put(&mut self, index: usize, word: u64) {
        debug_assert!(index > 0, "word 0 is the commit word");
        self.line[index].store(word, Ordering::Relaxed);
    }

    /// Makes the slot visible to the consumer, with `head` as the command's half of word 0.
    #[inline]
    pub fn commit(self, head: u32) {
        let word = u64::from(stamp(*self.sender_head)) << 32 | u64::from(head);
        self.line[0].store(word, order::commit());
        *self.sender_head += 1;
    }
}

impl Receiver {
    /// Creates the consumer of an unused queue over `slots`.
    pub(crate) fn new(slots: Words) -> Self {
        Self {
            slots: Lines::new(slots),
            tail: 0,
        }
    }

    /// Returns the next committed slot without consuming it; [`Receiver::release`] consumes it.
    #[inline]
    pub fn peek(&self) -> Option<Received<'_>> {
        let line = self.slots.line(self.tail);
        let word = line[0].load(order::observe());
        ((word >> 32) as u32 == stamp(self.tail)).then_some(Received {
            line,
            head: word as u32,
        })
    }

    /// Consumes the slot that [`Self::peek`] has returned. The producer may reuse the slot once the
    /// position is published ([`Credit::publish`]).
    #[inline]
    pub fn release(&mut self) {
        self.tail += 1;
    }

    /// Returns the number of slots released so far: the position to publish.
    #[inline]
    pub fn position(&self) -> u64 {
        self.tail
    }

    /// Returns the number of slots.
    #[inline]
    pub fn capacity(&self) -> u64 {
        self.slots.count()
    }
}

impl Received<'_> {
    /// Returns the command's half of word 0.
    #[inline]
    pub fn head(&self) -> u32 {
        self.head
    }

    /// Loads word `index` (1 to 7). The producer may change the word, so a caller must load it once
    /// only.
    #[inline]
    pub fn word(&self, index: usize) -> u64 {
        self.line[index].load(Ordering::Relaxed)
    }
}

/// The word by which a consumer returns slots. It is in the consumer's own memory.
#[derive(Clone, Debug)]
pub struct Credit {
    words: Words,
    index: usize,
}

impl Credit {
    /// Creates the credit with the word at `index`.
    pub(crate) fn new(words: Words, index: usize) -> Self {
        Self { words, index }
    }

    /// Publishes that the producer may overwrite all slots before `position`.
    #[inline]
    pub fn publish(&self, position: u64) {
        self.words.word(self.index).store(position, order::credit());
    }

    /// Returns the position that the consumer has published last.
    #[inline]
    pub fn read(&self) -> u64 {
        self.words.word(self.index).load(order::observe())
    }
}

/// Returns the stamp in the commit word of `position`. It differs from the stamp of the same slot
/// one lap before, and from the zero of fresh memory.
#[inline]
fn stamp(position: u64) -> u32 {
    (position as u32).wrapping_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::smr::{Memory, Writers};

    const COUNT: u64 = 4;

    /// Creates producer and consumer of a queue through which `position` commands have passed.
    fn queue(position: u64) -> (Sender, Receiver) {
        let memory = Memory::create(4096, Writers::Owner).unwrap();
        let slots = Words::new(memory.mapping().clone(), 0, COUNT as usize * SLOT_WORDS);
        let (mut tx, mut rx) = (Sender::new(slots.clone()), Receiver::new(slots));
        if position > 0 {
            // The previous lap leaves its stamps in the slots.
            tx.head = position - COUNT;
            tx.limit = position;
            (0..COUNT).for_each(|_| tx.claim().unwrap().commit(u32::MAX));
            rx.tail = position;
            tx.refresh(position).unwrap();
        }
        (tx, rx)
    }

    #[test]
    fn a_fresh_queue_is_empty() {
        assert!(queue(0).1.peek().is_none());
    }

    #[test]
    fn a_slot_that_is_dropped_sends_nothing() {
        let (mut tx, rx) = queue(0);
        tx.claim().unwrap().put(1, 7);
        assert!(rx.peek().is_none());
        assert_eq!((tx.position(), tx.room()), (0, COUNT));
    }

    #[test]
    fn a_full_queue_has_no_free_slot_until_credit_is_published() {
        let (mut tx, mut rx) = queue(0);
        (0..COUNT).for_each(|_| tx.claim().unwrap().commit(0));
        assert!(tx.claim().is_none());
        rx.release();
        tx.refresh(rx.position()).unwrap();
        assert_eq!((tx.room(), tx.consumed()), (1, 1));
        tx.claim().unwrap().commit(0);
        assert!(tx.claim().is_none());
    }

    #[test]
    fn commands_pass_where_the_stamp_wraps_around() {
        let start = u64::from(u32::MAX) - 1;
        let (mut tx, mut rx) = queue(start);
        for position in start..start + 2 * COUNT {
            assert!(
                rx.peek().is_none(),
                "the old slot at {position} is not taken for a new one"
            );
            let mut slot = tx.claim().unwrap();
            slot.put(7, position);
            slot.commit(position as u32);
            let slot = rx.peek().unwrap();
            assert_eq!((slot.head(), slot.word(7)), (position as u32, position));
            rx.release();
            tx.refresh(rx.position()).unwrap();
        }
    }

    #[test]
    fn impossible_credit_is_refused_and_changes_nothing() {
        let (mut tx, _) = queue(0);
        (0..3).for_each(|_| tx.claim().unwrap().commit(0));
        tx.refresh(2).unwrap();
        for invalid in [0, 1, 4, u64::MAX] {
            assert_eq!(tx.refresh(invalid), Err(BadCredit(invalid)));
            assert_eq!((tx.consumed(), tx.room()), (2, 3));
        }
        tx.refresh(2).unwrap();
        tx.refresh(3).unwrap();
    }
}
