//! What contexts say to each other: messages of the fabric, each of whole lines of 16 bytes, so that
//! what lies behind one another in a receive buffer is aligned.
//!
//! A message is up to six words in little-endian order, and bytes behind them. The first word has
//! the kind in its lowest byte and a number of 32 bits in its upper half.

use crate::bell::BellName;

/// Messages are a multiple of this, and what they carry is aligned to it.
pub(crate) const LINE: usize = 16;
/// Bytes of the longest head.
pub(crate) const HEAD_MAX: usize = 48;

/// What an invocation is for: a function, or a handler object and a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Port {
    /// A registered function.
    Function(u32),
    /// The matching handler that was built as number `channel`, and the tag of the message.
    Channel {
        /// The number of the handler, by the order in which they are built.
        channel: u32,
        /// The sender's tag.
        tag: i32,
    },
}

/// Memory of the speaker that the listener may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) addr: u64,
    pub(crate) key: u64,
    pub(crate) len: u64,
}

/// A message without its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// Run this with the bytes that follow.
    Invoke { port: Port, len: u32 },
    /// Run this with bytes that are to be fetched; answered with `Done`.
    InvokeFetch {
        port: Port,
        source: Source,
        token: u64,
    },
    /// Copy the bytes that follow; `local` comes back with `Failed`.
    Put {
        len: u32,
        to: u64,
        bell: BellName,
        local: BellName,
    },
    /// Fetch bytes into place; answered with `Done`.
    PutFetch {
        source: Source,
        to: u64,
        bell: BellName,
        token: u32,
    },
    /// Say whether these may be read, and send them if they are few.
    Get {
        from: u64,
        len: u64,
        token: u64,
        bell: BellName,
    },
    /// The bytes that were asked for.
    Bytes { len: u32, token: u64 },
    /// They are there to be read.
    Readable { token: u64 },
    /// What `token` stands for has been fetched.
    Done { token: u64 },
    /// It cannot be.
    Failed { token: u64, at_source: bool },
    /// A put without a token cannot be done.
    PutFailed { to: u64, len: u64, local: BellName },
    /// An invocation names a function that is not there.
    NoFunction { id: u32, known: u32 },
    /// Ring.
    Ring { bell: BellName },
    /// This memory can be written directly, with this key.
    Special {
        start: u64,
        len: u64,
        key: u64,
        base: u64,
    },
    /// And now it is gone.
    Withdrawn { start: u64 },
    /// The round of a barrier, and what has been registered by then.
    Barrier {
        round: u32,
        epoch: u64,
        registered: u64,
    },
    /// How far are you?
    Ask { token: u64 },
    /// So many barriers have been entered.
    Answer { token: u64, entered: u64 },
    /// The names of what has been registered follow, as text.
    Names { len: u32 },
    /// This context is gone; text follows.
    Lost { context: u32, len: u64 },
    /// All of it is over, because of the text that follows.
    Broken { len: u32 },
    /// Say so when everything before this has been taken; answered with `Done`.
    Flush { token: u64 },
    /// Nothing will follow, and my end is no loss.
    Bye,
    /// First contact.
    Hello,
}

/// The head of a message, written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    bytes: [u8; HEAD_MAX],
    len: usize,
}

impl Head {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    #[inline]
    fn write<const N: usize>(kind: u8, number: u32, words: [u64; N]) -> Self {
        let mut bytes = [0; HEAD_MAX];
        let first = u64::from(kind) | u64::from(number) << 32;
        bytes[..8].copy_from_slice(&first.to_le_bytes());
        for (place, word) in bytes[8..].chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let len = (8 + 8 * N).next_multiple_of(LINE);
        Self { bytes, len }
    }
}

const FUNCTION: u8 = 1;
const CHANNEL: u8 = 2;
const FUNCTION_FETCH: u8 = 3;
const CHANNEL_FETCH: u8 = 4;
const PUT: u8 = 5;
const PUT_FETCH: u8 = 6;
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
const ASK: u8 = 18;
const ANSWER: u8 = 19;
const NAMES: u8 = 20;
const LOST: u8 = 21;
const BROKEN: u8 = 22;
const FLUSH: u8 = 23;
const BYE: u8 = 24;
const HELLO: u8 = 25;

