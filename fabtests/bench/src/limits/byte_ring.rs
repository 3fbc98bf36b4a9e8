//! The two-copy limit: one core copies a message into shared memory and the other copies it out.
//!
//! Long messages are copied in chunks, so that both cores copy at the same time and the bytes stay
//! in cache.

#![expect(unsafe_code, reason = "the bytes of the ring are plain memory")]

use std::cell::UnsafeCell;
use std::sync::atomic::Ordering;

use super::shared::CacheLine;
use crate::machine::cpu::Idle;
use crate::measure::clock::Clock;
use crate::measure::timing::{Counts, Timing, round_trips, timed_as_whole};

/// A ring of bytes: one direction between the two processes.
#[derive(Debug)]
#[repr(C)]
pub(super) struct ByteRing {
    /// Number of bytes that the writer has committed. The writer stores it.
    head: CacheLine,
    /// Number of bytes that the reader has copied out. The reader stores it.
    tail: CacheLine,
    bytes: Bytes,
}

#[derive(Debug)]
#[repr(C, align(4096))]
struct Bytes(UnsafeCell<[u8; CAPACITY]>);

// SAFETY: `head` and `tail` order all access. The writer writes only what `tail`, acquired, has
// freed; the reader reads only what `head`, acquired, has committed.
unsafe impl Sync for Bytes {}

/// The only writer of a [`ByteRing`], in one of the two processes.
#[derive(Debug)]
pub(super) struct Writer<'a> {
    ring: &'a ByteRing,
    idle: Idle,
    head: u64,
    tail: u64,
}

impl<'a> Writer<'a> {
    /// Makes the writer of a ring to which no byte has been written.
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

    /// Copies a message into the ring, `chunk_size` bytes at a time.
    #[inline]
    pub(super) fn write(&mut self, message: &[u8], chunk_size: usize) {
        for chunk in message.chunks(chunk_size.min(CHUNK_MAX)) {
            let (start, end) = chunk_range(self.head, chunk.len());
            while end - self.tail > CAPACITY as u64 {
                // Pairs with the release in `read`.
                self.tail = self.ring.tail.0.load(Ordering::Acquire);
                if end - self.tail > CAPACITY as u64 {
                    self.idle.wait_between_polls();
                }
            }
            let start = self.ring.byte_ptr(start);
            // SAFETY: the chunk is contiguous from `start` (`chunk_range`), and its bytes are free.
            unsafe { start.copy_from_nonoverlapping(chunk.as_ptr(), chunk.len()) };
            self.head = end;
            // Pairs with the acquire in `read`.
            self.ring.head.0.store(end, Ordering::Release);
        }
    }
}

/// The only reader of a [`ByteRing`], in one of the two processes.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    ring: &'a ByteRing,
    idle: Idle,
    head: u64,
    tail: u64,
}

impl<'a> Reader<'a> {
    /// Makes the reader of a ring from which no byte has been read.
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

    /// Copies a message out of the ring. Length and chunk size are those of the write.
    #[inline]
    pub(super) fn read(&mut self, message: &mut [u8], chunk_size: usize) {
        for chunk in message.chunks_mut(chunk_size.min(CHUNK_MAX)) {
            let (start, end) = chunk_range(self.tail, chunk.len());
            while self.head < end {
                // Pairs with the release in `write`.
                self.head = self.ring.head.0.load(Ordering::Acquire);
                if self.head < end {
                    self.idle.wait_between_polls();
                }
            }
            let start = self.ring.byte_ptr(start).cast_const();
            // SAFETY: the chunk is contiguous from `start` (`chunk_range`), and its bytes are
            // committed.
            unsafe { start.copy_to_nonoverlapping(chunk.as_mut_ptr(), chunk.len()) };
            self.tail = end;
            // Pairs with the acquire in `write`.
            self.ring.tail.0.store(end, Ordering::Release);
        }
    }
}

/// The writer and the reader that one process uses: a ring for each direction.
#[derive(Debug)]
pub(super) struct Duplex<'a> {
    writer: Writer<'a>,
    reader: Reader<'a>,
}

impl<'a> Duplex<'a> {
    /// Takes the ring that this process writes, and the one that it reads.
    pub(super) fn new([written, read]: [&'a ByteRing; 2], idle: Idle) -> Self {
        Self {
            // SAFETY: one `ProbeContext` per side is made, and no other code makes a writer.
            writer: unsafe { Writer::new(written, idle) },
            // SAFETY: one `ProbeContext` per side is made, and no other code makes a reader.
            reader: unsafe { Reader::new(read, idle) },
        }
    }

    pub(super) fn measure(
        &mut self,
        message: &mut [u8],
        chunk_size: usize,
        clock: Clock,
        counts: Counts,
    ) -> anyhow::Result<Timing> {
        round_trips(clock, counts, || {
            self.writer.write(message, chunk_size);
            self.reader.read(message, chunk_size);
            Ok(())
        })
    }

    pub(super) fn respond(&mut self, message: &mut [u8], chunk_size: usize, counts: Counts) {
        for _ in 0..counts.total() {
            self.reader.read(message, chunk_size);
            self.writer.write(message, chunk_size);
        }
    }
}

impl Duplex<'_> {
    /// Sends without waiting for replies. One reply at the end stops the clock.
    pub(super) fn measure_rate(
        &mut self,
        message: &[u8],
        chunk_size: usize,
        clock: Clock,
        counts: Counts,
    ) -> Timing {
        timed_as_whole(clock, counts, |count| {
            for _ in 0..count {
                self.writer.write(message, chunk_size);
            }
            self.reader.read(&mut [0], 1);
        })
    }

    pub(super) fn respond_rate(&mut self, message: &mut [u8], chunk_size: usize, counts: Counts) {
        for count in [counts.warmup, counts.batch] {
            for _ in 0..count {
                self.reader.read(message, chunk_size);
            }
            self.writer.write(&[0], 1);
        }
    }
}

impl ByteRing {
    #[inline]
    fn byte_ptr(&self, position: u64) -> *mut u8 {
        let base: *mut u8 = self.bytes.0.get().cast();
        // SAFETY: the remainder lies within the array.
        unsafe { base.add(position as usize % CAPACITY) }
    }
}

/// Start and end of a chunk after `position`. A chunk occupies a power of two of bytes and starts
/// at a multiple of that power, so that it never wraps.
#[inline]
fn chunk_range(position: u64, len: usize) -> (u64, u64) {
    let room = len.next_power_of_two().max(64) as u64;
    let start = position.next_multiple_of(room);
    (start, start + room)
}

/// Bytes of the ring, which stays in a second-level cache together with both private buffers. Of
/// capacities from 64 to 256 KiB, the largest was three times slower for messages of 64 KiB and
/// more.
const CAPACITY: usize = 64 << 10;
/// Largest chunk, in bytes: four of them fit into the ring.
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
                .map(|index| (index * 7 + size) as u8)
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
                let mut received = vec![0; size];
                reader.read(&mut received, 8192);
                assert_eq!(received, message(size));
            }
        });
    }
}
