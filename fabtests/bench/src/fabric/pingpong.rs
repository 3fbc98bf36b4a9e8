//! Round trips: each side sends when the other's message has arrived.
//!
//! Two receives are posted at any time, so that the next one is posted while a message is on its
//! way and not between a message and its answer. One completion is read at a time.

use anyhow::ensure;
use selvedge::cq;

use super::BenchOrder;
use super::face::{Face, Purpose};
use super::station::Station;
use super::wire::{Done, Run, RxSlot, TxSlot};
use crate::clock::Clock;
use crate::pair::Side;
use crate::timing::{Timing, round_trips};

pub(super) fn run<F: Face>(
    station: &mut Station,
    side: Side,
    clock: Clock,
    order: BenchOrder,
) -> anyhow::Result<Timing> {
    let inject = order.inject && order.size <= station.inject_size();
    let (run, mut rx, tx) = Run::<F>::begin(station, order.size, 1)?;
    let total = order.counts.total();
    let mut player = Player {
        run,
        size: order.size,
        inject,
        verify: order.verify,
        to_post: total,
        sent: 0,
        received: 0,
        // As many as there are receive buffers: two.
        rx: rx.pop(),
        tx: tx.into_iter().next(),
        entry: [cq::Entry::default()],
    };
    for slot in rx {
        player.repost(slot)?;
    }
    let timing = round_trips(clock, order.counts, || match side {
        Side::Active => {
            player.send()?;
            player.prepare()?;
            player.receive()
        }
        Side::Passive => {
            player.receive()?;
            player.send()?;
            player.prepare()
        }
    })?;
    player.settle()?;
    Ok(timing)
}

#[derive(Debug)]
struct Player<'a, F> {
    run: Run<'a, F>,
    size: usize,
    inject: bool,
    verify: bool,
    /// Receives that are still to be posted: none is left over at the end.
    to_post: usize,
    sent: u64,
    received: u64,
    /// The receive buffer that is free; `None` while both are posted.
    rx: Option<RxSlot>,
    /// The send buffer; `None` while a send has it.
    tx: Option<TxSlot>,
    entry: [cq::Entry; 1],
}

impl<F: Face> Player<'_, F> {
    #[inline]
    fn send(&mut self) -> anyhow::Result<()> {
        let Some(slot) = self.tx.take() else {
            unreachable!("`receive` returns with the send buffer")
        };
        if self.verify {
            self.run.fill(&slot, self.size, self.sent);
        }
        self.sent += 1;
        if self.inject {
            let result = self.run.inject(&slot, self.size, Purpose::Payload);
            self.tx = Some(slot);
            result
        } else {
            self.run.send(slot, self.size, Purpose::Payload)
        }
    }

    /// Posts the receive buffer that is free.
    #[inline]
    fn prepare(&mut self) -> anyhow::Result<()> {
        match self.rx.take() {
            Some(slot) => self.repost(slot),
            None => Ok(()),
        }
    }

    #[inline]
    fn repost(&mut self, slot: RxSlot) -> anyhow::Result<()> {
        if self.to_post == 0 {
            return Ok(());
        }
        self.to_post -= 1;
        self.run.recv(slot, self.size, Purpose::Payload)
    }

    /// Waits for a message, and for the last send.
    #[inline]
    fn receive(&mut self) -> anyhow::Result<()> {
        let wanted = self.received + 1;
        while self.received != wanted || self.tx.is_none() {
            self.read()?;
        }
        Ok(())
    }

    #[inline]
    fn read(&mut self) -> anyhow::Result<()> {
        if self.run.read(&mut self.entry)? == 0 {
            return Ok(());
        }
        match self.run.done(&self.entry[0])? {
            Done::Sent(slot) => self.tx = Some(slot),
            Done::Received(slot, len) => {
                ensure!(
                    len == self.size,
                    "{len} bytes arrived of a message of {}",
                    self.size
                );
                if self.verify {
                    self.run.check(&slot, len, self.received)?;
                }
                self.received += 1;
                self.rx = Some(slot);
            }
        }
        Ok(())
    }

    /// Waits for the last send and ends the run.
    fn settle(mut self) -> anyhow::Result<()> {
        while self.tx.is_none() {
            self.read()?;
        }
        self.run.end();
        Ok(())
    }
}
