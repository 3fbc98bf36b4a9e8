//! Which peers the provider says that it reaches: those on this host, and on request all of them, for
//! programs that ask for peers on other hosts and have none.

use std::sync::Once;

use selvedge::param::Filter;
use selvedge::{Caps, Info, Query};
use selvedge_kit::attr;

use crate::provider::config::Config;

/// What of it stands among capabilities.
pub(crate) fn caps(config: &Config) -> Caps {
    match config.remote_comm {
        true => Caps::LOCAL_COMM | Caps::REMOTE_COMM,
        false => Caps::LOCAL_COMM,
    }
}

/// Warns once in a process if `offer`, which was refused, would have been taken with
/// [`Caps::REMOTE_COMM`], and shm was named: whoever named it otherwise sees no reason.
pub(crate) fn warn_if_refused_for_it(mut offer: Info, query: &Query<'_>) {
    if offer.caps.contains(Caps::REMOTE_COMM) || !is_named(query) {
        return;
    }
    offer.caps |= Caps::REMOTE_COMM;
    offer.domain_attr.caps |= Caps::REMOTE_COMM;
    if attr::check(&offer, query).is_err() {
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

/// Whether the environment or the program asks for shm by its name.
fn is_named(query: &Query<'_>) -> bool {
    let environment = query.params.text("FI_PROVIDER").unwrap_or_default();
    let hint = &query.hints.info().fabric_attr.prov_name;
    [&environment, hint].into_iter().any(|names| {
        let names = Filter::parse(names);
        names.admits_listed_only() && names.admits("shm")
    })
}