impl Said {
    /// Writes the head; [`parse`] reads it.
    #[inline]
    pub(crate) fn head(&self) -> Head {
        match *self {
            Self::Invoke { port, len } => match port {
                Port::Function(id) => Head::write(FUNCTION, id, [u64::from(len)]),
                Port::Channel { channel, tag } => {
                    let word = u64::from(len) | u64::from(tag.cast_unsigned()) << 32;
                    Head::write(CHANNEL, channel, [word])
                }
            },
            Self::InvokeFetch { .. }
            | Self::PutFetch { .. }
            | Self::Put { .. }
            | Self::Get { .. } => self.data_head(),
            Self::Bytes { len, token } => Head::write(BYTES, len, [token]),
            Self::Readable { token } => Head::write(READABLE, 0, [token]),
            Self::Done { token } => Head::write(DONE, 0, [token]),
            Self::Failed { token, at_source } => Head::write(FAILED, at_source.into(), [token]),
            Self::PutFailed { to, len, local } => {
                Head::write(PUT_FAILED, 0, [to, len, local.word()])
            }
            Self::NoFunction { id, known } => Head::write(NO_FUNCTION, id, [u64::from(known)]),
            Self::Ring { bell } => Head::write(RING, 0, [bell.word()]),
            Self::Special {
                start,
                len,
                key,
                base,
            } => Head::write(SPECIAL, 0, [start, len, key, base]),
            Self::Withdrawn { start } => Head::write(WITHDRAWN, 0, [start]),
            Self::Barrier {
                round,
                epoch,
                registered,
            } => Head::write(BARRIER, round, [epoch, registered]),
            Self::Ask { token } => Head::write(ASK, 0, [token]),
            Self::Answer { token, entered } => Head::write(ANSWER, 0, [token, entered]),
            Self::Names { len } => Head::write(NAMES, 0, [u64::from(len)]),
            Self::Lost { context, len } => Head::write(LOST, context, [len]),
            Self::Broken { len } => Head::write(BROKEN, 0, [u64::from(len)]),
            Self::Flush { token } => Head::write(FLUSH, 0, [token]),
            Self::Bye => Head::write(BYE, 0, [0]),
            Self::Hello => Head::write(HELLO, 0, [0]),
        }
    }

    fn data_head(&self) -> Head {
        match *self {
            Self::InvokeFetch {
                port,
                source,
                token,
            } => {
                let Source { addr, key, len } = source;
                match port {
                    Port::Function(id) => Head::write(FUNCTION_FETCH, id, [addr, key, len, token]),
                    Port::Channel { channel, tag } => {
                        let tag = u64::from(tag.cast_unsigned());
                        Head::write(CHANNEL_FETCH, channel, [addr, key, len, token, tag])
                    }
                }
            }
            Self::Put {
                len,
                to,
                bell,
                local,
            } => Head::write(PUT, len, [to, bell.word(), local.word()]),
            Self::PutFetch {
                source,
                to,
                bell,
                token,
            } => {
                let Source { addr, key, len } = source;
                Head::write(PUT_FETCH, token, [addr, key, len, to, bell.word()])
            }
            Self::Get {
                from,
                len,
                token,
                bell,
            } => Head::write(GET, 0, [from, len, token, bell.word()]),
            _ => Self::Bye.head(),
        }
    }
}

/// Reads a message that was written with [`Said::head`]: what it says, and its bytes, which may have
/// up to 15 more behind them in `message`. `None` for anything else.
#[inline]
pub(crate) fn parse(message: &[u8]) -> Option<(Said, &[u8])> {
    if !message.len().is_multiple_of(LINE) {
        return None;
    }
    let words = Words(message);
    let first = words.at(0)?;
    let (kind, number) = ((first & 0xff) as u8, (first >> 32) as u32);
    let one = words.at(1)?;
    let (said, head, len) = match kind {
        FUNCTION => {
            let len = u32::try_from(one).ok()?;
            let port = Port::Function(number);
            (Said::Invoke { port, len }, 16, len)
        }
        CHANNEL => {
            let len = one as u32;
            let port = channel(number, one >> 32);
            (Said::Invoke { port, len }, 16, len)
        }
        BYTES => (
            Said::Bytes {
                len: number,
                token: one,
            },
            16,
            number,
        ),
        PUT => {
            let (bell, local) = (
                BellName::from_word(words.at(2)?),
                BellName::from_word(words.at(3)?),
            );
            let said = Said::Put {
                len: number,
                to: one,
                bell,
                local,
            };
            (said, 32, number)
        }
        NAMES | BROKEN | LOST => {
            let len = u32::try_from(one).ok()?;
            let said = match kind {
                NAMES => Said::Names { len },
                BROKEN => Said::Broken { len },
                _ => Said::Lost {
                    context: number,
                    len: one,
                },
            };
            (said, 16, len)
        }
        _ => (parse_short(kind, number, one, &words)?, 16, 0),
    };
    let bytes = message.get(head..)?.get(..len as usize)?;
    Some((said, bytes))
}

