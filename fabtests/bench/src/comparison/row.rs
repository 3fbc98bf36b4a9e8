//! The report of a comparison: the rows of the JSON object.

use serde::Serialize;

use super::{Contestant, Measured, MemoryUse, Opening};
use crate::fabric::BenchOrder;
use crate::limits::{Distance, Limits, SizeLimit};
use crate::machine::Machine;
use crate::measure::size;
use crate::measure::stats::{confidence, median, spread};
use crate::measure::timing::{QUANTILES, Timing};
use crate::output::table::figure;

/// The object that `--json` prints. Later versions may add fields but remove none.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Whether the run was interrupted. Rows are then missing, or have fewer rounds.
    pub partial: bool,
    /// The machine that ran the measurement.
    pub machine: Machine,
    /// The limits of the machine.
    pub limits: Limits,
    /// The results.
    pub rows: Vec<Row>,
    /// Memory of an idle endpoint of each contestant; empty when it was not measured.
    pub memory: Vec<MemoryUse>,
    /// Time to open an endpoint of each provider of Selvedge; empty when it was not measured.
    pub opening: Vec<Opening>,
}

/// The result of one contestant at one point.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The provider.
    pub provider: String,
    /// Name and version of the implementation.
    pub implementation: String,
    /// The benchmark's name.
    pub bench: &'static str,
    /// Message size, in bytes.
    pub size: usize,
    /// Outstanding messages at most; 1 for round trips.
    pub window: usize,
    /// Whether messages were sent by inject.
    pub inject: bool,
    /// Time of a round trip, of an exchange in a ring, or of a broadcast, in nanoseconds; `null`
    /// for streams.
    pub rtt_ns: Option<Timing>,
    /// Millions of bytes per second, in one direction.
    pub mbps: f64,
    /// Messages per second, in one direction.
    pub msgs_per_s: f64,
    /// Runs that the figures are medians of.
    pub reps: usize,
    /// Runs that were left out because the cores' distance changed.
    pub dropped: usize,
    /// Quartile distance of the runs' times, divided by their median.
    pub spread: f64,
    /// Round trip of a cache line around these runs, in nanoseconds.
    pub cacheline_rtt_ns: f64,
    /// Mean round trip of the one-line ring around these runs, in nanoseconds.
    pub ring_rtt_ns: f64,
    /// Time of one message at the limit, in nanoseconds. The limit is the one-line ring up to 56
    /// bytes and two copies above; for providers over sockets, a TCP socket that both sides poll.
    /// A round trip's limit is the time of one way, a stream's the time of one of many messages.
    /// `null` when the limit was never measured at the distance of these runs.
    pub limit_ns: Option<f64>,
    /// The time of one message, divided by `limit_ns`.
    pub ratio: Option<f64>,
    /// The limit of one core's copies in cache, in millions of bytes per second.
    pub memcpy_mbps: Option<f64>,
    /// One read of the message by `process_vm_readv(2)`, in the same rounds, in nanoseconds; `null`
    /// below 16 KiB and where the system refuses.
    pub cma_ns: Option<f64>,
    /// Name of the configuration; empty for the plain pair.
    #[serde(rename = "manner")]
    pub config: String,
    /// Cores in use: processor time of all processes, divided by the time of the runs; `null` when
    /// it was not measured.
    pub cores: Option<f64>,
    /// Processor time of a waiting process, divided by the time for which that process waits;
    /// `null` when it was not measured.
    pub waiting_cpu: Option<f64>,
    /// Time of one message in each run that counts, in nanoseconds, in the order of the runs.
    pub runs_ns: Vec<f64>,
    /// 95 % confidence interval of the median of `runs_ns`.
    pub ci_ns: [f64; 2],
}

/// A measurement between two measurements of the cores' distance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample<T> {
    value: T,
    before: Distance,
    after: Distance,
}

/// The measurements of one round at a point.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Round {
    /// Time of one message at the limit, in nanoseconds.
    pub(super) limit: Sample<f64>,
    /// Time of one read by a system call, in nanoseconds. This time does not depend on the
    /// distance.
    pub(super) cma_ns: Option<f64>,
    /// The runs, each with its contestant's index.
    pub(super) runs: Vec<(usize, Sample<Measured>)>,
}

