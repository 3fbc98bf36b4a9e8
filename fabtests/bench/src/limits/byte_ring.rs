//! The two-copy limit: one core copies a message into shared memory and the other copies it out.
//!
//! Long messages are copied in chunks, so that both cores copy at the same time and the bytes stay
//! in cache.

#![expect(unsafe_code, reason = "the bytes of the ring are plain memory")]

use std::cell::UnsafeCell;
use std::sync::atomic::Ordering;

use super::shared::{CacheLine, Layout};
use crate::clock::Clock;
use crate::cpu::Idle;
use crate::pair::Side;
use crate::timing::{Counts, Timing, one_by_one, round_trips};

/// One direction between the two processes: a ring of bytes.
#[derive(Debug)]
#[repr(C)]
pub(super) struct ByteRing {
    /// Bytes committed; written by the writer.
    head: CacheLine,
    /// Bytes taken; written by the reader.
    tail: CacheLine,
    bytes: Bytes,
}

#[derive(Debug)]
#[repr(C, align(4096))]
struct Bytes(UnsafeCell<[u8; CAPACITY]>);

// SAFETY: `head` and `tail` order all access. The writer writes only what `tail`, acquired, has
// freed; the reader reads only what `head`, acquired, has committed.
unsafe impl Sync for Bytes {}

/// The writer of a [`ByteRing`]. One process has it.
#[derive(Debug)]
pub(super) struct Writer<'a> {
    ring: &'a ByteRing,
    idle: Idle,
    head: u64,
    tail: u64,
}

impl<'a> Writer<'a> {
    /// The writer of a ring that nothing has been written to.
    ///
    /// # Safety
    /// No other writer of this ring exists, in either process.
    pub(super) unsafe fn new(ring: &'a ByteRing, idle: Idle) -> Self {
        Self {
            ring,
            idle,
            head: 0,
            tail: 0,
        }
    }

    /// Copies a message in, `chunk_size` bytes at a time.
    #[inline]
    pub(super) fn write(&mut self, message: &[u8], chunk_size: usize) {
        for chunk in message.chunks(chunk_size.min(CHUNK_MAX)) {
            let (start, end) = chunk_range(self.head, chunk.len());
            while end - self.tail > CAPACITY as u64 {
                // Pairs with the release in `read`.
                self.tail = self.ring.tail.0.load(Ordering::Acquire);
                if end - self.tail > CAPACITY as u64 {
                    self.idle.pause();
                }
            }
            let start = self.ring.at(start);
            // SAFETY: the chunk is contiguous from `start` (`chunk_range`), and its bytes are free.
            unsafe { start.copy_from_nonoverlapping(chunk.as_ptr(), chunk.len()) };
            self.head = end;
            // Pairs with the acquire in `read`.
            self.ring.head.0.store(end, Ordering::Release);
        }
    }
}

/// The reader of a [`ByteRing`]. One process has it.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    ring: &'a ByteRing,
    idle: Idle,
    head: u64,
    tail: u64,
}

impl<'a> Reader<'a> {
    /// The reader of a ring that nothing has been read from.
    ///
    /// # Safety
    /// No other reader of this ring exists, in either process.
    pub(super) unsafe fn new(ring: &'a ByteRing, idle: Idle) -> Self {
        Self {
            ring,
            idle,
            head: 0,
            tail: 0,
        }
    }

    /// Copies a message of the same length and chunks out.
    #[inline]
    pub(super) fn read(&mut self, message: &mut [u8], chunk_size: usize) {
        for chunk in message.chunks_mut(chunk_size.min(CHUNK_MAX)) {
            let (start, end) = chunk_range(self.tail, chunk.len());
            while self.head < end {
                // Pairs with the release in `write`.
                self.head = self.ring.head.0.load(Ordering::Acquire);
                if self.head < end {
                    self.idle.pause();
                }
            }
            let start = self.ring.at(start).cast_const();
            // SAFETY: the chunk is contiguous from `start` (`chunk_range`), and its bytes are
            // committed.
            unsafe { start.copy_to_nonoverlapping(chunk.as_mut_ptr(), chunk.len()) };
            self.tail = end;
            // Pairs with the acquire in `write`.
            self.ring.tail.0.store(end, Ordering::Release);
        }
    }
}

