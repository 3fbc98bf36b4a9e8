//! A line for each test that is over, and on a terminal one that says what is running.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use selvedge_bench::output;

use crate::suite::entry::Entry;
use crate::suite::run::News;
use crate::suite::verdict::{Report, Verdict};

/// Shows a run while it goes on.
#[derive(Debug)]
pub struct Lines {
    bar: Option<ProgressBar>,
    colours: bool,
    again: String,
    begun: BTreeMap<String, Instant>,
    counts: [usize; 3],
}

impl Lines {
    /// For so many tests. `again` are the options that a test is run again with, on its own.
    pub fn new(count: usize, again: &str) -> Self {
        let is_terminal = std::io::stdout().is_terminal();
        Self {
            bar: is_terminal.then(|| bar(count)),
            colours: is_terminal && std::env::var_os("NO_COLOR").is_none(),
            again: again.to_owned(),
            begun: BTreeMap::new(),
            counts: [0; 3],
        }
    }

    /// Shows what has happened.
    pub fn show(&mut self, news: &News<'_>) {
        match news {
            News::Begun(entry) => self.begin(entry),
            News::Over(report) => self.over(report),
            News::Nothing => {}
        }
        if let Some(bar) = &self.bar {
            bar.set_message(self.status());
        }
    }

    /// The run is over: the line that says what is running goes away.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn begin(&mut self, entry: &Entry) {
        self.begun.insert(entry.path(), Instant::now());
    }

    fn over(&mut self, report: &Report) {
        if self.begun.remove(&report.path()).is_some() {
            self.count(&report.verdict);
        }
        let text = self.text(report);
        match &self.bar {
            Some(bar) => bar.suspend(|| output::print(&text)),
            None => output::print(&text),
        }
    }

    fn count(&mut self, verdict: &Verdict) {
        let kind = match verdict {
            Verdict::Pass => 0,
            Verdict::Skip(_) => 2,
            _ => 1,
        };
        self.counts[kind] += 1;
        if let Some(bar) = &self.bar {
            bar.inc(1);
        }
    }

    fn text(&self, report: &Report) -> String {
        let word = self.paint(report.verdict.word(), &report.verdict);
        let mut text = format!("{word} {:<62} {:>7.2} s", report.path(), report.seconds);
        if let Verdict::Skip(reason) = &report.verdict {
            text += &format!("  {reason}");
        }
        text.push('\n');
        if let Some(noticed) = &report.noticed {
            text += &indented(&format!("noticed: {noticed}"));
        }
        if report.verdict.is_bad() {
            text += &details(report, &self.again);
        }
        text
    }

    fn paint(&self, word: &str, verdict: &Verdict) -> String {
        let colour = match verdict {
            Verdict::Pass => 32,
            Verdict::Skip(_) => 33,
            _ => 31,
        };
        match self.colours {
            true => format!("\x1b[{colour}m{word:<7}\x1b[0m"),
            false => format!("{word:<7}"),
        }
    }

    /// What is running, and what came of the others.
    fn status(&self) -> String {
        let [passed, failed, skipped] = self.counts;
        let mut running: Vec<_> = self.begun.iter().collect();
        running.sort_by_key(|(_, begun)| **begun);
        let running = running
            .iter()
            .map(|(name, begun)| format!("{name}{}", seconds(begun.elapsed())));
        let running = Vec::from_iter(running).join(" | ");
        format!("{passed} passed, {failed} failed, {skipped} skipped | {running}")
    }
}

/// Why it failed, what its processes printed, and how to run it again.
pub(super) fn details(report: &Report, again: &str) -> String {
    let mut text = String::new();
    if let Some(why) = report.verdict.why() {
        text += &indented(why);
    }
    for (place, printed) in report.output.iter().enumerate() {
        if !printed.is_empty() {
            text += &indented(&format!("process {place} printed:\n{printed}"));
        }
    }
    text + &indented(&format!(
        "again: fabtests run{again} --filter {:?}",
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
