//! Bystanders: an established pair whose exchanges are timed while other processes attack one of its
//! endpoints.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use nix::unistd::gettid;

use super::echo::Echo;
use super::endpoint::CampaignEndpoint;
use super::report::Row;
use crate::schedstat::SchedStat;

/// The longest time that an exchange may take, on a machine that others use, too.
const LONGEST: Duration = Duration::from_millis(500);
/// The longest time on a processor that both of its threads may need: a thread that does other work
/// keeps the other one waiting, and both poll. A thread that has no processor needs none.
const LONGEST_ON_PROCESSORS: Duration = Duration::from_millis(50);

/// The pair: an endpoint of this process, and the target of the attack in a process of its own, which
/// ends first.
#[derive(Debug)]
pub(super) struct Bystanders {
    target: Echo,
    endpoint: CampaignEndpoint,
    threads: [SchedStat; 2],
}

/// The exchanges of a pair during one attempt.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Exchanges {
    count: u64,
    time: Duration,
    longest: Duration,
    /// The longest time on a processor of the thread that had less of it.
    longest_on_processors: Duration,
}

impl Bystanders {
    /// Opens both, and has them connect.
    ///
    /// # Errors
    /// When they cannot be opened.
    pub(super) fn open() -> anyhow::Result<Self> {
        let endpoint = CampaignEndpoint::open(None, &[])?;
        let target = Echo::start(&endpoint, &[])?;
        Self::connected(endpoint, target)
    }

    /// A pair of these two.
    ///
    /// # Errors
    /// When they do not connect.
    pub(super) fn connected(
        mut endpoint: CampaignEndpoint,
        mut target: Echo,
    ) -> anyhow::Result<Self> {
        target
            .exchange(&mut endpoint)
            .context("before the attack")?;
        let statistics = |thread| SchedStat::of(thread).context("the scheduler's statistics");
        let threads = [statistics(gettid().as_raw())?, statistics(target.pid())?];
        Ok(Self {
            target,
            endpoint,
            threads,
        })
    }

    /// The address of the target.
    pub(super) fn target(&self) -> &str {
        self.target.name()
    }

    /// Exchanges messages for so long, and at least once.
    ///
    /// # Errors
    /// When a message is lost, garbled, or an exchange takes too long.
    pub(super) fn exchange_for(&mut self, time: Duration) -> anyhow::Result<Exchanges> {
        let (began, mut exchanges) = (Instant::now(), Exchanges::default());
        while exchanges.count == 0 || began.elapsed() < time {
            exchanges.add(self.exchange()?);
        }
        exchanges.time = began.elapsed();
        let on_processors = exchanges.longest_on_processors;
        for (what, longest, most) in [
            ("took", exchanges.longest, LONGEST),
            (
                "took both, on processors,",
                on_processors,
                LONGEST_ON_PROCESSORS,
            ),
        ] {
            ensure!(
                longest <= most,
                "an exchange of an established pair {what} {longest:?}, {most:?} are allowed"
            );
        }
        Ok(exchanges)
    }

    /// One exchange.
    fn exchange(&mut self) -> anyhow::Result<Exchanges> {
        let before = self.on_processors();
        let start = Instant::now();
        self.target.exchange(&mut self.endpoint)?;
        let longest = start.elapsed();
        let both = self.on_processors().into_iter().zip(before);
        let less = both.map(|(now, before)| now.saturating_sub(before)).min();
        Ok(Exchanges {
            count: 1,
            time: Duration::ZERO,
            longest,
            longest_on_processors: less.unwrap_or_default(),
        })
    }

    fn on_processors(&self) -> [Duration; 2] {
        [0, 1].map(|at| self.threads[at].read().on_processor)
    }
}

impl Exchanges {
    /// Adds those of another attempt.
    pub(super) fn add(&mut self, other: Self) {
        self.count += other.count;
        self.time += other.time;
        self.longest = self.longest.max(other.longest);
        self.longest_on_processors = self.longest_on_processors.max(other.longest_on_processors);
    }

    /// Reports them as figures of a row.
    pub(super) fn report(self, row: &mut Row) {
        let figures = &mut row.figures;
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        figures.insert("longest_exchange_ms", ms(self.longest));
        let on_processors = ms(self.longest_on_processors);
        figures.insert("on_processors_ms", on_processors);
        let seconds = self.time.as_secs_f64().max(f64::MIN_POSITIVE);
        figures.insert("exchanges_per_s", self.count as f64 / seconds);
    }
}
