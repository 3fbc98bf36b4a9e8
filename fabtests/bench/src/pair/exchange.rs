//! Round trips over any message API: each side sends when the other side's message has arrived.
//!
//! Each side has two receives, so that it posts the next receive while a message is in flight and
//! not between a message and its reply. One read returns at most one completion.

use anyhow::ensure;

use crate::measure::clock::Clock;
use crate::measure::timing::{Counts, Timing, round_trips, single_trips};

/// A message API for messages of one size. A post takes its buffer, and the completion returns it.
pub(crate) trait Messages {
    /// A receive buffer.
    type Rx;
    /// A send buffer.
    type Tx;

    /// Posts a receive.
    fn post_recv(&mut self, buf: Self::Rx) -> anyhow::Result<()>;

    /// Posts a send.
    fn post_send(&mut self, buf: Self::Tx) -> anyhow::Result<()>;

    /// Sends a copy of a buffer.
    fn inject(&mut self, buf: &Self::Tx) -> anyhow::Result<()>;

    /// Reads a completion. If there is none, waits once as the benchmark is configured and returns
    /// `None`.
    fn read(&mut self) -> anyhow::Result<Option<Completion<Self::Rx, Self::Tx>>>;

    /// Fills a buffer with the content of message `number`.
    fn fill(&self, buf: &mut Self::Tx, number: u64);

    /// Compares a buffer with the content of message `number`.
    fn check(&self, buf: &Self::Rx, number: u64) -> anyhow::Result<()>;
}

/// A completion.
#[derive(Debug)]
pub(crate) enum Completion<Rx, Tx> {
    /// A message of this many bytes is in the buffer.
    Received(Rx, usize),
    /// The buffer may be used again.
    Sent(Tx),
}

/// Parameters of one side's round trips.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PingpongParams {
    /// Whether this side sends first.
    pub(crate) is_active: bool,
    /// Bytes of a message.
    pub(crate) size: usize,
    /// Whether messages are injected.
    pub(crate) inject: bool,
    /// Whether messages are filled with the pattern and checked on arrival.
    pub(crate) verify: bool,
    /// Whether each round trip is timed by itself, and their mean is that of all.
    pub(crate) timed_singly: bool,
    /// Number of round trips.
    pub(crate) counts: Counts,
}

/// Runs one side of the round trips, with two receive buffers and a send buffer.
///
/// # Errors
/// The message API's error; an error for a message of wrong length or content.
pub(crate) fn run<M: Messages>(
    messages: &mut M,
    (rx, tx): ([M::Rx; 2], M::Tx),
    clock: Clock,
    params: PingpongParams,
) -> anyhow::Result<Timing> {
    let mut process = PingpongProcess {
        messages,
        size: params.size,
        inject: params.inject,
        verify: params.verify,
        to_post: params.counts.total(),
        sent: 0,
        received: 0,
        rx: None,
        tx: Some(tx),
    };
    let [first, spare] = rx;
    process.post_receive(first)?;
    process.rx = Some(spare);
    let time = if params.timed_singly {
        single_trips
    } else {
        round_trips
    };
    let timing = time(clock, params.counts, || {
        if params.is_active {
            process.send()?;
            process.post_free_receive()?;
            process.receive()
        } else {
            process.receive()?;
            process.send()?;
            process.post_free_receive()
        }
    })?;
    process.wait_for_last_send()?;
    Ok(timing)
}

struct PingpongProcess<'a, M: Messages> {
    messages: &'a mut M,
    size: usize,
    inject: bool,
    verify: bool,
    /// Receives that remain to be posted. The limit ensures that no posted receive remains at the
    /// end of the run.
    to_post: usize,
    sent: u64,
    received: u64,
    /// The free receive buffer; `None` while both are posted.
    rx: Option<M::Rx>,
    /// The send buffer; `None` while a send uses it.
    tx: Option<M::Tx>,
}

impl<M: Messages> PingpongProcess<'_, M> {
    #[inline]
    fn send(&mut self) -> anyhow::Result<()> {
        let Some(buf) = &mut self.tx else {
            unreachable!("`receive` returns with the send buffer")
        };
        if self.verify {
            self.messages.fill(buf, self.sent);
        }
        self.sent += 1;
        if self.inject {
            return self.messages.inject(buf);
        }
        match self.tx.take() {
            Some(buf) => self.messages.post_send(buf),
            None => Ok(()),
        }
    }

    /// Posts the free receive buffer.
    #[inline]
    fn post_free_receive(&mut self) -> anyhow::Result<()> {
        match self.rx.take() {
            Some(buf) => self.post_receive(buf),
            None => Ok(()),
        }
    }

    #[inline]
    fn post_receive(&mut self, buf: M::Rx) -> anyhow::Result<()> {
        if self.to_post == 0 {
            return Ok(());
        }
        self.to_post -= 1;
        self.messages.post_recv(buf)
    }

    /// Waits for a message and for the completion of the last send.
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
        match self.messages.read()? {
            None => {}
            Some(Completion::Sent(buf)) => self.tx = Some(buf),
            Some(Completion::Received(buf, len)) => {
                ensure!(
                    len == self.size,
                    "received {len} bytes of a message of {}",
                    self.size
                );
                if self.verify {
                    self.messages.check(&buf, self.received)?;
                }
                self.received += 1;
                self.rx = Some(buf);
            }
        }
        Ok(())
    }

    /// Waits for the completion of the last send. Polls at least once, because a provider may keep
    /// an injected message until the next poll, and the peer waits for it.
    fn wait_for_last_send(mut self) -> anyhow::Result<()> {
        self.read()?;
        while self.tx.is_none() {
            self.read()?;
        }
        Ok(())
    }
}
