//! One process's endpoint, with everything it needs.

use std::iter::repeat_n;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use selvedge::info::{EpType, Threading};
use selvedge::{
    Address, AddressVector, Bindings, Caps, CompletionQueue, Endpoint, Errno, FiAddr, Hints, Info,
    av, cq, wait,
};
use serde::{Deserialize, Serialize};

use super::company::{Company, GREETING};
use super::remote::Window;
use super::wire::{Wire, post_for_nobody};
use super::{LARGEST, Manner, OpenOrder, Promise, WIDEST, Wait, burden, side_bytes};
use crate::buffer::Pages;
use crate::cpu::Idle;

/// An open endpoint, its queue and its peer.
#[derive(Debug)]
pub struct Station {
    // Dropped first: a closed endpoint no longer touches the buffers of the wire.
    ep: Arc<dyn Endpoint>,
    cq: Arc<dyn CompletionQueue>,
    av: Arc<dyn AddressVector>,
    info: Info,
    /// Whom messages go to, or all who send messages here.
    peers: Vec<FiAddr>,
    wire: Wire,
    idle: Idle,
    /// What opening it took, from discovery on, without its buffers.
    open_ns: u64,
    manner: Manner,
    /// Of the receives that take nothing.
    for_nobody: Pages,
    /// Peers of the other process that say nothing.
    company: Option<Company>,
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
    /// What opening took, from discovery on, in nanoseconds; 0 where contestants do not tell.
    #[serde(default)]
    pub open_ns: u64,
}

impl Station {
    /// Opens an endpoint of the best provider that there is for it.
    ///
    /// # Errors
    /// When there is none, with what discovery says of each, or when it does not open.
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
            peers: Vec::new(),
            wire,
            idle,
            open_ns,
            manner: order.manner,
            for_nobody: Pages::new(64)?,
            company: None,
            window: match order.remote {
                true => Some(Window::new(&*domain, side)?),
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
            open_ns: self.open_ns,
        })
    }

    /// Names the peer that messages go to.
    ///
    /// # Errors
    /// As [`Self::set_peers`].
    pub fn set_peer(&mut self, address: &str) -> anyhow::Result<()> {
        self.set_peers(&[address.to_owned()])
    }

    /// Names all who send messages here, in the order of their numbers.
    ///
    /// # Errors
    /// When an address is none, or not one of this provider's.
    pub fn set_peers(&mut self, addresses: &[String]) -> anyhow::Result<()> {
        self.peers.clear();
        for address in addresses {
            let parsed: Address = address.parse()?;
            let peer = self.av.insert_one(&parsed);
            let peer = peer.with_context(|| format!("address {address:?} is refused"))?;
            self.peers.push(peer);
        }
        Ok(())
    }

    /// Has the peers, receives and messages around that its manner asks for; the peer does so, too.
    ///
    /// # Errors
    /// What the provider says.
    pub fn lay_burden(&mut self) -> anyhow::Result<()> {
        if self.manner.quiet > 0 {
            self.company = Some(self.meet_company()?);
        }
        match self.manner.posted + self.manner.unexpected {
            0 => Ok(()),
            _ => burden::lay(self),
        }
    }

    /// Acquaints quiet endpoints of this process with the peer, and this one with the peer's.
    fn meet_company(&mut self) -> anyhow::Result<Company> {
        let count = self.manner.quiet;
        let company = Company::open(&self.info, count)?;
        self.post_for_nobody(repeat_n(GREETING, count))?;
        let (cq, mut met) = (&self.cq, 0);
        let mut hear = || {
            met += cq.read(&mut [cq::Entry::default()])?;
            Ok(met)
        };
        company.greet(&self.av.lookup(self.peer())?, || hear().map(|_| ()))?;
        while hear()? < count {}
        Ok(company)
    }

    /// How this process waits while nothing is to complete.
    pub(super) fn idle(&self) -> Idle {
        self.idle
    }

    /// In what it is not as usual.
    pub(super) fn manner(&self) -> &Manner {
        &self.manner
    }

    /// All who send messages here.
    pub(super) fn peers(&self) -> &[FiAddr] {
        &self.peers
    }

    /// Posts a receive for each of these tags, which no message has.
    ///
    /// # Errors
    /// What the provider says.
    pub(super) fn post_for_nobody(
        &mut self,
        tags: impl Iterator<Item = u64>,
    ) -> anyhow::Result<()> {
        post_for_nobody(&*self.ep, &mut self.for_nobody, tags)
    }

    fn peer(&self) -> FiAddr {
        self.peers.first().copied().unwrap_or(FiAddr::UNSPEC)
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
        let peer = self.peer();
        let window = self.window.as_mut().context("no memory for the peer")?;
        ensure!(window.fits(size), "accesses of {size} bytes are too large");
        Ok(RemoteParts {
            ep: &*self.ep,
            cq: &*self.cq,
            peer,
            window,
        })
    }

    /// The endpoint, its queue, its peer and its buffers.
    pub(super) fn parts(&mut self) -> Parts<'_> {
        let peer = self.peer();
        Parts {
            ep: &*self.ep,
            cq: &*self.cq,
            peer,
            waiter: Waiter {
                manner: self.manner.wait,
                idle: self.idle,
            },
            wire: &mut self.wire,
        }
    }
}

