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
    fn run(&mut self, order: BenchOrder) -> anyhow::Result<Timing>;
}

impl Runner for Pair {
    fn run(&mut self, order: BenchOrder) -> anyhow::Result<Timing> {
        self.measure(&Order::Bench(order))
    }
}

impl Contestant {
    /// Endpoints that are open already.
    pub fn new(implementation: String, opened: Opened, runner: Box<dyn Runner>) -> Self {
        Self {
            implementation,
            opened,
            runner,
        }
    }

    /// Has both processes of a pair open endpoints and insert each other's address.
    ///
    /// # Errors
    /// As [`Pair::order`].
    pub fn open(implementation: String, mut pair: Pair, order: OpenOrder) -> anyhow::Result<Self> {
        let replies = pair.order(&Order::Open(order))?;
        let [active, passive] = replies.map(serde_json::from_value::<Opened>);
        let (active, passive) = (
            active.context("odd endpoint")?,
            passive.context("odd endpoint")?,
        );
        let to_active = Order::Peer(passive.address);
        let to_passive = Order::Peer(active.address.clone());
        pair.order_each([&to_active, &to_passive])?;
        Ok(Self::new(implementation, active, Box::new(pair)))
    }

    /// Runs a benchmark once.
    ///
    /// # Errors
    /// As [`Runner::run`], with the point.
    pub fn run(&mut self, order: BenchOrder) -> anyhow::Result<Timing> {
        self.runner.run(order).with_context(|| {
            let who = &self.implementation;
            format!("{} of {} bytes over {who}", order.bench, order.size)
        })
    }
}
