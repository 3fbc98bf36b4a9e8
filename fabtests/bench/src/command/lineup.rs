//! Who takes part in `bench`: the plain pair, or something else beside it.

use std::time::Instant;

use anyhow::ensure;

use super::bench::{BMI, OWN, Rival};
use crate::comparison::{Contestant, Pairs, Plan, Senders};
use crate::cpu::Placement;
use crate::fabric::{Bench, Manner, OpenOrder, Promise, Wait};
use crate::pair::Pair;

/// What is measured in turns with the plain pair.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct LineupArgs {
    /// What the endpoints promise about threads; safe is measured in turns with domain
    #[arg(long, value_enum, default_value_t = Promise::Domain)]
    threading: Promise,
    /// What a process does that waits for a completion; fd and sleep sleep in the kernel
    #[arg(long, value_enum, default_value_t = Wait::Spin)]
    wait: Wait,
    /// So many pairs at the same time, in turns with one pair that spins; figures are of all together
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pairs: Option<u16>,
    /// So many senders to one receiver, in turns with one sender: tagged_bw
    #[arg(long, value_name = "N", conflicts_with = "pairs",
          value_parser = clap::value_parser!(u16).range(1..=16))]
    senders: Option<u16>,
    /// Have so many receives posted that take none of the messages, in turns with none
    #[arg(long, value_name = "N", default_value_t = 0)]
    posted: u32,
    /// Have so many messages waiting that no receive takes, in turns with none
    #[arg(long, value_name = "N", default_value_t = 0)]
    unexpected: u32,
    /// Have so many more peers that are connected and say nothing, in turns with none
    #[arg(long, value_name = "N", default_value_t = 0)]
    quiet: u32,
    /// Go through the safe layer, in turns with the raw endpoint: msg_pingpong, tagged_pingpong
    #[arg(long, conflicts_with_all = ["pairs", "senders", "posted", "unexpected", "quiet", "wait"])]
    owned: bool,
}

/// Where and until when the processes run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stage {
    pub(super) placement: Placement,
    pub(super) deadline: Instant,
}

impl LineupArgs {
    /// The benchmarks that can be measured like this, when none is named.
    pub(super) fn benches(&self) -> Vec<Bench> {
        let all = Bench::MESSAGES.into_iter();
        all.filter(|&bench| self.check_bench(bench).is_ok())
            .collect()
    }

    /// Refuses what cannot be measured.
    ///
    /// # Errors
    /// The benchmark that does not go with these arguments.
    pub(super) fn check(&self, plan: &Plan, against: bool) -> anyhow::Result<()> {
        ensure!(
            !against || self.is_plain(),
            "--against is measured in turns with the plain pair: leave out --threading, --wait, \
             --pairs, --senders, --posted, --unexpected, --quiet and --owned"
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
            !self.owned || matches!(bench, Bench::MsgPingpong | Bench::TaggedPingpong),
            "--owned goes with msg_pingpong and tagged_pingpong, not with {bench}"
        );
        let tagged = matches!(bench, Bench::TaggedBw | Bench::TaggedPingpong);
        ensure!(
            self.posted + self.unexpected == 0 || tagged,
            "--posted and --unexpected go with tagged_bw and tagged_pingpong, not with {bench}: \
             other messages would meet them"
        );
        Ok(())
    }

    fn is_plain(&self) -> bool {
        !self.is_throng() && self.manner() == Manner::default()
    }

    /// Whether the runs have to be long: their processes take turns on the cores.
    pub(super) fn is_throng(&self) -> bool {
        self.pairs.is_some() || self.senders.is_some() || self.wait != Wait::Spin
    }

    fn manner(&self) -> Manner {
        Manner {
            threading: self.threading,
            wait: self.wait,
            posted: self.posted as usize,
            unexpected: self.unexpected as usize,
            quiet: self.quiet as usize,
            owned: self.owned,
        }
    }

    /// Opens everybody's endpoints; ours first.
    ///
    /// # Errors
    /// When a process cannot be started or an endpoint does not open.
    pub(super) fn open(
        &self,
        order: &OpenOrder,
        rival: Option<&Rival>,
        stage: Stage,
    ) -> anyhow::Result<Vec<Contestant>> {
        let changed = OpenOrder {
            manner: self.manner(),
            ..order.clone()
        };
        let own = || OWN.to_owned();
        if let Some(senders) = self.senders {
            return Ok(vec![
                Senders::open(
                    own(),
                    several(senders, "senders", &changed),
                    stage.pairs(senders)?,
                    &changed,
                )?,
                Senders::open(own(), "one sender".to_owned(), stage.pairs(1)?, order)?,
            ]);
        }
        if self.is_throng() {
            let pairs = self.pairs.unwrap_or(1);
            return Ok(vec![
                Pairs::open(
                    own(),
                    several(pairs, "pairs", &changed),
                    stage.pairs(pairs)?,
                    &changed,
                )?,
                Pairs::open(own(), "one pair".to_owned(), stage.pairs(1)?, order)?,
            ]);
        }
        let mut contestants = vec![Contestant::open(own(), stage.pair()?, &changed)?];
        let provider = contestants[0].opened.provider.clone();
        contestants.extend(match rival {
            Some(Rival::Libfabric(rival)) => {
                let pair = rival.start(&provider, stage.placement, stage.deadline)?;
                let order = OpenOrder {
                    special: false,
                    ..order.clone()
                };
                Some(Contestant::open(rival.version().to_owned(), pair, &order)?)
            }
            Some(Rival::Provider(other)) => {
                let order = OpenOrder {
                    provider: Some(other.clone()),
                    ..order.clone()
                };
                Some(Contestant::open(own(), stage.pair()?, &order)?)
            }
            Some(Rival::Bmi) => {
                let order = OpenOrder {
                    provider: Some(provider),
                    bmi: true,
                    ..order.clone()
                };
                Some(Contestant::open(BMI.to_owned(), stage.pair()?, &order)?)
            }
            None if self.is_plain() => None,
            None if self.owned => {
                // Under the same promise about threads.
                let mut order = changed;
                order.manner.owned = false;
                let raw = Contestant::open(own(), stage.pair()?, &order)?;
                Some(raw.called("raw".to_owned()))
            }
            None => {
                let plain = Contestant::open(own(), stage.pair()?, order)?;
                Some(plain.called("plain".to_owned()))
            }
        });
        Ok(contestants)
    }
}

impl Stage {
    pub(super) fn pair(self) -> anyhow::Result<Pair> {
        Pair::start(self.placement, self.deadline)
    }

    fn pairs(self, count: u16) -> anyhow::Result<Vec<Pair>> {
        (0..count).map(|_| self.pair()).collect()
    }
}

/// So many of them, and in what they are not as usual.
fn several(count: u16, what: &str, order: &OpenOrder) -> String {
    let manner = order.manner.name();
    let what = if count == 1 {
        what.trim_end_matches('s')
    } else {
        what
    };
    match manner.is_empty() {
        true => format!("{count} {what}"),
        false => format!("{count} {what}, {manner}"),
    }
}
