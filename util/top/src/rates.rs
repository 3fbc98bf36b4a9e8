//! Two looks at the same endpoint, and what happened between them.

use std::thread;
use std::time::Instant;

use selvedge_kit::telemetry::{OpCounter, Stats};

use crate::options::Options;
use crate::processes;

/// An endpoint with what it does in a second.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) seen: Stats,
    pub(crate) sent: Rate,
    pub(crate) received: Rate,
    /// One-sided operations of its own.
    pub(crate) one_sided: Rate,
}

/// In a second.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rate {
    pub(crate) operations: f64,
    pub(crate) bytes: f64,
}

impl Rate {
    fn between(before: (u64, u64), now: (u64, u64), seconds: f64) -> Self {
        let per_second = |before: u64, now: u64| now.saturating_sub(before) as f64 / seconds;
        Self {
            operations: per_second(before.0, now.0),
            bytes: per_second(before.1, now.1),
        }
    }
}

impl Measured {
    /// An endpoint that was seen for the first time has no rates yet.
    pub(crate) fn new(before: Option<&Stats>, seen: Stats, seconds: f64) -> Self {
        let first = before.unwrap_or(&seen);
        let one_sided = |seen: &Stats| {
            let (reads, writes) = (
                seen.op_counter(OpCounter::Read),
                seen.op_counter(OpCounter::Written),
            );
            (reads.0 + writes.0, reads.1 + writes.1)
        };
        let rate = |what| Rate::between(first.op_counter(what), seen.op_counter(what), seconds);
        Self {
            sent: rate(OpCounter::Sent),
            received: rate(OpCounter::Received),
            one_sided: Rate::between(one_sided(first), one_sided(&seen), seconds),
            seen,
        }
    }
}

/// Whether both are looks at the same endpoint.
pub(crate) fn is_same(one: &Stats, other: &Stats) -> bool {
    (one.pid, one.opened, &one.name) == (other.pid, other.opened, &other.name)
}

/// The endpoints that are asked for.
pub(crate) fn look(options: &Options) -> anyhow::Result<Vec<Stats>> {
    let mut seen = processes::all()?;
    seen.retain(|seen| options.shows(seen.pid));
    Ok(seen)
}

/// What changed between two looks.
pub(crate) fn compare(before: &[Stats], now: Vec<Stats>, seconds: f64) -> Vec<Measured> {
    let measured = now.into_iter().map(|seen| {
        let before = before.iter().find(|before| is_same(before, &seen));
        Measured::new(before, seen, seconds)
    });
    measured.collect()
}

/// Looks twice, an interval apart.
pub(crate) fn measured(options: &Options) -> anyhow::Result<Vec<Measured>> {
    let before = look(options)?;
    let start = Instant::now();
    thread::sleep(options.interval);
    let now = look(options)?;
    Ok(compare(&before, now, start.elapsed().as_secs_f64()))
}
