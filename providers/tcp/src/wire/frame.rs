//! Frames of the tcp protocol. A frame consists of a header (16 fixed bytes and a few 64-bit words)
//! and a payload.
//!
//! [`header_len`] reads the length of a header, [`Header::parse`] the header itself; the payload
//! follows. This module checks that the lengths in a header agree. The connection checks whether
//! its state permits the frame.

use selvedge::atomic::RmaIoc;
use selvedge::rma::RmaIov;
use selvedge_kit::segments::{RMA_IOV_LIMIT, RmaSegments};
use selvedge_kit::srx::Kind;

use super::{ByteOrder, ProtocolError, byte_at, bytes_at};

/// The length of the fixed part of every header.
pub(crate) const BASE_LEN: usize = 16;
/// The longest header in bytes. Only an atomic, which libfabric does not have, exceeds
/// [`LIBFABRIC_HEADER_MAX`].
pub(crate) const HEADER_MAX: usize = 128;
/// The longest header of libfabric in bytes.
const LIBFABRIC_HEADER_MAX: usize = 120;
/// The length of a header is a multiple of this.
pub(crate) const HEADER_LEN_UNIT: usize = 8;
const VERSION: u8 = 3;

const OP_MSG: u8 = 0;
const OP_TAGGED: u8 = 1;
const OP_READ_REQUEST: u8 = 2;
const OP_READ_RESPONSE: u8 = 3;
const OP_WRITE: u8 = 4;
const OP_RTS: u8 = 5;
const OP_CTS: u8 = 6;
const OP_DATA: u8 = 7;
// Only between Selvedge endpoints.
const OP_ACK_STATUS: u8 = 0x80;
const OP_READ_ERROR: u8 = 0x81;
const OP_ATOMIC: u8 = 0x82;
const OP_ATOMIC_RESULT: u8 = 0x83;
const OP_READ_END: u8 = 0x84;

/// The `op_data` of a message that is an acknowledgement.
const ACK: u8 = 2;
/// The `op_data` of a read response that is followed by a [`Header::ReadEnd`]; only between
/// Selvedge endpoints.
const CHECKED: u8 = 1;

const FLAG_DATA: u16 = 1;
const FLAG_DELIVERY: u16 = 1 << 2;
const FLAG_COMMIT: u16 = 1 << 3;
/// Between Selvedge endpoints: acknowledge when a receive has taken the message.
const FLAG_RECEIVED: u16 = 1 << 4;

/// When the receiver acknowledges a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AckPolicy {
    Never,
    /// When the message's bytes have arrived. libfabric has only this policy.
    OnArrival,
    /// When a receive has taken the message.
    OnReceive,
}

/// The content of a header.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Header {
    /// A message; its bytes follow.
    Message {
        kind: Kind,
        tag: u64,
        data: Option<u64>,
        ack: AckPolicy,
        len: usize,
    },
    /// Acknowledges the oldest unacknowledged frame.
    Ack,
    ReadRequest {
        segments: RmaSegments,
    },
    /// Response to the oldest read; the data follow. If `is_checked`, a [`Header::ReadEnd`] follows
    /// the data and completes the read.
    ReadResponse {
        len: usize,
        is_checked: bool,
    },
    /// Reports whether the memory that was read stayed registered until the end of the preceding
    /// read response.
    ReadEnd {
        status: u32,
    },
    Write {
        segments: RmaSegments,
        data: Option<u64>,
        wants_ack: bool,
    },
    /// Ready to send: a tagged message whose bytes the receiver requests with a CTS.
    Rts {
        id: u8,
        tag: u64,
        data: Option<u64>,
        wants_ack: bool,
        len: usize,
    },
    /// Clear to send: requests the bytes of an RTS.
    Cts {
        id: u8,
    },
    /// The bytes of an RTS, after a CTS.
    Data {
        id: u8,
        wants_ack: bool,
        len: usize,
    },
    /// Acknowledges a frame with a status. `number` is the frame's number among the frames of the
    /// connection that request an acknowledgement.
    AckStatus {
        number: u64,
        status: u32,
    },
    /// Error response to the oldest read.
    ReadError {
        status: u32,
    },
    Atomic {
        operation: u64,
        data: Option<u64>,
        targets: Vec<RmaIoc>,
        len: usize,
    },
    /// Response to the oldest atomic; the fetched values follow.
    AtomicResult {
        status: u32,
        len: usize,
    },
}

