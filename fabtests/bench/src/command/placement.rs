//! Arguments of all commands that run two processes.

use std::time::{Duration, Instant};

use crate::machine::cpu::Placement;
use crate::pair::Pair;

/// The cores of the two processes, and the time limit.
#[derive(Clone, Debug, clap::Args)]
pub struct PlacementArgs {
    /// Pin the two processes to these cores, as in 0,1; the same core twice works too
    /// [default: two cores that share as little as possible]
    #[arg(long, value_name = "A,B", conflicts_with = "no_pin")]
    pub pin: Option<String>,
    /// Let the system place the processes
    #[arg(long)]
    pub no_pin: bool,
    /// Give up after this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub timeout: u64,
}

impl PlacementArgs {
    /// The placement that the arguments select.
    ///
    /// # Errors
    /// As [`Placement::parse`] and [`Placement::choose`].
    pub fn resolve(&self) -> anyhow::Result<Placement> {
        match &self.pin {
            Some(cores) => Placement::parse(cores),
            None if self.no_pin => Placement::free(),
            None => Placement::choose(),
        }
    }

    /// The deadline, counted from now.
    pub fn deadline(&self) -> Instant {
        Instant::now() + Duration::from_secs(self.timeout.min(MAX_TIMEOUT))
    }
}

/// Longest time limit, in seconds: a week. Some systems cannot represent an arbitrarily late
/// instant.
const MAX_TIMEOUT: u64 = 7 * 24 * 3600;

/// Starts pairs of processes with one placement and deadline.
#[derive(Clone, Copy, Debug)]
pub(super) struct PairLauncher {
    pub(super) placement: Placement,
    pub(super) deadline: Instant,
}

impl PairLauncher {
    pub(super) fn start_pair(self) -> anyhow::Result<Pair> {
        Pair::start(self.placement, self.deadline)
    }

    pub(super) fn start_pairs(self, count: u16) -> anyhow::Result<Vec<Pair>> {
        (0..count).map(|_| self.start_pair()).collect()
    }
}
