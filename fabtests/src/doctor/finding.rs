//! `Finding`: the result of one attempt.

use serde::Serialize;

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
    /// The command, call or text that shows the observation; left out where the name says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
}

impl Finding {
    pub(super) fn new(
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
            evidence: None,
        }
    }

    pub(super) fn good(
        name: &'static str,
        found: impl Into<String>,
        meaning: impl Into<String>,
    ) -> Self {
        Self::new(name, Severity::Good, found, meaning)
    }

    pub(super) fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    pub(super) fn prove(mut self, evidence: impl Into<String>) -> Self {
        self.evidence = Some(evidence.into());
        self
    }
}

/// Returns the first line of a file of the kernel; empty if the file cannot be read.
pub(super) fn first_line(path: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().next().unwrap_or_default().trim().to_owned()
}
