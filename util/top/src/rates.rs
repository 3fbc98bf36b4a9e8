//! The rates of endpoints, computed from two snapshots of their statistics.

use std::thread;
use std::time::Instant;

use selvedge_kit::telemetry::{OpCounter, Stats};

use crate::options::Options;
use crate::processes;

/// An endpoint with its rates.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) stats: Stats,
    pub(crate) sent: Rate,
    pub(crate) received: Rate,
    /// One-sided operations that the endpoint initiated.
    pub(crate) one_sided: Rate,
}

/// Operations and bytes per second.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rate {
    pub(crate) operations: f64,
    pub(crate) bytes: f64,
}

impl Rate {
    fn between(previous: (u64, u64), now: (u64, u64), seconds: f64) -> Self {
        let per_second = |previous: u64, now: u64| now.saturating_sub(previous) as f64 / seconds;
        Self {
            operations: per_second(previous.0, now.0),
            bytes: per_second(previous.1, now.1),
        }
    }
}

impl Measured {
    /// Computes the rates from two snapshots that are `seconds` apart. Without the earlier snapshot
    /// the rates are 0.
    pub(crate) fn new(previous: Option<&Stats>, stats: Stats, seconds: f64) -> Self {
        let first = previous.unwrap_or(&stats);
        let one_sided = |stats: &Stats| {
            let (reads, writes) = (
                stats.op_counter(OpCounter::Read),
                stats.op_counter(OpCounter::Written),
            );
            (reads.0 + writes.0, reads.1 + writes.1)
        };
        let rate = |counter| {
            Rate::between(
                first.op_counter(counter),
                stats.op_counter(counter),
                seconds,
            )
        };
        Self {
            sent: rate(OpCounter::Sent),
            received: rate(OpCounter::Received),
            one_sided: Rate::between(one_sided(first), one_sided(&stats), seconds),
            stats,
        }
    }
}

/// Returns whether both are snapshots of the same endpoint.
pub(crate) fn is_same(one: &Stats, other: &Stats) -> bool {
    (one.pid, one.opened, &one.name) == (other.pid, other.opened, &other.name)
}

/// Returns a snapshot of the endpoints that the options select.
pub(crate) fn snapshot(options: &Options) -> anyhow::Result<Vec<Stats>> {
    let mut stats = processes::all()?;
    stats.retain(|stats| options.shows(stats.pid));
    Ok(stats)
}

/// Computes the rates between two snapshots of several endpoints. New endpoints have rates of 0.
pub(crate) fn compare(previous: &[Stats], now: Vec<Stats>, seconds: f64) -> Vec<Measured> {
    let measured = now.into_iter().map(|stats| {
        let previous = previous.iter().find(|previous| is_same(previous, &stats));
        Measured::new(previous, stats, seconds)
    });
    measured.collect()
}

/// Takes two snapshots, an interval apart, and returns the rates between them.
pub(crate) fn measure(options: &Options) -> anyhow::Result<Vec<Measured>> {
    let previous = snapshot(options)?;
    let start = Instant::now();
    thread::sleep(options.interval);
    let now = snapshot(options)?;
    Ok(compare(&previous, now, start.elapsed().as_secs_f64()))
}
