//! Wire format: messages between contexts are tagged messages of the fabric.
//!
//! The tag has the kind in its lowest byte and a number of 32 bits in its upper half. The message
//! has up to five words in little-endian order, followed by bytes. The payload of an invocation has
//! no words before it: it begins at the beginning of its buffer, which is aligned.
//!
//! Bulk data is sent to a posted receive, with a tag that no message has.

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

use selvedge::TagMatch;

use crate::bell::BellName;

/// Alignment of payloads in bytes.
pub(crate) const ALIGNMENT: usize = 16;
/// Longest head in bytes.
pub(crate) const HEAD_MAX: usize = 40;
/// Maximum number of handlers: their numbers are in the tag.
pub(crate) const CHANNELS: u32 = 1 << 24;

/// The target of an invocation: a function, or a handler and a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Port {
    /// A registered function.
    Function(u32),
    /// The matching handler with the number `channel`, and the tag of the message.
    Channel {
        /// The number of the handler, in the order of construction.
        channel: u32,
        /// The sender's tag.
        tag: i32,
    },
}

/// Memory of the sender that the receiver may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) addr: u64,
    pub(crate) key: u64,
    pub(crate) len: u64,
}

/// A message without its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WireMessage {
    /// Invoke the port with the bytes that follow.
    Invoke { port: Port },
    /// Invoke the port with bytes that must be fetched; the response is `Done`.
    InvokeFetch {
        port: Port,
        source: Source,
        token: u64,
    },
    /// Copy the bytes that follow; `PutFailed` returns `local`.
    Put {
        to: u64,
        bell: BellName,
        local: BellName,
    },
    /// Check the range and post a receive; the response is `Writable` or `Failed`.
    PutRequest {
        to: u64,
        len: u64,
        token: u64,
        bell: BellName,
    },
    /// Response: the receive is posted.
    Writable { token: u64 },
    /// Check the range and send the bytes if they are few; the response is `Bytes`, `Readable` or
    /// `Failed`.
    Get {
        from: u64,
        len: u64,
        token: u64,
        bell: BellName,
    },
    /// Response: the requested bytes follow.
    Bytes { token: u64 },
    /// Response: the requested bytes are readable.
    Readable { token: u64 },
    /// The operation `token` is complete.
    Done { token: u64 },
    /// The operation `token` has failed.
    Failed { token: u64, at_source: bool },
    /// A put without a token has failed.
    PutFailed { to: u64, len: u64, local: BellName },
    /// An invocation names an unregistered function.
    NoFunction { id: u32, registered: u32 },
    /// Ring the bell.
    Ring { bell: BellName },
    /// Announces memory that can be written directly, with its key.
    Special {
        start: u64,
        len: u64,
        key: u64,
        base: u64,
    },
    /// Withdraws announced memory.
    Withdrawn { start: u64 },
    /// The round of a barrier, and the digest of the registered names.
    Barrier {
        round: u32,
        epoch: u64,
        registered: u64,
    },
    /// Requests the number of entered barriers.
    StatusRequest { token: u64 },
    /// Response: the number of entered barriers.
    StatusResponse { token: u64, entered: u64 },
    /// The names of registered functions and handlers follow, as text.
    Names,
    /// This context has failed; text follows.
    PeerFailed { context: u32 },
    /// The whole run has failed; the reason follows as text.
    Broken,
    /// Confirm with `Done` when all earlier messages have been handled.
    Flush { token: u64 },
    /// No further messages follow; the end of the sender is not a failure.
    Close,
    /// Connects the sender.
    Hello,
}

/// The encoded head of a message: its tag and words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) tag: u64,
    bytes: [u8; HEAD_MAX],
    len: usize,
}

#[expect(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    reason = "the head is encoded locally, with a valid length"
)]
impl Head {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn write<const N: usize>(tag: u64, words: [u64; N]) -> Self {
        let mut bytes = [0; HEAD_MAX];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        let len = 8 * N;
        Self { tag, bytes, len }
    }
}

/// Bit in the tags of bulk data, beyond the kinds of all messages.
pub(crate) const BULK: u64 = 0x80;

/// A match for every message and no bulk data.
pub(crate) const MESSAGES: TagMatch = TagMatch {
    tag: 0,
    ignore: !BULK,
};

/// The tag of the bulk data of a put.
pub(crate) const fn bulk_tag(token: u64) -> u64 {
    BULK | token << 8
}

