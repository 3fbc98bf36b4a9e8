//! `bench`: every benchmark at every size, against the limits and against others.

use anyhow::{bail, ensure};

use super::PlaceArgs;
use super::interrupt::report_on_interrupt;
use super::lineup::{LineupArgs, Stage};
use super::print::{self, Format};
use crate::comparison::{Draft, Libfabric, MemoryUse, Opening, Plan, Report, measure};
use crate::fabric::{Bench, longest_datagram};
use crate::limits::{Depth, survey};
use crate::machine::Machine;
use crate::progress::Progress;
use crate::size::Sizes;

/// Arguments of `bench`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Benchmarks, separated by commas: msg_pingpong, tagged_pingpong, msg_bw, tagged_bw
    /// [default: these], msg_bibw, tagged_bibw, rma_put, rma_get, rma_write_pingpong, rma_bw, rma_read_bw, atomic_add,
    /// atomic_fetch_add
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    bench: Vec<Bench>,
    /// The provider to measure [default: the best one that discovery finds]
    #[arg(short, long)]
    provider: Option<String>,
    /// The type of the endpoints; over datagrams untagged messages alone, of sizes that one carries
    #[arg(short = 'e', long, value_enum, default_value_t = Kind::Rdm)]
    ep_type: Kind,
    /// Message sizes: 8, 4k, 1m, a list 8,4k or a range of powers of two 1..4m
    #[arg(short = 'S', long, default_value = "1..4m")]
    sizes: Sizes,
    /// Messages on the way at once in msg_bw and tagged_bw; fewer for sizes whose buffers would
    /// take more than 64 MiB
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=4096))]
    window: u16,
    /// Round trips or windows of a run [default: what makes a steady figure at each size]
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
    /// Never send by inject, also where a message is small enough
    #[arg(long)]
    no_inject: bool,
    /// Have our buffers in special memory, which the peer copies large messages from by itself
    #[arg(long)]
    special: bool,
    /// Measure somebody else in the same minutes, in turns: libfabric (by a C program that is
    /// compiled on the spot), bmi (over the same provider), or another provider of ours
    #[arg(long, value_name = "libfabric|bmi|PROVIDER")]
    against: Option<String>,
    /// libfabric's provider [default: the one of the same name], as net for libfabric 1.17's
    /// endpoints over TCP that speak our protocol
    #[arg(long, value_name = "NAME", requires = "against")]
    rival: Option<String>,
    #[command(flatten)]
    lineup: LineupArgs,
    /// Print one JSON object, described in docs/FABTESTS-REFERENCE.md
    #[arg(long)]
    json: bool,
    /// Print the rows as lines of values separated by commas, below a heading
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    #[command(flatten)]
    place: PlaceArgs,
}

/// The type of the endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    Rdm,
    Dgram,
}

/// Whom to measure against.
#[derive(Debug)]
pub(super) enum Rival {
    /// libfabric's provider of the same name.
    Libfabric(Libfabric),
    /// Another provider of ours.
    Provider(String),
    /// BMI over the same one.
    Bmi,
}

impl Rival {
    fn find(name: &str, provider: Option<String>) -> anyhow::Result<Self> {
        match name {
            "libfabric" => return Libfabric::compile(provider).map(Self::Libfabric),
            "bmi" => return Ok(Self::Bmi),
            _ => {}
        }
        let registry = selvedge_providers::builtin();
        let names: Vec<_> = registry.providers().iter().map(|it| it.name()).collect();
        match names.contains(&name) {
            true => Ok(Self::Provider(name.to_owned())),
            false => bail!(
                "--against {name}: there are libfabric, bmi, {}",
                names.join(", ")
            ),
        }
    }
}

/// Measures and prints.
///
/// # Errors
/// When a process cannot be started or dies, an operation fails, or the time is over.
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
            "{bench} is of 4 and of 8 bytes: ask for one of them with -S"
        );
    }
    print::report(&measured(args, &plan, &draft)?, format)
}

