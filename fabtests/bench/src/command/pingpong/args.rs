//! The arguments of `pingpong`.

use clap::ArgGroup;

use crate::command::PlacementArgs;
use crate::comparison::Plan;
use crate::fabric::Bench;
use crate::measure::size::Sizes;

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
