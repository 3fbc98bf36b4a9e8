//! Someone who runs the benchmarks.

use std::fmt;

use anyhow::Context as _;

use crate::fabric::{BenchOrder, OpenOrder, Opened};
use crate::pair::{Order, Pair};
use crate::timing::Timing;

/// Two endpoints that know each other, and whoever has them run benchmarks.
#[derive(Debug)]
pub struct Contestant {
    /// Whose code it is, with its version.
    pub implementation: String,
    /// In what it is not as usual; empty for the plain one.
    pub manner: String,
    /// What the active side's endpoint says of itself.
    pub opened: Opened,
    runner: Box<dyn Runner>,
}

/// How a run is begun.
pub trait Runner: fmt::Debug {
    /// Runs a benchmark once and says what the active side measured.
    ///
    /// # Errors
    /// What kept it from its end.
    fn run(&mut self, order: BenchOrder) -> anyhow::Result<Measured>;
}

/// What a run has shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// The time of a round trip or a message.
    pub timing: Timing,
    /// Processor time of all processes over the time that it took, where it was asked for.
    pub cores: Option<f64>,
    /// Processor time of a process that waits, over the time that it waits.
    pub waiting_cpu: Option<f64>,
}

impl Measured {
    /// Times alone.
    pub const fn of(timing: Timing) -> Self {
        Self {
            timing,
            cores: None,
            waiting_cpu: None,
        }
    }
}

impl Runner for Pair {
    fn run(&mut self, order: BenchOrder) -> anyhow::Result<Measured> {
        self.measure(&Order::Bench(order)).map(Measured::of)
    }
}

impl Contestant {
    /// Endpoints that are open already.
    pub fn new(implementation: String, opened: Opened, runner: Box<dyn Runner>) -> Self {
        Self {
            implementation,
            manner: String::new(),
            opened,
            runner,
        }
    }

    /// Says in what it is not as usual.
    #[must_use]
    pub fn called(mut self, manner: String) -> Self {
        self.manner = manner;
        self
    }

    /// Has both processes of a pair open endpoints and insert each other's address.
    ///
    /// # Errors
    /// As [`Pair::order`].
    pub fn open(implementation: String, mut pair: Pair, order: &OpenOrder) -> anyhow::Result<Self> {
        let opened = pair.open(order)?;
        let manner = order.manner.name();
        Ok(Self::new(implementation, opened, Box::new(pair)).called(manner))
    }

    /// Runs a benchmark once.
    ///
    /// # Errors
    /// As [`Runner::run`], with the point.
    pub fn run(&mut self, order: BenchOrder) -> anyhow::Result<Measured> {
        self.runner.run(order).with_context(|| {
            let who = &self.implementation;
            format!("{} of {} bytes over {who}", order.bench, order.size)
        })
    }
}
