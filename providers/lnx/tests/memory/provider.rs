//! The lnx provider over shm and tcp.

use selvedge::info::{EpType, Version};
use selvedge::{Caps, Hints, Info, InfoFlags, Registry};
use selvedge_lnx::Lnx;

use crate::endpoint::CopyingEndpoint;

static LNX: Lnx = Lnx::new(&selvedge_shm::PROVIDER, &selvedge_tcp::PROVIDER);

/// The provider with these parameters, on the loopback interface.
pub(crate) fn registry(params: &[(&str, &str)]) -> Registry {
    let defaults = [("FI_TCP_IFACE", "lo")];
    let params = defaults.iter().chain(params).copied().collect();
    Registry::new().with(&LNX).with_params(params)
}

pub(crate) fn hints() -> Hints {
    let caps = Caps::MSG | Caps::TAGGED | Caps::RMA | Caps::ATOMIC;
    let caps = caps | Caps::RMA_EVENT | Caps::SOURCE | Caps::DIRECTED_RECV;
    Hints::new().caps(caps).ep_type(EpType::Rdm).provider("lnx")
}

pub(crate) fn info(host: &str) -> Info {
    let registry = registry(&[("FI_LNX_HOST", host)]);
    registry.infos(&hints()).unwrap().remove(0)
}

/// The info for a node and a service.
pub(crate) fn info_for(node: Option<&str>, service: &str, flags: InfoFlags) -> Info {
    let registry = registry(&[]);
    let found = registry.getinfo(Version::API, node, Some(service), flags, &hints());
    found.unwrap().remove(0)
}

/// Opens a side on a host with this name.
pub(crate) fn open_side_on(host: &str) -> CopyingEndpoint {
    CopyingEndpoint::open(&info(host))
}

/// Two sides on one host, and two sides on different hosts.
pub(crate) fn pairs() -> Vec<[CopyingEndpoint; 2]> {
    vec![
        [open_side_on("here"), open_side_on("here")],
        [open_side_on("here"), open_side_on("there")],
    ]
}

/// The name of a side in errors.
pub(crate) fn name_in_errors(side: &CopyingEndpoint) -> String {
    side.ep.address().unwrap().to_string()
}
