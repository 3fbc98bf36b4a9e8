//! Concurrent runs of more than two processes: several pairs, several senders to one receiver, one
//! sender to several receivers, or a ring.
//!
//! Figures are totals. Pairs take turns on the cores. The time of a message is therefore the time
//! from the first start to the last end, divided by the number of all messages.

mod receivers;
mod ring;

use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::Value;

use super::{Contestant, Measured, Runner};
use crate::fabric::{BenchOrder, OpenOrder, Opened, WaitStrategy};
use crate::measure::timing::Timing;
use crate::pair::{Order, Pair, RunResult};

pub use receivers::Receivers;
pub use ring::Ring;

/// Several pairs that run the same benchmark independently.
#[derive(Debug)]
pub struct Pairs {
    pairs: Vec<Pair>,
    /// Processor time of a waiting process, divided by the time for which that process waits.
    waiting_cpu: f64,
}

impl Pairs {
    /// Has each pair open its endpoints, and measures the processor time of waiting.
    ///
    /// # Errors
    /// As [`Pair::order`].
    pub fn open(
        implementation: String,
        config: String,
        mut pairs: Vec<Pair>,
        order: &OpenOrder,
    ) -> anyhow::Result<Contestant> {
        let mut opened = None;
        for pair in &mut pairs {
            opened = Some(pair.open(order)?);
        }
        let lingered =
            order_concurrently(&mut pairs, |_, pair| pair.order(&Order::Linger(LINGER)))?;
        let mut cpu = Vec::new();
        for [_, passive] in lingered {
            let ran: RunResult = serde_json::from_value(passive)?;
            cpu.push(ran.cpu_ns as f64 / ran.taken_ns().max(1) as f64);
        }
        let waiting_cpu = cpu.iter().sum::<f64>() / cpu.len() as f64;
        let opened = opened.context("no pair")?;
        let runner = Self { pairs, waiting_cpu };
        Ok(Contestant::new(implementation, opened, Box::new(runner)).with_config(config))
    }
}

impl Runner for Pairs {
    fn run(&mut self, order: BenchOrder) -> anyhow::Result<Measured> {
        let replies =
            order_concurrently(&mut self.pairs, |_, pair| pair.order(&Order::Bench(order)))?;
        let results = replies
            .into_iter()
            .flatten()
            .map(serde_json::from_value::<RunResult>)
            .collect::<Result<Vec<_>, _>>()?;
        let start_ns = results.iter().map(|ran| ran.began_ns).min().unwrap_or(0);
        let end_ns = results.iter().map(|ran| ran.ended_ns).max().unwrap_or(0);
        let elapsed_ns = end_ns.saturating_sub(start_ns).max(1) as f64;
        let count = self.pairs.len() * order.counts.total() * order.messages_per_window();
        let cpu: u64 = results.iter().map(|ran| ran.cpu_ns).sum();
        Ok(Measured {
            timing: Timing::from_means(&[elapsed_ns / count as f64]),
            cores: Some(cpu as f64 / elapsed_ns),
            waiting_cpu: Some(self.waiting_cpu),
        })
    }
}

/// Several senders to one receiver: the active processes of all pairs, and the passive process of
/// the first.
#[derive(Debug)]
pub struct Senders(Vec<Pair>);

impl Senders {
    /// Has the processes open endpoints and connects them.
    ///
    /// # Errors
    /// As [`Pair::order`].
    pub fn open(
        implementation: String,
        config: String,
        mut pairs: Vec<Pair>,
        order: &OpenOrder,
    ) -> anyhow::Result<Contestant> {
        let mut senders = Vec::new();
        let mut receiver = None;
        let largest = OpenOrder {
            window: order.window * pairs.len(),
            ..order.clone()
        };
        let mut order = order.clone();
        if pairs.len() > 1 && order.config.wait == WaitStrategy::Spin {
            // The processes share a core.
            order.config.wait = WaitStrategy::Yield;
        }
        for pair in &mut pairs {
            let orders = [Order::Open(order.clone()), Order::Open(largest.clone())];
            let replies = pair.order_each([&orders[0], &orders[1]])?;
            let [active, passive] = replies.map(serde_json::from_value::<Opened>);
            senders.push(active?);
            receiver.get_or_insert(passive?);
        }
        let receiver = receiver.context("no sender")?;
        let names = senders.iter().map(|sender| sender.address.clone());
        let to_senders = Order::Peers(vec![receiver.address.clone()]);
        let to_receiver = Order::Peers(names.collect());
        order_concurrently(&mut pairs, |number, pair| {
            let passive = if number == 0 {
                &to_receiver
            } else {
                &Order::Ready
            };
            pair.order_each([&to_senders, passive])
        })?;
        Ok(Contestant::new(implementation, receiver, Box::new(Self(pairs))).with_config(config))
    }
}

impl Runner for Senders {
    fn run(&mut self, order: BenchOrder) -> anyhow::Result<Measured> {
        let senders = self.0.len();
        let replies = order_concurrently(&mut self.0, |sender, pair| {
            let order = Order::Bench(BenchOrder {
                senders,
                sender,
                ..order
            });
            let passive = if sender == 0 { &order } else { &Order::Ready };
            pair.order_each([&order, passive])
        })?;
        let receiver = replies.into_iter().next().map(|[_, passive]| passive);
        let timing = serde_json::from_value(receiver.unwrap_or_default());
        Ok(Measured::from_timing(
            timing.context("the receiver's reply is not a timing")?,
        ))
    }
}

/// Gives orders to all pairs at the same time, and returns all replies.
fn order_concurrently(
    pairs: &mut [Pair],
    order: impl Fn(usize, &mut Pair) -> anyhow::Result<[Value; 2]> + Sync,
) -> anyhow::Result<Vec<[Value; 2]>> {
    let order = &order;
    thread::scope(|scope| {
        let numbered = pairs.iter_mut().enumerate();
        let threads: Vec<_> = numbered
            .map(|(number, pair)| scope.spawn(move || order(number, pair)))
            .collect();
        let replies = threads.into_iter().map(|thread| match thread.join() {
            Ok(replies) => replies,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        replies.collect()
    })
}

/// Time for which a waiting process is measured: long compared with the cost of a wake-up.
const LINGER: Duration = Duration::from_millis(200);
