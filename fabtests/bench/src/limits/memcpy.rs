//! One core's copy bandwidth, in cache and out of it.

use std::hint::black_box;

use crate::clock::Clock;
use crate::timing::{Counts, Timing, round_trips};

/// Copies again and again between the same two places.
pub(super) fn measure_hot(
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

/// Copies between places that come round again only after [`SET`] bytes' worth of others.
pub(super) fn measure_cold(
    own: &mut [u8],
    size: usize,
    clock: Clock,
    counts: Counts,
) -> anyhow::Result<Timing> {
    let (from, to) = own[..SET].split_at_mut(SET / 2);
    let places = (SET / 2 / size.next_multiple_of(PAGE)).max(1);
    let mut place = 0;
    round_trips(clock, counts, || {
        place = (place + STRIDE) % places;
        let start = place * size.next_multiple_of(PAGE);
        to[start..][..size].copy_from_slice(black_box(&from[start..][..size]));
        black_box(&mut *to);
        Ok(())
    })
}

/// Source and destination of cold copies together: several times a common last-level cache.
pub(super) const SET: usize = 192 << 20;
const PAGE: usize = 4096;
/// Places from one copy to the next; a prime, so that all places are visited and no prefetcher
/// follows.
const STRIDE: usize = 1009;