/// One process's writer and reader of the two directions.
#[derive(Debug)]
pub(super) struct Duplex<'a> {
    out: Writer<'a>,
    back: Reader<'a>,
}

impl<'a> Duplex<'a> {
    pub(super) fn new(layout: &'a Layout, side: Side, idle: Idle) -> Self {
        let (to_passive, to_active) = (&layout.byte_ring_to_passive, &layout.byte_ring_to_active);
        let (out, back) = match side {
            Side::Active => (to_passive, to_active),
            Side::Passive => (to_active, to_passive),
        };
        Self {
            // SAFETY: one `ProbeContext` per side is made, and nothing else makes a writer.
            out: unsafe { Writer::new(out, idle) },
            // SAFETY: one `ProbeContext` per side is made, and nothing else makes a reader.
            back: unsafe { Reader::new(back, idle) },
        }
    }

    pub(super) fn measure(
        &mut self,
        own: &mut [u8],
        chunk_size: usize,
        clock: Clock,
        counts: Counts,
    ) -> anyhow::Result<Timing> {
        round_trips(clock, counts, || {
            self.out.write(own, chunk_size);
            self.back.read(own, chunk_size);
            Ok(())
        })
    }

    pub(super) fn respond(&mut self, own: &mut [u8], chunk_size: usize, counts: Counts) {
        for _ in 0..counts.total() {
            self.back.read(own, chunk_size);
            self.out.write(own, chunk_size);
        }
    }
}

impl Duplex<'_> {
    /// Sends without waiting for replies. One reply at the end stops the clock.
    pub(super) fn measure_rate(
        &mut self,
        own: &[u8],
        chunk_size: usize,
        clock: Clock,
        counts: Counts,
    ) -> Timing {
        one_by_one(clock, counts, |count| {
            for _ in 0..count {
                self.out.write(own, chunk_size);
            }
            self.back.read(&mut [0], 1);
        })
    }

    pub(super) fn respond_rate(&mut self, own: &mut [u8], chunk_size: usize, counts: Counts) {
        for count in [counts.warmup, counts.batch] {
            for _ in 0..count {
                self.back.read(own, chunk_size);
            }
            self.out.write(&[0], 1);
        }
    }
}

impl ByteRing {
    #[inline]
    fn at(&self, position: u64) -> *mut u8 {
        let base: *mut u8 = self.bytes.0.get().cast();
        // SAFETY: the remainder lies within the array.
        unsafe { base.add(position as usize % CAPACITY) }
    }
}

/// Start and end of a chunk after `position`. A chunk starts at a multiple of the power of two that
/// it occupies, so that it never wraps.
#[inline]
fn chunk_range(position: u64, len: usize) -> (u64, u64) {
    let room = len.next_power_of_two().max(64) as u64;
    let start = position.next_multiple_of(room);
    (start, start + room)
}

/// Stays in a second-level cache together with both private buffers: measured from 64 to 256 KiB,
/// where it was three times slower from 64 KiB messages on.
const CAPACITY: usize = 64 << 10;
/// At least four chunks fit into the ring.
const CHUNK_MAX: usize = CAPACITY / 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::shared::Segment;

    #[test]
    fn messages_of_any_size_arrive_whole() {
        let segment = Segment::map(Segment::create().unwrap()).unwrap();
        let ring = &segment.layout().byte_ring_to_passive;
        let sizes = [1, 64, 100_000, 7, 300_001, 65_536, 4096];
        let message = |size: usize| {
            (0..size)
                .map(|at| (at * 7 + size) as u8)
                .collect::<Vec<_>>()
        };
        std::thread::scope(|scope| {
            scope.spawn(move || {
                // SAFETY: the only writer.
                let mut writer = unsafe { Writer::new(ring, Idle::Yield) };
                for size in sizes {
                    writer.write(&message(size), 8192);
                }
            });
            // SAFETY: the only reader.
            let mut reader = unsafe { Reader::new(ring, Idle::Yield) };
            for size in sizes {
                let mut got = vec![0; size];
                reader.read(&mut got, 8192);
                assert_eq!(got, message(size));
            }
        });
    }
}
