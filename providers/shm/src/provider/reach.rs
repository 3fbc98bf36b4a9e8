//! The capabilities `FI_LOCAL_COMM` and `FI_REMOTE_COMM`. The provider reaches peers on this host.
//! On request it also offers `FI_REMOTE_COMM`, for programs that require it and run on one host.

use std::sync::Once;

use selvedge::param::Filter;
use selvedge::{Caps, Info, Query};
use selvedge_kit::attr;

use crate::provider::config::Config;

/// Returns the communication capabilities for this configuration.
pub(crate) fn caps(config: &Config) -> Caps {
    if config.remote_comm {
        Caps::LOCAL_COMM | Caps::REMOTE_COMM
    } else {
        Caps::LOCAL_COMM
    }
}

/// Warns once in a process if shm was requested by name and `candidate` was refused only because it
/// lacks [`Caps::REMOTE_COMM`]. Without the warning the user would not know the reason.
pub(crate) fn warn_if_remote_comm_excludes(mut candidate: Info, query: &Query<'_>) {
    if candidate.caps.contains(Caps::REMOTE_COMM) || !is_named(query) {
        return;
    }
    candidate.caps |= Caps::REMOTE_COMM;
    candidate.domain_attr.caps |= Caps::REMOTE_COMM;
    if attr::check(&candidate, query).is_err() {
        return;
    }
    static WARNED: Once = Once::new();
    WARNED.call_once(|| {
        log::warn!(
            target: "selvedge::shm::core",
            "shm is named and left out, because the program asks for FI_REMOTE_COMM, peers on other \
             hosts: set FI_SHM_REMOTE_COMM=1 if all of its processes run on this host, or name lnx, \
             which uses shm on a host and tcp between hosts"
        );
    });
}

/// Whether the environment or the program requests shm by name.
fn is_named(query: &Query<'_>) -> bool {
    let environment = query.params.text("FI_PROVIDER").unwrap_or_default();
    let hint = &query.hints.info().fabric_attr.prov_name;
    [&environment, hint].into_iter().any(|names| {
        let names = Filter::parse(names);
        names.admits_listed_only() && names.admits("shm")
    })
}
