//! Packets: what two endpoints say to each other over their socket.
//!
//! A packet is written field by field, little-endian, behind a magic number, a version and its
//! kind. What is read is checked field by field before anything is done with it.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use std::os::fd::OwnedFd;

use selvedge::{Errno, Error};
use selvedge_kit::auth::proof::Block;

use crate::peers::name::Name;
use crate::smr::Sizes;
use crate::smr::layout::{MAGIC, NAME_MAX, VERSION};

/// Bytes of every packet.
pub(crate) const SIZE: usize = 256;

/// The bytes of a packet.
pub(crate) type Bytes = [u8; SIZE];

/// Where a block lies, as its owner tells its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Its number, which no other block of the domain ever has; never 0.
    pub(crate) block: u64,
    /// Its address in the owner's process.
    pub(crate) base: u64,
    /// Its length in bytes.
    pub(crate) len: u64,
    /// Whether peers may write to it.
    pub(crate) writable: bool,
}

impl Place {
    /// Where in the block the `len` bytes at an address of its owner's are.
    #[inline]
    pub(crate) fn offset_of(&self, addr: u64, len: u64) -> Option<usize> {
        let offset = addr.checked_sub(self.base)?;
        let is_inside = offset <= self.len && len <= self.len - offset;
        is_inside.then_some(offset as usize)
    }
}

/// What an endpoint says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    /// The endpoint type's number; only equal types talk.
    pub(crate) ep_type: u32,
    /// The sender's life: random, never a pid.
    pub(crate) incarnation: u128,
    /// The receiver's bit on the sender's doorbell.
    pub(crate) bell: u32,
    /// How the region that comes along is laid out.
    pub(crate) sizes: Sizes,
    /// Where `nonce` stands in the sender's memory: to try cross-memory attach by.
    pub(crate) nonce_addr: u64,
    /// A random number.
    pub(crate) nonce: u64,
    /// Key chunks that follow.
    pub(crate) key_chunks: u32,
    /// The sender's name.
    pub(crate) name: Name,
}

/// A hello with what comes along.
#[derive(Debug)]
pub(crate) struct Introduction {
    pub(crate) hello: Hello,
    /// The sender's outbox.
    pub(crate) region: OwnedFd,
    pub(crate) bell: OwnedFd,
}

/// Everything that is said over the socket.
#[derive(Debug)]
pub(crate) enum Packet {
    Hello(Introduction),
    /// Comes with the descriptor of a bounce region.
    Bounce {
        segment_count: u32,
        segment_size: u32,
        fd: OwnedFd,
    },
    /// Comes with the descriptor of a block of special memory.
    Block {
        place: Place,
        fd: OwnedFd,
    },
    /// The block with this number is no more.
    Release {
        block: u64,
    },
    /// Comes with the descriptor of a chunk of the sender's key table.
    Keys {
        chunk: u32,
        fd: OwnedFd,
    },
    /// The bytes of this message, which was asked for in segments, will not come.
    Abort {
        msg_id: u32,
        errno: Errno,
    },
    /// Something was committed for an endpoint that sleeps.
    Wake,
    /// The first packet of a caller with an authorization key: its nonce, and what it calls itself.
    Question {
        nonce: Block,
        name: Name,
    },
    /// The listener's answer to a question: its nonce.
    Nonce(Block),
    /// A proof that the sender has the authorization key, the caller's first.
    Proof(Block),
    /// The last word to somebody whose hello was not accepted.
    Refusal {
        errno: Errno,
        why: String,
    },
}

const KIND_HELLO: u32 = 1;
const KIND_BOUNCE: u32 = 2;
const KIND_ABORT: u32 = 3;
const KIND_REFUSAL: u32 = 4;
const KIND_BLOCK: u32 = 6;
const KIND_RELEASE: u32 = 7;
const KIND_KEYS: u32 = 5;
const KIND_WAKE: u32 = 8;
const KIND_QUESTION: u32 = 9;
const KIND_NONCE: u32 = 10;
const KIND_PROOF: u32 = 11;

/// Bytes at the front of a packet that tell its kind.
pub(crate) const HEAD: usize = 16;

/// Bytes of a refusal's text at most.
const WHY_MAX: usize = SIZE - 24;

