//! Arguments that all commands with two processes have.

use std::time::{Duration, Instant};

use crate::cpu::Placement;

/// Where the two processes run, and for how long at most.
#[derive(Clone, Debug, clap::Args)]
pub struct PlaceArgs {
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

impl PlaceArgs {
    /// Where the processes run.
    ///
    /// # Errors
    /// As [`Placement::parse`] and [`Placement::choose`].
    pub fn placement(&self) -> anyhow::Result<Placement> {
        match &self.pin {
            Some(cores) => Placement::parse(cores),
            None if self.no_pin => Placement::free(),
            None => Placement::choose(),
        }
    }

    /// When to give up, counted from now.
    pub fn deadline(&self) -> Instant {
        Instant::now() + Duration::from_secs(self.timeout.min(MAX_TIMEOUT))
    }
}

/// A week: instants far beyond it cannot be represented everywhere.
const MAX_TIMEOUT: u64 = 7 * 24 * 3600;
