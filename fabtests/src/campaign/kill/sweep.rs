//! Runs one target to one instruction of its operation, and kills it there, or stops and continues
//! it.

use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use selvedge_testkit::random::Random;
use selvedge_testkit::timeout::Timeout;

use super::operation::{Action, Operation};
use super::path::{Path, Shortcut};
use super::scenario::Scenario;
use super::traced_process::{Stop, TracedProcess};

/// The fault of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The target is killed.
    Kill,
    /// The target is stopped for this time, and continues.
    Stop(Duration),
}

/// The result of one target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Observation {
    /// Whether the target had completed its operation.
    pub(crate) is_completed: bool,
    /// Number of its messages that arrived.
    pub(crate) received: usize,
    /// Time from the kill until every outstanding operation had failed; `None` without such an
    /// operation.
    pub(crate) detection_time: Option<Duration>,
}

/// The point of the fault.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Point {
    /// After this many instructions.
    Instruction(u64),
    /// After this many instructions; the first ones run at full speed to a breakpoint.
    AfterBreakpoint(Shortcut, u64),
    /// After this time at full speed, untraced.
    After(Duration),
}

/// The number of single steps of the target between two polls of the partner. The partner is not
/// single-stepped, and would otherwise run much faster than the target.
const DRIVE_INTERVAL: u64 = 16;

/// Steps a target through its whole operation, and kills it.
///
/// # Errors
/// The target cannot be traced.
pub(crate) fn explore(scenario: &mut Scenario, operation: &Operation) -> anyhow::Result<Path> {
    let mut traced = scenario.start_target(true, false)?;
    let path = Path::follow(&mut traced, |steps| match steps % DRIVE_INTERVAL {
        0 => scenario.drive(),
        _ => Ok(()),
    })?;
    traced.kill()?;
    traced.reap()?;
    scenario.wait_for_outstanding()?;
    scenario.check_received(usize::from(operation.is_connected()))?;
    Ok(path)
}

/// Runs a target to a point and injects the fault.
///
/// # Errors
/// A check of the partner or of the bystander fails.
pub(crate) fn attempt(
    scenario: &mut Scenario,
    operation: &Operation,
    point: Point,
    fault: Fault,
    random: &mut Random,
) -> anyhow::Result<Observation> {
    let allows_late_receives = operation.needs_no_partner()
        && !matches!(operation.action, Action::Close(_) | Action::Wake);
    let has_late_receives = allows_late_receives && random.flip();
    let is_traced = !matches!(point, Point::After(_));
    let mut traced = scenario.start_target(is_traced, has_late_receives)?;
    let is_partner_parked = operation.action == Action::Wake;
    if is_partner_parked {
        scenario.arm_wakeup()?;
    }
    let makes_progress = !(is_partner_parked || operation.needs_no_partner() && random.flip());
    let is_completed = run_to_point(scenario, &mut traced, point, makes_progress)?;
    let is_running = !is_traced && !is_completed;
    if random.flip() {
        scenario.exchange_with_bystander()?;
    }
    let mut detection_time = None;
    let connect_messages = usize::from(operation.is_connected());
    match fault {
        Fault::Kill => {
            let received_before = if random.flip() {
                if is_running {
                    traced.stop_anywhere()?;
                }
                scenario.settle()?;
                Some(scenario.received())
            } else {
                None
            };
            if is_partner_parked {
                scenario.arm_wakeup()?;
            }
            detection_time = kill_target(scenario, traced, random)?;
            if has_late_receives {
                scenario.post_receives(2)?;
            }
            let sent = usize::from(is_completed && operation.sends().is_some());
            scenario.check_received(connect_messages + sent)?;
            if let Some(received_before) = received_before
                && !has_late_receives
            {
                let received = scenario.received();
                ensure!(
                    received == received_before,
                    "{received} messages have arrived, {received_before} of them before the kill"
                );
            }
            scenario.check_memory(is_completed)?;
            let survived = scenario.survived();
            // A target that closes has posted a receive for its partner's message.
            let most = usize::from(matches!(operation.action, Action::Close(_)));
            ensure!(
                survived <= most,
                "{survived} operations succeeded that need a running target; the maximum is {most}"
            );
        }
        Fault::Stop(pause) => {
            if is_running {
                traced.stop_anywhere()?;
            }
            let deadline = Instant::now() + pause;
            while Instant::now() < deadline {
                scenario.exchange_with_bystander()?;
            }
            if has_late_receives {
                scenario.post_receives(2)?;
            }
            if operation.action == Action::Park {
                scenario.send_wakeup()?;
            }
            if is_partner_parked {
                scenario.arm_wakeup()?;
            }
            traced.resume()?;
            if is_partner_parked && scenario.received() == connect_messages {
                scenario.wait_for_wakeup()?;
            }
            if !is_completed {
                scenario.finish(&mut traced)?;
            }
            scenario.run_to_end(traced)?;
            scenario.check_memory(true)?;
            scenario.check_received(connect_messages + usize::from(operation.sends().is_some()))?;
        }
    }
    scenario.exchange_with_bystander()?;
    Ok(Observation {
        is_completed,
        received: scenario.received(),
        detection_time,
    })
}

