//! Timed loops of every contestant's benchmarks.
//!
//! A run has three parts. The *warm-up* is not timed. The *batch* is timed in groups of consecutive
//! round trips, and its figure is the median of the groups' means. This median contains almost no
//! time for reading the clock, and a group that the system interrupted does not change it. The
//! *singles* are timed one by one, for the percentiles. The time of a single contains one reading
//! of the clock and has the clock's resolution (some time-stamp counters advance in steps of 10
//! ns).

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::measure::clock::{Clock, ticks};
use crate::measure::stats::median;

/// Number of round trips in each part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Round trips before the clock starts.
    pub warmup: usize,
    /// Round trips that are timed in groups.
    pub batch: usize,
    /// Round trips that are timed one by one.
    pub singles: usize,
}

impl Counts {
    /// Makes the counts of round trips of `size` bytes: enough for a steady figure in some ten
    /// milliseconds.
    pub fn for_size(size: usize) -> Self {
        let batch = (BATCH_BYTES / size.max(1)).clamp(16, 4000);
        Self {
            warmup: batch / 8,
            batch,
            singles: batch / 2,
        }
    }

    /// The sum of all parts: the number of round trips of the passive side.
    pub fn total(self) -> usize {
        self.warmup + self.batch + self.singles
    }
}

/// Times of a run, in nanoseconds per round trip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// Median of the means of the batch's groups.
    pub mean: f64,
    /// Median of the singles.
    pub p50: f64,
    /// 99th percentile of the singles.
    pub p99: f64,
    /// Shortest of the singles.
    pub min: f64,
    /// The values of the [`QUANTILES`] of the singles; `None` if no singles were timed.
    #[serde(default)]
    pub curve: Option<[f64; QUANTILES.len()]>,
}

/// The quantiles of single round trips in a report.
pub const QUANTILES: [f64; 13] = [
    0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999, 1.0,
];

impl Timing {
    /// The value of one of the [`QUANTILES`]; `None` if no singles were timed.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let at = QUANTILES.iter().position(|&quantile| quantile == share)?;
        self.curve.map(|curve| curve[at])
    }

    /// Makes the timing whose figures are the means of those of several processes.
    pub fn mean_of(timings: &[Self]) -> Self {
        let mean_at = |figure: &dyn Fn(&Self) -> f64| {
            timings.iter().map(figure).sum::<f64>() / timings.len().max(1) as f64
        };
        let curve_at = |at: usize| mean_at(&|timing| timing.curve.map_or(f64::NAN, |c| c[at]));
        Self {
            mean: mean_at(&|timing| timing.mean),
            p50: mean_at(&|timing| timing.p50),
            p99: mean_at(&|timing| timing.p99),
            min: mean_at(&|timing| timing.min),
            curve: Some(std::array::from_fn(curve_at)),
        }
    }

    /// Makes a timing from several means, in nanoseconds. The percentiles are those of the means.
    pub fn from_means(means: &[f64]) -> Self {
        Self {
            mean: median(means),
            p50: median(means),
            p99: means.iter().copied().fold(0.0, f64::max),
            min: means.iter().copied().fold(f64::INFINITY, f64::min),
            curve: None,
        }
    }
}

