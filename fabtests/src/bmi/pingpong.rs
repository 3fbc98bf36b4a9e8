//! Round trips: each side sends when the other's message has arrived, and posts its next receive
//! while the answer is on its way.

#![expect(unsafe_code, reason = "posts are promises about memory")]

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::ensure;
use selvedge_bench::clock::Clock;
use selvedge_bench::fabric::BenchOrder;
use selvedge_bench::pair::Side;
use selvedge_bench::timing::{Timing, round_trips};
use selvedge_bmi::Posted;

use super::Station;
use super::station::{Purpose, Room};

pub(super) fn run(
    station: &Station,
    side: Side,
    clock: Clock,
    order: BenchOrder,
) -> anyhow::Result<Timing> {
    let mut player = Player {
        station,
        size: order.size,
        rx: station.buffers(2, order.size)?,
        tx: station.buffers(1, order.size)?.remove(0),
        to_post: order.counts.total(),
        posted: VecDeque::new(),
        sent: None,
        next: 0,
    };
    player.post()?;
    let timing = round_trips(clock, order.counts, || match side {
        Side::Active => {
            player.send()?;
            player.post()?;
            player.receive()
        }
        Side::Passive => {
            player.receive()?;
            player.send()?;
            player.post()
        }
    })?;
    player.settle()?;
    Ok(timing)
}

#[derive(Debug)]
struct Player<'a> {
    station: &'a Station,
    size: usize,
    rx: Vec<Room>,
    tx: Room,
    /// Receives that are still to be posted: none is left over at the end.
    to_post: usize,
    posted: VecDeque<Posted>,
    /// A send that goes on.
    sent: Option<Posted>,
    next: usize,
}

impl Player<'_> {
    #[inline]
    fn post(&mut self) -> anyhow::Result<()> {
        if self.to_post == 0 {
            return Ok(());
        }
        self.to_post -= 1;
        let buffer = &mut self.rx[self.next];
        self.next = 1 - self.next;
        // SAFETY: the buffer's last message was received: one of two is posted at most when this is
        // called, and they take turns; a run that ends early ends the process.
        self.posted
            .push_back(unsafe { self.station.recv(buffer, Purpose::Payload, 0) }?);
        Ok(())
    }

    #[inline]
    fn send(&mut self) -> anyhow::Result<()> {
        self.settle()?;
        // SAFETY: `settle` has seen the last send's end; nobody writes the buffer.
        self.sent = Some(unsafe { self.station.send(&self.tx, Purpose::Payload, 0) }?);
        Ok(())
    }

    #[inline]
    fn receive(&mut self) -> anyhow::Result<()> {
        let len = match self.posted.pop_front() {
            Some(posted) => self.finish(&posted)?,
            None => 0,
        };
        ensure!(
            len == self.size as u64,
            "{len} bytes arrived, not {}",
            self.size
        );
        Ok(())
    }

    /// Waits for the last send.
    #[inline]
    fn settle(&mut self) -> anyhow::Result<()> {
        match self.sent.take() {
            Some(sent) => self.finish(&sent).map(|_| ()),
            None => Ok(()),
        }
    }

    #[inline]
    fn finish(&self, posted: &Posted) -> anyhow::Result<u64> {
        let id = match *posted {
            Posted::Done(len) => return Ok(len),
            Posted::Pending(id) => id,
        };
        loop {
            let (bmi, context) = (&self.station.bmi, self.station.context);
            if let Some(done) = bmi.test(id, Duration::ZERO, context)? {
                return Ok(done.outcome?);
            }
        }
    }
}
