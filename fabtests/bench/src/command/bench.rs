//! `bench`: every benchmark at every size, beside the limits and a baseline.

use anyhow::ensure;

use super::PlacementArgs;
use super::baseline::{self, Baseline, SELVEDGE};
use super::contestants::ContestantArgs;
use super::interrupt::report_on_interrupt;
use super::placement::PairLauncher;
use super::print::{self, Format};
use crate::comparison::{Draft, MemoryUse, Opening, Plan, Report, measure};
use crate::fabric::{Bench, longest_datagram};
use crate::machine::Machine;
use crate::measure::size::Sizes;

/// Arguments of `bench`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Benchmarks, separated by commas: msg_pingpong, tagged_pingpong, msg_bw, tagged_bw
    /// [default: these], msg_bibw, tagged_bibw, tagged_mixed, rma_put, rma_get,
    /// rma_write_pingpong, rma_bw, rma_read_bw, atomic_add, atomic_fetch_add
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    bench: Vec<Bench>,
    /// The provider to measure [default: the best one that discovery finds]
    #[arg(short, long)]
    provider: Option<String>,
    /// The type of the endpoints; dgram: untagged messages of sizes that fit a datagram
    #[arg(short = 'e', long, value_enum, default_value_t = EndpointType::Rdm)]
    ep_type: EndpointType,
    /// Message sizes: 8, 4k, 1m, a list 8,4k or a range of powers of two 1..4m
    #[arg(short = 'S', long, default_value = "1..4m")]
    sizes: Sizes,
    /// Outstanding messages in msg_bw and tagged_bw; fewer for sizes whose buffers would take more
    /// than 64 MiB
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=4096))]
    window: u16,
    /// Round trips or windows of a run [default: enough for a steady figure at each size]
    #[arg(short = 'I', long, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    iterations: Option<u32>,
    /// Round trips or windows before the clock starts [default: an eighth of the iterations]
    #[arg(short = 'w', long, value_parser = clap::value_parser!(u32).range(..=10_000_000))]
    warmup: Option<u32>,
    /// Runs of each benchmark at each size; medians are printed
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u16).range(1..))]
    reps: u16,
    /// Fill every message with a pattern and check it on arrival; the figures contain the checking
    #[arg(short = 'c', long, conflicts_with = "against")]
    check: bool,
    /// Do not inject small messages
    #[arg(long)]
    no_inject: bool,
    /// Allocate our buffers from the domain, so that the peer copies large messages by itself
    #[arg(long)]
    special: bool,
    /// Measure baselines in turns, separated by commas: libfabric, ucx and mpi (by C programs that
    /// are compiled now), iceoryx2 (by a Rust program that is built now), bmi (over the same
    /// provider), or another provider. With --service: iceoryx2, tarpc or tonic
    #[arg(
        long,
        value_name = "libfabric|ucx|iceoryx2|mpi|bmi|tarpc|tonic|PROVIDER",
        value_delimiter = ','
    )]
    against: Vec<String>,
    /// libfabric's provider [default: the one of the same name], as net for libfabric 1.17's
    /// endpoints over TCP that have our protocol; UCX's transports [default: sm,self for shm,
    /// tcp,self for others]; or MPI's routes [default: selvedge,heap,own]
    #[arg(long, alias = "rival", value_name = "NAME", requires = "against")]
    baseline: Option<String>,
    #[command(flatten)]
    contestants: ContestantArgs,
    /// Print one JSON object, described in docs/FABTESTS-REFERENCE.md
    #[arg(long)]
    json: bool,
    /// Print the rows as lines of values separated by commas, below a heading
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    #[command(flatten)]
    placement: PlacementArgs,
}

/// The type of the endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum EndpointType {
    Rdm,
    Dgram,
}

/// Measures the plan and prints the report.
///
/// # Errors
/// When a process cannot be started or dies, an operation fails, or the deadline passes.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let draft = Draft::default();
    let format = match (args.json, args.csv) {
        (true, _) => Format::Json,
        (_, true) => Format::Csv,
        _ => Format::Tables,
    };
    report_on_interrupt(&draft, format)?;
    let mut plan = args.plan();
    if plan.datagrams {
        fit_datagrams(&mut plan, args)?;
    }
    for bench in &plan.benches {
        ensure!(
            plan.points().iter().any(|point| point.bench == *bench),
            "{bench} has only the sizes 4 and 8: choose one of them with -S"
        );
    }
    print::print_report(&measure_plan(args, &plan, &draft)?, format)
}

