//! The plan of a comparison: its points, counts and options.

use crate::fabric::{Bench, BenchOrder, OpenOrder, datagram_window, fitting_window};
use crate::measure::timing::Counts;

/// The benchmarks, sizes, counts and options to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The benchmarks.
    pub benches: Vec<Bench>,
    /// Message sizes, in bytes.
    pub sizes: Vec<usize>,
    /// Outstanding messages at most.
    pub window: usize,
    /// Round trips or windows of a run; `None` for a number that suits the size.
    pub iterations: Option<usize>,
    /// Round trips or windows before the clock starts; `None` for a number that suits the size.
    pub warmup: Option<usize>,
    /// Runs of each point by each contestant.
    pub reps: usize,
    /// Whether to inject small messages.
    pub inject: bool,
    /// Whether to verify every message.
    pub verify: bool,
    /// Whether Selvedge's buffers lie in memory that the domain allocates.
    pub special: bool,
    /// Whether runs are long enough for processes to take turns on the cores.
    pub is_long: bool,
    /// Whether to use datagram endpoints.
    pub datagrams: bool,
}

/// One benchmark at one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// The benchmark.
    pub bench: Bench,
    /// Message size, in bytes.
    pub size: usize,
}

impl Plan {
    /// All points, grouped by benchmark.
    pub fn points(&self) -> Vec<Point> {
        let points_of = |&bench: &Bench| self.sizes.iter().map(move |&size| Point { bench, size });
        let points = self.benches.iter().flat_map(points_of);
        points
            .filter(|point| point.bench.has_size(point.size))
            .collect()
    }

    /// The order for one run of a point.
    pub fn order(&self, point: Point) -> BenchOrder {
        let window = if self.datagrams {
            datagram_window(self.window, point.size)
        } else {
            fitting_window(self.window, point.size)
        };
        let mut counts = if point.bench.is_windowed() {
            window_counts(point.size * window)
        } else {
            Counts::for_size(point.size)
        };
        if point.bench.is_timed_singly() {
            counts = SINGLY_TIMED_COUNTS;
        } else if self.is_long {
            counts.batch *= LONG_RUN_FACTOR;
            counts.singles = 0;
        }
        if let Some(iterations) = self.iterations {
            counts.batch = iterations;
            counts.singles = if point.bench.is_windowed() {
                0
            } else {
                iterations
            };
        }
        counts.warmup = self.warmup.unwrap_or(counts.warmup);
        BenchOrder {
            bench: point.bench,
            size: point.size,
            counts,
            window,
            inject: self.inject,
            verify: self.verify,
            senders: 0,
            sender: 0,
        }
    }

    /// The order for endpoints that all points can use.
    pub fn open_order(&self, provider: Option<String>) -> OpenOrder {
        let largest = self.sizes.iter().copied().max().unwrap_or(1);
        OpenOrder {
            special: self.special,
            remote: self.benches.iter().any(|bench| bench.is_remote()),
            datagrams: self.datagrams,
            ..OpenOrder::plain(provider, self.window, largest)
        }
    }
}

/// Counts of windows of `bytes` bytes: enough for a steady figure in some ten milliseconds.
fn window_counts(bytes: usize) -> Counts {
    let batch = (STREAM_BYTES / bytes.max(1)).clamp(4, 500);
    Counts {
        warmup: batch.div_ceil(8),
        batch,
        singles: 0,
    }
}

/// Exchanges of a run in a ring, and broadcasts: enough for a 99th percentile, and few enough for a
/// ring in which an exchange takes a time slice.
const SINGLY_TIMED_COUNTS: Counts = Counts {
    warmup: 500,
    batch: 0,
    singles: 4000,
};
/// Factor that lengthens a run from tens to hundreds of milliseconds.
const LONG_RUN_FACTOR: usize = 40;
/// Bytes of the windows of a run.
const STREAM_BYTES: usize = 128 << 20;
