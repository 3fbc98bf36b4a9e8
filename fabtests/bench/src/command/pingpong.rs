//! `pingpong`: two processes exchange messages through the fabric.

use clap::ArgGroup;

use super::bench::{LIMIT_ROUNDS, SELVEDGE};
use super::interrupt::report_on_interrupt;
use super::print::{self, Format};
use super::{PlacementArgs, terminals};
use crate::comparison::{Contestant, Draft, Plan, measure};
use crate::fabric::Bench;
use crate::limits::{Depth, survey};
use crate::machine::Machine;
use crate::pair::Pair;
use crate::progress::Progress;
use crate::size::Sizes;

/// Arguments of `pingpong`.
#[derive(Clone, Debug, clap::Args)]
#[command(group = ArgGroup::new("end").args(["server", "client"]))]
pub struct Args {
    /// Run the passive side for a client in another terminal: print the address and wait
    #[arg(long)]
    pub server: bool,
    /// Run the active side, for the server at this address
    #[arg(long, value_name = "ADDRESS")]
    pub client: Option<String>,
    /// Untagged messages
    #[arg(long, conflicts_with = "tagged")]
    pub msg: bool,
    /// Tagged messages; the default
    #[arg(long)]
    pub tagged: bool,
    /// The provider to use [default: the best one that discovery finds]
    #[arg(short, long)]
    pub provider: Option<String>,
    /// Message sizes: 8, 4k, 1m, a list 8,4k or a range of powers of two 1..4m
    #[arg(
        short = 'S',
        long,
        default_value = "1,8,64,256,1k,4k,16k,64k,256k,1m,4m"
    )]
    pub sizes: Sizes,
    /// Round trips of a run [default: enough for a steady figure at each size]
    #[arg(short = 'I', long, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub iterations: Option<u32>,
    /// Round trips before the clock starts [default: an eighth of the iterations]
    #[arg(short = 'w', long, value_parser = clap::value_parser!(u32).range(..=10_000_000))]
    pub warmup: Option<u32>,
    /// Runs at each size; medians are printed
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub reps: u16,
    /// Fill every message with a pattern and check it on arrival; the figures contain the checking
    #[arg(short = 'c', long)]
    pub check: bool,
    /// Do not inject small messages
    #[arg(long)]
    pub no_inject: bool,
    /// Print one JSON object, described in docs/FABTESTS-REFERENCE.md
    #[arg(long)]
    pub json: bool,
    /// Where the processes run
    #[command(flatten)]
    pub placement: PlacementArgs,
}

/// Measures the plan and prints the report.
///
/// # Errors
/// When a process cannot be started or dies, an operation fails, or the deadline passes.
pub fn run(args: &Args) -> anyhow::Result<()> {
    if args.server {
        return terminals::serve(args);
    }
    let draft = Draft::default();
    let format = match args.json {
        true => Format::Json,
        false => Format::Tables,
    };
    report_on_interrupt(&draft, format)?;
    let placement = args.placement.resolve()?;
    let deadline = args.placement.deadline();
    let machine = Machine::describe(placement);
    let plan = args.plan();
    let progress = Progress::on_stderr();

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
    let mut probe_pair = Pair::start(placement, deadline)?;
    let limits = survey(
        &mut probe_pair,
        Depth::Report,
        &plan.sizes,
        LIMIT_ROUNDS,
        progress,
    )?;
    draft.begin(machine, limits.clone());
    let contestants = &mut [contestant];
    measure(
        &plan,
        &mut probe_pair,
        contestants,
        &limits,
        &draft,
        progress,
    )?;
    print::print_report(&draft.finish(), format)
}

impl Args {
    /// The plan that these arguments select.
    pub fn plan(&self) -> Plan {
        let bench = if self.msg {
            Bench::MsgPingpong
        } else {
            Bench::TaggedPingpong
        };
        Plan {
            benches: vec![bench],
            sizes: self.sizes.as_slice().to_vec(),
            window: 1,
            iterations: self.iterations.map(|count| count as usize),
            warmup: self.warmup.map(|count| count as usize),
            reps: self.reps.into(),
            inject: !self.no_inject,
            verify: self.check,
            special: false,
            is_long: false,
            datagrams: false,
        }
    }
}
