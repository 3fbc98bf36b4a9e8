//! The reason why each candidate was accepted or refused.

use selvedge::param::Unknown;
use selvedge::{Explanation, Info, Outcome};
use serde_json::{Value, json};

/// Returns one line for each offer and for each provider that was not queried, followed by one line
/// for each unknown environment variable.
pub(super) fn text(explanations: &[Explanation], unknown: &[Unknown]) -> String {
    let candidates = explanations.iter().map(|explanation| {
        let candidate = candidate_of(&explanation.outcome).map_or_else(String::new, label);
        format!(
            "{}{candidate}: {}\n",
            explanation.provider,
            reason(&explanation.outcome)
        )
    });
    let unknown = unknown
        .iter()
        .map(|unknown| format!("environment: {unknown}\n"));
    candidates.chain(unknown).collect()
}

pub(super) fn json(explanations: &[Explanation], unknown: &[Unknown]) -> Value {
    let unknown: Vec<_> = unknown.iter().map(super::env::unknown_json).collect();
    let explanations: Vec<_> = explanations.iter().map(explanation_json).collect();
    json!({ "verdicts": explanations, "unknown": unknown })
}

fn explanation_json(explanation: &Explanation) -> Value {
    let mut value = json!({
        "provider": explanation.provider,
        "outcome": outcome_name(&explanation.outcome),
        "reason": reason(&explanation.outcome),
        "info": candidate_of(&explanation.outcome).map(super::json::info),
    });
    if let Outcome::Refused(mismatch) = &explanation.outcome {
        value["field"] = json!(mismatch.field);
        value["asked"] = json!(mismatch.requested);
        value["has"] = json!(mismatch.provided);
    }
    value
}

fn reason(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Refused(mismatch) => format!("refused: {mismatch}"),
        Outcome::Failed(error) => format!("failed: {error}"),
        other => other.to_string(),
    }
}

fn outcome_name(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Taken(_) => "taken",
        Outcome::Refused(_) => "refused",
        Outcome::Excluded(_) => "excluded",
        _ => "failed",
    }
}

fn candidate_of(outcome: &Outcome) -> Option<&Info> {
    match outcome {
        Outcome::Taken(info) => Some(info),
        Outcome::Refused(mismatch) => mismatch.candidate.as_deref(),
        _ => None,
    }
}

fn label(info: &Info) -> String {
    let ep = &info.ep_attr;
    format!(
        " {} {} in {}",
        ep.ep_type, ep.protocol, info.domain_attr.name
    )
}
