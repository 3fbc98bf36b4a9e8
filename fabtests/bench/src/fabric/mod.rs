//! Benchmarks over a fabric: endpoints, and the loops that are the same for every provider.
//!
//! The loops use only [`selvedge::Endpoint`] and [`selvedge::CompletionQueue`]. Every contestant's
//! loop does the same steps; docs/FABTESTS-REFERENCE.md describes them.

mod background_load;
mod endpoint;
pub mod ends;
mod idle_peers;
mod linger;
mod messages;
mod order;
pub mod pattern;
mod posting;
mod remote;
pub mod text_message;

use anyhow::{bail, ensure};

use self::messages::message_api::{Tagged, Untagged};
use crate::measure::clock::Clock;
use crate::measure::timing::Timing;
use crate::pair::Side;

pub use background_load::add_background_load;
pub(crate) use endpoint::discover;
pub use endpoint::{BenchEndpoint, Opened, longest_datagram};
pub use linger::linger;
pub use order::{
    Bench, BenchConfig, BenchOrder, MAX_MESSAGE_SIZE, MAX_WINDOW, OpenOrder, ThreadingLevel,
    WaitStrategy, datagram_window, fitting_window,
};
pub(crate) use remote::{LINES, STRIDE};

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
            messages::many_to_one::run(endpoint, side, clock, order)
        }
        Bench::MsgPingpong => messages::pingpong::run::<Untagged>(endpoint, side, clock, order),
        Bench::TaggedPingpong | Bench::TaggedRing => {
            messages::pingpong::run::<Tagged>(endpoint, side, clock, order)
        }
        Bench::MsgBw | Bench::MsgBibw => {
            messages::bandwidth::run::<Untagged>(endpoint, side, clock, order)
        }
        Bench::TaggedBw | Bench::TaggedBibw | Bench::TaggedMixed => {
            messages::bandwidth::run::<Tagged>(endpoint, side, clock, order)
        }
        Bench::TaggedBroadcast => bail!("tagged_broadcast runs over the safe layer alone"),
        _ => remote::run(endpoint, side, clock, order),
    }
}
