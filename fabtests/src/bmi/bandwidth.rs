//! Streams: the active side sends a window of messages, the passive side acknowledges it.
//!
//! The receiver has two windows of receives posted when a run begins; when one has arrived, it is
//! acknowledged first and posted again then.

#![expect(unsafe_code, reason = "posts are promises about memory")]

use std::time::Duration;

use anyhow::ensure;
use selvedge_bench::clock::Clock;
use selvedge_bench::fabric::BenchOrder;
use selvedge_bench::pair::Side;
use selvedge_bench::timing::{Timing, stream};
use selvedge_bmi::Posted;

use super::Station;
use super::station::{Purpose, Room};

pub(super) fn run(
    station: &Station,
    side: Side,
    clock: Clock,
    order: BenchOrder,
) -> anyhow::Result<Timing> {
    let windows = order.counts.warmup + order.counts.batch;
    let (rx, tx) = match side {
        Side::Active => (1, order.window),
        Side::Passive => (2 * order.window, 1),
    };
    let mut flow = Flow {
        station,
        size: order.size,
        window: order.window,
        rx: station.buffers(rx, order.size.max(ACK))?,
        tx: station.buffers(tx, order.size.max(ACK))?,
        free: Vec::new(),
        to_post: match side {
            Side::Active => windows,
            Side::Passive => windows * order.window,
        },
        received: 0,
        sending: 0,
    };
    flow.free = (0..flow.rx.len()).collect();
    flow.post(side)?;
    stream(clock, order.counts, order.window, || match side {
        Side::Active => flow.send_window(),
        Side::Passive => flow.receive_window(),
    })
}

#[derive(Debug)]
struct Flow<'a> {
    station: &'a Station,
    size: usize,
    window: usize,
    rx: Vec<Room>,
    tx: Vec<Room>,
    /// Receive buffers that are not posted.
    free: Vec<usize>,
    /// Receives that are still to be posted: none is left over at the end.
    to_post: usize,
    received: usize,
    sending: usize,
}

/// Bytes of an acknowledgement.
const ACK: usize = 4;
/// The word of sends; that of receives is their buffer's number.
const SEND: u64 = u64::MAX;

impl Flow<'_> {
    /// Posts all receives that can be.
    #[inline]
    fn post(&mut self, side: Side) -> anyhow::Result<()> {
        let (len, purpose) = match side {
            Side::Active => (ACK, Purpose::Ack),
            Side::Passive => (self.size, Purpose::Payload),
        };
        let mut arrived = Vec::new();
        while self.to_post > 0
            && let Some(number) = self.free.pop()
        {
            self.to_post -= 1;
            let buffer = &mut self.rx[number][..len];
            // SAFETY: the buffer is not posted; a run that ends early ends the process.
            match unsafe { self.station.recv(buffer, purpose, number as u64) }? {
                Posted::Done(_) => {
                    self.received += 1;
                    arrived.push(number);
                }
                Posted::Pending(_) => {}
            }
        }
        self.free.extend(arrived);
        Ok(())
    }

    #[inline]
    fn send_window(&mut self) -> anyhow::Result<()> {
        for number in 0..self.window {
            self.send(number, self.size, Purpose::Payload)?;
        }
        self.wait(1)?;
        self.post(Side::Active)
    }

    #[inline]
    fn receive_window(&mut self) -> anyhow::Result<()> {
        self.wait(self.window)?;
        self.send(0, ACK, Purpose::Ack)?;
        self.post(Side::Passive)?;
        while self.sending > 0 {
            self.collect()?;
        }
        Ok(())
    }

    #[inline]
    fn send(&mut self, number: usize, len: usize, purpose: Purpose) -> anyhow::Result<()> {
        let buffer = &self.tx[number][..len];
        // SAFETY: all sends of the last window are over; nobody writes the buffers.
        if let Posted::Pending(_) = unsafe { self.station.send(buffer, purpose, SEND) }? {
            self.sending += 1;
        }
        Ok(())
    }

    /// Waits until `wanted` messages have arrived that were not waited for, and everything is sent.
    #[inline]
    fn wait(&mut self, wanted: usize) -> anyhow::Result<()> {
        while self.received < wanted || self.sending > 0 {
            self.collect()?;
        }
        self.received -= wanted;
        Ok(())
    }

    #[inline]
    fn collect(&mut self) -> anyhow::Result<()> {
        let Self {
            free,
            received,
            sending,
            ..
        } = self;
        let mut failed = None;
        let (bmi, context) = (&self.station.bmi, self.station.context);
        bmi.testcontext(32, Duration::ZERO, context, |done| {
            failed = failed.or_else(|| done.outcome.err());
            match done.user {
                SEND => *sending -= 1,
                number => {
                    *received += 1;
                    free.push(number as usize);
                }
            }
        })?;
        ensure!(failed.is_none(), "an operation has failed: {failed:?}");
        Ok(())
    }
}
