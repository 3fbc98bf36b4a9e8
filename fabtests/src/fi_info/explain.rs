//! The reason why each offer was taken or refused.

use selvedge::param::Unknown;
use selvedge::{Info, Outcome, Verdict};
use serde_json::{Value, json};

/// One line for each offer, or for a provider that was not queried; then the unknown variables.
pub(super) fn text(verdicts: &[Verdict], unknown: &[Unknown]) -> String {
    let offers = verdicts.iter().map(|verdict| {
        let offer = offered(&verdict.outcome).map_or_else(String::new, label);
        format!(
            "{}{offer}: {}\n",
            verdict.provider,
            reason(&verdict.outcome)
        )
    });
    let unknown = unknown
        .iter()
        .map(|unknown| format!("environment: {unknown}\n"));
    offers.chain(unknown).collect()
}

pub(super) fn json(verdicts: &[Verdict], unknown: &[Unknown]) -> Value {
    let unknown: Vec<_> = unknown.iter().map(super::env::unknown_json).collect();
    let verdicts: Vec<_> = verdicts.iter().map(verdict_json).collect();
    json!({ "verdicts": verdicts, "unknown": unknown })
}

fn verdict_json(verdict: &Verdict) -> Value {
    let mut value = json!({
        "provider": verdict.provider,
        "outcome": outcome_name(&verdict.outcome),
        "reason": reason(&verdict.outcome),
        "info": offered(&verdict.outcome).map(super::json::info),
    });
    if let Outcome::Refused(mismatch) = &verdict.outcome {
        value["field"] = json!(mismatch.field);
        value["asked"] = json!(mismatch.asked);
        value["has"] = json!(mismatch.has);
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

fn offered(outcome: &Outcome) -> Option<&Info> {
    match outcome {
        Outcome::Taken(info) => Some(info),
        Outcome::Refused(mismatch) => mismatch.offered.as_deref(),
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
