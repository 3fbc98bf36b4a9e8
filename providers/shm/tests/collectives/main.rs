//! Collectives over shm: members in this process and in other processes.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

mod channel;
mod contexts;
mod faults;
mod killed;
mod members;
mod oracle;
mod rules;
mod sweep;

use selvedge::Registry;

/// The provider that is tested.
fn registry() -> Registry {
    Registry::new().with(&selvedge_shm::PROVIDER)
}
