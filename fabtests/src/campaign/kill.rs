//! The campaigns `kill` and `stop`: victims die, or stop for a while, at every instruction of
//! everything that they do.
//!
//! A victim is single-stepped through one operation with its partner. The partner must receive what
//! was committed, once and in order, and nothing else; everything else that it had outstanding with
//! the victim must fail (or, after a stop, succeed); its exchange with somebody else goes on
//! meanwhile; and at the end it holds no more than at the beginning.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use selvedge_testkit::random::Random;
use selvedge_testkit::timeout::Timeout;
use selvedge_testkit::usage::{Usage, no_sockets, private_after_trim};

use super::operation::{OPERATIONS, Operation};
use super::path;
use super::report::{Plan, Report, Row};
use super::restart;
use super::scene::Scene;
use super::sweep::{Fate, Point, Sighting, attempt, explore};
use super::tracee::Tracee;

/// Victims of each operation in the short form.
const SHORT: u64 = 2;
/// Victims before it is counted what the survivors hold.
const WARM_UP: u64 = 1;
/// How long a victim is stopped, at least.
const PAUSE: Duration = Duration::from_millis(1);
/// The longest time until a fate that waits at an instant.
const LONGEST: Duration = Duration::from_micros(300);
/// The binary logarithm of the last instruction that is chosen by its number, in the short form.
const EARLY: u64 = 11;
/// What the memory of the survivors may grow by, whatever the number of victims.
const GROWTH: usize = 2 << 20;

/// Runs the campaign `kill`.
///
/// # Errors
/// When it cannot be run.
pub(super) fn deaths(plan: &Plan) -> anyhow::Result<Report> {
    sweeps("kill", plan, Fate::Death)
}

/// Runs the campaign `stop`.
///
/// # Errors
/// When it cannot be run.
pub(super) fn pauses(plan: &Plan) -> anyhow::Result<Report> {
    let mut report = sweeps("stop", plan, Fate::Pause(PAUSE))?;
    if plan.has("stream") {
        report.add(restart::pauses(plan)?);
    }
    Ok(report)
}

fn sweeps(campaign: &'static str, plan: &Plan, fate: Fate) -> anyhow::Result<Report> {
    let mut report = Report::new(campaign, plan);
    let refusal = Tracee::refusal();
    if let Some(why) = &refusal {
        let what = format!("instructions cannot be chosen, random instants are: ptrace(2): {why}");
        report.skipped.push(what);
    } else if plan.all {
        path::fix_addresses()?;
    }
    for operation in OPERATIONS.iter().filter(|op| plan.has(op.name)) {
        let sweep = Sweep {
            operation,
            fate,
            is_traced: refusal.is_none(),
            random: plan.random(operation.name),
            scene: Scene::new(operation)?,
            row: Row::new(operation.name),
            sightings: Vec::new(),
        };
        report.add(sweep.run(plan)?);
    }
    Ok(report)
}

/// All victims of one operation.
struct Sweep {
    operation: &'static Operation,
    fate: Fate,
    is_traced: bool,
    random: Random,
    scene: Scene,
    row: Row,
    sightings: Vec<Sighting>,
}

impl Sweep {
    fn run(mut self, plan: &Plan) -> anyhow::Result<Row> {
        for _ in 0..WARM_UP {
            self.next(Point::After(LONGEST))?;
        }
        let (before, memory) = (Usage::now()?, private_after_trim()?);
        if plan.all && self.is_traced {
            self.everywhere()?;
        } else {
            let (began, mut done) = (Instant::now(), 0);
            while !plan.is_over(done, SHORT, began) {
                let point = self.somewhere();
                self.next(point)?;
                done += 1;
            }
        }
        let kept = self.nothing_is_left(before, memory);
        self.row.count("at the end", kept);
        self.report();
        Ok(self.row)
    }

    /// A victim for every instruction; of those that repeat, not for every time.
    fn everywhere(&mut self) -> anyhow::Result<()> {
        let path = explore(&mut self.scene, self.operation)?;
        self.row.figures.insert("instructions", path.len() as f64);
        for at in path.points() {
            let there = Point::Instruction(at);
            let point = path
                .shortcut(at)
                .map_or(there, |way| Point::Beyond(way, at));
            self.next(point)?;
        }
        Ok(())
    }

    /// Among the first instructions as often as further on.
    fn somewhere(&mut self) -> Point {
        if self.is_traced && self.random.flip() {
            let end = 1 << self.random.below(EARLY);
            return Point::Instruction(self.random.below(end));
        }
        let longest = LONGEST.as_nanos() as u64;
        Point::After(Duration::from_nanos(self.random.below(longest)))
    }

    /// One victim. After one that was not survived, there are new survivors.
    fn next(&mut self, point: Point) -> anyhow::Result<()> {
        let at = format!("{point:?}");
        let (scene, operation) = (&mut self.scene, self.operation);
        let (fate, random) = (self.fate, &mut self.random);
        let attempt = || attempt(scene, operation, point, fate, random);
        // What panics in the library is a failure of the attempt, not of the campaign.
        let attempt = catch_unwind(AssertUnwindSafe(attempt));
        let attempt = attempt.unwrap_or_else(|_| Err(anyhow!("a survivor has panicked")));
        match self.row.count(&at, attempt) {
            Some(sighting) => self.sightings.push(sighting),
            None => self.scene = Scene::new(operation)?,
        }
        Ok(())
    }

    fn nothing_is_left(&mut self, before: Usage, memory: usize) -> anyhow::Result<()> {
        ensure!(self.row.failures.is_empty(), "there were failures");
        let (mut after, mut timeout) = (Usage::now()?, Timeout::new("what victims have left"));
        while after != before {
            let more = || format!("{before:?} has become {after:?}");
            timeout.check().with_context(more)?;
            // On a busy machine the end of the last one may not have been heard.
            self.scene.settle()?;
            after = Usage::now()?;
        }
        let grown = private_after_trim()?;
        ensure!(grown < memory + GROWTH, "{memory} bytes became {grown}");
        no_sockets(self.scene.name())
    }

    fn report(&mut self) {
        let figures = &mut self.row.figures;
        let through = self.sightings.iter().filter(|s| s.is_through).count();
        figures.insert("through", through as f64);
        let mut noticed: Vec<_> = self.sightings.iter().filter_map(|s| s.noticed).collect();
        noticed.sort();
        if let (Some(last), Fate::Death) = (noticed.last(), self.fate) {
            let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
            figures.insert("noticed_p50_ms", ms(noticed[noticed.len() / 2]));
            figures.insert("noticed_p99_ms", ms(noticed[noticed.len() * 99 / 100]));
            figures.insert("noticed_max_ms", ms(*last));
        }
        let received: usize = self.sightings.iter().map(|s| s.received).sum();
        figures.insert("messages", received as f64);
    }
}
