//! The doorbell: a bitmap that its owner reads and every peer may write.
//!
//! A set bit says "look at that queue". It is a hint: a lost or forged bit costs time and nothing
//! else, because the owner also looks at every queue now and then. A peer rings only while the
//! owner says that it does not poll the peer's queue anyway, so that the usual send touches no word
//! that others write.
//!
//! # Examples
//!
//! ```
//! use selvedge_shm::smr::doorbell::{Bell, Doorbell};
//!
//! let (doorbell, memory) = Doorbell::create()?;
//! // In the peer, which has been told that its number is 3:
//! let fd = memory.fd().try_clone_to_owned().expect("a spare descriptor");
//! Bell::attach(fd, 3)?.ring();
//!
//! let mut rung = Vec::new();
//! doorbell.drain(64, |number| rung.push(number));
//! assert_eq!(rung, [3]);
//! # Ok::<(), selvedge::Error>(())
//! ```

use std::os::fd::OwnedFd;

use selvedge::Error;

use crate::smr::memory::mapping::{Memory, Writers, map_foreign};
use crate::smr::sync::{Ordering, Words, order};

/// Bits of a doorbell. Peers beyond this number share bits.
pub const BITS: usize = SIZE * 8;

/// Bytes of a doorbell.
const SIZE: usize = 4096;

/// The owner's end.
#[derive(Debug)]
pub struct Doorbell {
    words: Words,
}

impl Doorbell {
    /// Makes a doorbell and the memory to hand to peers.
    ///
    /// # Errors
    /// The system's, when memory is short.
    pub fn create() -> Result<(Self, Memory), Error> {
        let memory = Memory::create(SIZE, Writers::AnyProcess)?;
        memory.mapping().withhold();
        let words = Words::new(memory.mapping().clone(), 0, SIZE / 8);
        Ok((Self::new(words), memory))
    }

    /// A doorbell over zeroed words.
    pub(crate) fn new(words: Words) -> Self {
        Self { words }
    }

    /// Takes the news: calls `look` for every bit that was set among the first `bits`.
    pub fn drain(&self, bits: usize, mut look: impl FnMut(usize)) {
        for index in 0..bits.min(BITS).div_ceil(64) {
            let word = self.words.at(index);
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut set = word.swap(0, order::seen());
            while set != 0 {
                look(index * 64 + set.trailing_zeros() as usize);
                set &= set - 1;
            }
        }
    }
}

/// A peer's end: one bit.
#[derive(Debug)]
pub struct Bell {
    words: Words,
    bit: usize,
}

impl Bell {
    /// Maps the doorbell that a peer has handed over.
    ///
    /// # Errors
    /// [`selvedge::Errno::Proto`] when it is none.
    pub fn attach(fd: OwnedFd, number: usize) -> Result<Self, Error> {
        let mapping = map_foreign(fd, SIZE, true)?;
        mapping.withhold();
        Ok(Self::new(Words::new(mapping, 0, SIZE / 8), number))
    }

    /// The bell with number `number`.
    pub(crate) fn new(words: Words, number: usize) -> Self {
        Self {
            words,
            bit: number % BITS,
        }
    }

    /// Rings, unless the bit is still set from before.
    pub fn ring(&self) {
        let word = self.words.at(self.bit / 64);
        let bit = 1 << (self.bit % 64);
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, order::ring());
        }
    }
}
