//! Message contents that identify the message in every byte.

use anyhow::{anyhow, ensure};
use fastrand::Rng;

use crate::data::check;

/// The identity of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp {
    /// The sending process.
    pub from: u32,
    /// The receiving process.
    pub to: u32,
    /// The number of the message among the messages from the sending to the receiving process.
    pub number: u32,
}

/// The size of a stamp. A message of at least this length can be identified by [`read`].
pub const STAMPED: usize = 16;

/// Generates the bytes of a message.
pub fn write(seed: u64, stamp: Stamp, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let rest = match bytes.split_at_mut_checked(STAMPED) {
        Some((head, rest)) => {
            let words = [stamp.from, stamp.to, stamp.number, MAGIC];
            for (dest, word) in head.chunks_exact_mut(4).zip(words) {
                dest.copy_from_slice(&word.to_le_bytes());
            }
            rest
        }
        None => &mut bytes[..],
    };
    Rng::with_seed(message_seed(seed, stamp, len)).fill(rest);
    bytes
}

/// Identifies the message with these bytes, and verifies it.
///
/// # Errors
/// When the bytes are not a message, or a byte is wrong.
pub fn read(seed: u64, bytes: &[u8]) -> anyhow::Result<Stamp> {
    let stamp = stamp(bytes).ok_or_else(|| anyhow!("{} bytes are not a message", bytes.len()))?;
    verify(seed, stamp, bytes)?;
    Ok(stamp)
}

/// Verifies that these bytes are the message `expected`.
///
/// # Errors
/// The first wrong byte, or the identity of another message.
pub fn verify(seed: u64, expected: Stamp, bytes: &[u8]) -> anyhow::Result<()> {
    check::count(bytes.len());
    let whole = write(seed, expected, bytes.len());
    let Some(index) = whole.iter().zip(bytes).position(|(a, b)| a != b) else {
        return Ok(());
    };
    if let Some(other) = stamp(bytes) {
        ensure!(
            other == expected,
            "{other:?} arrived in place of {expected:?}"
        );
    }
    Err(anyhow!(
        "{expected:?} of {} bytes is wrong at byte {index}: {:02x} instead of {:02x}",
        bytes.len(),
        bytes[index],
        whole[index]
    ))
}

fn stamp(bytes: &[u8]) -> Option<Stamp> {
    let (head, _) = bytes.split_at_checked(STAMPED)?;
    let mut words = head.chunks_exact(4).map(|word| {
        word.iter()
            .rev()
            .fold(0, |sum, &byte| sum << 8 | u32::from(byte))
    });
    let (from, to, number) = (words.next()?, words.next()?, words.next()?);
    (words.next()? == MAGIC).then_some(Stamp { from, to, number })
}

/// The seed of the bytes of one message.
fn message_seed(seed: u64, stamp: Stamp, len: usize) -> u64 {
    let Stamp { from, to, number } = stamp;
    [
        u64::from(from),
        u64::from(to),
        u64::from(number),
        len as u64,
    ]
    .iter()
    .fold(seed, |message_seed, word| {
        (message_seed ^ word)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29)
    })
}

/// The last word of a stamp.
const MAGIC: u32 = 0x5e17_ed9e;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_differs_from_other_messages_and_damage_is_detected() {
        let stamp = Stamp {
            from: 1,
            to: 0,
            number: 9,
        };
        let other = Stamp { number: 8, ..stamp };
        for len in [1, 15, 16, 17, 100] {
            let mut bytes = write(7, stamp, len);
            verify(7, stamp, &bytes).unwrap();
            assert!(verify(7, other, &bytes).is_err());
            assert!(verify(8, stamp, &bytes).is_err() || len == STAMPED);
            assert_eq!(read(7, &bytes).ok(), (len >= STAMPED).then_some(stamp));
            bytes[len - 1] ^= 1;
            assert!(verify(7, stamp, &bytes).is_err());
        }
    }
}
