//! `OwnedEndpoint`: an open endpoint of the safe layer, and its buffers.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use selvedge::owned::{Buf, Endpoint, Pool};
use selvedge::{Address, AddressVector, Context, Domain, FiAddr, Info, alloc, av};

use crate::fabric::{OpenOrder, Opened, WaitStrategy, discover};
use crate::machine::cpu::Idle;

/// The tag of a message.
pub(super) const TAG: u64 = 1;
/// The context of sends.
pub(super) const SENT: Context = Context(1);
/// The context of receives.
pub(super) const RECEIVED: Context = Context(2);

/// An open endpoint of the safe layer and its peer.
#[derive(Debug)]
pub(in crate::pair) struct OwnedEndpoint {
    pub(super) ep: Endpoint,
    domain: Arc<dyn Domain>,
    av: Arc<dyn AddressVector>,
    pub(super) info: Info,
    address: Address,
    /// The peers to send to: one in round trips.
    pub(super) peers: Vec<FiAddr>,
    pub(super) idle: Idle,
    /// Whether buffers lie in memory that the domain allocates.
    pub(super) special: bool,
    /// Whether messages are lent.
    pub(super) lent: bool,
    /// Time from discovery to the open endpoint, in nanoseconds.
    open_ns: u64,
}

impl OwnedEndpoint {
    /// Opens an endpoint of the best provider that fits the order.
    ///
    /// # Errors
    /// When no provider fits, with discovery's explanation; when the endpoint cannot be opened.
    pub(in crate::pair) fn open(order: &OpenOrder, idle: Idle) -> anyhow::Result<Self> {
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
    pub(super) fn pool(&self, count: usize, size: usize, special: bool) -> anyhow::Result<Pool> {
        Ok(if special {
            Pool::special(&*self.domain, size, count, &alloc::Attr::default())?
        } else {
            Pool::new(&*self.domain, size, count)?
        })
    }

    /// Describes the endpoint.
    pub(in crate::pair) fn describe(&self) -> Opened {
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
    pub(in crate::pair) fn add_peer(&mut self, address: &str) -> anyhow::Result<()> {
        let peer = self.av.insert_one(&address.parse()?);
        let peer = peer.with_context(|| format!("cannot insert address {address:?}"))?;
        self.peers.push(peer);
        Ok(())
    }
}

/// Takes a buffer and touches every page.
pub(super) fn buffer(pool: &Pool, size: usize) -> anyhow::Result<Buf> {
    let buf = pool.take();
    let mut buf = buf.context("the pool has fewer buffers than requested")?;
    buf.set_len(size)?;
    buf.fill(0);
    Ok(buf)
}
