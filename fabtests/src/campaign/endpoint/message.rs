//! Messages that begin with a [`Stamp`], and whose bytes show whether they are intact.

use anyhow::ensure;
use selvedge_bench::fabric::pattern;
use serde::{Deserialize, Serialize};

/// A `Stamp` identifies a message by the sender's incarnation and the message's number in that
/// incarnation. It is the message's tag and first word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Stamp {
    /// Counts the incarnations of one name.
    pub(crate) incarnation: u32,
    /// Counts the messages of one incarnation.
    pub(crate) number: u32,
}

impl Stamp {
    /// Returns the stamp of message `number` of an incarnation.
    pub(crate) const fn new(incarnation: u32, number: u32) -> Self {
        Self {
            incarnation,
            number,
        }
    }

    /// The stamp as a tag.
    pub(crate) const fn word(self) -> u64 {
        (self.incarnation as u64) << 32 | self.number as u64
    }

    /// The stamp of a tag.
    pub(crate) const fn from_word(word: u64) -> Self {
        Self::new((word >> 32) as u32, word as u32)
    }
}

/// Bytes of the smallest message, which consists of its stamp.
pub(crate) const SMALLEST: usize = 8;

/// Returns the `len` bytes of a message; `len` is at least [`SMALLEST`].
pub(crate) fn write(stamp: Stamp, len: usize) -> Box<[u8]> {
    let mut bytes = vec![0; len];
    let (head, rest) = bytes.split_at_mut(SMALLEST);
    head.copy_from_slice(&stamp.word().to_le_bytes());
    pattern::fill(rest, stamp.word());
    bytes.into()
}

/// Returns the stamp of a message.
///
/// # Errors
/// When the message is not intact.
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
    fn a_message_with_a_flipped_bit_does_not_have_its_stamp() {
        let stamp = Stamp::new(7, 11);
        for len in [8, 9, 16, 1000] {
            let mut bytes = write(stamp, len);
            assert_eq!(read(&bytes).unwrap(), stamp);
            bytes[len - 1] ^= 1;
            assert_ne!(read(&bytes).ok(), Some(stamp));
        }
    }
}
