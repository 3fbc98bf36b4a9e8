//! The survey of the limits: which probes run, how often, and how their outcomes become figures.

use std::collections::BTreeMap;

use super::report::{Limits, SizeLimit};
use super::ring::PAYLOAD;
use super::{Outcome, Probe};
use crate::measure::stats::median;
use crate::measure::timing::{Counts, Timing};
use crate::output::progress::Progress;
use crate::pair::{Order, Pair};

/// The set of limits to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// The limits in a benchmark's report: the line, the ring, two copies and memcpy.
    Report,
    /// All limits.
    Full,
}

/// The distance between the two cores at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Distance {
    /// Round trip of a cache line, in nanoseconds.
    pub line_ns: f64,
    /// Round trip of the one-line ring, in nanoseconds.
    pub ring: Timing,
}

/// Measures the limits of `depth` in `rounds` rounds, and returns the medians.
///
/// # Errors
/// As [`Pair::order`].
pub fn survey(
    pair: &mut Pair,
    depth: Depth,
    sizes: &[usize],
    rounds: usize,
    progress: Progress,
) -> anyhow::Result<Limits> {
    let probes = probes(depth, sizes);
    let steps = progress.steps("limits", probes.len() * rounds);
    let mut outcomes = Outcomes::default();
    for _ in 0..rounds {
        for &probe in &probes {
            outcomes.add(probe, pair.measure(&Order::Probe(probe, counts(probe)))?);
            steps.step();
        }
    }
    Ok(outcomes.limits(sizes))
}

/// Measures the present distance of the cores, in a few milliseconds.
///
/// # Errors
/// As [`Pair::order`].
pub fn distance(pair: &mut Pair) -> anyhow::Result<Distance> {
    let mut measure = |probe| -> anyhow::Result<Timing> {
        match pair.measure(&Order::Probe(probe, DISTANCE))? {
            Outcome::Took(timing) => Ok(timing),
            Outcome::Refused(reason) => anyhow::bail!("{probe:?} was refused: {reason}"),
        }
    };
    Ok(Distance {
        line_ns: measure(Probe::Line)?.mean,
        ring: measure(Probe::Ring)?,
    })
}

/// The pattern of messages or accesses whose limit is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Each message is sent after the reply to the previous one.
    RoundTrip,
    /// Messages in one direction, without replies.
    Stream,
    /// Each access writes a line that the other core polls.
    Put,
    /// Each access reads a line that the other core has written.
    Get,
    /// Each access copies to or from memory that only this core uses.
    Copies,
    /// Each access adds to a line that the other core has written.
    Add,
}

/// The medium of a provider's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Memory that both processes map.
    Memory,
    /// Sockets.
    Sockets,
}

impl Transport {
    /// The transport of a provider.
    pub fn of_provider(provider: &str) -> Self {
        match provider {
            "shm" => Self::Memory,
            _ => Self::Sockets,
        }
    }
}

/// Measures the time of one message of `size` bytes at the limit, in nanoseconds: one way of a
/// round trip, or one message of many.
///
/// - Messages over memory: the one-line ring if a message fits a line, otherwise two copies with the
///   best chunk size.
/// - Accesses to remote memory: a plain store or load, or one copy.
/// - Sockets: round trips over a TCP socket that both sides poll, and a stream without message
///   boundaries. The stream's bytes occupy as much memory as a window of messages.
///
/// # Errors
/// As [`Pair::order`].
pub fn point_limit(
    pair: &mut Pair,
    transport: Transport,
    flow: Flow,
    size: usize,
    window: usize,
) -> anyhow::Result<f64> {
    let mut best_ns = |probes: Vec<Probe>| -> anyhow::Result<f64> {
        let mut best = f64::INFINITY;
        for probe in probes {
            let mut counts = counts(probe);
            counts.singles = 0;
            if let Outcome::Took(timing) = pair.measure(&Order::Probe(probe, counts))? {
                best = best.min(timing.mean);
            }
        }
        Ok(best)
    };
    if transport == Transport::Sockets {
        return socket_limit(&mut best_ns, flow, size, window);
    }
    Ok(match flow {
        Flow::RoundTrip => best_ns(limit_probes(flow, size))? / 2.0,
        Flow::Stream => best_ns(limit_probes(flow, size))?,
        // The limit of a short put is a plain store that the target polls; a longer put also
        // copies.
        Flow::Put if size <= 8 => best_ns(vec![Probe::Put])? / 2.0,
        Flow::Put => best_ns(vec![Probe::Put])? / 2.0 + best_ns(vec![Probe::Memcpy { size }])?,
        Flow::Get if size <= 64 => best_ns(vec![Probe::Load])?,
        Flow::Get | Flow::Copies => best_ns(vec![Probe::Memcpy { size }])?,
        Flow::Add => best_ns(vec![Probe::Add])?,
    })
}

