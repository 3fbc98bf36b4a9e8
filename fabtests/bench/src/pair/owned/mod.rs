//! Round trips and broadcasts over the safe layer, [`selvedge::owned`], whose operations take
//! buffers by value.

mod broadcast;

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, anyhow, bail, ensure};
use selvedge::owned::{self, Buf, Completions, Endpoint, Handle, Pool, TryPostError};
use selvedge::{Address, AddressVector, Context, Domain, Errno, FiAddr, Info, alloc, av};

use super::Side;
use super::exchange::{self, Completion, Messages};
use crate::fabric::{Bench, BenchOrder, OpenOrder, Opened, WaitStrategy, discover, ends, pattern};
use crate::machine::cpu::Idle;
use crate::measure::clock::Clock;
use crate::measure::timing::Timing;

/// An open endpoint of the safe layer and its peer.
#[derive(Debug)]
pub(super) struct OwnedEndpoint {
    ep: Endpoint,
    domain: Arc<dyn Domain>,
    av: Arc<dyn AddressVector>,
    info: Info,
    address: Address,
    /// The peers to send to: one in round trips.
    peers: Vec<FiAddr>,
    idle: Idle,
    /// Whether buffers lie in memory that the domain allocates.
    special: bool,
    /// Whether messages are lent.
    lent: bool,
    /// Time from discovery to the open endpoint, in nanoseconds.
    open_ns: u64,
}

impl OwnedEndpoint {
    /// Opens an endpoint of the best provider that fits the order.
    ///
    /// # Errors
    /// When no provider fits, with discovery's explanation; when the endpoint cannot be opened.
    pub(super) fn open(order: &OpenOrder, idle: Idle) -> anyhow::Result<Self> {
        let start = Instant::now();
        let info = discover(order)?;
        let domain = info.open()?;
        let av = domain.av(&av::Attr::default())?;
        let ep = Endpoint::open(&*domain, &info, Arc::clone(&av))?;
        let open_ns = start.elapsed().as_nanos() as u64;
        Ok(Self {
            address: ep.address().context("the endpoint has no address")?,
            ep,
            domain,
            av,
            info,
            peers: Vec::new(),
            idle: match order.config.wait {
                WaitStrategy::Yield => Idle::Yield,
                _ => idle,
            },
            special: order.special,
            lent: order.config.lent,
            open_ns,
        })
    }

    /// Makes a pool of `count` buffers of `size` bytes, in memory that the domain allocates if
    /// `special` is set.
    fn pool(&self, count: usize, size: usize, special: bool) -> anyhow::Result<Pool> {
        Ok(if special {
            Pool::special(&*self.domain, size, count, &alloc::Attr::default())?
        } else {
            Pool::new(&*self.domain, size, count)?
        })
    }

    /// Describes the endpoint.
    pub(super) fn describe(&self) -> Opened {
        Opened {
            provider: self.info.fabric_attr.prov_name.clone(),
            address: self.address.to_string(),
            inject_size: self.info.tx_attr.inject_size,
            open_ns: self.open_ns,
        }
    }

    /// Adds a peer to send to.
    ///
    /// # Errors
    /// When the address cannot be parsed, or belongs to another provider.
    pub(super) fn add_peer(&mut self, address: &str) -> anyhow::Result<()> {
        let peer = self.av.insert_one(&address.parse()?);
        let peer = peer.with_context(|| format!("cannot insert address {address:?}"))?;
        self.peers.push(peer);
        Ok(())
    }

    /// Runs one side of a benchmark.
    ///
    /// # Errors
    /// When an operation fails, or the safe layer does not have the benchmark.
    pub(super) fn run(
        &mut self,
        side: Side,
        clock: Clock,
        order: BenchOrder,
    ) -> anyhow::Result<Timing> {
        match order.bench {
            Bench::MsgPingpong => run::<false>(self, side, clock, order),
            Bench::TaggedPingpong => run::<true>(self, side, clock, order),
            Bench::TaggedBroadcast => broadcast::run(self, side, clock, order),
            bench => bail!(
                "the safe layer has no {bench}: choose msg_pingpong, tagged_pingpong or \
                 tagged_broadcast"
            ),
        }
    }
}

fn run<const IS_TAGGED: bool>(
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

/// Takes a buffer and touches every page.
fn buffer(pool: &Pool, size: usize) -> anyhow::Result<Buf> {
    let buf = pool.take();
    let mut buf = buf.context("the pool has fewer buffers than requested")?;
    buf.set_len(size)?;
    buf.fill(0);
    Ok(buf)
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

/// The tag of a message.
const TAG: u64 = 1;
/// The context of sends.
const SENT: Context = Context(1);
/// The context of receives.
const RECEIVED: Context = Context(2);
