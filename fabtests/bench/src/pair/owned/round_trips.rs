//! Round trips over the safe layer.

use anyhow::{Context as _, anyhow, ensure};
use selvedge::owned::{self, Buf, Completions, Endpoint, Handle, Pool, TryPostError};
use selvedge::{Errno, FiAddr};

use super::endpoint::{OwnedEndpoint, RECEIVED, SENT, TAG, buffer};
use crate::fabric::{BenchOrder, ends, pattern};
use crate::measure::clock::Clock;
use crate::measure::timing::Timing;
use crate::pair::Side;
use crate::pair::exchange::{self, Completion, Messages};

/// Runs one side.
pub(super) fn run<const IS_TAGGED: bool>(
    endpoint: &OwnedEndpoint,
    side: Side,
    clock: Clock,
    order: BenchOrder,
) -> anyhow::Result<Timing> {
    let (size, is_lent) = (order.size, endpoint.lent);
    let rx_pool = endpoint.pool(3, size, endpoint.special)?;
    let rx = [buffer(&rx_pool, size)?, buffer(&rx_pool, size)?];
    let tx = buffer(&endpoint.pool(1, size, endpoint.special || is_lent)?, size)?;
    let mut params = order.pingpong_params(side, endpoint.info.tx_attr.inject_size);
    params.inject &= !is_lent;
    let mut messages = OwnedMessages::<IS_TAGGED> {
        endpoint,
        peer: *endpoint.peers.first().context("no peer")?,
        completions: Completions::with_capacity(1),
        rx_pool,
        verify: params.verify,
        lent: 0,
        given_back: 0,
    };
    exchange::run(&mut messages, (rx, tx), clock, params)
}

/// The message API of the safe layer.
struct OwnedMessages<'a, const IS_TAGGED: bool> {
    endpoint: &'a OwnedEndpoint,
    peer: FiAddr,
    /// The last completion: each poll reads at most one.
    completions: Completions,
    /// The pool of the receive buffers.
    rx_pool: Pool,
    /// Whether messages are checked on arrival.
    verify: bool,
    /// Number of messages that this side has lent.
    lent: u64,
    /// Number of messages that this side has given back.
    given_back: u64,
}

impl<const IS_TAGGED: bool> OwnedMessages<'_, IS_TAGGED> {
    /// Retries a post until the queue has room.
    #[inline]
    fn post(
        &mut self,
        mut buf: Buf,
        operation: &str,
        post: impl Fn(&Endpoint, Buf) -> Result<Handle, TryPostError>,
    ) -> anyhow::Result<()> {
        loop {
            match post(&self.endpoint.ep, buf) {
                Ok(_) => return Ok(()),
                Err(error) => {
                    self.make_room(error.errno, operation)?;
                    buf = error.buf;
                }
            }
        }
    }

    /// Gives a lent message back to its sender. Returns a copy of it if messages are checked.
    /// Otherwise checks the ends of the message, and returns a free receive buffer.
    #[inline]
    fn give_back(&mut self, completion: owned::Completion) -> anyhow::Result<Completion<Buf, Buf>> {
        let (view, received) = completion
            .into_view()
            .map_err(|error| anyhow!("a receive failed: {}: {}", error.errno, error.detail))?;
        let buf = self.rx_pool.take();
        let mut buf = buf.context("no receive buffer is free")?;
        if self.verify {
            ensure!(view.is_lent(), "a message was copied instead of lent");
            buf.set_len(view.len())?;
            view.copy_to(0, &mut buf)?;
        } else if let Some(last) = view.len().checked_sub(1) {
            self.given_back += 1;
            ends::check(&[view.read(0)?, view.read(last)?], self.given_back)?;
        }
        Ok(Completion::Received(buf, received.len))
    }

    /// Makes progress after a post that failed because the queue was full. Returns any other error.
    #[cold]
    fn make_room(&mut self, errno: Errno, operation: &str) -> anyhow::Result<()> {
        ensure!(errno == Errno::Again, "cannot post a {operation}: {errno}");
        self.endpoint.idle.wait_between_calls();
        self.endpoint.ep.poll(&mut self.completions)?;
        Ok(())
    }
}

impl<const IS_TAGGED: bool> Messages for OwnedMessages<'_, IS_TAGGED> {
    type Rx = Buf;
    type Tx = Buf;

    #[inline]
    fn post_recv(&mut self, buf: Buf) -> anyhow::Result<()> {
        let is_lent = self.endpoint.lent;
        self.post(buf, "receive", |ep, buf| match (IS_TAGGED, is_lent) {
            (true, true) => ep.trecv_lent(buf, FiAddr::UNSPEC, TAG, RECEIVED),
            (true, false) => ep.trecv(buf, FiAddr::UNSPEC, TAG, RECEIVED),
            (false, true) => ep.recv_lent(buf, FiAddr::UNSPEC, RECEIVED),
            (false, false) => ep.recv(buf, FiAddr::UNSPEC, RECEIVED),
        })
    }

    #[inline]
    fn post_send(&mut self, mut buf: Buf) -> anyhow::Result<()> {
        if self.endpoint.lent && !self.verify {
            self.lent += 1;
            ends::write(&mut buf, self.lent);
        }
        let (peer, lent) = (self.peer, self.endpoint.lent);
        self.post(buf, "send", |ep, buf| match (IS_TAGGED, lent) {
            (true, true) => ep.tlend(buf, peer, TAG, SENT),
            (true, false) => ep.tsend(buf, peer, TAG, SENT),
            (false, true) => ep.lend(buf, peer, SENT),
            (false, false) => ep.send(buf, peer, SENT),
        })
    }

    #[inline]
    fn inject(&mut self, message: &Buf) -> anyhow::Result<()> {
        let (ep, peer) = (&self.endpoint.ep, self.peer);
        loop {
            let injected = if IS_TAGGED {
                ep.tinject(message, peer, TAG, None)
            } else {
                ep.inject(message, peer, None)
            };
            match injected {
                Ok(()) => return Ok(()),
                Err(errno) => self.make_room(errno, "inject")?,
            }
        }
    }

    #[inline]
    fn read(&mut self) -> anyhow::Result<Option<Completion<Buf, Buf>>> {
        self.endpoint.ep.poll(&mut self.completions)?;
        let Some(completion) = self.completions.drain().next() else {
            self.endpoint.idle.wait_between_calls();
            return Ok(None);
        };
        if self.endpoint.lent && completion.context == RECEIVED {
            return self.give_back(completion).map(Some);
        }
        let result = completion.result;
        let received = result
            .map_err(|error| anyhow!("an operation failed: {}: {}", error.errno, error.detail))?;
        Ok(Some(match completion.context {
            SENT => Completion::Sent(completion.buf),
            _ => Completion::Received(completion.buf, received.len),
        }))
    }

    fn fill(&self, buf: &mut Buf, number: u64) {
        pattern::fill(buf, number);
    }

    fn check(&self, buf: &Buf, number: u64) -> anyhow::Result<()> {
        pattern::check(buf, number)
    }
}