/// How a process waits for completions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiter {
    manner: Wait,
    idle: Idle,
}

impl Waiter {
    /// Waits a little, or until there is something; says how many entries it has read meanwhile.
    ///
    /// # Errors
    /// As [`CompletionQueue::read`].
    #[inline]
    pub(super) fn wait(
        self,
        cq: &dyn CompletionQueue,
        entries: &mut [cq::Entry],
    ) -> selvedge::Result<usize> {
        if self.manner == Wait::Spin {
            self.idle.rest();
            return Ok(0);
        }
        self.sleep(cq, entries)
    }

    #[cold]
    fn sleep(self, cq: &dyn CompletionQueue, entries: &mut [cq::Entry]) -> selvedge::Result<usize> {
        match self.manner {
            Wait::Spin | Wait::Yield => std::thread::yield_now(),
            Wait::Fd if cq.try_wait().is_ok() => {
                let fd = cq.wait_fd().ok_or(Errno::NoSys)?;
                let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
                // Whatever it says, the queue is read again.
                let _ = poll(&mut fds, PollTimeout::from(PATIENCE_MS));
            }
            Wait::Fd => {}
            Wait::Sleep => {
                let patience = Duration::from_millis(PATIENCE_MS.into());
                return match cq.wait(entries, Some(patience)) {
                    Err(Errno::Again) => Ok(0),
                    read => read,
                };
            }
        }
        Ok(0)
    }

    /// Lets others run before a post is tried again.
    pub(super) fn rest(self) {
        match self.manner {
            Wait::Spin => self.idle.rest(),
            _ => std::thread::yield_now(),
        }
    }
}

/// How long a wait is, so that a process that waits in vain says so at its deadline.
const PATIENCE_MS: u16 = 1000;

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
    pub(super) waiter: Waiter,
    pub(super) wire: &'a mut Wire,
}

/// How many bytes a datagram of the provider carries.
///
/// # Errors
/// When it has no datagrams, with what discovery says.
pub fn longest_datagram(provider: Option<String>) -> anyhow::Result<usize> {
    let order = OpenOrder {
        datagrams: true,
        ..OpenOrder::plain(provider, 1, 1)
    };
    Ok(discover(&order)?.ep_attr.max_msg_size)
}

/// The best way to communicate that the loops can use.
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
        "messages of {} carry at most {limit} bytes, not {}: ask for smaller sizes with -S",
        info.fabric_attr.prov_name,
        order.largest
    );
    Ok(info)
}

#[expect(unsafe_code, reason = "the promise that removes locks")]
fn hints(order: &OpenOrder) -> Hints {
    let mut hints = Hints::new()
        .ep_type(match order.datagrams {
            true => EpType::Dgram,
            false => EpType::Rdm,
        })
        .caps(caps(order))
        .rx_size(2 * order.window)
        .tx_size(order.window);
    if let Some(provider) = &order.provider {
        hints = hints.provider(provider);
    }
    if order.manner.threading == Promise::Safe {
        return hints;
    }
    // SAFETY: a `Station` keeps all objects of its domain to itself, `Wire`'s loops borrow it
    // exclusively, and it is used by the thread that owns it alone; so is an `OwnedEndpoint`.
    unsafe { hints.promise_threading(Threading::Domain) }
}

fn caps(order: &OpenOrder) -> Caps {
    if order.datagrams {
        return Caps::MSG;
    }
    let messages = Caps::MSG | Caps::TAGGED;
    match order.remote {
        true => messages | Caps::RMA | Caps::ATOMIC,
        false => messages,
    }
}

/// Room for everything that a window leaves behind on either side.
fn cq_attr(order: &OpenOrder) -> cq::Attr {
    let mut attr = cq::Attr::with_size((4 * order.window).max(256));
    attr.wait_obj = match order.manner.wait {
        Wait::Spin | Wait::Yield => wait::Object::None,
        Wait::Fd => wait::Object::Fd,
        Wait::Sleep => wait::Object::Unspec,
    };
    attr
}
