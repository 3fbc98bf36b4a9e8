//! What a comparison measures.

use crate::fabric::{Bench, BenchOrder, OpenOrder, datagram_window, fitting_window};
use crate::timing::Counts;

/// What is measured, and how often.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Which benchmarks.
    pub benches: Vec<Bench>,
    /// At which sizes, in bytes.
    pub sizes: Vec<usize>,
    /// Messages on the way at once.
    pub window: usize,
    /// Round trips or windows of a run; by default what its size needs.
    pub iterations: Option<usize>,
    /// Of them, before the clock starts; by default what its size needs.
    pub warmup: Option<usize>,
    /// Runs of each point by each contestant.
    pub reps: usize,
    /// Send by inject where possible.
    pub inject: bool,
    /// Check every message.
    pub verify: bool,
    /// Have our buffers in memory that the domain makes.
    pub special: bool,
    /// Have runs last so long that processes have taken turns on the cores meanwhile.
    pub is_long: bool,
    /// Over datagrams.
    pub datagrams: bool,
}

/// One benchmark at one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Which benchmark.
    pub bench: Bench,
    /// In bytes.
    pub size: usize,
}

impl Plan {
    /// All points, bench by bench.
    pub fn points(&self) -> Vec<Point> {
        let at = |&bench: &Bench| self.sizes.iter().map(move |&size| Point { bench, size });
        let all = self.benches.iter().flat_map(at);
        all.filter(|point| point.bench.has_size(point.size))
            .collect()
    }

    /// One run of a point.
    pub fn order(&self, point: Point) -> BenchOrder {
        let window = match self.datagrams {
            true => datagram_window(self.window, point.size),
            false => fitting_window(self.window, point.size),
        };
        let mut counts = if point.bench.is_windowed() {
            windows(point.size * window)
        } else {
            Counts::for_size(point.size)
        };
        if self.is_long {
            counts.batch *= LONG;
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

    /// Endpoints that all points can use.
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

/// As many windows as make a steady figure in some ten milliseconds.
fn windows(bytes: usize) -> Counts {
    let batch = (STREAM_BYTES / bytes.max(1)).clamp(4, 500);
    Counts {
        warmup: batch.div_ceil(8),
        batch,
        singles: 0,
    }
}

/// Makes some ten milliseconds some hundreds.
const LONG: usize = 40;
const STREAM_BYTES: usize = 128 << 20;
