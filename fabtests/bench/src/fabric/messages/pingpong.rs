//! Round trips over the raw endpoint.

use anyhow::Context as _;
use selvedge::cq;

use super::message_api::{MessageApi, Purpose};
use crate::fabric::endpoint::BenchEndpoint;
use crate::fabric::order::BenchOrder;
use crate::fabric::posting::{Completion, Run, RxSlot, TxSlot};
use crate::measure::clock::Clock;
use crate::measure::timing::Timing;
use crate::pair::Side;
use crate::pair::exchange::{self, Messages};

pub(in crate::fabric) fn run<A: MessageApi>(
    endpoint: &mut BenchEndpoint,
    side: Side,
    clock: Clock,
    order: BenchOrder,
) -> anyhow::Result<Timing> {
    let params = order.pingpong_params(side, endpoint.inject_size());
    let (run, rx, tx) = Run::<A>::begin(endpoint, order.size, 1)?;
    let mut raw = RawMessages {
        run,
        size: order.size,
        entry: [cq::Entry::default()],
    };
    let rx = rx.try_into().ok().context("two receive buffers")?;
    let tx = tx.into_iter().next().context("a send buffer")?;
    let timing = exchange::run(&mut raw, (rx, tx), clock, params)?;
    raw.run.end();
    Ok(timing)
}

/// The message API of the raw endpoint.
struct RawMessages<'a, A> {
    run: Run<'a, A>,
    size: usize,
    entry: [cq::Entry; 1],
}

impl<A: MessageApi> Messages for RawMessages<'_, A> {
    type Rx = RxSlot;
    type Tx = TxSlot;

    #[inline]
    fn post_recv(&mut self, slot: RxSlot) -> anyhow::Result<()> {
        self.run.recv(slot, self.size, Purpose::Payload)
    }

    #[inline]
    fn post_send(&mut self, slot: TxSlot) -> anyhow::Result<()> {
        self.run.send(slot, self.size, Purpose::Payload)
    }

    #[inline]
    fn inject(&mut self, slot: &TxSlot) -> anyhow::Result<()> {
        self.run.inject(slot, self.size, Purpose::Payload)
    }

    #[inline]
    fn read(&mut self) -> anyhow::Result<Option<Completion>> {
        match self.run.read(&mut self.entry)? {
            0 => Ok(None),
            _ => self.run.completion(&self.entry[0]).map(Some),
        }
    }

    fn fill(&self, slot: &mut TxSlot, number: u64) {
        self.run.fill(slot, self.size, number);
    }

    fn check(&self, slot: &RxSlot, number: u64) -> anyhow::Result<()> {
        self.run.check(slot, self.size, number)
    }
}
