//! The provider object: discovery, and the opening of fabrics.

use std::sync::Arc;

use selvedge::info::{Candidate, EpType, Mismatch, Version};
use selvedge::{
    AddrFormat, Address, Caps, Error, Info, InfoFlags, MsgOrder, Provider, Query, Result, param,
};
use selvedge_kit::{FabricId, attr, grant_auto_progress};

use crate::config::{Config, PARAMS, PROV_LINKS};
use crate::domain::Fabric;
use crate::limits::{IOV_LIMIT, RX_DEFAULTS, TX_DEFAULTS};
use crate::link::selection::{self, Needs, Providers, Selected};
use crate::name::{Name, host, host_of};
use crate::wire::EAGER;

/// The lnx provider, which runs over two other providers. Programs add it to a
/// [`selvedge::Registry`].
///
/// # Examples
///
/// ```
/// use selvedge::{Caps, Hints, Registry};
/// use selvedge_lnx::Lnx;
///
/// static LNX: Lnx = Lnx::new(&selvedge_shm::PROVIDER, &selvedge_tcp::PROVIDER);
/// let registry = Registry::new().with(&LNX);
/// let hints = Hints::new().caps(Caps::TAGGED).provider("lnx");
/// let domain = registry.infos(&hints)?.remove(0).open()?;
/// # drop(domain);
/// # Ok::<(), selvedge::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Lnx {
    providers: Providers,
}

pub(crate) const NAME: &str = "lnx";

impl Lnx {
    /// A provider whose endpoints reach peers on the same host over `near`, and all others over
    /// `far`.
    pub const fn new(near: &'static dyn Provider, far: &'static dyn Provider) -> Self {
        Self {
            providers: Providers {
                default: [near, far],
                unwatched: &[],
            },
        }
    }

    /// Adds providers that `FI_LNX_PROV_LINKS` can name. They may leave receives from a failed peer
    /// posted: lnx itself finds out whether the peer can be reached.
    #[must_use]
    pub const fn with_unwatched(mut self, providers: &'static [&'static dyn Provider]) -> Self {
        self.providers.unwatched = providers;
        self
    }
}

/// The lnx name of the host and service that a query names: the addresses that both links give
/// them.
fn resolve(selected: &[Selected; 2], query: &Query<'_>, host: u64) -> Result<Option<Name>, Error> {
    let on = |number: usize, node| {
        let link = &selected[number];
        let hints = link.message_hints(Needs::of_hints(query.hints), number);
        let mut requested = Query::new(&hints, query.params);
        (requested.node, requested.service, requested.flags) = (node, query.service, query.flags);
        let first = link.infos(&requested)?.into_iter().next();
        Ok::<_, Error>(first.and_then(|info| {
            if query.flags.contains(InfoFlags::SOURCE) {
                info.src_addr
            } else {
                info.dest_addr
            }
        }))
    };
    // A service is resolved without the node on the near link: there a host has one name, by
    // whatever address a peer calls it.
    let near = on(0, query.node.filter(|_| query.service.is_none()))?;
    let far = on(1, query.node)?;
    Ok(near.zip(far).map(|(near, far)| Name {
        host: host_of(&far, host),
        near,
        far,
    }))
}

/// Parses an address in hints or an info; `which` is the name of its field.
///
/// # Errors
/// If it is not an lnx name.
fn name_of(which: &'static str, addr: Option<&Address>) -> Result<Option<Name>, Mismatch> {
    let Some(addr) = addr else {
        return Ok(None);
    };
    let name = Name::from_address(addr);
    let name = name.ok_or_else(|| Mismatch::new(which, addr, "lnx://HOST|NEAR|FAR"))?;
    Ok(Some(name))
}

impl Provider for Lnx {
    fn name(&self) -> &'static str {
        NAME
    }

    fn version(&self) -> Version {
        Version::API
    }

    fn params(&self) -> &'static [param::Spec] {
        PARAMS
    }

    fn getinfo(&self, query: &Query<'_>) -> Result<Vec<Candidate>, Error> {
        let config = Config::read(query.params)?;
        if !is_requested(query) {
            return Ok(Vec::new());
        }
        let requested = query.hints.info();
        let names = name_of("src_addr", requested.src_addr.as_ref())
            .and_then(|_| name_of("dest_addr", requested.dest_addr.as_ref()));
        if let Err(mismatch) = names {
            return Ok(vec![Err(mismatch)]);
        }
        let selected = self.providers.select(&config.prov_links)?;
        let needs = Needs::of_hints(query.hints);
        let [near, far] = match selection::discover(&selected, needs, query.params, None)? {
            Ok(links) => links.map(|link| link.info),
            Err(mismatch) => return Ok(vec![Err(mismatch)]),
        };
        let mut info = info(&near, &far);
        let own_addrs = near.src_addr.clone().zip(far.src_addr.clone());
        info.src_addr = own_addrs.map(|(near, far)| {
            let host = host(&config.host);
            Name { host, near, far }.to_address()
        });
        if query.node.is_some() || query.service.is_some() {
            let resolved = resolve(&selected, query, host(&config.host))?;
            let resolved = resolved.map(|name| name.to_address());
            if query.flags.contains(InfoFlags::SOURCE) {
                info.src_addr = resolved
            } else {
                info.dest_addr = resolved
            }
        }
        grant_auto_progress(&mut info.domain_attr, &query.hints.info().domain_attr);
        attr::grow_queues(&mut info, query, LONGEST_QUEUE);
        Ok(vec![attr::check(&info, query)])
    }

    fn fabric(&self, info: &Info) -> Result<Arc<dyn selvedge::Fabric>, Error> {
        Ok(Arc::new(Fabric {
            id: FabricId::of(info),
            providers: self.providers,
        }))
    }
}

