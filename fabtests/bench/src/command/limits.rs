//! `limits`: the limits of this machine.

use serde::Serialize;

use super::PlacementArgs;
use crate::limits::{Depth, Limits, survey};
use crate::machine::Machine;
use crate::measure::size::Sizes;
use crate::output::progress::Progress;
use crate::pair::Pair;

/// Arguments of `limits`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Sizes to measure copies at: 8, 4k, 1m, a list 8,4k or a range of powers of two 8..4m
    #[arg(short = 'S', long, default_value = "8..4m")]
    sizes: Sizes,
    /// Measurements of each limit; medians are printed
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    reps: u16,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    placement: PlacementArgs,
}

#[derive(Debug, Serialize)]
struct Report {
    machine: Machine,
    limits: Limits,
}

/// Measures the limits and prints them.
///
/// # Errors
/// When a process cannot be started or dies, or the deadline passes.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let placement = args.placement.resolve()?;
    let mut pair = Pair::start(placement, args.placement.deadline())?;
    let sizes = args.sizes.as_slice();
    let progress = Progress::on_stderr();
    let limits = survey(&mut pair, Depth::Full, sizes, args.reps.into(), progress)?;
    let report = Report {
        machine: Machine::describe(placement),
        limits,
    };
    if args.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        report.print();
    }
    Ok(())
}

impl Report {
    fn print(&self) {
        println!("{}", self.machine.headline());
        println!("{}", self.limits.fixed_table());
        println!("{}", self.limits.size_table());
        if let Some(reason) = &self.limits.cma_refused {
            println!("CMA was refused: {reason}");
        }
    }
}
