//! A line for each finished test, and on a terminal a line with the running tests.

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
    running_since: BTreeMap<String, Instant>,
    counts: [usize; 3],
}

impl Lines {
    /// Prints a run of `count` tests. `rerun_options` has the options that run a single test again.
    pub fn new(count: usize, rerun_options: &str) -> Self {
        let is_terminal = std::io::stdout().is_terminal();
        Self {
            bar: is_terminal.then(|| bar(count)),
            colours: is_terminal && std::env::var_os("NO_COLOR").is_none(),
            rerun_options: rerun_options.to_owned(),
            running_since: BTreeMap::new(),
            counts: [0; 3],
        }
    }

    /// Prints an event of the run.
    pub fn show(&mut self, event: &RunEvent<'_>) {
        match event {
            RunEvent::Started(entry) => self.begin(entry),
            RunEvent::Finished(report) => self.finished(report),
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

    fn begin(&mut self, entry: &Entry) {
        self.running_since.insert(entry.path(), Instant::now());
    }

    fn finished(&mut self, report: &Report) {
        if self.running_since.remove(&report.path()).is_some() {
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
        match self.colours {
            true => format!("\x1b[{colour}m{word:<7}\x1b[0m"),
            false => format!("{word:<7}"),
        }
    }

    /// The running tests, and the number of finished ones.
    fn status(&self) -> String {
        let [passed, failed, skipped] = self.counts;
        let mut running_tests: Vec<_> = self.running_since.iter().collect();
        running_tests.sort_by_key(|(_, running_since)| **running_since);
        let running_tests = running_tests
            .iter()
            .map(|(name, running_since)| format!("{name}{}", seconds(running_since.elapsed())));
        let running_tests = Vec::from_iter(running_tests).join(" | ");
        format!("{passed} passed, {failed} failed, {skipped} skipped | {running_tests}")
    }
}

/// The reason of a failure, the output of its processes, and the command that runs it again.
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
        "again: fabtests run{rerun_options} --filter {:?}",
        report.path()
    ))
}

fn indented(text: &str) -> String {
    text.lines()
        .map(|line| format!("        {line}\n"))
        .collect()
}

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
