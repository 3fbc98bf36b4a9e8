//! Round trips: each side sends when the other side's message has arrived, and posts its next
//! receive while the response is in transit.

#![expect(unsafe_code, reason = "posts are promises about memory")]

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::ensure;
use selvedge_bench::clock::Clock;
use selvedge_bench::fabric::BenchOrder;
use selvedge_bench::pair::Side;
use selvedge_bench::timing::{Timing, round_trips};
use selvedge_bmi::Posted;

use super::MethodInstance;
use super::instance::{MessageBuffer, MessageKind};

pub(super) fn run(
    instance: &MethodInstance,
    side: Side,
    clock: Clock,
    order: BenchOrder,
) -> anyhow::Result<Timing> {
    let mut state = Pingpong {
        instance,
        size: order.size,
        rx: instance.buffers(2, order.size)?,
        tx: instance.buffers(1, order.size)?.remove(0),
        to_post: order.counts.total(),
        posted: VecDeque::new(),
        sent: None,
        next: 0,
    };
    state.post()?;
    let timing = round_trips(clock, order.counts, || match side {
        Side::Active => {
            state.send()?;
            state.post()?;
            state.receive()
        }
        Side::Passive => {
            state.receive()?;
            state.send()?;
            state.post()
        }
    })?;
    state.finish_send()?;
    Ok(timing)
}

#[derive(Debug)]
struct Pingpong<'a> {
    instance: &'a MethodInstance,
    size: usize,
    rx: Vec<MessageBuffer>,
    tx: MessageBuffer,
    /// Number of receives that are still to be posted. It is limited, so that no receive is
    /// outstanding at the end.
    to_post: usize,
    posted: VecDeque<Posted>,
    /// A send that is not complete.
    sent: Option<Posted>,
    next: usize,
}

impl Pingpong<'_> {
    #[inline]
    fn post(&mut self) -> anyhow::Result<()> {
        if self.to_post == 0 {
            return Ok(());
        }
        self.to_post -= 1;
        let buffer = &mut self.rx[self.next];
        self.next = 1 - self.next;
        // SAFETY: this buffer is not posted: at most one of the two buffers is posted when this
        // function is called, and the buffers alternate. A run that fails ends the process.
        self.posted
            .push_back(unsafe { self.instance.recv(buffer, MessageKind::Payload, 0) }?);
        Ok(())
    }

    #[inline]
    fn send(&mut self) -> anyhow::Result<()> {
        self.finish_send()?;
        // SAFETY: `finish_send` has seen the last send's completion, and nothing writes the buffer.
        self.sent = Some(unsafe { self.instance.send(&self.tx, MessageKind::Payload, 0) }?);
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
            "a message of {len} bytes arrived instead of {}",
            self.size
        );
        Ok(())
    }

    /// Waits for the last send.
    #[inline]
    fn finish_send(&mut self) -> anyhow::Result<()> {
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
            let (bmi, context) = (&self.instance.bmi, self.instance.context);
            if let Some(done) = bmi.test(id, Duration::ZERO, context)? {
                return Ok(done.outcome?);
            }
        }
    }
}
