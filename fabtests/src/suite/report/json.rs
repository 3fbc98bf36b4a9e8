//! The results of a run as one JSON object.

use serde_json::{Value, json as object};

use crate::suite::report::summary::Counts;
use crate::suite::run::RunResult;

/// Makes the object that `fabtests run --json` prints.
pub fn json(result: &RunResult, set: &str, seed: u64) -> Value {
    let all = Counts::of(result.reports.iter());
    object!({
        "suite": env!("CARGO_PKG_VERSION"),
        "set": set,
        "seed": seed,
        "seconds": result.duration.as_secs_f64(),
        "passed": all.passed,
        "failed": all.all_failed(),
        "skipped": all.skipped,
        "checks": all.checks,
        "bytes": all.bytes,
        "tests": result.reports,
    })
}
