//! The summary of a run.

use std::collections::BTreeMap;

use selvedge_bench::table;

use crate::suite::outcome::{Outcome, Report};
use crate::suite::run::RunResult;

/// Returns a table with a row for each provider, the reasons of skips, the failures, and the
/// closing line.
pub fn summary(result: &RunResult) -> String {
    let mut text = format!("\n{}\n", providers(result));
    for (reason, names) in skipped(result) {
        text += &format!("skipped {}: {reason}\n", names.len());
    }
    for report in result
        .reports
        .iter()
        .filter(|report| report.outcome.is_bad())
    {
        text += &format!("{:<7} {}\n", report.outcome.label(), report.path());
    }
    text + "\n" + &closing_line(result) + "\n"
}

/// Returns the last line: `12 passed, 0 failed, 3 skipped`, and the totals of checks, compared MiB
/// and seconds.
pub fn closing_line(result: &RunResult) -> String {
    let all = Counts::of(result.reports.iter());
    let compared = all.bytes as f64 / f64::from(1 << 20);
    format!(
        "{} passed, {} failed, {} skipped; {} checks, {compared:.0} MiB compared, {:.1} s",
        all.passed,
        all.all_failed(),
        all.skipped,
        all.checks,
        result.duration.as_secs_f64()
    )
}

/// The counts of several tests.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) passed: usize,
    pub(super) failed: usize,
    pub(super) crashed: usize,
    pub(super) timeouts: usize,
    pub(super) leaks: usize,
    pub(super) skipped: usize,
    pub(super) checks: u64,
    pub(super) bytes: u64,
    pub(super) seconds: f64,
}

impl Counts {
    pub(super) fn of<'a>(reports: impl Iterator<Item = &'a Report>) -> Self {
        let mut counts = Self::default();
        for report in reports {
            let count = match report.outcome {
                Outcome::Pass => &mut counts.passed,
                Outcome::Fail(_) => &mut counts.failed,
                Outcome::Crash(_) => &mut counts.crashed,
                Outcome::Timeout(_) => &mut counts.timeouts,
                Outcome::Leak(_) => &mut counts.leaks,
                Outcome::Skip(_) => &mut counts.skipped,
            };
            *count += 1;
            counts.checks += report.checks;
            counts.bytes += report.bytes;
            counts.seconds += report.seconds;
        }
        counts
    }

    pub(super) fn all_failed(&self) -> usize {
        self.failed + self.crashed + self.timeouts + self.leaks
    }
}

/// Returns the counts of each provider's tests.
pub(super) fn by_provider(result: &RunResult) -> BTreeMap<&str, Counts> {
    let names = result.reports.iter().map(|report| report.provider.as_str());
    let of = |name: &str| {
        let reports = result.reports.iter();
        Counts::of(reports.filter(|report| report.provider == name))
    };
    names.map(|name| (name, of(name))).collect()
}

/// Returns the reasons of skips, each with the paths of the skipped tests.
pub(super) fn skipped(result: &RunResult) -> BTreeMap<String, Vec<String>> {
    let mut skipped: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for report in &result.reports {
        if let Outcome::Skip(reason) = &report.outcome {
            let reason = format!("{}: {reason}", report.provider);
            skipped.entry(reason).or_default().push(report.path());
        }
    }
    skipped
}

fn providers(result: &RunResult) -> String {
    let header = [
        "provider", "passed", "failed", "crashed", "timeout", "leaked", "skipped", "checks", "time",
    ];
    let mut table = table::new(&header);
    for (name, counts) in by_provider(result) {
        table.add_row([
            name.to_owned(),
            counts.passed.to_string(),
            counts.failed.to_string(),
            counts.crashed.to_string(),
            counts.timeouts.to_string(),
            counts.leaks.to_string(),
            counts.skipped.to_string(),
            counts.checks.to_string(),
            format!("{:.1} s", counts.seconds),
        ]);
    }
    table.to_string()
}
