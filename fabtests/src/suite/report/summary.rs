//! The end of a run.

use std::collections::BTreeMap;

use selvedge_bench::table;

use crate::suite::run::Outcome;
use crate::suite::verdict::{Report, Verdict};

/// A row for each provider, the reasons of what was skipped, what failed, and the closing line.
pub fn summary(outcome: &Outcome) -> String {
    let mut text = format!("\n{}\n", providers(outcome));
    for (reason, names) in skipped(outcome) {
        text += &format!("skipped {}: {reason}\n", names.len());
    }
    for report in outcome
        .reports
        .iter()
        .filter(|report| report.verdict.is_bad())
    {
        text += &format!("{:<7} {}\n", report.verdict.word(), report.path());
    }
    text + "\n" + &closing_line(outcome) + "\n"
}

/// `12 passed, 0 failed, 3 skipped`, and what it took.
pub fn closing_line(outcome: &Outcome) -> String {
    let all = Tally::of(outcome.reports.iter());
    let compared = all.bytes as f64 / f64::from(1 << 20);
    format!(
        "{} passed, {} failed, {} skipped; {} checks, {compared:.0} MiB compared, {:.1} s",
        all.passed,
        all.bad(),
        all.skipped,
        all.checks,
        outcome.took.as_secs_f64()
    )
}

/// What came of the tests of one provider.
#[derive(Debug, Default)]
pub(super) struct Tally {
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

impl Tally {
    pub(super) fn of<'a>(reports: impl Iterator<Item = &'a Report>) -> Self {
        let mut tally = Self::default();
        for report in reports {
            let count = match report.verdict {
                Verdict::Pass => &mut tally.passed,
                Verdict::Fail(_) => &mut tally.failed,
                Verdict::Crash(_) => &mut tally.crashed,
                Verdict::Timeout(_) => &mut tally.timeouts,
                Verdict::Leak(_) => &mut tally.leaks,
                Verdict::Skip(_) => &mut tally.skipped,
            };
            *count += 1;
            tally.checks += report.checks;
            tally.bytes += report.bytes;
            tally.seconds += report.seconds;
        }
        tally
    }

    pub(super) fn bad(&self) -> usize {
        self.failed + self.crashed + self.timeouts + self.leaks
    }
}

/// The tests of each provider.
pub(super) fn by_provider(outcome: &Outcome) -> BTreeMap<&str, Tally> {
    let names = outcome
        .reports
        .iter()
        .map(|report| report.provider.as_str());
    let of = |name: &str| {
        let reports = outcome.reports.iter();
        Tally::of(reports.filter(|report| report.provider == name))
    };
    names.map(|name| (name, of(name))).collect()
}

/// The reasons of what was skipped, each with the tests.
pub(super) fn skipped(outcome: &Outcome) -> BTreeMap<String, Vec<String>> {
    let mut skipped: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for report in &outcome.reports {
        if let Verdict::Skip(reason) = &report.verdict {
            let reason = format!("{}: {reason}", report.provider);
            skipped.entry(reason).or_default().push(report.path());
        }
    }
    skipped
}

fn providers(outcome: &Outcome) -> String {
    let header = [
        "provider", "passed", "failed", "crashed", "timeout", "leaked", "skipped", "checks", "time",
    ];
    let mut table = table::new(&header);
    for (name, tally) in by_provider(outcome) {
        table.add_row([
            name.to_owned(),
            tally.passed.to_string(),
            tally.failed.to_string(),
            tally.crashed.to_string(),
            tally.timeouts.to_string(),
            tally.leaks.to_string(),
            tally.skipped.to_string(),
            tally.checks.to_string(),
            format!("{:.1} s", tally.seconds),
        ]);
    }
    table.to_string()
}
