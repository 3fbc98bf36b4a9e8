//! Benchmarks over BMI: the loops of [`selvedge_bench::fabric`] step by step, with BMI's calls.
//!
//! The benchmarks are `tagged_pingpong` and `tagged_bw`, with expected messages. Posts are those of
//! the C interface, which name memory by its address.

mod bandwidth;
mod instance;
mod pingpong;
pub mod posts;
pub mod requests;

use anyhow::bail;
use selvedge_bench::clock::Clock;
use selvedge_bench::fabric::{Bench, BenchOrder, OpenOrder};
use selvedge_bench::pair::Side;
use selvedge_bench::pair::role::Backend;
use selvedge_bench::timing::Timing;

use instance::MethodInstance;

/// Opens BMI instead of an endpoint.
///
/// # Errors
/// The error of BMI.
pub fn open(order: &OpenOrder) -> anyhow::Result<Box<dyn Backend>> {
    Ok(Box::new(MethodInstance::open(order)?))
}

/// Runs one side of a benchmark, as [`selvedge_bench::fabric::run`].
fn run(
    instance: &MethodInstance,
    side: Side,
    clock: Clock,
    order: BenchOrder,
) -> anyhow::Result<Timing> {
    match order.bench {
        Bench::TaggedPingpong => pingpong::run(instance, side, clock, order),
        Bench::TaggedBw => bandwidth::run(instance, side, clock, order),
        other => bail!("{other} is not measured over BMI; tagged_pingpong and tagged_bw are"),
    }
}
