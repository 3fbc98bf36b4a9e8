//! What became of a test.

use std::time::Duration;

use serde::Serialize;

/// What became of a test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", content = "why", rename_all = "snake_case")]
pub enum Verdict {
    /// It did what it should.
    Pass,
    /// It did not.
    Fail(String),
    /// The provider does not have what it needs, as the manifest says, with the reason.
    Skip(String),
    /// A process was killed by a signal.
    Crash(String),
    /// It took too long.
    Timeout(String),
    /// It left something behind.
    Leak(String),
}

impl Verdict {
    /// Whether it fails the run.
    pub fn is_bad(&self) -> bool {
        !matches!(self, Self::Pass | Self::Skip(_))
    }

    /// One word for it.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail(_) => "FAIL",
            Self::Skip(_) => "skip",
            Self::Crash(_) => "CRASH",
            Self::Timeout(_) => "TIMEOUT",
            Self::Leak(_) => "LEAK",
        }
    }

    /// The reason, but for a pass.
    pub fn why(&self) -> Option<&str> {
        match self {
            Self::Pass => None,
            Self::Fail(why)
            | Self::Skip(why)
            | Self::Crash(why)
            | Self::Timeout(why)
            | Self::Leak(why) => Some(why),
        }
    }
}

/// A test that has been run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The provider.
    pub provider: String,
    /// The test's name.
    pub name: String,
    /// What became of it.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// How long it took.
    pub seconds: f64,
    /// Checks that its processes made.
    pub checks: u64,
    /// Bytes of messages and memory that they compared.
    pub bytes: u64,
    /// How a test that has to fail has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub noticed: Option<String>,
    /// What each process printed last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub output: Vec<String>,
}

impl Report {
    /// What the test is called in the whole run.
    pub fn path(&self) -> String {
        format!("{}/{}", self.provider, self.name)
    }

    /// How long it took.
    pub fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }
}
