//! A contestant: one of the implementations that a benchmark measures in turns.

use std::fmt;

use anyhow::{Context as _, bail};

use crate::fabric::{BenchOrder, OpenOrder, Opened};
use crate::limits::{Outcome, Probe};
use crate::measure::timing::Timing;
use crate::pair::{Order, Pair};

/// Two connected endpoints, and the runner that orders benchmarks from both.
#[derive(Debug)]
pub struct Contestant {
    /// Name and version of the implementation.
    pub implementation: String,
    /// Name of the configuration; empty for the plain pair.
    pub config: String,
    /// Description of the active side's endpoint.
    pub opened: Opened,
    runner: Box<dyn Runner>,
}

/// Runs benchmarks for a contestant.
pub trait Runner: fmt::Debug {
    /// Runs a benchmark once and returns the active side's measurement.
    ///
    /// # Errors
    /// An error that names the operation or process that failed.
    fn run(&mut self, order: BenchOrder) -> anyhow::Result<Measured>;
}

/// The result of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// The time of a round trip or a message.
    pub timing: Timing,
    /// Processor time of all processes, divided by the time of the run; `None` if not measured.
    pub cores: Option<f64>,
    /// Processor time of a waiting process, divided by the time for which that process waits;
    /// `None` if not measured.
    pub waiting_cpu: Option<f64>,
}

impl Measured {
    /// Makes a result that has times and no processor time.
    pub const fn from_timing(timing: Timing) -> Self {
        Self {
            timing,
            cores: None,
            waiting_cpu: None,
        }
    }
}

impl Runner for Pair {
    fn run(&mut self, order: BenchOrder) -> anyhow::Result<Measured> {
        self.measure(&Order::Bench(order))
            .map(Measured::from_timing)
    }
}

/// Two processes that wake each other by eventfds, one word for each message.
#[derive(Debug)]
struct Wakes(Pair);

impl Runner for Wakes {
    fn run(&mut self, order: BenchOrder) -> anyhow::Result<Measured> {
        match self
            .0
            .measure(&Order::Probe(Probe::EventFd, order.counts))?
        {
            Outcome::Took(timing) => Ok(Measured::from_timing(timing)),
            Outcome::Refused(reason) => bail!("eventfds are not measured: {reason}"),
        }
    }
}

impl Contestant {
    /// The limit of processes that wait: eventfds of the system, without a message.
    pub fn eventfd(implementation: String, pair: Pair) -> Self {
        let opened = Opened {
            provider: "eventfd".to_owned(),
            address: String::new(),
            inject_size: 0,
            open_ns: 0,
        };
        Self::new(implementation, opened, Box::new(Wakes(pair)))
    }

    /// A contestant with open endpoints.
    pub fn new(implementation: String, opened: Opened, runner: Box<dyn Runner>) -> Self {
        Self {
            implementation,
            config: String::new(),
            opened,
            runner,
        }
    }

    /// Sets the name of the configuration.
    #[must_use]
    pub fn with_config(mut self, config: String) -> Self {
        self.config = config;
        self
    }

    /// Has both processes of a pair open endpoints and insert each other's address.
    ///
    /// # Errors
    /// As [`Pair::order`].
    pub fn open(implementation: String, mut pair: Pair, order: &OpenOrder) -> anyhow::Result<Self> {
        let opened = pair.open(order)?;
        let config = order.config.name();
        Ok(Self::new(implementation, opened, Box::new(pair)).with_config(config))
    }

    /// Runs a benchmark once.
    ///
    /// # Errors
    /// As [`Runner::run`], with the benchmark and size.
    pub fn run(&mut self, order: BenchOrder) -> anyhow::Result<Measured> {
        self.runner.run(order).with_context(|| {
            let implementation = &self.implementation;
            format!(
                "{} of {} bytes over {implementation}",
                order.bench, order.size
            )
        })
    }
}
