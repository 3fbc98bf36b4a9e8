//! The results of a run in JUnit's XML, which systems of continuous integration read.

use selvedge_bench::markup::escaped;

use crate::suite::outcome::{Outcome, Report};
use crate::suite::report::summary::by_provider;
use crate::suite::run::RunResult;

/// Formats the results, with one test suite for each provider.
pub fn junit(result: &RunResult) -> String {
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    for (provider, counts) in by_provider(result) {
        let errors = counts.crashed + counts.timeouts;
        xml += &format!(
            "<testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{errors}\" \
             skipped=\"{}\" time=\"{:.3}\">\n",
            escaped(provider),
            counts.passed + counts.all_failed() + counts.skipped,
            counts.all_failed() - errors,
            counts.skipped,
            counts.seconds
        );
        let reports = result.reports.iter();
        xml.extend(
            reports
                .filter(|report| report.provider == provider)
                .map(format_test_case),
        );
        xml += "</testsuite>\n";
    }
    xml + "</testsuites>\n"
}

fn format_test_case(report: &Report) -> String {
    // A line break in an attribute is read as a space unless it is escaped.
    let reason = escaped(report.outcome.reason().unwrap_or_default()).replace('\n', "&#10;");
    let body = match &report.outcome {
        Outcome::Pass => String::new(),
        Outcome::Skip(_) => format!("<skipped message=\"{reason}\"/>"),
        Outcome::Fail(_) | Outcome::Leak(_) => format!("<failure message=\"{reason}\"/>"),
        Outcome::Crash(_) | Outcome::Timeout(_) => format!("<error message=\"{reason}\"/>"),
    };
    let output = match report.output.join("\n") {
        empty if empty.is_empty() => empty,
        output => format!("<system-out>{}</system-out>", escaped(&output)),
    };
    format!(
        "<testcase classname=\"{}\" name=\"{}\" time=\"{:.3}\">{body}{output}</testcase>\n",
        escaped(&report.provider),
        escaped(&report.name),
        report.seconds
    )
}
