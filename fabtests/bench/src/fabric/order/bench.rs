//! The benchmarks.

use std::fmt;
use std::str::FromStr;

use anyhow::bail;
use serde::{Deserialize, Serialize};

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
    /// Round trips of single tagged messages, alternating with windows of tagged messages of the
    /// same size in one direction.
    TaggedMixed,
    /// Exchanges in a ring of processes: each sends a tagged message to its right neighbour and
    /// receives one from its left neighbour.
    TaggedRing,
    /// Broadcasts of one buffer of the safe layer to several receivers by tagged messages.
    TaggedBroadcast,
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
    pub const ALL: [Self; 16] = [
        Self::MsgPingpong,
        Self::TaggedPingpong,
        Self::MsgBw,
        Self::TaggedBw,
        Self::MsgBibw,
        Self::TaggedBibw,
        Self::TaggedMixed,
        Self::TaggedRing,
        Self::TaggedBroadcast,
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
            Self::TaggedMixed => "tagged_mixed",
            Self::TaggedRing => "tagged_ring",
            Self::TaggedBroadcast => "tagged_broadcast",
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
                | Self::TaggedMixed
                | Self::RmaBw
                | Self::RmaReadBw
        )
    }

    /// Whether both sides send windows. The figures of such a benchmark count both directions.
    pub const fn is_bidirectional(self) -> bool {
        matches!(self, Self::MsgBibw | Self::TaggedBibw)
    }

    /// Whether single messages alternate with the windows.
    pub const fn is_mixed(self) -> bool {
        matches!(self, Self::TaggedMixed)
    }

    /// Whether the benchmark measures exchanges in a ring.
    pub const fn is_ring(self) -> bool {
        matches!(self, Self::TaggedRing)
    }

    /// Whether the benchmark measures broadcasts to several receivers.
    pub const fn is_broadcast(self) -> bool {
        matches!(self, Self::TaggedBroadcast)
    }

    /// Whether each exchange of several processes is timed by itself. The times are not halved.
    pub const fn is_timed_singly(self) -> bool {
        self.is_ring() || self.is_broadcast()
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
                | Self::TaggedMixed
                | Self::TaggedRing
                | Self::TaggedBroadcast
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
