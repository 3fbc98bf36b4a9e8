//! Streams: the active side sends a window of messages and the passive side acknowledges it. In the
//! bidirectional benchmarks both sides send windows at the same time. In the mixed benchmark, round
//! trips of single messages precede each window, and a message of the same size acknowledges it.
//!
//! The receiver has two windows of receives posted when a run begins. When a window has arrived,
//! the receiver first acknowledges it and then posts its receives again, so that the sender always
//! finds the other window posted. One read of the queue takes up to a window of completions.

use anyhow::ensure;
use selvedge::cq;

use super::message_api::{MessageApi, Purpose};
use crate::fabric::endpoint::BenchEndpoint;
use crate::fabric::order::BenchOrder;
use crate::fabric::posting::{Completion, Run, RxSlot, TxSlot};
use crate::measure::clock::Clock;
use crate::measure::timing::{Timing, stream};
use crate::pair::Side;

pub(in crate::fabric) fn run<A: MessageApi>(
    endpoint: &mut BenchEndpoint,
    side: Side,
    clock: Clock,
    order: BenchOrder,
) -> anyhow::Result<Timing> {
    let inject_size = if order.inject {
        endpoint.inject_size()
    } else {
        0
    };
    let windows = order.counts.total();
    let (run, rx, tx) = Run::<A>::begin(endpoint, order.size.max(ACK), order.window)?;
    let mut process = StreamProcess {
        run,
        size: order.size,
        window: order.window,
        inject_payload: order.size <= inject_size,
        inject_ack: ACK <= inject_size,
        verify: order.verify,
        to_post: match side {
            Side::Active => windows,
            Side::Passive => windows * order.window,
        },
        single_round_trips: order.single_round_trips(),
        posted: 0,
        sent: 0,
        received: 0,
        wanted: 0,
        expected: vec![0; 2 * order.window],
        rx,
        tx,
        entries: vec![cq::Entry::default(); order.window],
    };
    let messages = order.messages_per_window();
    let timing = match side {
        _ if order.bench.is_bidirectional() => {
            process.to_post = windows * order.window;
            process.post(2 * order.window, order.size, Purpose::Payload)?;
            stream(clock, order.counts, messages, || process.exchange_windows())?
        }
        Side::Active if order.bench.is_mixed() => {
            process.to_post = windows * (process.single_round_trips + 1);
            process.post(2, order.size, Purpose::Payload)?;
            stream(clock, order.counts, messages, || process.send_mixed())?
        }
        Side::Active => {
            process.post(2, ACK, Purpose::Ack)?;
            stream(clock, order.counts, messages, || process.send_window())?
        }
        Side::Passive if order.bench.is_mixed() => {
            process.to_post = windows * (process.single_round_trips + order.window);
            process.post(2 * order.window, order.size, Purpose::Payload)?;
            stream(clock, order.counts, messages, || process.receive_mixed())?
        }
        Side::Passive => {
            process.post(2 * order.window, order.size, Purpose::Payload)?;
            stream(clock, order.counts, messages, || process.receive_window())?
        }
    };
    if order.bench.is_bidirectional() {
        process.flush_injected()?;
    }
    process.run.end();
    Ok(timing)
}

#[derive(Debug)]
struct StreamProcess<'a, A> {
    run: Run<'a, A>,
    size: usize,
    window: usize,
    inject_payload: bool,
    inject_ack: bool,
    verify: bool,
    /// Receives that remain to be posted. The limit ensures that no posted receive remains at the
    /// end of the run.
    to_post: usize,
    /// Round trips of single messages before each window of the mixed benchmark.
    single_round_trips: usize,
    posted: u64,
    sent: u64,
    received: u64,
    /// Number of messages that must have arrived at the end of the current window.
    wanted: u64,
    /// Number of the next message of each receive buffer.
    expected: Vec<u64>,
    /// Free receive buffers.
    rx: Vec<RxSlot>,
    /// Free send buffers.
    tx: Vec<TxSlot>,
    entries: Vec<cq::Entry>,
}

