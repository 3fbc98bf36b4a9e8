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
use selvedge_bench::fabric::{Bench, BenchOrder, OpenOrder, Opened};
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

impl Backend for MethodInstance {
    /// Reports an inject size of 0, because BMI decides whether a message is injected.
    fn describe(&self) -> Opened {
        Opened {
            provider: self.provider.clone(),
            address: self.url.clone(),
            inject_size: 0,
            open_ns: self.open_ns,
        }
    }

    fn set_peer(&mut self, url: &str) -> anyhow::Result<()> {
        self.peer = self.bmi.addr_lookup(url)?;
        Ok(())
    }

    fn run(&mut self, side: Side, clock: Clock, order: BenchOrder) -> anyhow::Result<Timing> {
        match order.bench {
            Bench::TaggedPingpong => pingpong::run(self, side, clock, order),
            Bench::TaggedBw => bandwidth::run(self, side, clock, order),
            other => bail!("{other} is not measured over BMI; tagged_pingpong and tagged_bw are"),
        }
    }
}
