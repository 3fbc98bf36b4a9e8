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

use station::Station;

use crate::clock::Clock;
use crate::fabric::{Bench, BenchOrder, OpenOrder};
use crate::pair::Side;
use crate::pair::role::Backend;
use crate::timing::Timing;

/// Opens BMI in place of an endpoint.
///
/// # Errors
/// What BMI says.
pub fn open(order: &OpenOrder) -> anyhow::Result<Box<dyn Backend>> {
    Ok(Box::new(Station::open(order)?))
}

/// Takes one side's part in a run, as [`crate::fabric::run`].
fn run(station: &Station, side: Side, clock: Clock, order: BenchOrder) -> anyhow::Result<Timing> {
    match order.bench {
        Bench::TaggedPingpong => pingpong::run(station, side, clock, order),
        Bench::TaggedBw => bandwidth::run(station, side, clock, order),
        other => bail!("{other} is not measured over BMI: it has expected messages only"),
    }
}
