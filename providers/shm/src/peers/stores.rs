//! How payloads are stored into shared memory: learnt per peer from what was fastest.
//!
//! The processor's string instruction takes lines over without reading them, which is best where they
//! come from far away, and slow to begin with; other stores are best where lines are near. Cores of
//! virtual machines change their distance, so both are timed now and then.

use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use crate::smr::bytes::{Bytes, CHUNK, CopyMethod};

/// What was learnt.
#[derive(Debug)]
pub(crate) struct Storing {
    better: CopyMethod,
    /// Copies of this round, and how many of them are left: the last two are timed, one of each kind.
    round: u32,
    rest: u32,
    /// Nanoseconds per byte; 0 before there are any.
    string: f32,
    pieces: f32,
}

/// Copies in the first round, most of which are the first to touch their pages. Each round is twice as
/// long as the one before.
const FIRST: u32 = 18;
/// The longest round: to time a copy is to wait for its lines.
const LONGEST: u32 = 512;
/// Pieces are better if they take less than this part of the string instruction's time: a peer far
/// away reads sooner what the latter has stored, which is not seen here.
const CLEARLY: f32 = 0.7;
/// How many times as long as before a copy may seem to take: a process that was kept away from its
/// processor has not copied meanwhile.
const MOST: f32 = 4.0;

impl Storing {
    /// Copies bytes to `at` in the peer's memory.
    #[inline]
    pub(crate) fn copy_in(&mut self, to: &Bytes, at: usize, from: &[u8]) {
        if from.len() <= CHUNK {
            return to.copy_in(at, from);
        }
        self.rest -= 1;
        match self.rest {
            0 | 1 => self.copy_timed(to, at, from),
            _ => to.copy_in_by(self.better, at, from),
        }
    }

    #[cold]
    fn copy_timed(&mut self, to: &Bytes, at: usize, from: &[u8]) {
        let stores = match self.rest {
            0 => CopyMethod::Chunks,
            _ => CopyMethod::StringInstruction,
        };
        let start = Instant::now();
        to.copy_in_by(stores, at, from);
        // Stores that still wait for their lines have not been made.
        fence(Ordering::SeqCst);
        self.learn(stores, start.elapsed(), from.len());
        if self.rest == 0 {
            self.round = (2 * self.round).min(LONGEST);
            self.rest = self.round;
        }
    }

    fn learn(&mut self, stores: CopyMethod, took: Duration, len: usize) {
        let mean = match stores {
            CopyMethod::StringInstruction => &mut self.string,
            CopyMethod::Chunks => &mut self.pieces,
        };
        let took = took.as_nanos() as f32 / len as f32;
        *mean = match *mean {
            0.0 => took,
            before => (before + took.min(MOST * before)) / 2.0,
        };
        self.better = match self.pieces > 0.0 && self.pieces < CLEARLY * self.string {
            true => CopyMethod::Chunks,
            false => CopyMethod::StringInstruction,
        };
    }
}

impl Default for Storing {
    fn default() -> Self {
        Self {
            better: CopyMethod::StringInstruction,
            round: FIRST,
            rest: FIRST,
            string: 0.0,
            pieces: 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;

    use super::*;
    use crate::smr::{Memory, Writers};

    fn learn(storing: &mut Storing, string: u64, pieces: u64) {
        for (stores, nanos) in [
            (CopyMethod::StringInstruction, string),
            (CopyMethod::Chunks, pieces),
        ] {
            storing.learn(stores, Duration::from_nanos(nanos), 4096);
        }
    }

    #[test]
    fn what_is_stored_either_way_is_what_was_given() {
        const LEN: usize = 3 * CHUNK + 5;
        let memory = Memory::create(4 * CHUNK, Writers::AnyProcess).unwrap();
        let to = Bytes::new(memory.mapping().clone(), 0, 4 * CHUNK);
        let mut storing = Storing::default();
        // The first two rounds, the copies that are timed among them.
        for number in 0..3 * FIRST as usize {
            let from: Vec<_> = (0..LEN).map(|at| (at * 7 + number) as u8).collect();
            storing.copy_in(&to, number, &from);
            let mut out = [MaybeUninit::uninit(); LEN];
            assert_eq!(*to.copy_out(number, &mut out), *from, "copy {number}");
        }
        assert!(storing.string > 0.0 && storing.pieces > 0.0);
    }

    #[test]
    fn the_faster_stores_are_taken() {
        let mut storing = Storing::default();
        learn(&mut storing, 200, 100);
        assert_eq!(storing.better, CopyMethod::Chunks);
        (0..3).for_each(|_| learn(&mut storing, 300, 900));
        assert_eq!(storing.better, CopyMethod::StringInstruction);
    }

    #[test]
    fn a_process_that_was_kept_away_has_not_copied_meanwhile() {
        let mut storing = Storing::default();
        (0..4).for_each(|_| learn(&mut storing, 200, 100));
        learn(&mut storing, 200, 5_000_000);
        (0..3).for_each(|_| learn(&mut storing, 200, 100));
        assert_eq!(storing.better, CopyMethod::Chunks);
    }
}
