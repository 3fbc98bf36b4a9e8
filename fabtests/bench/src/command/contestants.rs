//! The contestants of `bench`: the measured configuration, and the plain pair or a baseline beside
//! it.

use std::time::Instant;

use anyhow::ensure;

use super::baseline::{Baseline, SELVEDGE, SELVEDGE_BMI};
use crate::comparison::{Contestant, Pairs, Plan, Senders};
use crate::fabric::{Bench, BenchConfig, OpenOrder, ThreadingLevel, WaitStrategy};
use crate::machine::cpu::Placement;
use crate::pair::Pair;

/// Arguments that select a configuration, which is measured in turns with the plain pair.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ContestantArgs {
    /// Threading level of the endpoints; safe is measured in turns with domain
    #[arg(long, value_enum, default_value_t = ThreadingLevel::Domain)]
    threading: ThreadingLevel,
    /// How a process waits for a completion; fd and sleep block in the kernel
    #[arg(long, value_enum, default_value_t = WaitStrategy::Spin)]
    wait: WaitStrategy,
    /// Run N pairs at the same time, in turns with one pair that spins; figures are totals
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pairs: Option<u16>,
    /// Run N senders to one receiver, in turns with one sender: tagged_bw
    #[arg(long, value_name = "N", conflicts_with = "pairs",
          value_parser = clap::value_parser!(u16).range(1..=16))]
    senders: Option<u16>,
    /// Keep N receives posted that match none of the messages, in turns with none
    #[arg(long, value_name = "N", default_value_t = 0)]
    posted: u32,
    /// Keep N unexpected messages that no receive matches, in turns with none
    #[arg(long, value_name = "N", default_value_t = 0)]
    unexpected: u32,
    /// Keep N more peers connected that send nothing, in turns with none
    #[arg(long, alias = "quiet", value_name = "N", default_value_t = 0)]
    idle_peers: u32,
    /// Use the safe layer, in turns with the raw endpoint: msg_pingpong, tagged_pingpong
    #[arg(long, conflicts_with_all = ["pairs", "senders", "posted", "unexpected", "idle_peers", "wait"])]
    owned: bool,
    /// Lend the messages (safe layer), in turns with sending them: msg_pingpong, tagged_pingpong
    #[arg(long, conflicts_with_all = ["owned", "heap", "pairs", "senders", "posted", "unexpected", "idle_peers", "wait"])]
    lent: bool,
    /// Allocate the buffers from the shared heap, in turns with ordinary memory
    #[arg(long, conflicts_with_all = ["owned", "pairs", "senders", "wait"])]
    heap: bool,
}

/// Starts pairs of processes with one placement and deadline.
#[derive(Clone, Copy, Debug)]
pub(super) struct PairLauncher {
    pub(super) placement: Placement,
    pub(super) deadline: Instant,
}

impl ContestantArgs {
    /// The benchmarks of a command line that names none: all message benchmarks that these
    /// arguments allow.
    pub(super) fn benches(&self) -> Vec<Bench> {
        let benches = Bench::MESSAGES.into_iter();
        benches
            .filter(|&bench| self.check_bench(bench).is_ok())
            .collect()
    }

    /// Refuses combinations that cannot be measured.
    ///
    /// # Errors
    /// An error that names the benchmark or option that does not fit these arguments.
    pub(super) fn check(&self, plan: &Plan, has_baseline: bool) -> anyhow::Result<()> {
        ensure!(
            !has_baseline || self.is_plain(),
            "--against is measured in turns with the plain pair: leave out --threading, --wait, \
             --pairs, --senders, --posted, --unexpected, --idle-peers, --owned, --lent and \
             --heap"
        );
        ensure!(
            self.senders.is_none() || !plan.verify,
            "with --senders messages are not checked: leave out -c"
        );
        plan.benches
            .iter()
            .try_for_each(|&bench| self.check_bench(bench))
    }

    fn check_bench(&self, bench: Bench) -> anyhow::Result<()> {
        ensure!(
            self.senders.is_none() || bench == Bench::TaggedBw,
            "--senders goes with tagged_bw, not with {bench}"
        );
        ensure!(
            !(self.owned || self.lent)
                || matches!(bench, Bench::MsgPingpong | Bench::TaggedPingpong),
            "--owned and --lent go with msg_pingpong and tagged_pingpong, not with {bench}"
        );
        let tagged = matches!(bench, Bench::TaggedBw | Bench::TaggedPingpong);
        ensure!(
            self.posted + self.unexpected == 0 || tagged,
            "--posted and --unexpected go with tagged_bw and tagged_pingpong, not with {bench}: \
             untagged messages would match them"
        );
        Ok(())
    }

