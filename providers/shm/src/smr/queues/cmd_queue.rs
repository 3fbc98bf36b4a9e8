//! The command queue: one ring per ordered pair of endpoints, one producer, one consumer.
//!
//! A slot is one cache line of eight words. Word 0 is the commit word: its upper half is the
//! slot's position (so that a slot of the lap before is never taken for a new one), its lower half
//! belongs to the command. The producer writes words 1 to 7 first and word 0 last, with one release
//! store; a producer that dies in between has sent nothing. The consumer's cursor is private; it
//! gives slots back in batches through a word in memory of its own ([`Credit`]).
//!
//! The queue checks nothing that a slot says: that is the reader's business.

use crate::smr::sync::{AtomicU64, LINE_WORDS, Lines, Ordering, Words, order};

/// How many slots ahead a sender asks for the cache line. In a stream, the lines of several slots
/// are then on their way from the consumer at once, instead of one after the other.
const AHEAD: u64 = 4;

/// Words of one slot.
pub const SLOT_WORDS: usize = LINE_WORDS;

/// The producing end.
#[derive(Debug)]
pub struct Sender {
    slots: Lines,
    /// Position of the next slot.
    head: u64,
    /// Position up to which slots are known to be free.
    limit: u64,
    /// Slots that are kept back ([`Self::keep_back`]).
    kept: u64,
}

/// The consuming end.
#[derive(Debug)]
pub struct Receiver {
    slots: Lines,
    /// Position of the next slot.
    tail: u64,
}

/// A slot that is claimed and not yet visible. Dropping it sends nothing.
#[derive(Debug)]
pub struct Slot<'a> {
    line: &'a [AtomicU64; SLOT_WORDS],
    head: &'a mut u64,
}

/// A slot that the producer has committed.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    line: &'a [AtomicU64; SLOT_WORDS],
    head: u32,
}

#[cfg(test)]
impl Received<'_> {
    /// Has `read` look at a slot of these words, the first of which says what it is.
    pub(crate) fn with<R>(words: [u64; SLOT_WORDS], read: impl FnOnce(Received<'_>) -> R) -> R {
        let line = words.map(AtomicU64::new);
        read(Received {
            line: &line,
            head: words[0] as u32,
        })
    }
}

/// The producer's news about its credit was impossible: it went back, or ran ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadCredit(pub u64);

impl Sender {
    /// An empty queue over `slots`, a power of two of [`SLOT_WORDS`] each.
    pub(crate) fn new(slots: Words) -> Self {
        let slots = Lines::new(slots);
        Self {
            head: 0,
            limit: slots.count(),
            kept: 0,
            slots,
        }
    }

    /// Keeps slots back for what must always find room ([`Self::claim_kept`]). To be called once,
    /// while the queue is empty, with fewer than there are.
    pub fn keep_back(&mut self, slots: u64) {
        self.kept = slots;
        self.limit -= slots;
    }

    /// As [`Self::claim`], and may take what is kept back.
    pub fn claim_kept(&mut self) -> Option<Slot<'_>> {
        (self.head < self.limit + self.kept).then(|| Slot {
            line: self.slots.at(self.head),
            head: &mut self.head,
        })
    }

    /// Takes the next slot if one is known to be free.
    #[inline(always)]
    pub fn claim(&mut self) -> Option<Slot<'_>> {
        if self.head >= self.limit {
            return None;
        }
        Some(Slot {
            line: self.slots.at(self.head),
            head: &mut self.head,
        })
    }

    /// Asks for the cache line of the next slot. To be called when something else is done first.
    #[inline(always)]
    pub fn prepare(&self) {
        self.slots.prepare(self.head);
    }

    /// Asks for the cache line of a later slot. To be called once a slot was committed, when nobody
    /// waits for it.
    #[inline(always)]
    pub fn look_ahead(&self) {
        self.slots.prepare(self.head.wrapping_add(AHEAD));
    }

    /// Slots that are known to be free.
    #[inline]
    pub fn room(&self) -> u64 {
        self.limit.saturating_sub(self.head)
    }

    /// Position of the next slot: how many were committed so far.
    #[inline]
    pub fn position(&self) -> u64 {
        self.head
    }

    /// Position up to which the consumer has given slots back.
    #[inline]
    pub fn consumed(&self) -> u64 {
        self.limit + self.kept - self.slots.count()
    }

    /// Learns from the consumer's cursor which slots are free again.
    ///
    /// # Errors
    /// When the cursor went back or passed our head: the consumer lies.
    pub fn refresh(&mut self, consumed: u64) -> Result<(), BadCredit> {
        if consumed < self.consumed() || consumed > self.head {
            return Err(BadCredit(consumed));
        }
        self.limit = consumed + self.slots.count() - self.kept;
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

    /// Makes the slot visible, with `head` as the command's half of word 0.
    #[inline]
    pub fn commit(self, head: u32) {
        let word = u64::from(stamp(*self.head)) << 32 | u64::from(head);
        self.line[0].store(word, order::commit());
        *self.head += 1;
    }
}

