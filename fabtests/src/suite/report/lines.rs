//! The text output of a run: a line for each finished test, and on a terminal one more line that
//! shows the running tests.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use selvedge_bench::output;

use crate::suite::entry::Entry;
use crate::suite::outcome::{Outcome, Report};
use crate::suite::run::RunEvent;

/// Prints a run as it proceeds.
#[derive(Debug)]
pub struct Lines {
    bar: Option<ProgressBar>,
    colours: bool,
    rerun_options: String,
    /// When each running test started, by its path.
    start_times: BTreeMap<String, Instant>,
    /// How many tests have passed, failed and been skipped.
    counts: [usize; 3],
}

impl Lines {
    /// Prints a run of `count` tests. The command line that runs a failed test again gets
    /// `rerun_options`.
    pub fn new(count: usize, rerun_options: &str) -> Self {
        let is_terminal = std::io::stdout().is_terminal();
        Self {
            bar: is_terminal.then(|| bar(count)),
            colours: is_terminal && std::env::var_os("NO_COLOR").is_none(),
            rerun_options: rerun_options.to_owned(),
            start_times: BTreeMap::new(),
            counts: [0; 3],
        }
    }

    /// Prints an event of the run.
    pub fn show(&mut self, event: &RunEvent<'_>) {
        match event {
            RunEvent::Started(entry) => self.test_started(entry),
            RunEvent::Finished(report) => self.test_finished(report),
            RunEvent::Idle => {}
        }
        if let Some(bar) = &self.bar {
            bar.set_message(self.status());
        }
    }

    /// Removes the line with the running tests.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn test_started(&mut self, entry: &Entry) {
        self.start_times.insert(entry.path(), Instant::now());
    }

    fn test_finished(&mut self, report: &Report) {
        if self.start_times.remove(&report.path()).is_some() {
            self.count(&report.outcome);
        }
        let text = self.text(report);
        match &self.bar {
            Some(bar) => bar.suspend(|| output::print(&text)),
            None => output::print(&text),
        }
    }

    fn count(&mut self, outcome: &Outcome) {
        let kind = match outcome {
            Outcome::Pass => 0,
            Outcome::Skip(_) => 2,
            _ => 1,
        };
        self.counts[kind] += 1;
        if let Some(bar) = &self.bar {
            bar.inc(1);
        }
    }

    fn text(&self, report: &Report) -> String {
        let word = self.paint(report.outcome.label(), &report.outcome);
        let mut text = format!("{word} {:<62} {:>7.2} s", report.path(), report.seconds);
        if let Outcome::Skip(reason) = &report.outcome {
            text += &format!("  {reason}");
        }
        text.push('\n');
        if let Some(noticed) = &report.noticed {
            text += &indented(&format!("noticed: {noticed}"));
        }
        if report.outcome.is_bad() {
            text += &details(report, &self.rerun_options);
        }
        text
    }

    fn paint(&self, word: &str, outcome: &Outcome) -> String {
        let colour = match outcome {
            Outcome::Pass => 32,
            Outcome::Skip(_) => 33,
            _ => 31,
        };
        if self.colours {
            format!("\x1b[{colour}m{word:<7}\x1b[0m")
        } else {
            format!("{word:<7}")
        }
    }

    /// The numbers of finished tests by outcome, and the running tests, the oldest first.
    fn status(&self) -> String {
        let [passed, failed, skipped] = self.counts;
        let mut running_tests: Vec<_> = self.start_times.iter().collect();
        running_tests.sort_by_key(|(_, started)| **started);
        let running_tests = running_tests
            .iter()
            .map(|(path, started)| format!("{path}{}", seconds(started.elapsed())));
        let running_tests = Vec::from_iter(running_tests).join(" | ");
        format!("{passed} passed, {failed} failed, {skipped} skipped | {running_tests}")
    }
}

/// The reason of a test's failure, the output of the test's processes, and the command that runs
/// the test again.
pub(super) fn details(report: &Report, rerun_options: &str) -> String {
    let mut text = String::new();
    if let Some(reason) = report.outcome.reason() {
        text += &indented(reason);
    }
    for (index, printed) in report.output.iter().enumerate() {
        if !printed.is_empty() {
            text += &indented(&format!("process {index} printed:\n{printed}"));
        }
    }
    text + &indented(&format!(
        "run again: fabtests run{rerun_options} --filter {:?}",
        report.path()
    ))
}

fn indented(text: &str) -> String {
    text.lines()
        .map(|line| format!("        {line}\n"))
        .collect()
}

/// The whole seconds of `time`, or nothing below one second.
fn seconds(time: Duration) -> String {
    match time.as_secs() {
        0 => String::new(),
        seconds => format!(" {seconds} s"),
    }
}

fn bar(count: usize) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(count as u64), ProgressDrawTarget::stdout());
    let style = ProgressStyle::with_template("[{pos:>3}/{len}] {elapsed_precise} {wide_msg}");
    bar.set_style(style.expect("the template is well-formed"));
    bar
}
