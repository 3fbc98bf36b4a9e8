//! One process's endpoint, with everything it needs.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use selvedge::info::{EpType, Threading};
use selvedge::{
    Address, AddressVector, Bindings, Caps, CompletionQueue, Endpoint, FiAddr, Hints, Info, av, cq,
};
use serde::{Deserialize, Serialize};

use super::remote::Window;
use super::wire::Wire;
use super::{LARGEST, OpenOrder, WIDEST, side_bytes};
use crate::cpu::Idle;

/// An open endpoint, its queue and its peer.
#[derive(Debug)]
pub struct Station {
    // Dropped first: a closed endpoint no longer touches the buffers of the wire.
    ep: Arc<dyn Endpoint>,
    cq: Arc<dyn CompletionQueue>,
    av: Arc<dyn AddressVector>,
    info: Info,
    peer: FiAddr,
    wire: Wire,
    idle: Idle,
    /// Memory for the peer, if there are benchmarks that want it.
    window: Option<Window>,
}

/// What an open endpoint says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// The provider.
    pub provider: String,
    /// The address for peers.
    pub address: String,
    /// Largest injected message, in bytes.
    pub inject_size: usize,
}

impl Station {
    /// Opens an endpoint of the best provider that there is for it.
    ///
    /// # Errors
    /// When there is none, with what discovery says of each, or when it does not open.
    pub fn open(order: &OpenOrder, idle: Idle) -> anyhow::Result<Self> {
        let info = discover(order)?;
        let name = info.fabric_attr.prov_name.clone();
        let domain = info
            .open()
            .with_context(|| format!("cannot open a domain of {name}"))?;
        let cq = domain
            .cq(&cq::Attr::with_size(cq_size(order.window)))
            .with_context(|| format!("cannot open a completion queue of {name}"))?;
        let av = domain
            .av(&av::Attr::default())
            .with_context(|| format!("cannot open an address vector of {name}"))?;
        let bindings = Bindings::new(Arc::clone(&cq), Arc::clone(&av));
        let ep = domain
            .endpoint(&info, bindings)
            .with_context(|| format!("cannot open an endpoint of {name}"))?;
        let side = side_bytes(order.window, order.largest);
        let wire = match order.special {
            true => Wire::special(&*domain, side)?,
            false => Wire::new(side)?,
        };
        Ok(Self {
            ep,
            cq,
            av,
            info,
            peer: FiAddr::UNSPEC,
            wire,
            idle,
            window: match order.remote {
                true => Some(Window::new(&*domain, order.largest)?),
                false => None,
            },
        })
    }

    /// Has buffers for other sizes than it was opened for.
    ///
    /// # Errors
    /// When there is no memory; when either number is out of range.
    pub fn resize(&mut self, window: usize, largest: usize) -> anyhow::Result<()> {
        ensure!(
            largest <= LARGEST,
            "a largest message of {largest} bytes is out of range"
        );
        ensure!(
            window <= WIDEST,
            "a window of {window} messages is out of range"
        );
        self.wire = Wire::new(side_bytes(window, largest))?;
        Ok(())
    }

    /// Describes it.
    ///
    /// # Errors
    /// When the endpoint has no address.
    pub fn describe(&mut self) -> anyhow::Result<Opened> {
        let address = self.ep.address().context("the endpoint has no address")?;
        Ok(Opened {
            provider: self.info.fabric_attr.prov_name.clone(),
            address: address.to_string(),
            inject_size: self.info.tx_attr.inject_size,
        })
    }

    /// Names the peer that messages go to.
    ///
    /// # Errors
    /// When the address is none, or not one of this provider's.
    pub fn set_peer(&mut self, address: &str) -> anyhow::Result<()> {
        let parsed: Address = address.parse()?;
        let peer = self.av.insert_one(&parsed);
        self.peer = peer.with_context(|| format!("address {address:?} is refused"))?;
        Ok(())
    }

    /// How this process waits.
    pub(super) fn idle(&self) -> Idle {
        self.idle
    }

    /// Largest injected message, in bytes.
    pub(super) fn inject_size(&self) -> usize {
        self.info.tx_attr.inject_size
    }

    /// The endpoint, its queue, its peer, and memory for the peer to access.
    ///
    /// # Errors
    /// When it was opened without such memory, or with too little.
    pub(super) fn remote(&mut self, size: usize) -> anyhow::Result<RemoteParts<'_>> {
        let window = self.window.as_mut().context("no memory for the peer")?;
        ensure!(window.fits(size), "accesses of {size} bytes are too large");
        Ok(RemoteParts {
            ep: &*self.ep,
            cq: &*self.cq,
            peer: self.peer,
            window,
        })
    }

    /// The endpoint, its queue, its peer and its buffers.
    pub(super) fn parts(&mut self) -> Parts<'_> {
        Parts {
            ep: &*self.ep,
            cq: &*self.cq,
            peer: self.peer,
            wire: &mut self.wire,
        }
    }
}

/// What a loop over remote memory works with.
#[derive(Debug)]
pub(super) struct RemoteParts<'a> {
    pub(super) ep: &'a dyn Endpoint,
    pub(super) cq: &'a dyn CompletionQueue,
    pub(super) peer: FiAddr,
    pub(super) window: &'a mut Window,
}

/// What a loop works with.
#[derive(Debug)]
pub(super) struct Parts<'a> {
    pub(super) ep: &'a dyn Endpoint,
    pub(super) cq: &'a dyn CompletionQueue,
    pub(super) peer: FiAddr,
    pub(super) wire: &'a mut Wire,
}

/// The best way to communicate that the loops can use.
fn discover(order: &OpenOrder) -> anyhow::Result<Info> {
    let registry = selvedge_providers::builtin();
    let infos = registry.infos(&hints(order))?;
    let info = infos
        .into_iter()
        .next()
        .context("discovery found nothing and gave no reason")?;
    let limit = info.ep_attr.max_msg_size;
    ensure!(
        order.largest <= limit,
        "messages of {} carry at most {limit} bytes, not {}: ask for smaller sizes with -S",
        info.fabric_attr.prov_name,
        order.largest
    );
    Ok(info)
}

#[expect(unsafe_code, reason = "the promise that removes locks")]
fn hints(order: &OpenOrder) -> Hints {
    let mut hints = Hints::new()
        .ep_type(EpType::Rdm)
        .caps(Caps::MSG | Caps::TAGGED)
        .rx_size(2 * order.window)
        .tx_size(order.window);
    if let Some(provider) = &order.provider {
        hints = hints.provider(provider);
    }
    // SAFETY: a `Station` keeps all objects of its domain to itself, `Wire`'s loops borrow it
    // exclusively, and it is used by the thread that owns it alone.
    unsafe { hints.promise_threading(Threading::Domain) }
}

/// Room for everything that a window leaves behind on either side.
fn cq_size(window: usize) -> usize {
    (4 * window).max(256)
}