impl Hello {
    /// The packet that says this.
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = Writer::new(KIND_HELLO);
        out.u32(self.ep_type);
        out.bytes(&self.incarnation.to_le_bytes());
        out.u32(self.bell);
        out.u32(self.sizes.cmd_count as u32);
        out.u32(self.sizes.resp_count as u32);
        out.u32(self.sizes.inject_size as u32);
        out.u64(self.nonce_addr);
        out.u64(self.nonce);
        out.u32(self.key_chunks);
        out.text(self.name.as_str().as_bytes());
        out.packet
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self {
            ep_type: input.u32()?,
            incarnation: u128::from_le_bytes(input.array()?),
            bell: input.u32()?,
            sizes: Sizes {
                cmd_count: input.u32()? as usize,
                resp_count: input.u32()? as usize,
                inject_size: input.u32()? as usize,
            },
            nonce_addr: input.u64()?,
            nonce: input.u64()?,
            key_chunks: input.u32()?,
            name: input.name()?,
        })
    }
}

/// The packet that comes with a bounce region.
pub(crate) fn encode_bounce(segment_count: u32, segment_size: u32) -> Bytes {
    let mut out = Writer::new(KIND_BOUNCE);
    out.u32(segment_count);
    out.u32(segment_size);
    out.packet
}

/// The packet that comes with a block of special memory.
pub(crate) fn encode_block(place: &Place) -> Bytes {
    let mut out = Writer::new(KIND_BLOCK);
    out.u64(place.block);
    out.u64(place.base);
    out.u64(place.len);
    out.u32(u32::from(place.writable));
    out.packet
}

/// The packet that says that a block is no more.
pub(crate) fn encode_release(block: u64) -> Bytes {
    let mut out = Writer::new(KIND_RELEASE);
    out.u64(block);
    out.packet
}

/// The packet that comes with a chunk of the key table.
pub(crate) fn encode_keys(chunk: u32) -> Bytes {
    let mut out = Writer::new(KIND_KEYS);
    out.u32(chunk);
    out.packet
}

/// The packet that takes an offered message back.
pub(crate) fn encode_abort(msg_id: u32, errno: Errno) -> Bytes {
    let mut out = Writer::new(KIND_ABORT);
    out.u32(msg_id);
    out.u32(errno.as_raw() as u32);
    out.packet
}

/// The packet that wakes an endpoint.
pub(crate) fn encode_wake() -> Bytes {
    Writer::new(KIND_WAKE).packet
}

/// The packet that asks an endpoint for its nonce, and says ours.
pub(crate) fn encode_question(nonce: &Block, name: &Name) -> Bytes {
    let mut out = Writer::new(KIND_QUESTION);
    out.bytes(nonce);
    out.text(name.as_str().as_bytes());
    out.packet
}

/// The packet that answers a question.
pub(crate) fn encode_nonce(nonce: &Block) -> Bytes {
    let mut out = Writer::new(KIND_NONCE);
    out.bytes(nonce);
    out.packet
}

/// The packet that proves the authorization key.
pub(crate) fn encode_proof(proof: &Block) -> Bytes {
    let mut out = Writer::new(KIND_PROOF);
    out.bytes(proof);
    out.packet
}

/// The packet that refuses a hello.
#[expect(
    clippy::indexing_slicing,
    reason = "our own text, at the end of a letter of it"
)]
pub(crate) fn encode_refusal(error: &Error) -> Bytes {
    let mut out = Writer::new(KIND_REFUSAL);
    out.u32(error.errno().as_raw() as u32);
    let what = error.message();
    out.text(&what.as_bytes()[..what.floor_char_boundary(WHY_MAX)]);
    out.packet
}

