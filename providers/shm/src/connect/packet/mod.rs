//! `Packet`: the messages that two endpoints exchange over their connection.
//!
//! A packet consists of a magic number, a version and a kind, followed by the fields of this kind
//! in little-endian order. The parser checks every field before a packet is used.

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

/// The number and the location of a block of special memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockInfo {
    /// The block's number, unique in the domain and never 0.
    pub(crate) block: u64,
    /// The block's address in the owner's process.
    pub(crate) base: u64,
    /// The block's length in bytes.
    pub(crate) len: u64,
    /// Whether peers may write to the block.
    pub(crate) writable: bool,
    /// Whether the block is an arena of the owner's shared heap.
    pub(crate) is_arena: bool,
}

impl BlockInfo {
    /// Returns the offset in the block of the `len` bytes at the owner's address `addr`; `None` if
    /// they are not all inside.
    #[inline]
    pub(crate) fn offset_of(&self, addr: u64, len: u64) -> Option<usize> {
        let offset = addr.checked_sub(self.base)?;
        let is_inside = offset <= self.len && len <= self.len - offset;
        is_inside.then_some(offset as usize)
    }
}

/// The content of a hello packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    /// Number of the endpoint type; both sides must have the same.
    pub(crate) ep_type: u32,
    /// The random number of the sender's incarnation.
    pub(crate) incarnation_id: u128,
    /// The number of the receiver's bit in the sender's doorbell.
    pub(crate) bell: u32,
    /// Sizes of the region whose descriptor the packet carries.
    pub(crate) sizes: Sizes,
    /// Address of `nonce` in the sender's memory, for the probe of cross-memory attach.
    pub(crate) nonce_addr: u64,
    /// A random number, by which the receiver recognizes the sender's process.
    pub(crate) nonce: u64,
    /// Number of key chunks that follow.
    pub(crate) key_chunks: u32,
    /// The sender's name.
    pub(crate) name: Name,
}

/// A received hello with its descriptors.
#[derive(Debug)]
pub(crate) struct ReceivedHello {
    pub(crate) hello: Hello,
    /// The sender's outbox.
    pub(crate) region: OwnedFd,
    /// The sender's doorbell.
    pub(crate) bell: OwnedFd,
}

