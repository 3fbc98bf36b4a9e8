//! `pingpong`: two processes exchange messages through the fabric.

mod args;
mod terminals;

use super::baseline::SELVEDGE;
use super::interrupt::report_on_interrupt;
use super::print::{self, Format};
use crate::comparison::{Contestant, Draft, measure};
use crate::machine::Machine;
use crate::pair::Pair;

pub use args::Args;

/// Measures the plan and prints the report.
///
/// # Errors
/// When a process cannot be started or dies, an operation fails, or the deadline passes.
pub fn run(args: &Args) -> anyhow::Result<()> {
    if args.server {
        return terminals::serve(args);
    }
    let draft = Draft::default();
    let format = if args.json {
        Format::Json
    } else {
        Format::Tables
    };
    report_on_interrupt(&draft, format)?;
    let placement = args.placement.resolve()?;
    let deadline = args.placement.deadline();
    let machine = Machine::describe(placement);
    let plan = args.plan();
    let contestant = match &args.client {
        Some(address) => terminals::connect(args, &plan, address)?,
        None => {
            let pair = Pair::start(placement, deadline)?;
            Contestant::open(
                SELVEDGE.to_owned(),
                pair,
                &plan.open_order(args.provider.clone()),
            )?
        }
    };
    let probe_pair = Pair::start(placement, deadline)?;
    measure(&plan, probe_pair, &mut [contestant], machine, &draft)?;
    print::print_report(&draft.finish(), format)
}
