//! The base of every provider's offers.

use selvedge::info::{Progress, ResourceMgmt, Threading, Version};
use selvedge::{Info, MrMode};

use crate::mr::MR_IOV_LIMIT;

/// The reported limit of objects of one kind in one domain; the kit itself has no limit.
const OBJECTS: usize = 1 << 16;

/// Makes an offer of the provider `name` with the limits of this package: its locks, queues,
/// counters and registered memory. The provider adds capabilities, operations and limits of
/// transfers.
pub fn base_info(name: &str) -> Info {
    let mut info = Info::default();
    info.ep_attr.tx_ctx_cnt = 1;
    info.ep_attr.rx_ctx_cnt = 1;

    let domain = &mut info.domain_attr;
    domain.name = name.into();
    domain.threading = Threading::Safe;
    domain.control_progress = Progress::Manual;
    domain.data_progress = Progress::Manual;
    domain.resource_mgmt = ResourceMgmt::Enabled;
    domain.mr_mode = MrMode::BASIC | MrMode::SCALABLE;
    domain.mr_key_size = 8;
    domain.mr_iov_limit = MR_IOV_LIMIT;
    domain.mr_cnt = 1 << 20;
    domain.cq_cnt = OBJECTS;
    domain.cntr_cnt = OBJECTS;
    domain.max_cntr_value = u64::MAX;
    domain.max_err_cntr_value = u64::MAX;
    domain.ep_cnt = OBJECTS;
    domain.tx_ctx_cnt = OBJECTS;
    domain.rx_ctx_cnt = OBJECTS;
    domain.max_ep_tx_ctx = 1;
    domain.max_ep_rx_ctx = 1;

    info.fabric_attr.name = name.into();
    info.fabric_attr.prov_name = name.into();
    info.fabric_attr.prov_version = Version::API;
    info
}