/// A packet with its descriptors.
#[derive(Debug)]
pub(crate) enum Packet {
    Hello(ReceivedHello),
    /// Passes a bounce region, with its descriptor.
    Bounce {
        segment_count: u32,
        segment_size: u32,
        fd: OwnedFd,
    },
    /// Passes a block of special memory, with its descriptor.
    Block {
        info: BlockInfo,
        fd: OwnedFd,
    },
    /// The block with this number was freed.
    Release {
        block: u64,
    },
    /// Passes a chunk of the sender's key table, with its descriptor.
    Keys {
        chunk: u32,
        fd: OwnedFd,
    },
    /// The requested segments of this message will not be sent.
    Abort {
        msg_id: u32,
        errno: Errno,
    },
    /// A command was committed for a parked endpoint.
    Wake,
    /// The first packet of a connecting endpoint with an authorization key: its nonce and its name.
    KeyRequest {
        nonce: Block,
        name: Name,
    },
    /// The listener's response to a key request: its nonce.
    Nonce(Block),
    /// A proof of the authorization key. The connecting side sends its proof first.
    Proof(Block),
    /// The response to a connection that is refused.
    Refusal {
        errno: Errno,
        reason: String,
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
const KIND_KEY_REQUEST: u32 = 9;
const KIND_NONCE: u32 = 10;
const KIND_PROOF: u32 = 11;

/// The kinds of blocks.
const BLOCK_READ_ONLY: u32 = 0;
const BLOCK_WRITABLE: u32 = 1;
const BLOCK_ARENA: u32 = 2;

/// Bytes of a packet up to and including its kind.
pub(crate) const HEAD: usize = 16;

/// Longest text of a refusal, in bytes.
const REASON_MAX: usize = SIZE - 24;

impl Hello {
    /// Encodes the hello packet.
    pub(crate) fn encode(&self) -> Bytes {
        let mut writer = Writer::new(KIND_HELLO);
        writer.put_u32(self.ep_type);
        writer.put_bytes(&self.incarnation_id.to_le_bytes());
        writer.put_u32(self.bell);
        writer.put_u32(self.sizes.cmd_count as u32);
        writer.put_u32(self.sizes.resp_count as u32);
        writer.put_u32(self.sizes.inject_size as u32);
        writer.put_u64(self.nonce_addr);
        writer.put_u64(self.nonce);
        writer.put_u32(self.key_chunks);
        writer.put_text(self.name.as_str().as_bytes());
        writer.packet
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self {
            ep_type: reader.get_u32()?,
            incarnation_id: u128::from_le_bytes(reader.get_array()?),
            bell: reader.get_u32()?,
            sizes: Sizes {
                cmd_count: reader.get_u32()? as usize,
                resp_count: reader.get_u32()? as usize,
                inject_size: reader.get_u32()? as usize,
            },
            nonce_addr: reader.get_u64()?,
            nonce: reader.get_u64()?,
            key_chunks: reader.get_u32()?,
            name: reader.get_name()?,
        })
    }
}

/// Encodes the packet that passes bounce memory.
pub(crate) fn encode_bounce(segment_count: u32, segment_size: u32) -> Bytes {
    let mut writer = Writer::new(KIND_BOUNCE);
    writer.put_u32(segment_count);
    writer.put_u32(segment_size);
    writer.packet
}

/// Encodes the packet that passes a block of special memory.
pub(crate) fn encode_block(info: &BlockInfo) -> Bytes {
    let mut writer = Writer::new(KIND_BLOCK);
    writer.put_u64(info.block);
    writer.put_u64(info.base);
    writer.put_u64(info.len);
    let kind = match (info.is_arena, info.writable) {
        (true, _) => BLOCK_ARENA,
        (false, true) => BLOCK_WRITABLE,
        (false, false) => BLOCK_READ_ONLY,
    };
    writer.put_u32(kind);
    writer.packet
}

/// Encodes the packet that withdraws a block.
pub(crate) fn encode_release(block: u64) -> Bytes {
    let mut writer = Writer::new(KIND_RELEASE);
    writer.put_u64(block);
    writer.packet
}

/// Encodes the packet that passes a chunk of the key table.
pub(crate) fn encode_keys(chunk: u32) -> Bytes {
    let mut writer = Writer::new(KIND_KEYS);
    writer.put_u32(chunk);
    writer.packet
}

/// Encodes the packet that aborts a message after its RTS.
pub(crate) fn encode_abort(msg_id: u32, errno: Errno) -> Bytes {
    let mut writer = Writer::new(KIND_ABORT);
    writer.put_u32(msg_id);
    writer.put_u32(errno.as_raw() as u32);
    writer.packet
}

/// Encodes the packet that wakes a parked endpoint.
pub(crate) fn encode_wake() -> Bytes {
    Writer::new(KIND_WAKE).packet
}

/// Encodes the packet that requests an endpoint's nonce and passes this endpoint's nonce and name.
pub(crate) fn encode_key_request(nonce: &Block, name: &Name) -> Bytes {
    let mut writer = Writer::new(KIND_KEY_REQUEST);
    writer.put_bytes(nonce);
    writer.put_text(name.as_str().as_bytes());
    writer.packet
}

/// Encodes the response to a key request.
pub(crate) fn encode_nonce(nonce: &Block) -> Bytes {
    let mut writer = Writer::new(KIND_NONCE);
    writer.put_bytes(nonce);
    writer.packet
}

/// Encodes the proof of the authorization key.
pub(crate) fn encode_proof(proof: &Block) -> Bytes {
    let mut writer = Writer::new(KIND_PROOF);
    writer.put_bytes(proof);
    writer.packet
}

/// Encodes a refusal, with its text truncated to `REASON_MAX` bytes.
#[expect(
    clippy::indexing_slicing,
    reason = "a local text, cut at a character boundary"
)]
pub(crate) fn encode_refusal(error: &Error) -> Bytes {
    let mut writer = Writer::new(KIND_REFUSAL);
    writer.put_u32(error.errno().as_raw() as u32);
    let reason = error.message();
    writer.put_text(&reason.as_bytes()[..reason.floor_char_boundary(REASON_MAX)]);
    writer.packet
}

