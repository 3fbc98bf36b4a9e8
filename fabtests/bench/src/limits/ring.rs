//! The one-line ring: the limit for small messages of a shared-memory provider.
//!
//! A message is one cache line: up to 56 bytes of payload and the commit word, which is written
//! last. The consumer publishes a counter of free slots in batches; the cursors of producer and
//! consumer are private. The ring has no read-modify-write, no fence and no header. A provider's
//! additional time is its overhead.

#![expect(unsafe_code, reason = "the payload of a slot is plain memory")]

use std::cell::UnsafeCell;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use super::shared::CacheLine;
use crate::machine::cpu::Idle;
use crate::measure::clock::Clock;
use crate::measure::timing::{Counts, Timing, round_trips, stream};

/// Bytes of payload of a message.
pub(super) const PAYLOAD: usize = 56;

/// The one-line ring: one direction between the two processes.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Ring {
    slots: [Slot; SLOTS],
    /// Number of messages that the consumer has received. The consumer stores it every [`BATCH`]
    /// messages.
    consumed: CacheLine,
}

/// The slot of one message. Only the producer writes it.
#[derive(Debug)]
#[repr(C, align(64))]
struct Slot {
    payload: UnsafeCell<[u8; PAYLOAD]>,
    /// Number of the message in the slot, counted from 1.
    commit: AtomicU64,
}

// SAFETY: `commit` orders all access to `payload`. The producer writes it only while the slot is
// free (`consumed`, acquired, has passed it), the consumer reads it only between acquiring the
// commit word and releasing `consumed`.
unsafe impl Sync for Slot {}

/// The only producer of a [`Ring`], in one of the two processes.
#[derive(Debug)]
pub(super) struct Producer<'a> {
    ring: &'a Ring,
    idle: Idle,
    next: u64,
    limit: u64,
}

impl<'a> Producer<'a> {
    /// Makes the producer of a ring to which no message has been sent.
    ///
    /// # Safety
    /// No other producer of this ring exists, in either process.
    pub(super) unsafe fn new(ring: &'a Ring, idle: Idle) -> Self {
        Self {
            ring,
            idle,
            next: 0,
            limit: SLOTS as u64,
        }
    }

    /// Sends one message; waits while all slots are in use.
    #[inline]
    pub(super) fn push<const N: usize>(&mut self, message: &[u8; N]) {
        const { assert!(N <= PAYLOAD) };
        while self.next == self.limit {
            // Pairs with the release in `pop`: the consumer has read the slots below.
            self.limit = self.ring.consumed.0.load(Ordering::Acquire) + SLOTS as u64;
            if self.next == self.limit {
                self.idle.wait_between_polls();
            }
        }
        let slot = &self.ring.slots[self.next as usize % SLOTS];
        let payload: *mut u8 = slot.payload.get().cast();
        // SAFETY: N bytes fit the payload, and the slot is free: see `Slot`'s `Sync`.
        unsafe { payload.copy_from_nonoverlapping(message.as_ptr(), N) };
        self.next += 1;
        // Pairs with the acquire in `pop`.
        slot.commit.store(self.next, Ordering::Release);
    }
}

/// The only consumer of a [`Ring`], in one of the two processes.
#[derive(Debug)]
pub(super) struct Consumer<'a> {
    ring: &'a Ring,
    idle: Idle,
    next: u64,
}

impl<'a> Consumer<'a> {
    /// Makes the consumer of a ring from which no message has been received.
    ///
    /// # Safety
    /// No other consumer of this ring exists, in either process.
    pub(super) unsafe fn new(ring: &'a Ring, idle: Idle) -> Self {
        Self {
            ring,
            idle,
            next: 0,
        }
    }

