//! A run as a page.

use crate::suite::report::lines::details;
use crate::suite::report::summary::{by_provider, closing_line, skipped};
use crate::suite::run::Outcome;

/// The counts, what failed with its reasons, what was skipped with its reasons, and every test.
/// `again` are the options that a test is run again with, on its own.
pub fn markdown(outcome: &Outcome, set: &str, seed: u64, again: &str) -> String {
    let closing = closing_line(outcome);
    let mut page = format!("# fabtests run {set}\n\n{closing}. Seed {seed}.\n\n");
    page += &counts(outcome);
    page += &failures(outcome, again);
    page += &skips(outcome);
    page += &tests(outcome);
    page
}

fn counts(outcome: &Outcome) -> String {
    let mut text = String::from(
        "| provider | passed | failed | crashed | timeout | leaked | skipped |\n\
         |---|---:|---:|---:|---:|---:|---:|\n",
    );
    for (name, tally) in by_provider(outcome) {
        text += &format!(
            "| {name} | {} | {} | {} | {} | {} | {} |\n",
            tally.passed, tally.failed, tally.crashed, tally.timeouts, tally.leaks, tally.skipped
        );
    }
    text
}

fn failures(outcome: &Outcome, again: &str) -> String {
    let mut text = String::new();
    for report in outcome
        .reports
        .iter()
        .filter(|report| report.verdict.is_bad())
    {
        let word = report.verdict.word();
        let details = details(report, again);
        text += &format!("\n## {word}: {}\n\n```text\n{details}```\n", report.path());
    }
    text
}

fn skips(outcome: &Outcome) -> String {
    let mut text = String::new();
    for (reason, names) in skipped(outcome) {
        text += &format!("\n## Skipped: {reason}\n\n");
        text.extend(names.iter().map(|name| format!("- `{name}`\n")));
    }
    text
}

fn tests(outcome: &Outcome) -> String {
    let mut text =
        String::from("\n## Tests\n\n| test | | seconds | checks |\n|---|---|---:|---:|\n");
    for report in &outcome.reports {
        let name = report.path().replace('|', "\\|");
        let word = report.verdict.word();
        text += &format!(
            "| `{name}` | {word} | {:.2} | {} |\n",
            report.seconds, report.checks
        );
    }
    text
}