/// Reads a packet and the descriptors that came with it.
///
/// # Errors
/// [`Errno::Proto`] for one that makes no sense; the descriptors are closed then.
pub(crate) fn parse(bytes: &[u8], fds: Vec<OwnedFd>) -> Result<Packet, Error> {
    let mut input = Reader { bytes };
    if input.u64()? != MAGIC {
        return Err(nonsense("its first word"));
    }
    let version = input.u32()?;
    if version != VERSION {
        let what = format!("a peer speaks version {version}, this endpoint {VERSION}");
        return Err(Error::new(Errno::Proto, what));
    }
    let kind = input.u32()?;
    let mut fds = fds.into_iter();
    let mut fd = || {
        fds.next()
            .ok_or_else(|| nonsense("the number of its descriptors"))
    };
    match kind {
        KIND_HELLO => Ok(Packet::Hello(Introduction {
            hello: Hello::decode(&mut input)?,
            region: fd()?,
            bell: fd()?,
        })),
        KIND_BOUNCE => Ok(Packet::Bounce {
            segment_count: input.u32()?,
            segment_size: input.u32()?,
            fd: fd()?,
        }),
        KIND_BLOCK => Ok(Packet::Block {
            place: Place {
                block: input.u64()?,
                base: input.u64()?,
                len: input.u64()?,
                writable: input.u32()? != 0,
            },
            fd: fd()?,
        }),
        KIND_RELEASE => Ok(Packet::Release {
            block: input.u64()?,
        }),
        KIND_KEYS => Ok(Packet::Keys {
            chunk: input.u32()?,
            fd: fd()?,
        }),
        KIND_ABORT => Ok(Packet::Abort {
            msg_id: input.u32()?,
            errno: input.errno()?,
        }),
        KIND_WAKE => Ok(Packet::Wake),
        KIND_QUESTION => Ok(Packet::Question {
            nonce: input.array()?,
            name: input.name()?,
        }),
        KIND_NONCE => Ok(Packet::Nonce(input.array()?)),
        KIND_PROOF => Ok(Packet::Proof(input.array()?)),
        KIND_REFUSAL => Ok(Packet::Refusal {
            errno: input.errno()?,
            why: printable(input.text(WHY_MAX)?),
        }),
        _ => Err(nonsense("its kind")),
    }
}

/// How many descriptors come with a packet that begins with these bytes, if its sender keeps to the
/// rules.
pub(crate) fn descriptors(head: &[u8]) -> usize {
    let kind = head.split_last_chunk().map(|(_, kind)| *kind);
    match kind.map(u32::from_le_bytes) {
        Some(KIND_HELLO) => 2,
        Some(KIND_BOUNCE | KIND_BLOCK | KIND_KEYS) => 1,
        _ => 0,
    }
}

/// A foreign text, fit to be logged.
fn printable(text: &[u8]) -> String {
    let shown = |c: char| if c.is_control() { '?' } else { c };
    String::from_utf8_lossy(text).chars().map(shown).collect()
}

struct Writer {
    packet: Bytes,
    len: usize,
}

impl Writer {
    fn new(kind: u32) -> Self {
        let mut out = Self {
            packet: [0; SIZE],
            len: 0,
        };
        out.u64(MAGIC);
        out.u32(VERSION);
        out.u32(kind);
        out
    }

    fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    fn text(&mut self, text: &[u8]) {
        self.u32(text.len() as u32);
        self.bytes(text);
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "our own packet, which has room for what we say"
    )]
    fn bytes(&mut self, bytes: &[u8]) {
        self.packet[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    fn slice(&mut self, len: usize) -> Result<&'a [u8], Error> {
        let (head, rest) = self
            .bytes
            .split_at_checked(len)
            .ok_or_else(|| nonsense("its length"))?;
        self.bytes = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (head, rest) = self
            .bytes
            .split_first_chunk()
            .ok_or_else(|| nonsense("its length"))?;
        self.bytes = rest;
        Ok(*head)
    }

    fn u32(&mut self) -> Result<u32, Error> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Error> {
        self.array().map(u64::from_le_bytes)
    }

    fn errno(&mut self) -> Result<Errno, Error> {
        self.u32()
            .map(|raw| Errno::from_raw(i32::try_from(raw).unwrap_or(0)))
    }

    fn name(&mut self) -> Result<Name, Error> {
        let text = std::str::from_utf8(self.text(NAME_MAX)?);
        Name::plain(text.map_err(|_| nonsense("its name"))?)
    }

    fn text(&mut self, most: usize) -> Result<&'a [u8], Error> {
        let len = self.u32()? as usize;
        if len > most {
            return Err(nonsense("the length of a text"));
        }
        self.slice(len)
    }
}

