//! The provider: what discovery asks, and what it answers.

use std::sync::Arc;

use selvedge::info::{EpType, Mismatch, Offer, Progress, ResourceMgmt, Threading, Version};
use selvedge::{
    AddrFormat, Caps, Error, Hints, Info, MrMode, MsgOrder, Provider, Query, Registry, Result,
    param,
};
use selvedge_kit::mr::MR_IOV_LIMIT;
use selvedge_kit::{attr, offer_progress};

use crate::config::{Config, PARAMS};
use crate::domain::Fabric;
use crate::post::{IOV_LIMIT, RX_DEFAULTS, TX_DEFAULTS};
use crate::wire::EAGER;

/// A provider over two others, for a [`Registry`].
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
    links: [&'static dyn Provider; 2],
}

pub(crate) const NAME: &str = "lnx";

impl Lnx {
    /// Endpoints over `near` for peers on the same host, and over `far` for all others.
    pub const fn new(near: &'static dyn Provider, far: &'static dyn Provider) -> Self {
        Self { links: [near, far] }
    }

    /// What each link offers for an endpoint of ours: the first of its ways.
    fn links(&self, query: &Query<'_>) -> Result<Option<[Info; 2]>, Error> {
        let hints = needs();
        let query = Query::new(&hints, query.params);
        let mut infos = Vec::with_capacity(2);
        for link in self.links {
            let offers = link.getinfo(&query)?;
            infos.extend(offers.into_iter().flatten().next());
        }
        Ok(infos.try_into().ok())
    }
}

/// What a link has to have.
fn needs() -> Hints {
    let caps = Caps::MSG | Caps::TAGGED | Caps::DIRECTED_RECV | Caps::TAGGED_DIRECTED_RECV;
    Hints::new().caps(caps).ep_type(EpType::Rdm)
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

    fn getinfo(&self, query: &Query<'_>) -> Result<Vec<Offer>, Error> {
        Config::read(query.params)?;
        if !is_asked_for(query) {
            return Ok(Vec::new());
        }
        if let Some(name) = query.node.or(query.service) {
            let has = "the addresses of endpoints alone";
            return Ok(vec![Err(Mismatch::new("node or service", name, has))]);
        }
        let Some([near, far]) = self.links(query)? else {
            return Ok(Vec::new());
        };
        let mut info = info(&near, &far);
        offer_progress(&mut info.domain_attr, &query.hints.info().domain_attr);
        Ok(vec![attr::check(&info, query)])
    }

    fn fabric(&self, info: &Info) -> Result<Arc<dyn selvedge::Fabric>, Error> {
        let hints = needs();
        let query = Query::new(&hints, info.params());
        let found = self.links(&query)?.ok_or_else(|| {
            let what = "the links of lnx: one of them is not there any more";
            Error::new(selvedge::Errno::NoDev, what)
        })?;
        let mut links = Vec::with_capacity(2);
        for (provider, found) in self.links.into_iter().zip(found) {
            let registry = Registry::new().with(provider);
            let registry = registry.with_params(info.params().clone());
            links.push(registry.adopt(found, &hints)?);
        }
        let links: [Info; 2] = links.try_into().expect("one for each of two");
        Ok(Arc::new(Fabric { links }))
    }
}

/// As libfabric's, it is there for those who name it: whoever names none is served by the links
/// themselves.
fn is_asked_for(query: &Query<'_>) -> bool {
    let asked = query
        .hints
        .info()
        .fabric_attr
        .prov_name
        .to_ascii_lowercase();
    let listed = query.params.raw("FI_PROVIDER").unwrap_or_default();
    let listed = listed.to_ascii_lowercase();
    let has = |text: &str| text.split([',', ';']).any(|name| name.trim() == NAME);
    has(&asked) || has(&listed)
}

/// All that the provider can do over these links.
fn info(near: &Info, far: &Info) -> Info {
    let tx_caps = Caps::MSG | Caps::TAGGED | Caps::SEND | Caps::FENCE;
    let rx_caps = Caps::MSG
        | Caps::TAGGED
        | Caps::RECV
        | Caps::SOURCE
        | Caps::SOURCE_ERR
        | Caps::DIRECTED_RECV
        | Caps::TAGGED_DIRECTED_RECV
        | Caps::EXACT_DIRECTED_RECV
        | Caps::MULTI_RECV
        | Caps::TAGGED_MULTI_RECV;
    let near_and_far = Caps::LOCAL_COMM | Caps::REMOTE_COMM;
    let mut info = Info::default();
    info.caps = tx_caps | rx_caps | near_and_far;
    info.addr_format = AddrFormat::Str;

    info.tx_attr.caps = tx_caps;
    info.tx_attr.op_flags = TX_DEFAULTS;
    info.tx_attr.msg_order = MsgOrder::SAS;
    info.tx_attr.inject_size = EAGER;
    info.tx_attr.size = near.tx_attr.size.min(far.tx_attr.size);
    info.tx_attr.iov_limit = IOV_LIMIT;

    info.rx_attr.caps = rx_caps;
    info.rx_attr.op_flags = RX_DEFAULTS;
    info.rx_attr.msg_order = MsgOrder::SAS;
    info.rx_attr.size = near.rx_attr.size.min(far.rx_attr.size);
    info.rx_attr.iov_limit = IOV_LIMIT;

    info.ep_attr.ep_type = EpType::Rdm;
    let most = near.ep_attr.max_msg_size.min(far.ep_attr.max_msg_size);
    info.ep_attr.max_msg_size = most;
    info.ep_attr.tx_ctx_cnt = 1;
    info.ep_attr.rx_ctx_cnt = 1;

    let domain = &mut info.domain_attr;
    domain.name = NAME.into();
    domain.threading = Threading::Safe;
    domain.control_progress = Progress::Manual;
    domain.data_progress = Progress::Manual;
    domain.resource_mgmt = ResourceMgmt::Enabled;
    domain.mr_mode = MrMode::BASIC | MrMode::SCALABLE;
    domain.mr_key_size = 8;
    domain.mr_iov_limit = MR_IOV_LIMIT;
    domain.mr_cnt = 1 << 20;
    domain.cq_data_size = 8;
    domain.max_err_data = NAME_MAX;
    domain.cq_cnt = 1 << 16;
    domain.cntr_cnt = 1 << 16;
    domain.max_cntr_value = u64::MAX;
    domain.max_err_cntr_value = u64::MAX;
    domain.ep_cnt = 1 << 16;
    domain.tx_ctx_cnt = 1 << 16;
    domain.rx_ctx_cnt = 1 << 16;
    domain.max_ep_tx_ctx = 1;
    domain.max_ep_rx_ctx = 1;
    domain.caps = near_and_far;

    info.fabric_attr.name = NAME.into();
    info.fabric_attr.prov_name = NAME.into();
    info.fabric_attr.prov_version = Version::API;
    info
}

/// Bytes of a name, with which a sender that nobody knows is told of.
const NAME_MAX: usize = 512;
