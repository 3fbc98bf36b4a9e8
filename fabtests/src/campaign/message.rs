//! Messages that say which life of which process they belong to, and whether they are whole.

use anyhow::ensure;
use selvedge_bench::fabric::pattern;
use serde::{Deserialize, Serialize};

/// Which message it is: the sender's life and the message's number in it. It is the tag, and the
/// first word of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Stamp {
    /// Counts the lives of one name.
    pub(crate) life: u32,
    /// Counts the messages of one life.
    pub(crate) number: u32,
}

impl Stamp {
    /// The message `number` of the life `life`.
    pub(crate) const fn new(life: u32, number: u32) -> Self {
        Self { life, number }
    }

    /// As a tag.
    pub(crate) const fn word(self) -> u64 {
        (self.life as u64) << 32 | self.number as u64
    }

    /// From a tag.
    pub(crate) const fn from_word(word: u64) -> Self {
        Self::new((word >> 32) as u32, word as u32)
    }
}

/// The smallest message: nothing but its stamp.
pub(crate) const SMALLEST: usize = 8;

/// The bytes of a message; `len` is at least [`SMALLEST`].
pub(crate) fn write(stamp: Stamp, len: usize) -> Box<[u8]> {
    let mut bytes = vec![0; len];
    let (head, rest) = bytes.split_at_mut(SMALLEST);
    head.copy_from_slice(&stamp.word().to_le_bytes());
    pattern::fill(rest, stamp.word());
    bytes.into()
}

/// Says which message it is.
///
/// # Errors
/// When it is not whole.
pub(crate) fn read(bytes: &[u8]) -> anyhow::Result<Stamp> {
    ensure!(
        bytes.len() >= SMALLEST,
        "a message of {} bytes",
        bytes.len()
    );
    let (head, rest) = bytes.split_at(SMALLEST);
    let word = head
        .iter()
        .rev()
        .fold(0, |word, &byte| word << 8 | u64::from(byte));
    pattern::check(rest, word)?;
    Ok(Stamp::from_word(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_says_its_stamp_unless_a_bit_of_it_is_wrong() {
        let stamp = Stamp::new(7, 11);
        for len in [8, 9, 16, 1000] {
            let mut bytes = write(stamp, len);
            assert_eq!(read(&bytes).unwrap(), stamp);
            bytes[len - 1] ^= 1;
            assert_ne!(read(&bytes).ok(), Some(stamp));
        }
    }
}