fn socket_limit(
    best_ns: &mut impl FnMut(Vec<Probe>) -> anyhow::Result<f64>,
    flow: Flow,
    size: usize,
    window: usize,
) -> anyhow::Result<f64> {
    Ok(match flow {
        Flow::RoundTrip | Flow::Put => best_ns(vec![Probe::TcpTrip { size }])? / 2.0,
        Flow::Stream | Flow::Copies => {
            let write_size = size.max(STREAM_WRITE);
            let stream = Probe::TcpRate {
                size: write_size,
                window: (window * size).div_ceil(write_size),
            };
            best_ns(vec![stream])? * size as f64 / write_size as f64
        }
        // The first way carries the request to the target.
        Flow::Get | Flow::Add => {
            best_ns(vec![Probe::Tcp])? / 2.0 + best_ns(vec![Probe::TcpTrip { size }])? / 2.0
        }
    })
}

/// Smallest write of a stream without message boundaries, in bytes.
const STREAM_WRITE: usize = 64 << 10;

/// Measures the present time to read `size` bytes of the other process's memory by a system call,
/// in nanoseconds. This time is the reference for copies without the sender's help. Returns `None`
/// for sizes below 16 KiB, and if the system refuses the call.
///
/// # Errors
/// As [`Pair::order`].
pub fn cma_ns(pair: &mut Pair, size: usize) -> anyhow::Result<Option<f64>> {
    if size < CMA_MIN_SIZE {
        return Ok(None);
    }
    let probe = Probe::Cma { size };
    let outcome = pair.measure(&Order::Probe(probe, counts(probe)))?;
    Ok(match outcome {
        Outcome::Took(timing) => Some(timing.mean),
        Outcome::Refused(_) => None,
    })
}

/// Smallest size that is read by a system call, in bytes. Two copies are faster for smaller
/// messages.
const CMA_MIN_SIZE: usize = 16 << 10;

fn limit_probes(flow: Flow, size: usize) -> Vec<Probe> {
    let fits_a_line = size <= PAYLOAD;
    match flow {
        Flow::RoundTrip if fits_a_line => vec![Probe::Ring],
        Flow::Stream if fits_a_line => vec![Probe::RingRate],
        Flow::RoundTrip => chunks(size)
            .map(|chunk| Probe::TwoCopy { size, chunk })
            .collect(),
        Flow::Stream => chunks(size)
            .map(|chunk| Probe::TwoCopyRate { size, chunk })
            .collect(),
        Flow::Put | Flow::Get | Flow::Copies | Flow::Add => Vec::new(),
    }
}

fn probes(depth: Depth, sizes: &[usize]) -> Vec<Probe> {
    let mut probes = vec![
        Probe::Line,
        Probe::Ring,
        Probe::RingSmall,
        Probe::RingRate,
        Probe::RingRateSmall,
    ];
    for &size in sizes {
        probes.extend(chunks(size).map(|chunk| Probe::TwoCopy { size, chunk }));
        probes.push(Probe::Memcpy { size });
    }
    if depth == Depth::Full {
        probes.extend([
            Probe::Put,
            Probe::Tcp,
            Probe::Unix,
            Probe::Futex,
            Probe::EventFd,
        ]);
        for &size in sizes {
            probes.extend([Probe::Cma { size }, Probe::MemcpyCold { size }]);
        }
    }
    probes
}

/// The chunk sizes of the two-copy probes. The fastest of these probes counts as the limit.
fn chunks(size: usize) -> impl Iterator<Item = usize> {
    let whole = (size <= CHUNKS[0]).then_some(size);
    whole
        .into_iter()
        .chain(CHUNKS.into_iter().filter(move |&chunk| chunk < size))
}

