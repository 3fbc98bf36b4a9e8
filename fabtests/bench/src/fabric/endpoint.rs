//! The endpoint of one process, with its queue, peers and buffers.

use std::iter::repeat_n;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use selvedge::info::{EpType, Threading};
use selvedge::{
    Address, AddressVector, Bindings, Caps, CompletionQueue, Endpoint, FiAddr, Hints, Info, av, cq,
    wait,
};
use serde::{Deserialize, Serialize};

use super::idle_peers::{CONNECT_TAG, IdlePeers};
use super::order::{
    BenchConfig, MAX_MESSAGE_SIZE, MAX_WINDOW, OpenOrder, ThreadingLevel, WaitStrategy, side_bytes,
};
use super::posting::{EndpointBuffers, Waiter, post_unmatched};
use super::remote::TargetRegion;
use crate::machine::cpu::Idle;
use crate::measure::buffer::Pages;

/// An open endpoint, its queue, its peers and its buffers.
#[derive(Debug)]
pub struct BenchEndpoint {
    // Dropped first: a closed endpoint no longer accesses the buffers.
    ep: Arc<dyn Endpoint>,
    cq: Arc<dyn CompletionQueue>,
    av: Arc<dyn AddressVector>,
    info: Info,
    /// The peer to send to, or all peers that send to this endpoint.
    peers: Vec<FiAddr>,
    buffers: EndpointBuffers,
    idle: Idle,
    /// Time from discovery to the open endpoint in nanoseconds, without its buffers.
    open_ns: u64,
    config: BenchConfig,
    /// Buffer of the receives that no message of a benchmark matches.
    unmatched_buf: Pages,
    /// Idle endpoints of this process, which are connected with the other process.
    idle_peers: Option<IdlePeers>,
    /// Memory that the peer accesses, where a benchmark needs it.
    region: Option<TargetRegion>,
}

/// Description of an open endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// The provider.
    pub provider: String,
    /// The address for peers.
    pub address: String,
    /// Largest injected message, in bytes.
    pub inject_size: usize,
    /// Time from discovery to the open endpoint, in nanoseconds; 0 where a contestant does not
    /// report it.
    #[serde(default)]
    pub open_ns: u64,
}

impl BenchEndpoint {
    /// Opens an endpoint of the best provider that fits the order.
    ///
    /// # Errors
    /// When no provider fits, with discovery's explanation; when the endpoint cannot be opened.
    pub fn open(order: &OpenOrder, idle: Idle) -> anyhow::Result<Self> {
        let start = Instant::now();
        let info = discover(order)?;
        let name = info.fabric_attr.prov_name.clone();
        let domain = info
            .open()
            .with_context(|| format!("cannot open a domain of {name}"))?;
        let cq = domain
            .cq(&cq_attr(order))
            .with_context(|| format!("cannot open a completion queue of {name}"))?;
        let av = domain
            .av(&av::Attr::default())
            .with_context(|| format!("cannot open an address vector of {name}"))?;
        let bindings = Bindings::new(Arc::clone(&cq), Arc::clone(&av));
        let ep = domain
            .endpoint(&info, bindings)
            .with_context(|| format!("cannot open an endpoint of {name}"))?;
        let open_ns = start.elapsed().as_nanos() as u64;
        let buffer_len = side_bytes(order.window, order.largest);
        let buffers = match (order.special, order.config.heap) {
            (true, _) => EndpointBuffers::special(&*domain, buffer_len)?,
            (_, true) => EndpointBuffers::heap(buffer_len)?,
            (false, false) => EndpointBuffers::new(buffer_len)?,
        };
        Ok(Self {
            ep,
            cq,
            av,
            info,
            peers: Vec::new(),
            buffers,
            idle,
            open_ns,
            config: order.config,
            unmatched_buf: Pages::new(64)?,
            idle_peers: None,
            region: if order.remote {
                Some(TargetRegion::new(&*domain, buffer_len)?)
            } else {
                None
            },
        })
    }