    /// Waits for the next message and copies its first N bytes out.
    #[inline]
    pub(super) fn pop<const N: usize>(&mut self) -> [u8; N] {
        const { assert!(N <= PAYLOAD) };
        let slot = &self.ring.slots[self.next as usize % SLOTS];
        self.next += 1;
        // Pairs with the release in `push`.
        while slot.commit.load(Ordering::Acquire) != self.next {
            self.idle.wait_between_polls();
        }
        let payload: *const [u8; N] = slot.payload.get().cast_const().cast();
        // SAFETY: N bytes lie within the payload, any bytes are a valid array, and the producer
        // leaves the slot alone until `consumed` passes it.
        let message = unsafe { payload.read() };
        if self.next.is_multiple_of(BATCH) {
            // Pairs with the acquire in `push`.
            self.ring.consumed.0.store(self.next, Ordering::Release);
        }
        message
    }
}

/// The producer and the consumer that one process uses: a ring for each direction.
#[derive(Debug)]
pub(super) struct Duplex<'a> {
    producer: Producer<'a>,
    consumer: Consumer<'a>,
}

impl<'a> Duplex<'a> {
    /// Takes the ring that this process writes, and the one that it reads.
    pub(super) fn new([sent, received]: [&'a Ring; 2], idle: Idle) -> Self {
        Self {
            // SAFETY: one `ProbeContext` per side is made, and no other code makes a producer.
            producer: unsafe { Producer::new(sent, idle) },
            // SAFETY: one `ProbeContext` per side is made, and no other code makes a consumer.
            consumer: unsafe { Consumer::new(received, idle) },
        }
    }

    pub(super) fn measure<const N: usize>(
        &mut self,
        clock: Clock,
        counts: Counts,
    ) -> anyhow::Result<Timing> {
        let message = black_box([7; N]);
        round_trips(clock, counts, || {
            self.producer.push(&message);
            black_box(self.consumer.pop::<N>());
            Ok(())
        })
    }

    pub(super) fn respond<const N: usize>(&mut self, counts: Counts) {
        for _ in 0..counts.total() {
            let message = self.consumer.pop::<N>();
            self.producer.push(&message);
        }
    }

    /// Sends windows of messages, as a stream does, and waits for one reply to each window. Without
    /// replies the rate would depend on how far one process is ahead of the other.
    pub(super) fn measure_rate<const N: usize>(
        &mut self,
        clock: Clock,
        counts: Counts,
    ) -> anyhow::Result<Timing> {
        let message = black_box([7; N]);
        stream(clock, counts, WINDOW, || {
            for _ in 0..WINDOW {
                self.producer.push(&message);
            }
            self.consumer.pop::<1>();
            Ok(())
        })
    }

    pub(super) fn respond_rate<const N: usize>(&mut self, counts: Counts) {
        for _ in 0..counts.total() {
            for _ in 0..WINDOW {
                black_box(self.consumer.pop::<N>());
            }
            self.producer.push(&[0; 1]);
        }
    }
}

/// Number of slots: enough that the line with the credits travels rarely. The slots take 16 KiB and
/// stay in the first-level cache.
const SLOTS: usize = 256;
/// Messages per return of credits: a quarter of the slots.
const BATCH: u64 = SLOTS as u64 / 4;
/// Messages of a window: as many as in the benchmarks.
const WINDOW: usize = 64;
const _: () = assert!(size_of::<Slot>() == 64);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::shared::Segment;

    #[test]
    fn messages_arrive_in_order_and_whole_over_many_laps() {
        let segment = Segment::map(Segment::create().unwrap()).unwrap();
        let ring = &segment.layout().ring_to_passive;
        let messages = 10 * SLOTS as u64 + 3;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                // SAFETY: the only producer.
                let mut producer = unsafe { Producer::new(ring, Idle::Yield) };
                for number in 0..messages {
                    producer.push(&number.to_le_bytes());
                }
            });
            // SAFETY: the only consumer.
            let mut consumer = unsafe { Consumer::new(ring, Idle::Yield) };
            for number in 0..messages {
                assert_eq!(u64::from_le_bytes(consumer.pop()), number);
            }
        });
    }
}
