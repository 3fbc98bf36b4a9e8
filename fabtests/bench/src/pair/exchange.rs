//! Round trips over any API: each side sends when the other's message has arrived.
//!
//! Two receives are posted at any time, so that the next one is posted while a message is on its
//! way and not between a message and its answer. One completion is read at a time.

use anyhow::ensure;

use crate::clock::Clock;
use crate::timing::{Counts, Timing, round_trips};

/// An API that messages of one size are exchanged through. A post takes its buffer, and the completion
/// gives it back.
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

    /// Reads a completion, or waits as the benchmark does.
    fn read(&mut self) -> anyhow::Result<Option<Done<Self::Rx, Self::Tx>>>;

    /// Fills a buffer with the content of the message of this number.
    fn fill(&self, buf: &mut Self::Tx, number: u64);

    /// Compares a buffer with the content of the message of this number.
    fn check(&self, buf: &Self::Rx, number: u64) -> anyhow::Result<()>;
}

/// A completion.
#[derive(Debug)]
pub(crate) enum Done<Rx, Tx> {
    /// A message of this many bytes is in the buffer.
    Received(Rx, usize),
    /// The buffer may be used again.
    Sent(Tx),
}

/// One side's part in a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// Whether this side sends first.
    pub(crate) is_active: bool,
    /// Bytes of a message.
    pub(crate) size: usize,
    /// Whether messages are injected.
    pub(crate) inject: bool,
    /// Whether messages are filled with their content, and compared with it where they arrive.
    pub(crate) verify: bool,
    pub(crate) counts: Counts,
}

/// Takes part in a run, with two receive buffers and a send buffer.
///
/// # Errors
/// Those of the API; a message of another length or content.
pub(crate) fn run<M: Messages>(
    messages: &mut M,
    (rx, tx): ([M::Rx; 2], M::Tx),
    clock: Clock,
    part: Part,
) -> anyhow::Result<Timing> {
    let mut player = Player {
        messages,
        size: part.size,
        inject: part.inject,
        verify: part.verify,
        to_post: part.counts.total(),
        sent: 0,
        received: 0,
        rx: None,
        tx: Some(tx),
    };
    let [first, spare] = rx;
    player.repost(first)?;
    player.rx = Some(spare);
    let timing = round_trips(clock, part.counts, || match part.is_active {
        true => {
            player.send()?;
            player.prepare()?;
            player.receive()
        }
        false => {
            player.receive()?;
            player.send()?;
            player.prepare()
        }
    })?;
    player.settle()?;
    Ok(timing)
}

struct Player<'a, M: Messages> {
    messages: &'a mut M,
    size: usize,
    inject: bool,
    verify: bool,
    /// Receives that are still to be posted: none is left over at the end.
    to_post: usize,
    sent: u64,
    received: u64,
    /// The receive buffer that is free; `None` while both are posted.
    rx: Option<M::Rx>,
    /// The send buffer; `None` while a send has it.
    tx: Option<M::Tx>,
}

impl<M: Messages> Player<'_, M> {
    #[inline]
    fn send(&mut self) -> anyhow::Result<()> {
        let Some(mut buf) = self.tx.take() else {
            unreachable!("`receive` returns with the send buffer")
        };
        if self.verify {
            self.messages.fill(&mut buf, self.sent);
        }
        self.sent += 1;
        if self.inject {
            let result = self.messages.inject(&buf);
            self.tx = Some(buf);
            result
        } else {
            self.messages.post_send(buf)
        }
    }

    /// Posts the receive buffer that is free.
    #[inline]
    fn prepare(&mut self) -> anyhow::Result<()> {
        match self.rx.take() {
            Some(buf) => self.repost(buf),
            None => Ok(()),
        }
    }

    #[inline]
    fn repost(&mut self, buf: M::Rx) -> anyhow::Result<()> {
        if self.to_post == 0 {
            return Ok(());
        }
        self.to_post -= 1;
        self.messages.post_recv(buf)
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
        match self.messages.read()? {
            None => {}
            Some(Done::Sent(buf)) => self.tx = Some(buf),
            Some(Done::Received(buf, len)) => {
                ensure!(
                    len == self.size,
                    "{len} bytes arrived of a message of {}",
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

    /// Waits for the last send.
    fn settle(mut self) -> anyhow::Result<()> {
        while self.tx.is_none() {
            self.read()?;
        }
        Ok(())
    }
}
