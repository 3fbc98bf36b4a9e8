//! Benchmarks over BMI: the loops of [`crate::fabric`] step by step, with BMI's calls.
//!
//! Expected messages only: `tagged_pingpong` and `tagged_bw`. Posts are those of the C interface,
//! which name memory by its address.

mod bandwidth;
mod pingpong;
pub mod posts;
pub mod requests;
mod station;

use anyhow::bail;

pub use station::Station;

use crate::clock::Clock;
use crate::fabric::{Bench, BenchOrder};
use crate::pair::Side;
use crate::timing::Timing;

/// Takes one side's part in a run, as [`crate::fabric::run`].
///
/// # Errors
/// What BMI says; that there is no such benchmark over BMI.
pub fn run(
    station: &mut Station,
    side: Side,
    clock: Clock,
    order: BenchOrder,
) -> anyhow::Result<Timing> {
    match order.bench {
        Bench::TaggedPingpong => pingpong::run(station, side, clock, order),
        Bench::TaggedBw => bandwidth::run(station, side, clock, order),
        other => bail!("{other} is not measured over BMI: it has expected messages only"),
    }
}
