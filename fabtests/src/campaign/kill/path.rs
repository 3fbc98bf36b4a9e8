//! The path of an operation through its instructions, and the cheapest way to reach one of them.
//!
//! A single step costs two context switches, so a target is not stepped to a late instruction from
//! the beginning. The target runs to a breakpoint at a rarely executed instruction at or before
//! that one, and is stepped from there. For that, targets run without address space randomisation.

use std::collections::HashMap;

use anyhow::Context as _;
use nix::sys::personality::{self, Persona};

use super::traced_process::{Stop, TracedProcess};

/// The addresses of an operation's instructions, in order.
#[derive(Debug, Default)]
pub(crate) struct Path {
    steps: Vec<Step>,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    addr: u64,
    /// How often the instruction has been executed, this time included.
    visit: u64,
}

/// A breakpoint on the way to an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shortcut {
    /// The address.
    pub(crate) addr: u64,
    /// Number of visits to the breakpoint, the last included.
    pub(crate) visits: u64,
    /// Number of instructions from the beginning to the last of these visits.
    pub(crate) instructions: u64,
}

/// Cost of reaching a breakpoint, in single steps.
const BREAKPOINT_COST: u64 = 3;

/// Makes all processes that are started later load at the same addresses.
///
/// # Errors
/// The error of the system call.
pub(crate) fn fix_addresses() -> anyhow::Result<()> {
    let persona = personality::get().context("personality(2)")?;
    personality::set(persona | Persona::ADDR_NO_RANDOMIZE).context("personality(2)")?;
    Ok(())
}

impl Path {
    /// Steps a target from its mark to the next one, and calls `progress` after each step.
    ///
    /// # Errors
    /// The process cannot be stepped.
    pub(crate) fn follow(
        traced: &mut TracedProcess,
        mut progress: impl FnMut(u64) -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        let (mut path, mut visits) = (Self::default(), HashMap::new());
        loop {
            let addr = traced.instruction_pointer()?;
            let visit = visits.entry(addr).or_insert(0);
            *visit += 1;
            path.steps.push(Step {
                addr,
                visit: *visit,
            });
            if traced.step()? != Stop::Stepped {
                return Ok(path);
            }
            progress(path.len())?;
        }
    }

    /// Returns the number of instructions.
    pub(crate) fn len(&self) -> u64 {
        self.steps.len() as u64
    }

    /// Returns the points to try, each as the number of instructions before the point. An
    /// instruction that is executed once is a point. Of an instruction that repeats, as in a loop
    /// that clears a page, the executions 1, 2, 4, 8, ... and the last are points.
    pub(crate) fn points(&self) -> impl Iterator<Item = u64> {
        let mut last = HashMap::new();
        for step in &self.steps {
            last.insert(step.addr, step.visit);
        }
        let is_point =
            move |step: &Step| step.visit.is_power_of_two() || last[&step.addr] == step.visit;
        let steps = self.steps.iter().zip(0..);
        steps.filter_map(move |(step, index)| is_point(step).then_some(index))
    }

    /// Returns the cheapest breakpoint on the way to the point after `target` instructions, if it
    /// is cheaper than single steps.
    pub(crate) fn shortcut(&self, target: u64) -> Option<Shortcut> {
        let before = self.steps.get(..=target as usize)?;
        let mut best: Option<(u64, Shortcut)> = None;
        for (distance, step) in before.iter().rev().enumerate() {
            let distance = distance as u64;
            let cost = distance + BREAKPOINT_COST * step.visit;
            if best.is_none_or(|(least, _)| cost < least) && cost < target {
                let shortcut = Shortcut {
                    addr: step.addr,
                    visits: step.visit,
                    instructions: target - distance,
                };
                best = Some((cost, shortcut));
            }
            if best.is_some_and(|(least, _)| distance >= least) {
                break;
            }
        }
        best.map(|(_, shortcut)| shortcut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(addrs: &[u64]) -> Path {
        let mut visits = HashMap::new();
        let step = |&addr| {
            let visit = visits.entry(addr).or_insert(0);
            *visit += 1;
            Step {
                addr,
                visit: *visit,
            }
        };
        Path {
            steps: addrs.iter().map(step).collect(),
        }
    }

    #[test]
    fn a_shortcut_is_at_an_instruction_that_is_rarely_executed() {
        // A loop of ten instructions, then two more.
        let mut addrs = vec![1];
        addrs.extend((10..20).collect::<Vec<_>>().repeat(20));
        addrs.extend([20, 21]);
        let path = path(&addrs);
        let straight = path.shortcut(202).unwrap();
        assert_eq!(
            (straight.addr, straight.visits, straight.instructions),
            (21, 1, 202)
        );
        let inside = path.shortcut(150).unwrap();
        assert_eq!(path.steps[inside.instructions as usize].addr, inside.addr);
        assert!(inside.visits * BREAKPOINT_COST + (150 - inside.instructions) < 150);
        assert_eq!(path.shortcut(1), None);
        assert_eq!(path.shortcut(1000), None);
    }

    #[test]
    fn every_instruction_is_a_point_and_a_loop_has_few_points() {
        let straight = path(&[1, 2, 3]);
        assert_eq!(straight.points().collect::<Vec<_>>(), [0, 1, 2]);
        let mut addrs = vec![1];
        addrs.extend([10, 11].repeat(100));
        addrs.push(2);
        let points: Vec<_> = path(&addrs).points().collect();
        let visits = [1, 2, 4, 8, 16, 32, 64, 100];
        let looped = visits.iter().flat_map(|visit| [2 * visit - 1, 2 * visit]);
        let expected: Vec<_> = [0].into_iter().chain(looped).chain([201]).collect();
        assert_eq!(points, expected);
    }

    #[test]
    fn a_tight_loop_has_no_shortcut() {
        assert_eq!(path(&[10, 11].repeat(50)).shortcut(99), None);
    }
}
