//! Reports that were written as JSON, as far as they are read again.

use std::path::Path;

use anyhow::Context as _;
use serde::Deserialize;

use crate::stats::confidence;
use crate::timing::QUANTILES;

/// A report.
#[derive(Clone, Debug, Deserialize)]
pub struct Report {
    /// Whether the run was interrupted.
    #[serde(default)]
    pub partial: bool,
    /// Where it was measured.
    pub machine: Machine,
    /// The results.
    pub rows: Vec<Row>,
}

/// A machine.
#[derive(Clone, Debug, Deserialize)]
pub struct Machine {
    /// The processor's model.
    pub cpu: String,
    /// Cores that were allowed.
    pub cores: usize,
    /// Operating system and version.
    pub kernel: String,
}

/// A contestant at a point.
#[derive(Clone, Debug, Deserialize)]
pub struct Row {
    /// The provider.
    pub provider: String,
    /// Whose it is, with its version.
    pub implementation: String,
    /// The benchmark.
    pub bench: String,
    /// Bytes of a message.
    pub size: usize,
    /// Messages on the way at once.
    pub window: usize,
    /// Of round trips.
    pub rtt_ns: Option<RoundTrip>,
    /// Messages per second; none where no run counts.
    pub msgs_per_s: Option<f64>,
    /// The limit beside it.
    pub limit_ns: Option<f64>,
    /// One core's copies.
    pub memcpy_mbps: Option<f64>,
    /// One read by a system call.
    pub cma_ns: Option<f64>,
    /// In what it is not as usual.
    #[serde(default)]
    pub manner: String,
    /// Runs that count; none is stored in reports of older versions.
    #[serde(default)]
    pub reps: usize,
    /// Runs that were left out because the cores' distance changed.
    #[serde(default)]
    pub dropped: usize,
    /// The time of a message in each run; empty in reports of older versions.
    #[serde(default)]
    pub runs_ns: Vec<f64>,
}

/// Round trips.
#[derive(Clone, Debug, Deserialize)]
pub struct RoundTrip {
    /// The times that [`QUANTILES`] of them do not exceed.
    #[serde(default)]
    pub curve: Option<[f64; QUANTILES.len()]>,
}

impl Report {
    /// Reads a file.
    ///
    /// # Errors
    /// The system's; that it is no report.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let name = path.display();
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
        serde_json::from_str(&text)
            .with_context(|| format!("{name} is no report of `bench --json`"))
    }
}

impl Row {
    /// What one message took.
    pub fn message_ns(&self) -> f64 {
        self.msgs_per_s.map_or(f64::NAN, |rate| 1e9 / rate)
    }

    /// Between which times the median lies with confidence; the time itself where it was measured
    /// but once.
    pub fn confidence(&self) -> [f64; 2] {
        match self.runs_ns.len() {
            0 | 1 => [self.message_ns(); 2],
            _ => confidence(&self.runs_ns),
        }
    }

    /// How its round trips are spread.
    pub fn curve(&self) -> Option<[f64; QUANTILES.len()]> {
        self.rtt_ns.as_ref()?.curve
    }

    /// What it is called among others: with what is not the same for all of them.
    pub fn name(&self, among: &[&Self]) -> String {
        let differ =
            |field: fn(&Self) -> &str| among.iter().any(|other| field(other) != field(self));
        let mut name = self.bench.clone();
        if differ(|row| &row.provider) {
            name += &format!(", {}", self.provider);
        }
        if differ(|row| &row.implementation) {
            name += &format!(" ({})", self.implementation);
        }
        if !self.manner.is_empty() {
            name += &format!(", {}", self.manner);
        }
        name
    }
}
