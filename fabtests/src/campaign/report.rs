//! The extent of a campaign, and its report.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use selvedge_testkit::random::Random;
use serde::Serialize;

/// The extent of a campaign.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed of random numbers.
    pub seed: u64,
    /// Attempts of each row; default: the campaign's own short number.
    pub rounds: Option<u64>,
    /// Whether every point is tried, instead of a number of random points.
    pub all: bool,
    /// The time for which each row is repeated, instead of a number of rounds.
    pub duration: Option<Duration>,
    /// The rows to run; all if it is empty.
    pub only: Vec<String>,
}

/// The result of a campaign.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The campaign.
    pub campaign: &'static str,
    /// The seed of random numbers.
    pub seed: u64,
    /// Duration, in seconds.
    pub seconds: f64,
    /// The attempts and their results.
    pub rows: Vec<Row>,
    /// Parts that could not run on this machine, with reasons.
    pub skipped: Vec<String>,
    #[serde(skip)]
    began: Option<Instant>,
}

/// One kind of attempt.
#[derive(Debug, Serialize)]
pub struct Row {
    /// The row's name.
    #[serde(rename = "what")]
    pub name: String,
    /// Number of attempts.
    pub attempted: u64,
    /// Number of attempts that harmed no other process.
    pub survived: u64,
    /// Measurements; a name ends in its unit.
    pub figures: BTreeMap<&'static str, f64>,
    /// The first failures.
    pub failures: Vec<String>,
}

/// Maximum number of failures in the report.
const MAX_FAILURES: usize = 5;
/// Rows with their former names, which `--only` also accepts.
const FORMER_NAMES: [(&str, &str); 7] = [
    ("connect", "meet"),
    ("be-connected", "be-met"),
    ("park", "lie-down"),
    ("hellos", "greetings"),
    ("responses", "answers"),
    ("announcements", "talk"),
    ("rendezvous", "offered"),
];

impl Plan {
    /// Returns whether the row `name` is to run.
    pub fn includes(&self, name: &str) -> bool {
        let is_listed = |listed: &str| self.only.iter().any(|only| only == listed);
        let former = FORMER_NAMES.iter().find(|(current, _)| *current == name);
        self.only.is_empty()
            || is_listed(name)
            || former.is_some_and(|(_, former)| is_listed(former))
    }

    /// Attempts of a row whose short form has `short` attempts.
    pub fn rounds(&self, short: u64) -> u64 {
        self.rounds.unwrap_or(short)
    }

    /// Returns the random numbers of the row `name`, which do not depend on the other rows.
    pub(crate) fn random(&self, name: &str) -> Random {
        let mix = |seed: u64, byte| seed.wrapping_mul(31).wrapping_add(u64::from(byte));
        Random::new(name.bytes().fold(self.seed, mix))
    }

    /// Returns whether a row that began at `began` ends after `done` rounds.
    pub fn is_over(&self, done: u64, short: u64, began: Instant) -> bool {
        match self.duration {
            Some(duration) => began.elapsed() >= duration,
            None => done >= self.rounds(short),
        }
    }
}

impl Report {
    /// Starts the report of a campaign.
    pub fn new(campaign: &'static str, plan: &Plan) -> Self {
        Self {
            campaign,
            seed: plan.seed,
            seconds: 0.0,
            rows: Vec::new(),
            skipped: Vec::new(),
            began: Some(Instant::now()),
        }
    }

    /// Adds a row.
    pub fn add(&mut self, row: Row) {
        self.rows.push(row);
        self.seconds = self
            .began
            .map_or(0.0, |began| began.elapsed().as_secs_f64());
    }

    /// Returns the number of all attempts.
    pub fn attempted(&self) -> u64 {
        self.rows.iter().map(|row| row.attempted).sum()
    }

    /// Returns the number of all attempts that harmed no other process.
    pub fn survived(&self) -> u64 {
        self.rows.iter().map(|row| row.survived).sum()
    }

    /// Returns whether there were attempts, and all survived.
    pub fn is_success(&self) -> bool {
        self.attempted() > 0 && self.attempted() == self.survived()
    }
}

impl Row {
    /// Returns a row without attempts.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            attempted: 0,
            survived: 0,
            figures: BTreeMap::new(),
            failures: Vec::new(),
        }
    }

    /// Counts an attempt, and returns its value if it succeeded. `label` is printed with a failure.
    pub fn count<T>(&mut self, label: &str, attempt: anyhow::Result<T>) -> Option<T> {
        self.attempted += 1;
        match attempt {
            Ok(value) => {
                self.survived += 1;
                Some(value)
            }
            Err(error) => {
                if self.failures.len() < MAX_FAILURES {
                    self.failures.push(format!("{label}: {error:#}"));
                }
                None
            }
        }
    }
}
