//! What programs do before they open endpoints: discovery, domains, and the exchange of addresses.

pub(super) mod connector;
pub(super) mod discover;
pub(super) mod domain;
pub(super) mod oob;