/// Runs the target to the point. Returns whether the target completed its operation before.
fn run_to_point(
    scenario: &mut Scenario,
    traced: &mut TracedProcess,
    point: Point,
    makes_progress: bool,
) -> anyhow::Result<bool> {
    let steps = match point {
        Point::Instruction(instructions) => instructions,
        Point::After(delay) => return run_for(scenario, traced, delay),
        Point::AfterBreakpoint(shortcut, instructions) => {
            if run_to_breakpoint(scenario, traced, shortcut)? {
                return Ok(true);
            }
            instructions - shortcut.instructions
        }
    };
    for step in 0..steps {
        match traced.step()? {
            Stop::Stepped => {}
            Stop::Marked => return Ok(true),
            Stop::Over => bail!("the target exited by itself"),
        }
        if makes_progress && step % DRIVE_INTERVAL == 0 {
            scenario.drive()?;
        }
    }
    Ok(false)
}

/// Runs the target to a breakpoint as often as required. Returns whether the target completed its
/// operation before.
fn run_to_breakpoint(
    scenario: &mut Scenario,
    traced: &mut TracedProcess,
    shortcut: Shortcut,
) -> anyhow::Result<bool> {
    let Shortcut { addr, visits, .. } = shortcut;
    for visit in 1..=visits {
        let original = traced.set_breakpoint(addr)?;
        traced.resume()?;
        let mut timeout = Timeout::new("a target at its breakpoint");
        loop {
            match traced.poll_stop()? {
                Some(Stop::Stepped) => break,
                Some(Stop::Marked) => return Ok(true),
                Some(Stop::Over) => bail!("the target exited by itself"),
                None => timeout.check()?,
            }
            scenario.drive()?;
        }
        traced.clear_breakpoint(addr, original)?;
        if visit < visits {
            traced.step()?;
        }
    }
    Ok(false)
}

/// Lets the target run for `delay`. Returns whether the target completed its operation.
fn run_for(
    scenario: &mut Scenario,
    traced: &mut TracedProcess,
    delay: Duration,
) -> anyhow::Result<bool> {
    traced.resume()?;
    let deadline = Instant::now() + delay;
    while Instant::now() < deadline {
        match traced.poll_stop()? {
            Some(Stop::Over) => bail!("the target exited by itself"),
            Some(Stop::Stepped | Stop::Marked) => return Ok(true),
            None => scenario.drive()?,
        }
    }
    Ok(false)
}

/// Kills the target. Returns the time in which the partner detected the kill, if an operation was
/// outstanding.
fn kill_target(
    scenario: &mut Scenario,
    mut traced: TracedProcess,
    random: &mut Random,
) -> anyhow::Result<Option<Duration>> {
    let has_outstanding = scenario.has_outstanding();
    let killed = traced.kill()?;
    // The partner must treat a zombie as ended.
    let stays_zombie = random.flip();
    if !stays_zombie {
        traced.reap()?;
    }
    if scenario.is_partner_parked() {
        scenario.wait_for_wakeup()?;
    }
    scenario.wait_for_outstanding()?;
    let detection_time = killed.elapsed();
    if stays_zombie {
        traced.reap()?;
    }
    Ok(has_outstanding.then_some(detection_time))
}