/// Returns the length of the header that begins with these [`BASE_LEN`] bytes.
///
/// # Errors
/// When the length is invalid, or the frame would end within its header.
pub(crate) fn header_len(base: &[u8], order: ByteOrder) -> Result<usize, ProtocolError> {
    let [op, len] = [1, 6].map(|at| byte_at(base, at));
    let len = usize::from(len);
    let max = match op {
        OP_ATOMIC => HEADER_MAX,
        _ => LIBFABRIC_HEADER_MAX,
    };
    if !(BASE_LEN..=max).contains(&len) || !len.is_multiple_of(8) {
        return Err(ProtocolError("a header of invalid length"));
    }
    if order.u64(bytes_at(base, 8)) < len as u64 {
        Err(ProtocolError("a frame shorter than its header"))
    } else {
        Ok(len)
    }
}

/// Reads the words after the fixed part of a header.
struct WordReader<'a> {
    rest: &'a [u8],
    order: ByteOrder,
}

impl WordReader<'_> {
    fn next(&mut self) -> Result<u64, ProtocolError> {
        let (word, rest) = self
            .rest
            .split_first_chunk()
            .ok_or(ProtocolError("a header that is too short for its fields"))?;
        self.rest = rest;
        Ok(self.order.u64(*word))
    }

    fn next_len(&mut self) -> Result<usize, ProtocolError> {
        checked_len(self.next()?)
    }

    fn segments(&mut self, count: u8, may_be_empty: bool) -> Result<RmaSegments, ProtocolError> {
        let count = usize::from(count);
        let mut list = [EMPTY_SEGMENT; RMA_IOV_LIMIT];
        let Some(list) = list.get_mut(..count) else {
            return Err(ProtocolError("a list of too many segments"));
        };
        for segment in &mut *list {
            segment.addr = self.next()?;
            segment.len = self.next_len()?;
            segment.key = self.next()?;
        }
        if list.is_empty() && may_be_empty {
            return Ok(RmaSegments::one(EMPTY_SEGMENT));
        }
        RmaSegments::new(list)
            .map_err(|_| ProtocolError("a list of segments whose total length overflows"))
    }

    fn targets(&mut self, count: u8) -> Result<Vec<RmaIoc>, ProtocolError> {
        if !(1..=RMA_IOV_LIMIT).contains(&usize::from(count)) {
            return Err(ProtocolError("a list of targets that is empty or too long"));
        }
        let mut target = || {
            Ok(RmaIoc {
                addr: self.next()?,
                count: self.next_len()?,
                key: self.next()?,
            })
        };
        (0..count).map(|_| target()).collect()
    }
}

const EMPTY_SEGMENT: RmaIov = RmaIov {
    addr: 0,
    len: 0,
    key: 0,
};

fn checked_len(len: u64) -> Result<usize, ProtocolError> {
    let len = usize::try_from(len).ok();
    len.filter(|&len| len <= isize::MAX as usize)
        .ok_or(ProtocolError("a length beyond the address space"))
}

