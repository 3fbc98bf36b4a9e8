//! `Shm`: the provider object, and the capabilities that it reports to discovery.

pub(crate) mod av;
pub(crate) mod config;
pub(crate) mod domain;
pub(crate) mod placement;
pub(crate) mod reach;
pub(crate) mod setup;
pub(crate) mod shared;

use std::sync::Arc;

use selvedge::info::{Candidate, EpType, Progress, Protocol, ResourceMgmt, Threading, Version};
use selvedge::{
    AddrFormat, Address, Alias, Caps, Error, Info, InfoFlags, MrMode, MsgOrder, Provider, Query,
    Result, param,
};
use selvedge_kit::auth::KEY_MAX;
use selvedge_kit::grant_auto_progress;
use selvedge_kit::segments::RMA_IOV_LIMIT;
use selvedge_kit::sep::CONTEXTS_MAX;
use selvedge_kit::{attr, coll};

use crate::peers::name::{service_address, source_address};
use crate::provider::config::{Config, LONGEST_QUEUE, PARAMS};
use crate::provider::domain::Fabric;
use crate::smr::keys::{FIRST_ENTRIES, MAX_CHUNKS, entries_of};
use crate::transfers::cmd::IOV_LIMIT;

/// The shm provider, for a [`selvedge::Registry`].
#[derive(Clone, Copy, Debug)]
pub struct Shm;

impl Provider for Shm {
    fn name(&self) -> &'static str {
        "shm"
    }

    fn version(&self) -> Version {
        Version::API
    }

    fn aliases(&self) -> &'static [Alias] {
        &[
            // The name of this provider in another libfabric.
            Alias::SameProtocol("selvedge_shm"),
            Alias::OtherProtocol("shm;ofi_rxm"),
        ]
    }

    fn params(&self) -> &'static [param::Spec] {
        PARAMS
    }

    fn getinfo(&self, query: &Query<'_>) -> Result<Vec<Candidate>, Error> {
        let config = Config::read(query.params)?;
        let (src, dest) = resolve_addresses(query);
        let candidates = [EpType::Rdm, EpType::Dgram].map(|ep_type| {
            let mut info = build_info(ep_type, &config);
            info.src_addr = src.clone();
            info.dest_addr = dest.clone();
            grant_auto_progress(&mut info.domain_attr, &query.hints.info().domain_attr);
            attr::grow_queues(&mut info, query, LONGEST_QUEUE);
            if ep_type == EpType::Rdm {
                coll::advertise(&mut info);
            }
            let candidate = attr::check(&info, query).map(coll::reserve_tag_bit);
            if ep_type == EpType::Rdm && candidate.is_err() {
                reach::warn_if_remote_comm_excludes(info, query);
            }
            candidate
        });
        Ok(candidates.into())
    }

    fn fabric(&self, info: &Info) -> Result<Arc<dyn selvedge::Fabric>, Error> {
        Ok(Arc::new(Fabric::open(info)))
    }
}

/// Returns source and destination address for the `node` and `service` of a query.
fn resolve_addresses(query: &Query<'_>) -> (Option<Address>, Option<Address>) {
    let (node, service) = (query.node, query.service);
    let (src, dest) = if query.flags.contains(InfoFlags::SOURCE) {
        (source_address(node, service), None)
    } else {
        (source_address(None, None), service_address(node, service))
    };
    (Some(src), dest)
}

/// The order of atomics: those of one endpoint to another are executed in the order of their posts.
const ATOMIC_ORDER: MsgOrder = MsgOrder::ATOMIC_RAR
    .union(MsgOrder::ATOMIC_RAW)
    .union(MsgOrder::ATOMIC_WAR)
    .union(MsgOrder::ATOMIC_WAW);

/// Capabilities of address vectors.
const VECTOR_CAPS: Caps = Caps::AV_USER_ID.union(Caps::SHARED_AV);