/// Parses a packet with the descriptors that it carries.
///
/// # Errors
/// [`Errno::Proto`] for a malformed packet; the descriptors are closed then.
pub(crate) fn parse(bytes: &[u8], fds: Vec<OwnedFd>) -> Result<Packet, Error> {
    let mut reader = Reader { bytes };
    if reader.get_u64()? != MAGIC {
        return Err(malformed("its first word"));
    }
    let version = reader.get_u32()?;
    if version != VERSION {
        let reason = format!("a peer has protocol version {version}, this endpoint {VERSION}");
        return Err(Error::new(Errno::Proto, reason));
    }
    let kind = reader.get_u32()?;
    let mut fds = fds.into_iter();
    let mut fd = || {
        fds.next()
            .ok_or_else(|| malformed("the number of its descriptors"))
    };
    match kind {
        KIND_HELLO => Ok(Packet::Hello(ReceivedHello {
            hello: Hello::decode(&mut reader)?,
            region: fd()?,
            bell: fd()?,
        })),
        KIND_BOUNCE => Ok(Packet::Bounce {
            segment_count: reader.get_u32()?,
            segment_size: reader.get_u32()?,
            fd: fd()?,
        }),
        KIND_BLOCK => {
            let (block, base, len) = (reader.get_u64()?, reader.get_u64()?, reader.get_u64()?);
            let kind = reader.get_u32()?;
            if kind > BLOCK_ARENA {
                return Err(malformed("the kind of its block"));
            }
            let info = BlockInfo {
                block,
                base,
                len,
                writable: kind == BLOCK_WRITABLE,
                is_arena: kind == BLOCK_ARENA,
            };
            Ok(Packet::Block { info, fd: fd()? })
        }
        KIND_RELEASE => Ok(Packet::Release {
            block: reader.get_u64()?,
        }),
        KIND_KEYS => Ok(Packet::Keys {
            chunk: reader.get_u32()?,
            fd: fd()?,
        }),
        KIND_ABORT => Ok(Packet::Abort {
            msg_id: reader.get_u32()?,
            errno: reader.get_errno()?,
        }),
        KIND_WAKE => Ok(Packet::Wake),
        KIND_KEY_REQUEST => Ok(Packet::KeyRequest {
            nonce: reader.get_array()?,
            name: reader.get_name()?,
        }),
        KIND_NONCE => Ok(Packet::Nonce(reader.get_array()?)),
        KIND_PROOF => Ok(Packet::Proof(reader.get_array()?)),
        KIND_REFUSAL => Ok(Packet::Refusal {
            errno: reader.get_errno()?,
            reason: printable(reader.get_text(REASON_MAX)?),
        }),
        _ => Err(malformed("its kind")),
    }
}

/// Returns the number of descriptors that a well-formed packet with this head carries.
pub(crate) fn descriptor_count(head: &[u8]) -> usize {
    let kind = head.split_last_chunk().map(|(_, kind)| *kind);
    match kind.map(u32::from_le_bytes) {
        Some(KIND_HELLO) => 2,
        Some(KIND_BOUNCE | KIND_BLOCK | KIND_KEYS) => 1,
        _ => 0,
    }
}

/// Replaces the control characters in a text of a peer, for the log.
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
        let mut writer = Self {
            packet: [0; SIZE],
            len: 0,
        };
        writer.put_u64(MAGIC);
        writer.put_u32(VERSION);
        writer.put_u32(kind);
        writer
    }

    fn put_u32(&mut self, value: u32) {
        self.put_bytes(&value.to_le_bytes());
    }

    fn put_u64(&mut self, value: u64) {
        self.put_bytes(&value.to_le_bytes());
    }

    fn put_text(&mut self, text: &[u8]) {
        self.put_u32(text.len() as u32);
        self.put_bytes(text);
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "a local packet, which has room for all its fields"
    )]
    fn put_bytes(&mut self, bytes: &[u8]) {
        self.packet[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    fn get_slice(&mut self, len: usize) -> Result<&'a [u8], Error> {
        let (head, rest) = self
            .bytes
            .split_at_checked(len)
            .ok_or_else(|| malformed("its length"))?;
        self.bytes = rest;
        Ok(head)
    }

    fn get_array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (head, rest) = self
            .bytes
            .split_first_chunk()
            .ok_or_else(|| malformed("its length"))?;
        self.bytes = rest;
        Ok(*head)
    }

    fn get_u32(&mut self) -> Result<u32, Error> {
        self.get_array().map(u32::from_le_bytes)
    }

    fn get_u64(&mut self) -> Result<u64, Error> {
        self.get_array().map(u64::from_le_bytes)
    }

    fn get_errno(&mut self) -> Result<Errno, Error> {
        self.get_u32()
            .map(|raw| Errno::from_raw(i32::try_from(raw).unwrap_or(0)))
    }

    fn get_name(&mut self) -> Result<Name, Error> {
        let text = std::str::from_utf8(self.get_text(NAME_MAX)?);
        Name::plain(text.map_err(|_| malformed("its name"))?)
    }

    fn get_text(&mut self, max: usize) -> Result<&'a [u8], Error> {
        let len = self.get_u32()? as usize;
        if len > max {
            return Err(malformed("the length of a text"));
        }
        self.get_slice(len)
    }
}