impl Header {
    /// Parses a header of the length that [`header_len`] returned. `has_extensions` says whether
    /// the peer may use Selvedge's extensions.
    ///
    /// # Errors
    /// The first violation of the protocol.
    pub(crate) fn parse(
        header: &[u8],
        order: ByteOrder,
        has_extensions: bool,
    ) -> Result<Self, ProtocolError> {
        let [op, op_data, count] = [1, 4, 5].map(|at| byte_at(header, at));
        let flags = order.u16(bytes_at(header, 2));
        let frame_len = order.u64(bytes_at(header, 8));
        let len = frame_len.checked_sub(header.len() as u64);
        let len = checked_len(len.ok_or(ProtocolError("a frame shorter than its header"))?)?;
        let mut words = WordReader {
            rest: header.get(BASE_LEN..).unwrap_or_default(),
            order,
        };
        let wants_ack = flags & (FLAG_DELIVERY | FLAG_COMMIT) != 0;
        let ack = if !wants_ack {
            AckPolicy::Never
        } else if has_extensions && flags & FLAG_RECEIVED != 0 {
            AckPolicy::OnReceive
        } else {
            AckPolicy::OnArrival
        };
        let mut data = || {
            let has_data = flags & FLAG_DATA != 0;
            has_data.then(|| words.next()).transpose()
        };
        let header = match op {
            OP_MSG if op_data == ACK => Self::Ack,
            OP_MSG => Self::Message {
                kind: Kind::Msg,
                data: data()?,
                tag: 0,
                ack,
                len,
            },
            OP_TAGGED => Self::Message {
                kind: Kind::Tagged,
                data: data()?,
                tag: words.next()?,
                ack,
                len,
            },
            OP_READ_REQUEST => Self::ReadRequest {
                segments: words.segments(count, true)?,
            },
            OP_READ_RESPONSE => Self::ReadResponse {
                len,
                is_checked: has_extensions && op_data == CHECKED,
            },
            OP_WRITE => Self::Write {
                data: data()?,
                segments: words.segments(count, len == 0)?,
                wants_ack,
            },
            OP_RTS => Self::Rts {
                id: op_data,
                data: data()?,
                tag: words.next()?,
                len: words.next_len()?,
                wants_ack,
            },
            OP_CTS => Self::Cts { id: op_data },
            OP_DATA => Self::Data {
                id: op_data,
                wants_ack,
                len,
            },
            OP_ACK_STATUS if has_extensions => Self::AckStatus {
                number: words.next()?,
                status: status(words.next()?)?,
            },
            OP_READ_END if has_extensions => Self::ReadEnd {
                status: status(words.next()?)?,
            },
            OP_READ_ERROR if has_extensions => Self::ReadError {
                status: status(words.next()?)?,
            },
            OP_ATOMIC if has_extensions => Self::Atomic {
                data: data()?,
                operation: words.next()?,
                targets: words.targets(count)?,
                len,
            },
            OP_ATOMIC_RESULT if has_extensions => Self::AtomicResult {
                status: status(words.next()?)?,
                len,
            },
            _ => return Err(ProtocolError("a frame of unknown type")),
        };
        if header.payload_len() == len {
            Ok(header)
        } else {
            Err(ProtocolError(
                "a payload whose length differs from its segments",
            ))
        }
    }

    /// The length of the payload in bytes.
    pub(crate) fn payload_len(&self) -> usize {
        match self {
            Self::Message { len, .. }
            | Self::ReadResponse { len, .. }
            | Self::Data { len, .. }
            | Self::Atomic { len, .. }
            | Self::AtomicResult { len, .. } => *len,
            Self::Write { segments, .. } => segments.len(),
            Self::Ack
            | Self::ReadRequest { .. }
            | Self::Rts { .. }
            | Self::Cts { .. }
            | Self::AckStatus { .. }
            | Self::ReadEnd { .. }
            | Self::ReadError { .. } => 0,
        }
    }

    /// Whether this frame itself requests an acknowledgement. An RTS does not: its `wants_ack` is
    /// passed on to the [`Header::Data`] that follows it.
    pub(crate) fn wants_ack(&self) -> bool {
        match self {
            Self::Message { ack, .. } => *ack != AckPolicy::Never,
            Self::Write { wants_ack, .. } | Self::Data { wants_ack, .. } => *wants_ack,
            _ => false,
        }
    }

