//! `Tcp`: the provider object, which implements discovery and opens fabrics.

use std::sync::Arc;

use selvedge::info::{COMP_ORDER_STRICT, Candidate, EpType, Protocol, Version};
use selvedge::{Alias, Caps, Error, Info, MsgOrder, Provider, Query, Result, param};
use selvedge_kit::auth::KEY_MAX;
use selvedge_kit::grant_auto_progress;
use selvedge_kit::ip::{address_pairs, interface};
use selvedge_kit::segments::RMA_IOV_LIMIT;
use selvedge_kit::sep::CONTEXTS_MAX;
use selvedge_kit::{FabricId, attr, coll};

use crate::config::{Config, LARGEST_INJECT, LONGEST_QUEUE, PARAMS};
use crate::domain::Fabric;
use crate::endpoint::msg::{IOV_LIMIT, RX_DEFAULTS, TX_DEFAULTS};
use crate::wire::hello::DATA_MAX;

/// The tcp provider, for a [`selvedge::Registry`].
#[derive(Clone, Copy, Debug)]
pub struct Tcp;

impl Provider for Tcp {
    fn name(&self) -> &'static str {
        "tcp"
    }

    fn version(&self) -> Version {
        Version::API
    }

    fn aliases(&self) -> &'static [Alias] {
        &[
            // The name of this provider in another libfabric.
            Alias::SameProtocol("selvedge_tcp"),
            // The name of the reliable-datagram provider in libfabric 1.17.
            Alias::SameProtocol("net"),
            Alias::OtherProtocol("net;ofi_rxm"),
            Alias::OtherProtocol("tcp;ofi_rxm"),
            Alias::OtherProtocol("sockets"),
        ]
    }

    fn params(&self) -> &'static [param::Spec] {
        PARAMS
    }

    fn getinfo(&self, query: &Query<'_>) -> Result<Vec<Candidate>, Error> {
        let config = Config::read(query.params)?;
        let interfaces = interface::all(config.iface.as_deref())?;
        let requested = &query.hints.info().domain_attr;
        let mut candidates = Vec::new();
        for ep_type in [EpType::Rdm, EpType::Msg] {
            for pair in address_pairs(query, &interfaces)? {
                let mut info = full_info(ep_type, &config);
                pair.fill(&mut info);
                grant_auto_progress(&mut info.domain_attr, requested);
                attr::grow_queues(&mut info, query, LONGEST_QUEUE);
                attr::grow_inject(&mut info, query, LARGEST_INJECT);
                if ep_type == EpType::Rdm {
                    coll::advertise(&mut info);
                }
                candidates.push(attr::check(&info, query).map(coll::reserve_tag_bit));
            }
        }
        Ok(candidates)
    }

    fn fabric(&self, info: &Info) -> Result<Arc<dyn selvedge::Fabric>, Error> {
        let config = Config::read(info.params())?;
        Ok(Arc::new(Fabric {
            id: FabricId::of(info),
            config,
        }))
    }
}

/// The target executes operations of one endpoint in the order of their posts, except writes after
/// reads and sends after reads.
const ORDER: MsgOrder = MsgOrder::RAR
    .union(MsgOrder::RAW)
    .union(MsgOrder::RAS)
    .union(MsgOrder::WAW)
    .union(MsgOrder::WAS)
    .union(MsgOrder::SAW)
    .union(MsgOrder::SAS)
    .union(MsgOrder::RMA_RAR)
    .union(MsgOrder::RMA_RAW)
    .union(MsgOrder::RMA_WAW)
    .union(MsgOrder::ATOMIC_RAR)
    .union(MsgOrder::ATOMIC_RAW)
    .union(MsgOrder::ATOMIC_WAR)
    .union(MsgOrder::ATOMIC_WAW);

const ONE_SIDED: Caps = Caps::RMA.union(Caps::ATOMIC);

fn tx_caps(ep_type: EpType) -> Caps {
    let caps =
        Caps::MSG | ONE_SIDED | Caps::SEND | Caps::READ | Caps::WRITE | Caps::FENCE | Caps::TRIGGER;
    match ep_type {
        EpType::Rdm => caps | Caps::TAGGED | Caps::NAMED_RX_CTX,
        _ => caps,
    }
}

fn rx_caps(ep_type: EpType) -> Caps {
    let caps = Caps::MSG
        | ONE_SIDED
        | Caps::RECV
        | Caps::REMOTE_READ
        | Caps::REMOTE_WRITE
        | Caps::RMA_EVENT
        | Caps::TRIGGER
        | Caps::MULTI_RECV;
    match ep_type {
        EpType::Rdm => {
            caps | Caps::TAGGED
                | Caps::SOURCE
                | Caps::SOURCE_ERR
                | Caps::DIRECTED_RECV
                | Caps::TAGGED_DIRECTED_RECV
                | Caps::EXACT_DIRECTED_RECV
                | Caps::TAGGED_MULTI_RECV
        }
        _ => caps,
    }
}

/// Returns the `Info` with everything that this type of endpoint supports.
fn full_info(ep_type: EpType, config: &Config) -> Info {
    let (tx_caps, rx_caps) = (tx_caps(ep_type), rx_caps(ep_type));
    let comm_caps = Caps::LOCAL_COMM | Caps::REMOTE_COMM;
    let mut info = attr::base_info("tcp");
    let vector = match ep_type {
        EpType::Rdm => Caps::AV_USER_ID | Caps::SHARED_AV,
        _ => Caps::empty(),
    };
    info.caps = tx_caps | rx_caps | comm_caps | vector;

    info.tx_attr.caps = tx_caps;
    info.tx_attr.op_flags = TX_DEFAULTS;
    info.tx_attr.msg_order = ORDER;
    // Strict order is granted only on request: an operation that waits for the peer's response then
    // delays the completions of all later operations.
    info.tx_attr.comp_order = COMP_ORDER_STRICT;
    info.tx_attr.inject_size = config.inject_size;
    info.tx_attr.size = config.tx_size;
    info.tx_attr.iov_limit = IOV_LIMIT;
    info.tx_attr.rma_iov_limit = RMA_IOV_LIMIT;

    info.rx_attr.caps = rx_caps;
    info.rx_attr.op_flags = RX_DEFAULTS;
    info.rx_attr.msg_order = ORDER;
    info.rx_attr.comp_order = COMP_ORDER_STRICT;
    info.rx_attr.size = config.rx_size;
    info.rx_attr.iov_limit = IOV_LIMIT;

    info.ep_attr.ep_type = ep_type;
    // The maximum length of a key; the returned `Info` has the requested key.
    info.ep_attr.auth_key = vec![0; KEY_MAX];
    info.domain_attr.auth_key = vec![0; KEY_MAX];
    (info.ep_attr.protocol, info.ep_attr.protocol_version) = match ep_type {
        EpType::Rdm => (Protocol::Xnet, 1),
        _ => (Protocol::SockTcp, 0),
    };
    info.ep_attr.max_msg_size = isize::MAX as usize;
    info.ep_attr.max_order_raw_size = usize::MAX;
    info.ep_attr.max_order_waw_size = usize::MAX;

    let domain = &mut info.domain_attr;
    domain.cq_data_size = 8;
    domain.max_err_data = DATA_MAX;
    let contexts = if ep_type == EpType::Rdm {
        CONTEXTS_MAX
    } else {
        1
    };
    domain.max_ep_tx_ctx = contexts;
    domain.max_ep_rx_ctx = contexts;
    domain.max_ep_stx_ctx = 1 << 16;
    domain.max_ep_srx_ctx = 1 << 16;
    domain.caps = comm_caps | vector;

    info
}
