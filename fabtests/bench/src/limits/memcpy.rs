//! One core's copy bandwidth, in cache and out of it.

use std::hint::black_box;

use crate::measure::clock::Clock;
use crate::measure::timing::{Counts, Timing, round_trips};

/// Copies repeatedly between the same two buffers.
pub(super) fn measure_cached(
    buffer: &mut [u8],
    size: usize,
    clock: Clock,
    counts: Counts,
) -> anyhow::Result<Timing> {
    let (from, to) = buffer.split_at_mut(buffer.len() / 2);
    round_trips(clock, counts, || {
        to[..size].copy_from_slice(black_box(&from[..size]));
        black_box(&mut *to);
        Ok(())
    })
}

/// Copies between slots. A slot is used again only after the copies have passed all [`COLD_BYTES`]
/// bytes.
pub(super) fn measure_cold(
    buffer: &mut [u8],
    size: usize,
    clock: Clock,
    counts: Counts,
) -> anyhow::Result<Timing> {
    let (from, to) = buffer[..COLD_BYTES].split_at_mut(COLD_BYTES / 2);
    let slots = (COLD_BYTES / 2 / size.next_multiple_of(PAGE)).max(1);
    let mut slot = 0;
    round_trips(clock, counts, || {
        slot = (slot + STRIDE) % slots;
        let start = slot * size.next_multiple_of(PAGE);
        to[start..][..size].copy_from_slice(black_box(&from[start..][..size]));
        black_box(&mut *to);
        Ok(())
    })
}

/// Bytes of source and destination of cold copies together: several times a common last-level
/// cache.
pub(super) const COLD_BYTES: usize = 192 << 20;
const PAGE: usize = 4096;
/// Distance of consecutive copies, in slots: a prime, so that the copies visit all slots and no
/// prefetcher predicts them.
const STRIDE: usize = 1009;
