//! What messages contain under `-v`: who sent it to whom, the how manieth it is, and bytes that
//! depend on all of that and on their place.
//!
//! A message that is stale, twice there, out of order, of another sender, shifted, or cut at a
//! piece's end differs. Receive buffers are poisoned before, and have canaries at both ends.

use anyhow::ensure;
use selvedge_bench::fabric::pattern;
use selvedge_testkit::domain::Memory;
use selvedge_testkit::failure::wrong;

/// What no message consists of.
pub(super) const POISON: u8 = 0xa5;
/// Bytes on either side of a buffer that nobody may write.
pub(super) const CANARY: usize = 64;

/// Which message it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    /// The sender's number.
    pub(super) from: u16,
    /// The receiver's.
    pub(super) to: u16,
    /// How many messages the sender has sent before.
    pub(super) number: u64,
}

/// Where a head begins, if there is room for one.
const MAGIC: u64 = 0x7376_6467_7465_7374;
const HEAD: usize = 32;

impl Stamp {
    /// Message `number` of the client to the server, or the other way round.
    pub(super) fn of_pair(from_client: bool, number: u64) -> Self {
        let (from, to) = match from_client {
            true => (1, 0),
            false => (0, 1),
        };
        Self { from, to, number }
    }

    /// The message.
    pub(super) fn message(self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let seed = self.seed() ^ (len as u64).rotate_left(17);
        if len < 2 * HEAD {
            pattern::fill(&mut bytes, seed);
            return bytes;
        }
        let (head, body) = bytes.split_at_mut(HEAD);
        for (word, bytes) in self.head(len).iter().zip(head.chunks_mut(8)) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        pattern::fill(body, seed);
        bytes
    }

    /// Writes the message into memory.
    pub(super) fn write(self, memory: &Memory, at: usize, len: usize) {
        memory.put(at, &self.message(len));
    }

    /// Checks that memory holds the message.
    ///
    /// # Errors
    /// What is there instead, as far as it can be told.
    pub(super) fn check(self, memory: &Memory, at: usize, len: usize) -> anyhow::Result<()> {
        self.check_bytes(&memory.get(at, len))
    }

    /// Checks some bytes.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub(super) fn check_bytes(self, bytes: &[u8]) -> anyhow::Result<()> {
        let expected = self.message(bytes.len());
        if bytes == expected {
            return Ok(());
        }
        let place = bytes
            .iter()
            .zip(&expected)
            .position(|(has, wants)| has != wants);
        let place = place.unwrap_or_default();
        let instead = match Self::read(bytes) {
            Some((other, len)) => format!("; it begins as {other} of {len} bytes"),
            None if bytes.iter().all(|&byte| byte == POISON) => "; nothing was written".into(),
            None => String::new(),
        };
        Err(wrong(format!(
            "{self} of {} bytes is wrong at byte {place}: {:#04x}, expected {:#04x}{instead}",
            bytes.len(),
            bytes[place],
            expected[place]
        )))
    }

    fn seed(self) -> u64 {
        let ends = u64::from(self.from) << 48 | u64::from(self.to) << 32;
        (self.number ^ ends).wrapping_mul(0xd6e8_feb8_6659_fd93)
    }

    fn head(self, len: usize) -> [u64; 4] {
        let ends = u64::from(self.from) << 16 | u64::from(self.to);
        [MAGIC, ends, self.number, len as u64]
    }

    /// Which message bytes say they are.
    fn read(bytes: &[u8]) -> Option<(Self, u64)> {
        let mut words = bytes.get(..HEAD)?.chunks_exact(8);
        let mut word = || Some(u64::from_le_bytes(words.next()?.try_into().ok()?));
        let (magic, ends, number, len) = (word()?, word()?, word()?, word()?);
        let stamp = Self {
            from: (ends >> 16) as u16,
            to: ends as u16,
            number,
        };
        (magic == MAGIC).then_some((stamp, len))
    }
}

impl std::fmt::Display for Stamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { from, to, number } = self;
        write!(f, "message {number} of {from} to {to}")
    }
}

/// Poisons a receive buffer, with its canaries.
pub(super) fn poison(memory: &Memory, at: usize, len: usize) {
    memory.fill(at - CANARY, len + 2 * CANARY, POISON);
}

/// Checks what lies around a message of `len` bytes in a buffer of `room`.
///
/// # Errors
/// The first byte that was written.
pub(super) fn check_around(
    memory: &Memory,
    at: usize,
    len: usize,
    room: usize,
) -> anyhow::Result<()> {
    ensure!(len <= room, "{len} bytes in a buffer of {room}");
    memory.check_fill(at - CANARY, CANARY, POISON)?;
    memory.check_fill(at + len, room - len + CANARY, POISON)
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
    fn every_other_message_is_noticed_whatever_its_size() {
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
            for at in [0, len / 2, len - 1] {
                let mut bad = message.clone();
                bad[at] ^= 1;
                let error = stamp(7).check_bytes(&bad).unwrap_err().to_string();
                assert!(error.contains(&format!("byte {at}:")), "{error}");
            }
        }
    }

    #[test]
    fn what_is_there_instead_is_said() {
        let error = stamp(7).check_bytes(&stamp(6).message(100)).unwrap_err();
        assert!(error.to_string().contains("begins as message 6 of 3 to 4"));
        let error = stamp(7).check_bytes(&[POISON; 10]).unwrap_err();
        assert!(error.to_string().contains("nothing was written"));
    }

    #[test]
    fn a_byte_beside_a_buffer_is_noticed() {
        let memory = Memory::private(0, 400).unwrap();
        let around = |at: usize| {
            poison(&memory, 100, 200);
            memory.put(at, &[1]);
            check_around(&memory, 100, 50, 200)
        };
        for at in [100 - CANARY, 99, 150, 299, 299 + CANARY] {
            around(at).unwrap_err();
        }
        around(100).unwrap();
        around(149).unwrap();
    }
}
