//! Time to open an endpoint, and time of the first round trip with a new peer.

use serde::Serialize;

use crate::fabric::{Bench, BenchOrder, OpenOrder};
use crate::measure::stats::{confidence, median};
use crate::measure::timing::{Counts, Timing};
use crate::pair::{Order, Pair};

/// Cost of an endpoint, opened repeatedly in the same processes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Opening {
    /// Name and version of the implementation.
    pub implementation: String,
    /// Time of discovery and of opening the fabric, domain, queue, address vector and endpoint, in
    /// nanoseconds.
    pub open_ns: f64,
    /// 95 % confidence interval of `open_ns`.
    pub open_ci_ns: [f64; 2],
    /// The first round trip of two new endpoints, in nanoseconds: connecting, and two messages.
    pub first_round_trip_ns: f64,
    /// 95 % confidence interval of `first_round_trip_ns`.
    pub first_ci_ns: [f64; 2],
}

impl Opening {
    /// Has both processes open new endpoints and exchange two messages, repeatedly.
    ///
    /// # Errors
    /// As [`Pair::order`].
    pub fn measure(
        implementation: String,
        mut pair: Pair,
        provider: &str,
        datagrams: bool,
    ) -> anyhow::Result<Self> {
        let open = OpenOrder {
            datagrams,
            ..OpenOrder::plain(Some(provider.to_owned()), 1, SIZE)
        };
        let bench = BenchOrder {
            bench: if datagrams {
                Bench::MsgPingpong
            } else {
                Bench::TaggedPingpong
            },
            size: SIZE,
            counts: Counts {
                warmup: 0,
                batch: 1,
                singles: 0,
            },
            window: 1,
            inject: true,
            verify: false,
            senders: 0,
            sender: 0,
        };
        let (mut open_times, mut first_trips) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            open_times.push(pair.open(&open)?.open_ns as f64);
            let timing: Timing = pair.measure(&Order::Bench(bench))?;
            first_trips.push(timing.mean);
        }
        // The first round contains initialisation that happens once per process.
        let (open_times, first_trips) = (&open_times[1..], &first_trips[1..]);
        Ok(Self {
            implementation,
            open_ns: median(open_times),
            open_ci_ns: confidence(open_times),
            first_round_trip_ns: median(first_trips),
            first_ci_ns: confidence(first_trips),
        })
    }
}

/// Bytes of a message.
const SIZE: usize = 8;
/// Number of rounds, including the first, which does not count.
const ROUNDS: usize = 21;