fn malformed(field: &str) -> Error {
    Error::new(
        Errno::Proto,
        format!("a peer's packet was refused: {field} is malformed"),
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
            incarnation_id: 0x1234_5678_9abc_def0_1122_3344_5566_7788,
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
        let Packet::Hello(decoded) = parse(&hello().encode(), fds()).unwrap() else {
            panic!("not a hello")
        };
        assert_eq!(decoded.hello, hello());
    }

    #[test]
    fn a_block_survives_the_wire() {
        let info = BlockInfo {
            block: 1 << 40,
            base: 0x7fff_0000_1000,
            len: 1 << 33,
            writable: true,
            is_arena: false,
        };
        let Packet::Block { info: decoded, .. } = parse(&encode_block(&info), fds()).unwrap()
        else {
            panic!("not a block")
        };
        assert_eq!(decoded, info);
    }

    #[test]
    fn an_arena_survives_the_wire_and_other_kinds_of_blocks_are_refused() {
        let info = BlockInfo {
            block: 3,
            base: 1 << 26,
            len: 1 << 26,
            writable: false,
            is_arena: true,
        };
        let packet = encode_block(&info);
        let Packet::Block { info: decoded, .. } = parse(&packet, fds()).unwrap() else {
            panic!("not a block")
        };
        assert_eq!(decoded, info);
        let mut unknown = packet;
        unknown[HEAD + 24] = 3;
        assert_eq!(parse(&unknown, fds()).unwrap_err().errno(), Errno::Proto);
    }

    #[test]
    fn a_key_request_a_nonce_and_a_proof_survive_the_wire() {
        let (word, longest) = ([7; 32], Name::plain(&"n".repeat(NAME_MAX)).unwrap());
        let decoded = parse(&encode_key_request(&word, &longest), Vec::new());
        let Packet::KeyRequest { nonce, name } = decoded.unwrap() else {
            panic!("not a key request")
        };
        assert_eq!((nonce, name), (word, longest));
        let decoded = [encode_nonce(&word), encode_proof(&word)];
        let decoded = decoded.map(|packet| parse(&packet, Vec::new()).unwrap());
        assert!(matches!(decoded, [Packet::Nonce(a), Packet::Proof(b)] if [a, b] == [word; 2]));
    }

    #[test]
    fn the_longest_name_fits_into_a_hello() {
        let mut longest = hello();
        longest.name = Name::plain(&"n".repeat(NAME_MAX)).unwrap();
        let Packet::Hello(decoded) = parse(&longest.encode(), fds()).unwrap() else {
            panic!("not a hello")
        };
        assert_eq!(decoded.hello, longest);
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
    fn the_head_of_a_packet_gives_its_number_of_descriptors() {
        let table = [
            (hello().encode(), 2),
            (encode_bounce(1, 1), 1),
            (
                encode_block(&BlockInfo {
                    block: 1,
                    base: 0,
                    len: 1,
                    writable: false,
                    is_arena: false,
                }),
                1,
            ),
            (encode_keys(0), 1),
            (encode_release(1), 0),
            (encode_wake(), 0),
        ];
        for (packet, count) in table {
            assert_eq!(descriptor_count(&packet[..HEAD]), count, "{packet:?}");
        }
        assert_eq!(descriptor_count(&[]), 0);
    }

    #[test]
    fn a_hello_without_its_descriptors_is_refused() {
        assert!(parse(&hello().encode(), Vec::new()).is_err());
    }

    #[test]
    fn the_error_for_another_version_contains_its_number() {
        let mut packet = hello().encode();
        packet[8] = 99;
        let error = parse(&packet, fds()).unwrap_err().to_string();
        assert!(error.contains("99"), "{error}");
    }

    #[test]
    fn a_refusal_is_truncated_and_has_no_control_characters() {
        let error = Error::new(Errno::Busy, format!("no\x1b[{}", "\u{fc}".repeat(200)));
        let Packet::Refusal { errno, reason } = parse(&encode_refusal(&error), Vec::new()).unwrap()
        else {
            panic!("not a refusal")
        };
        assert_eq!(errno, Errno::Busy);
        assert!(
            reason.starts_with("no?[\u{fc}") && reason.ends_with('\u{fc}'),
            "{reason}"
        );
    }
}
