//! Stored reports: the fields of the JSON object that `plot` and `compare` read.

use std::path::Path;

use anyhow::Context as _;
use serde::Deserialize;

use crate::fabric::Bench;
use crate::measure::stats::confidence;
use crate::measure::timing::QUANTILES;

/// A stored report.
#[derive(Clone, Debug, Deserialize)]
pub struct Report {
    /// Whether the run was interrupted.
    #[serde(default)]
    pub partial: bool,
    /// The machine that ran the measurement.
    pub machine: Machine,
    /// The results.
    pub rows: Vec<Row>,
}

/// The machine of a stored report.
#[derive(Clone, Debug, Deserialize)]
pub struct Machine {
    /// The processor's model.
    pub cpu: String,
    /// Number of cores that the process was allowed to use.
    pub cores: usize,
    /// Operating system and version.
    pub kernel: String,
}

/// The result of one contestant at one point.
#[derive(Clone, Debug, Deserialize)]
pub struct Row {
    /// The provider.
    pub provider: String,
    /// Name and version of the implementation.
    pub implementation: String,
    /// The benchmark.
    pub bench: String,
    /// Bytes of a message.
    pub size: usize,
    /// Outstanding messages at most.
    pub window: usize,
    /// The round trips; `None` for streams.
    pub rtt_ns: Option<RoundTrip>,
    /// Messages per second; `None` where no run counts.
    pub msgs_per_s: Option<f64>,
    /// Time of one message at the limit, in nanoseconds.
    pub limit_ns: Option<f64>,
    /// Bandwidth of one core's copies, in millions of bytes per second.
    pub memcpy_mbps: Option<f64>,
    /// Time of one read by a system call, in nanoseconds.
    pub cma_ns: Option<f64>,
    /// Name of the configuration; empty for the plain pair.
    #[serde(default)]
    #[serde(rename = "manner")]
    pub config: String,
    /// Number of runs that count; reports of older versions have none.
    #[serde(default)]
    pub reps: usize,
    /// Number of runs that were left out because the cores' distance changed.
    #[serde(default)]
    pub dropped: usize,
    /// Time of a message in each run, in nanoseconds; empty in reports of older versions.
    #[serde(default)]
    pub runs_ns: Vec<f64>,
}

/// The distribution of round trips.
#[derive(Clone, Debug, Deserialize)]
pub struct RoundTrip {
    /// The values of the [`QUANTILES`], in nanoseconds.
    #[serde(default)]
    pub curve: Option<[f64; QUANTILES.len()]>,
}

impl Report {
    /// Reads a file.
    ///
    /// # Errors
    /// The system's error; an error for a file that is not a report.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let name = path.display();
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
        serde_json::from_str(&text)
            .with_context(|| format!("{name} is not a report of `bench --json`"))
    }
}

impl Row {
    /// Time of one message, in nanoseconds.
    pub fn message_ns(&self) -> f64 {
        self.msgs_per_s.map_or(f64::NAN, |rate| 1e9 / rate)
    }

    /// 95 % confidence interval of the time of a message. Both bounds are the time itself if there
    /// is at most one run.
    pub fn confidence(&self) -> [f64; 2] {
        match self.runs_ns.len() {
            0 | 1 => [self.message_ns(); 2],
            _ => confidence(&self.runs_ns),
        }
    }

    /// Whether the times are those of exchanges in a ring.
    pub fn is_of_ring(&self) -> bool {
        self.bench == Bench::TaggedRing.name()
    }

    /// The quantiles of the round trips.
    pub fn curve(&self) -> Option<[f64; QUANTILES.len()]> {
        self.rtt_ns.as_ref()?.curve
    }

    /// A name that distinguishes this row from `others`: the benchmark and every attribute in which
    /// the rows differ.
    pub fn distinct_name(&self, others: &[&Self]) -> String {
        let differ =
            |field: fn(&Self) -> &str| others.iter().any(|other| field(other) != field(self));
        let mut name = self.bench.clone();
        if differ(|row| &row.provider) {
            name += &format!(", {}", self.provider);
        }
        if differ(|row| &row.implementation) {
            name += &format!(" ({})", self.implementation);
        }
        if !self.config.is_empty() {
            name += &format!(", {}", self.config);
        }
        name
    }
}