    /// Replaces the buffers by buffers for a window of `window` messages of up to `largest` bytes.
    ///
    /// # Errors
    /// When memory cannot be allocated; when `window` or `largest` is out of range.
    pub fn resize(&mut self, window: usize, largest: usize) -> anyhow::Result<()> {
        ensure!(
            largest <= MAX_MESSAGE_SIZE,
            "a largest message of {largest} bytes is out of range"
        );
        ensure!(
            window <= MAX_WINDOW,
            "a window of {window} messages is out of range"
        );
        self.buffers = EndpointBuffers::new(side_bytes(window, largest))?;
        Ok(())
    }

    /// Describes the endpoint.
    ///
    /// # Errors
    /// When the endpoint has no address.
    pub fn describe(&mut self) -> anyhow::Result<Opened> {
        let address = self.ep.address().context("the endpoint has no address")?;
        Ok(Opened {
            provider: self.info.fabric_attr.prov_name.clone(),
            address: address.to_string(),
            inject_size: self.info.tx_attr.inject_size,
            open_ns: self.open_ns,
        })
    }

    /// Sets the peer to send to.
    ///
    /// # Errors
    /// As [`Self::set_peers`].
    pub fn set_peer(&mut self, address: &str) -> anyhow::Result<()> {
        self.set_peers(&[address.to_owned()])
    }

    /// Sets the peers that send to this endpoint, in the order of their numbers.
    ///
    /// # Errors
    /// When an address cannot be parsed, or belongs to another provider.
    pub fn set_peers(&mut self, addresses: &[String]) -> anyhow::Result<()> {
        self.peers.clear();
        for address in addresses {
            let parsed: Address = address.parse()?;
            let peer = self.av.insert_one(&parsed);
            let peer = peer.with_context(|| format!("cannot insert address {address:?}"))?;
            self.peers.push(peer);
        }
        Ok(())
    }

    /// Connects idle endpoints of this process with the peer, and this endpoint with the peer's
    /// idle endpoints.
    ///
    /// # Errors
    /// The provider's error.
    pub(super) fn connect_idle_peers(&mut self) -> anyhow::Result<()> {
        let count = self.config.idle_peers;
        let idle_peers = IdlePeers::open(&self.info, count)?;
        self.post_unmatched(repeat_n(CONNECT_TAG, count))?;
        let (cq, mut connected) = (&self.cq, 0);
        let mut poll_connected = || {
            connected += cq.read(&mut [cq::Entry::default()])?;
            Ok(connected)
        };
        idle_peers.connect_to(&self.av.lookup(self.peer())?, || {
            poll_connected().map(|_| ())
        })?;
        while poll_connected()? < count {}
        self.idle_peers = Some(idle_peers);
        Ok(())
    }

    /// The action of this process between two reads of the queue.
    pub(super) fn idle(&self) -> Idle {
        self.idle
    }

    /// The endpoint's configuration.
    pub(super) fn config(&self) -> &BenchConfig {
        &self.config
    }

    /// The peers that send to this endpoint.
    pub(super) fn peers(&self) -> &[FiAddr] {
        &self.peers
    }

    /// Posts a receive for each of `tags`. No message of a benchmark has one of these tags.
    ///
    /// # Errors
    /// The provider's error.
    pub(super) fn post_unmatched(&mut self, tags: impl Iterator<Item = u64>) -> anyhow::Result<()> {
        post_unmatched(&*self.ep, &mut self.unmatched_buf, tags)
    }

    fn peer(&self) -> FiAddr {
        self.peers.first().copied().unwrap_or(FiAddr::UNSPEC)
    }

    /// Largest injected message, in bytes.
    pub(super) fn inject_size(&self) -> usize {
        self.info.tx_attr.inject_size
    }