#[inline]
const fn tag(kind: u8, number: u32) -> u64 {
    kind as u64 | (number as u64) << 32
}

/// The tag of [`WireMessage::Invoke`], whose message is the payload.
#[inline]
pub(crate) const fn invocation_tag(port: Port) -> u64 {
    port_tag(port, FUNCTION, CHANNEL)
}

#[inline]
const fn port_tag(port: Port, function: u8, of_channel: u8) -> u64 {
    match port {
        Port::Function(id) => tag(function, id),
        Port::Channel {
            channel,
            tag: number,
        } => tag(of_channel, number.cast_unsigned()) | (channel as u64) << 8,
    }
}

const FUNCTION: u8 = 1;
const CHANNEL: u8 = 2;
const FUNCTION_FETCH: u8 = 3;
const CHANNEL_FETCH: u8 = 4;
const PUT: u8 = 5;
const PUT_REQUEST: u8 = 6;
const GET: u8 = 7;
const BYTES: u8 = 8;
const READABLE: u8 = 9;
const DONE: u8 = 10;
const FAILED: u8 = 11;
const PUT_FAILED: u8 = 12;
const NO_FUNCTION: u8 = 13;
const RING: u8 = 14;
const SPECIAL: u8 = 15;
const WITHDRAWN: u8 = 16;
const BARRIER: u8 = 17;
const STATUS_REQUEST: u8 = 18;
const STATUS_RESPONSE: u8 = 19;
const NAMES: u8 = 20;
const PEER_FAILED: u8 = 21;
const BROKEN: u8 = 22;
const FLUSH: u8 = 23;
const CLOSE: u8 = 24;
const HELLO: u8 = 25;
const WRITABLE: u8 = 26;

const _: () = assert!((WRITABLE as u64) < BULK);

impl WireMessage {
    /// Encodes the head; [`parse`] decodes it.
    pub(crate) fn head(&self) -> Head {
        match *self {
            Self::Invoke { port } => Head::write(invocation_tag(port), []),
            Self::InvokeFetch {
                port,
                source: Source { addr, key, len },
                token,
            } => Head::write(
                port_tag(port, FUNCTION_FETCH, CHANNEL_FETCH),
                [addr, key, len, token],
            ),
            Self::Put { to, bell, local } => {
                Head::write(tag(PUT, 0), [to, bell.word(), local.word()])
            }
            Self::PutRequest {
                to,
                len,
                token,
                bell,
            } => Head::write(tag(PUT_REQUEST, 0), [to, len, token, bell.word()]),
            Self::Writable { token } => Head::write(tag(WRITABLE, 0), [token]),
            Self::Get {
                from,
                len,
                token,
                bell,
            } => Head::write(tag(GET, 0), [from, len, token, bell.word()]),
            Self::Bytes { token } => Head::write(tag(BYTES, 0), [token]),
            Self::Readable { token } => Head::write(tag(READABLE, 0), [token]),
            Self::Done { token } => Head::write(tag(DONE, 0), [token]),
            Self::Failed { token, at_source } => {
                Head::write(tag(FAILED, at_source.into()), [token])
            }
            Self::PutFailed { to, len, local } => {
                Head::write(tag(PUT_FAILED, 0), [to, len, local.word()])
            }
            Self::NoFunction { id, registered } => {
                Head::write(tag(NO_FUNCTION, id), [registered.into()])
            }
            Self::Ring { bell } => Head::write(tag(RING, 0), [bell.word()]),
            Self::Special {
                start,
                len,
                key,
                base,
            } => Head::write(tag(SPECIAL, 0), [start, len, key, base]),
            Self::Withdrawn { start } => Head::write(tag(WITHDRAWN, 0), [start]),
            Self::Barrier {
                round,
                epoch,
                registered,
            } => Head::write(tag(BARRIER, round), [epoch, registered]),
            Self::StatusRequest { token } => Head::write(tag(STATUS_REQUEST, 0), [token]),
            Self::StatusResponse { token, entered } => {
                Head::write(tag(STATUS_RESPONSE, 0), [token, entered])
            }
            Self::Names => Head::write(tag(NAMES, 0), []),
            Self::PeerFailed { context } => Head::write(tag(PEER_FAILED, context), []),
            Self::Broken => Head::write(tag(BROKEN, 0), []),
            Self::Flush { token } => Head::write(tag(FLUSH, 0), [token]),
            Self::Close => Head::write(tag(CLOSE, 0), []),
            Self::Hello => Head::write(tag(HELLO, 0), []),
        }
    }
}

