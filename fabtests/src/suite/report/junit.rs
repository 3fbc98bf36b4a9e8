//! A run as JUnit's XML, which systems of continuous integration read.

use selvedge_bench::markup::escaped;

use crate::suite::report::summary::by_provider;
use crate::suite::run::Outcome;
use crate::suite::verdict::{Report, Verdict};

/// One test suite for each provider.
pub fn junit(outcome: &Outcome) -> String {
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    for (provider, tally) in by_provider(outcome) {
        let errors = tally.crashed + tally.timeouts;
        xml += &format!(
            "<testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{errors}\" \
             skipped=\"{}\" time=\"{:.3}\">\n",
            escaped(provider),
            tally.passed + tally.bad() + tally.skipped,
            tally.bad() - errors,
            tally.skipped,
            tally.seconds
        );
        let own = outcome.reports.iter();
        xml.extend(own.filter(|report| report.provider == provider).map(case));
        xml += "</testsuite>\n";
    }
    xml + "</testsuites>\n"
}

fn case(report: &Report) -> String {
    // A line's end in an attribute is read as a space unless it is written so.
    let why = escaped(report.verdict.why().unwrap_or_default()).replace('\n', "&#10;");
    let body = match &report.verdict {
        Verdict::Pass => String::new(),
        Verdict::Skip(_) => format!("<skipped message=\"{why}\"/>"),
        Verdict::Fail(_) | Verdict::Leak(_) => format!("<failure message=\"{why}\"/>"),
        Verdict::Crash(_) | Verdict::Timeout(_) => format!("<error message=\"{why}\"/>"),
    };
    let output = match report.output.join("\n") {
        none if none.is_empty() => none,
        output => format!("<system-out>{}</system-out>", escaped(&output)),
    };
    format!(
        "<testcase classname=\"{}\" name=\"{}\" time=\"{:.3}\">{body}{output}</testcase>\n",
        escaped(&report.provider),
        escaped(&report.name),
        report.seconds
    )
}
