//! What this machine lets the shm provider do, found out by doing it.
//!
//! Every finding is one attempt and what it means. Nothing is concluded from a version or a setting
//! that could be tried; settings are read to say why something failed.

mod cores;
mod endpoint;
mod memory;
mod place;
mod processes;

use serde::Serialize;

pub use processes::{offer, read_offer};

/// How good or bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Good,
    /// Worth knowing; nothing is slower for it.
    Note,
    /// It works, and could be faster.
    Slow,
    /// The provider cannot work.
    Broken,
}

/// One thing that was tried.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// What was tried, in a word.
    pub name: &'static str,
    /// How it went.
    pub verdict: Verdict,
    /// What happened.
    pub found: String,
    /// What that means for messages.
    pub meaning: String,
    /// What to do about it; `null` where nothing is to be done.
    pub advice: Option<String>,
}

impl Finding {
    fn new(
        name: &'static str,
        verdict: Verdict,
        found: impl Into<String>,
        meaning: impl Into<String>,
    ) -> Self {
        Self {
            name,
            verdict,
            found: found.into(),
            meaning: meaning.into(),
            advice: None,
        }
    }

    fn good(name: &'static str, found: impl Into<String>, meaning: impl Into<String>) -> Self {
        Self::new(name, Verdict::Good, found, meaning)
    }

    fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }
}

/// Everything that was found.
#[derive(Clone, Debug, Serialize)]
pub struct Diagnosis {
    /// Whether messages go as fast as this processor allows.
    pub full_speed: bool,
    /// Whether messages go at all.
    pub works: bool,
    /// One by one.
    pub findings: Vec<Finding>,
}

/// Tries everything.
pub fn examine() -> Diagnosis {
    let findings = vec![
        endpoint::messages(),
        memory::sealed(),
        processes::sockets(),
        processes::cross_memory_attach(),
        processes::deaths(),
        cores::cores(),
        cores::frequency(),
        place::quota(),
        endpoint::descriptors(),
        memory::huge_pages(),
        memory::locked(),
        memory::dev_shm(),
        processes::barriers(),
        place::namespaces(),
    ];
    let worst = findings.iter().map(|finding| finding.verdict).max();
    Diagnosis {
        full_speed: worst < Some(Verdict::Slow),
        works: worst < Some(Verdict::Broken),
        findings,
    }
}
