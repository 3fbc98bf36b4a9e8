//! Inline protocol: the message is inside the command.

use selvedge_kit::copy::{RxBuf, TxBuf};

use crate::smr::cmd_queue::{Received, Slot};
use crate::transfers::cmd::{Header, INLINE_MAX};

const WORDS: usize = INLINE_MAX / 8;

/// Copies the message into a command. The caller has checked that it fits, and reserved a slot.
/// Most messages of eight bytes take `crate::endpoint::send::send_word` instead.
#[inline]
pub(crate) fn send(slot: Slot<'_>, header: &Header, buf: &TxBuf) {
    header.commit_inline(slot, buf.len(), |slot, first| {
        buf.read_words(|index, word| slot.put(first + index, word));
    });
}

/// Copies `len` bytes, from word `word` of the command on, to the receive's buffer. Returns the
/// number that fitted.
#[inline(always)]
pub(crate) fn receive(slot: &Received<'_>, word: usize, len: usize, buf: &mut RxBuf) -> usize {
    match len {
        8 => buf.write_word(slot.word(word)),
        _ => scatter(slot, word, len, buf),
    }
}

/// As [`receive`], from words that were loaded before.
pub(crate) fn receive_words(words: &[u64], len: usize, buf: &mut RxBuf) -> usize {
    buf.write_words(len, |index| words.get(index).copied().unwrap_or(0))
}

#[inline(never)]
fn scatter(slot: &Received<'_>, word: usize, len: usize, buf: &mut RxBuf) -> usize {
    buf.write_words(len, |index| slot.word(word + index))
}

/// Copies the payload of an unexpected message to the heap.
pub(crate) fn copy_to_heap(slot: &Received<'_>, word: usize, len: usize) -> Box<[u8]> {
    payload(slot, word, len).as_flattened()[..len].into()
}

/// Up to eight bytes as a word of a command.
#[inline]
pub(crate) fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_ne_bytes(word)
}

fn payload(slot: &Received<'_>, word: usize, len: usize) -> [[u8; 8]; WORDS] {
    let mut bytes = [[0; 8]; WORDS];
    for (index, bytes) in bytes[..len.div_ceil(8)].iter_mut().enumerate() {
        *bytes = slot.word(word + index).to_ne_bytes();
    }
    bytes
}