    fn is_plain(&self) -> bool {
        !self.is_concurrent() && self.config() == BenchConfig::default()
    }

    /// Whether the runs have to be long because their processes take turns on the cores.
    pub(super) fn is_concurrent(&self) -> bool {
        self.pairs.is_some() || self.senders.is_some() || self.wait != WaitStrategy::Spin
    }

    fn config(&self) -> BenchConfig {
        BenchConfig {
            threading: self.threading,
            wait: self.wait,
            posted: self.posted as usize,
            unexpected: self.unexpected as usize,
            idle_peers: self.idle_peers as usize,
            owned: self.owned || self.lent,
            lent: self.lent,
            heap: self.heap,
        }
    }

    /// Opens the endpoints of all contestants; the measured configuration comes first.
    ///
    /// # Errors
    /// When a process cannot be started or an endpoint cannot be opened.
    pub(super) fn open(
        &self,
        order: &OpenOrder,
        baseline: Option<&Baseline>,
        launcher: PairLauncher,
    ) -> anyhow::Result<Vec<Contestant>> {
        let measured_order = OpenOrder {
            config: self.config(),
            ..order.clone()
        };
        let name = || SELVEDGE.to_owned();
        if let Some(senders) = self.senders {
            return Ok(vec![
                Senders::open(
                    name(),
                    config_name(senders, "senders", &measured_order),
                    launcher.start_pairs(senders)?,
                    &measured_order,
                )?,
                Senders::open(
                    name(),
                    "one sender".to_owned(),
                    launcher.start_pairs(1)?,
                    order,
                )?,
            ]);
        }
        if self.is_concurrent() {
            let pairs = self.pairs.unwrap_or(1);
            return Ok(vec![
                Pairs::open(
                    name(),
                    config_name(pairs, "pairs", &measured_order),
                    launcher.start_pairs(pairs)?,
                    &measured_order,
                )?,
                Pairs::open(
                    name(),
                    "one pair".to_owned(),
                    launcher.start_pairs(1)?,
                    order,
                )?,
            ]);
        }
        let mut contestants = vec![Contestant::open(
            name(),
            launcher.start_pair()?,
            &measured_order,
        )?];
        let provider = contestants[0].opened.provider.clone();
        contestants.extend(match baseline {
            Some(Baseline::Libfabric(baseline)) => {
                let pair = baseline.start(&provider, launcher.placement, launcher.deadline)?;
                let order = OpenOrder {
                    special: false,
                    ..order.clone()
                };
                Some(Contestant::open(
                    baseline.version().to_owned(),
                    pair,
                    &order,
                )?)
            }
            Some(Baseline::Provider(other)) => {
                let order = OpenOrder {
                    provider: Some(other.clone()),
                    ..order.clone()
                };
                Some(Contestant::open(name(), launcher.start_pair()?, &order)?)
            }
            Some(Baseline::Bmi) => {
                let order = OpenOrder {
                    provider: Some(provider),
                    bmi: true,
                    ..order.clone()
                };
                Some(Contestant::open(
                    SELVEDGE_BMI.to_owned(),
                    launcher.start_pair()?,
                    &order,
                )?)
            }
            None if self.is_plain() => None,
            None if self.owned => {
                // The raw endpoint has the threading level of the safe layer's endpoint.
                let mut order = measured_order;
                order.config.owned = false;
                let raw = Contestant::open(name(), launcher.start_pair()?, &order)?;
                Some(raw.with_config("raw".to_owned()))
            }
            None if self.lent => {
                let mut order = measured_order;
                order.config.lent = false;
                let sent = Contestant::open(name(), launcher.start_pair()?, &order)?;
                Some(sent.with_config("owned".to_owned()))
            }
            None => {
                let plain = Contestant::open(name(), launcher.start_pair()?, order)?;
                Some(plain.with_config("plain".to_owned()))
            }
        });
        Ok(contestants)
    }
}

impl PairLauncher {
    pub(super) fn start_pair(self) -> anyhow::Result<Pair> {
        Pair::start(self.placement, self.deadline)
    }

    fn start_pairs(self, count: u16) -> anyhow::Result<Vec<Pair>> {
        (0..count).map(|_| self.start_pair()).collect()
    }
}

/// The name of a configuration with several pairs or senders.
fn config_name(count: u16, noun: &str, order: &OpenOrder) -> String {
    let config = order.config.name();
    let noun = if count == 1 {
        noun.trim_end_matches('s')
    } else {
        noun
    };
    if config.is_empty() {
        format!("{count} {noun}")
    } else {
        format!("{count} {noun}, {config}")
    }
}