/// Whether the program names lnx, or its links are selected. As with libfabric's lnx, other
/// programs are not offered lnx, and use the providers of its links directly.
fn is_requested(query: &Query<'_>) -> bool {
    let requested = query
        .hints
        .info()
        .fabric_attr
        .prov_name
        .to_ascii_lowercase();
    let listed = query.params.raw("FI_PROVIDER").unwrap_or_default();
    let listed = listed.to_ascii_lowercase();
    let has = |text: &str| text.split([',', ';']).any(|name| name.trim() == NAME);
    let has_links = query
        .params
        .raw(PROV_LINKS)
        .is_some_and(|it| !it.is_empty());
    has(&requested) || has(&listed) || has_links
}

/// The longest queues that an application may request of an lnx endpoint. The endpoints of the
/// links get queues of the same length, if their providers support it.
const LONGEST_QUEUE: usize = 1 << 20;

/// The order that lnx guarantees. lnx itself keeps messages in order. It passes atomics to the link
/// of their peer in the order of posts, so they have the order that both links guarantee.
fn order(near: MsgOrder, far: MsgOrder) -> MsgOrder {
    const ATOMICS: MsgOrder = MsgOrder::ATOMIC_RAR
        .union(MsgOrder::ATOMIC_RAW)
        .union(MsgOrder::ATOMIC_WAR)
        .union(MsgOrder::ATOMIC_WAW);
    MsgOrder::SAS | (near & far & ATOMICS)
}

/// The info of lnx over two links with these infos.
fn info(near: &Info, far: &Info) -> Info {
    let common = near.caps.intersection(far.caps);
    let memory = common & (Caps::RMA | Caps::ATOMIC);
    let if_memory = |caps: Caps| {
        if memory.is_empty() {
            Caps::empty()
        } else {
            caps
        }
    };
    let tx_caps = Caps::MSG
        | Caps::TAGGED
        | Caps::SEND
        | Caps::FENCE
        | if_memory(memory | Caps::READ | Caps::WRITE);
    let rx_caps = if_memory(memory | Caps::REMOTE_READ | Caps::REMOTE_WRITE)
        | if_memory(common & Caps::RMA_EVENT)
        | Caps::MSG
        | Caps::TAGGED
        | Caps::RECV
        | Caps::SOURCE
        | Caps::SOURCE_ERR
        | Caps::DIRECTED_RECV
        | Caps::TAGGED_DIRECTED_RECV
        | Caps::EXACT_DIRECTED_RECV
        | Caps::MULTI_RECV
        | Caps::TAGGED_MULTI_RECV;
    let local_and_remote = Caps::LOCAL_COMM | Caps::REMOTE_COMM;
    let mut info = attr::base_info(NAME);
    info.caps = tx_caps | rx_caps | local_and_remote;
    info.addr_format = AddrFormat::Str;

    info.tx_attr.caps = tx_caps;
    info.tx_attr.op_flags = TX_DEFAULTS;
    info.tx_attr.msg_order = order(near.tx_attr.msg_order, far.tx_attr.msg_order);
    let inject_size = near.tx_attr.inject_size.min(far.tx_attr.inject_size);
    info.tx_attr.inject_size = EAGER.min(inject_size);
    info.tx_attr.size = near.tx_attr.size.min(far.tx_attr.size);
    let iov_limit = near.tx_attr.iov_limit.min(far.tx_attr.iov_limit);
    info.tx_attr.iov_limit = IOV_LIMIT.min(iov_limit);
    let rma_iov_limit = near.tx_attr.rma_iov_limit.min(far.tx_attr.rma_iov_limit);
    info.tx_attr.rma_iov_limit = rma_iov_limit;

    info.rx_attr.caps = rx_caps;
    info.rx_attr.op_flags = RX_DEFAULTS;
    info.rx_attr.msg_order = order(near.rx_attr.msg_order, far.rx_attr.msg_order);
    info.rx_attr.size = near.rx_attr.size.min(far.rx_attr.size);
    let iov_limit = near.rx_attr.iov_limit.min(far.rx_attr.iov_limit);
    info.rx_attr.iov_limit = IOV_LIMIT.min(iov_limit);

    info.ep_attr.ep_type = EpType::Rdm;
    let max_msg_size = near.ep_attr.max_msg_size.min(far.ep_attr.max_msg_size);
    info.ep_attr.max_msg_size = max_msg_size;

    let domain = &mut info.domain_attr;
    domain.cq_data_size = 8;
    domain.max_err_data = NAME_MAX;
    domain.caps = local_and_remote;

    info
}

/// The longest name, in bytes, in the error data of a message from an unknown sender.
const NAME_MAX: usize = 512;