fn nonsense(what: &str) -> Error {
    Error::new(
        Errno::Proto,
        format!("a peer's packet was refused: {what} makes no sense"),
    )
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello {
            ep_type: 3,
            incarnation: 0x1234_5678_9abc_def0_1122_3344_5566_7788,
            bell: 7,
            sizes: Sizes {
                cmd_count: 256,
                resp_count: 256,
                inject_size: 65536,
            },
            nonce_addr: 0x7fff_0000_1000,
            nonce: 42,
            key_chunks: 3,
            name: Name::plain("1:2:3").unwrap(),
        }
    }

    fn fds() -> Vec<OwnedFd> {
        (0..2)
            .map(|_| std::fs::File::open("/dev/null").unwrap().into())
            .collect()
    }

    #[test]
    fn a_hello_survives_the_wire() {
        let Packet::Hello(heard) = parse(&hello().encode(), fds()).unwrap() else {
            panic!("not a hello")
        };
        assert_eq!(heard.hello, hello());
    }

    #[test]
    fn a_block_survives_the_wire() {
        let said = Place {
            block: 1 << 40,
            base: 0x7fff_0000_1000,
            len: 1 << 33,
            writable: true,
        };
        let Packet::Block { place, .. } = parse(&encode_block(&said), fds()).unwrap() else {
            panic!("not a block")
        };
        assert_eq!(place, said);
    }

    #[test]
    fn a_question_a_nonce_and_a_proof_survive_the_wire() {
        let (word, longest) = ([7; 32], Name::plain(&"n".repeat(NAME_MAX)).unwrap());
        let heard = parse(&encode_question(&word, &longest), Vec::new());
        let Packet::Question { nonce, name } = heard.unwrap() else {
            panic!("not a question")
        };
        assert_eq!((nonce, name), (word, longest));
        let heard = [encode_nonce(&word), encode_proof(&word)];
        let heard = heard.map(|packet| parse(&packet, Vec::new()).unwrap());
        assert!(matches!(heard, [Packet::Nonce(a), Packet::Proof(b)] if [a, b] == [word; 2]));
    }

    #[test]
    fn the_longest_names_have_room() {
        let mut longest = hello();
        longest.name = Name::plain(&"n".repeat(NAME_MAX)).unwrap();
        let Packet::Hello(heard) = parse(&longest.encode(), fds()).unwrap() else {
            panic!("not a hello")
        };
        assert_eq!(heard.hello, longest);
    }

    #[test]
    fn every_truncation_of_a_hello_is_refused() {
        let packet = hello().encode();
        let needed = 16 + 4 + 16 + 4 + 12 + 16 + 4 + 4 + 5;
        for len in 0..needed {
            assert_eq!(
                parse(&packet[..len], fds()).unwrap_err().errno(),
                Errno::Proto
            );
        }
    }

    #[test]
    fn the_head_of_a_packet_tells_how_many_descriptors_come_with_it() {
        let table = [
            (hello().encode(), 2),
            (encode_bounce(1, 1), 1),
            (
                encode_block(&Place {
                    block: 1,
                    base: 0,
                    len: 1,
                    writable: false,
                }),
                1,
            ),
            (encode_keys(0), 1),
            (encode_release(1), 0),
            (encode_wake(), 0),
        ];
        for (packet, count) in table {
            assert_eq!(descriptors(&packet[..HEAD]), count, "{packet:?}");
        }
        assert_eq!(descriptors(&[]), 0);
    }

    #[test]
    fn a_hello_without_its_descriptors_is_refused() {
        assert!(parse(&hello().encode(), Vec::new()).is_err());
    }

    #[test]
    fn another_version_is_refused_by_number() {
        let mut packet = hello().encode();
        packet[8] = 99;
        let error = parse(&packet, fds()).unwrap_err().to_string();
        assert!(error.contains("99"), "{error}");
    }

    #[test]
    fn a_refusal_says_what_fits_and_nothing_that_upsets_a_terminal() {
        let error = Error::new(Errno::Busy, format!("no\x1b[{}", "\u{fc}".repeat(200)));
        let Packet::Refusal { errno, why } = parse(&encode_refusal(&error), Vec::new()).unwrap()
        else {
            panic!("not a refusal")
        };
        assert_eq!(errno, Errno::Busy);
        assert!(
            why.starts_with("no?[\u{fc}") && why.ends_with('\u{fc}'),
            "{why}"
        );
    }
}
