//! Inline: the message is in the command.

use selvedge::Result;
use selvedge_kit::copy::{RxBuf, TxBuf};

use crate::cmd::{Header, INLINE_MAX};
use crate::peer::Peer;
use crate::smr::cmd_queue::Received;

const WORDS: usize = INLINE_MAX / 8;

/// Puts the message into a command. The caller has checked that it fits.
#[inline]
pub(crate) fn send(peer: &mut Peer, header: &Header, buf: &TxBuf) -> Result {
    peer.reserve(0)?;
    let len = buf.len();
    let mut words = [0; WORDS];
    match len {
        8 => words[0] = buf.word(),
        _ => gather(buf, &mut words),
    }
    header.commit_inline(peer.slot(), &words, len);
    Ok(())
}

fn gather(buf: &TxBuf, words: &mut [u64; WORDS]) {
    let mut bytes = [[0; 8]; WORDS];
    buf.read(0, &mut bytes.as_flattened_mut()[..buf.len()]);
    *words = bytes.map(u64::from_ne_bytes);
}

/// Copies `len` bytes, from word `word` of the command on, to where they belong. Says how many
/// fitted.
#[inline]
pub(crate) fn receive(slot: &Received<'_>, word: usize, len: usize, buf: &mut RxBuf) -> usize {
    match len {
        8 => buf.write_word(slot.word(word)),
        _ => buf.write(0, &payload(slot, word, len).as_flattened()[..len]),
    }
}

/// The payload of a command whose message has to wait.
pub(crate) fn keep(slot: &Received<'_>, word: usize, len: usize) -> Box<[u8]> {
    payload(slot, word, len).as_flattened()[..len].into()
}

fn payload(slot: &Received<'_>, word: usize, len: usize) -> [[u8; 8]; WORDS] {
    let mut bytes = [[0; 8]; WORDS];
    for (index, bytes) in bytes[..len.div_ceil(8)].iter_mut().enumerate() {
        *bytes = slot.word(word + index).to_ne_bytes();
    }
    bytes
}
