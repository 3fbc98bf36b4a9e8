//! Random numbers from a seed. Tests print their seed, so that a run can be repeated.

use fastrand::Rng;

/// A random number generator.
#[derive(Clone, Debug)]
pub struct Random(Rng);

impl Random {
    /// A generator with this seed.
    pub fn new(seed: u64) -> Self {
        Self(Rng::with_seed(seed))
    }

    /// The next number.
    pub fn word(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// A number below `end`, which must not be 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0.u64(..end)
    }

    /// An index below `end`, which must not be 0.
    pub fn index(&mut self, end: usize) -> usize {
        self.0.usize(..end)
    }

    /// `len` bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.0.fill(&mut bytes);
        bytes
    }

    /// `true` with probability 1/2.
    pub fn flip(&mut self) -> bool {
        self.0.bool()
    }

    /// `true` with probability 1/`times`.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of `choices`, which must not be empty.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.0.usize(..choices.len())]
    }
}
