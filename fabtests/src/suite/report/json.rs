//! A run as one JSON object.

use serde_json::{Value, json as object};

use crate::suite::report::summary::Tally;
use crate::suite::run::Outcome;

/// The object that `fabtests run --json` prints.
pub fn json(outcome: &Outcome, set: &str, seed: u64) -> Value {
    let all = Tally::of(outcome.reports.iter());
    object!({
        "suite": env!("CARGO_PKG_VERSION"),
        "set": set,
        "seed": seed,
        "seconds": outcome.took.as_secs_f64(),
        "passed": all.passed,
        "failed": all.bad(),
        "skipped": all.skipped,
        "checks": all.checks,
        "bytes": all.bytes,
        "tests": outcome.reports,
    })
}