/// Carries the plan out.
fn measured(args: &Args, plan: &Plan, draft: &Draft) -> anyhow::Result<Report> {
    let stage = Stage {
        placement: args.place.placement()?,
        deadline: args.place.deadline(),
    };
    let machine = Machine::describe(stage.placement);
    let progress = Progress::on_stderr();
    args.lineup.check(plan, args.against.is_some())?;
    let rival = args.against.as_deref();
    let rival = rival.map(|name| Rival::find(name, args.rival.clone()));
    let rival = rival.transpose()?;
    let order = plan.open_order(args.provider.clone());
    let mut contestants = args.lineup.open(&order, rival.as_ref(), stage)?;
    let provider = contestants[0].opened.provider.clone();
    let mut gauge = stage.pair()?;
    let limits = survey(
        &mut gauge,
        Depth::Beside,
        &plan.sizes,
        LIMIT_ROUNDS,
        progress,
    )?;
    draft.begin(machine, limits.clone());
    measure(plan, &mut gauge, &mut contestants, &limits, draft, progress)?;
    drop((gauge, contestants));
    let memory = memory(&provider, rival.as_ref(), stage, plan.datagrams)?;
    let opening = opening(&provider, rival.as_ref(), stage, plan.datagrams)?;
    Ok(Report {
        memory,
        opening,
        ..draft.finish()
    })
}

impl Args {
    fn plan(&self) -> Plan {
        let mut benches = self.bench.clone();
        if benches.is_empty() {
            benches = match self.against.as_deref() {
                Some("bmi") => vec![Bench::TaggedPingpong, Bench::TaggedBw],
                _ if self.ep_type == Kind::Dgram => vec![Bench::MsgPingpong, Bench::MsgBw],
                _ => self.lineup.benches(),
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
            is_long: self.lineup.is_throng(),
            datagrams: self.ep_type == Kind::Dgram,
        }
    }
}

/// Leaves out what datagrams do not carry.
///
/// # Errors
/// When a benchmark needs more than datagrams, or nothing is left.
fn fit_datagrams(plan: &mut Plan, args: &Args) -> anyhow::Result<()> {
    for bench in &plan.benches {
        ensure!(
            bench.is_untagged(),
            "{bench} is nothing for datagrams: there are msg_pingpong, msg_bw and msg_bibw"
        );
    }
    ensure!(
        !plan.special
            && !plan.is_long
            && !matches!(args.against.as_deref(), Some("libfabric" | "bmi")),
        "-e dgram goes with another provider at most: leave out --special, --pairs, --senders, \
         --wait and other contestants"
    );
    let most = longest_datagram(args.provider.clone())?;
    plan.sizes.retain(|&size| size <= most);
    ensure!(
        !plan.sizes.is_empty(),
        "a datagram carries {most} bytes: ask for smaller ones with -S"
    );
    Ok(())
}

/// What an idle endpoint costs, in fresh processes.
fn memory(
    provider: &str,
    rival: Option<&Rival>,
    stage: Stage,
    datagrams: bool,
) -> anyhow::Result<Vec<MemoryUse>> {
    let Stage {
        placement,
        deadline,
    } = stage;
    let own = |name: &str, provider: &str| {
        let provider = Some(provider.to_owned());
        MemoryUse::of(name.to_owned(), stage.pair()?, provider, datagrams)
    };
    let mut memory = vec![own(OWN, provider)?];
    match rival {
        None | Some(Rival::Bmi) => {}
        Some(Rival::Libfabric(rival)) => {
            let pair = rival.start(provider, placement, deadline)?;
            memory.push(MemoryUse::of(
                rival.version().to_owned(),
                pair,
                None,
                false,
            )?);
        }
        Some(Rival::Provider(other)) => memory.push(own(&format!("{OWN}, {other}"), other)?),
    }
    Ok(memory)
}

/// What opening endpoints of ours costs, in fresh processes.
fn opening(
    provider: &str,
    rival: Option<&Rival>,
    stage: Stage,
    datagrams: bool,
) -> anyhow::Result<Vec<Opening>> {
    let of = |name: String, provider: &str| Opening::of(name, stage.pair()?, provider, datagrams);
    let mut all = vec![of(OWN.to_owned(), provider)?];
    if let Some(Rival::Provider(other)) = rival {
        all.push(of(format!("{OWN}, {other}"), other)?);
    }
    Ok(all)
}

/// This project, as a contestant.
pub(super) const OWN: &str = concat!("selvedge ", env!("CARGO_PKG_VERSION"));
/// BMI over it.
pub(super) const BMI: &str = concat!("selvedge-bmi ", env!("CARGO_PKG_VERSION"));
pub(super) const LIMIT_ROUNDS: usize = 3;
