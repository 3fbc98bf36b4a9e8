//! Round trips over the safe layer, [`selvedge::owned`]: the steps of those over the raw endpoint
//! (`fabric::pingpong`), with buffers that move into their operations.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, anyhow, bail, ensure};
use selvedge::owned::{Buf, Completions, Endpoint, Handle, Pool, Refused};
use selvedge::{Address, AddressVector, Context, Domain, Errno, FiAddr, Info, alloc, av};

use super::Side;
use crate::clock::Clock;
use crate::cpu::Idle;
use crate::fabric::{Bench, BenchOrder, OpenOrder, Opened, discover, pattern};
use crate::timing::{Timing, round_trips};

/// An open endpoint of the safe layer and its peer.
#[derive(Debug)]
pub(super) struct OwnedEndpoint {
    ep: Endpoint,
    domain: Arc<dyn Domain>,
    av: Arc<dyn AddressVector>,
    info: Info,
    address: Address,
    peer: FiAddr,
    idle: Idle,
    /// Whether buffers are in memory that the domain makes.
    special: bool,
    /// What opening it took, from discovery on.
    open_ns: u64,
}

impl OwnedEndpoint {
    /// Opens an endpoint of the best provider that there is for it.
    ///
    /// # Errors
    /// When there is none, with what discovery says of each, or when it does not open.
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
            peer: FiAddr::UNSPEC,
            idle,
            special: order.special,
            open_ns,
        })
    }

    /// Buffers of `size` bytes, each page of which has been touched.
    fn buffers(&self, count: usize, size: usize) -> anyhow::Result<Vec<Buf>> {
        let pool = match self.special {
            true => Pool::special(&*self.domain, size, count, &alloc::Attr::default())?,
            false => Pool::new(&*self.domain, size, count)?,
        };
        let buffer = |_| {
            let mut buf = pool
                .take()
                .context("a pool has as many as it was made of")?;
            buf.set_len(size)?;
            buf.fill(0);
            Ok(buf)
        };
        (0..count).map(buffer).collect()
    }

    /// Describes it.
    pub(super) fn describe(&self) -> Opened {
        Opened {
            provider: self.info.fabric_attr.prov_name.clone(),
            address: self.address.to_string(),
            inject_size: self.info.tx_attr.inject_size,
            open_ns: self.open_ns,
        }
    }

    /// Names the peer that messages go to.
    ///
    /// # Errors
    /// When the address is none, or not one of this provider's.
    pub(super) fn set_peer(&mut self, address: &str) -> anyhow::Result<()> {
        let peer = self.av.insert_one(&address.parse()?);
        self.peer = peer.with_context(|| format!("address {address:?} is refused"))?;
        Ok(())
    }

    /// Takes one side's part in a run.
    ///
    /// # Errors
    /// What an operation fails with; that there is no such benchmark over the safe layer.
    pub(super) fn run(
        &mut self,
        side: Side,
        clock: Clock,
        order: BenchOrder,
    ) -> anyhow::Result<Timing> {
        match order.bench {
            Bench::MsgPingpong => run::<false>(self, side, clock, order),
            Bench::TaggedPingpong => run::<true>(self, side, clock, order),
            bench => bail!("there is no {bench} over the safe layer"),
        }
    }
}

fn run<const IS_TAGGED: bool>(
    endpoint: &OwnedEndpoint,
    side: Side,
    clock: Clock,
    order: BenchOrder,
) -> anyhow::Result<Timing> {
    let mut player = Player::<IS_TAGGED> {
        endpoint,
        size: order.size,
        inject: order.inject && order.size <= endpoint.info.tx_attr.inject_size,
        verify: order.verify,
        to_post: order.counts.total(),
        sent: 0,
        received: 0,
        rx: None,
        tx: endpoint.buffers(1, order.size)?.pop(),
        done: Completions::with_capacity(1),
    };
    let mut rx = endpoint.buffers(2, order.size)?;
    player.rx = rx.pop();
    for buf in rx {
        player.repost(buf)?;
    }
    let timing = round_trips(clock, order.counts, || match side {
        Side::Active => {
            player.send()?;
            player.prepare()?;
            player.receive()
        }
        Side::Passive => {
            player.receive()?;
            player.send()?;
            player.prepare()
        }
    })?;
    player.settle()?;
    Ok(timing)
}

