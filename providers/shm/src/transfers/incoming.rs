//! Large messages of a peer, from the RTS to the last byte, and the segments of the peer's memory
//! that hold them.

use std::mem::MaybeUninit;

use selvedge_kit::copy::TxBuf;

use super::destination::Destination;
use crate::memory::special::{LastBlock, PeerBlocks};
use crate::provider::shared::Shared;
use crate::smr::bounce::Filled;
use crate::smr::bytes::Bytes;
use crate::transfers::cmd::{IOV_LIMIT, ProtocolError};
use crate::transfers::protocol_selector::{Measurement, RendezvousProtocol};

/// Bytes of one entry of a list of segments: address, length, block of special memory.
pub(crate) const ENTRY_LEN: usize = 24;

/// A large message of a peer, from its RTS to its last byte.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) segments: SourceSegments,
    /// Whether the sender sent another message from the same buffer shortly before.
    pub(crate) is_recent: bool,
    /// The number of eager bounce segments that have not arrived yet.
    pub(crate) eager: u32,
    /// Bounce segments that arrived before the protocol was selected.
    pub(crate) kept: Vec<Filled>,
    pub(crate) stage: Stage,
}

/// The stage of a large message.
#[derive(Debug)]
pub(crate) enum Stage {
    /// No receive has matched the message.
    Unmatched,
    /// The bytes are moving to their destination.
    Moving(Moving),
    /// The message was received by another protocol, and eager bounce segments are still to arrive.
    Discarding,
}

/// A message whose bytes are moving to their destination.
#[derive(Debug)]
pub(crate) struct Moving {
    pub(crate) destination: Destination,
    /// The length of the message in bytes.
    pub(crate) len: usize,
    pub(crate) protocol: RendezvousProtocol,
    /// The number of handled bytes, including bytes that did not fit into the destination.
    pub(crate) done: usize,
    /// The running measurement, if the protocol selector has selected the protocol.
    pub(super) measurement: Option<Measurement>,
}

/// The segments of the sender's memory that hold a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SourceSegments {
    pub(crate) count: usize,
    pub(super) list: [SourceSegment; IOV_LIMIT],
    /// Whether the sender lends the only segment.
    pub(super) is_lent: bool,
}

/// A segment of the sender's memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SourceSegment {
    pub(crate) addr: u64,
    pub(crate) len: u64,
    /// The number of the block of special memory that holds the segment; 0 for none.
    pub(crate) block: u64,
}

impl SourceSegments {
    /// Returns no segments, for bytes that are not copied from the sender's memory.
    pub(super) fn none() -> Self {
        Self {
            count: 0,
            list: [SourceSegment::default(); IOV_LIMIT],
            is_lent: false,
        }
    }

    /// Returns the segments of a buffer, with the blocks of special memory that hold them.
    pub(crate) fn from_buf(buf: &TxBuf, shared: &Shared) -> Self {
        let mut segments = Self {
            count: 0,
            list: [SourceSegment::default(); IOV_LIMIT],
            is_lent: false,
        };
        for segment in buf.segments(0, buf.len()) {
            let (addr, len) = (
                segment.as_ptr().expose_provenance() as u64,
                segment.len() as u64,
            );
            let block = shared.block_of(addr, len).unwrap_or(0);
            segments.list[segments.count] = SourceSegment { addr, len, block };
            segments.count += 1;
        }
        segments
    }

    /// Whether all segments are in special memory.
    pub(crate) fn are_special(&self) -> bool {
        self.list[..self.count]
            .iter()
            .all(|segment| segment.block != 0)
    }

    /// Returns the only segment, if the sender lends it.
    pub(crate) fn lent(&self) -> Option<SourceSegment> {
        self.is_lent.then_some(self.list[0])
    }

    /// Whether all segments are in special memory that this process has mapped.
    pub(super) fn are_mapped(&self, blocks: &PeerBlocks) -> bool {
        let mut segments = self.list[..self.count].iter();
        segments.all(|segment| {
            blocks
                .find_source(segment.block, segment.addr, segment.len)
                .is_some()
        })
    }

    /// Writes the list to the inject pool.
    pub(crate) fn put(&self, payload: &Bytes, offset: usize) {
        for (index, segment) in self.list[..self.count].iter().enumerate() {
            let words = [segment.addr, segment.len, segment.block];
            put_words(payload, offset + index * ENTRY_LEN, words);
        }
    }

    /// Reads a list of `count` segments, with `len` bytes in total, from the inject pool.
    pub(crate) fn get(
        payload: &Bytes,
        offset: usize,
        count: usize,
        len: usize,
    ) -> Result<Self, ProtocolError> {
        let mut list = [SourceSegment::default(); IOV_LIMIT];
        let mut sum = 0_u64;
        for (index, segment) in list[..count].iter_mut().enumerate() {
            let [addr, len, block] = get_words(payload, offset + index * ENTRY_LEN);
            *segment = SourceSegment { addr, len, block };
            sum = sum
                .checked_add(segment.len)
                .ok_or(ProtocolError("sum of segment lengths out of range"))?;
        }
        if sum != len as u64 {
            return Err(ProtocolError(
                "lengths of the segments do not add up to the size",
            ));
        }
        let is_lent = false;
        Ok(Self {
            count,
            list,
            is_lent,
        })
    }

    /// Returns the rest of the segment that holds byte `offset` of the message.
    pub(super) fn segment_from(&self, mut offset: u64) -> Option<SourceSegment> {
        for segment in &self.list[..self.count] {
            if offset < segment.len {
                return Some(SourceSegment {
                    addr: segment.addr.checked_add(offset)?,
                    len: segment.len - offset,
                    block: segment.block,
                });
            }
            offset -= segment.len;
        }
        None
    }
}

/// Returns the only segment of a buffer that peers can map: it is in special memory.
pub(crate) fn lendable_segment(
    buf: &TxBuf,
    shared: &Shared,
    last: &mut LastBlock,
) -> Option<SourceSegment> {
    let mut segments = buf.segments(0, buf.len());
    let (Some(segment), None) = (segments.next(), segments.next()) else {
        return None;
    };
    let (addr, len) = (
        segment.as_ptr().expose_provenance() as u64,
        segment.len() as u64,
    );
    let block = last.block_of(&shared.special, addr, len)?;
    Some(SourceSegment { addr, len, block })
}

/// Writes one entry of a list.
pub(crate) fn put_words(payload: &Bytes, offset: usize, words: [u64; 3]) {
    payload.copy_in(offset, words.map(u64::to_le_bytes).as_flattened());
}

/// Reads one entry of a list.
pub(crate) fn get_words(payload: &Bytes, offset: usize) -> [u64; 3] {
    let mut bytes = [MaybeUninit::uninit(); ENTRY_LEN];
    let bytes: &[u8] = payload.copy_out(offset, &mut bytes);
    let (words, _) = bytes.as_chunks::<8>();
    [0, 1, 2].map(|word| u64::from_le_bytes(words[word]))
}
