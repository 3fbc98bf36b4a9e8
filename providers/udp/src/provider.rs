//! `Udp`: the provider object, which answers discovery and opens fabrics.

use std::sync::Arc;

use selvedge::info::{COMP_ORDER_STRICT, Candidate, EpType, Protocol, Version};
use selvedge::{AddrFormat, Alias, Caps, Error, Info, OpFlags, Provider, Query, Result, param};
use selvedge_kit::ip::{ADDRESS_MAX, address_pairs, interface};
use selvedge_kit::{FabricId, attr, grant_auto_progress};

use crate::config::{Config, LONGEST_QUEUE, PARAMS};
use crate::domain::Fabric;
use crate::post::TX_DEFAULTS;
use crate::socket::IOV_LIMIT;

/// The udp provider, for a [`selvedge::Registry`].
#[derive(Clone, Copy, Debug)]
pub struct Udp;

impl Provider for Udp {
    fn name(&self) -> &'static str {
        "udp"
    }

    fn version(&self) -> Version {
        Version::API
    }

    fn aliases(&self) -> &'static [Alias] {
        &[Alias::Unsupported(
            "udp;ofi_rxd",
            "which has datagrams only: request tcp for reliable endpoints",
        )]
    }

    fn params(&self) -> &'static [param::Spec] {
        PARAMS
    }

    fn getinfo(&self, query: &Query<'_>) -> Result<Vec<Candidate>, Error> {
        let config = Config::read(query.params)?;
        let interfaces = interface::all(config.iface.as_deref())?;
        let requested = &query.hints.info().domain_attr;
        let candidates = address_pairs(query, &interfaces)?.into_iter().map(|pair| {
            let mut info = info(&config);
            pair.fill(&mut info);
            if info.addr_format == AddrFormat::SockaddrIn6 {
                info.ep_attr.max_msg_size -= IPV6_EXTRA_HEADER;
                info.tx_attr.inject_size -= IPV6_EXTRA_HEADER;
            }
            grant_auto_progress(&mut info.domain_attr, requested);
            attr::grow_queues(&mut info, query, LONGEST_QUEUE);
            attr::check(&info, query)
        });
        Ok(candidates.collect())
    }

    fn fabric(&self, info: &Info) -> Result<Arc<dyn selvedge::Fabric>, Error> {
        Ok(Arc::new(Fabric(FabricId::of(info))))
    }
}

/// The difference of the header lengths of IPv6 and IPv4 in bytes.
const IPV6_EXTRA_HEADER: usize = 20;

/// The largest `Info` of the provider.
fn info(config: &Config) -> Info {
    let tx_caps = Caps::MSG | Caps::SEND | Caps::MULTICAST;
    // Multicast is a capability of senders, as in libfabric.
    let rx_caps = Caps::MSG | Caps::RECV | Caps::SOURCE | Caps::SOURCE_ERR;
    let comm_caps = Caps::LOCAL_COMM | Caps::REMOTE_COMM;
    let mut info = attr::base_info("udp");
    info.caps = tx_caps | rx_caps | comm_caps | Caps::AV_USER_ID;

    info.tx_attr.caps = tx_caps;
    info.tx_attr.op_flags = TX_DEFAULTS;
    info.tx_attr.inject_size = config.max_msg_size;
    // Datagrams are sent and received in order of their posts.
    info.tx_attr.comp_order = COMP_ORDER_STRICT;
    info.tx_attr.size = config.tx_size;
    info.tx_attr.iov_limit = IOV_LIMIT;

    info.rx_attr.caps = rx_caps;
    info.rx_attr.op_flags = OpFlags::COMPLETION;
    info.rx_attr.comp_order = COMP_ORDER_STRICT;
    info.rx_attr.size = config.rx_size;
    info.rx_attr.iov_limit = IOV_LIMIT;

    info.ep_attr.ep_type = EpType::Dgram;
    info.ep_attr.protocol = Protocol::Udp;
    info.ep_attr.max_msg_size = config.max_msg_size;

    let domain = &mut info.domain_attr;
    domain.max_err_data = ADDRESS_MAX;
    domain.caps = comm_caps | Caps::AV_USER_ID;

    info
}
