//! The way of an operation through its instructions, and the shortest way to one of them.
//!
//! A step costs the kernel two switches of processes, so a victim is not stepped to a late
//! instruction from the beginning: it runs into a trap at or before it that it meets seldom, and is
//! stepped from there. Victims have no random addresses for that.

use std::collections::HashMap;

use anyhow::Context as _;
use nix::sys::personality::{self, Persona};

use super::tracee::{Stop, Tracee};

/// The addresses of an operation's instructions, in order.
#[derive(Debug, Default)]
pub(crate) struct Path {
    steps: Vec<Step>,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    place: u64,
    /// How often the operation has been here, this time included.
    visit: u64,
}

/// Where to set a trap on the way to an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shortcut {
    /// The address.
    pub(crate) place: u64,
    /// How often the trap is run into.
    pub(crate) visits: u64,
    /// Instructions from the beginning to there.
    pub(crate) at: u64,
}

/// What running into a trap costs, in steps.
const TRAP: u64 = 3;

/// Has all processes that are started from now on load at the same addresses.
///
/// # Errors
/// The system's.
pub(crate) fn fix_addresses() -> anyhow::Result<()> {
    let persona = personality::get().context("personality(2)")?;
    personality::set(persona | Persona::ADDR_NO_RANDOMIZE).context("personality(2)")?;
    Ok(())
}

impl Path {
    /// Follows a victim from its mark to the next, while `meanwhile` is done after each step.
    ///
    /// # Errors
    /// When it gets lost.
    pub(crate) fn follow(
        tracee: &mut Tracee,
        mut meanwhile: impl FnMut(u64) -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        let (mut path, mut visits) = (Self::default(), HashMap::new());
        loop {
            let place = tracee.place()?;
            let visit = visits.entry(place).or_insert(0);
            *visit += 1;
            path.steps.push(Step {
                place,
                visit: *visit,
            });
            if tracee.step()? != Stop::Stepped {
                return Ok(path);
            }
            meanwhile(path.len())?;
        }
    }

    /// Instructions in all.
    pub(crate) fn len(&self) -> u64 {
        self.steps.len() as u64
    }

    /// The points to try, by the number of instructions before them: behind every instruction, and
    /// where one is met again and again, as in a loop that clears a page, the first visits, ever
    /// fewer of the later ones, and the last.
    pub(crate) fn points(&self) -> impl Iterator<Item = u64> {
        let mut last = HashMap::new();
        for step in &self.steps {
            last.insert(step.place, step.visit);
        }
        let is_one =
            move |step: &Step| step.visit.is_power_of_two() || last[&step.place] == step.visit;
        let steps = self.steps.iter().zip(0..);
        steps.filter_map(move |(step, at)| is_one(step).then_some(at))
    }

    /// The cheapest way to the point behind `at` instructions, if there is a better one than to
    /// step there.
    pub(crate) fn shortcut(&self, at: u64) -> Option<Shortcut> {
        let before = self.steps.get(..=at as usize)?;
        let mut best: Option<(u64, Shortcut)> = None;
        for (behind, step) in before.iter().rev().enumerate() {
            let behind = behind as u64;
            let cost = behind + TRAP * step.visit;
            if best.is_none_or(|(least, _)| cost < least) && cost < at {
                let shortcut = Shortcut {
                    place: step.place,
                    visits: step.visit,
                    at: at - behind,
                };
                best = Some((cost, shortcut));
            }
            if best.is_some_and(|(least, _)| behind >= least) {
                break;
            }
        }
        best.map(|(_, shortcut)| shortcut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(places: &[u64]) -> Path {
        let mut visits = HashMap::new();
        let step = |&place| {
            let visit = visits.entry(place).or_insert(0);
            *visit += 1;
            Step {
                place,
                visit: *visit,
            }
        };
        Path {
            steps: places.iter().map(step).collect(),
        }
    }

    #[test]
    fn a_shortcut_leads_to_an_instruction_that_is_seldom_met() {
        // A loop of ten instructions, then two more.
        let mut places = vec![1];
        places.extend((10..20).collect::<Vec<_>>().repeat(20));
        places.extend([20, 21]);
        let path = path(&places);
        let there = path.shortcut(202).unwrap();
        assert_eq!((there.place, there.visits, there.at), (21, 1, 202));
        let inside = path.shortcut(150).unwrap();
        assert_eq!(path.steps[inside.at as usize].place, inside.place);
        assert!(inside.visits * TRAP + (150 - inside.at) < 150);
        assert_eq!(path.shortcut(1), None);
        assert_eq!(path.shortcut(1000), None);
    }

    #[test]
    fn every_instruction_is_a_point_and_a_loop_has_few() {
        let straight = path(&[1, 2, 3]);
        assert_eq!(straight.points().collect::<Vec<_>>(), [0, 1, 2]);
        let mut places = vec![1];
        places.extend([10, 11].repeat(100));
        places.push(2);
        let points: Vec<_> = path(&places).points().collect();
        let visits = [1, 2, 4, 8, 16, 32, 64, 100];
        let looped = visits.iter().flat_map(|visit| [2 * visit - 1, 2 * visit]);
        let expected: Vec<_> = [0].into_iter().chain(looped).chain([201]).collect();
        assert_eq!(points, expected);
    }

    #[test]
    fn a_tight_loop_is_stepped_through() {
        assert_eq!(path(&[10, 11].repeat(50)).shortcut(99), None);
    }
}
