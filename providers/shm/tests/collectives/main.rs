//! Collectives over shm, all members in this process.

mod crew;
mod faults;
mod oracle;
mod rules;
mod sweep;

use selvedge::Registry;

/// The provider that is tested.
fn registry() -> Registry {
    Registry::new().with(&selvedge_shm::PROVIDER)
}
