//! The runner: works through the entries with a few threads, each of which looks after one entry at
//! a time.

mod attempt;
mod hosts;
mod leftovers;
mod process;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::entry::Entry;
use super::manifest::Manifest;
use super::verdict::{Report, Verdict};

pub use hosts::Hosts;

/// How a run is to be made.
#[derive(Clone, Debug)]
pub struct Plan<'a> {
    /// What providers are expected to do.
    pub manifest: &'a Manifest,
    /// Entries that run at the same time.
    pub jobs: usize,
    /// Multiplies the time that each entry may take.
    pub slowness: f64,
    /// Where the processes of an entry are by turns, if not all on this host.
    pub hosts: Option<&'a Hosts>,
}

/// What happens in a run, for whoever watches it.
#[derive(Debug)]
pub enum News<'a> {
    /// An entry has begun.
    Begun(&'a Entry),
    /// An entry is over.
    Over(&'a Report),
    /// Nothing has happened for a while.
    Nothing,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Every entry, in the order of the catalogue.
    pub reports: Vec<Report>,
    /// How long it took.
    pub took: Duration,
}

impl Outcome {
    /// Whether nothing was wrong.
    pub fn is_good(&self) -> bool {
        !self.reports.iter().any(|report| report.verdict.is_bad())
    }
}

/// Runs the entries: first those that bear company, several at a time, then the others.
pub fn run(entries: &[Entry], plan: &Plan<'_>, mut watch: impl FnMut(News<'_>)) -> Outcome {
    let start = Instant::now();
    let mut reports = BTreeMap::new();
    for alone in [false, true] {
        let places = (0..entries.len()).filter(|&place| entries[place].is_alone == alone);
        let jobs = if alone { 1 } else { plan.jobs };
        let batch = Batch {
            entries,
            places: places.collect(),
            next: AtomicUsize::new(0),
            plan,
        };
        batch.work(jobs, |news| match news {
            Inner::Begun(place) => watch(News::Begun(&entries[place])),
            Inner::Over(place, report) => {
                watch(News::Over(&report));
                reports.insert(place, report);
            }
            Inner::Nothing => watch(News::Nothing),
        });
    }
    Outcome {
        reports: reports.into_values().collect(),
        took: start.elapsed(),
    }
}

/// Entries that are run at the same time.
struct Batch<'a> {
    entries: &'a [Entry],
    places: Vec<usize>,
    next: AtomicUsize,
    plan: &'a Plan<'a>,
}

enum Inner {
    Begun(usize),
    Over(usize, Report),
    Nothing,
}

impl Batch<'_> {
    fn work(&self, jobs: usize, mut watch: impl FnMut(Inner)) {
        let (sender, news) = channel();
        thread::scope(|scope| {
            for _ in 0..jobs.clamp(1, self.places.len().max(1)) {
                let sender = sender.clone();
                scope.spawn(move || self.work_off(&sender));
            }
            drop(sender);
            loop {
                match news.recv_timeout(TICK) {
                    Ok(news) => watch(news),
                    Err(std::sync::mpsc::RecvTimeoutError::Timeout) => watch(Inner::Nothing),
                    Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return,
                }
            }
        });
    }

    fn work_off(&self, news: &Sender<Inner>) {
        loop {
            let next = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(&place) = self.places.get(next) else {
                return;
            };
            let entry = &self.entries[place];
            // Whoever watches does so until the last of the threads is over.
            let _ = news.send(Inner::Begun(place));
            let manifest = self.plan.manifest;
            let report = match manifest.fault(&entry.provider, &entry.name) {
                Some(reason) => not_run(entry, reason),
                None => {
                    let report = attempt::attempt(entry, place, self.plan);
                    with_expectation(report, manifest)
                }
            };
            let _ = news.send(Inner::Over(place, report));
        }
    }
}

/// What is said of a test that a provider is known to fail.
fn not_run(entry: &Entry, reason: &str) -> Report {
    Report {
        provider: entry.provider.clone(),
        name: entry.name.clone(),
        seconds: 0.0,
        checks: 0,
        bytes: 0,
        output: Vec::new(),
        verdict: Verdict::Skip(format!("a fault of the provider's own: {reason}")),
        noticed: None,
    }
}

/// A skip that the manifest does not know of is a failure.
fn with_expectation(mut report: Report, manifest: &Manifest) -> Report {
    if let Verdict::Skip(why) = &report.verdict {
        // Behind these stands which call fails, or what is wrong with the provider.
        let name = report.name.split(['!', '~']).next();
        let name = name.unwrap_or(&report.name);
        report.verdict = match manifest.excuse(&report.provider, name) {
            Some(reason) => Verdict::Skip(reason.to_owned()),
            None => Verdict::Fail(format!("skipped, which nobody expects of it: {why}")),
        };
    }
    report
}

const TICK: Duration = Duration::from_millis(100);