/// The port of an invocation; `None` for other messages.
#[inline]
pub(crate) const fn port_of_invocation(tag: u64) -> Option<Port> {
    port(tag, FUNCTION, CHANNEL)
}

#[inline]
const fn port(tag: u64, function: u8, of_channel: u8) -> Option<Port> {
    let (kind, number) = (tag as u8, (tag >> 32) as u32);
    if kind == function {
        return Some(Port::Function(number));
    }
    if kind == of_channel {
        return Some(Port::Channel {
            channel: (tag >> 8) as u32 & (CHANNELS - 1),
            tag: number.cast_signed(),
        });
    }
    None
}

/// Decodes a message that was encoded with [`WireMessage::head`]: the head, and the bytes behind
/// it. `None` for an invalid message.
pub(crate) fn parse(tag: u64, message: &[u8]) -> Option<(WireMessage, &[u8])> {
    let mut words = Words(message);
    let parsed = parse_head(tag, &mut words)?;
    let has_payload = matches!(
        parsed,
        WireMessage::Invoke { .. }
            | WireMessage::Put { .. }
            | WireMessage::Bytes { .. }
            | WireMessage::Names
            | WireMessage::PeerFailed { .. }
            | WireMessage::Broken
    );
    (has_payload || words.0.is_empty()).then_some((parsed, words.0))
}

fn parse_head(tag: u64, words: &mut Words<'_>) -> Option<WireMessage> {
    if let Some(port) = port_of_invocation(tag) {
        return Some(WireMessage::Invoke { port });
    }
    if let Some(port) = port(tag, FUNCTION_FETCH, CHANNEL_FETCH) {
        return Some(WireMessage::InvokeFetch {
            port,
            source: words.source()?,
            token: words.next()?,
        });
    }
    let number = (tag >> 32) as u32;
    Some(match tag as u8 {
        PUT => WireMessage::Put {
            to: words.next()?,
            bell: words.bell()?,
            local: words.bell()?,
        },
        PUT_REQUEST => WireMessage::PutRequest {
            to: words.next()?,
            len: words.next()?,
            token: words.next()?,
            bell: words.bell()?,
        },
        WRITABLE => WireMessage::Writable {
            token: words.next()?,
        },
        GET => WireMessage::Get {
            from: words.next()?,
            len: words.next()?,
            token: words.next()?,
            bell: words.bell()?,
        },
        BYTES => WireMessage::Bytes {
            token: words.next()?,
        },
        READABLE => WireMessage::Readable {
            token: words.next()?,
        },
        DONE => WireMessage::Done {
            token: words.next()?,
        },
        FAILED => WireMessage::Failed {
            token: words.next()?,
            at_source: number != 0,
        },
        PUT_FAILED => WireMessage::PutFailed {
            to: words.next()?,
            len: words.next()?,
            local: words.bell()?,
        },
        NO_FUNCTION => WireMessage::NoFunction {
            id: number,
            registered: words.next()? as u32,
        },
        RING => WireMessage::Ring {
            bell: words.bell()?,
        },
        SPECIAL => WireMessage::Special {
            start: words.next()?,
            len: words.next()?,
            key: words.next()?,
            base: words.next()?,
        },
        WITHDRAWN => WireMessage::Withdrawn {
            start: words.next()?,
        },
        BARRIER => WireMessage::Barrier {
            round: number,
            epoch: words.next()?,
            registered: words.next()?,
        },
        STATUS_REQUEST => WireMessage::StatusRequest {
            token: words.next()?,
        },
        STATUS_RESPONSE => WireMessage::StatusResponse {
            token: words.next()?,
            entered: words.next()?,
        },
        NAMES => WireMessage::Names,
        PEER_FAILED => WireMessage::PeerFailed { context: number },
        BROKEN => WireMessage::Broken,
        FLUSH => WireMessage::Flush {
            token: words.next()?,
        },
        CLOSE => WireMessage::Close,
        HELLO => WireMessage::Hello,
        _ => return None,
    })
}