    /// Appends the header to `out`. `number` is the frame's number in its direction, modulo 256;
    /// debug builds of libfabric check it.
    #[expect(
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        reason = "the fixed part was just appended, and the lengths are this endpoint's own"
    )]
    pub(crate) fn encode(&self, order: ByteOrder, number: u8, out: &mut Vec<u8>) {
        let start = out.len();
        let (op, op_data, count) = self.codes();
        out.extend([VERSION, op]);
        out.extend(order.put_u16(self.flags()));
        out.extend([op_data, count, 0, number]);
        out.extend([0; 8]);
        let mut put = |word: u64| out.extend(order.put_u64(word));
        match self {
            Self::Message {
                kind, tag, data, ..
            } => {
                data.iter().for_each(|&word| put(word));
                if *kind == Kind::Tagged {
                    put(*tag);
                }
            }
            Self::Rts { tag, data, len, .. } => {
                data.iter().for_each(|&word| put(word));
                put(*tag);
                put(*len as u64);
            }
            Self::ReadRequest { segments } => put_segments(segments, put),
            Self::Write { segments, data, .. } => {
                data.iter().for_each(|&word| put(word));
                put_segments(segments, put);
            }
            Self::AckStatus { number, status } => {
                put(*number);
                put(u64::from(*status));
            }
            Self::ReadError { status }
            | Self::ReadEnd { status }
            | Self::AtomicResult { status, .. } => {
                put(u64::from(*status));
            }
            Self::Atomic {
                operation,
                data,
                targets,
                ..
            } => {
                data.iter().for_each(|&word| put(word));
                put(*operation);
                for target in targets {
                    [target.addr, target.count as u64, target.key]
                        .into_iter()
                        .for_each(&mut put);
                }
            }
            Self::Ack | Self::ReadResponse { .. } | Self::Cts { .. } | Self::Data { .. } => {}
        }
        let len = out.len() - start;
        out[start + 6] = u8::try_from(len).unwrap_or(u8::MAX);
        let frame_len = (len + self.payload_len()) as u64;
        out[start + 8..start + 16].copy_from_slice(&order.put_u64(frame_len));
    }

    /// The operation code, its `op_data`, and the number of segments or targets.
    fn codes(&self) -> (u8, u8, u8) {
        match self {
            Self::Message {
                kind: Kind::Msg, ..
            } => (OP_MSG, 0, 0),
            Self::Message { .. } => (OP_TAGGED, 0, 0),
            Self::Ack => (OP_MSG, ACK, 0),
            Self::ReadRequest { segments } => (OP_READ_REQUEST, 0, segments.all().len() as u8),
            Self::ReadResponse { is_checked, .. } => {
                let op_data = if *is_checked { CHECKED } else { 0 };
                (OP_READ_RESPONSE, op_data, 0)
            }
            Self::ReadEnd { .. } => (OP_READ_END, 0, 0),
            Self::Write { segments, .. } => (OP_WRITE, 0, segments.all().len() as u8),
            Self::Rts { id, .. } => (OP_RTS, *id, 0),
            Self::Cts { id } => (OP_CTS, *id, 0),
            Self::Data { id, .. } => (OP_DATA, *id, 0),
            Self::AckStatus { .. } => (OP_ACK_STATUS, 0, 0),
            Self::ReadError { .. } => (OP_READ_ERROR, 0, 0),
            Self::Atomic { targets, .. } => (OP_ATOMIC, 0, targets.len() as u8),
            Self::AtomicResult { .. } => (OP_ATOMIC_RESULT, 0, 0),
        }
    }

    fn flags(&self) -> u16 {
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let (data, wants_ack) = match self {
            Self::Message { data, ack, .. } => {
                let received = flag(*ack == AckPolicy::OnReceive, FLAG_RECEIVED);
                let data = flag(data.is_some(), FLAG_DATA);
                return data | received | flag(*ack != AckPolicy::Never, FLAG_DELIVERY);
            }
            Self::Write {
                data, wants_ack, ..
            }
            | Self::Rts {
                data, wants_ack, ..
            } => (data.is_some(), *wants_ack),
            Self::Data { wants_ack, .. } => (false, *wants_ack),
            Self::Atomic { data, .. } => (data.is_some(), false),
            _ => (false, false),
        };
        flag(data, FLAG_DATA) | flag(wants_ack, FLAG_DELIVERY)
    }
}

/// Sets the padding of an encoded header, whose length without padding is `unpadded_len`, to
/// `padding` zeros, or to none if the header would be too long. Readers skip the padding. libfabric
/// was observed to do so for messages and writes; other headers are padded only if the peer
/// `has_extensions`.
#[expect(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    reason = "the header was encoded by this endpoint and has its fixed part"
)]
pub(crate) fn pad(
    header: &mut Vec<u8>,
    unpadded_len: usize,
    padding: usize,
    order: ByteOrder,
    has_extensions: bool,
) {
    let libfabric_skips_padding = matches!(header[1], OP_MSG | OP_TAGGED | OP_WRITE);
    let padded_len = unpadded_len + padding;
    let is_padded =
        padded_len <= LIBFABRIC_HEADER_MAX && (libfabric_skips_padding || has_extensions);
    let len = if is_padded { padded_len } else { unpadded_len };
    let frame_len = order.u64(bytes_at(header, 8)) - header.len() as u64 + len as u64;
    header.resize(len, 0);
    header[6] = len as u8;
    header[8..16].copy_from_slice(&order.put_u64(frame_len));
}

fn put_segments(segments: &RmaSegments, mut put: impl FnMut(u64)) {
    for segment in segments.all() {
        put(segment.addr);
        put(segment.len as u64);
        put(segment.key);
    }
}

fn status(word: u64) -> Result<u32, ProtocolError> {
    u32::try_from(word).map_err(|_| ProtocolError("an invalid status"))
}

#[cfg(test)]
mod tests;
