//! Short messages as words: a message that fits into a command is loaded and stored without
//! `memcpy`, because the call costs more than the bytes.

#![expect(
    unsafe_code,
    reason = "loads and stores of words in the caller's memory"
)]

use super::{RxBuf, Segments, TxBuf};

const WORD: usize = size_of::<u64>();

impl TxBuf {
    /// The first eight bytes; missing bytes are zero.
    #[inline(always)]
    pub fn word(&self) -> u64 {
        match &self.0 {
            Segments::One(segment) if segment.len >= WORD => {
                // SAFETY: `new`'s caller promised that the segment is valid for reads, and it has
                // eight bytes.
                unsafe { segment.base.cast::<u64>().read_unaligned() }
            }
            _ => {
                let mut bytes = [0; WORD];
                self.read(0, &mut bytes);
                u64::from_ne_bytes(bytes)
            }
        }
    }

    /// Passes all bytes to `put` in whole words, each with its index. The last word is filled up
    /// with zeros.
    #[inline]
    pub fn read_words(&self, mut put: impl FnMut(usize, u64)) {
        match &self.0 {
            Segments::One(segment) => {
                // SAFETY: `new`'s caller promised that the segment is valid for reads, all of it.
                unsafe { load(segment.base.cast(), segment.len, put) };
            }
            _ => (0..self.len().div_ceil(WORD)).for_each(|index| {
                let mut bytes = [0; WORD];
                self.read(index * WORD, &mut bytes);
                put(index, u64::from_ne_bytes(bytes));
            }),
        }
    }
}

impl RxBuf {
    /// Writes eight bytes at the front, as far as they fit. Returns the number of written bytes.
    #[inline(always)]
    pub fn write_word(&mut self, word: u64) -> usize {
        match &self.0 {
            Segments::One(segment) if segment.len >= WORD => {
                // SAFETY: `new`'s caller promised that the segment is valid for writes and accessed
                // by no other code, and it has eight bytes.
                unsafe { segment.base.cast::<u64>().write_unaligned(word) };
                WORD
            }
            _ => self.write(0, &word.to_ne_bytes()),
        }
    }

    /// Writes `len` bytes at the front, as far as they fit. Returns the number of written bytes.
    /// `word` returns the words by their index; each word is requested once.
    #[inline]
    pub fn write_words(&mut self, len: usize, mut word: impl FnMut(usize) -> u64) -> usize {
        match &self.0 {
            Segments::One(segment) if segment.len >= len => {
                // SAFETY: `new`'s caller promised that the segment is valid for writes and accessed
                // by no other code, and it has `len` bytes.
                unsafe { store(segment.base.cast(), len, word) };
                len
            }
            _ => (0..len.div_ceil(WORD))
                .map(|index| {
                    let bytes = word(index).to_ne_bytes();
                    let offset = index * WORD;
                    self.write(offset, &bytes[..WORD.min(len - offset)])
                })
                .sum(),
        }
    }
}

/// Loads `len` bytes, and passes them on in words.
///
/// # Safety
/// `len` bytes from `source` on are valid for reads and not written meanwhile.
#[inline]
unsafe fn load(source: *const u8, len: usize, mut put: impl FnMut(usize, u64)) {
    let whole = len / WORD;
    for index in 0..whole {
        // SAFETY: `index` is below the number of whole words in `len`.
        let word = unsafe {
            source
                .wrapping_add(index * WORD)
                .cast::<u64>()
                .read_unaligned()
        };
        put(index, word);
    }
    let rest = len % WORD;
    if rest > 0 {
        // SAFETY: the `rest` bytes behind the whole words.
        put(whole, unsafe {
            load_rest(source.wrapping_add(whole * WORD), rest)
        });
    }
}

/// Loads fewer than eight bytes as a word.
///
/// # Safety
/// As [`load`].
#[inline]
unsafe fn load_rest(source: *const u8, len: usize) -> u64 {
    let (mut word, mut offset) = (0, 0);
    if len & 4 != 0 {
        // SAFETY: `len` counts these four bytes.
        word = u64::from(unsafe { source.cast::<u32>().read_unaligned() }.to_le());
        offset = 4;
    }
    if len & 2 != 0 {
        // SAFETY: `len` counts these two bytes, behind the four if there are four.
        let two = unsafe { source.wrapping_add(offset).cast::<u16>().read_unaligned() };
        word |= u64::from(two.to_le()) << (8 * offset);
        offset += 2;
    }
    if len & 1 != 0 {
        // SAFETY: the last byte of `len`.
        word |= u64::from(unsafe { source.wrapping_add(offset).read() }) << (8 * offset);
    }
    u64::from_le(word)
}

