//! Tests of memory that threads access at the same time.

#![expect(unsafe_code, reason = "regions of memory that the tests own")]

use std::mem::MaybeUninit;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use super::*;

/// Aligned memory that threads share.
#[repr(C, align(8))]
struct Memory([std::cell::UnsafeCell<u8>; 40]);

// SAFETY: while threads share the memory, the tests access it through `SharedBytes`.
unsafe impl Sync for Memory {}

impl Memory {
    const fn new() -> Self {
        Self([const { std::cell::UnsafeCell::new(0) }; 40])
    }

    /// Returns the region of `len` bytes that begin at `offset`.
    fn region(&self, offset: usize, len: usize) -> SharedBytes {
        assert!(offset + len <= self.0.len());
        let first: *const u8 = std::ptr::from_ref(self).cast();
        // SAFETY: the bytes are within the memory, may be changed through a shared reference, and
        // are accessed only by values of one region at a time.
        unsafe { SharedBytes::new(first.cast_mut().wrapping_add(offset), len) }
    }
}

fn read_all(shared: SharedBytes) -> Vec<u8> {
    let mut bytes = vec![0; shared.len()];
    shared.read_into(&mut bytes);
    bytes
}

#[test]
fn every_range_is_copied_exactly_by_both_methods() {
    const LEN: usize = 19;
    let ranges = |len| (0..=len).flat_map(move |start| (start..=len).map(move |end| (start, end)));
    for shift in [0, 3] {
        for (start, end) in ranges(LEN) {
            let memory = Memory::new();
            let region = memory.region(shift, LEN);
            region.write(&[b'.'; LEN]);
            let bytes: Vec<u8> = (b'a'..).take(end - start).collect();
            let mut expected = [b'.'; LEN];
            expected[start..end].copy_from_slice(&bytes);
            let part = region.part(start, end - start);
            part.write(&bytes);
            assert_eq!(read_all(region), expected);
            assert_eq!(read_all(part), bytes);

            region.write(&[b'.'; LEN]);
            // SAFETY: `bytes` has the length of the part.
            unsafe { copy::granules::store(part, bytes.as_ptr()) };
            assert_eq!(read_all(region), expected);
            let mut out = vec![0; bytes.len()];
            // SAFETY: as above.
            unsafe { copy::granules::load(part, out.as_mut_ptr()) };
            assert_eq!(out, bytes);
        }
    }
}

#[test]
fn a_byte_has_the_same_granule_in_every_part() {
    let memory = Memory::new();
    for (offset, len) in [(0, 40), (0, 20), (3, 20), (5, 2), (8, 8), (7, 33)] {
        let region = memory.region(offset, len);
        let granules = |part: SharedBytes| {
            let granule = move |offset| {
                let (granule, skip) = part.granule(offset);
                (part.as_ptr().addr() + offset - skip, granule.size())
            };
            (0..part.len()).map(granule).collect::<Vec<_>>()
        };
        let whole = granules(region);
        for start in 0..len {
            for end in start..=len {
                let part = region.part(start, end - start);
                assert_eq!(
                    granules(part),
                    whole[start..end],
                    "{start}..{end} of {len} at {offset}"
                );
            }
        }
        let base = region.as_ptr().addr();
        for (offset, (first, size)) in whole.iter().enumerate() {
            assert!(first.is_multiple_of(*size) && *first >= base && first + size <= base + len);
            // No larger aligned block around the byte is within the region.
            let double = 2 * size;
            let start = (base + offset) / double * double;
            assert!(*size == 8 || start < base || start + double > base + len);
        }
    }
}

