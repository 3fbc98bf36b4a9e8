//! The campaigns `kill` and `stop`: a target is killed, or stopped for a while, at every
//! instruction of every operation.
//!
//! The target is single-stepped through one operation with its partner. The partner must receive
//! every committed message once and in order, and nothing else. The partner's other operations with
//! the target must fail, or succeed after a stop. The partner's exchange with a bystander
//! continues. At the end, the partner holds no more resources than at the beginning.

mod heap;
mod operation;
mod path;
mod scenario;
mod sweep;
pub(super) mod target;
mod traced_process;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use selvedge_testkit::random::Random;
use selvedge_testkit::timeout::Timeout;
use selvedge_testkit::usage::{Usage, private_after_trim, wait_for_no_sockets};

use self::operation::{OPERATIONS, Operation};
use self::scenario::Scenario;
use self::sweep::{Fault, Observation, Point, attempt, explore};
use self::traced_process::TracedProcess;
use super::report::{Plan, Report, Row};
use super::restart;

/// Targets of each operation in the short form.
const SHORT: u64 = 2;
/// Targets before the resources of the surviving processes are measured.
const WARM_UP: u64 = 1;
/// Minimum duration of a stop.
const PAUSE: Duration = Duration::from_millis(1);
/// The latest random instant of a fault in most operations.
const LATEST: Duration = Duration::from_micros(300);
/// The binary logarithm of the last instruction that is chosen by its number, in the short form.
const EARLY_LOG2: u64 = 11;
/// Maximum growth of the surviving processes' memory, for any number of targets.
const GROWTH: usize = 2 << 20;

/// Runs the campaign `kill`.
///
/// # Errors
/// The campaign cannot be run.
pub(super) fn run_kill(plan: &Plan) -> anyhow::Result<Report> {
    run_sweeps("kill", plan, Fault::Kill)
}

/// Runs the campaign `stop`.
///
/// # Errors
/// The campaign cannot be run.
pub(super) fn run_stop(plan: &Plan) -> anyhow::Result<Report> {
    let mut report = run_sweeps("stop", plan, Fault::Stop(PAUSE))?;
    if plan.includes("stream") {
        report.add(restart::run_stopped_stream(plan)?);
    }
    Ok(report)
}

fn run_sweeps(campaign: &'static str, plan: &Plan, fault: Fault) -> anyhow::Result<Report> {
    let mut report = Report::new(campaign, plan);
    let trace_error = TracedProcess::trace_error();
    if let Some(error) = &trace_error {
        let reason =
            format!("single-stepping is not permitted, so instants are random: ptrace(2): {error}");
        report.skipped.push(reason);
    } else if plan.all {
        path::fix_addresses()?;
    }
    for operation in OPERATIONS.iter().filter(|op| plan.includes(op.name)) {
        let sweep = Sweep {
            operation,
            fault,
            is_traced: trace_error.is_none(),
            random: plan.random(operation.name),
            scenario: Scenario::new(operation)?,
            row: Row::new(operation.name),
            observations: Vec::new(),
        };
        report.add(sweep.run(plan)?);
    }
    Ok(report)
}

/// The attempts with all targets of one operation.
struct Sweep {
    operation: &'static Operation,
    fault: Fault,
    is_traced: bool,
    random: Random,
    scenario: Scenario,
    row: Row,
    observations: Vec<Observation>,
}

impl Sweep {
    fn run(mut self, plan: &Plan) -> anyhow::Result<Row> {
        for _ in 0..WARM_UP {
            self.run_attempt(Point::After(LATEST))?;
        }
        let (before, memory) = (Usage::now()?, private_after_trim()?);
        if plan.all && self.is_traced {
            self.run_all()?;
        } else {
            let (began, mut done) = (Instant::now(), 0);
            while !plan.is_over(done, SHORT, began) {
                let point = self.random_point();
                self.run_attempt(point)?;
                done += 1;
            }
        }
        let result = self.check_leaks(before, memory);
        self.row.count("at the end", result);
        self.report();
        Ok(self.row)
    }

    /// Runs a target for every instruction; of an instruction that repeats, only for some of its
    /// executions.
    fn run_all(&mut self) -> anyhow::Result<()> {
        let path = explore(&mut self.scenario, self.operation)?;
        self.row.figures.insert("instructions", path.len() as f64);
        for instructions in path.points() {
            let point = Point::Instruction(instructions);
            let point = path.shortcut(instructions).map_or(point, |shortcut| {
                Point::AfterBreakpoint(shortcut, instructions)
            });
            self.run_attempt(point)?;
        }
        Ok(())
    }

    /// Chooses one of the first instructions and a later instant equally often.
    fn random_point(&mut self) -> Point {
        if self.is_traced && self.random.flip() {
            let end = 1 << self.random.below(EARLY_LOG2);
            return Point::Instruction(self.random.below(end));
        }
        let latest = self.operation.slowness() * LATEST.as_nanos() as u64;
        Point::After(Duration::from_nanos(self.random.below(latest)))
    }

    /// Runs one target. After a failure, new partner and bystander processes are started.
    fn run_attempt(&mut self, point: Point) -> anyhow::Result<()> {
        let label = format!("{point:?}");
        let (scenario, operation) = (&mut self.scenario, self.operation);
        let (fault, random) = (self.fault, &mut self.random);
        let attempt = || attempt(scenario, operation, point, fault, random);
        // A panic in the library is a failure of the attempt, not of the campaign.
        let attempt = catch_unwind(AssertUnwindSafe(attempt));
        let attempt =
            attempt.unwrap_or_else(|_| Err(anyhow!("the partner or the bystander has panicked")));
        match self.row.count(&label, attempt) {
            Some(observation) => self.observations.push(observation),
            None => self.scenario = Scenario::new(operation)?,
        }
        Ok(())
    }

    fn check_leaks(&mut self, before: Usage, memory: usize) -> anyhow::Result<()> {
        ensure!(
            self.row.failures.is_empty(),
            "resources are not compared after failures"
        );
        let (mut after, mut timeout) = (
            Usage::now()?,
            Timeout::new("the release of the targets' resources"),
        );
        while after != before {
            let message = || {
                format!("this process holds {after:?}; before the first target it held {before:?}")
            };
            timeout.check().with_context(message)?;
            // On a busy machine, the end of the last target may not have been detected yet.
            self.scenario.settle()?;
            after = Usage::now()?;
        }
        let grown = private_after_trim()?;
        ensure!(
            grown < memory + GROWTH,
            "the memory grew from {memory} to {grown} bytes"
        );
        wait_for_no_sockets(self.scenario.name())
    }

    fn report(&mut self) {
        let figures = &mut self.row.figures;
        let completed = self.observations.iter().filter(|s| s.is_completed).count();
        figures.insert("through", completed as f64);
        let mut detection_times: Vec<_> = self
            .observations
            .iter()
            .filter_map(|s| s.detection_time)
            .collect();
        detection_times.sort();
        if let (Some(last), Fault::Kill) = (detection_times.last(), self.fault) {
            let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
            figures.insert(
                "noticed_p50_ms",
                ms(detection_times[detection_times.len() / 2]),
            );
            figures.insert(
                "noticed_p99_ms",
                ms(detection_times[detection_times.len() * 99 / 100]),
            );
            figures.insert("noticed_max_ms", ms(*last));
        }
        let received: usize = self.observations.iter().map(|s| s.received).sum();
        figures.insert("messages", received as f64);
    }
}
