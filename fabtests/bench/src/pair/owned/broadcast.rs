//! Broadcasts over the safe layer: one sender sends one shared buffer to several receivers.
//!
//! A broadcast ends when every receiver has checked the ends of the message and the sender has its
//! buffer back. A lent message comes back with its completion. The receiver of an ordinary message,
//! which may complete before it arrives, acknowledges it.

use anyhow::{Context as _, anyhow, ensure};
use selvedge::owned::{Buf, Completion, Completions, Pool, SharedBuf, TryPostError};
use selvedge::{Errno, FiAddr};

use super::endpoint::{OwnedEndpoint, RECEIVED, SENT, TAG, buffer};
use crate::fabric::{BenchOrder, ends};
use crate::measure::clock::Clock;
use crate::measure::timing::{Timing, single_trips};
use crate::pair::Side;

/// Runs one side: the active one sends.
pub(super) fn run(
    endpoint: &OwnedEndpoint,
    side: Side,
    clock: Clock,
    order: BenchOrder,
) -> anyhow::Result<Timing> {
    ensure!(
        !order.verify,
        "messages of a broadcast cannot be verified: leave out the check"
    );
    match side {
        Side::Active => Sender::new(endpoint, order.size)?.run(clock, order),
        Side::Passive => Receiver::new(endpoint, order)?.run(order),
    }
}

struct Sender<'a> {
    endpoint: &'a OwnedEndpoint,
    completions: Completions,
    acknowledgements: Pool,
    /// The message, while no broadcast uses it.
    message: Option<Buf>,
    number: u64,
}

impl<'a> Sender<'a> {
    fn new(endpoint: &'a OwnedEndpoint, size: usize) -> anyhow::Result<Self> {
        let receivers = endpoint.peers.len();
        let pool = endpoint.pool(1, size, endpoint.lent)?;
        Ok(Self {
            endpoint,
            completions: Completions::with_capacity(2 * receivers),
            acknowledgements: endpoint.pool(receivers, ACK.len(), false)?,
            message: Some(buffer(&pool, size)?),
            number: 0,
        })
    }

    fn run(mut self, clock: Clock, order: BenchOrder) -> anyhow::Result<Timing> {
        single_trips(clock, order.counts, || self.broadcast())
    }

    fn broadcast(&mut self) -> anyhow::Result<()> {
        let endpoint = self.endpoint;
        let mut message = self.message.take().context("the buffer is not back")?;
        self.number += 1;
        ends::write(&mut message, self.number);
        let message = SharedBuf::from(message);
        for &peer in &endpoint.peers {
            if !endpoint.lent {
                let buf = self.acknowledgements.take();
                let buf = buf.context("no buffer for an acknowledgement is free")?;
                let posted = endpoint.ep.trecv(buf, peer, ACK_TAG, RECEIVED);
                posted.map_err(|error| refused("a receive", &error))?;
            }
            while let Err(error) = endpoint.ep.tlend_shared(&message, peer, TAG, SENT) {
                ensure!(error.errno == Errno::Again, refused("a send", &error));
                poll(endpoint, &mut self.completions)?;
            }
        }
        let mut remaining = endpoint.peers.len() * if endpoint.lent { 1 } else { 2 };
        while remaining > 0 {
            poll(endpoint, &mut self.completions)?;
            for completion in self.completions.drain() {
                succeeded(completion)?;
                remaining -= 1;
            }
        }
        let message = message.into_buf();
        self.message = Some(message.map_err(|_| anyhow!("an operation still uses the buffer"))?);
        Ok(())
    }
}

struct Receiver<'a> {
    endpoint: &'a OwnedEndpoint,
    completions: Completions,
    pool: Pool,
    /// Receives that remain to be posted: none is left at the end of a run.
    to_post: usize,
}

impl<'a> Receiver<'a> {
    fn new(endpoint: &'a OwnedEndpoint, order: BenchOrder) -> anyhow::Result<Self> {
        let mut receiver = Self {
            endpoint,
            completions: Completions::with_capacity(1),
            pool: endpoint.pool(3, order.size, false)?,
            to_post: order.counts.total(),
        };
        receiver.post()?;
        receiver.post()?;
        Ok(receiver)
    }

    /// Posts a receive, if one remains.
    fn post(&mut self) -> anyhow::Result<()> {
        if self.to_post == 0 {
            return Ok(());
        }
        self.to_post -= 1;
        let OwnedEndpoint { ep, lent, .. } = self.endpoint;
        let buf = self.pool.take().context("no receive buffer is free")?;
        let posted = if *lent {
            ep.trecv_lent(buf, FiAddr::UNSPEC, TAG, RECEIVED)
        } else {
            ep.trecv(buf, FiAddr::UNSPEC, TAG, RECEIVED)
        };
        posted
            .map(drop)
            .map_err(|error| refused("a receive", &error))
    }

    fn run(mut self, order: BenchOrder) -> anyhow::Result<Timing> {
        for number in 1..=order.counts.total() as u64 {
            let completion = loop {
                poll(self.endpoint, &mut self.completions)?;
                if let Some(completion) = self.completions.drain().next() {
                    break completion;
                }
            };
            let (view, received) = completion
                .into_view()
                .map_err(|error| anyhow!("a receive failed: {}: {}", error.errno, error.detail))?;
            ensure!(
                received.len == order.size && view.is_lent() == self.endpoint.lent,
                "message {number} has {} bytes and is {}",
                received.len,
                if view.is_lent() { "lent" } else { "copied" }
            );
            ends::check(&[view.read(0)?, view.read(order.size - 1)?], number)?;
            drop(view);
            if !self.endpoint.lent {
                self.acknowledge()?;
            }
            self.post()?;
        }
        // The last acknowledgement may wait for the next poll.
        poll(self.endpoint, &mut self.completions)?;
        Ok(Timing::default())
    }

    fn acknowledge(&mut self) -> anyhow::Result<()> {
        let OwnedEndpoint { ep, peers, .. } = self.endpoint;
        let sender = *peers.first().context("no sender")?;
        while let Err(errno) = ep.tinject(&ACK, sender, ACK_TAG, None) {
            ensure!(errno == Errno::Again, "cannot acknowledge: {errno}");
            poll(self.endpoint, &mut self.completions)?;
        }
        Ok(())
    }
}

/// Makes progress, and gives the processor away if nothing is complete.
fn poll(endpoint: &OwnedEndpoint, completions: &mut Completions) -> anyhow::Result<()> {
    if endpoint.ep.poll(completions)? == 0 {
        endpoint.idle.wait_between_calls();
    }
    Ok(())
}

fn succeeded(completion: Completion) -> anyhow::Result<()> {
    let result = completion.result.map(drop);
    result.map_err(|error| anyhow!("an operation failed: {}: {}", error.errno, error.detail))
}

fn refused(post: &str, error: &TryPostError) -> anyhow::Error {
    anyhow!("{post} of a broadcast is refused: {}", error.errno)
}

/// An acknowledgement.
const ACK: [u8; 4] = [0; 4];
/// The tag of acknowledgements.
const ACK_TAG: u64 = TAG + 1;
