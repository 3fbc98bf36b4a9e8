//! Benchmarks over BMI: the loops of [`selvedge_bench::fabric`] step by step, with BMI's calls.
//!
//! Expected messages only: `tagged_pingpong` and `tagged_bw`. Posts are those of the C interface,
//! which name memory by its address.

mod bandwidth;
mod pingpong;
pub mod posts;
pub mod requests;
mod station;

use anyhow::bail;
use selvedge_bench::clock::Clock;
use selvedge_bench::fabric::{Bench, BenchOrder, OpenOrder};
use selvedge_bench::pair::Side;
use selvedge_bench::pair::role::Backend;
use selvedge_bench::timing::Timing;

use station::Station;

/// Opens BMI in place of an endpoint.
///
/// # Errors
/// What BMI says.
pub fn open(order: &OpenOrder) -> anyhow::Result<Box<dyn Backend>> {
    Ok(Box::new(Station::open(order)?))
}

/// Takes one side's part in a run, as [`selvedge_bench::fabric::run`].
fn run(station: &Station, side: Side, clock: Clock, order: BenchOrder) -> anyhow::Result<Timing> {
    match order.bench {
        Bench::TaggedPingpong => pingpong::run(station, side, clock, order),
        Bench::TaggedBw => bandwidth::run(station, side, clock, order),
        other => bail!("{other} is not measured over BMI: it has expected messages only"),
    }
}