fn counts(probe: Probe) -> Counts {
    match probe {
        Probe::Line | Probe::Put | Probe::Load | Probe::Add | Probe::Ring | Probe::RingSmall => {
            Counts::for_size(64)
        }
        Probe::RingRate | Probe::RingRateSmall => Counts {
            warmup: 60,
            batch: 500,
            singles: 0,
        },
        Probe::TwoCopy { size, .. }
        | Probe::TwoCopyRate { size, .. }
        | Probe::Memcpy { size }
        | Probe::Cma { size }
        | Probe::MemcpyCold { size }
        | Probe::TcpTrip { size }
        | Probe::TcpRate { size, .. } => Counts::for_size(size),
        Probe::Tcp | Probe::Unix | Probe::Futex | Probe::EventFd => SYSTEM_CALLS,
    }
}

/// The outcomes of all probes so far, by probe.
#[derive(Debug, Default)]
struct Outcomes {
    timings: BTreeMap<String, Vec<Timing>>,
    refused: BTreeMap<String, String>,
}

impl Outcomes {
    fn add(&mut self, probe: Probe, outcome: Outcome) {
        match outcome {
            Outcome::Took(timing) => self.timings.entry(key(probe)).or_default().push(timing),
            Outcome::Refused(reason) => drop(self.refused.insert(key(probe), reason)),
        }
    }

    fn limits(&self, sizes: &[usize]) -> Limits {
        Limits {
            cacheline_rtt_ns: self.mean(Probe::Line),
            put_rtt_ns: self.mean(Probe::Put),
            ring_rtt_ns: self.median_of(Probe::Ring, |timing| timing.p50),
            ring_rtt_mean_ns: self.mean(Probe::Ring),
            ring_rtt_8b_ns: self.median_of(Probe::RingSmall, |timing| timing.p50),
            ring_msgs_per_s: self.mean(Probe::RingRate).map(|ns| 1e9 / ns),
            ring_8b_msgs_per_s: self.mean(Probe::RingRateSmall).map(|ns| 1e9 / ns),
            two_copy: self.per_size(sizes, |size| self.two_copy(size)),
            memcpy: self.per_size(sizes, |size| self.mean(Probe::Memcpy { size })),
            memcpy_cold: self.per_size(sizes, |size| self.mean(Probe::MemcpyCold { size })),
            cma: self.per_size(sizes, |size| self.mean(Probe::Cma { size })),
            cma_refused: self.refused.values().next().cloned(),
            tcp_rtt_ns: self.median_of(Probe::Tcp, |timing| timing.p50),
            unix_rtt_ns: self.median_of(Probe::Unix, |timing| timing.p50),
            futex_wake_ns: self.median_of(Probe::Futex, |timing| timing.p50 / 2.0),
            eventfd_wake_ns: self.median_of(Probe::EventFd, |timing| timing.p50 / 2.0),
        }
    }

    /// Time of one direction with the best chunk size.
    fn two_copy(&self, size: usize) -> Option<f64> {
        chunks(size)
            .filter_map(|chunk| self.mean(Probe::TwoCopy { size, chunk }))
            .map(|round_trip| round_trip / 2.0)
            .min_by(f64::total_cmp)
    }

    fn mean(&self, probe: Probe) -> Option<f64> {
        self.median_of(probe, |timing| timing.mean)
    }

    fn median_of(&self, probe: Probe, figure: impl Fn(&Timing) -> f64) -> Option<f64> {
        let timings = self.timings.get(&key(probe))?;
        Some(median(&timings.iter().map(figure).collect::<Vec<_>>()))
    }

    fn per_size(&self, sizes: &[usize], ns: impl Fn(usize) -> Option<f64>) -> Vec<SizeLimit> {
        let limit = |&size: &usize| ns(size).map(|ns| SizeLimit::new(size, ns));
        sizes.iter().filter_map(limit).collect()
    }
}

fn key(probe: Probe) -> String {
    format!("{probe:?}")
}

/// Chunk sizes of large messages, in bytes. Several of the smallest chunks are in flight at once,
/// even in a first-level cache. The largest is the most that a [`super::byte_ring::ByteRing`] holds
/// contiguously.
const CHUNKS: [usize; 3] = [4 << 10, 8 << 10, 16 << 10];
/// Counts of the probes by system calls.
const SYSTEM_CALLS: Counts = Counts {
    warmup: 100,
    batch: 1000,
    singles: 1000,
};
/// Counts of the probes of the cores' distance.
const DISTANCE: Counts = Counts {
    warmup: 200,
    batch: 1000,
    singles: 1000,
};
