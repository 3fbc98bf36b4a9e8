//! `CopySelector`: selects the faster copy method into shared memory, measured per peer.
//!
//! The processor's string instruction takes ownership of cache lines without reading them. It
//! starts slowly and is faster for lines in a distant cache; vector stores are faster for lines in
//! a near cache. The cores of virtual machines migrate, so both methods are timed repeatedly.

use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use crate::smr::bytes::{Bytes, CHUNK, CopyMethod};

/// The selected method, and the measurements for the next selection.
#[derive(Debug)]
pub(crate) struct CopySelector {
    best: CopyMethod,
    /// The number of copies in this round. The last two are timed, one per method.
    round: u32,
    /// The number of copies that remain in this round.
    remaining: u32,
    /// Mean nanoseconds per byte of the string instruction; 0 before the first measurement.
    string: f32,
    /// Mean nanoseconds per byte of the chunks; 0 before the first measurement.
    chunks: f32,
}

/// The number of copies in the first round; most of them are the first access to their pages. Each
/// round is twice as long as the previous one.
const FIRST_ROUND: u32 = 18;
/// The number of copies in the longest round. Few copies are timed, because a timed copy waits for
/// its cache lines.
const LONGEST_ROUND: u32 = 512;
/// Chunks are selected if they take less than this fraction of the string instruction's time. A
/// distant peer reads the stores of the string instruction sooner, which the sender cannot measure.
const MARGIN: f32 = 0.7;
/// The limit of a measurement relative to the mean: a longer measurement includes time in which the
/// process was not running.
const OUTLIER_RATIO: f32 = 4.0;

impl CopySelector {
    /// Copies bytes to `offset` of `to`.
    #[inline]
    pub(crate) fn copy_in(&mut self, to: &Bytes, offset: usize, from: &[u8]) {
        if from.len() <= CHUNK {
            return to.copy_in(offset, from);
        }
        self.remaining -= 1;
        match self.remaining {
            0 | 1 => self.copy_timed(to, offset, from),
            _ => to.copy_in_by(self.best, offset, from),
        }
    }

    #[cold]
    fn copy_timed(&mut self, to: &Bytes, offset: usize, from: &[u8]) {
        let method = match self.remaining {
            0 => CopyMethod::Chunks,
            _ => CopyMethod::StringInstruction,
        };
        let start = Instant::now();
        to.copy_in_by(method, offset, from);
        // The fence waits until all stores are visible.
        fence(Ordering::SeqCst);
        self.record(method, start.elapsed(), from.len());
        if self.remaining == 0 {
            self.round = (2 * self.round).min(LONGEST_ROUND);
            self.remaining = self.round;
        }
    }

    fn record(&mut self, method: CopyMethod, elapsed: Duration, len: usize) {
        let mean = match method {
            CopyMethod::StringInstruction => &mut self.string,
            CopyMethod::Chunks => &mut self.chunks,
        };
        let elapsed = elapsed.as_nanos() as f32 / len as f32;
        *mean = match *mean {
            0.0 => elapsed,
            previous => (previous + elapsed.min(OUTLIER_RATIO * previous)) / 2.0,
        };
        self.best = if self.chunks > 0.0 && self.chunks < MARGIN * self.string {
            CopyMethod::Chunks
        } else {
            CopyMethod::StringInstruction
        };
    }
}

impl Default for CopySelector {
    fn default() -> Self {
        Self {
            best: CopyMethod::StringInstruction,
            round: FIRST_ROUND,
            remaining: FIRST_ROUND,
            string: 0.0,
            chunks: 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;

    use super::*;
    use crate::smr::{Memory, Writers};

    fn record_both(selector: &mut CopySelector, string: u64, chunks: u64) {
        for (method, nanos) in [
            (CopyMethod::StringInstruction, string),
            (CopyMethod::Chunks, chunks),
        ] {
            selector.record(method, Duration::from_nanos(nanos), 4096);
        }
    }

    #[test]
    fn both_copy_methods_store_the_given_bytes() {
        const LEN: usize = 3 * CHUNK + 5;
        let memory = Memory::create(4 * CHUNK, Writers::AnyProcess).unwrap();
        let to = Bytes::new(memory.mapping().clone(), 0, 4 * CHUNK);
        let mut selector = CopySelector::default();
        // The first two rounds, with their timed copies.
        for number in 0..3 * FIRST_ROUND as usize {
            let from: Vec<_> = (0..LEN).map(|index| (index * 7 + number) as u8).collect();
            selector.copy_in(&to, number, &from);
            let mut out = [MaybeUninit::uninit(); LEN];
            assert_eq!(*to.copy_out(number, &mut out), *from, "copy {number}");
        }
        assert!(selector.string > 0.0 && selector.chunks > 0.0);
    }

    #[test]
    fn the_faster_copy_method_is_selected() {
        let mut selector = CopySelector::default();
        record_both(&mut selector, 200, 100);
        assert_eq!(selector.best, CopyMethod::Chunks);
        (0..3).for_each(|_| record_both(&mut selector, 300, 900));
        assert_eq!(selector.best, CopyMethod::StringInstruction);
    }

    #[test]
    fn an_outlier_does_not_change_the_selected_copy_method() {
        let mut selector = CopySelector::default();
        (0..4).for_each(|_| record_both(&mut selector, 200, 100));
        record_both(&mut selector, 200, 5_000_000);
        (0..3).for_each(|_| record_both(&mut selector, 200, 100));
        assert_eq!(selector.best, CopyMethod::Chunks);
    }
}
