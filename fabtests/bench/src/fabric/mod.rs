//! Benchmarks over a fabric: endpoints, and the loops that are the same for every provider.
//!
//! The loops use only [`selvedge::Endpoint`] and [`selvedge::CompletionQueue`]. Every contestant's
//! loop does the same steps; docs/FABTESTS-REFERENCE.md describes them.

mod background_load;
mod bandwidth;
mod config;
mod endpoint;
mod idle_peers;
mod linger;
mod many_to_one;
mod message_api;
pub mod pattern;
mod pingpong;
mod posting;
mod remote;
pub mod text_message;

use std::fmt;
use std::str::FromStr;

use anyhow::{bail, ensure};
use serde::{Deserialize, Serialize};

use crate::clock::Clock;
use crate::pair::Side;
use crate::pair::exchange::PingpongParams;
use crate::timing::{Counts, Timing};

pub use config::{BenchConfig, ThreadingLevel, WaitStrategy};
pub(crate) use endpoint::discover;
pub use endpoint::{BenchEndpoint, Opened, longest_datagram};
pub use linger::linger;
pub(crate) use remote::{LINES, STRIDE};

/// A benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bench {
    /// Round trips of untagged messages.
    MsgPingpong,
    /// Round trips of tagged messages.
    TaggedPingpong,
    /// Windows of untagged messages in one direction.
    MsgBw,
    /// Windows of tagged messages in one direction.
    TaggedBw,
    /// Windows of untagged messages in both directions at the same time.
    MsgBibw,
    /// Windows of tagged messages in both directions at the same time.
    TaggedBibw,
    /// Round trips of puts into the domain's memory; each target polls its memory for the put.
    RmaPut,
    /// Consecutive gets out of the domain's memory. A get of up to 64 bytes reads a line that the
    /// target has just written.
    RmaGet,
    /// Round trips of writes with data; each side polls its queue for the peer's completion.
    RmaWritePingpong,
    /// Windows of puts into the domain's memory.
    RmaBw,
    /// Windows of gets out of the domain's memory.
    RmaReadBw,
    /// Atomics without a result, on lines that the target has just written.
    AtomicAdd,
    /// Fetching atomics, on lines that the target has just written.
    AtomicFetchAdd,
}

impl Bench {
    /// All benchmarks.
    pub const ALL: [Self; 13] = [
        Self::MsgPingpong,
        Self::TaggedPingpong,
        Self::MsgBw,
        Self::TaggedBw,
        Self::MsgBibw,
        Self::TaggedBibw,
        Self::RmaPut,
        Self::RmaGet,
        Self::RmaWritePingpong,
        Self::RmaBw,
        Self::RmaReadBw,
        Self::AtomicAdd,
        Self::AtomicFetchAdd,
    ];
    /// The benchmarks that every contestant has.
    pub const MESSAGES: [Self; 4] = [
        Self::MsgPingpong,
        Self::TaggedPingpong,
        Self::MsgBw,
        Self::TaggedBw,
    ];

    /// The name on the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MsgPingpong => "msg_pingpong",
            Self::TaggedPingpong => "tagged_pingpong",
            Self::MsgBw => "msg_bw",
            Self::TaggedBw => "tagged_bw",
            Self::MsgBibw => "msg_bibw",
            Self::TaggedBibw => "tagged_bibw",
            Self::RmaPut => "rma_put",
            Self::RmaGet => "rma_get",
            Self::RmaWritePingpong => "rma_write_pingpong",
            Self::RmaBw => "rma_bw",
            Self::RmaReadBw => "rma_read_bw",
            Self::AtomicAdd => "atomic_add",
            Self::AtomicFetchAdd => "atomic_fetch_add",
        }
    }

    /// Whether the benchmark measures round trips rather than consecutive messages or accesses.
    pub const fn is_pingpong(self) -> bool {
        matches!(
            self,
            Self::MsgPingpong | Self::TaggedPingpong | Self::RmaPut | Self::RmaWritePingpong
        )
    }

    /// Whether the benchmark moves windows of messages or accesses rather than single ones.
    pub const fn is_windowed(self) -> bool {
        matches!(
            self,
            Self::MsgBw
                | Self::TaggedBw
                | Self::MsgBibw
                | Self::TaggedBibw
                | Self::RmaBw
                | Self::RmaReadBw
        )
    }

    /// Whether both sides send windows. The figures of such a benchmark count both directions.
    pub const fn is_bidirectional(self) -> bool {
        matches!(self, Self::MsgBibw | Self::TaggedBibw)
    }

    /// Whether the benchmark measures atomics.
    pub const fn is_atomic(self) -> bool {
        matches!(self, Self::AtomicAdd | Self::AtomicFetchAdd)
    }

    /// Whether the benchmark supports accesses or messages of this size.
    pub const fn has_size(self, size: usize) -> bool {
        !self.is_atomic() || size == 4 || size == 8
    }

    /// Whether the benchmark uses untagged messages. Datagram endpoints carry no others.
    pub const fn is_untagged(self) -> bool {
        matches!(self, Self::MsgPingpong | Self::MsgBw | Self::MsgBibw)
    }

    /// Whether the benchmark accesses remote memory.
    pub const fn is_remote(self) -> bool {
        !matches!(
            self,
            Self::MsgPingpong
                | Self::TaggedPingpong
                | Self::MsgBw
                | Self::TaggedBw
                | Self::MsgBibw
                | Self::TaggedBibw
        )
    }
}

