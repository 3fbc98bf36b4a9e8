//! Benchmarks over a fabric: endpoints, and the loops that are the same for every provider.
//!
//! The loops see nothing but [`selvedge::Endpoint`] and [`selvedge::CompletionQueue`]. Every
//! contestant's loop does the same, step by step; docs/FABTESTS-REFERENCE.md has them in words.

mod bandwidth;
mod burden;
mod company;
mod face;
mod gather;
pub mod letter;
mod linger;
mod manner;
pub mod pattern;
mod pingpong;
mod remote;
mod station;
mod wire;

use std::fmt;
use std::str::FromStr;

use anyhow::{bail, ensure};
use serde::{Deserialize, Serialize};

use crate::clock::Clock;
use crate::pair::Side;
use crate::pair::exchange::Part;
use crate::timing::{Counts, Timing};

pub use linger::linger;
pub use manner::{Manner, Promise, Wait};
pub(crate) use remote::{LINES, STRIDE};
pub(crate) use station::discover;
pub use station::{Opened, Station, longest_datagram};

/// A benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bench {
    /// Untagged messages, one to and one fro.
    MsgPingpong,
    /// Tagged messages, one to and one fro.
    TaggedPingpong,
    /// Untagged messages, a window of them at a time in one direction.
    MsgBw,
    /// Tagged messages, a window of them at a time in one direction.
    TaggedBw,
    /// Untagged messages, windows in both directions at the same time.
    MsgBibw,
    /// Tagged messages, windows in both directions at the same time.
    TaggedBibw,
    /// Puts into special memory, one to and one fro, each seen by whoever looks at the memory.
    RmaPut,
    /// Gets out of special memory, one after the other; of up to 64 bytes, each from a line that the
    /// target has just written.
    RmaGet,
    /// Writes with data, one to and one fro: each side's queue says that the other's is there.
    RmaWritePingpong,
    /// Puts into special memory, a window of them at a time.
    RmaBw,
    /// Gets out of special memory, a window of them at a time.
    RmaReadBw,
    /// Atomics without a result, of lines that the target has just written.
    AtomicAdd,
    /// Atomics that fetch, likewise.
    AtomicFetchAdd,
}

impl Bench {
    /// All of them.
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
    /// Those that everybody has.
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

    /// Whether it measures round trips; otherwise it measures one message or access after the other.
    pub const fn is_pingpong(self) -> bool {
        matches!(
            self,
            Self::MsgPingpong | Self::TaggedPingpong | Self::RmaPut | Self::RmaWritePingpong
        )
    }

    /// Whether it moves windows of messages or accesses; otherwise one follows the other.
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

    /// Whether both sides send windows: figures are of both directions together.
    pub const fn is_bidirectional(self) -> bool {
        matches!(self, Self::MsgBibw | Self::TaggedBibw)
    }

    /// Whether it is about atomics.
    pub const fn is_atomic(self) -> bool {
        matches!(self, Self::AtomicAdd | Self::AtomicFetchAdd)
    }

    /// Whether it can be measured with accesses or messages of this size.
    pub const fn has_size(self, size: usize) -> bool {
        !self.is_atomic() || size == 4 || size == 8
    }

    /// Whether it goes over datagrams: untagged messages do.
    pub const fn is_untagged(self) -> bool {
        matches!(self, Self::MsgPingpong | Self::MsgBw | Self::MsgBibw)
    }

    /// Whether it is about remote memory.
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
                bail!("there is no bench {text:?}: there are {names}")
            }
        }
    }
}

/// What an endpoint is opened for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenOrder {
    /// The provider to use; none for the best one.
    pub provider: Option<String>,
    /// The largest message, in bytes.
    pub largest: usize,
    /// Messages on the way at once.
    pub window: usize,
    /// Have the buffers in memory that the domain makes.
    #[serde(default)]
    pub special: bool,
    /// Have memory that the peer may read and write.
    #[serde(default)]
    pub remote: bool,
    /// In what they are not as usual.
    #[serde(default)]
    pub manner: Manner,
    /// Talk BMI in place of the fabric's own interface.
    #[serde(default)]
    pub bmi: bool,
    /// Over datagrams, untagged.
    #[serde(default)]
    pub datagrams: bool,
}

