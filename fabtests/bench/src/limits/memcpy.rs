//! One core's copy bandwidth, in cache and out of it.

use std::hint::black_box;

use crate::clock::Clock;
use crate::timing::{Counts, Timing, round_trips};

/// Copies repeatedly between the same two buffers.
pub(super) fn measure_cached(
    own: &mut [u8],
    size: usize,
    clock: Clock,
    counts: Counts,
) -> anyhow::Result<Timing> {
    let (from, to) = own.split_at_mut(own.len() / 2);
    round_trips(clock, counts, || {
        to[..size].copy_from_slice(black_box(&from[..size]));
        black_box(&mut *to);
        Ok(())
    })
}

/// Copies between slots that are reused only after [`SET`] bytes of others.
pub(super) fn measure_cold(
    own: &mut [u8],
    size: usize,
    clock: Clock,
    counts: Counts,
) -> anyhow::Result<Timing> {
    let (from, to) = own[..SET].split_at_mut(SET / 2);
    let slots = (SET / 2 / size.next_multiple_of(PAGE)).max(1);
    let mut slot = 0;
    round_trips(clock, counts, || {
        slot = (slot + STRIDE) % slots;
        let start = slot * size.next_multiple_of(PAGE);
        to[start..][..size].copy_from_slice(black_box(&from[start..][..size]));
        black_box(&mut *to);
        Ok(())
    })
}

/// Source and destination of cold copies together: several times a common last-level cache.
pub(super) const SET: usize = 192 << 20;
const PAGE: usize = 4096;
/// Distance of consecutive slots; a prime, so that all slots are visited and no prefetcher follows.
const STRIDE: usize = 1009;