impl<A: MessageApi> StreamProcess<'_, A> {
    /// Sends a window. Waits until all sends have completed and the peer's window has arrived,
    /// which serves as the acknowledgement.
    #[inline]
    fn exchange_windows(&mut self) -> anyhow::Result<()> {
        self.post_window()?;
        self.wanted += self.window as u64;
        self.wait(self.size, Self::check)?;
        self.post(self.window, self.size, Purpose::Payload)
    }

    /// Polls the queue until the last injected messages have left. The peer waits for these
    /// messages and sends no others.
    fn flush_injected(&mut self) -> anyhow::Result<()> {
        for _ in 0..FLUSH_READS {
            let count = self.run.read(&mut self.entries)?;
            ensure!(
                count == 0,
                "{count} completions although no operation is outstanding"
            );
            std::thread::yield_now();
        }
        Ok(())
    }

    #[inline]
    fn post_window(&mut self) -> anyhow::Result<()> {
        if self.verify {
            self.fill_window();
        }
        if self.inject_payload {
            for slot in &self.tx {
                self.run.inject(slot, self.size, Purpose::Payload)?;
            }
        } else {
            for slot in self.tx.drain(..) {
                self.run.send(slot, self.size, Purpose::Payload)?;
            }
        }
        Ok(())
    }

    /// Sends a window. Waits until all sends have completed and the peer has acknowledged the
    /// window.
    #[inline]
    fn send_window(&mut self) -> anyhow::Result<()> {
        self.post_window()?;
        self.wanted += 1;
        self.wait(ACK, |_, _| Ok(()))?;
        self.post(1, ACK, Purpose::Ack)
    }

    /// Receives a window, acknowledges it, and posts its receives again.
    #[inline]
    fn receive_window(&mut self) -> anyhow::Result<()> {
        self.wanted += self.window as u64;
        self.wait(self.size, Self::check)?;
        if self.inject_ack {
            self.run.inject(&self.tx[0], ACK, Purpose::Ack)?;
        } else {
            let slot = self.tx.pop().expect("`wait` returns with all send buffers");
            self.run.send(slot, ACK, Purpose::Ack)?;
        }
        self.post(self.window, self.size, Purpose::Payload)?;
        self.wait(self.size, Self::check)
    }

    /// Makes the round trips of single messages, and then sends a window, which one message of the
    /// same size acknowledges.
    #[inline]
    fn send_mixed(&mut self) -> anyhow::Result<()> {
        for _ in 0..self.single_round_trips {
            self.post_single()?;
            self.wait_for_reply()?;
        }
        self.post_window()?;
        self.wait_for_reply()
    }

    /// Responds to single messages, and then receives and acknowledges a window.
    #[inline]
    fn receive_mixed(&mut self) -> anyhow::Result<()> {
        for _ in 0..self.single_round_trips {
            self.reply_to(1)?;
        }
        self.reply_to(self.window)
    }

    /// Waits until one message has arrived and all sends have completed.
    #[inline]
    fn wait_for_reply(&mut self) -> anyhow::Result<()> {
        self.wanted += 1;
        self.wait(self.size, Self::check)?;
        self.post(1, self.size, Purpose::Payload)
    }

    /// Receives `count` messages, replies with one, and posts the receives again.
    #[inline]
    fn reply_to(&mut self, count: usize) -> anyhow::Result<()> {
        self.wanted += count as u64;
        self.wait(self.size, Self::check)?;
        self.post_single()?;
        self.post(count, self.size, Purpose::Payload)?;
        self.wait(self.size, Self::check)
    }

    /// Sends one message.
    #[inline]
    fn post_single(&mut self) -> anyhow::Result<()> {
        if self.inject_payload {
            if self.verify {
                self.fill_injected();
            }
            return self.run.inject(&self.tx[0], self.size, Purpose::Payload);
        }
        let slot = self.tx.pop().expect("`wait` returns with all send buffers");
        if self.verify {
            self.run.fill(&slot, self.size, self.sent);
            self.sent += 1;
        }
        self.run.send(slot, self.size, Purpose::Payload)
    }

    /// Posts up to `count` receives of `len` bytes.
    #[inline]
    fn post(&mut self, count: usize, len: usize, purpose: Purpose) -> anyhow::Result<()> {
        let count = count.min(self.to_post);
        self.to_post -= count;
        let first = self.rx.len() - count;
        for slot in self.rx.drain(first..) {
            self.expected[slot.index()] = self.posted;
            self.posted += 1;
            self.run.recv(slot, len, purpose)?;
        }
        Ok(())
    }

    /// Waits until `wanted` messages of `expected` bytes have arrived and all sends have completed.
    #[inline]
    fn wait(
        &mut self,
        expected: usize,
        check: fn(&Self, &RxSlot) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        while self.received < self.wanted || self.tx.len() < self.window {
            let count = self.run.read(&mut self.entries)?;
            for entry in &self.entries[..count] {
                match self.run.completion(entry)? {
                    Completion::Sent(slot) => self.tx.push(slot),
                    Completion::Received(slot, len) => {
                        ensure!(
                            len == expected,
                            "received {len} bytes of a message of {expected}"
                        );
                        if self.verify {
                            check(self, &slot)?;
                        }
                        self.received += 1;
                        self.rx.push(slot);
                    }
                }
            }
        }
        Ok(())
    }

    #[cold]
    fn fill_window(&mut self) {
        for slot in &self.tx {
            self.run.fill(slot, self.size, self.sent);
            self.sent += 1;
        }
    }

    #[cold]
    fn fill_injected(&mut self) {
        self.run.fill(&self.tx[0], self.size, self.sent);
        self.sent += 1;
    }

    #[cold]
    fn check(&self, slot: &RxSlot) -> anyhow::Result<()> {
        self.run.check(slot, self.size, self.expected[slot.index()])
    }
}

/// Bytes of an acknowledgement.
const ACK: usize = 4;
/// Number of reads of the queue within which a window of injected messages leaves.
const FLUSH_READS: usize = 500;
