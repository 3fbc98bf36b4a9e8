//! Random numbers by a seed that is printed, so that a campaign can be run again.

use fastrand::Rng;

/// A sequence of random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Random(Rng);

impl Random {
    /// The sequence of `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        Self(Rng::with_seed(seed))
    }

    /// The next number.
    pub(crate) fn word(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// A number below `end`, which is not 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0.u64(..end)
    }

    /// Heads or tails.
    pub(crate) fn flip(&mut self) -> bool {
        self.0.bool()
    }

    /// True once in `times`.
    pub(crate) fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of them.
    pub(crate) fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.0.usize(..choices.len())]
    }
}