impl fmt::Display for Bench {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Bench {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match Self::ALL.into_iter().find(|bench| bench.name() == text) {
            Some(bench) => Ok(bench),
            None => {
                let names = Self::ALL.map(Self::name).join(", ");
                bail!("unknown benchmark {text:?}: choose from {names}")
            }
        }
    }
}

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
    /// Whether to use BMI instead of the fabric's API.
    #[serde(default)]
    pub bmi: bool,
    /// Whether to use datagram endpoints, with untagged messages.
    #[serde(default)]
    pub datagrams: bool,
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
            bmi: false,
            datagrams: false,
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
    /// Parameters of one side's round trips over an endpoint that injects messages of up to
    /// `inject_size` bytes.
    pub(crate) fn pingpong_params(&self, side: Side, inject_size: usize) -> PingpongParams {
        PingpongParams {
            is_active: side == Side::Active,
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
            (1..=LARGEST).contains(&self.size),
            "size {} is out of range",
            self.size
        );
        ensure!(
            (1..=WIDEST).contains(&self.window),
            "window {} is out of range",
            self.window
        );
        for count in [warmup, batch, singles] {
            ensure!(count <= MAX_COUNT, "a run of {count} is out of range");
        }
        Ok(())
    }
}

/// The window for messages of `size` bytes: `window`, or fewer messages if the receive buffers of a
/// full window would take more than 64 MiB.
pub fn fitting_window(window: usize, size: usize) -> usize {
    window
        .min(RECEIVE_BUFFER_BYTES / (2 * posting::stride(size)))
        .max(1)
}

/// As [`fitting_window`], for datagrams. The system drops a datagram that does not fit into the
/// receive buffer of its socket. A datagram takes about a kilobyte besides its payload, and the
/// default size of the receive buffer is 208 KiB.
pub fn datagram_window(window: usize, size: usize) -> usize {
    window.min(SOCKET_BUFFER_BYTES / (size + 1024)).max(1)
}

/// Bytes of send buffers that suffice for messages of every size up to `largest`.
fn side_bytes(window: usize, largest: usize) -> usize {
    // Send buffers take at most `window` strides, and at most half of `RECEIVE_BUFFER_BYTES` unless a
    // single message is larger.
    let stride = posting::stride(largest);
    stride
        .max((window * stride).min(RECEIVE_BUFFER_BYTES / 2))
        .max(text_message::TEXT_LEN)
}

/// Runs one side of a benchmark. The active side's timing counts; in a many-to-one run, the passive
/// side's. A timing is that of a round trip, or of one message of a stream.
///
/// # Errors
/// The provider's error, or an error for a message with the wrong content.
pub fn run(
    endpoint: &mut BenchEndpoint,
    side: Side,
    clock: Clock,
    order: BenchOrder,
) -> anyhow::Result<Timing> {
    match order.bench {
        bench if order.senders > 0 => {
            ensure!(
                bench == Bench::TaggedBw,
                "{bench} does not run with several senders"
            );
            many_to_one::run(endpoint, side, clock, order)
        }
        Bench::MsgPingpong => pingpong::run::<message_api::Untagged>(endpoint, side, clock, order),
        Bench::TaggedPingpong => pingpong::run::<message_api::Tagged>(endpoint, side, clock, order),
        Bench::MsgBw | Bench::MsgBibw => {
            bandwidth::run::<message_api::Untagged>(endpoint, side, clock, order)
        }
        Bench::TaggedBw | Bench::TaggedBibw => {
            bandwidth::run::<message_api::Tagged>(endpoint, side, clock, order)
        }
        _ => remote::run(endpoint, side, clock, order),
    }
}

/// Largest message, in bytes. The buffers of both processes fit into a small machine's memory.
pub const LARGEST: usize = 64 << 20;
/// Largest window, in messages.
pub const WIDEST: usize = 4096;
/// Most round trips or windows in one part of a run.
const MAX_COUNT: usize = 10_000_000;
/// Bytes of receive buffers, unless a single message is larger.
const RECEIVE_BUFFER_BYTES: usize = 64 << 20;
/// About half of a socket's receive buffer, in bytes.
const SOCKET_BUFFER_BYTES: usize = 100 << 10;

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

    #[test]
    fn every_size_has_room_for_its_window() {
        for largest in [1, 64, 4096, 1 << 20, 4 << 20, LARGEST] {
            let side = side_bytes(64, largest);
            for size in [1, 60, 4096, 1 << 20, LARGEST] {
                if size <= largest {
                    assert!(
                        fitting_window(64, size) * posting::stride(size) <= side,
                        "{size}"
                    );
                }
            }
        }
    }
}
