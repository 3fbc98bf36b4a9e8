//! A connected pair of endpoints whose exchanges are timed while other processes attack one of the
//! two.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use nix::unistd::gettid;
use selvedge_testkit::schedstat::{SchedStat, Times};

use super::Echo;
use crate::campaign::endpoint::CampaignEndpoint;
use crate::campaign::report::Row;

/// Time limit of an exchange, on a machine that other programs also use.
const LONGEST_EXCHANGE: Duration = Duration::from_millis(500);
/// Limit of an exchange's processor time, which is the smaller of both threads' times. Both threads
/// poll, so a thread that does other work also makes the other thread poll for longer. A thread
/// that waits for a processor uses no processor time.
const LONGEST_CPU_TIME: Duration = Duration::from_millis(50);

/// A connected pair: an endpoint of this process, and the attacked endpoint in a process of its
/// own. Fields are dropped in order: the attacked process before this process's endpoint.
#[derive(Debug)]
pub(crate) struct Bystanders {
    target: Echo,
    endpoint: CampaignEndpoint,
    threads: [SchedStat; 2],
}

/// The exchanges of the pair during one attempt.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Exchanges {
    count: u64,
    time: Duration,
    longest: Duration,
    /// The longest processor time of an exchange, in the thread that used less.
    longest_cpu_time: Duration,
}

impl Bystanders {
    /// Opens both endpoints and connects them.
    ///
    /// # Errors
    /// An endpoint cannot be opened or connected.
    pub(crate) fn open() -> anyhow::Result<Self> {
        let endpoint = CampaignEndpoint::open(None, &[])?;
        let target = Echo::start(&endpoint, &[])?;
        Self::connect(endpoint, target)
    }

    /// Connects two endpoints as a pair.
    ///
    /// # Errors
    /// The endpoints do not connect.
    pub(crate) fn connect(
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

    /// Returns the address of the attacked endpoint.
    pub(crate) fn target(&self) -> &str {
        self.target.name()
    }

    /// Exchanges messages for `time`, and at least once.
    ///
    /// # Errors
    /// A message is lost or corrupted, or an exchange takes too long.
    pub(crate) fn exchange_for(&mut self, time: Duration) -> anyhow::Result<Exchanges> {
        let (began, mut exchanges) = (Instant::now(), Exchanges::default());
        while exchanges.count == 0 || began.elapsed() < time {
            exchanges.add(self.exchange()?);
        }
        exchanges.time = began.elapsed();
        let cpu_time = exchanges.longest_cpu_time;
        for (measure, longest, limit) in [
            ("took", exchanges.longest, LONGEST_EXCHANGE),
            (
                "took in both threads, in processor time,",
                cpu_time,
                LONGEST_CPU_TIME,
            ),
        ] {
            ensure!(
                longest <= limit,
                "an exchange of the connected pair {measure} {longest:?}; the limit is {limit:?}"
            );
        }
        Ok(exchanges)
    }

    /// Runs one exchange.
    fn exchange(&mut self) -> anyhow::Result<Exchanges> {
        let before = self.times();
        let start = Instant::now();
        self.target.exchange(&mut self.endpoint)?;
        let longest = start.elapsed();
        let after = self.times();
        let during = [0, 1].map(|thread| after[thread].since(before[thread]));
        Ok(Exchanges {
            count: 1,
            time: Duration::ZERO,
            longest,
            longest_cpu_time: during[0].on_processor.min(during[1].on_processor),
        })
    }

    fn times(&self) -> [Times; 2] {
        [0, 1].map(|thread| self.threads[thread].read())
    }
}

impl Exchanges {
    /// Adds the exchanges of another attempt.
    pub(crate) fn add(&mut self, other: Self) {
        self.count += other.count;
        self.time += other.time;
        self.longest = self.longest.max(other.longest);
        self.longest_cpu_time = self.longest_cpu_time.max(other.longest_cpu_time);
    }

    /// Writes the totals into the figures of a row.
    pub(crate) fn report(self, row: &mut Row) {
        let figures = &mut row.figures;
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        figures.insert("longest_exchange_ms", ms(self.longest));
        figures.insert("on_processors_ms", ms(self.longest_cpu_time));
        let seconds = self.time.as_secs_f64().max(f64::MIN_POSITIVE);
        figures.insert("exchanges_per_s", self.count as f64 / seconds);
    }
}
