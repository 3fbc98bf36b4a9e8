//! Round trips and broadcasts over the safe layer, [`selvedge::owned`], whose operations take
//! buffers by value.

mod broadcast;
mod endpoint;
mod round_trips;

use anyhow::bail;

pub(super) use self::endpoint::OwnedEndpoint;
use super::Side;
use crate::fabric::{Bench, BenchOrder};
use crate::measure::clock::Clock;
use crate::measure::timing::Timing;

impl OwnedEndpoint {
    /// Runs one side of a benchmark.
    ///
    /// # Errors
    /// When an operation fails, or the safe layer does not have the benchmark.
    pub(super) fn run(
        &mut self,
        side: Side,
        clock: Clock,
        order: BenchOrder,
    ) -> anyhow::Result<Timing> {
        match order.bench {
            Bench::MsgPingpong => round_trips::run::<false>(self, side, clock, order),
            Bench::TaggedPingpong => round_trips::run::<true>(self, side, clock, order),
            Bench::TaggedBroadcast => broadcast::run(self, side, clock, order),
            bench => bail!(
                "the safe layer has no {bench}: choose msg_pingpong, tagged_pingpong or \
                 tagged_broadcast"
            ),
        }
    }
}
