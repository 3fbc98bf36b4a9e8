//! What a campaign is asked to do, and what it has to report.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use selvedge_testkit::random::Random;
use serde::Serialize;

/// How much is to be done.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where random numbers begin.
    pub seed: u64,
    /// Attempts of each row; the campaign's own short number if it is not said.
    pub rounds: Option<u64>,
    /// Every point that there is, in place of a number of random ones.
    pub all: bool,
    /// Rounds are repeated for so long.
    pub duration: Option<Duration>,
    /// The rows to do; all if there are none.
    pub only: Vec<String>,
}

/// What came of it.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The campaign.
    pub campaign: &'static str,
    /// Where random numbers began.
    pub seed: u64,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// What was attempted, and how often it was survived.
    pub rows: Vec<Row>,
    /// What could not be done here, and why.
    pub skipped: Vec<String>,
    #[serde(skip)]
    began: Option<Instant>,
}

/// One kind of attempt.
#[derive(Debug, Serialize)]
pub struct Row {
    /// What was attempted.
    pub what: String,
    /// How often.
    pub attempted: u64,
    /// How often nobody else came to harm.
    pub survived: u64,
    /// What was measured on the way; names end in their unit.
    pub figures: BTreeMap<&'static str, f64>,
    /// The first failures.
    pub failures: Vec<String>,
}

/// Failures that are told.
const TOLD: usize = 5;

impl Plan {
    /// Whether a row is to be done.
    pub fn has(&self, what: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == what)
    }

    /// Attempts of a row whose short form has `short` of them.
    pub fn rounds(&self, short: u64) -> u64 {
        self.rounds.unwrap_or(short)
    }

    /// Random numbers for the row `what`: the same, whichever other rows are done.
    pub(crate) fn random(&self, what: &str) -> Random {
        let mix = |seed: u64, byte| seed.wrapping_mul(31).wrapping_add(u64::from(byte));
        Random::new(what.bytes().fold(self.seed, mix))
    }

    /// Whether it is time to end, `done` rounds after `began`.
    pub fn is_over(&self, done: u64, short: u64, began: Instant) -> bool {
        match self.duration {
            Some(duration) => began.elapsed() >= duration,
            None => done >= self.rounds(short),
        }
    }
}

impl Report {
    /// The report of a campaign that begins now.
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

    /// Attempts in all.
    pub fn attempted(&self) -> u64 {
        self.rows.iter().map(|row| row.attempted).sum()
    }

    /// How many of them were survived.
    pub fn survived(&self) -> u64 {
        self.rows.iter().map(|row| row.survived).sum()
    }

    /// Whether something was attempted, and everything survived.
    pub fn is_good(&self) -> bool {
        self.attempted() > 0 && self.attempted() == self.survived()
    }
}

impl Row {
    /// A row without attempts.
    pub fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            attempted: 0,
            survived: 0,
            figures: BTreeMap::new(),
            failures: Vec::new(),
        }
    }

    /// Counts an attempt; what it has shown if it was survived.
    pub fn count<T>(&mut self, at: &str, attempt: anyhow::Result<T>) -> Option<T> {
        self.attempted += 1;
        match attempt {
            Ok(shown) => {
                self.survived += 1;
                Some(shown)
            }
            Err(error) => {
                if self.failures.len() < TOLD {
                    self.failures.push(format!("{at}: {error:#}"));
                }
                None
            }
        }
    }
}