#[derive(Debug)]
struct Player<'a, const IS_TAGGED: bool> {
    endpoint: &'a OwnedEndpoint,
    size: usize,
    inject: bool,
    verify: bool,
    /// Receives that are still to be posted: none is left over at the end.
    to_post: usize,
    sent: u64,
    received: u64,
    /// The receive buffer that is free; `None` while both are posted.
    rx: Option<Buf>,
    /// The send buffer; `None` while a send has it.
    tx: Option<Buf>,
    /// Room for one completion: one is read at a time.
    done: Completions,
}

impl<const IS_TAGGED: bool> Player<'_, IS_TAGGED> {
    #[inline]
    fn send(&mut self) -> anyhow::Result<()> {
        let Some(mut buf) = self.tx.take() else {
            unreachable!("`receive` returns with the send buffer")
        };
        if self.verify {
            pattern::fill(&mut buf, self.sent);
        }
        self.sent += 1;
        if self.inject {
            let result = self.inject(&buf);
            self.tx = Some(buf);
            return result;
        }
        let peer = self.endpoint.peer;
        self.post(buf, "send", |ep, buf| match IS_TAGGED {
            true => ep.tsend(buf, peer, TAG, SENT),
            false => ep.send(buf, peer, SENT),
        })
    }

    #[inline]
    fn inject(&mut self, message: &[u8]) -> anyhow::Result<()> {
        let OwnedEndpoint { ep, peer, .. } = self.endpoint;
        loop {
            let injected = match IS_TAGGED {
                true => ep.tinject(message, *peer, TAG, None),
                false => ep.inject(message, *peer, None),
            };
            match injected {
                Ok(()) => return Ok(()),
                Err(errno) => self.ease(errno, "inject")?,
            }
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
    fn repost(&mut self, buf: Buf) -> anyhow::Result<()> {
        if self.to_post == 0 {
            return Ok(());
        }
        self.to_post -= 1;
        self.post(buf, "receive", |ep, buf| match IS_TAGGED {
            true => ep.trecv(buf, FiAddr::UNSPEC, TAG, RECEIVED),
            false => ep.recv(buf, FiAddr::UNSPEC, RECEIVED),
        })
    }

    /// Posts until there is room.
    #[inline]
    fn post(
        &mut self,
        mut buf: Buf,
        what: &str,
        post: impl Fn(&Endpoint, Buf) -> Result<Handle, Refused>,
    ) -> anyhow::Result<()> {
        loop {
            match post(&self.endpoint.ep, buf) {
                Ok(_) => return Ok(()),
                Err(refused) => {
                    self.ease(refused.errno, what)?;
                    buf = refused.buf;
                }
            }
        }
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
        self.endpoint.ep.poll(&mut self.done)?;
        let Some(completion) = self.done.drain().next() else {
            self.endpoint.idle.rest();
            return Ok(());
        };
        let received = completion
            .result
            .map_err(|error| anyhow!("an operation failed: {}: {}", error.errno, error.detail))?;
        if completion.context == SENT {
            self.tx = Some(completion.buf);
            return Ok(());
        }
        ensure!(
            received.len == self.size,
            "{} bytes arrived of a message of {}",
            received.len,
            self.size
        );
        if self.verify {
            pattern::check(&completion.buf, self.received)?;
        }
        self.received += 1;
        self.rx = Some(completion.buf);
        Ok(())
    }

    /// Makes room after a full queue; any other error stands.
    #[cold]
    fn ease(&mut self, errno: Errno, what: &str) -> anyhow::Result<()> {
        ensure!(errno == Errno::Again, "cannot post a {what}: {errno}");
        self.endpoint.idle.rest();
        self.endpoint.ep.poll(&mut self.done)?;
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

/// The tag of a message.
const TAG: u64 = 1;
/// The context of sends.
const SENT: Context = Context(1);
/// The context of receives.
const RECEIVED: Context = Context(2);
