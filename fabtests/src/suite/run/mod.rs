//! The runner: works through the entries with a few threads, each of which looks after one entry at
//! a time.

mod attempt;
mod leftovers;
mod process;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::entry::Entry;
use super::manifest::Manifest;
use super::verdict::{Report, Verdict};

/// How a run is to be made.
#[derive(Clone, Debug)]
pub struct Plan<'a> {
    /// What providers are expected to do.
    pub manifest: &'a Manifest,
    /// Entries that run at the same time.
    pub jobs: usize,
    /// Multiplies the time that each entry may take.
    pub slowness: f64,
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
    let mut suspects = Suspects::new();
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
            Inner::Begun(place) => {
                suspects.begin(place);
                watch(News::Begun(&entries[place]));
            }
            Inner::Over(place, report, files) => {
                suspects.look(place, &files);
                watch(News::Over(&report));
                reports.insert(place, report);
            }
            Inner::Nothing => watch(News::Nothing),
        });
    }
    for (name, sighting) in suspects.left() {
        if let Some(report) = reports.get_mut(&sighting.ended)
            && !report.verdict.is_bad()
        {
            let others = sighting.running.iter().map(|&place| entries[place].path());
            let who = match Vec::from_iter(others).join(", ") {
                none if none.is_empty() => "it".to_owned(),
                others => format!("it, or what ran beside it ({others}),"),
            };
            report.verdict = Verdict::Leak(format!("{who} has left {name} behind"));
            watch(News::Over(report));
        }
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
    /// With the files of shared memory that are there.
    Over(usize, Report, BTreeSet<String>),
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
            let report = attempt::attempt(entry, place, self.plan.slowness);
            let report = with_expectation(report, self.plan.manifest);
            let _ = news.send(Inner::Over(place, report, leftovers::files()));
        }
    }
}

/// A skip that the manifest does not know of is a failure.
fn with_expectation(mut report: Report, manifest: &Manifest) -> Report {
    if let Verdict::Skip(why) = &report.verdict {
        report.verdict = match manifest.excuse(&report.provider, &report.name) {
            Some(reason) => Verdict::Skip(reason.to_owned()),
            None => Verdict::Fail(format!("skipped, which nobody expects of it: {why}")),
        };
    }
    report
}

/// Files that appear while tests run, and the tests that may have made them.
struct Suspects {
    running: BTreeSet<usize>,
    before: BTreeSet<String>,
    seen: BTreeMap<String, Sighting>,
}

/// When a file was first seen.
struct Sighting {
    /// The test that had just ended.
    ended: usize,
    /// Those that were running.
    running: Vec<usize>,
}

impl Suspects {
    fn new() -> Self {
        Self {
            running: BTreeSet::new(),
            before: leftovers::files(),
            seen: BTreeMap::new(),
        }
    }

    fn begin(&mut self, place: usize) {
        self.running.insert(place);
    }

    /// An entry is over: what is there now and was not before is its, or of one of those that run.
    fn look(&mut self, place: usize, now: &BTreeSet<String>) {
        self.running.remove(&place);
        self.seen.retain(|name, _| now.contains(name));
        for name in now.difference(&self.before) {
            self.seen.entry(name.clone()).or_insert_with(|| Sighting {
                ended: place,
                running: self.running.iter().copied().collect(),
            });
        }
    }

    /// What is still there when all tests are over.
    ///
    /// Others use the machine, too; what they make goes away by itself.
    fn left(mut self) -> BTreeMap<String, Sighting> {
        let until = Instant::now() + GRACE;
        while !self.seen.is_empty() && Instant::now() < until {
            thread::sleep(TICK);
            let now = leftovers::files();
            self.seen.retain(|name, _| now.contains(name));
        }
        self.seen
    }
}

const TICK: Duration = Duration::from_millis(100);
/// How long a file may outlive the test that seems to have made it.
const GRACE: Duration = Duration::from_secs(3);
