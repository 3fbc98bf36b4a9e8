//! The contestants of `bench`: the measured configuration, and the plain pair or a baseline beside
//! it.

use anyhow::ensure;

use super::baseline::{Baseline, SELVEDGE, SOCKETS};
use super::placement::PairLauncher;
use crate::comparison::{Contestant, Pairs, Plan, Receivers, Ring, Senders};
use crate::fabric::{Bench, BenchConfig, OpenOrder, ThreadingLevel, WaitStrategy};

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
    /// Lend one buffer to N receivers, in turns with sending it to each of them: tagged_broadcast
    #[arg(long, value_name = "N", conflicts_with_all = ["pairs", "senders", "oversubscribed", "threading", "wait", "posted", "unexpected", "idle_peers", "owned", "lent", "heap"],
          value_parser = clap::value_parser!(u16).range(1..=16))]
    receivers: Option<u16>,
    /// Run a ring of N processes on the two cores, in turns with the same ring over sockets that
    /// block: tagged_ring
    #[arg(long, value_name = "N", conflicts_with_all = ["pairs", "senders", "wait"],
          value_parser = clap::value_parser!(u16).range(2..=64))]
    oversubscribed: Option<u16>,
    /// Run N threads that compute without end on the two cores during each run of the ring
    #[arg(long, value_name = "N", default_value_t = 0, requires = "oversubscribed",
          value_parser = clap::value_parser!(u16).range(..=64))]
    neighbours: u16,
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
    /// Exchange requests and responses of the service layer over shm or tcp, in turns with the raw
    /// endpoint: msg_pingpong, tagged_pingpong. With --wait sleep its calls block, with --wait fd
    /// tokio waits, in turns with eventfds
    #[arg(long, conflicts_with_all = ["owned", "lent", "heap", "pairs", "senders", "posted", "unexpected", "idle_peers", "threading"])]
    service: bool,
    /// Allocate the buffers from the shared heap, in turns with ordinary memory
    #[arg(long, conflicts_with_all = ["owned", "pairs", "senders", "wait"])]
    heap: bool,
}

impl ContestantArgs {
    /// The benchmarks of a command line that names none: all message benchmarks that these
    /// arguments allow.
    pub(super) fn benches(&self) -> Vec<Bench> {
        let groups = [Bench::TaggedRing, Bench::TaggedBroadcast];
        let benches = Bench::MESSAGES.into_iter().chain(groups);
        benches
            .filter(|&bench| self.check_bench(bench).is_ok())
            .collect()
    }

    /// Refuses combinations that cannot be measured.
    ///
    /// # Errors
    /// An error that names the benchmark or option that does not fit these arguments.
    pub(super) fn check(&self, plan: &Plan, has_baseline: bool) -> anyhow::Result<()> {
        let only_buffers_differ = Self {
            owned: false,
            lent: false,
            heap: false,
            service: false,
            wait: if self.service {
                WaitStrategy::Spin
            } else {
                self.wait
            },
            ..self.clone()
        };
        ensure!(
            !has_baseline || only_buffers_differ.is_plain(),
            "--against is measured in turns with one pair: leave out --threading, --wait, \
             --pairs, --senders, --receivers, --posted, --unexpected and --idle-peers"
        );
        ensure!(
            self.senders.is_none() || !plan.verify,
            "with --senders messages are not checked: leave out -c"
        );
        ensure!(
            self.receivers.is_none() || !plan.verify,
            "with --receivers only the ends of messages are checked: leave out -c"
        );
        ensure!(
            self.oversubscribed.is_none_or(|count| count % 2 == 0),
            "--oversubscribed: the number of processes is even"
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
            !(self.owned || self.lent || self.service)
                || matches!(bench, Bench::MsgPingpong | Bench::TaggedPingpong),
            "--owned, --lent and --service go with msg_pingpong and tagged_pingpong, not with {bench}"
        );
        ensure!(
            self.oversubscribed.is_some() == bench.is_ring(),
            "--oversubscribed goes with tagged_ring, not with {bench}"
        );
        ensure!(
            self.receivers.is_some() == bench.is_broadcast(),
            "--receivers goes with tagged_broadcast, not with {bench}"
        );
        let tagged = matches!(bench, Bench::TaggedBw | Bench::TaggedPingpong);
        ensure!(
            self.posted + self.unexpected == 0 || tagged,
            "--posted and --unexpected go with tagged_bw and tagged_pingpong, not with {bench}: \
             untagged messages would match them"
        );
        Ok(())
    }

