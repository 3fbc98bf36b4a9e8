//! Bystanders: an established pair whose exchanges are timed while other processes attack one of its
//! endpoints.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::echo::Echo;
use super::party::Party;
use super::report::Row;

/// The longest time that an exchange may take, on a machine that others use, too.
const LONGEST: Duration = Duration::from_millis(500);

/// The pair: an endpoint of this process, and the target of the attack in a process of its own, which
/// ends first.
#[derive(Debug)]
pub(super) struct Bystanders {
    target: Echo,
    party: Party,
}

/// The exchanges of a pair during one attempt.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Exchanges {
    count: u64,
    time: Duration,
    longest: Duration,
}

impl Bystanders {
    /// Opens both, and has them connect.
    ///
    /// # Errors
    /// When they cannot be opened.
    pub(super) fn open() -> anyhow::Result<Self> {
        let party = Party::open(None, &[])?;
        let target = Echo::start(&party, &[])?;
        Self::connected(party, target)
    }

    /// A pair of these two.
    ///
    /// # Errors
    /// When they do not connect.
    pub(super) fn connected(mut party: Party, mut target: Echo) -> anyhow::Result<Self> {
        target.exchange(&mut party).context("before the attack")?;
        Ok(Self { target, party })
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
            let start = Instant::now();
            self.target.exchange(&mut self.party)?;
            exchanges.longest = exchanges.longest.max(start.elapsed());
            exchanges.count += 1;
        }
        exchanges.time = began.elapsed();
        let longest = exchanges.longest;
        ensure!(
            longest <= LONGEST,
            "an exchange of an established pair took {longest:?}, {LONGEST:?} are allowed"
        );
        Ok(exchanges)
    }
}

impl Exchanges {
    /// Adds those of another attempt.
    pub(super) fn add(&mut self, other: Self) {
        self.count += other.count;
        self.time += other.time;
        self.longest = self.longest.max(other.longest);
    }

    /// Reports them as figures of a row.
    pub(super) fn report(self, row: &mut Row) {
        let figures = &mut row.figures;
        figures.insert("longest_exchange_ms", self.longest.as_secs_f64() * 1e3);
        let seconds = self.time.as_secs_f64().max(f64::MIN_POSITIVE);
        figures.insert("exchanges_per_s", self.count as f64 / seconds);
    }
}