/// Builds the info with all capabilities of this type of endpoint.
fn build_info(ep_type: EpType, config: &Config) -> Info {
    let tx_caps = Caps::MSG
        | Caps::TAGGED
        | Caps::RMA
        | Caps::SEND
        | Caps::FENCE
        | Caps::ATOMIC
        | Caps::READ
        | Caps::WRITE
        | Caps::TRIGGER
        | Caps::NAMED_RX_CTX;
    let rx_caps = Caps::MSG
        | Caps::TAGGED
        | Caps::RMA
        | Caps::RECV
        | Caps::ATOMIC
        | Caps::REMOTE_READ
        | Caps::REMOTE_WRITE
        | Caps::RMA_EVENT
        | Caps::TRIGGER
        | Caps::SOURCE
        | Caps::SOURCE_ERR
        | Caps::DIRECTED_RECV
        | Caps::TAGGED_DIRECTED_RECV
        | Caps::EXACT_DIRECTED_RECV
        | Caps::MULTI_RECV
        | Caps::TAGGED_MULTI_RECV;
    let reach = reach::caps(config);
    let mut info = Info::default();
    info.caps = tx_caps | rx_caps | reach | VECTOR_CAPS;
    info.addr_format = AddrFormat::Str;

    info.tx_attr.caps = tx_caps;
    info.tx_attr.op_flags = crate::endpoint::msg::TX_DEFAULTS;
    info.tx_attr.msg_order = MsgOrder::SAS | ATOMIC_ORDER;
    info.tx_attr.inject_size = config.inject_size;
    info.tx_attr.size = config.tx_size;
    info.tx_attr.iov_limit = IOV_LIMIT;
    info.tx_attr.rma_iov_limit = RMA_IOV_LIMIT;

    info.rx_attr.caps = rx_caps;
    info.rx_attr.op_flags = crate::endpoint::msg::RX_DEFAULTS;
    info.rx_attr.msg_order = MsgOrder::SAS | ATOMIC_ORDER;
    info.rx_attr.size = config.rx_size;
    info.rx_attr.iov_limit = IOV_LIMIT;

    info.ep_attr.ep_type = ep_type;
    info.ep_attr.protocol = Protocol::Shm;
    info.ep_attr.protocol_version = crate::smr::layout::VERSION;
    info.ep_attr.max_msg_size = isize::MAX as usize;
    // A key of the longest length. Discovery replaces it by the requested key.
    info.ep_attr.auth_key = vec![0; KEY_MAX];
    info.ep_attr.tx_ctx_cnt = 1;
    info.ep_attr.rx_ctx_cnt = 1;

    let domain = &mut info.domain_attr;
    domain.name = "shm".into();
    domain.auth_key = vec![0; KEY_MAX];
    domain.threading = Threading::Safe;
    domain.control_progress = Progress::Manual;
    domain.data_progress = Progress::Manual;
    domain.resource_mgmt = ResourceMgmt::Enabled;
    domain.mr_mode = MrMode::BASIC | MrMode::SCALABLE;
    domain.mr_key_size = 8;
    domain.mr_iov_limit = selvedge_kit::mr::MR_IOV_LIMIT;
    domain.mr_cnt = entries_of(MAX_CHUNKS) - FIRST_ENTRIES;
    domain.cq_data_size = 8;
    domain.max_err_data = crate::peers::name::ADDRESS_MAX;
    domain.cq_cnt = 1 << 16;
    domain.cntr_cnt = 1 << 16;
    domain.max_cntr_value = u64::MAX;
    domain.max_err_cntr_value = u64::MAX;
    domain.ep_cnt = 1 << 16;
    domain.tx_ctx_cnt = 1 << 16;
    domain.rx_ctx_cnt = 1 << 16;
    domain.max_ep_tx_ctx = CONTEXTS_MAX;
    domain.max_ep_rx_ctx = CONTEXTS_MAX;
    domain.max_ep_stx_ctx = 1 << 16;
    domain.max_ep_srx_ctx = 1 << 16;
    domain.caps = reach | VECTOR_CAPS;

    info.fabric_attr.name = "shm".into();
    info.fabric_attr.prov_name = "shm".into();
    info.fabric_attr.prov_version = Version::API;
    info
}

#[cfg(test)]
mod tests {
    use selvedge::{Hints, Registry};

    use super::*;

    fn has_remote_comm(value: &str) -> bool {
        let params = [("FI_SHM_REMOTE_COMM", value)].into_iter().collect();
        let registry = Registry::new().with(&crate::PROVIDER).with_params(params);
        let infos = registry.infos(&Hints::new().caps(Caps::TAGGED | Caps::REMOTE_COMM));
        infos.is_ok()
    }

    #[test]
    fn remote_comm_is_offered_on_request_only() {
        assert!(!has_remote_comm("0"));
        assert!(has_remote_comm("1"));
    }
}
