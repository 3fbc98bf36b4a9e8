//! The outcome of a test.

use std::time::Duration;

use serde::Serialize;

/// The outcome of a test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", content = "why", rename_all = "snake_case")]
pub enum Outcome {
    /// The test passed.
    Pass,
    /// The test failed.
    Fail(String),
    /// The provider lacks a capability that the test needs, as the manifest expects, with the
    /// reason.
    Skip(String),
    /// A process was killed by a signal.
    Crash(String),
    /// The test exceeded its time limit.
    Timeout(String),
    /// The test leaked a resource.
    Leak(String),
}

impl Outcome {
    /// Returns whether the outcome makes the run fail.
    pub fn is_bad(&self) -> bool {
        !matches!(self, Self::Pass | Self::Skip(_))
    }

    /// Returns the word in reports.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail(_) => "FAIL",
            Self::Skip(_) => "skip",
            Self::Crash(_) => "CRASH",
            Self::Timeout(_) => "TIMEOUT",
            Self::Leak(_) => "LEAK",
        }
    }

    /// Returns the reason of every outcome but a pass.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Pass => None,
            Self::Fail(reason)
            | Self::Skip(reason)
            | Self::Crash(reason)
            | Self::Timeout(reason)
            | Self::Leak(reason) => Some(reason),
        }
    }
}

/// The report of a test.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The provider.
    pub provider: String,
    /// The test's name.
    pub name: String,
    /// The outcome.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Duration in seconds.
    pub seconds: f64,
    /// Number of checks of the test's processes.
    pub checks: u64,
    /// Bytes of messages and memory that were compared.
    pub bytes: u64,
    /// The failure of a test that must or may fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub noticed: Option<String>,
    /// The last output of each process.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub output: Vec<String>,
}

impl Report {
    /// Returns the name that is unique in the run.
    pub fn path(&self) -> String {
        format!("{}/{}", self.provider, self.name)
    }

    /// Returns the duration.
    pub fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }
}