    pub(super) const fn is_service(&self) -> bool {
        self.service
    }

    fn is_plain(&self) -> bool {
        !self.is_concurrent() && self.config() == BenchConfig::default()
    }

    /// Whether the runs have to be long because their processes take turns on the cores.
    pub(super) fn is_concurrent(&self) -> bool {
        self.pairs.is_some()
            || self.senders.is_some()
            || self.receivers.is_some()
            || self.oversubscribed.is_some()
            || self.wait != WaitStrategy::Spin
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
            service: self.service,
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
        baselines: &[Baseline],
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
        if let Some(receivers) = self.receivers {
            return open_broadcasts(receivers, order, launcher);
        }
        if let Some(count) = self.oversubscribed {
            return self.open_rings(count, &measured_order, launcher);
        }
        if self.is_concurrent() && !self.service {
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
        for baseline in baselines {
            contestants.push(baseline.open(&provider, &measured_order, launcher)?);
        }
        contestants.extend(match self {
            _ if !baselines.is_empty() || self.is_plain() => None,
            Self { owned: true, .. } => {
                // The raw endpoint has the threading level of the safe layer's endpoint.
                let mut order = measured_order;
                order.config.owned = false;
                let raw = Contestant::open(name(), launcher.start_pair()?, &order)?;
                Some(raw.with_config("raw".to_owned()))
            }
            Self {
                service: true,
                wait,
                ..
            } if *wait != WaitStrategy::Spin => {
                let pair = launcher.start_pair()?;
                Some(Contestant::eventfd("the system".to_owned(), pair))
            }
            Self { service: true, .. } => {
                let mut order = measured_order;
                order.config.service = false;
                order.config.threading = ThreadingLevel::Safe;
                let raw = Contestant::open(name(), launcher.start_pair()?, &order)?;
                Some(raw.with_config("raw".to_owned()))
            }
            Self { lent: true, .. } => {
                let mut order = measured_order;
                order.config.lent = false;
                let sent = Contestant::open(name(), launcher.start_pair()?, &order)?;
                Some(sent.with_config("owned".to_owned()))
            }
            _ => {
                let plain = Contestant::open(name(), launcher.start_pair()?, order)?;
                Some(plain.with_config("plain".to_owned()))
            }
        });
        Ok(contestants)
    }
}

impl ContestantArgs {
    /// Opens the measured ring, and the ring over sockets.
    fn open_rings(
        &self,
        count: u16,
        order: &OpenOrder,
        launcher: PairLauncher,
    ) -> anyhow::Result<Vec<Contestant>> {
        let neighbours = (launcher.placement, usize::from(self.neighbours));
        let config = match self.neighbours {
            0 => format!("ring of {count}"),
            threads => format!("ring of {count} beside {threads} threads"),
        };
        let open = |name: &str, order: &OpenOrder| {
            let pairs = launcher.start_pairs(count / 2)?;
            Ring::open(name.to_owned(), config.clone(), pairs, order, neighbours)
        };
        let over_sockets = OpenOrder {
            sockets: true,
            ..order.clone()
        };
        Ok(vec![open(SELVEDGE, order)?, open(SOCKETS, &over_sockets)?])
    }
}

/// Opens the sender that lends its buffer, and the one that sends it, each with its receivers.
fn open_broadcasts(
    receivers: u16,
    order: &OpenOrder,
    launcher: PairLauncher,
) -> anyhow::Result<Vec<Contestant>> {
    let open = |lent: bool| {
        let config = BenchConfig {
            owned: true,
            lent,
            ..BenchConfig::default()
        };
        let order = OpenOrder {
            config,
            ..order.clone()
        };
        let name = config_name(receivers, "receivers", &order);
        let pairs = launcher.start_pairs(receivers)?;
        Receivers::open(SELVEDGE.to_owned(), name, pairs, &order)
    };
    Ok(vec![open(true)?, open(false)?])
}

/// The name of a configuration with several pairs, senders or receivers.
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
