//! What endpoints say to each other over their links: a header, and behind it bytes.
//!
//! ```text
//!   0  what    8  sender   16 tag   24 data   32 len   40 number      all little-endian
//!   1  flags
//! ```

#![cfg_attr(
    not(test),
    deny(
        clippy::arithmetic_side_effects,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unreachable
    )
)]

/// Bytes of a header.
pub(crate) const HEADER: usize = 48;
/// Payloads up to this size travel with their header.
pub(crate) const EAGER: usize = 4096;
/// Bytes of a message of a link, but for the bytes of large messages.
pub(crate) const FRAME: usize = HEADER + EAGER;

/// What a header begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum What {
    /// The sender's name follows.
    Hello = 1,
    /// A message, whole.
    Msg = 2,
    Tagged = 3,
    /// A message whose bytes come when they are asked for by `number`.
    LargeMsg = 4,
    LargeTagged = 5,
    /// The bytes of `number` are to come under `tag`.
    Clear = 6,
    /// The message `number` has been received; for a large one: nobody wants its bytes.
    Done = 7,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) what: What,
    /// `data` means something.
    pub(crate) has_data: bool,
    /// The sender wants to know when it is received, under `number`.
    pub(crate) wants_answer: bool,
    /// The sender's life.
    pub(crate) sender: u64,
    pub(crate) tag: u64,
    pub(crate) data: u64,
    pub(crate) len: usize,
    pub(crate) number: u64,
}

impl Header {
    pub(crate) const fn new(what: What, sender: u64) -> Self {
        Self {
            what,
            has_data: false,
            wants_answer: false,
            sender,
            tag: 0,
            data: 0,
            len: 0,
            number: 0,
        }
    }

    pub(crate) fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[0] = self.what as u8;
        bytes[1] = u8::from(self.has_data) | u8::from(self.wants_answer) << 1;
        let words = [
            self.sender,
            self.tag,
            self.data,
            self.len as u64,
            self.number,
        ];
        for (place, word) in bytes[8..].chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The header, and what is behind it; nothing if no endpoint says such a thing.
    pub(crate) fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (header, rest) = bytes.split_first_chunk::<HEADER>()?;
        let what = match header[0] {
            1 => What::Hello,
            2 => What::Msg,
            3 => What::Tagged,
            4 => What::LargeMsg,
            5 => What::LargeTagged,
            6 => What::Clear,
            7 => What::Done,
            _ => return None,
        };
        let words = header[8..].chunks_exact(8);
        let mut words =
            words.filter_map(|word| word.first_chunk().copied().map(u64::from_le_bytes));
        let mut word = || words.next().unwrap_or(0);
        let header = Self {
            what,
            has_data: header[1] & 1 != 0,
            wants_answer: header[1] & 2 != 0,
            sender: word(),
            tag: word(),
            data: word(),
            len: usize::try_from(word()).ok()?,
            number: word(),
        };
        let has_bytes = matches!(what, What::Hello | What::Msg | What::Tagged);
        let is_right = match has_bytes {
            true => rest.len() == header.len,
            false => rest.is_empty() && header.len <= isize::MAX as usize,
        };
        is_right.then_some((header, rest))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use selvedge_testkit::fuzz::fuzz;

    use super::*;

    #[test]
    fn frames_of_any_bytes_are_read_or_refused() {
        let corpus = include_str!("../corpus/frames.txt");
        fuzz("lnx frames", corpus, |input| {
            let (header, rest) = Header::parse(input)?;
            let again = [&header.encode()[..], rest].concat();
            assert_eq!(Header::parse(&again), Some((header, rest)));
            Some((header.what as u8, header.has_data, header.wants_answer))
        });
    }

    #[test]
    fn headers_are_read_as_they_are_written() {
        let header = Header {
            has_data: true,
            tag: 2,
            data: 3,
            len: 4,
            number: u64::MAX,
            ..Header::new(What::Tagged, 1)
        };
        let mut bytes = header.encode().to_vec();
        bytes.extend([9; 4]);
        assert_eq!(Header::parse(&bytes), Some((header, &[9; 4][..])));
        assert_eq!(Header::parse(&bytes[..HEADER + 3]), None);
        assert_eq!(Header::parse(&bytes[..HEADER - 1]), None);
        bytes[0] = 8;
        assert_eq!(Header::parse(&bytes), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_header_or_none(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            if let Some((header, rest)) = Header::parse(&bytes) {
                prop_assert_eq!(rest.len(), bytes.len() - HEADER);
                let again = header.encode();
                prop_assert_eq!(again[0], bytes[0]);
            }
        }
    }
}
