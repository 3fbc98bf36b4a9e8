//! What opening an endpoint costs in time, and what the first message to a peer does.

use serde::Serialize;

use crate::fabric::{Bench, BenchOrder, OpenOrder};
use crate::pair::{Order, Pair};
use crate::stats::{confidence, median};
use crate::timing::{Counts, Timing};

/// The cost of an endpoint, over and over in the same processes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Opening {
    /// Whose endpoint it is.
    pub implementation: String,
    /// Discovery, fabric, domain, queue, address vector and endpoint, in nanoseconds.
    pub open_ns: f64,
    /// Between which times that lies with 95 % confidence.
    pub open_ci_ns: [f64; 2],
    /// The first round trip of two new endpoints: contact, or connection, and two messages.
    pub first_round_trip_ns: f64,
    /// Between which times that lies with 95 % confidence.
    pub first_ci_ns: [f64; 2],
}

impl Opening {
    /// Has both processes open new endpoints and exchange two messages, again and again.
    ///
    /// # Errors
    /// As [`Pair::order`].
    pub fn of(
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
            bench: match datagrams {
                true => Bench::MsgPingpong,
                false => Bench::TaggedPingpong,
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
        let (mut opens, mut firsts) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            opens.push(pair.open(&open)?.open_ns as f64);
            let timing: Timing = pair.measure(&Order::Bench(bench))?;
            firsts.push(timing.mean);
        }
        // What happens but once in a process is not part of an endpoint's cost.
        let (opens, firsts) = (&opens[1..], &firsts[1..]);
        Ok(Self {
            implementation,
            open_ns: median(opens),
            open_ci_ns: confidence(opens),
            first_round_trip_ns: median(firsts),
            first_ci_ns: confidence(firsts),
        })
    }
}

const SIZE: usize = 8;
/// The first one does not count.
const ROUNDS: usize = 21;
