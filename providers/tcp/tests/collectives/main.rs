//! Collectives over tcp, all members in this process.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

#[path = "../../../shm/tests/collectives/contexts.rs"]
mod contexts;
#[path = "../../../shm/tests/collectives/faults.rs"]
mod faults;
#[path = "../../../shm/tests/collectives/killed.rs"]
mod killed;
#[path = "../../../shm/tests/collectives/members.rs"]
mod members;
#[path = "../../../shm/tests/collectives/oracle.rs"]
mod oracle;
#[path = "../../../shm/tests/collectives/rules.rs"]
mod rules;
#[path = "../../../shm/tests/collectives/sweep.rs"]
mod sweep;

use selvedge::Registry;

/// The provider that is tested.
fn registry() -> Registry {
    let params = [("FI_TCP_IFACE", "lo")].into_iter().collect();
    Registry::new()
        .with(&selvedge_tcp::PROVIDER)
        .with_params(params)
}
