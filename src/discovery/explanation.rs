//! `Explanation`: the outcome of discovery for each candidate of each provider.

use std::fmt;

use crate::info::Mismatch;
use crate::{Errno, Error, Info};

/// The outcome of discovery for one candidate of a provider, or for the provider as a whole.
#[derive(Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// The provider's name.
    pub provider: &'static str,
    /// The outcome.
    pub outcome: Outcome,
}

/// The outcome for a candidate or a provider.
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// The candidate is a result of the query.
    Taken(Box<Info>),
    /// The candidate does not match the query in an attribute.
    Refused(Mismatch),
    /// The provider was not queried. The text is the setting that excludes it, such as
    /// `FI_PROVIDER=^shm`.
    Excluded(String),
    /// The provider failed to list its candidates.
    Failed(Error),
}

impl Explanation {
    /// Returns whether the candidate is a result of the query.
    pub fn is_taken(&self) -> bool {
        matches!(self.outcome, Outcome::Taken(_))
    }

    pub(crate) fn into_info(self) -> Option<Info> {
        match self.outcome {
            Outcome::Taken(info) => Some(*info),
            _ => None,
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.provider, self.outcome)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken(_) => f.write_str("taken"),
            Self::Refused(mismatch) => mismatch.fmt(f),
            Self::Excluded(by) => write!(f, "excluded by {by}"),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

/// Returns the error for a query without results. Its text has a line for each provider, and
/// `notes`.
#[cold]
pub(crate) fn nothing_matches(explanations: &[Explanation], notes: &[String]) -> Error {
    let mut lines = vec!["no provider matches the request".to_owned()];
    for (provider, reasons) in per_provider(explanations) {
        lines.push(format!("{provider}: {}", reasons.join("; ")));
    }
    if explanations.is_empty() {
        lines.push("no provider has a candidate".to_owned());
    }
    lines.extend_from_slice(notes);
    Error::new(Errno::NoData, lines.join("\n"))
}

/// Describes a candidate by what distinguishes it from others of its provider.
fn taken(info: &Info) -> String {
    let (ep_type, domain) = (info.ep_attr.ep_type, &info.domain_attr.name);
    match &info.src_addr {
        Some(addr) => format!("{ep_type} of {domain} at {addr}"),
        None => format!("{ep_type} of {domain}"),
    }
}

/// Returns each provider with the texts of its outcomes. The explanations of a provider must be
/// adjacent.
pub(crate) fn per_provider(
    explanations: &[Explanation],
) -> impl Iterator<Item = (&str, Vec<String>)> {
    let chunks = explanations.chunk_by(|a, b| a.provider == b.provider);
    chunks.map(|chunk| (chunk[0].provider, reasons(chunk)))
}

/// Returns the texts of one provider's outcomes. Outcomes that differ only in the provided value
/// share a text.
fn reasons(explanations: &[Explanation]) -> Vec<String> {
    let mut reasons: Vec<(String, Vec<String>)> = Vec::new();
    for explanation in explanations {
        let (reason, has) = match &explanation.outcome {
            Outcome::Refused(mismatch) => (
                format!("{}: requested {}, has ", mismatch.field, mismatch.requested),
                mismatch.provided.clone(),
            ),
            Outcome::Taken(info) => ("taken: ".to_owned(), taken(info)),
            other => (other.to_string(), String::new()),
        };
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, all)) if all.contains(&has) => {}
            Some((_, all)) => all.push(has),
            None => reasons.push((reason, vec![has])),
        }
    }
    reasons
        .into_iter()
        .map(|(reason, has)| reason + &has.join(" | "))
        .collect()
}