impl OpenOrder {
    /// Endpoints of the usual kind, without memory for the peer.
    pub fn plain(provider: Option<String>, window: usize, largest: usize) -> Self {
        Self {
            provider,
            largest,
            window,
            special: false,
            remote: false,
            manner: Manner::default(),
            bmi: false,
            datagrams: false,
        }
    }
}

/// One run of a benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BenchOrder {
    /// Which one.
    pub bench: Bench,
    /// Of a message, in bytes.
    pub size: usize,
    /// How many round trips, or windows of messages.
    pub counts: Counts,
    /// Messages on the way at once, at most: see [`fitting_window`].
    pub window: usize,
    /// Send by inject where the message is small enough for it.
    pub inject: bool,
    /// Fill every message with a pattern and check it where it arrives.
    pub verify: bool,
    /// In a run with several senders, how many there are; 0 in others.
    #[serde(default)]
    pub senders: usize,
    /// Which of the senders this process is.
    #[serde(default)]
    pub sender: usize,
}

impl BenchOrder {
    /// One side's part in round trips over an endpoint that injects so many bytes at most.
    pub(crate) fn part(&self, side: Side, inject_size: usize) -> Part {
        Part {
            is_active: side == Side::Active,
            size: self.size,
            inject: self.inject && self.size <= inject_size,
            verify: self.verify,
            counts: self.counts,
        }
    }

    /// Refuses what no command of ours would order: it came from somebody else's process.
    ///
    /// # Errors
    /// The number that is out of range.
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
            ensure!(count <= LONGEST, "a run of {count} is out of range");
        }
        Ok(())
    }
}

/// Messages on the way at once for messages of `size` bytes, when `window` is asked for: fewer
/// where the buffers of a full window would take more than 64 MiB on the receiving side.
pub fn fitting_window(window: usize, size: usize) -> usize {
    window.min(ARENA / (2 * wire::stride(size))).max(1)
}

/// The same for datagrams, which are lost when a socket of the system's has no room for them: each
/// takes about a kilobyte besides, and the usual limit is 208 KiB.
pub fn datagram_window(window: usize, size: usize) -> usize {
    window.min(SOCKET / (size + 1024)).max(1)
}

/// Bytes that the send buffers of the largest and of every smaller size need.
fn side_bytes(window: usize, largest: usize) -> usize {
    // The window shrinks only where a message's size makes up for it.
    let stride = wire::stride(largest);
    stride
        .max((window * stride).min(ARENA / 2))
        .max(letter::LETTER)
}

/// Takes one side's part in a run. Only the active side's timing counts: of a round trip, or of
/// one message of a stream.
///
/// # Errors
/// What the provider says, or that a message arrived wrong.
pub fn run(
    station: &mut Station,
    side: Side,
    clock: Clock,
    order: BenchOrder,
) -> anyhow::Result<Timing> {
    match order.bench {
        bench if order.senders > 0 => {
            ensure!(
                bench == Bench::TaggedBw,
                "{bench} has no form with several senders"
            );
            gather::run(station, side, clock, order)
        }
        Bench::MsgPingpong => pingpong::run::<face::Untagged>(station, side, clock, order),
        Bench::TaggedPingpong => pingpong::run::<face::Tagged>(station, side, clock, order),
        Bench::MsgBw | Bench::MsgBibw => {
            bandwidth::run::<face::Untagged>(station, side, clock, order)
        }
        Bench::TaggedBw | Bench::TaggedBibw => {
            bandwidth::run::<face::Tagged>(station, side, clock, order)
        }
        _ => remote::run(station, side, clock, order),
    }
}

/// Largest message, in bytes: what both processes' buffers can hold without crowding a small
/// machine.
pub const LARGEST: usize = 64 << 20;
/// Most messages on the way at once.
pub const WIDEST: usize = 4096;
/// Most round trips or windows of a part of a run.
const LONGEST: usize = 10_000_000;
/// Bytes of receive buffers, unless a single message is larger.
const ARENA: usize = 64 << 20;
/// Half of what a socket keeps.
const SOCKET: usize = 100 << 10;

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
                        fitting_window(64, size) * wire::stride(size) <= side,
                        "{size}"
                    );
                }
            }
        }
    }
}
