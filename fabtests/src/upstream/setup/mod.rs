//! What programs do before they open endpoints: discovery, domains, and the exchange of addresses.

mod discover;
mod domain;
mod oob;

