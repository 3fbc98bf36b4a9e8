//! The contents of messages with `-v`: the sender, the receiver, the sequence number, and bytes
//! that depend on these and on their offset.
//!
//! A message that is stale, duplicated, out of order, from another sender, shifted, or truncated at
//! a segment boundary is therefore detected. Receive buffers are filled with a poison value first
//! and have canaries at both ends.

use anyhow::ensure;
use selvedge_bench::fabric::pattern;
use selvedge_testkit::domain::Memory;
use selvedge_testkit::failure::wrong;

/// The value of a byte that was not written.
pub(in crate::upstream) const POISON: u8 = 0xa5;
/// The number of bytes on either side of a buffer that must stay unwritten.
pub(in crate::upstream) const CANARY: usize = 64;

/// The identity of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::upstream) struct Stamp {
    /// The sender's number.
    pub(in crate::upstream) from: u16,
    /// The receiver's number.
    pub(in crate::upstream) to: u16,
    /// The number of messages that the sender has sent before.
    pub(in crate::upstream) number: u64,
}

/// The first word of a message header, in messages that are long enough for one.
const MAGIC: u64 = 0x7376_6467_7465_7374;
/// Bytes of the header.
const HEADER: usize = 32;

impl Stamp {
    /// Returns the stamp of message `number` from the client to the server, or in the other
    /// direction.
    pub(in crate::upstream) fn of_pair(from_client: bool, number: u64) -> Self {
        let (from, to) = if from_client { (1, 0) } else { (0, 1) };
        Self { from, to, number }
    }

    /// Returns the bytes of the message.
    pub(in crate::upstream) fn message(self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let seed = self.seed() ^ (len as u64).rotate_left(17);
        if len < 2 * HEADER {
            pattern::fill(&mut bytes, seed);
            return bytes;
        }
        let (header, body) = bytes.split_at_mut(HEADER);
        for (word, bytes) in self.header(len).iter().zip(header.chunks_mut(8)) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        pattern::fill(body, seed);
        bytes
    }

    /// Writes the message into memory.
    pub(in crate::upstream) fn write(self, memory: &Memory, offset: usize, len: usize) {
        memory.put(offset, &self.message(len));
    }

    /// Checks that memory holds the message.
    ///
    /// # Errors
    /// The first difference, and the message that the memory holds instead, if its header is valid.
    pub(in crate::upstream) fn check(
        self,
        memory: &Memory,
        offset: usize,
        len: usize,
    ) -> anyhow::Result<()> {
        self.check_bytes(&memory.get(offset, len))
    }

    /// Checks that bytes are the message.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub(in crate::upstream) fn check_bytes(self, bytes: &[u8]) -> anyhow::Result<()> {
        let expected = self.message(bytes.len());
        if bytes == expected {
            return Ok(());
        }
        let offset = bytes
            .iter()
            .zip(&expected)
            .position(|(found, expected)| found != expected);
        let offset = offset.unwrap_or_default();
        let note = match Self::read(bytes) {
            Some((other, len)) => format!("; its header is of {other} with {len} bytes"),
            None if bytes.iter().all(|&byte| byte == POISON) => {
                "; the buffer was not written".into()
            }
            None => String::new(),
        };
        Err(wrong(format!(
            "{self} of {} bytes differs at byte {offset}: {:#04x}, expected {:#04x}{note}",
            bytes.len(),
            bytes[offset],
            expected[offset]
        )))
    }

    fn seed(self) -> u64 {
        let pair = u64::from(self.from) << 48 | u64::from(self.to) << 32;
        (self.number ^ pair).wrapping_mul(0xd6e8_feb8_6659_fd93)
    }

    fn header(self, len: usize) -> [u64; 4] {
        let pair = u64::from(self.from) << 16 | u64::from(self.to);
        [MAGIC, pair, self.number, len as u64]
    }

    /// Reads the stamp and the length from the header of a message.
    fn read(bytes: &[u8]) -> Option<(Self, u64)> {
        let mut words = bytes.get(..HEADER)?.chunks_exact(8);
        let mut word = || Some(u64::from_le_bytes(words.next()?.try_into().ok()?));
        let (magic, pair, number, len) = (word()?, word()?, word()?, word()?);
        let stamp = Self {
            from: (pair >> 16) as u16,
            to: pair as u16,
            number,
        };
        (magic == MAGIC).then_some((stamp, len))
    }
}

impl std::fmt::Display for Stamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { from, to, number } = self;
        write!(f, "message {number} from {from} to {to}")
    }
}

/// Fills a receive buffer and its canaries with the poison value.
pub(in crate::upstream) fn poison(memory: &Memory, offset: usize, len: usize) {
    memory.fill(offset - CANARY, len + 2 * CANARY, POISON);
}

/// Checks the bytes around a message of `len` bytes in a buffer of `capacity` bytes.
///
/// # Errors
/// The first byte that was written.
pub(in crate::upstream) fn check_around(
    memory: &Memory,
    offset: usize,
    len: usize,
    capacity: usize,
) -> anyhow::Result<()> {
    ensure!(
        len <= capacity,
        "the message of {len} bytes exceeds the buffer of {capacity}"
    );
    memory.check_fill(offset - CANARY, CANARY, POISON)?;
    memory.check_fill(offset + len, capacity - len + CANARY, POISON)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(number: u64) -> Stamp {
        Stamp {
            from: 3,
            to: 4,
            number,
        }
    }

    #[test]
    fn every_other_message_is_detected() {
        for len in [8, 31, 32, 63, 64, 65, 1000] {
            let message = stamp(7).message(len);
            stamp(7).check_bytes(&message).unwrap();
            assert!(stamp(8).check_bytes(&message).is_err());
            let other = Stamp {
                from: 4,
                to: 3,
                number: 7,
            };
            assert!(other.check_bytes(&message).is_err());
            for offset in [0, len / 2, len - 1] {
                let mut bad = message.clone();
                bad[offset] ^= 1;
                let error = stamp(7).check_bytes(&bad).unwrap_err().to_string();
                assert!(error.contains(&format!("byte {offset}:")), "{error}");
            }
        }
    }

    #[test]
    fn errors_identify_the_message_found() {
        let error = stamp(7).check_bytes(&stamp(6).message(100)).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("its header is of message 6 from 3 to 4")
        );
        let error = stamp(7).check_bytes(&[POISON; 10]).unwrap_err();
        assert!(error.to_string().contains("the buffer was not written"));
    }

    #[test]
    fn a_written_canary_is_detected() {
        let memory = Memory::private(0, 400).unwrap();
        let check_with_write = |offset: usize| {
            poison(&memory, 100, 200);
            memory.put(offset, &[1]);
            check_around(&memory, 100, 50, 200)
        };
        for offset in [100 - CANARY, 99, 150, 299, 299 + CANARY] {
            check_with_write(offset).unwrap_err();
        }
        check_with_write(100).unwrap();
        check_with_write(149).unwrap();
    }
}