impl Receiver {
    /// The consuming end of an untouched queue over `slots`.
    pub(crate) fn new(slots: Words) -> Self {
        Self {
            slots: Lines::new(slots),
            tail: 0,
        }
    }

    /// The next committed slot; it stays until [`Receiver::release`].
    #[inline]
    pub fn peek(&self) -> Option<Received<'_>> {
        let line = self.slots.at(self.tail);
        let word = line[0].load(order::seen());
        ((word >> 32) as u32 == stamp(self.tail)).then_some(Received {
            line,
            head: word as u32,
        })
    }

    /// Moves past the slot that was peeked at. The producer may reuse it once the cursor has been
    /// published.
    #[inline]
    pub fn release(&mut self) {
        self.tail += 1;
    }

    /// How many slots were released so far: the cursor to publish.
    #[inline]
    pub fn position(&self) -> u64 {
        self.tail
    }

    /// Number of slots.
    #[inline]
    pub fn capacity(&self) -> u64 {
        self.slots.count()
    }
}

impl Received<'_> {
    /// The command's half of word 0.
    #[inline]
    pub fn head(&self) -> u32 {
        self.head
    }

    /// Word `index` (1 to 7). The producer may change it: read it once.
    #[inline]
    pub fn word(&self, index: usize) -> u64 {
        self.line[index].load(Ordering::Relaxed)
    }
}

/// The word through which a consumer gives slots back; it lies in the consumer's own memory.
#[derive(Clone, Debug)]
pub struct Credit {
    words: Words,
    index: usize,
}

impl Credit {
    /// The credit word at `index`.
    pub(crate) fn new(words: Words, index: usize) -> Self {
        Self { words, index }
    }

    /// Says that everything before `position` may be overwritten.
    #[inline]
    pub fn publish(&self, position: u64) {
        self.words.at(self.index).store(position, order::credit());
    }

    /// What the consumer last said.
    #[inline]
    pub fn read(&self) -> u64 {
        self.words.at(self.index).load(order::seen())
    }
}

/// What the commit word of `position` carries: never that of the same slot one lap before, and
/// never the zero of fresh memory.
#[inline]
fn stamp(position: u64) -> u32 {
    (position as u32).wrapping_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::smr::{Memory, Writers};

    const COUNT: u64 = 4;

    /// Both ends of a queue in which `position` commands have passed.
    fn queue(position: u64) -> (Sender, Receiver) {
        let memory = Memory::create(4096, Writers::Owner).unwrap();
        let slots = Words::new(memory.mapping().clone(), 0, COUNT as usize * SLOT_WORDS);
        let (mut tx, mut rx) = (Sender::new(slots.clone()), Receiver::new(slots));
        if position > 0 {
            // The lap before leaves its stamps behind.
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
    fn a_full_queue_has_no_slot_until_some_were_given_back() {
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
                "what {position} replaces is not taken for new"
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
        for lie in [0, 1, 4, u64::MAX] {
            assert_eq!(tx.refresh(lie), Err(BadCredit(lie)));
            assert_eq!((tx.consumed(), tx.room()), (2, 3));
        }
        tx.refresh(2).unwrap();
        tx.refresh(3).unwrap();
    }
}