impl<T> Sample<T> {
    pub(super) fn new(value: T, before: Distance, after: Distance) -> Self {
        Self {
            value,
            before,
            after,
        }
    }

    /// Round trip of the cache line around the measurement.
    fn line_ns(&self) -> f64 {
        (self.before.line_ns * self.after.line_ns).sqrt()
    }

    /// Mean round trip of the one-line ring around the measurement.
    fn ring_ns(&self) -> f64 {
        (self.before.ring.mean * self.after.ring.mean).sqrt()
    }

    /// Whether the distance was `line_ns` before and after the measurement.
    fn is_at(&self, line_ns: f64) -> bool {
        [self.before, self.after]
            .iter()
            .all(|distance| is_near(distance.line_ns, line_ns))
    }
}

impl Row {
    /// Makes the row of contestant `number` at a point. A run or a limit counts only if it was
    /// measured at the common distance of all contestants' runs at that point.
    pub(super) fn new(
        order: &BenchOrder,
        contestant: &Contestant,
        number: usize,
        rounds: &[Round],
        limits: &Limits,
    ) -> Self {
        let common = common_line_ns(rounds);
        let runs = rounds.iter().flat_map(|round| &round.runs);
        let contestant_runs: Vec<_> = runs
            .filter(|(index, _)| *index == number)
            .map(|(_, run)| run)
            .collect();
        let kept: Vec<_> = contestant_runs
            .iter()
            .copied()
            .filter(|run| run.is_at(common))
            .collect();
        let times = figures(&kept, |run| run.value.timing.mean);
        let is_pingpong = order.bench.is_pingpong();
        let has_times = is_pingpong || order.bench.is_timed_singly();
        let messages = if is_pingpong { 2.0 } else { 1.0 };
        let message_ns = median(&times) / messages;
        let runs_ns: Vec<_> = times.iter().map(|time| time / messages).collect();
        let limit_ns = median_limit_ns(rounds, common);
        Self {
            provider: contestant.opened.provider.clone(),
            implementation: contestant.implementation.clone(),
            bench: order.bench.name(),
            size: order.size,
            window: if order.bench.is_windowed() {
                order.window
            } else {
                1
            },
            inject: order.inject && order.size <= contestant.opened.inject_size,
            rtt_ns: has_times.then(|| median_timing(&kept)),
            mbps: order.size as f64 * 1e3 / message_ns,
            msgs_per_s: 1e9 / message_ns,
            reps: kept.len(),
            dropped: contestant_runs.len() - kept.len(),
            spread: spread(&times),
            cacheline_rtt_ns: median(&figures(&kept, Sample::line_ns)),
            ring_rtt_ns: median(&figures(&kept, Sample::ring_ns)),
            limit_ns,
            ratio: limit_ns.map(|limit| message_ns / limit),
            cma_ns: median_cma_ns(rounds),
            config: contestant.config.clone(),
            cores: median_figure(&kept, |run| run.cores),
            waiting_cpu: median_figure(&kept, |run| run.waiting_cpu),
            memcpy_mbps: SizeLimit::find(&limits.memcpy, order.size).map(|limit| limit.mbps),
            ci_ns: confidence(&runs_ns),
            runs_ns,
        }
    }

    /// A log line: the time of a message in the runs so far.
    pub fn line(&self) -> String {
        let contestant = match self.config.as_str() {
            "" => format!("{} of {}", self.provider, self.implementation),
            config => format!("{} of {} ({config})", self.provider, self.implementation),
        };
        let time = match self.reps {
            0 => "left out, the cores' distance changed".to_owned(),
            _ => format!("{} us a message", figure(self.message_ns() / 1e3)),
        };
        format!(
            "{} of {}: {time}, {contestant}",
            self.bench,
            size::text(self.size)
        )
    }

    /// Time of one message, in nanoseconds: one way of a round trip, or one message of a stream.
    pub fn message_ns(&self) -> f64 {
        1e9 / self.msgs_per_s
    }
}

