//! The common parts of providers over IP: network interfaces, name resolution, address vectors.

mod av;
mod candidate;
pub mod interface;
pub mod resolve;

pub use av::{Av, canonical_addr};
pub use candidate::{Candidate, candidates, requested_address};

/// Bytes of an address as text: an IPv6 address with scope and port, and the terminating zero.
pub const ADDRESS_MAX: usize = 80;
