//! Large messages of a peer, from the offer to the last byte, and where their bytes lie in its memory.

use std::mem::MaybeUninit;

use selvedge_kit::copy::TxBuf;

use super::into::Into;
use crate::memory::special::{Blocks, Special};
use crate::smr::bounce::Filled;
use crate::smr::bytes::Bytes;
use crate::transfers::choice::{Watch, Way};
use crate::transfers::cmd::{IOV_LIMIT, Nonsense};

/// Bytes of one entry of a list of pieces: address, length, block of special memory.
pub(crate) const ENTRY: usize = 24;

/// A large message of a peer, from its offer to its end.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(super) pieces: Pieces,
    /// Unasked segments that have not been seen yet.
    pub(crate) eager: u32,
    /// Segments that came before it was known whether they are needed.
    pub(crate) kept: Vec<Filled>,
    pub(crate) stage: Stage,
}

/// How far a large message is.
#[derive(Debug)]
pub(crate) enum Stage {
    /// No receive was posted for it.
    Unmatched,
    /// On its way into a receive.
    Moving(Moving),
    /// Received another way; unasked segments are still to come.
    Discarding,
}

/// A message on its way into a receive.
#[derive(Debug)]
pub(crate) struct Moving {
    pub(crate) into: Into,
    /// Bytes of the message.
    pub(crate) len: usize,
    pub(crate) way: Way,
    /// Bytes of the message that have passed, those that did not fit included.
    pub(crate) done: usize,
    /// Runs where the way was chosen among several.
    pub(super) watch: Option<Watch>,
}

/// Where a message lies in the sender's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pieces {
    pub(crate) count: usize,
    pub(super) list: [Piece; IOV_LIMIT],
}

/// A stretch of the sender's memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Piece {
    pub(super) addr: u64,
    pub(super) len: u64,
    /// The block of special memory that it lies in; 0 for none.
    pub(super) block: u64,
}

impl Pieces {
    /// No pieces: the bytes are not copied from there.
    pub(super) fn none() -> Self {
        Self {
            count: 0,
            list: [Piece::default(); IOV_LIMIT],
        }
    }

    pub(crate) fn of(buf: &TxBuf, special: &Special) -> Self {
        let mut pieces = Self {
            count: 0,
            list: [Piece::default(); IOV_LIMIT],
        };
        for piece in buf.segments(0, buf.len()) {
            let (addr, len) = (
                piece.as_ptr().expose_provenance() as u64,
                piece.len() as u64,
            );
            let block = special.block_of(addr, len).unwrap_or(0);
            pieces.list[pieces.count] = Piece { addr, len, block };
            pieces.count += 1;
        }
        pieces
    }

    /// Whether all of them lie in special memory.
    pub(crate) fn are_special(&self) -> bool {
        self.list[..self.count].iter().all(|piece| piece.block != 0)
    }

    /// Whether all of them lie in special memory that is mapped here.
    pub(super) fn are_mapped(&self, blocks: &Blocks) -> bool {
        let mut pieces = self.list[..self.count].iter();
        pieces.all(|piece| blocks.find(piece.block, piece.addr, piece.len).is_some())
    }

    /// Writes the list to the inject pool.
    pub(crate) fn put(&self, payload: &Bytes, place: usize) {
        for (index, piece) in self.list[..self.count].iter().enumerate() {
            let words = [piece.addr, piece.len, piece.block];
            put_words(payload, place + index * ENTRY, words);
        }
    }

    /// Reads a list out of the inject pool.
    pub(crate) fn get(
        payload: &Bytes,
        at: usize,
        count: usize,
        len: usize,
    ) -> Result<Self, Nonsense> {
        let mut list = [Piece::default(); IOV_LIMIT];
        let mut sum = 0_u64;
        for (index, piece) in list[..count].iter_mut().enumerate() {
            let [addr, len, block] = words_at(payload, at + index * ENTRY);
            *piece = Piece { addr, len, block };
            sum = sum.checked_add(piece.len).ok_or(Nonsense("piece length"))?;
        }
        if sum != len as u64 {
            return Err(Nonsense("pieces that do not add up"));
        }
        Ok(Self { count, list })
    }

    /// The stretch of the sender's memory that begins `offset` bytes into the message.
    pub(super) fn at(&self, mut offset: u64) -> Option<Piece> {
        for piece in &self.list[..self.count] {
            if offset < piece.len {
                return Some(Piece {
                    addr: piece.addr.checked_add(offset)?,
                    len: piece.len - offset,
                    block: piece.block,
                });
            }
            offset -= piece.len;
        }
        None
    }
}

/// One entry of a list.
pub(crate) fn put_words(payload: &Bytes, at: usize, words: [u64; 3]) {
    payload.copy_in(at, words.map(u64::to_le_bytes).as_flattened());
}

/// One entry of a list.
pub(crate) fn words_at(payload: &Bytes, at: usize) -> [u64; 3] {
    let mut bytes = [MaybeUninit::uninit(); ENTRY];
    let bytes: &[u8] = payload.copy_out(at, &mut bytes);
    let (words, _) = bytes.as_chunks::<8>();
    [0, 1, 2].map(|word| u64::from_le_bytes(words[word]))
}
