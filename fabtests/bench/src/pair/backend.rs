//! Implementations of the benchmarks that replace a fabric endpoint.

use std::fmt;

use super::Side;
use crate::fabric::{BenchOrder, OpenOrder, Opened};
use crate::measure::clock::Clock;
use crate::measure::timing::Timing;

/// An implementation of the benchmarks that replaces a fabric endpoint.
pub trait Backend: fmt::Debug {
    /// Describes the backend. The description has the address for the peer.
    fn describe(&self) -> Opened;

    /// Sets the peer to send to.
    ///
    /// # Errors
    /// When the address names no peer.
    fn set_peer(&mut self, address: &str) -> anyhow::Result<()>;

    /// Runs one side of a benchmark, as [`crate::fabric::run`].
    ///
    /// # Errors
    /// When an operation fails, or the backend does not have the benchmark.
    fn run(&mut self, side: Side, clock: Clock, order: BenchOrder) -> anyhow::Result<Timing>;
}

/// Opens a [`Backend`] for an order.
pub type OpenBackend = fn(&OpenOrder) -> anyhow::Result<Box<dyn Backend>>;
