//! Random numbers by a seed that is printed, so that a test can be run again.

use fastrand::Rng;

/// The sequence of a seed.
#[derive(Clone, Debug)]
pub struct Random(Rng);

impl Random {
    /// The sequence of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(Rng::with_seed(seed))
    }

    /// The next number.
    pub fn word(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0.u64(..end)
    }

    /// `true` or `false`, equally often.
    pub fn flip(&mut self) -> bool {
        self.0.bool()
    }

    /// True once in `times`.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of some choices, of which there is at least one.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.0.usize(..choices.len())]
    }
}