    /// Lends the endpoint, its queue, its peer, and the memory that the peer accesses.
    ///
    /// # Errors
    /// When the endpoint was opened without memory for the peer, or with less than `size` bytes.
    pub(super) fn remote_resources(&mut self, size: usize) -> anyhow::Result<RemoteResources<'_>> {
        let peer = self.peer();
        let region = self.region.as_mut().context("no memory for the peer")?;
        ensure!(region.fits(size), "accesses of {size} bytes are too large");
        Ok(RemoteResources {
            ep: &*self.ep,
            cq: &*self.cq,
            peer,
            region,
        })
    }

    /// Lends the endpoint, its queue, its peer and its buffers.
    pub(super) fn message_resources(&mut self) -> MessageResources<'_> {
        let peer = self.peer();
        MessageResources {
            ep: &*self.ep,
            cq: &*self.cq,
            peer,
            waiter: Waiter::new(self.config.wait, self.idle),
            buffers: &mut self.buffers,
        }
    }
}

/// The objects of an endpoint that a loop over remote memory uses.
#[derive(Debug)]
pub(super) struct RemoteResources<'a> {
    pub(super) ep: &'a dyn Endpoint,
    pub(super) cq: &'a dyn CompletionQueue,
    pub(super) peer: FiAddr,
    pub(super) region: &'a mut TargetRegion,
}

/// The objects of an endpoint that a message loop uses.
#[derive(Debug)]
pub(super) struct MessageResources<'a> {
    pub(super) ep: &'a dyn Endpoint,
    pub(super) cq: &'a dyn CompletionQueue,
    pub(super) peer: FiAddr,
    pub(super) waiter: Waiter,
    pub(super) buffers: &'a mut EndpointBuffers,
}

/// Largest datagram of a provider, in bytes.
///
/// # Errors
/// When the provider has no datagram endpoints, with discovery's explanation.
pub fn longest_datagram(provider: Option<String>) -> anyhow::Result<usize> {
    let order = OpenOrder {
        datagrams: true,
        ..OpenOrder::plain(provider, 1, 1)
    };
    Ok(discover(&order)?.ep_attr.max_msg_size)
}

/// Returns discovery's best result that meets the order's requirements.
pub(crate) fn discover(order: &OpenOrder) -> anyhow::Result<Info> {
    let registry = selvedge_providers::builtin();
    let infos = registry.infos(&hints(order))?;
    let info = infos
        .into_iter()
        .next()
        .context("discovery found nothing and gave no reason")?;
    let limit = info.ep_attr.max_msg_size;
    ensure!(
        order.largest <= limit,
        "a message of {} carries at most {limit} bytes, not {}: choose smaller sizes with -S",
        info.fabric_attr.prov_name,
        order.largest
    );
    Ok(info)
}

#[expect(unsafe_code, reason = "the promise that removes locks")]
fn hints(order: &OpenOrder) -> Hints {
    let mut hints = Hints::new()
        .ep_type(if order.datagrams {
            EpType::Dgram
        } else {
            EpType::Rdm
        })
        .caps(caps(order))
        .rx_size(2 * order.window)
        .tx_size(order.window);
    if let Some(provider) = &order.provider {
        hints = hints.provider(provider);
    }
    if order.config.threading == ThreadingLevel::Safe {
        return hints;
    }
    // SAFETY: only the `BenchEndpoint` uses the objects of its domain, the loops of `Run` borrow it
    // exclusively, and only the thread that owns it uses it. The same holds for an `OwnedEndpoint`.
    unsafe { hints.promise_threading(Threading::Domain) }
}

fn caps(order: &OpenOrder) -> Caps {
    if order.datagrams {
        return Caps::MSG;
    }
    let messages = Caps::MSG | Caps::TAGGED;
    if order.remote {
        messages | Caps::RMA | Caps::ATOMIC
    } else {
        messages
    }
}

/// The queue has room for the completions of a window on either side.
fn cq_attr(order: &OpenOrder) -> cq::Attr {
    let mut attr = cq::Attr::with_size((4 * order.window).max(256));
    attr.wait_obj = match order.config.wait {
        WaitStrategy::Spin | WaitStrategy::Yield => wait::Object::None,
        WaitStrategy::Fd => wait::Object::Fd,
        WaitStrategy::Sleep => wait::Object::Unspec,
    };
    attr
}