/// The undecoded rest of a message.
struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn next(&mut self) -> Option<u64> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*word))
    }

    fn bell(&mut self) -> Option<BellName> {
        self.next().map(BellName::from_word)
    }

    fn source(&mut self) -> Option<Source> {
        Some(Source {
            addr: self.next()?,
            key: self.next()?,
            len: self.next()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use selvedge_testkit::fuzz::fuzz;

    use super::*;

    /// The first eight bytes of an input are the tag.
    #[test]
    fn messages_of_any_bytes_are_decoded_or_refused() {
        let corpus = include_str!("../../corpus/messages.txt");
        fuzz("Cheetah's messages", corpus, |input| {
            let (tag, message) = input.split_first_chunk()?;
            let tag = u64::from_le_bytes(*tag);
            let (parsed, bytes) = parse(tag, message)?;
            let head = parsed.head();
            let encoded = [head.bytes(), bytes].concat();
            assert_eq!(parse(head.tag, &encoded), Some((parsed, bytes)));
            Some((std::mem::discriminant(&parsed), bytes.is_empty()))
        });
    }

    fn every_kind() -> Vec<WireMessage> {
        let port = Port::Channel {
            channel: 3,
            tag: -7,
        };
        let source = Source {
            addr: 1 << 40,
            key: u64::MAX - 1,
            len: 1 << 33,
        };
        let bell = BellName::from_word(0x7fff_1234_5678);
        let token = 1 << 35;
        vec![
            WireMessage::Invoke { port },
            WireMessage::Invoke {
                port: Port::Function(9),
            },
            WireMessage::InvokeFetch {
                port,
                source,
                token,
            },
            WireMessage::InvokeFetch {
                port: Port::Function(1),
                source,
                token,
            },
            WireMessage::Put {
                to: 77,
                bell,
                local: BellName::NONE,
            },
            WireMessage::PutRequest {
                to: 5,
                len: 6,
                token,
                bell,
            },
            WireMessage::Writable { token },
            WireMessage::Get {
                from: 8,
                len: 1 << 40,
                token,
                bell,
            },
            WireMessage::Bytes { token },
            WireMessage::Readable { token },
            WireMessage::Done { token },
            WireMessage::Failed {
                token,
                at_source: true,
            },
            WireMessage::PutFailed {
                to: 1,
                len: 2,
                local: bell,
            },
            WireMessage::NoFunction {
                id: 4,
                registered: 3,
            },
            WireMessage::Ring { bell },
            WireMessage::Special {
                start: 1,
                len: 2,
                key: 3,
                base: 4,
            },
            WireMessage::Withdrawn { start: 4 },
            WireMessage::Barrier {
                round: 2,
                epoch: 1 << 50,
                registered: 99,
            },
            WireMessage::StatusRequest { token },
            WireMessage::StatusResponse { token, entered: 12 },
            WireMessage::Names,
            WireMessage::PeerFailed { context: 2 },
            WireMessage::Broken,
            WireMessage::Flush { token },
            WireMessage::Close,
            WireMessage::Hello,
        ]
    }

    #[test]
    fn encoded_messages_decode_to_themselves() {
        for parsed in every_kind() {
            let head = parsed.head();
            let read = parse(head.tag, head.bytes());
            assert_eq!(read, Some((parsed, &[][..])), "{parsed:?}");
        }
    }

    #[test]
    fn port_numbers_round_trip_through_the_tag() {
        let channel = |channel, tag| Port::Channel { channel, tag };
        let ports = [
            Port::Function(0),
            Port::Function(u32::MAX),
            channel(0, i32::MIN),
            channel(CHANNELS - 1, -1),
            channel(1 << 15, i32::MAX),
        ];
        for port in ports {
            assert_eq!(port_of_invocation(invocation_tag(port)), Some(port));
            let read = parse(invocation_tag(port), b"payload");
            assert_eq!(read, Some((WireMessage::Invoke { port }, &b"payload"[..])));
        }
    }

    #[test]
    fn truncated_or_too_long_messages_are_refused() {
        for parsed in every_kind() {
            let head = parsed.head();
            let words = head.bytes();
            for len in 0..words.len() {
                assert_eq!(parse(head.tag, &words[..len]), None, "{parsed:?}");
            }
            let longer = [words, &[0]].concat();
            match parse(head.tag, &longer) {
                Some((
                    WireMessage::Invoke { .. }
                    | WireMessage::Put { .. }
                    | WireMessage::Bytes { .. },
                    [0],
                )) => {}
                Some((
                    WireMessage::Names | WireMessage::PeerFailed { .. } | WireMessage::Broken,
                    [0],
                )) => {}
                read => assert_eq!(read, None, "{parsed:?}"),
            }
        }
        assert_eq!(parse(0, &[]), None);
        assert_eq!(parse(u64::MAX, &[0; 64]), None);
    }
}
