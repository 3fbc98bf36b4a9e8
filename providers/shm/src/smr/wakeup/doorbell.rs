//! `Doorbell` and `Bell`: a bitmap in shared memory that its owner reads and every peer may write.
//!
//! A set bit is a hint to poll the queue of one peer. A lost or forged bit costs time and nothing
//! else, because the owner also polls every queue at intervals. A peer sets its bit only while the
//! owner does not poll the peer's queue, so the fast path of a send accesses no word that other
//! processes write.
//!
//! # Examples
//!
//! ```
//! use selvedge_shm::smr::doorbell::{Bell, Doorbell};
//!
//! let (doorbell, memory) = Doorbell::create()?;
//! // In the peer, which has bit 3:
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

use crate::smr::memory::mapping::{Memory, Writers, map_peer_memory};
use crate::smr::sync::{Ordering, Words, order};

/// The number of bits of a doorbell. Peers beyond this number share bits.
pub const BITS: usize = SIZE * 8;

/// The size of a doorbell in bytes.
const SIZE: usize = 4096;

/// The owner's view of a doorbell.
#[derive(Debug)]
pub struct Doorbell {
    words: Words,
}

impl Doorbell {
    /// Creates a doorbell and the memory to send to peers.
    ///
    /// # Errors
    /// The system's error when memory is short.
    pub fn create() -> Result<(Self, Memory), Error> {
        let memory = Memory::create(SIZE, Writers::AnyProcess)?;
        memory.mapping().exclude_from_fork();
        let words = Words::new(memory.mapping().clone(), 0, SIZE / 8);
        Ok((Self::new(words), memory))
    }

    /// Creates a doorbell over zeroed words.
    pub(crate) fn new(words: Words) -> Self {
        Self { words }
    }

    /// Clears the first `bits` bits, and calls `poll` with the number of each bit that was set.
    pub fn drain(&self, bits: usize, mut poll: impl FnMut(usize)) {
        for index in 0..bits.min(BITS).div_ceil(64) {
            let word = self.words.word(index);
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut set = word.swap(0, order::observe());
            while set != 0 {
                poll(index * 64 + set.trailing_zeros() as usize);
                set &= set - 1;
            }
        }
    }
}

/// A peer's view of a doorbell: one bit of it.
#[derive(Debug)]
pub struct Bell {
    words: Words,
    bit: usize,
}

impl Bell {
    /// Maps the doorbell that a peer has sent. `number` selects the bit.
    ///
    /// # Errors
    /// [`selvedge::Errno::Proto`] when the descriptor is not a doorbell.
    pub fn attach(fd: OwnedFd, number: usize) -> Result<Self, Error> {
        let mapping = map_peer_memory(fd, SIZE, true)?;
        mapping.exclude_from_fork();
        Ok(Self::new(Words::new(mapping, 0, SIZE / 8), number))
    }

    /// Creates the view of bit `number`.
    pub(crate) fn new(words: Words, number: usize) -> Self {
        Self {
            words,
            bit: number % BITS,
        }
    }

    /// Sets the bit, unless it is set already.
    pub fn ring(&self) {
        let word = self.words.word(self.bit / 64);
        let bit = 1 << (self.bit % 64);
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, order::ring());
        }
    }
}
