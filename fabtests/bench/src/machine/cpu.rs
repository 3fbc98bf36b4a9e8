//! The cores that the two processes of a measurement run on, and how they wait.

use anyhow::{Context as _, bail, ensure};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use selvedge_kit::wait::SpinHint;
use serde::{Deserialize, Serialize};

/// Cores of the active and the passive process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Each process on its core; both may be the same core.
    Pinned([usize; 2]),
    /// The system places the processes, on more than one core.
    Free,
}

/// The action of a process between two polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Idle {
    /// Spins: polls again at once or after a pause instruction.
    Spin,
    /// Yields to the other process, which shares the core.
    Yield,
}

impl Placement {
    /// Picks two of the cores that this process may use, which share as little as possible.
    ///
    /// # Errors
    /// When the system does not report these cores.
    pub fn choose() -> anyhow::Result<Self> {
        let cores = allowed()?;
        let first = *cores
            .first()
            .context("no core is allowed to this process")?;
        let siblings = siblings(first);
        let second = cores[1..].iter().find(|core| !siblings.contains(core));
        let second = second.or_else(|| cores.get(1)).copied().unwrap_or(first);
        Ok(Self::Pinned([first, second]))
    }

    /// Pins to the cores of `text`, as in `0,1`.
    ///
    /// # Errors
    /// When `text` does not name two cores that this process may use.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let Some((active, passive)) = text.split_once(',') else {
            bail!("--pin {text:?} does not name two cores: write --pin 0,1");
        };
        let allowed = allowed()?;
        let core = |part: &str| -> anyhow::Result<usize> {
            let core = part
                .trim()
                .parse()
                .with_context(|| format!("--pin {text:?}: {part:?} is not a core number"))?;
            ensure!(
                allowed.contains(&core),
                "--pin {text:?}: this process may not use core {core}, only {allowed:?}"
            );
            Ok(core)
        };
        Ok(Self::Pinned([core(active)?, core(passive)?]))
    }

    /// Leaves the placement to the system. If this process may use only one core, pins both
    /// processes to that core.
    ///
    /// # Errors
    /// As [`Self::choose`].
    pub fn free() -> anyhow::Result<Self> {
        match allowed()?.as_slice() {
            [core] => Ok(Self::Pinned([*core; 2])),
            _ => Ok(Self::Free),
        }
    }

    /// Whether both processes share a core.
    pub fn is_one_core(self) -> bool {
        matches!(self, Self::Pinned([active, passive]) if active == passive)
    }

    /// The action of the processes between two polls.
    pub fn idle(self) -> Idle {
        if self.is_one_core() {
            Idle::Yield
        } else {
            Idle::Spin
        }
    }

    /// The two cores, if the processes are pinned.
    pub fn cores(self) -> Option<[usize; 2]> {
        match self {
            Self::Pinned(cores) => Some(cores),
            Self::Free => None,
        }
    }
}

impl Idle {
    /// Waits between two calls of a library that pauses by itself.
    #[inline]
    pub fn wait_between_calls(self) {
        match self {
            Self::Spin => {}
            Self::Yield => std::thread::yield_now(),
        }
    }

    /// Waits between two polls of a line of memory.
    #[inline]
    pub fn wait_between_polls(self) {
        match self {
            Self::Spin => SpinHint::measured().pause(),
            Self::Yield => std::thread::yield_now(),
        }
    }
}

/// Binds the calling thread to a core.
///
/// # Errors
/// The system's error, with the core's number.
pub fn pin(core: usize) -> anyhow::Result<()> {
    let mut set = CpuSet::new();
    set.set(core)
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &set))
        .with_context(|| format!("cannot pin to core {core}"))
}

/// The cores that this process may use.
///
/// # Errors
/// When the system does not report the cores.
pub fn allowed() -> anyhow::Result<Vec<usize>> {
    let set = sched_getaffinity(Pid::from_raw(0)).context("cannot read the allowed cores")?;
    Ok((0..CpuSet::count())
        .filter(|&core| set.is_set(core).unwrap_or(false))
        .collect())
}

/// The hardware threads that share a physical core with `core`, including `core`; empty if the
/// system does not report them.
fn siblings(core: usize) -> Vec<usize> {
    let path = format!("/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list");
    let list = std::fs::read_to_string(path).unwrap_or_default();
    list.trim().split(',').flat_map(parse_core_range).collect()
}

/// Parses `3` or `0-3`, an element of the kernel's lists of cores. Returns an empty range for any
/// other text.
fn parse_core_range(part: &str) -> std::ops::RangeInclusive<usize> {
    let (first, last) = part.split_once('-').unwrap_or((part, part));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) => first..=last,
        _ => std::ops::RangeInclusive::new(1, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_equal_cores_are_one_core() {
        assert!(Placement::Pinned([3, 3]).is_one_core());
        assert_eq!(Placement::Pinned([3, 3]).idle(), Idle::Yield);
        assert_eq!(Placement::Pinned([3, 4]).idle(), Idle::Spin);
    }

    #[test]
    fn a_pinning_error_names_its_option() {
        for bad in ["", "0", "a,b", "0,99999"] {
            let error = Placement::parse(bad).unwrap_err().to_string();
            assert!(error.contains("--pin"), "{bad}: {error}");
        }
    }

    #[test]
    fn core_lists_are_read_as_the_kernel_writes_them() {
        assert_eq!(parse_core_range("0-3").collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert_eq!(parse_core_range("7").collect::<Vec<_>>(), [7]);
        assert_eq!(parse_core_range("").count(), 0);
    }
}
