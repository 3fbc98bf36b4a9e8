//! Streams: the active side sends a window of messages, the passive side acknowledges it.
//!
//! The receiver has two windows of receives posted when a run begins. When one window has arrived,
//! the receiver acknowledges it first and then posts its receives again.

#![expect(unsafe_code, reason = "posts are promises about memory")]

use std::time::Duration;

use anyhow::ensure;
use selvedge_bench::clock::Clock;
use selvedge_bench::fabric::BenchOrder;
use selvedge_bench::pair::Side;
use selvedge_bench::timing::{Timing, stream};
use selvedge_bmi::Posted;

use super::MethodInstance;
use super::instance::{MessageBuffer, MessageKind};

pub(super) fn run(
    instance: &MethodInstance,
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
        instance,
        size: order.size,
        window: order.window,
        rx: instance.buffers(rx, order.size.max(ACK))?,
        tx: instance.buffers(tx, order.size.max(ACK))?,
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
    instance: &'a MethodInstance,
    size: usize,
    window: usize,
    rx: Vec<MessageBuffer>,
    tx: Vec<MessageBuffer>,
    /// Receive buffers that are not posted.
    free: Vec<usize>,
    /// The number of receives that are still to be posted. A run posts as many receives as messages
    /// arrive, so no receive stays posted at its end.
    to_post: usize,
    received: usize,
    sending: usize,
}

/// Bytes of an acknowledgement.
const ACK: usize = 4;
/// The user pointer of sends; that of a receive is its buffer's index.
const SEND: u64 = u64::MAX;

impl Flow<'_> {
    /// Posts all receives that have a free buffer.
    #[inline]
    fn post(&mut self, side: Side) -> anyhow::Result<()> {
        let (len, kind) = match side {
            Side::Active => (ACK, MessageKind::Ack),
            Side::Passive => (self.size, MessageKind::Payload),
        };
        let mut completed = Vec::new();
        while self.to_post > 0
            && let Some(index) = self.free.pop()
        {
            self.to_post -= 1;
            let buffer = &mut self.rx[index][..len];
            // SAFETY: the buffer is not posted. A run that ends early ends the process, so that no
            // buffer is freed while it is posted.
            match unsafe { self.instance.recv(buffer, kind, index as u64) }? {
                Posted::Done(_) => {
                    self.received += 1;
                    completed.push(index);
                }
                Posted::Pending(_) => {}
            }
        }
        self.free.extend(completed);
        Ok(())
    }

    #[inline]
    fn send_window(&mut self) -> anyhow::Result<()> {
        for index in 0..self.window {
            self.send(index, self.size, MessageKind::Payload)?;
        }
        self.wait(1)?;
        self.post(Side::Active)
    }

    #[inline]
    fn receive_window(&mut self) -> anyhow::Result<()> {
        self.wait(self.window)?;
        self.send(0, ACK, MessageKind::Ack)?;
        self.post(Side::Passive)?;
        while self.sending > 0 {
            self.collect()?;
        }
        Ok(())
    }

    #[inline]
    fn send(&mut self, index: usize, len: usize, kind: MessageKind) -> anyhow::Result<()> {
        let buffer = &self.tx[index][..len];
        // SAFETY: all sends of the last window are complete, and nothing writes the buffers.
        if let Posted::Pending(_) = unsafe { self.instance.send(buffer, kind, SEND) }? {
            self.sending += 1;
        }
        Ok(())
    }

    /// Waits until `count` more messages have arrived and all sends are complete.
    #[inline]
    fn wait(&mut self, count: usize) -> anyhow::Result<()> {
        while self.received < count || self.sending > 0 {
            self.collect()?;
        }
        self.received -= count;
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
        let (bmi, context) = (&self.instance.bmi, self.instance.context);
        bmi.testcontext(32, Duration::ZERO, context, |done| {
            failed = failed.or_else(|| done.outcome.err());
            match done.user {
                SEND => *sending -= 1,
                index => {
                    *received += 1;
                    free.push(index as usize);
                }
            }
        })?;
        ensure!(failed.is_none(), "a BMI operation failed: {failed:?}");
        Ok(())
    }
}