/// The messages that carry no bytes.
fn parse_short(kind: u8, number: u32, one: u64, words: &Words<'_>) -> Option<Said> {
    let at = |index| words.at(index);
    Some(match kind {
        FUNCTION_FETCH | CHANNEL_FETCH => Said::InvokeFetch {
            port: match kind {
                FUNCTION_FETCH => Port::Function(number),
                _ => channel(number, at(5)?),
            },
            source: words.source()?,
            token: at(4)?,
        },
        PUT_FETCH => Said::PutFetch {
            source: words.source()?,
            to: at(4)?,
            bell: BellName::from_word(at(5)?),
            token: number,
        },
        GET => Said::Get {
            from: one,
            len: at(2)?,
            token: at(3)?,
            bell: BellName::from_word(at(4)?),
        },
        READABLE => Said::Readable { token: one },
        DONE => Said::Done { token: one },
        FAILED => Said::Failed {
            token: one,
            at_source: number != 0,
        },
        PUT_FAILED => Said::PutFailed {
            to: one,
            len: at(2)?,
            local: BellName::from_word(at(3)?),
        },
        NO_FUNCTION => Said::NoFunction {
            id: number,
            known: one as u32,
        },
        RING => Said::Ring {
            bell: BellName::from_word(one),
        },
        SPECIAL => Said::Special {
            start: one,
            len: at(2)?,
            key: at(3)?,
            base: at(4)?,
        },
        WITHDRAWN => Said::Withdrawn { start: one },
        BARRIER => Said::Barrier {
            round: number,
            epoch: one,
            registered: at(2)?,
        },
        ASK => Said::Ask { token: one },
        ANSWER => Said::Answer {
            token: one,
            entered: at(2)?,
        },
        FLUSH => Said::Flush { token: one },
        BYE => Said::Bye,
        HELLO => Said::Hello,
        _ => return None,
    })
}

fn channel(channel: u32, tag: u64) -> Port {
    Port::Channel {
        channel,
        tag: (tag as u32).cast_signed(),
    }
}

struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn at(&self, index: usize) -> Option<u64> {
        let bytes = self.0.get(8 * index..)?.first_chunk()?;
        Some(u64::from_le_bytes(*bytes))
    }

    fn source(&self) -> Option<Source> {
        Some(Source {
            addr: self.at(1)?,
            key: self.at(2)?,
            len: self.at(3)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every_kind() -> Vec<Said> {
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
        let (token, len) = (1 << 35, 0);
        vec![
            Said::Invoke { port, len },
            Said::Invoke {
                port: Port::Function(9),
                len,
            },
            Said::InvokeFetch {
                port,
                source,
                token,
            },
            Said::InvokeFetch {
                port: Port::Function(1),
                source,
                token,
            },
            Said::Put {
                len,
                to: 77,
                bell,
                local: BellName::NONE,
            },
            Said::PutFetch {
                source,
                to: 5,
                bell,
                token: 6,
            },
            Said::Get {
                from: 8,
                len: 1 << 40,
                token,
                bell,
            },
            Said::Bytes { len, token },
            Said::Readable { token },
            Said::Done { token },
            Said::Failed {
                token,
                at_source: true,
            },
            Said::PutFailed {
                to: 1,
                len: 2,
                local: bell,
            },
            Said::NoFunction { id: 4, known: 3 },
            Said::Ring { bell },
            Said::Special {
                start: 1,
                len: 2,
                key: 3,
                base: 4,
            },
            Said::Withdrawn { start: 4 },
            Said::Barrier {
                round: 2,
                epoch: 1 << 50,
                registered: 99,
            },
            Said::Ask { token },
            Said::Answer { token, entered: 12 },
            Said::Names { len },
            Said::Lost { context: 2, len: 0 },
            Said::Broken { len },
            Said::Flush { token },
            Said::Bye,
            Said::Hello,
        ]
    }

    #[test]
    fn what_is_written_is_read() {
        for said in every_kind() {
            let head = said.head();
            assert!(head.bytes().len().is_multiple_of(LINE), "{said:?}");
            assert_eq!(parse(head.bytes()), Some((said, &[][..])), "{said:?}");
        }
    }

    #[test]
    fn what_is_cut_short_is_not_read() {
        let said = Said::Put {
            len: 100,
            to: 1,
            bell: BellName::NONE,
            local: BellName::NONE,
        };
        let mut message = said.head().bytes().to_vec();
        message.resize(message.len() + 96, 0);
        assert_eq!(parse(&message), None);
        for said in every_kind() {
            let bytes = said.head();
            let short = &bytes.bytes()[..bytes.bytes().len() - 1];
            assert_eq!(parse(short), None, "{said:?}");
        }
        assert_eq!(parse(&[0; 16]), None);
        assert_eq!(parse(&[]), None);
    }
}
