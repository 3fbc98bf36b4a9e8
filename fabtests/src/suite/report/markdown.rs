//! The results of a run as a Markdown page.

use crate::suite::report::lines::details;
use crate::suite::report::summary::{by_provider, closing_line, skipped};
use crate::suite::run::RunResult;

/// Formats the counts, the failures, the skips with reasons, and every test. `rerun_options` are
/// the options that run a single test again.
pub fn markdown(result: &RunResult, set: &str, seed: u64, rerun_options: &str) -> String {
    let closing = closing_line(result);
    let mut page = format!("# fabtests run {set}\n\n{closing}. Seed {seed}.\n\n");
    page += &format_counts(result);
    page += &format_failures(result, rerun_options);
    page += &format_skips(result);
    page += &format_tests(result);
    page
}

fn format_counts(result: &RunResult) -> String {
    let mut text = String::from(
        "| provider | passed | failed | crashed | timeout | leaked | skipped |\n\
         |---|---:|---:|---:|---:|---:|---:|\n",
    );
    for (name, counts) in by_provider(result) {
        text += &format!(
            "| {name} | {} | {} | {} | {} | {} | {} |\n",
            counts.passed,
            counts.failed,
            counts.crashed,
            counts.timeouts,
            counts.leaks,
            counts.skipped
        );
    }
    text
}

fn format_failures(result: &RunResult, rerun_options: &str) -> String {
    let mut text = String::new();
    for report in result
        .reports
        .iter()
        .filter(|report| report.outcome.is_bad())
    {
        let word = report.outcome.label();
        let details = details(report, rerun_options);
        text += &format!("\n## {word}: {}\n\n```text\n{details}```\n", report.path());
    }
    text
}

fn format_skips(result: &RunResult) -> String {
    let mut text = String::new();
    for (reason, names) in skipped(result) {
        text += &format!("\n## Skipped: {reason}\n\n");
        text.extend(names.iter().map(|name| format!("- `{name}`\n")));
    }
    text
}

fn format_tests(result: &RunResult) -> String {
    let mut text =
        String::from("\n## Tests\n\n| test | | seconds | checks |\n|---|---|---:|---:|\n");
    for report in &result.reports {
        let name = report.path().replace('|', "\\|");
        let word = report.outcome.label();
        text += &format!(
            "| `{name}` | {word} | {:.2} | {} |\n",
            report.seconds, report.checks
        );
    }
    text
}
