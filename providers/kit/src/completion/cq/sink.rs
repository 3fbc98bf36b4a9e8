//! The array of the reader that drives progress.

use selvedge::FiAddr;
use selvedge::cq::Entry;

/// The array of the reader whose call of `read` drives progress.
#[derive(Debug)]
pub struct Sink<'a> {
    /// The address of the queue that the reader reads; 0 without a reader.
    queue: usize,
    out: &'a mut [Entry],
    src: &'a mut [FiAddr],
    /// The number of entries in the array.
    filled: usize,
}

impl<'a> Sink<'a> {
    /// A sink without a reader: every completion goes to its queue.
    pub fn none() -> Self {
        Self {
            queue: 0,
            out: &mut [],
            src: &mut [],
            filled: 0,
        }
    }

    /// A sink for a reader of the queue at this address, with room for entries in `out`, and for
    /// their sources in `src` if that is not empty.
    #[inline]
    pub(super) fn new(queue: usize, out: &'a mut [Entry], src: &'a mut [FiAddr]) -> Self {
        Self {
            queue,
            out,
            src,
            filled: 0,
        }
    }

    /// Whether the sink is for a reader of the queue at this address.
    #[inline(always)]
    pub(super) fn is_for(&self, queue: usize) -> bool {
        self.queue == queue
    }

    /// The number of entries in the array.
    #[inline]
    pub(super) fn filled(&self) -> usize {
        self.filled
    }

    /// The number of entries that fit the array.
    #[inline]
    pub(super) fn capacity(&self) -> usize {
        self.out.len()
    }

    /// The arrays for entries and for their sources.
    #[inline]
    pub(super) fn into_arrays(self) -> (&'a mut [Entry], &'a mut [FiAddr]) {
        (self.out, self.src)
    }

    /// Stores an entry in the array, if the array has room.
    #[inline(always)]
    pub(super) fn store(&mut self, entry: Entry, src: FiAddr) -> bool {
        let Some(slot) = self.out.get_mut(self.filled) else {
            return false;
        };
        *slot = entry;
        if let Some(slot) = self.src.get_mut(self.filled) {
            *slot = src;
        }
        self.filled += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use selvedge::{CompletionQueue, Context, cq::Attr};

    use super::*;
    use crate::cq::CqRing;
    use crate::lock::Mode;

    #[expect(unsafe_code, reason = "a thread-safe queue promises nothing")]
    fn queue() -> Arc<CqRing> {
        // SAFETY: no promise is made in this mode.
        unsafe { CqRing::open(&Attr::default(), Mode::Safe) }.unwrap()
    }

    fn entry(number: u64) -> Entry {
        Entry {
            context: Context(number),
            ..Entry::default()
        }
    }

    #[test]
    fn the_reader_gets_as_many_as_fit_and_the_queue_the_rest() {
        let cq = queue();
        let (mut out, mut src) = ([Entry::default(); 2], [FiAddr::UNSPEC; 2]);
        let mut sink = cq.sink(&mut out, &mut src);
        for number in 0..3 {
            sink.push(&cq, entry(number), FiAddr(number));
        }
        assert_eq!(sink.filled(), 2);
        assert_eq!((out, src), ([entry(0), entry(1)], [FiAddr(0), FiAddr(1)]));
        let mut rest = [Entry::default(); 2];
        assert_eq!(cq.read(&mut rest), Ok(1));
        assert_eq!(rest[0], entry(2));
    }

    #[test]
    fn no_completion_overtakes_those_in_the_queue() {
        let cq = queue();
        cq.push(entry(0), FiAddr::UNSPEC);
        let mut out = [Entry::default(); 2];
        let mut sink = cq.sink(&mut out, &mut []);
        sink.push(&cq, entry(1), FiAddr::UNSPEC);
        assert_eq!(sink.filled(), 0);
        assert_eq!(cq.read(&mut out), Ok(2));
        assert_eq!(out, [entry(0), entry(1)]);
    }

    #[test]
    fn a_reader_gets_no_completion_of_another_queue() {
        let (read_queue, other) = (queue(), queue());
        let mut out = [Entry::default(); 1];
        let mut sink = read_queue.sink(&mut out, &mut []);
        sink.push(&other, entry(7), FiAddr::UNSPEC);
        assert_eq!(sink.filled(), 0);
        assert_eq!(other.read(&mut out), Ok(1));
    }
}
