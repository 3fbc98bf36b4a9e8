//! The runner: a few threads, each of which runs one entry at a time.

mod attempt;
mod hosts;
mod leftovers;
mod process;
pub mod selftest;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::entry::Entry;
use super::manifest::Manifest;
use super::outcome::{Outcome, Report};

pub use hosts::Hosts;

/// The configuration of a run.
#[derive(Clone, Debug)]
pub struct Plan<'a> {
    /// The expectations for providers.
    pub manifest: &'a Manifest,
    /// Entries that run at the same time.
    pub jobs: usize,
    /// Multiplies the time limit of each entry.
    pub slowness: f64,
    /// The hosts between which the processes of an entry alternate, if not all run on this one.
    pub hosts: Option<&'a Hosts>,
}

/// An event of a run.
#[derive(Debug)]
pub enum RunEvent<'a> {
    /// An entry has started.
    Started(&'a Entry),
    /// An entry has finished.
    Finished(&'a Report),
    /// No entry has started or finished for 100 ms.
    Idle,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct RunResult {
    /// The report of every entry, in the order of the catalogue.
    pub reports: Vec<Report>,
    /// The duration.
    pub duration: Duration,
}

impl RunResult {
    /// Returns whether no test failed.
    pub fn is_success(&self) -> bool {
        !self.reports.iter().any(|report| report.outcome.is_bad())
    }
}

/// Runs the entries: first those that may run at the same time, then the exclusive ones.
pub fn run(
    entries: &[Entry],
    plan: &Plan<'_>,
    mut on_event: impl FnMut(RunEvent<'_>),
) -> RunResult {
    let start = Instant::now();
    let mut reports = BTreeMap::new();
    for is_exclusive in [false, true] {
        let indices =
            (0..entries.len()).filter(|&index| entries[index].is_exclusive == is_exclusive);
        let jobs = if is_exclusive { 1 } else { plan.jobs };
        let batch = Batch {
            entries,
            indices: indices.collect(),
            next: AtomicUsize::new(0),
            plan,
        };
        batch.run_threads(jobs, |event| match event {
            BatchEvent::Started(index) => on_event(RunEvent::Started(&entries[index])),
            BatchEvent::Finished(index, report) => {
                on_event(RunEvent::Finished(&report));
                reports.insert(index, report);
            }
            BatchEvent::Idle => on_event(RunEvent::Idle),
        });
    }
    RunResult {
        reports: reports.into_values().collect(),
        duration: start.elapsed(),
    }
}

/// Entries that run at the same time.
struct Batch<'a> {
    entries: &'a [Entry],
    indices: Vec<usize>,
    next: AtomicUsize,
    plan: &'a Plan<'a>,
}

enum BatchEvent {
    Started(usize),
    Finished(usize, Report),
    Idle,
}

impl Batch<'_> {
    fn run_threads(&self, jobs: usize, mut on_event: impl FnMut(BatchEvent)) {
        let (sender, events) = channel();
        thread::scope(|scope| {
            for _ in 0..jobs.clamp(1, self.indices.len().max(1)) {
                let sender = sender.clone();
                scope.spawn(move || self.run_entries(&sender));
            }
            drop(sender);
            loop {
                match events.recv_timeout(TICK) {
                    Ok(event) => on_event(event),
                    Err(std::sync::mpsc::RecvTimeoutError::Timeout) => on_event(BatchEvent::Idle),
                    Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return,
                }
            }
        });
    }

    fn run_entries(&self, events: &Sender<BatchEvent>) {
        loop {
            let next = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(&index) = self.indices.get(next) else {
                return;
            };
            let entry = &self.entries[index];
            // The receiver runs until the last thread has ended.
            let _ = events.send(BatchEvent::Started(index));
            let manifest = self.plan.manifest;
            let report = match manifest.fault(&entry.provider, &entry.name) {
                Some(reason) => skip_report(entry, reason),
                None => {
                    let report =
                        attempt::run_entry(entry, index, self.plan.slowness, self.plan.hosts);
                    check_expectation(report, manifest)
                }
            };
            let _ = events.send(BatchEvent::Finished(index, report));
        }
    }
}

/// Makes the report of a test that a provider is known to fail.
fn skip_report(entry: &Entry, reason: &str) -> Report {
    Report {
        provider: entry.provider.clone(),
        name: entry.name.clone(),
        seconds: 0.0,
        checks: 0,
        bytes: 0,
        output: Vec::new(),
        outcome: Outcome::Skip(format!("a known fault of the provider: {reason}")),
        noticed: None,
    }
}

/// Turns a skip that the manifest does not expect into a failure.
fn check_expectation(mut report: Report, manifest: &Manifest) -> Report {
    if let Outcome::Skip(reason) = &report.outcome {
        // The text after these characters names the failing call or the defect.
        let name = report.name.split(['!', '~']).next();
        let name = name.unwrap_or(&report.name);
        report.outcome = match manifest.skip_reason(&report.provider, name) {
            Some(reason) => Outcome::Skip(reason.to_owned()),
            None => Outcome::Fail(format!(
                "an unexpected skip, which the manifest does not list: {reason}"
            )),
        };
    }
    report
}

/// Interval of [`RunEvent::Idle`].
const TICK: Duration = Duration::from_millis(100);
