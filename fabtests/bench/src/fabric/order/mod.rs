//! Orders: the endpoint to open and the benchmark to run.

mod bench;
mod config;
mod windows;

use anyhow::ensure;
use serde::{Deserialize, Serialize};

use crate::measure::timing::Counts;
use crate::pair::Side;
use crate::pair::exchange::PingpongParams;

pub use bench::Bench;
pub use config::{BenchConfig, ThreadingLevel, WaitStrategy};
pub use windows::{MAX_MESSAGE_SIZE, MAX_WINDOW, datagram_window, fitting_window};
pub(super) use windows::{TEXT_LEN, side_bytes, stride};

/// The order to open an endpoint, with its requirements.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenOrder {
    /// The provider to use; `None` for the best one.
    pub provider: Option<String>,
    /// The largest message, in bytes.
    pub largest: usize,
    /// Outstanding messages at most.
    pub window: usize,
    /// Whether the buffers lie in memory that the domain allocates.
    #[serde(default)]
    pub special: bool,
    /// Whether to register memory that the peer may read and write.
    #[serde(default)]
    pub remote: bool,
    /// Differences from the plain pair.
    #[serde(default)]
    #[serde(rename = "manner")]
    pub config: BenchConfig,
    /// Whether to use the program's [`crate::pair::role::Backend`] instead of the fabric's API.
    #[serde(default)]
    pub backend: bool,
    /// Whether to use datagram endpoints, with untagged messages.
    #[serde(default)]
    pub datagrams: bool,
    /// Whether to use bare TCP sockets instead of the fabric's API, for a ring.
    #[serde(default)]
    pub sockets: bool,
}

impl OpenOrder {
    /// A plain pair's endpoints, without registered memory.
    pub fn plain(provider: Option<String>, window: usize, largest: usize) -> Self {
        Self {
            provider,
            largest,
            window,
            special: false,
            remote: false,
            config: BenchConfig::default(),
            backend: false,
            datagrams: false,
            sockets: false,
        }
    }
}

/// One run of a benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BenchOrder {
    /// The benchmark.
    pub bench: Bench,
    /// Size of a message, in bytes.
    pub size: usize,
    /// Number of round trips or windows.
    pub counts: Counts,
    /// Outstanding messages at most: see [`fitting_window`].
    pub window: usize,
    /// Whether messages that are small enough are injected.
    pub inject: bool,
    /// Whether every message is filled with a pattern and checked on arrival.
    pub verify: bool,
    /// Number of senders in a many-to-one run; 0 in others.
    #[serde(default)]
    pub senders: usize,
    /// Index of this process among the senders.
    #[serde(default)]
    pub sender: usize,
}

impl BenchOrder {
    /// The number of messages of the benchmark's size, in both directions, that one window of the
    /// loop moves.
    pub fn messages_per_window(&self) -> usize {
        match self.bench {
            bench if bench.is_pingpong() => 1,
            bench if bench.is_bidirectional() => 2 * self.window,
            bench if bench.is_mixed() => self.window + 2 * self.single_round_trips() + 1,
            _ => self.window,
        }
    }

    /// The number of round trips of single messages before each window of a mixed benchmark: about
    /// half of the messages are in windows.
    pub(crate) fn single_round_trips(&self) -> usize {
        self.window / 2
    }

    /// Parameters of one side's round trips over an endpoint that injects messages of up to
    /// `inject_size` bytes.
    pub(crate) fn pingpong_params(&self, side: Side, inject_size: usize) -> PingpongParams {
        PingpongParams {
            // In a ring, every process sends first.
            is_active: side == Side::Active || self.bench.is_ring(),
            timed_singly: self.bench.is_ring(),
            size: self.size,
            inject: self.inject && self.size <= inject_size,
            verify: self.verify,
            counts: self.counts,
        }
    }

    /// Refuses orders that this program never gives. The order may come from another user's
    /// process.
    ///
    /// # Errors
    /// An error that names the value that is out of range.
    pub fn check(&self) -> anyhow::Result<()> {
        let Counts {
            warmup,
            batch,
            singles,
        } = self.counts;
        ensure!(
            (1..=MAX_MESSAGE_SIZE).contains(&self.size),
            "size {} is out of range",
            self.size
        );
        ensure!(
            (1..=MAX_WINDOW).contains(&self.window),
            "window {} is out of range",
            self.window
        );
        for count in [warmup, batch, singles] {
            ensure!(count <= MAX_COUNT, "a run of {count} is out of range");
        }
        Ok(())
    }
}

/// Most round trips or windows in one part of a run.
const MAX_COUNT: usize = 10_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn order() -> BenchOrder {
        BenchOrder {
            bench: Bench::MsgBw,
            size: 8,
            counts: Counts::for_size(8),
            window: 64,
            inject: true,
            verify: false,
            senders: 0,
            sender: 0,
        }
    }

    #[test]
    fn orders_out_of_range_are_refused_with_the_number() {
        order().check().unwrap();
        let mut large = order();
        large.size = usize::MAX;
        let mut wide = order();
        wide.window = 0;
        let mut long = order();
        long.counts.singles = usize::MAX;
        for (order, number) in [(large, usize::MAX), (wide, 0), (long, usize::MAX)] {
            let error = order.check().unwrap_err().to_string();
            assert!(error.contains(&number.to_string()), "{error}");
        }
    }
}
