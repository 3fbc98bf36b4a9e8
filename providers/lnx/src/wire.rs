//! Frames, which endpoints exchange over their links: a header and a payload.
//!
//! ```text
//!   0  kind    8  sender   16 tag   24 data   32 len   40 number      all little-endian
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

/// The length of a header in bytes.
pub(crate) const HEADER: usize = 48;
/// Payloads up to this size travel with their header.
pub(crate) const EAGER: usize = 4096;
/// The largest length of a frame in bytes. The bytes of a large message are not in a frame.
pub(crate) const FRAME: usize = HEADER + EAGER;

/// The kinds of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum FrameKind {
    /// The payload is the sender's name.
    Hello = 1,
    /// A message with its bytes.
    Msg = 2,
    Tagged = 3,
    /// A message without its bytes, which the sender sends after a `ClearToSend` with this
    /// `number`.
    LargeMsg = 4,
    LargeTagged = 5,
    /// The sender of message `number` is to send its bytes with the link's tag `tag`.
    ClearToSend = 6,
    /// The receiver has received message `number`, or discarded a large one.
    Ack = 7,
    /// No content: the sender finds out whether the link reaches the receiver.
    Probe = 8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: FrameKind,
    /// Whether `data` is valid.
    pub(crate) has_data: bool,
    /// Whether the receiver must acknowledge the message, by `number`.
    pub(crate) wants_ack: bool,
    /// The sender's incarnation.
    pub(crate) sender: u64,
    pub(crate) tag: u64,
    pub(crate) data: u64,
    pub(crate) len: usize,
    pub(crate) number: u64,
}

impl Header {
    pub(crate) const fn new(kind: FrameKind, sender: u64) -> Self {
        Self {
            kind,
            has_data: false,
            wants_ack: false,
            sender,
            tag: 0,
            data: 0,
            len: 0,
            number: 0,
        }
    }

    pub(crate) fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[0] = self.kind as u8;
        bytes[1] = u8::from(self.has_data) | u8::from(self.wants_ack) << 1;
        let words = [
            self.sender,
            self.tag,
            self.data,
            self.len as u64,
            self.number,
        ];
        for (slot, word) in bytes[8..].chunks_exact_mut(8).zip(words) {
            slot.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The header and the payload; `None` for an invalid frame.
    pub(crate) fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (header, payload) = bytes.split_first_chunk::<HEADER>()?;
        let kind = match header[0] {
            1 => FrameKind::Hello,
            2 => FrameKind::Msg,
            3 => FrameKind::Tagged,
            4 => FrameKind::LargeMsg,
            5 => FrameKind::LargeTagged,
            6 => FrameKind::ClearToSend,
            7 => FrameKind::Ack,
            8 => FrameKind::Probe,
            _ => return None,
        };
        let words = header[8..].chunks_exact(8);
        let mut words =
            words.filter_map(|word| word.first_chunk().copied().map(u64::from_le_bytes));
        let mut word = || words.next().unwrap_or(0);
        let header = Self {
            kind,
            has_data: header[1] & 1 != 0,
            wants_ack: header[1] & 2 != 0,
            sender: word(),
            tag: word(),
            data: word(),
            len: usize::try_from(word()).ok()?,
            number: word(),
        };
        let has_bytes = matches!(kind, FrameKind::Hello | FrameKind::Msg | FrameKind::Tagged);
        let is_valid = if has_bytes {
            payload.len() == header.len
        } else {
            payload.is_empty() && header.len <= isize::MAX as usize
        };
        is_valid.then_some((header, payload))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use selvedge_testkit::fuzz::fuzz;

    use super::*;

    #[test]
    fn a_frame_of_any_bytes_is_parsed_or_rejected() {
        let corpus = include_str!("../corpus/frames.txt");
        fuzz("lnx frames", corpus, |input| {
            let (header, payload) = Header::parse(input)?;
            let encoded = [&header.encode()[..], payload].concat();
            assert_eq!(Header::parse(&encoded), Some((header, payload)));
            Some((header.kind as u8, header.has_data, header.wants_ack))
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
            ..Header::new(FrameKind::Tagged, 1)
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
            if let Some((header, payload)) = Header::parse(&bytes) {
                prop_assert_eq!(payload.len(), bytes.len() - HEADER);
                let encoded = header.encode();
                prop_assert_eq!(encoded[0], bytes[0]);
            }
        }
    }
}
