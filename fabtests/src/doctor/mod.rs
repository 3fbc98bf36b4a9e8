//! Attempts that show whether the shm provider works on this machine, and how fast.
//!
//! A finding is the result of one attempt, with its meaning. No conclusion comes from a version or
//! a setting where an attempt is possible; settings are read to explain a failure.

mod cores;
mod endpoint;
mod environment;
mod memory;
mod processes;

use serde::Serialize;

pub use processes::{expose_number, read_number};

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The attempt succeeded.
    Good,
    /// Worth knowing, without an effect on speed.
    Note,
    /// The provider works, and could be faster.
    Slow,
    /// The provider cannot work.
    Broken,
}

/// The result of one attempt.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// The name of the attempt.
    pub name: &'static str,
    /// Its severity.
    #[serde(rename = "verdict")]
    pub severity: Severity,
    /// The observation.
    pub found: String,
    /// Its meaning for messages.
    pub meaning: String,
    /// The remedy; `null` where none is needed.
    pub advice: Option<String>,
}

impl Finding {
    fn new(
        name: &'static str,
        severity: Severity,
        found: impl Into<String>,
        meaning: impl Into<String>,
    ) -> Self {
        Self {
            name,
            severity,
            found: found.into(),
            meaning: meaning.into(),
            advice: None,
        }
    }

    fn good(name: &'static str, found: impl Into<String>, meaning: impl Into<String>) -> Self {
        Self::new(name, Severity::Good, found, meaning)
    }

    fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }
}

/// All findings.
#[derive(Clone, Debug, Serialize)]
pub struct Diagnosis {
    /// Whether messages are as fast as this processor allows.
    pub full_speed: bool,
    /// Whether messages can be exchanged.
    pub works: bool,
    /// The findings, one by one.
    pub findings: Vec<Finding>,
}

/// Makes every attempt.
pub fn examine() -> Diagnosis {
    let findings = vec![
        endpoint::messages(),
        memory::sealed(),
        processes::sockets(),
        processes::cross_memory_attach(),
        processes::peer_failures(),
        cores::cores(),
        cores::frequency(),
        environment::quota(),
        endpoint::descriptors(),
        memory::huge_pages(),
        memory::locked(),
        memory::dev_shm(),
        processes::barriers(),
        environment::namespaces(),
    ];
    let worst = findings.iter().map(|finding| finding.severity).max();
    Diagnosis {
        full_speed: worst < Some(Severity::Slow),
        works: worst < Some(Severity::Broken),
        findings,
    }
}