/// Runs `trip` `counts.total()` times, and times it.
///
/// # Errors
/// The first error of `trip`.
#[inline]
pub fn round_trips(
    clock: Clock,
    counts: Counts,
    mut trip: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Timing> {
    let start = ticks();
    for _ in 0..counts.warmup {
        trip()?;
    }
    let size = group_size(clock.ns(ticks() - start) / counts.warmup.max(1) as f64);
    let mut remaining = counts.batch;
    let mut groups = Vec::with_capacity(remaining.div_ceil(size));
    while remaining > 0 {
        let group = remaining.min(size);
        let start = ticks();
        for _ in 0..group {
            trip()?;
        }
        groups.push(clock.ns(ticks() - start) / group as f64);
        remaining -= group;
    }

    let mut stamps = vec![0; counts.singles + 1];
    stamps[0] = ticks();
    for stamp in &mut stamps[1..] {
        trip()?;
        *stamp = ticks();
    }
    Ok(Timing {
        mean: median(&groups),
        ..percentiles(clock, &stamps)
    })
}

/// Runs `trip` `counts.warmup` times, and times it `counts.batch + counts.singles` times, each by
/// itself. The mean is that of all timed trips, including those that the system interrupted.
///
/// # Errors
/// The first error of `trip`.
pub fn single_trips(
    clock: Clock,
    counts: Counts,
    mut trip: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Timing> {
    for _ in 0..counts.warmup {
        trip()?;
    }
    let timed = counts.batch + counts.singles;
    let mut stamps = vec![0; timed + 1];
    stamps[0] = ticks();
    for stamp in &mut stamps[1..] {
        trip()?;
        *stamp = ticks();
    }
    Ok(Timing {
        mean: clock.ns(stamps[timed] - stamps[0]) / timed.max(1) as f64,
        ..percentiles(clock, &stamps)
    })
}

/// Number of round trips in a group if one takes `trip_ns`.
fn group_size(trip_ns: f64) -> usize {
    ((GROUP_NS / trip_ns.max(1.0)) as usize).clamp(1, GROUP_MAX)
}

/// Runs `window`, which moves `messages` messages, first `counts.warmup` and then `counts.batch`
/// times. The timing is per message. Its mean is the median of the means of groups of windows. A
/// group is long enough to contain the provider's occasional work. The percentiles are those of
/// windows.
///
/// # Errors
/// The first error of `window`.
#[inline]
pub fn stream(
    clock: Clock,
    counts: Counts,
    messages: usize,
    mut window: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Timing> {
    for _ in 0..counts.warmup {
        window()?;
    }
    let mut stamps = vec![0; counts.batch + 1];
    stamps[0] = ticks();
    for stamp in &mut stamps[1..] {
        window()?;
        *stamp = ticks();
    }
    let windows = percentiles(clock, &stamps);
    let per_message = |ns: f64| ns / messages as f64;
    Ok(Timing {
        mean: per_message(median(&group_means(clock, &stamps, windows.p50))),
        p50: per_message(windows.p50),
        p99: per_message(windows.p99),
        min: per_message(windows.min),
        curve: None,
    })
}

/// Moves `counts.warmup` and then `counts.batch` messages by a call of `move_messages` each, and
/// times the second call. All figures are the mean time of a message.
#[inline]
pub fn timed_as_whole(
    clock: Clock,
    counts: Counts,
    mut move_messages: impl FnMut(usize),
) -> Timing {
    move_messages(counts.warmup);
    let start = ticks();
    move_messages(counts.batch);
    let mean = clock.ns(ticks() - start) / counts.batch.max(1) as f64;
    Timing {
        mean,
        p50: mean,
        p99: mean,
        min: mean,
        curve: None,
    }
}

/// Means of groups of consecutive windows. A shorter remainder is dropped, unless it is the only
/// group.
fn group_means(clock: Clock, stamps: &[u64], window_ns: f64) -> Vec<f64> {
    let windows = stamps.len() - 1;
    let size = ((STREAM_GROUP_NS / window_ns.max(1.0)) as usize).clamp(1, windows.max(1));
    let group_mean =
        |index: usize| clock.ns(stamps[index * size + size] - stamps[index * size]) / size as f64;
    (0..windows / size).map(group_mean).collect()
}

fn percentiles(clock: Clock, stamps: &[u64]) -> Timing {
    let mut singles = Histogram::<u64>::new(3).expect("3 digits are allowed");
    for pair in stamps.windows(2) {
        // Picoseconds keep the digits of short trips.
        let picoseconds = (clock.ns(pair[1] - pair[0]) * 1e3) as u64;
        singles.record(picoseconds).expect("the histogram grows");
    }
    let ns = |picoseconds: u64| picoseconds as f64 / 1e3;
    Timing {
        mean: 0.0,
        p50: ns(singles.value_at_quantile(0.5)),
        p99: ns(singles.value_at_quantile(0.99)),
        min: ns(singles.min()),
        curve: Some(QUANTILES.map(|share| ns(singles.value_at_quantile(share)))),
    }
}

/// Bytes of the batch's messages.
const BATCH_BYTES: usize = 16 << 20;
/// Time of a group of round trips: long compared with a reading of the clock, short compared with
/// the time between interruptions.
const GROUP_NS: f64 = 3000.0;
/// Most round trips in a group.
const GROUP_MAX: usize = 32;
/// Time of a group of windows: long compared with a window of small messages, short compared with
/// the time between interruptions.
const STREAM_GROUP_NS: f64 = 200_000.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_makes_the_round_trips_of_all_its_parts() {
        let counts = Counts {
            warmup: 3,
            batch: 5,
            singles: 7,
        };
        let mut trips = 0;
        let timing = round_trips(Clock::calibrate(), counts, || {
            trips += 1;
            Ok(())
        })
        .unwrap();
        assert_eq!(trips, counts.total());
        assert!(timing.min <= timing.p50 && timing.p50 <= timing.p99);
    }

    #[test]
    fn a_stream_is_timed_per_message() {
        let counts = Counts {
            warmup: 1,
            batch: 9,
            singles: 0,
        };
        let mut windows = 0;
        let timing = stream(Clock::calibrate(), counts, 1000, || {
            windows += 1;
            std::thread::sleep(std::time::Duration::from_micros(100));
            Ok(())
        })
        .unwrap();
        assert_eq!(windows, counts.total());
        assert!(
            timing.min >= 99.0 && timing.mean >= timing.min,
            "{timing:?}"
        );
    }

    #[test]
    fn the_mean_of_single_trips_contains_the_interrupted_ones() {
        let counts = Counts {
            warmup: 1,
            batch: 4,
            singles: 5,
        };
        let mut trips = 0;
        let timing = single_trips(Clock::calibrate(), counts, || {
            trips += 1;
            if trips == 3 {
                std::thread::sleep(std::time::Duration::from_millis(9));
            }
            Ok(())
        })
        .unwrap();
        assert_eq!(trips, counts.total());
        assert!(timing.mean >= 1e6, "{timing:?}");
    }

    #[test]
    fn one_interrupted_window_does_not_move_the_mean() {
        let clock = Clock::calibrate();
        let ticks = |us: f64| (us * 1e3 / clock.ns(1)) as u64;
        let lengths = [300.0, 300.0, 9000.0, 300.0, 300.0];
        let mut stamps = vec![0];
        for length in lengths {
            stamps.push(stamps[stamps.len() - 1] + ticks(length));
        }
        let means = group_means(clock, &stamps, 300_000.0);
        assert_eq!(means.len(), lengths.len());
        assert!((median(&means) - 300_000.0).abs() < 1000.0, "{means:?}");
    }

    #[test]
    fn the_first_error_ends_the_run() {
        let counts = Counts::for_size(8);
        let result = round_trips(Clock::calibrate(), counts, || anyhow::bail!("no peer"));
        assert_eq!(result.unwrap_err().to_string(), "no peer");
    }
}
