//! One victim at one instruction of its operation: killed there, or stopped and let go on.

use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use selvedge_testkit::random::Random;
use selvedge_testkit::timeout::Timeout;

use super::operation::{Act, Operation};
use super::path::{Path, Shortcut};
use super::scene::Scene;
use super::tracee::{Stop, Tracee};

/// What becomes of a victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is killed.
    Death,
    /// It is stopped for this long, and goes on.
    Pause(Duration),
}

/// What one victim has shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sighting {
    /// Whether it had come to the end of the operation.
    pub(crate) is_through: bool,
    /// Messages of it that have arrived.
    pub(crate) received: usize,
    /// From its death until everything that was outstanding with it had failed, if something was.
    pub(crate) noticed: Option<Duration>,
}

/// Where the victim's fate waits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Point {
    /// Behind this many instructions.
    Instruction(u64),
    /// Behind this many instructions of which the first ones are run through, up to a trap.
    Beyond(Shortcut, u64),
    /// At an instant.
    After(Duration),
}

/// Instructions between two looks of the partner, which runs that much faster than its victim.
const PACE: u64 = 16;

/// Follows a victim through all of its operation, and kills it.
///
/// # Errors
/// When the system does not let it be followed.
pub(crate) fn explore(scene: &mut Scene, operation: &Operation) -> anyhow::Result<Path> {
    let mut tracee = scene.raise(true, false)?;
    let path = Path::follow(&mut tracee, |at| match at % PACE {
        0 => scene.drive(),
        _ => Ok(()),
    })?;
    tracee.kill()?;
    tracee.reap()?;
    scene.outlive()?;
    scene.close_the_books(usize::from(operation.is_acquainted()))?;
    Ok(path)
}

/// Lets a victim live up to a point, and meet its fate.
///
/// # Errors
/// What its survivors have to complain of.
pub(crate) fn attempt(
    scene: &mut Scene,
    operation: &Operation,
    point: Point,
    fate: Fate,
    random: &mut Random,
) -> anyhow::Result<Sighting> {
    let is_small = operation.is_alone() && !matches!(operation.act, Act::Close | Act::Wake);
    let is_late = is_small && random.flip();
    let is_traced = !matches!(point, Point::After(_));
    let mut tracee = scene.raise(is_traced, is_late)?;
    let partner_sleeps = operation.act == Act::Wake;
    if partner_sleeps {
        scene.lie_down()?;
    }
    let drives = !(partner_sleeps || operation.is_alone() && random.flip());
    let is_through = run(scene, &mut tracee, point, drives)?;
    if random.flip() {
        scene.goes_on()?;
    }
    let mut noticed = None;
    let greetings = usize::from(operation.is_acquainted());
    match fate {
        Fate::Death => {
            let seen = random
                .flip()
                .then(|| scene.settle().map(|()| scene.received()));
            let seen = seen.transpose()?;
            if partner_sleeps {
                scene.lie_down()?;
            }
            noticed = die(scene, tracee, random)?;
            if is_late {
                scene.post_receives(2)?;
            }
            let sent = usize::from(is_through && operation.sends().is_some());
            scene.close_the_books(greetings + sent)?;
            let is_same = is_late || seen.is_none_or(|seen| seen == scene.received());
            ensure!(is_same, "{seen:?} messages had arrived before its death");
            scene.check_memory(is_through)?;
            let survived = scene.survived();
            // Whoever closes has posted a receive for what its partner sends.
            let most = usize::from(operation.act == Act::Close);
            ensure!(
                survived <= most,
                "{survived} operations with the dead were successful"
            );
        }
        Fate::Pause(pause) => {
            if !is_traced && !is_through {
                tracee.halt()?;
            }
            let until = Instant::now() + pause;
            while Instant::now() < until {
                scene.goes_on()?;
            }
            if is_late {
                scene.post_receives(2)?;
            }
            if operation.act == Act::LieDown {
                scene.call()?;
            }
            if partner_sleeps {
                scene.lie_down()?;
            }
            tracee.resume()?;
            if partner_sleeps && scene.received() == greetings {
                scene.be_woken()?;
            }
            if !is_through {
                scene.finish(&mut tracee)?;
            }
            scene.live_on(tracee)?;
            scene.check_memory(true)?;
            scene.close_the_books(greetings + usize::from(operation.sends().is_some()))?;
        }
    }
    scene.goes_on()?;
    Ok(Sighting {
        is_through,
        received: scene.received(),
        noticed,
    })
}

/// Runs the victim up to the point; whether it has come to the end of its operation before.
fn run(scene: &mut Scene, tracee: &mut Tracee, point: Point, drives: bool) -> anyhow::Result<bool> {
    let steps = match point {
        Point::Instruction(at) => at,
        Point::After(delay) => return run_for(scene, tracee, delay),
        Point::Beyond(shortcut, at) => {
            if run_into(scene, tracee, shortcut)? {
                return Ok(true);
            }
            at - shortcut.at
        }
    };
    for at in 0..steps {
        match tracee.step()? {
            Stop::Stepped => {}
            Stop::Marked => return Ok(true),
            Stop::Over => bail!("a victim has ended by itself"),
        }
        if drives && at % PACE == 0 {
            scene.drive()?;
        }
    }
    Ok(false)
}

/// Runs the victim into a trap, as often as it takes; whether it has come to its end before.
fn run_into(scene: &mut Scene, tracee: &mut Tracee, shortcut: Shortcut) -> anyhow::Result<bool> {
    let Shortcut { place, visits, .. } = shortcut;
    for visit in 1..=visits {
        let was = tracee.set_trap(place)?;
        tracee.resume()?;
        let mut timeout = Timeout::new("a victim before its trap");
        loop {
            match tracee.look()? {
                Some(Stop::Stepped) => break,
                Some(Stop::Marked) => return Ok(true),
                Some(Stop::Over) => bail!("a victim has ended by itself"),
                None => timeout.check()?,
            }
            scene.drive()?;
        }
        tracee.clear_trap(place, was)?;
        if visit < visits {
            tracee.step()?;
        }
    }
    Ok(false)
}

/// Lets the victim run for a while, which may take it to the end of its operation.
fn run_for(scene: &mut Scene, tracee: &mut Tracee, delay: Duration) -> anyhow::Result<bool> {
    tracee.resume()?;
    let until = Instant::now() + delay;
    while Instant::now() < until {
        if tracee.look()?.is_some() {
            return Ok(true);
        }
        scene.drive()?;
    }
    Ok(false)
}

/// Kills the victim; how long it took until that was noticed, if there was something to notice.
fn die(
    scene: &mut Scene,
    mut tracee: Tracee,
    random: &mut Random,
) -> anyhow::Result<Option<Duration>> {
    let is_bound = scene.is_bound();
    let at = tracee.kill()?;
    // A process that nobody has waited for is dead as well.
    let stays = random.flip();
    if !stays {
        tracee.reap()?;
    }
    if scene.sleeps() {
        scene.be_woken()?;
    }
    scene.outlive()?;
    let noticed = at.elapsed();
    if stays {
        tracee.reap()?;
    }
    Ok(is_bound.then_some(noticed))
}