/// Opens the contestants and measures the plan.
fn measure_plan(args: &Args, plan: &Plan, draft: &Draft) -> anyhow::Result<Report> {
    let launcher = PairLauncher {
        placement: args.placement.resolve()?,
        deadline: args.placement.deadline(),
    };
    let machine = Machine::describe(launcher.placement);
    args.contestants.check(plan, !args.against.is_empty())?;
    let baselines = args.find_baselines(plan)?;
    let order = plan.open_order(args.provider.clone());
    let mut contestants = args.contestants.open(&order, &baselines, launcher)?;
    let provider = contestants[0].opened.provider.clone();
    let probe_pair = launcher.start_pair()?;
    measure(plan, probe_pair, &mut contestants, machine, draft)?;
    drop(contestants);
    let memory = measure_memory(&provider, &baselines, launcher, plan.datagrams)?;
    let opening = measure_opening(&provider, &baselines, launcher, plan.datagrams)?;
    Ok(Report {
        memory,
        opening,
        ..draft.finish()
    })
}

impl Args {
    /// Finds the baselines, and builds their programs.
    fn find_baselines(&self, plan: &Plan) -> anyhow::Result<Vec<Baseline>> {
        ensure!(
            self.baseline.is_none() || self.against.len() == 1,
            "--baseline goes with one implementation: name only one with --against"
        );
        for name in &self.against {
            baseline::check_service(name, self.contestants.is_service())?;
            plan.benches
                .iter()
                .try_for_each(|&bench| baseline::check_bench(name, bench))?;
        }
        let mut baselines = Vec::new();
        for name in &self.against {
            baselines.extend(Baseline::find(name, self.baseline.clone())?);
        }
        Ok(baselines)
    }

    fn plan(&self) -> Plan {
        let mut benches = self.bench.clone();
        if benches.is_empty() {
            let mut names = self.against.iter();
            let of_baselines = names.find_map(|name| baseline::default_benches(name));
            benches = match of_baselines {
                Some(benches) if !self.contestants.is_service() => benches,
                _ if self.ep_type == EndpointType::Dgram => vec![Bench::MsgPingpong, Bench::MsgBw],
                _ => self.contestants.benches(),
            };
        }
        benches.dedup();
        Plan {
            benches,
            sizes: self.sizes.as_slice().to_vec(),
            window: self.window.into(),
            iterations: self.iterations.map(|count| count as usize),
            warmup: self.warmup.map(|count| count as usize),
            reps: self.reps.into(),
            inject: !self.no_inject,
            verify: self.check,
            special: self.special,
            is_long: self.contestants.is_concurrent(),
            datagrams: self.ep_type == EndpointType::Dgram,
        }
    }
}

/// Removes the sizes above the longest datagram from the plan.
///
/// # Errors
/// When a benchmark needs more than datagrams, or no size is left.
fn fit_datagrams(plan: &mut Plan, args: &Args) -> anyhow::Result<()> {
    for bench in &plan.benches {
        ensure!(
            bench.is_untagged(),
            "datagrams do not carry {bench}: choose msg_pingpong, msg_bw or msg_bibw"
        );
    }
    ensure!(
        !plan.special
            && !plan.is_long
            && !args.against.iter().any(|name| !baseline::is_provider(name)),
        "-e dgram allows no baseline but another provider: leave out --special, --pairs, \
         --senders, --wait and other baselines"
    );
    let longest = longest_datagram(args.provider.clone())?;
    plan.sizes.retain(|&size| size <= longest);
    ensure!(
        !plan.sizes.is_empty(),
        "a datagram carries {longest} bytes: choose smaller sizes with -S"
    );
    Ok(())
}

/// Measures the memory of an idle endpoint of each contestant, in new processes.
fn measure_memory(
    provider: &str,
    baselines: &[Baseline],
    launcher: PairLauncher,
    datagrams: bool,
) -> anyhow::Result<Vec<MemoryUse>> {
    let measure_one = |name: &str, provider: &str| {
        let provider = Some(provider.to_owned());
        MemoryUse::measure(name.to_owned(), launcher.start_pair()?, provider, datagrams)
    };
    let mut memory = vec![measure_one(SELVEDGE, provider)?];
    for baseline in baselines {
        match baseline {
            Baseline::Bmi | Baseline::Built(_) | Baseline::Mpi(_) => {}
            Baseline::Compiled(program) => {
                let (name, pair) = (program.version(), baseline.start(provider, launcher)?);
                memory.push(MemoryUse::measure(name.to_owned(), pair, None, false)?);
            }
            Baseline::Provider(other) => {
                memory.push(measure_one(&format!("{SELVEDGE}, {other}"), other)?);
            }
        }
    }
    Ok(memory)
}

/// Measures the time to open an endpoint of each provider of Selvedge, in new processes.
fn measure_opening(
    provider: &str,
    baselines: &[Baseline],
    launcher: PairLauncher,
    datagrams: bool,
) -> anyhow::Result<Vec<Opening>> {
    let measure_one = |name: String, provider: &str| {
        Opening::measure(name, launcher.start_pair()?, provider, datagrams)
    };
    let mut openings = vec![measure_one(SELVEDGE.to_owned(), provider)?];
    for baseline in baselines {
        if let Baseline::Provider(other) = baseline {
            openings.push(measure_one(format!("{SELVEDGE}, {other}"), other)?);
        }
    }
    Ok(openings)
}