#[test]
fn an_update_changes_only_its_bytes() {
    let memory = Memory::new();
    let region = memory.region(0, 20);
    region.write(b"abcdefghijklmnopqrst");
    assert_eq!(
        region.update(2, |old: [u8; 2]| Some([old[1], old[0]])),
        *b"cd"
    );
    assert_eq!(region.update(4, |_: [u8; 4]| None), *b"efgh");
    assert_eq!(
        region.part(16, 4).update(0, |_: [u8; 4]| Some(*b"QRST")),
        *b"qrst"
    );
    assert_eq!(region.update(19, |_: [u8; 1]| Some(*b"!")), *b"T");
    assert_eq!(region.load(16), *b"QRS!");
    assert_eq!(read_all(region), b"abdcefghijklmnopQRS!");
}

#[test]
#[should_panic(expected = "4 bytes at")]
fn a_load_beyond_the_end_panics() {
    Memory::new().region(0, 20).load::<4>(20);
}

#[test]
#[should_panic(expected = "the bytes are within the part")]
fn a_write_beyond_the_end_panics() {
    Memory::new().region(0, 8).part(1, 7).write(&[0; 8]);
}

#[test]
fn words_are_within_the_region_and_aligned() {
    let memory = Memory::new();
    let region = memory.region(0, 20);
    let offsets = (0..24).filter(|&offset| region.word(offset).is_some());
    assert_eq!(offsets.collect::<Vec<_>>(), [0, 8]);
    assert!(region.word(usize::MAX).is_none());
}

/// Two threads access the same bytes without synchronization: by copies in and out of all
/// alignments, by words, and by elements. Miri and the thread sanitizer report any access that is
/// not atomic or has another size.
#[test]
fn threads_access_the_same_bytes_at_the_same_time() {
    const ROUNDS: usize = if cfg!(miri) { 8 } else { 2000 };
    let memory = Memory::new();
    // The region ends within a word.
    let region = memory.region(0, 37);
    let start = Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            start.wait();
            for round in 0..ROUNDS {
                let offset = round % 9;
                region.part(offset, 28).write(&[round as u8; 28]);
                region.part(8, 8).write(&(round as u64).to_ne_bytes());
                region.update(32, |old: [u8; 4]| {
                    Some(old.map(|byte| byte.wrapping_add(1)))
                });
                region.update(36, |old: [u8; 1]| Some([old[0].wrapping_add(1)]));
            }
        });
        start.wait();
        for round in 0..ROUNDS {
            let mut out = [MaybeUninit::uninit(); 30];
            assert_eq!(region.part(round % 8, 30).read(&mut out).len(), 30);
            let word = region.word(16).expect("an aligned word");
            word.fetch_add(1, Ordering::Relaxed);
            region.update(34, |old: [u8; 2]| Some(old));
            region.update(36, |old: [u8; 1]| Some([old[0].wrapping_add(1)]));
            region.part(33, 4).read_into(&mut [0; 4]);
        }
    });
    assert_eq!(region.load(36), [(2 * ROUNDS) as u8]);
}

/// A word never mixes two writes, also of copies that begin or end within a word.
#[test]
fn words_of_long_copies_are_whole() {
    const LEN: usize = if cfg!(miri) { 400 } else { 4000 };
    const ROUNDS: usize = if cfg!(miri) { 2 } else { 2000 };
    let words: Vec<_> = (0..LEN / 8).map(|_| AtomicU64::new(0)).collect();
    let first: *mut u8 = words.as_ptr().cast_mut().cast();
    // SAFETY: the words are accessed as granules of eight bytes.
    let region = unsafe { SharedBytes::new(first, LEN) };
    let done = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS {
                let bytes = vec![round as u8; LEN];
                // Most ranges are not aligned, so that whole words are next to partial words.
                let (start, end) = (round % 3, LEN - round % 5);
                region.part(start, end - start).write(&bytes[start..end]);
                region.write(&bytes);
            }
            done.store(true, Ordering::Relaxed);
        });
        while !done.load(Ordering::Relaxed) {
            let all = read_all(region);
            let (words, rest) = all[8..LEN - 8].as_chunks::<8>();
            assert!(rest.is_empty());
            for word in words {
                assert_eq!(*word, [word[0]; 8]);
            }
        }
    });
}
