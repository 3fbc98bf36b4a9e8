//! `Header`: the first 32 bytes of each frame.

/// The length of a header, in bytes.
pub(crate) const HEADER: usize = 32;

/// The flag of a frame that announces its payload, which follows in a message of its own.
const ANNOUNCED: u8 = 1;

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The first frame of a client.
    Hello,
    /// The server's consent to a `Hello`.
    Welcome,
    /// The server's refusal of a `Hello`. The payload is a [`super::Refusal`].
    Refuse,
    /// A message without a response.
    Message,
    /// A message for which the client expects a response.
    Request,
    /// The response to a request.
    Response,
    /// The response of a failed or cancelled request. The payload is a text.
    Failure,
    /// Nothing but credit.
    Credit,
    /// The client no longer expects the response.
    Cancel,
    /// The last frame of a connection. The payload is a text: the reason, or empty. `id` is the
    /// number of announced payloads that the side has sent: the receiver waits for them if there is
    /// no reason.
    Close,
}

const KINDS: [Kind; 10] = [
    Kind::Hello,
    Kind::Welcome,
    Kind::Refuse,
    Kind::Message,
    Kind::Request,
    Kind::Response,
    Kind::Failure,
    Kind::Credit,
    Kind::Cancel,
    Kind::Close,
];

impl Kind {
    /// Whether a frame of this kind uses credit. A response uses none: its request has made room
    /// for it, and it does not wait until the application takes messages.
    pub(crate) const fn uses_credit(self) -> bool {
        matches!(self, Self::Message | Self::Request)
    }

    /// Whether the payload of this kind may be announced.
    const fn may_be_announced(self) -> bool {
        matches!(
            self,
            Self::Message | Self::Request | Self::Response | Self::Failure
        )
    }

    /// The number on the wire: the kinds are numbered from 1, in the order of [`KINDS`].
    const fn number(self) -> u8 {
        (self as u8).wrapping_add(1)
    }

    fn parse(number: u8) -> Option<Self> {
        KINDS.get(usize::from(number).checked_sub(1)?).copied()
    }
}

/// Credit that a receiver returns to the sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Credit {
    /// A number of messages.
    pub(crate) messages: u16,
    /// The memory of announced messages, in blocks of 4096 bytes.
    pub(crate) blocks: u32,
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    /// Whether the payload follows in a message of its own.
    pub(crate) is_announced: bool,
    pub(crate) credit: Credit,
    /// The number of the request; 0 in frames that do not concern a request, except `Close`.
    pub(crate) id: u64,
    /// The length of the payload, in bytes.
    pub(crate) len: u64,
    /// The time until a request's deadline, in microseconds; 0 without a deadline, and in other
    /// frames.
    pub(crate) time: u64,
}

/// A frame or greeting that violates the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    #[error("a frame of {0} bytes has no complete header")]
    Short(usize),
    #[error("a frame has the unknown kind {0}")]
    Kind(u8),
    #[error("a frame has the unknown flags {0:#x}")]
    Flags(u8),
    #[error("a frame announces {0} bytes and has {1}")]
    Length(u64, usize),
    #[error("a greeting does not begin with the magic number")]
    Magic,
    #[error("a greeting of {0} bytes is too short")]
    Greeting(usize),
    #[error("a greeting has a window of no message")]
    Window,
}

impl Header {
    /// A header without payload and credit.
    pub(crate) const fn new(kind: Kind) -> Self {
        Self {
            kind,
            is_announced: false,
            credit: Credit {
                messages: 0,
                blocks: 0,
            },
            id: 0,
            len: 0,
            time: 0,
        }
    }

    /// Parses the header of a frame, and checks that the frame has the length that its header
    /// states.
    ///
    /// # Errors
    /// [`Malformed`] for any other bytes.
    pub(crate) fn parse(frame: &[u8]) -> Result<Self, Malformed> {
        let short = Malformed::Short(frame.len());
        let (header, payload) = frame.split_first_chunk::<HEADER>().ok_or(short)?;
        let [kind, flags, m0, m1, b0, b1, b2, b3, numbers @ ..] = *header;
        let (numbers, _) = numbers.as_chunks::<8>();
        let &[id, len, time] = numbers else {
            return Err(short);
        };
        let is_announced = match flags {
            0 => false,
            ANNOUNCED => true,
            flags => return Err(Malformed::Flags(flags)),
        };
        let header = Self {
            kind: Kind::parse(kind).ok_or(Malformed::Kind(kind))?,
            is_announced,
            credit: Credit {
                messages: u16::from_le_bytes([m0, m1]),
                blocks: u32::from_le_bytes([b0, b1, b2, b3]),
            },
            id: u64::from_le_bytes(id),
            len: u64::from_le_bytes(len),
            time: u64::from_le_bytes(time),
        };
        if is_announced && !header.kind.may_be_announced() {
            return Err(Malformed::Flags(flags));
        }
        let stated = if is_announced { 0 } else { header.len };
        if u64::try_from(payload.len()) != Ok(stated) {
            return Err(Malformed::Length(stated, payload.len()));
        }
        Ok(header)
    }

    /// The bytes of the header.
    pub(crate) fn encode(&self) -> [u8; HEADER] {
        let flags = if self.is_announced { ANNOUNCED } else { 0 };
        let [m0, m1] = self.credit.messages.to_le_bytes();
        let [b0, b1, b2, b3] = self.credit.blocks.to_le_bytes();
        let first = [self.kind.number(), flags, m0, m1, b0, b1, b2, b3];
        let words = [u64::from_le_bytes(first), self.id, self.len, self.time];
        let mut bytes = [0; HEADER];
        let (chunks, _) = bytes.as_chunks_mut::<8>();
        for (chunk, word) in chunks.iter_mut().zip(words) {
            *chunk = word.to_le_bytes();
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(kind: Kind, is_announced: bool, len: u64) -> Header {
        Header {
            kind,
            is_announced,
            credit: Credit {
                messages: 7,
                blocks: 0x0102_0304,
            },
            id: 0x1122_3344_5566_7788,
            len,
            time: 9,
        }
    }

    #[test]
    fn a_header_is_parsed_as_it_was_encoded() {
        for kind in KINDS {
            let header = header(kind, false, 3);
            let frame = [&header.encode()[..], b"abc"].concat();
            assert_eq!(Header::parse(&frame), Ok(header));
        }
        let announced = header(Kind::Request, true, 1 << 40);
        assert_eq!(Header::parse(&announced.encode()), Ok(announced));
    }

    #[test]
    fn frames_of_any_bytes_are_parsed_or_refused() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..100_000 {
            let mut frame = header(Kind::Message, false, 8).encode().to_vec();
            frame.extend([0; 8]);
            frame.truncate(random.usize(..frame.len()));
            for _ in 0..random.usize(..4) {
                let index = random.usize(..frame.len().max(1));
                if let Some(byte) = frame.get_mut(index) {
                    *byte = random.u8(..);
                }
            }
            if let Ok(header) = Header::parse(&frame) {
                assert_eq!(header.encode(), frame[..HEADER]);
            }
        }
    }

    #[test]
    fn a_frame_with_another_length_than_its_header_states_is_refused() {
        let header = header(Kind::Message, false, 3);
        let frame = [&header.encode()[..], b"abcd"].concat();
        assert_eq!(Header::parse(&frame), Err(Malformed::Length(3, 4)));
        let announced = Header {
            is_announced: true,
            kind: Kind::Close,
            ..header
        };
        assert_eq!(Header::parse(&announced.encode()), Err(Malformed::Flags(1)));
    }
}