/// Stores `len` bytes, which `word` returns word by word.
///
/// # Safety
/// `len` bytes from `target` on are valid for writes, and no other code accesses them meanwhile.
#[inline]
unsafe fn store(target: *mut u8, len: usize, mut word: impl FnMut(usize) -> u64) {
    let whole = len / WORD;
    for index in 0..whole {
        // SAFETY: `index` is below the number of whole words in `len`.
        unsafe {
            target
                .wrapping_add(index * WORD)
                .cast::<u64>()
                .write_unaligned(word(index))
        };
    }
    let rest = len % WORD;
    if rest > 0 {
        // SAFETY: the `rest` bytes behind the whole words.
        unsafe { store_rest(target.wrapping_add(whole * WORD), rest, word(whole)) };
    }
}

/// Stores the first bytes of a word, fewer than eight.
///
/// # Safety
/// As [`store`].
#[inline]
unsafe fn store_rest(target: *mut u8, len: usize, word: u64) {
    let word = word.to_le();
    let mut offset = 0;
    if len & 4 != 0 {
        // SAFETY: `len` counts these four bytes.
        unsafe { target.cast::<u32>().write_unaligned((word as u32).to_le()) };
        offset = 4;
    }
    if len & 2 != 0 {
        let two = (word >> (8 * offset)) as u16;
        // SAFETY: `len` counts these two bytes, behind the four if there are four.
        unsafe {
            target
                .wrapping_add(offset)
                .cast::<u16>()
                .write_unaligned(two.to_le())
        };
        offset += 2;
    }
    if len & 1 != 0 {
        // SAFETY: the last byte of `len`.
        unsafe {
            target
                .wrapping_add(offset)
                .write((word >> (8 * offset)) as u8)
        };
    }
}

#[cfg(test)]
mod tests {
    use selvedge::{Iov, IovMut};

    use super::*;

    const BYTES: [u8; 24] = *b"abcdefghijklmnopqrstuvwx";

    /// The words that hold `bytes`, filled up with zeros.
    fn as_words(bytes: &[u8]) -> [u64; 3] {
        let mut words = [[0; WORD]; 3];
        words.as_flattened_mut()[..bytes.len()].copy_from_slice(bytes);
        words.map(u64::from_ne_bytes)
    }

    fn read(segments: &[&[u8]]) -> Vec<u64> {
        let iov: Vec<_> = segments.iter().map(|segment| Iov::new(segment)).collect();
        // SAFETY: the segments outlive the value.
        let buf = unsafe { TxBuf::new(&iov) };
        let mut words = Vec::new();
        buf.read_words(|index, word| {
            assert_eq!(index, words.len());
            words.push(word);
        });
        words
    }

    #[test]
    fn every_length_is_loaded_from_one_segment_and_from_two() {
        for len in 0..=BYTES.len() {
            let bytes = &BYTES[..len];
            let words = &as_words(bytes)[..len.div_ceil(WORD)];
            assert_eq!(read(&[bytes]), words, "{len} bytes");
            let (front, back) = bytes.split_at(len / 2);
            assert_eq!(read(&[front, back]), words, "{len} bytes in two");
        }
    }

    #[test]
    fn every_length_is_stored_and_no_byte_beyond_it() {
        for len in 0..=BYTES.len() {
            for room in 0..=BYTES.len() + 1 {
                let mut target = [b'.'; BYTES.len() + 2];
                let words = as_words(&BYTES[..len]);
                let (front, back) = target[..room].split_at_mut(room / 3);
                // SAFETY: no other code accesses `target` while the values live.
                let mut two = unsafe { RxBuf::new(&[IovMut::new(front), IovMut::new(back)]) };
                let fits = len.min(room);
                assert_eq!(two.write_words(len, |index| words[index]), fits);
                let mut expected = [b'.'; BYTES.len() + 2];
                expected[..fits].copy_from_slice(&BYTES[..fits]);
                assert_eq!(target, expected, "{len} bytes in two of {room}");

                let mut target = [b'.'; BYTES.len() + 2];
                // SAFETY: as above.
                let mut one = unsafe { RxBuf::new(&[IovMut::new(&mut target[..room])]) };
                assert_eq!(one.write_words(len, |index| words[index]), fits);
                assert_eq!(target, expected, "{len} bytes in one of {room}");
            }
        }
    }
}