/// A sentence about the `dropped` runs that were left out beside the `reps` runs that count; `None`
/// if every run counts.
pub fn left_out(reps: usize, dropped: usize) -> Option<String> {
    let total = reps + dropped;
    match (reps, dropped) {
        (_, 0) => None,
        (0, _) => Some(format!(
            "no figures: all {total} runs were left out, the cores' distance changed during each"
        )),
        _ => Some(format!(
            "{dropped} of {total} runs left out: the cores' distance changed"
        )),
    }
}

/// Median round trip of the cache line around all runs of a point.
fn common_line_ns(rounds: &[Round]) -> f64 {
    let runs = rounds.iter().flat_map(|round| &round.runs);
    median(&runs.map(|(_, run)| run.line_ns()).collect::<Vec<_>>())
}

/// The limit at a distance; `None` if it was never measured at that distance.
fn median_limit_ns(rounds: &[Round], line_ns: f64) -> Option<f64> {
    let limits = rounds.iter().map(|round| &round.limit);
    let kept: Vec<_> = limits.filter(|limit| limit.is_at(line_ns)).collect();
    (!kept.is_empty()).then(|| median(&figures(&kept, |limit| limit.value)))
}

/// Median time of a read by a system call.
fn median_cma_ns(rounds: &[Round]) -> Option<f64> {
    let times: Vec<_> = rounds.iter().filter_map(|round| round.cma_ns).collect();
    (!times.is_empty()).then(|| median(&times))
}

/// Each figure's median over the runs.
fn median_timing(runs: &[&Sample<Measured>]) -> Timing {
    Timing {
        mean: median(&figures(runs, |run| run.value.timing.mean)),
        p50: median(&figures(runs, |run| run.value.timing.p50)),
        p99: median(&figures(runs, |run| run.value.timing.p99)),
        min: median(&figures(runs, |run| run.value.timing.min)),
        curve: median_curve(runs),
    }
}

/// The median of each quantile over the runs; `None` if no run has a curve.
fn median_curve(runs: &[&Sample<Measured>]) -> Option<[f64; QUANTILES.len()]> {
    let curves: Vec<_> = runs
        .iter()
        .filter_map(|run| run.value.timing.curve)
        .collect();
    let median_at =
        |index: usize| median(&curves.iter().map(|curve| curve[index]).collect::<Vec<_>>());
    (!curves.is_empty()).then(|| std::array::from_fn(median_at))
}

/// A figure's median over the runs that have it.
fn median_figure(
    runs: &[&Sample<Measured>],
    figure: impl Fn(&Measured) -> Option<f64>,
) -> Option<f64> {
    let figures: Vec<_> = runs.iter().filter_map(|run| figure(&run.value)).collect();
    (!figures.is_empty()).then(|| median(&figures))
}

fn figures<T>(samples: &[&Sample<T>], figure: impl Fn(&Sample<T>) -> f64) -> Vec<f64> {
    samples.iter().map(|sample| figure(sample)).collect()
}

/// Whether two distances are the same, within the accuracy of a virtual machine.
fn is_near(left: f64, right: f64) -> bool {
    left <= right * SAME_DISTANCE_FACTOR && right <= left * SAME_DISTANCE_FACTOR
}

/// Greatest factor between two measurements of the same distance. Different distances of virtual
/// cores differ by a factor of four; measurements of the same distance differ by a tenth.
const SAME_DISTANCE_FACTOR: f64 = 1.5;

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(before: f64, after: f64) -> Sample<Timing> {
        let timing = Timing {
            mean: 1.0,
            p50: 1.0,
            p99: 1.0,
            min: 1.0,
            curve: None,
        };
        let distance = |line_ns| Distance {
            line_ns,
            ring: timing,
        };
        Sample::new(timing, distance(before), distance(after))
    }

    #[test]
    fn a_run_counts_only_at_the_common_core_distance() {
        assert!(sample(100.0, 110.0).is_at(100.0));
        assert!(!sample(100.0, 160.0).is_at(100.0));
        assert!(!sample(60.0, 100.0).is_at(100.0));
        assert!(!sample(400.0, 400.0).is_at(100.0));
    }
}
