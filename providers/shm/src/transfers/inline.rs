//! Inline protocol: the message is inside the command.

use selvedge_kit::copy::{RxBuf, TxBuf};

use crate::smr::cmd_queue::{Received, Slot};
use crate::transfers::cmd::{Header, INLINE_MAX};

/// The number of words of the longest payload.
const PAYLOAD_WORDS: usize = INLINE_MAX / 8;

/// Copies the message into a command and commits it. The caller has checked that the message fits,
/// and has claimed the slot. `crate::endpoint::send::send_word` sends most messages of eight bytes
/// instead.
#[inline]
pub(crate) fn send(slot: Slot<'_>, header: &Header, buf: &TxBuf) {
    header.commit_inline(slot, buf.len(), |slot, first| {
        buf.read_words(|index, word| slot.put(first + index, word));
    });
}

/// Copies `len` bytes, from word `word` of the command on, to the buffer of a receive. Returns the
/// number of bytes that fit.
#[inline(always)]
pub(crate) fn receive(slot: &Received<'_>, word: usize, len: usize, buf: &mut RxBuf) -> usize {
    match len {
        8 => buf.write_word(slot.word(word)),
        _ => scatter(slot, word, len, buf),
    }
}

/// As [`receive`], from words that the caller has loaded.
pub(crate) fn receive_words(words: &[u64], len: usize, buf: &mut RxBuf) -> usize {
    buf.write_words(len, |index| words.get(index).copied().unwrap_or(0))
}

#[inline(never)]
fn scatter(slot: &Received<'_>, word: usize, len: usize, buf: &mut RxBuf) -> usize {
    buf.write_words(len, |index| slot.word(word + index))
}

/// Copies the payload of an unexpected message to the heap.
pub(crate) fn copy_to_heap(slot: &Received<'_>, word: usize, len: usize) -> Box<[u8]> {
    load_payload(slot, word, len).as_flattened()[..len].into()
}

/// Converts up to eight bytes to a word of a command.
#[inline]
pub(crate) fn to_word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_ne_bytes(word)
}

/// Loads the payload of `len` bytes from word `word` of the command on.
fn load_payload(slot: &Received<'_>, word: usize, len: usize) -> [[u8; 8]; PAYLOAD_WORDS] {
    let mut bytes = [[0; 8]; PAYLOAD_WORDS];
    for (index, bytes) in bytes[..len.div_ceil(8)].iter_mut().enumerate() {
        *bytes = slot.word(word + index).to_ne_bytes();
    }
    bytes
}
