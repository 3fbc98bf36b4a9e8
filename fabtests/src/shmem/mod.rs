//! Processes that use the fabric as a SHMEM library does: they put, get and update each other's
//! memory, and wait for counters.
//!
//! Each process has one domain, one endpoint for incoming operations, and one endpoint for each of
//! its threads. Operations are counted, not reported, and delivery completion is the endpoints'
//! default. A thread parks until its operations are complete or its memory was changed, and
//! computes in between without a call of the library. With automatic progress, this is how the
//! OpenSHMEM libraries over OFI use libfabric.

mod heap;
mod pe;
mod thread;
mod work;

use std::time::Duration;

use anyhow::Context as _;
use selvedge_testkit::process::{Deadline, Process, receive_lines};
use serde::Serialize;

pub use work::run_process;

/// The options of a run.
#[derive(Clone, Debug, clap::Args)]
pub struct Config {
    /// Provider
    #[arg(short, long, default_value = "shm")]
    pub provider: String,
    /// Processes
    #[arg(short = 'n', long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub processes: u16,
    /// Threads of each process that post, each with an endpoint of its own
    #[arg(short, long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub threads: u16,
    /// Duration in seconds; every process ends after the epoch in which the time is over
    #[arg(short, long, default_value_t = 10)]
    pub seconds: u64,
    /// Operations of each thread between two barriers
    #[arg(long, default_value_t = 200)]
    pub operations: u32,
    /// Use the domain's own memory (special memory over shm)
    #[arg(long)]
    pub special: bool,
    /// Seconds after which a wait fails
    #[arg(long, default_value_t = 30)]
    pub timeout: u64,
    /// Seed of the order of operations
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// The totals of a run.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Totals {
    /// Barriers passed by every process.
    pub epochs: u64,
    /// Operations of all processes.
    pub operations: u64,
}

impl Config {
    /// Returns the arguments that start another process with this configuration.
    fn to_args(&self) -> Vec<String> {
        let mut args: Vec<String> = [
            ("--provider", self.provider.clone()),
            ("--processes", self.processes.to_string()),
            ("--threads", self.threads.to_string()),
            ("--seconds", self.seconds.to_string()),
            ("--operations", self.operations.to_string()),
            ("--timeout", self.timeout.to_string()),
            ("--seed", self.seed.to_string()),
        ]
        .into_iter()
        .flat_map(|(name, value)| [name.to_owned(), value])
        .collect();
        args.extend(self.special.then(|| "--special".to_owned()));
        args
    }
}

/// Runs all processes to their end.
///
/// # Errors
/// The error of the first process that failed.
pub fn run(config: &Config) -> anyhow::Result<Totals> {
    let mut processes = (0..config.processes)
        .map(|number| {
            let mut args = vec!["shmem-process".to_owned(), number.to_string()];
            args.extend(config.to_args());
            Ok(Process::start(args)?.numbered(number.into()))
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    let limit = Duration::from_secs(config.seconds) + 4 * Duration::from_secs(config.timeout);
    let _deadline = Deadline::set(&processes, limit);
    let names = receive_lines(&mut processes)?.join(" ");
    for process in &mut processes {
        process.send_line(&names)?;
    }
    receive_lines(&mut processes)?;
    for process in &mut processes {
        process.send_line("run")?;
    }
    let mut totals = Totals::default();
    for line in receive_lines(&mut processes)? {
        let (epochs, operations) = line.split_once(' ').with_context(|| line.clone())?;
        totals.epochs = epochs.parse().with_context(|| line.clone())?;
        totals.operations += operations.parse::<u64>()?;
    }
    Ok(totals)
}
