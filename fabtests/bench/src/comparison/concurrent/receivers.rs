//! One sender to several receivers.

use anyhow::Context as _;

use super::order_concurrently;
use crate::comparison::{Contestant, Measured, Runner};
use crate::fabric::{BenchOrder, OpenOrder, Opened, WaitStrategy};
use crate::pair::{Order, Pair, RunResult};

/// The passive processes of all pairs, and the active process of the first, which sends.
#[derive(Debug)]
pub struct Receivers(Vec<Pair>);

impl Receivers {
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
        let mut of_receivers = order.clone();
        if pairs.len() > 1 {
            // The receivers share a core.
            of_receivers.config.wait = WaitStrategy::Yield;
        }
        let orders = [Order::Open(order.clone()), Order::Open(of_receivers)];
        let mut sender = None;
        let mut addresses = Vec::new();
        for pair in &mut pairs {
            let active = match sender {
                None => &orders[0],
                Some(_) => &Order::Ready,
            };
            let [active, passive] = pair.order_each([active, &orders[1]])?;
            if sender.is_none() {
                sender = Some(serde_json::from_value::<Opened>(active)?);
            }
            addresses.push(serde_json::from_value::<Opened>(passive)?.address);
        }
        let sender = sender.context("no receiver")?;
        let to_sender = Order::Peers(addresses);
        let to_receivers = Order::Peer(sender.address.clone());
        order_concurrently(&mut pairs, |number, pair| {
            let active = if number == 0 {
                &to_sender
            } else {
                &Order::Ready
            };
            pair.order_each([active, &to_receivers])
        })?;
        Ok(Contestant::new(implementation, sender, Box::new(Self(pairs))).with_config(config))
    }
}

impl Runner for Receivers {
    fn run(&mut self, order: BenchOrder) -> anyhow::Result<Measured> {
        let order = Order::Bench(order);
        let replies = order_concurrently(&mut self.0, |number, pair| {
            let active = if number == 0 { &order } else { &Order::Ready };
            pair.order_each([active, &order])
        })?;
        let sender = replies.into_iter().next().map(|[active, _]| active);
        let ran = serde_json::from_value::<RunResult>(sender.unwrap_or_default());
        let ran = ran.context("the sender's reply is not the result of a run")?;
        Ok(Measured::from_timing(ran.timing))
    }
}
